//! Classes, listeners, addresses, certificates.

use super::*;

const HTTP: &str = "{name: web, port: 80, protocol: HTTP}";

fn class(controller: &str, more: &str) -> String {
    object("GatewayClass", "c", &format!("{{controllerName: {controller}{more}}}"))
        .replace(", namespace: default", "")
}

fn secret(name: &str, chain: &str, key: &str) -> String {
    let indent = |text: &str| text.replace('\n', "\n    ");
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\ntype: kubernetes.io/tls\nstringData:\n  tls.crt: |\n    {}\n  tls.key: |\n    {}\n---\n",
        indent(chain),
        indent(key)
    )
}

fn https(secret: &str) -> String {
    format!("{{name: web, port: 443, protocol: HTTPS, tls: {{certificateRefs: [{secret}]}}}}")
}

#[test]
fn only_gateways_of_our_classes_are_served() {
    let of_class = gateway_of("g", &[HTTP]).replace("gatewayd,", "c,");
    let ours = compiled(&format!("{}{of_class}", class("gatewayd.dev/gateway", "")));
    assert_eq!(gateway(&ours, "g"), ["Accepted=True Accepted", "Programmed=True Programmed"]);
    assert_eq!(
        summary(&ours.statuses.classes["c"]),
        ["Accepted=True Accepted", "SupportedVersion=True SupportedVersion"]
    );
    assert_eq!(said(&ours), Vec::<String>::new());

    let foreign = compiled(&format!("{}{of_class}", class("example.com/other", "")));
    assert_eq!((foreign.statuses, foreign.diagnostics), (Statuses::default(), vec![]));

    let refused = compiled(&format!(
        "{}{of_class}",
        class("gatewayd.dev/gateway", ", parametersRef: {group: a.b, kind: C, name: d}")
    ));
    assert_eq!(summary(&refused.statuses.classes["c"])[0], "Accepted=False InvalidParameters");
    assert_eq!(gateway(&refused, "g"), ["Accepted=False Invalid", "Programmed=False Invalid"]);
    assert_eq!(refused.model, crate::model::Model::default());

    assert_eq!(said(&compiled(&of_class)), ["error 4:26 class-not-found"]);
}

#[test]
fn listeners_that_exclude_each_other_are_all_refused() {
    let text = gateway_of(
        "g",
        &[
            "{name: a, port: 80, protocol: HTTP}",
            "{name: b, port: 80, protocol: TCP}",
            "{name: c, port: 80, protocol: UDP}",
            "{name: d, port: 443, protocol: HTTP, hostname: a.example}",
            "{name: e, port: 443, protocol: HTTP, hostname: '*.example'}",
        ],
    );
    let compiled = compiled(&text);
    let conflict = [
        "Accepted=False ProtocolConflict",
        "Conflicted=True ProtocolConflict",
        "Programmed=False Invalid",
        "ResolvedRefs=True ResolvedRefs",
    ];
    let good = [
        "Accepted=True Accepted",
        "Conflicted=False NoConflicts",
        "Programmed=True Programmed",
        "ResolvedRefs=True ResolvedRefs",
    ];
    for (index, expected) in [conflict, conflict, good, good, good].iter().enumerate() {
        assert_eq!(listener(&compiled, "g", index).0, expected, "listener {index}");
    }
    assert_eq!(gateway(&compiled, "g"), ["Accepted=True ListenersNotValid", "Programmed=True Programmed"]);
    assert_eq!(compiled.diagnostics.len(), 2);
    assert_eq!(proxy(&compiled).len(), 2);
}

#[test]
fn protocols_that_are_not_served_are_refused() {
    let compiled = compiled(&gateway_of("g", &["{name: a, port: 443, protocol: a.example/b}"]));
    let (conditions, _) = listener(&compiled, "g", 0);
    assert_eq!(conditions[0], "Accepted=False UnsupportedProtocol");
    assert_eq!(gateway(&compiled, "g"), ["Accepted=False ListenersNotValid", "Programmed=False Invalid"]);
    assert!(said(&compiled).contains(&"error 4:79 unsupported-protocol".to_owned()), "{:?}", said(&compiled));
    let status = &compiled.statuses.gateways[&Key::new("default", "g")];
    assert!(status.listeners[0].supported_kinds.is_empty());
}

