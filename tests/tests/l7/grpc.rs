//! gRPC by service, method and headers; streams both ways; statuses and trailers as the backend sent them.

use gateway_tests::backend::{METADATA, Said};
use gateway_tests::tls::Identity;
use gateway_tests::topology::{Family, Lab};
use tonic::{Code, Status};

use crate::stand::{GARBAGE_PORT, TLS_NAME, Way, backend, lab, route, rule, start, to, ways};

const HOST: &str = "grpc.example";

/// Metadata of a call.
type Metadata = &'static [(&'static str, &'static str)];

/// Service, method, metadata and the backend that answers.
const CALLS: &[(&str, &str, Metadata, &str)] = &[
    ("gatewayd.lab.Echo", "Unary", &[], "backend-2"),
    ("gatewayd.lab.Echo", "Unary", &[("x-team", "ops")], "backend-2"),
    ("gatewayd.lab.Team", "Unary", &[("x-team", "ops")], "backend-4"),
    ("gatewayd.lab.Team", "Unary", &[("x-team", "dev")], "backend-1"),
    ("gatewayd.lab.Team", "Unary", &[("x-zone", "eu-7")], "backend-3"),
    ("gatewayd.lab.v2.Echo", "Unary", &[], "backend-3"),
    ("any.Service", "ByMethod/Unary", &[], ""),
    ("lab.Patterns", "Unary", &[], "backend-4"),
];

/// Service, code and a part of the message where no backend answers.
const FAILURES: &[(&str, Code, &str)] = &[
    ("nobody.Knows", Code::Unimplemented, "no route"),
    ("lab.v22.Patterns", Code::Unimplemented, "no route"),
    ("lab.NoBackend", Code::Unimplemented, "no backend"),
    ("lab.Invalid", Code::Unavailable, "invalid backend"),
    ("lab.NotReady", Code::Unavailable, "no ready endpoint"),
    ("lab.Refused", Code::Unavailable, "cannot connect"),
    ("lab.Garbage", Code::Unavailable, "backend"),
];

fn documents(lab: &Lab) -> String {
    let one = lab.backends[0].address(Family::V4);
    let at = |port: u16| format!("{{address: \"{one}\", port: {port}}}");
    let own = |name: &str| format!("{{group: gatewayd.dev, kind: Backend, name: {name}}}");
    let service = |name: &str| format!("{{method: {{service: {name}}}}}");
    let regex = |rest: &str| format!("{{method: {{type: RegularExpression, {rest}}}}}");
    let team = "{method: {service: gatewayd.lab.Team}, headers: [{name: x-team, value: ops}]}";
    let zone = "{method: {service: gatewayd.lab.Team}, \
        headers: [{type: RegularExpression, name: x-zone, value: 'eu-[0-9]'}]}";
    let rules = [
        rule(&service("gatewayd.lab.Echo"), "", &to("backend-1", 1)),
        rule("{method: {service: gatewayd.lab.Echo, method: Unary}}", "", &to("backend-2", 1)),
        rule(&service("gatewayd.lab.Team"), "", &to("h2c-1", 1)),
        rule(team, "", &to("backend-4", 1)),
        rule(zone, "", &to("backend-3", 1)),
        rule(&regex("service: 'gatewayd[.]lab[.]v[0-9]+[.].*', method: 'U.*'"), "", &to("backend-3", 1)),
        rule(&regex("service: 'lab[.]Patterns|lab[.]Others', method: Unary"), "", &to("h2c-4", 1)),
        rule(&service("lab.NoBackend"), "", ""),
        rule(&service("lab.Invalid"), "", &own("nobody")),
        rule(&service("lab.NotReady"), "", "{name: not-ready, port: 80}"),
        rule(&service("lab.Refused"), "", &own("refused")),
        rule(&service("lab.Garbage"), "", &own("garbage")),
    ];
    let not_ready =
        "apiVersion: v1\nkind: Service\nmetadata: {name: not-ready}\nspec: {ports: [{port: 80}]}\n---\n";
    [
        not_ready.to_owned(),
        backend("refused", "http", &at(9)),
        backend("garbage", "http", &at(GARBAGE_PORT)),
        route("GRPCRoute", "calls", &[HOST], &rules.concat()),
    ]
    .concat()
}

