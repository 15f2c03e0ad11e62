//! Faults of documents: each with its line, column and code.

use std::sync::Arc;

use super::{Diagnostic, Resource, Severity};
use crate::source::files::parse;

fn read(text: &str) -> (Vec<Resource>, Vec<Diagnostic>) {
    parse(&Arc::from("f.yaml"), text.as_bytes())
}

/// `LINE:COLUMN CODE` of everything said, in order of place.
fn faults(text: &str) -> Vec<String> {
    let mut said = read(text).1;
    said.sort();
    said.iter()
        .map(|said| {
            let place = said.place.as_ref().unwrap();
            format!("{}:{} {}", place.line, place.column, said.code)
        })
        .collect()
}

fn message(text: &str) -> String {
    let said = read(text).1;
    assert_eq!(said.len(), 1, "{said:?}");
    said[0].message.clone()
}

const GATEWAY: &str = "\
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata:
  name: edge
spec:
  gatewayClassName: gatewayd
  listeners:
";

/// A TLSRoute with these fields before its rules.
fn tls_route(fields: &str, backends: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: TLSRoute\nmetadata: {{name: db}}\nspec:\n{fields}  \
         rules:\n    - backendRefs:\n{backends}"
    )
}

fn tcp_route(backends: &str) -> String {
    format!(
        "\
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata:
  name: db
spec:
  parentRefs:
  - name: edge
  rules:
  - backendRefs:
{backends}"
    )
}

fn http_rule(rule: &str) -> String {
    format!(
        "\
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: web
spec:
  parentRefs:
  - name: edge
  rules:
{rule}"
    )
}

