//! A hundred changes of routes while requests run: not one fails.

mod load;

use gateway_tests::client::http::Connection;
use gateway_tests::daemon::Gatewayd;
use gateway_tests::tls::Identity;
use gateway_tests::topology::Family;

use crate::stand::{TLS_NAME, gateway, lab, prepared, route, rule, to, ways};
use load::{GRPC_HOST, HTTP_HOST, Load};

/// Each round is so many changes as there are kinds of them.
const ROUNDS: u32 = 10;

/// What the configuration is at one time.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a part of a document that is there or not")]
struct State {
    /// Of the first two backends of the HTTPRoute that the load uses.
    weights: [u32; 2],
    /// Of those of the GRPCRoute.
    grpc_weights: [u32; 2],
    /// What a filter of it adds to responses.
    header: u32,
    /// Whether backend-3 is one of its backends.
    third: bool,
    /// Whether there is another rule in it, for `/extra`.
    rule: bool,
    /// Whether there is another route, with a Backend of its own.
    route: bool,
    /// Whether there is another listener.
    listener: bool,
}

/// Changes a state, in a round.
type Change = fn(&mut State, u32);

const CHANGES: [Change; 10] = [
    |state, round| state.weights = [1 + round % 4, (round * 3) % 5],
    |state, round| state.header = round + 1,
    |state, _| state.rule = true,
    |state, _| state.third = true,
    |state, _| state.route = true,
    |state, round| state.grpc_weights = [round % 3, 1 + round % 2],
    |state, _| state.listener = true,
    |state, _| state.third = false,
    |state, _| (state.rule, state.route) = (false, false),
    |state, _| state.listener = false,
];

impl State {
    fn write(self, daemon: &Gatewayd<'_>) -> anyhow::Result<()> {
        let mut listeners = "  - {name: http, protocol: HTTP, port: 80}\n".to_owned();
        if self.listener {
            listeners += "  - {name: other, protocol: HTTP, port: 8000}\n";
        }
        let files = [("gateway.yaml", gateway(&listeners)), ("load.yaml", self.routes())];
        for (name, text) in files {
            // Only what has changed: each change is one event of one file.
            if std::fs::read_to_string(daemon.config.join(name)).ok().as_ref() != Some(&text) {
                daemon.write(name, &text)?;
            }
        }
        if self.route != daemon.config.join("other.yaml").exists() {
            let other = rule("{path: {value: /other}}", "", &to("backend-4", 1));
            let other = route("HTTPRoute", "other", &["other.example"], &other);
            if self.route { daemon.write("other.yaml", &other)? } else { daemon.remove("other.yaml")? }
        }
        Ok(())
    }

    fn routes(self) -> String {
        let pair = |[one, two]: [u32; 2]| format!("{}, {}", to("backend-1", one), to("h2c-2", two));
        let third = if self.third { format!(", {}", to("backend-3", 2)) } else { String::new() };
        let filter = format!(
            "{{type: ResponseHeaderModifier, responseHeaderModifier: {{set: [{{name: x-change, value: \"{}\"}}]}}}}",
            self.header
        );
        let mut rules = rule("", &filter, &(pair(self.weights) + &third));
        if self.rule {
            rules += &rule("{path: {value: /extra}}", "", &to("backend-4", 1));
        }
        route("HTTPRoute", "load", &[HTTP_HOST], &rules)
            + &route("GRPCRoute", "load", &[GRPC_HOST], &rule("", "", &pair(self.grpc_weights)))
    }

    /// On a connection that lives through all changes: what was asked for is what is served.
    async fn assert_served(self, connection: &mut Connection, change: &str) {
        let get = async |connection: &mut Connection, host: &str, path: &str| {
            connection.get(&format!("http://{host}{path}")).await.expect("an answer")
        };
        let answer = get(connection, HTTP_HOST, "/").await;
        let header = answer.headers.get("x-change").and_then(|value| value.to_str().ok());
        assert_eq!(header, Some(self.header.to_string().as_str()), "{change}");
        let answer = get(connection, HTTP_HOST, "/extra").await;
        let by_extra = answer.report().expect("a report").backend == "backend-4";
        assert_eq!(by_extra, self.rule, "{change}");
        let answer = get(connection, "other.example", "/other").await;
        assert_eq!(answer.status.as_u16(), if self.route { 200 } else { 404 }, "{change}");
    }
}

#[test]
fn no_request_fails_while_routes_change_a_hundred_times() {
    let (lab, _backends) = lab(2);
    let identity = Identity::for_names(&[TLS_NAME]).expect("a certificate");
    let mut daemon = prepared(&lab, &identity);
    let mut state = State {
        weights: [1, 1],
        grpc_weights: [1, 1],
        header: 0,
        third: false,
        rule: false,
        route: false,
        listener: false,
    };
    state.write(&daemon).expect("write");
    let status = daemon.start().expect("gatewayd starts");
    assert_eq!(status.complaints(), Vec::<String>::new());
    let load = Load::start(&lab.clients);
    let [http1, ..] = ways(&identity);
    let probe = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    lab.client().run(|| {
        let mut connection = probe.block_on(http1.open(Family::V6));
        for (round, (kind, change)) in
            (0..ROUNDS).flat_map(|round| CHANGES.iter().enumerate().map(move |one| (round, one)))
        {
            change(&mut state, round);
            let change = format!("round {round}, change {kind}: {state:?}");
            daemon.change(|daemon| state.write(daemon)).unwrap_or_else(|error| panic!("{change}: {error:#}"));
            probe.block_on(state.assert_served(&mut connection, &change));
            load.wait_for_a_request_of_each(&change);
        }
    });
    let (requests, failures) = load.stop();
    assert!(failures.is_empty(), "of {requests} requests, these failed: {failures:#?}");
}