#[test]
fn kinds_of_routes_are_narrowed_to_those_that_fit() {
    let kinds = |kinds: &str| {
        let text = gateway_of(
            "g",
            &[&format!("{{name: a, port: 80, protocol: HTTP, allowedRoutes: {{kinds: [{kinds}]}}}}")],
        );
        let compiled = compiled(&text);
        let status = &compiled.statuses.gateways[&Key::new("default", "g")].listeners[0];
        let names: Vec<String> = status.supported_kinds.iter().map(|kind| kind.kind.clone()).collect();
        (names, summary(&status.conditions)[3].clone())
    };
    assert_eq!(
        kinds(""),
        (vec!["HTTPRoute".into(), "GRPCRoute".into()], "ResolvedRefs=True ResolvedRefs".into())
    );
    assert_eq!(
        kinds("{kind: GRPCRoute}"),
        (vec!["GRPCRoute".into()], "ResolvedRefs=True ResolvedRefs".into())
    );
    let invalid = "ResolvedRefs=False InvalidRouteKinds".to_owned();
    assert_eq!(kinds("{kind: TCPRoute}, {kind: HTTPRoute}"), (vec!["HTTPRoute".into()], invalid.clone()));
    assert_eq!(kinds("{group: example.com, kind: HTTPRoute}"), (vec![], invalid));
}

#[test]
fn addresses_are_those_asked_for_or_the_nodes() {
    let asked = |addresses: &str| {
        let text =
            gateway_of("g", &[HTTP]).replace("listeners:", &format!("addresses: [{addresses}], listeners:"));
        let compiled = compile(&resources(&text), &node());
        let addresses: Vec<String> = compiled.model.addresses.iter().map(ToString::to_string).collect();
        (addresses.join(" "), gateway(&compiled, "g").join(", "), compiled.diagnostics.len())
    };
    let good = "Accepted=True Accepted, Programmed=True Programmed".to_owned();
    assert_eq!(asked(""), ("198.18.0.1 2001:db8::1".into(), good.clone(), 0));
    assert_eq!(asked("{value: 198.18.0.7}"), ("198.18.0.7".into(), good.clone(), 0));
    assert_eq!(asked("{type: IPAddress}"), ("198.18.0.1 2001:db8::1".into(), good, 0));
    assert_eq!(
        asked("{value: 0.0.0.0}, {value: 198.18.0.7}"),
        ("198.18.0.7".into(), "Accepted=True Accepted, Programmed=False AddressNotUsable".into(), 1)
    );
    let (addresses, conditions, _) = asked("{type: Hostname, value: a.example}");
    assert_eq!(addresses, "");
    assert_eq!(conditions, "Accepted=False UnsupportedAddress, Programmed=False Invalid");
    let nowhere = compile(
        &resources(&gateway_of("g", &[HTTP])),
        &Settings { implicit_class: true, ..Settings::default() },
    );
    assert_eq!(gateway(&nowhere, "g"), ["Accepted=True Accepted", "Programmed=False AddressNotAssigned"]);
}