#[test]
fn a_good_document_has_no_faults_and_is_decoded() {
    let (objects, said) = read(&tcp_route("    - name: a\n      port: 80\n"));
    assert_eq!(said, []);
    let [Resource::TcpRoute(route)] = objects.as_slice() else { panic!("{objects:?}") };
    assert_eq!(route.title(), "TCPRoute default/db");
    let backend = &route.spec.0.rules[0].backend_refs[0];
    assert_eq!((backend.to.kind.as_str(), backend.to.group.as_str(), backend.weight()), ("Service", "", 1));
    assert_eq!(route.spec.0.parent_refs[0].group, "gateway.networking.k8s.io");
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of all faults")]
fn every_fault_points_to_the_offending_key_or_value() {
    let listener = |text: &str| format!("{GATEWAY}{text}");
    let mut wrong = Vec::new();
    for (what, text, expected) in [
        ("negative weight", tcp_route("    - name: a\n      port: 80\n      weight: -1\n"), vec!["12:15 out-of-range"]),
        ("too much weight", tcp_route("    - {name: a, port: 80, weight: 1000001}\n"), vec!["10:35 out-of-range"]),
        ("port 0", tcp_route("    - {name: a, port: 0}\n"), vec!["10:23 out-of-range"]),
        ("port as text", tcp_route("    - {name: a, port: http}\n"), vec!["10:23 wrong-type"]),
        (
            "misspelt field",
            listener("  - name: a\n    port: 80\n    prot: TPC\n"),
            vec!["8:5 missing-field", "10:5 unknown-field"],
        ),
        ("unknown protocol", listener("  - name: a\n    port: 80\n    protocol: TPC\n"), vec!["10:15 bad-format"]),
        (
            "several at once",
            listener("  - name: A_\n    port: 70000\n    protocol: TCP\n    hostname: 10.0.0.1\n"),
            vec!["8:11 bad-format", "9:11 out-of-range", "11:15 bad-format"],
        ),
        (
            "two listeners of one name",
            listener("  - {name: a, port: 80, protocol: TCP}\n  - {name: a, port: 81, protocol: TCP}\n"),
            vec!["9:12 not-unique"],
        ),
        (
            "two listeners of one port",
            listener("  - {name: a, port: 80, protocol: TCP}\n  - {name: b, port: 80, protocol: TCP}\n"),
            vec!["9:5 not-unique"],
        ),
        ("TLS on HTTP", listener("  - {name: a, port: 80, protocol: HTTP, tls: {}}\n"), vec!["8:41 conflicting-fields"]),
        ("hostname on TCP", listener("  - {name: a, port: 80, protocol: TCP, hostname: a.b}\n"), vec!["8:50 conflicting-fields"]),
        ("HTTPS without certificates", listener("  - {name: a, port: 80, protocol: HTTPS, tls: {}}\n"), vec!["8:42 missing-field"]),
        (
            "passthrough on HTTPS",
            listener("  - {name: a, port: 80, protocol: HTTPS, tls: {mode: Passthrough}}\n"),
            vec!["8:54 conflicting-fields"],
        ),
        ("wildcard inside", listener("  - {name: a, port: 80, protocol: HTTP, hostname: a.*.b}\n"), vec!["8:51 bad-format"]),
        ("no listeners", GATEWAY.replace("  listeners:\n", "  listeners: []\n"), vec!["7:3 item-count"]),
        ("no backends", tcp_route("      []\n"), vec!["9:5 item-count"]),
        ("Service without a port", tcp_route("    - name: a\n"), vec!["10:7 missing-field"]),
        ("TLSRoute without hostnames", tls_route("", "      - {name: a, port: 1}\n"), vec!["4:1 missing-field"]),
        ("TLSRoute to an address", tls_route("  hostnames: [a.b, 198.18.0.1]\n", "      - {name: a, port: 1}\n"), vec!["5:20 bad-format"]),
        ("TLSRoute to a Service without a port", tls_route("  hostnames: [a.b]\n", "      - name: a\n"), vec!["8:9 missing-field"]),
        ("path without slash", http_rule("  - matches: [{path: {value: a}}]\n"), vec!["9:30 bad-format"]),
        ("path type", http_rule("  - matches: [{path: {type: Prefix}}]\n"), vec!["9:29 unknown-value"]),
        (
            "regex",
            http_rule("  - matches: [{path: {type: RegularExpression, value: '/('}}]\n"),
            vec!["9:55 bad-regex"],
        ),
        (
            "regex of a header",
            http_rule("  - matches:\n    - headers:\n      - {name: a, type: RegularExpression, value: '['}\n"),
            vec!["11:51 bad-regex"],
        ),
        ("number for a text", http_rule("  - matches: [{headers: [{name: a, value: 2}]}]\n"), vec!["9:43 wrong-type"]),
        (
            "filter without its field",
            http_rule("  - filters:\n    - type: RequestRedirect\n"),
            vec!["10:7 missing-field"],
        ),
        (
            "filter with another's field",
            http_rule("  - filters:\n    - type: RequestHeaderModifier\n      requestHeaderModifier: {}\n      cors: {}\n"),
            vec!["12:7 conflicting-fields"],
        ),
        (
            "redirect and backends",
            http_rule(
                "  - filters:\n    - type: RequestRedirect\n      requestRedirect: {}\n    backendRefs:\n    - {name: a, port: 80}\n",
            ),
            vec!["12:5 conflicting-fields"],
        ),
        (
            "redirect and rewrite",
            http_rule(
                "  - filters:\n    - {type: RequestRedirect, requestRedirect: {}}\n    - {type: URLRewrite, urlRewrite: {}}\n",
            ),
            vec!["10:7 conflicting-fields"],
        ),
        (
            "prefix replaced without a prefix",
            http_rule(
                "  - matches: [{path: {type: Exact, value: /a}}]\n    filters:\n    - type: RequestRedirect\n      requestRedirect:\n        path: {type: ReplacePrefixMatch, replacePrefixMatch: /}\n",
            ),
            vec!["11:7 conflicting-fields"],
        ),
        ("duration", http_rule("  - timeouts: {request: 10}\n"), vec!["9:25 wrong-type"]),
        ("longer tries", http_rule("  - timeouts: {request: 1s, backendRequest: 2s}\n"), vec!["9:45 conflicting-fields"]),
        ("duplicate key", tcp_route("    - name: a\n      port: 80\n      name: b\n"), vec!["12:7 duplicate-key"]),
        ("broken YAML", tcp_route("    - name: [a\n"), vec!["11:1 yaml-syntax"]),
        ("old field", tcp_route("    - serviceName: a\n      port: 80\n"), vec!["10:7 missing-field", "10:7 removed-field"]),
        ("old version", tcp_route("    - {name: a, port: 1}\n").replace("/v1\n", "/v1alpha2\n"), vec!["1:13 unknown-version"]),
        ("our group", "apiVersion: gatewayd.dev/v1alpha1\nkind: Backed\n".to_owned(), vec!["2:7 unknown-kind"]),
        ("later kind", "apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\n".to_owned(), vec!["2:7 unsupported-kind"]),
        ("first version's kind", "apiVersion: networking.x-k8s.io/v1alpha1\nkind: HTTPRoute\n".to_owned(), vec!["2:7 old-group"]),
        ("others' kind", "apiVersion: apps/v1\nkind: Deployment\n".to_owned(), vec!["2:7 skipped-kind"]),
        ("no kind", "apiVersion: v1\n".to_owned(), vec!["1:1 missing-field"]),
        ("no mapping", "- a\n".to_owned(), vec!["1:1 wrong-type"]),
        ("status and unknown fields", tcp_route("    - {name: a, port: 1}\nstatus: {}\nstatsu: {}\n"), vec!["12:1 unknown-field"]),
        (
            "backend without a server",
            "apiVersion: gatewayd.dev/v1alpha1\nkind: Backend\nmetadata: {name: a}\nspec:\n  endpoints:\n  - port: 80\n  - {port: 80, address: 1.2.3}\n".to_owned(),
            vec!["7:25 bad-format"],
        ),
    ] {
        let found = faults(&text);
        if found != expected {
            wrong.push(format!("{what}: expected {expected:?}, found {found:?} in\n{text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rules_between_fields_are_told_once_fields_are_good() {
    let text = "apiVersion: gatewayd.dev/v1alpha1\nkind: Backend\nmetadata: {name: a}\nspec:\n  endpoints:\n  - port: 80\n  - {port: 80, address: 192.0.2.1, hostname: a.example}\n";
    assert_eq!(faults(text), ["6:5 missing-field", "7:46 conflicting-fields"]);
}

#[test]
fn a_server_has_the_address_of_one_host() {
    let backend = |address: &str| {
        faults(&format!(
            "apiVersion: gatewayd.dev/v1alpha1\nkind: Backend\nmetadata: {{name: a}}\nspec:\n  endpoints:\n  - {{port: 80, address: '{address}'}}\n"
        ))
    };
    for good in ["198.18.0.1", "127.0.0.1", "::1", "2001:db8::1", "fd00::1"] {
        assert!(backend(good).is_empty(), "{good}");
    }
    for bad in ["0.0.0.0", "255.255.255.255", "224.0.0.1", "169.254.0.1", "::", "ff02::1", "fe80::1"] {
        assert_eq!(backend(bad), ["6:25 unusable-address"], "{bad}");
    }
}

#[test]
fn old_fields_name_what_replaces_them() {
    let old = http_rule("  - forwardTo:\n    - serviceName: a\n      port: 80\n");
    assert_eq!(
        message(&old),
        "spec.rules[0].forwardTo is a field of versions before v1: write `backendRefs`, with `name` and `port` in each"
    );
    let said = read(&tcp_route("    - serviceName: a\n      port: 80\n")).1;
    assert!(
        said.iter()
            .any(|said| said.message.ends_with("write `name`; the kind is Service when none is given"))
    );
}

#[test]
fn misspelt_fields_get_a_proposal() {
    let text = format!("{GATEWAY}  - name: a\n    port: 80\n    protocol: TCP\n    allowedRoute: {{}}\n");
    assert_eq!(
        message(&text),
        "there is no field `allowedRoute` in spec.listeners[0]: did you mean `allowedRoutes`?"
    );
}

#[test]
fn fields_of_core_kinds_are_known_and_misspelt_ones_are_faults() {
    let service = "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  annotations: {a: b}\n  uid: x\nspec:\n  clusterIP: None\n  selector: {a: b}\n  ports:\n  - {port: 80, targetPort: http, nodePort: 30000}\n";
    assert_eq!(faults(service), Vec::<String>::new());
    assert_eq!(faults(&service.replace("selector", "selectr")), ["9:3 unknown-field"]);
}

#[test]
fn secrets_do_not_appear_in_messages() {
    let text = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata:\n  tls.key: \"hunter2!\"\n";
    assert!(!message(text).contains("hunter2"), "{}", message(text));
    assert_eq!(faults(text), ["5:12 bad-format"]);
}

#[test]
fn lists_are_read_item_by_item() {
    let text = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: a}\n- apiVersion: v1\n  kind: Namespace\n  metadata: {nam: b}\n";
    let (objects, _) = read(text);
    assert_eq!(objects.len(), 1);
    assert_eq!(faults(text), ["9:3 missing-field", "9:14 unknown-field"]);
    assert_eq!(faults("apiVersion: v1\nkind: List\nitems: []\n"), Vec::<String>::new());
    assert_eq!(faults("apiVersion: v1\nkind: List\nitems: 5\n"), ["3:8 wrong-type"]);
    assert_eq!(faults("apiVersion: v1\nkind: List\nitem: []\n"), ["1:1 wrong-type"]);
}

#[test]
fn two_objects_of_one_name_in_a_file_name_both_places() {
    let text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n";
    let (objects, said) = read(text);
    assert_eq!(objects.len(), 1);
    assert_eq!(
        said[0].to_string(),
        "f.yaml:7:18: duplicate-object: Namespace a is already defined at f.yaml:3:18: remove one of them"
    );
    assert_eq!(said[0].severity, Severity::Error);
}

#[test]
fn bytes_that_are_not_utf8_have_a_place() {
    let (objects, said) = parse(&Arc::from("f.yaml"), b"a: b\nc: \xff\n");
    assert!(objects.is_empty());
    assert_eq!(said[0].to_string(), "f.yaml:2:4: not-utf8: the file is not UTF-8 here: save it as UTF-8");
}