fn said(text: &str, count: u32) -> Said {
    Said { backend: String::new(), text: text.to_owned(), count }
}

#[test]
fn calls_of_every_kind_meet_their_backend_and_bring_their_status_back() {
    let (lab, _backends) = lab(1);
    let identity = Identity::for_names(&[TLS_NAME]).expect("a certificate");
    let _daemon = start(&lab, &identity, &[("routes.yaml", &documents(&lab))]);
    let ways = ways(&identity).into_iter().filter(Way::is_http2);
    for (way, family) in ways.flat_map(|way| Family::ALL.map(|family| (way.clone(), family))) {
        let context = format!("{family}, {}", way.name);
        lab.client().block_on(|| async {
            assert_calls(&way, family, &context).await;
            assert_streams(&way, family, &context).await;
            assert_statuses(&way, family, &context).await;
            for (service, code, message) in FAILURES {
                let mut client = way.grpc(family, HOST, service).await;
                let status = client.unary("Unary", said("", 0)).await.expect_err("no backend answers");
                assert_eq!(status.code(), *code, "{context}: {service}: {status:?}");
                assert!(status.message().contains(message), "{context}: {service}: {status:?}");
            }
            let mut client = way.grpc(family, "unknown.example", "gatewayd.lab.Echo").await;
            let status = client.unary("Unary", said("", 0)).await.expect_err("nobody has this host");
            assert_eq!(status.code(), Code::Unimplemented, "{context}: {status:?}");
        });
    }
}

async fn assert_calls(way: &Way, family: Family, context: &str) {
    for (service, method, metadata, backend) in CALLS {
        let mut client = way.grpc(family, HOST, service).await;
        for (name, value) in *metadata {
            client.metadata.insert(*name, value.parse().expect("metadata"));
        }
        let answer = client.unary(method, said("words", 7)).await;
        if backend.is_empty() {
            let status = answer.expect_err("no rule is for this method");
            assert_eq!(status.code(), Code::Unimplemented, "{context}: {service}/{method}: {status:?}");
        } else {
            let answer = answer.unwrap_or_else(|status| panic!("{context}: {service}/{method}: {status:?}"));
            let expected = Said { backend: (*backend).to_owned(), ..said("words", 7) };
            assert_eq!(answer, expected, "{context}: {service}/{method} {metadata:?}");
        }
    }
}

async fn assert_streams(way: &Way, family: Family, context: &str) {
    let mut client = way.grpc(family, HOST, "gatewayd.lab.Echo").await;
    let texts: Vec<String> = (0..100).map(|number| format!("{number}.")).collect();
    let all = || texts.iter().map(|text| said(text, 0)).collect::<Vec<_>>();
    let one = |text: &str, count| Said { backend: "backend-1".to_owned(), ..said(text, count) };
    let answer = client.client_stream("Collect", all()).await.expect("client streaming");
    assert_eq!(answer, one(&texts.concat(), 100), "{context}");
    let answers = client.server_stream("Count", said("again", 100)).await.expect("server streaming");
    assert_eq!(answers, (1..=100).map(|count| one("again", count)).collect::<Vec<_>>(), "{context}");
    // Each message is sent when the answer to the one before is there: nothing waits for the end of a stream.
    let answers = client.chat("Chat", all()).await.expect("streaming both ways");
    assert_eq!(answers, texts.iter().map(|text| one(text, 0)).collect::<Vec<_>>(), "{context}");
}

/// A status that the backend sends arrives with its message and its own trailer, before and after messages.
async fn assert_statuses(way: &Way, family: Family, context: &str) {
    let mut client = way.grpc(family, HOST, "gatewayd.lab.Echo").await;
    let check = |status: &Status, code: Code| {
        assert_eq!((status.code(), status.message()), (code, "50 % of ünits"), "{context}");
        let trailer = status.metadata().get(METADATA).and_then(|value| value.to_str().ok());
        assert_eq!(trailer, Some("backend-1"), "{context}");
    };
    for code in [Code::ResourceExhausted, Code::Aborted, Code::Unauthenticated] {
        let asked = || said("50 % of ünits", u32::try_from(i32::from(code)).expect("a code"));
        check(&client.unary("Fail", asked()).await.expect_err("a status"), code);
        check(&client.server_stream("Break", asked()).await.expect_err("a status"), code);
    }
}
