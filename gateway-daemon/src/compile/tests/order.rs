//! The output depends on what there is, not on the order it came in.

use proptest::prelude::*;

use super::*;

/// Two Gateways that collide, routes of all kinds that compete, services and slices.
fn manifest() -> String {
    let tcp_rules = |name: &str, weight| format!("rules: [{{backendRefs: [{}]}}]", to(name, weight));
    let mut text = [
        gateway_of(
            "g",
            &[
                "{name: web, port: 80, protocol: HTTP}",
                "{name: db, port: 5432, protocol: TCP}",
                "{name: dns, port: 53, protocol: UDP}",
            ],
        ),
        gateway_of(
            "h",
            &[
                "{name: web, port: 80, protocol: HTTP}",
                "{name: alt, port: 80, protocol: HTTP, hostname: a.example}",
            ],
        ),
        backend("a", &[("198.18.1.2", 80), ("198.18.1.1", 80)]),
        backend("b", &[("198.18.1.1", 80), ("2001:db8::9", 80)]),
        object(
            "Backend",
            "c",
            "{endpoints: [{hostname: z.example, port: 1}, {hostname: y.example, port: 1}]}",
        ),
        route_of("TCPRoute", "t1", &tcp_rules("a", 3)),
        route_of("TCPRoute", "t2", &tcp_rules("b", 3)),
        route_of("UDPRoute", "u", &tcp_rules("c", 3)),
        route_of("HTTPRoute", "team/w", &format!("hostnames: [b.example, a.example], {}", tcp_rules("a", 1))),
    ]
    .concat();
    for name in ["w1", "w2", "w3"] {
        let refs = format!("{}, {}", to("b", 1), to("none", 2));
        text += &route_of(
            "HTTPRoute",
            name,
            &format!(
                "hostnames: [w.example], rules: [{{backendRefs: [{refs}]}}, {{backendRefs: [{}]}}]",
                to("a", 1)
            ),
        );
        text += &route_of(
            "GRPCRoute",
            name,
            &format!("hostnames: [grpc.example], rules: [{{backendRefs: [{}]}}]", to("b", 1)),
        );
    }
    text
}

proptest! {
    #[test]
    fn shuffled_resources_give_an_equal_output(
        order in Just((0..objects(&manifest()).len()).collect::<Vec<_>>()).prop_shuffle(),
        combined_services: bool,
    ) {
        let settings = Settings { combined_services, ..node() };
        let all = objects(&manifest());
        let mut shuffled = Resources::default();
        for index in order {
            shuffled.insert(all[index].clone());
        }
        let mut addresses = settings.clone();
        addresses.node_addresses.reverse();
        let expected = compile(&resources(&manifest()), &settings);
        prop_assert_eq!(&compile(&shuffled, &settings), &expected);
        prop_assert_eq!(&compile(&shuffled, &addresses), &expected);
    }
}

#[test]
fn the_order_of_lists_in_settings_and_slices_does_not_show() {
    let compiled = compile(&resources(&manifest()), &node());
    let frontends: Vec<_> = compiled.model.l4.iter().map(|service| service.frontend).collect();
    let mut sorted = frontends.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(frontends, sorted);
    for service in &compiled.model.l4 {
        assert!(service.shares.windows(2).all(|pair| pair[0].backend < pair[1].backend), "{service:?}");
    }
    assert!(compiled.diagnostics.is_sorted());
}

#[test]
fn every_false_condition_has_a_diagnostic_of_its_object() {
    let compiled = compile(&resources(&manifest()), &node());
    let told = |title: String| compiled.diagnostics.iter().any(|said| said.object.as_ref() == Some(&title));
    for (key, status) in &compiled.statuses.gateways {
        let listeners = status.listeners.iter().flat_map(|listener| &listener.conditions);
        let bad = |condition: &&Condition| !condition.status && condition.condition_type != "Conflicted";
        if status.conditions.iter().chain(listeners).any(|condition| bad(&condition)) {
            assert!(told(format!("Gateway {key}")), "{key}");
        }
    }
    let mut false_conditions = 0;
    for ((kind, key), parents) in &compiled.statuses.routes {
        if parents.iter().flat_map(|parent| &parent.conditions).any(|condition| !condition.status) {
            false_conditions += 1;
            assert!(told(format!("{kind} {key}")), "{kind} {key}");
        }
    }
    assert_eq!(false_conditions, 4);
}