#[test]
fn gateways_share_an_address_unless_their_listeners_exclude_each_other() {
    let text = format!(
        "{}{}",
        gateway_of(
            "a",
            &[
                "{name: web, port: 80, protocol: HTTP, hostname: a.example}",
                "{name: db, port: 5432, protocol: TCP}"
            ]
        ),
        gateway_of(
            "b",
            &[
                "{name: web, port: 80, protocol: HTTP, hostname: b.example}",
                "{name: same, port: 80, protocol: HTTP, hostname: a.example}",
                "{name: db, port: 5432, protocol: HTTP}",
                "{name: dns, port: 5432, protocol: UDP}",
            ],
        )
    );
    let compiled = compiled(&text);
    let accepted: Vec<String> = (0..4).map(|index| listener(&compiled, "b", index).0[0].clone()).collect();
    assert_eq!(
        accepted,
        [
            "Accepted=True Accepted",
            "Accepted=False PortUnavailable",
            "Accepted=False PortUnavailable",
            "Accepted=True Accepted"
        ]
    );
    let hosts: Vec<String> = proxy(&compiled)
        .iter()
        .map(|listener| format!("{} {}", listener.name, listener.hostname.as_ref().unwrap()))
        .collect();
    assert_eq!(hosts, ["default/a/web a.example", "default/b/web b.example"]);
    assert_eq!(compiled.model.l4.len(), 2);
    // At another address they do not meet.
    let apart = text.replacen("listeners:", "addresses: [{value: 198.18.0.9}], listeners:", 1);
    assert_eq!(gateway(&super::compiled(&apart), "b")[0], "Accepted=True Accepted");
}

#[test]
fn certificates_are_read_and_checked() {
    let one = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    let (chain, key) = (one.cert.pem(), one.signing_key.serialize_pem());
    let good = compiled(&format!("{}{}", secret("s", &chain, &key), gateway_of("g", &[&https("{name: s}")])));
    assert_eq!(said(&good), Vec::<String>::new());
    assert_eq!(proxy(&good)[0].certificates[0].chain.trim_ascii(), chain.trim().as_bytes());
    assert!(good.model.l7.binds.values().all(|bind| bind.tls));

    let wrong_key = secret("s", &chain, &other.signing_key.serialize_pem());
    let wrong_type = secret("s", &chain, &key).replace("type: kubernetes.io/tls", "type: Opaque");
    for (what, secrets, reference) in [
        ("no Secret", String::new(), "{name: s}"),
        ("another kind", String::new(), "{kind: ConfigMap, name: s}"),
        ("another's key", wrong_key, "{name: s}"),
        ("type of Secret", wrong_type, "{name: s}"),
        ("no PEM", secret("s", "hello", &key), "{name: s}"),
        ("no key", secret("s", &chain, "hello"), "{name: s}"),
    ] {
        let bad = compiled(&format!("{secrets}{}", gateway_of("g", &[&https(reference)])));
        let (conditions, _) = listener(&bad, "g", 0);
        assert_eq!(conditions[0], "Accepted=True Accepted", "{what}");
        assert_eq!(
            conditions[2..],
            ["Programmed=False Invalid", "ResolvedRefs=False InvalidCertificateRef"],
            "{what}"
        );
        assert!(bad.diagnostics.iter().any(|said| said.code == "invalid-certificate-ref"), "{what}");
        assert!(proxy(&bad).is_empty(), "{what}");
    }
}

#[test]
fn a_secret_of_another_namespace_needs_a_grant() {
    let certificate = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    let secret = secret("s", &certificate.cert.pem(), &certificate.signing_key.serialize_pem())
        .replace("{name: s}", "{name: s, namespace: keys}");
    let grant = |to: &str| {
        object(
            "ReferenceGrant",
            "keys/r",
            &format!(
                "{{from: [{{group: gateway.networking.k8s.io, kind: Gateway, namespace: default}}], to: [{{group: '', kind: Secret{to}}}]}}"
            ),
        )
    };
    let resolved = |grant: &str| {
        let gateway = gateway_of("g", &[&https("{name: s, namespace: keys}")]);
        listener(&compiled(&format!("{secret}{grant}{gateway}")), "g", 0).0[3].clone()
    };
    assert_eq!(resolved(""), "ResolvedRefs=False RefNotPermitted");
    assert_eq!(resolved(&grant(", name: other")), "ResolvedRefs=False RefNotPermitted");
    assert_eq!(resolved(&grant("")), "ResolvedRefs=True ResolvedRefs");
    assert_eq!(resolved(&grant(", name: s")), "ResolvedRefs=True ResolvedRefs");
}

use crate::compile::status::Statuses;
