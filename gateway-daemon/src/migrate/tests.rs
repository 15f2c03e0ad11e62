use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf, sync::Arc};

use super::{Migration, migrate};
use crate::{api::Severity, source::files::parse};

/// Migrates texts as the files `0.yaml`, `1.yaml` and so on.
fn run(texts: &[&str]) -> (tempfile::TempDir, Migration) {
    let directory = tempfile::tempdir().unwrap();
    for (index, text) in texts.iter().enumerate() {
        fs::write(directory.path().join(format!("{index}.yaml")), text).unwrap();
    }
    let migration = migrate(&[directory.path().to_owned()]);
    (directory, migration)
}

fn after(text: &str) -> String {
    let (_directory, migration) = run(&[text]);
    migration.changed.into_iter().next().map_or_else(|| text.to_owned(), |file| file.after)
}

fn said(migration: &Migration, severity: Severity) -> Vec<String> {
    let of = migration.diagnostics.iter().filter(|said| said.severity == severity);
    of.map(|said| {
        let place = said.place.as_ref().unwrap();
        format!("{}:{} {}", place.line, place.column, said.message)
    })
    .collect()
}

const FIRST: &str = "\
# The shop.
apiVersion: networking.x-k8s.io/v1alpha1   # the first one
kind: Gateway
metadata: {name: edge, namespace: infra}
spec:
  gatewayClassName: gatewayd
  listeners:
  - protocol: HTTP
    port: 80
    hostname: \"*\"
    routes:
      kind: HTTPRoute # only these
      selector:
        matchLabels: {app: shop}
      namespaces:
        from: All
  - protocol: HTTPS
    port: 443
    tls:
      # The certificate.
      certificateRef:
        group: core
        kind: Secret
        name: shop
    routes: {kind: HTTPRoute, namespaces: {from: All}}
---
apiVersion: networking.x-k8s.io/v1alpha1
kind: HTTPRoute
metadata:
  name: shop
  labels: {app: shop}
spec:
  gateways: {allow: All}
  hostnames: [shop.example]
  rules:
  - matches:
    - path:
        type: Prefix
        value: /new
      headers:
        type: RegularExpression
        # Which versions.
        values:
          x-version: v[23]   # not the first
          x-team: '.*'
    filters:
    - type: RequestHeaderModifier
      requestHeaderModifier:
        add: {x-a: \"1\", x-b: \"2\"}
        set:
          x-c: \"3\"
        remove: [x-d]
    - type: RequestMirror
      requestMirror:
        serviceName: copy   # see it too
        port: 80
    forwardTo:
    - serviceName: new  # half of it
      port: 8080
      weight: 5
    - backendRef:  # ours
        group: gatewayd.dev
        kind: Backend
        name: old
      weight: 5
  - forwardTo: [{backendRef: {group: core, kind: Service, name: rest}, port: 80}]
";

const FIRST_NOW: &str = "\
# The shop.
apiVersion: gateway.networking.k8s.io/v1   # the first one
kind: Gateway
metadata: {name: edge, namespace: infra}
spec:
  gatewayClassName: gatewayd
  listeners:
  - name: http-80
    protocol: HTTP
    port: 80
    allowedRoutes:
      kinds:
      - kind: HTTPRoute # only these
      namespaces:
        from: All
  - name: https-443
    protocol: HTTPS
    port: 443
    tls:
      # The certificate.
      certificateRefs:
        - group: \"\"
          kind: Secret
          name: shop
    allowedRoutes: {kinds: [{kind: HTTPRoute}], namespaces: {from: All}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: shop
  labels: {app: shop}
spec:
  parentRefs:
  - name: edge
    namespace: infra
  hostnames: [shop.example]
  rules:
  - matches:
    - path:
        type: PathPrefix
        value: /new
      headers:
        # Which versions.
        - name: x-version
          type: RegularExpression
          value: v[23]   # not the first
        - name: x-team
          type: RegularExpression
          value: '.*'
    filters:
    - type: RequestHeaderModifier
      requestHeaderModifier:
        add: [{name: x-a, value: \"1\"}, {name: x-b, value: \"2\"}]
        set:
          - name: x-c
            value: \"3\"
        remove: [x-d]
    - type: RequestMirror
      requestMirror:
        backendRef:
          name: copy   # see it too
          port: 80
    backendRefs:
    - name: new  # half of it
      port: 8080
      weight: 5
    - # ours
      group: gatewayd.dev
      kind: Backend
      name: old
      weight: 5
  - backendRefs: [{group: \"\", kind: Service, name: rest, port: 80}]
";

#[test]
fn the_first_version_becomes_v1_and_keeps_its_comments() {
    let (_directory, migration) = run(&[FIRST]);
    assert_eq!(migration.changed[0].after, FIRST_NOW);
    assert_eq!(said(&migration, Severity::Error), Vec::<String>::new());
    // What comes out is what the daemon reads, and again the same.
    let (objects, faults) = parse(&Arc::from("f"), FIRST_NOW.as_bytes());
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!((objects.len(), faults), (2, Vec::new()));
    assert_eq!(after(FIRST_NOW), FIRST_NOW);
}

#[test]
fn json_stays_json() {
    let old = r#"{"apiVersion": "networking.x-k8s.io/v1alpha1", "kind": "TLSRoute", "metadata": {"name": "a"},
 "spec": {"gateways": {"allow": "FromList", "gatewayRefs": [{"name": "8080", "namespace": "b"}]},
  "rules": [{"matches": [{"snis": ["c.example"]}], "forwardTo": [{"serviceName": "d", "port": 443}]}]}}
"#;
    let now = after(old);
    assert_eq!(
        now,
        r#"{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "TLSRoute", "metadata": {"name": "a"},
 "spec": {"hostnames": ["c.example"], "parentRefs": [{"name": "8080", "namespace": "b"}],
  "rules": [{"backendRefs": [{"name": "d", "port": 443}]}]}}
"#
    );
    serde_json::from_str::<serde_json::Value>(&now).unwrap();
}

/// Each row: what was written, what is to be written.
#[test]
fn every_kind_and_version_has_its_words() {
    let gateway =
        |version: &str, rest: &str| format!("apiVersion: gateway.networking.k8s.io/{version}\nkind: {rest}");
    let first = |rest: &str| format!("apiVersion: networking.x-k8s.io/v1alpha1\nkind: {rest}");
    for (old, now) in [
        (
            first("GatewayClass\nspec:\n  controller: a.example/b\n  parametersRef: {group: core, kind: ConfigMap, name: c, scope: Cluster}\n"),
            gateway("v1", "GatewayClass\nspec:\n  controllerName: a.example/b\n  parametersRef: {group: \"\", kind: ConfigMap, name: c}\n"),
        ),
        (gateway("v1alpha2", "TCPRoute\n"), gateway("v1", "TCPRoute\n")),
        (gateway("v1alpha2", "UDPRoute\n"), gateway("v1", "UDPRoute\n")),
        (gateway("v1alpha3", "TLSRoute\n"), gateway("v1", "TLSRoute\n")),
        (gateway("v1alpha2", "GRPCRoute\n"), gateway("v1", "GRPCRoute\n")),
        (gateway("v1beta1", "\"Gateway\"\n"), gateway("v1", "\"Gateway\"\n")),
        (gateway("v1alpha2", "ReferencePolicy\n"), gateway("v1", "ReferenceGrant\n")),
        (gateway("v1beta1", "ReferenceGrant\n"), gateway("v1", "ReferenceGrant\n")),
        (
            gateway("v1alpha2", "BackendLBPolicy\n"),
            "apiVersion: gateway.networking.x-k8s.io/v1alpha1\nkind: XBackendTrafficPolicy\n".to_owned(),
        ),
        (
            "apiVersion: gateway.networking.x-k8s.io/v1alpha1\r\nkind: XListenerSet\r\n".to_owned(),
            "apiVersion: gateway.networking.k8s.io/v1\r\nkind: ListenerSet\r\n".to_owned(),
        ),
        (
            gateway("v1alpha2", "BackendTLSPolicy\nspec:\n  targetRef: {kind: Service, name: ä}\n  tls:\n    caCertRefs: []\n    wellKnownCACerts: System\n"),
            gateway("v1", "BackendTLSPolicy\nspec:\n  targetRefs: [{kind: Service, name: ä}]\n  validation:\n    caCertificateRefs: []\n    wellKnownCACertificates: System\n"),
        ),
        (
            gateway("v1alpha2", "HTTPRoute\nspec:\n  rules:\n  - filters:\n    - urlRewrite: {path: {type: Absolute, substitution: /a}}\n    - requestRedirect:\n        path: {type: ReplacePrefixMatch, substitution: /b}\n"),
            gateway("v1", "HTTPRoute\nspec:\n  rules:\n  - filters:\n    - urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: /a}}\n    - requestRedirect:\n        path: {type: ReplacePrefixMatch, replacePrefixMatch: /b}\n"),
        ),
        (
            gateway("v1", "HTTPRoute\nspec:\n  rules:\n  - forwardTo:\n    - serviceName: a\n      backendRef: {name: b}\n      port: 80\n"),
            gateway("v1", "HTTPRoute\nspec:\n  rules:\n  - backendRefs:\n    - name: a\n      port: 80\n"),
        ),
        (
            first("UDPRoute\nspec:\n  gateways:\n    # Just this one.\n    allow: FromList\n    gatewayRefs:\n    - name: a\n      namespace: b\n  rules:\n  - forwardTo:\n    - serviceName: c\n      port: 53\n"),
            gateway("v1", "UDPRoute\nspec:\n  # Just this one.\n  parentRefs:\n  - name: a\n    namespace: b\n  rules:\n  - backendRefs:\n    - name: c\n      port: 53\n"),
        ),
        (
            "apiVersion: v1\nkind: List\nitems:\n- apiVersion: gateway.networking.k8s.io/v1beta1\n  kind: Gateway\n".to_owned(),
            "apiVersion: v1\nkind: List\nitems:\n- apiVersion: gateway.networking.k8s.io/v1\n  kind: Gateway\n".to_owned(),
        ),
        (
            "apiVersion: apps/v1beta1\nkind: Deployment\n".to_owned(),
            "apiVersion: apps/v1beta1\nkind: Deployment\n".to_owned(),
        ),
    ] {
        assert_eq!(after(&old), now, "of\n{old}");
    }
}

#[test]
fn parents_are_those_whose_listeners_select_the_route() {
    let gateways = "\
apiVersion: networking.x-k8s.io/v1alpha1
kind: Gateway
metadata: {name: two, namespace: infra}
spec:
  listeners:
  - {protocol: TCP, port: 1, routes: {kind: TCPRoute, namespaces: {from: Selector, selector: {matchLabels: {team: a}}}}}
  - {protocol: TCP, port: 1, routes: {kind: TCPRoute, selector: {matchExpressions: [{key: x, operator: In, values: [y]}]}, namespaces: {from: All}}}
  - {protocol: UDP, port: 1, routes: {kind: UDPRoute, namespaces: {from: All}}}
---
apiVersion: v1
kind: Namespace
metadata: {name: apps, labels: {team: a}}
";
    let route = |metadata: &str| {
        format!(
            "apiVersion: networking.x-k8s.io/v1alpha1\nkind: TCPRoute\nmetadata: {metadata}\nspec:\n  gateways: {{allow: All}}\n"
        )
    };
    for (metadata, parents) in [
        (
            "{name: a, namespace: apps}",
            "  parentRefs:\n  - name: two\n    namespace: infra\n    sectionName: tcp-1\n",
        ),
        (
            "{name: a, namespace: apps, labels: {x: y}}",
            "  parentRefs:\n  - name: two\n    namespace: infra\n",
        ),
        (
            "{name: a, namespace: infra, labels: {x: y}}",
            "  parentRefs:\n  - name: two\n    sectionName: tcp-1-2\n",
        ),
    ] {
        let (_directory, migration) = run(&[gateways, &route(metadata)]);
        assert!(migration.changed[1].after.ends_with(parents), "{metadata}:\n{}", migration.changed[1].after);
    }
    let (_directory, migration) = run(&[gateways, &route("{name: a, namespace: elsewhere}")]);
    assert_eq!(
        said(&migration, Severity::Error),
        ["5:3 no Gateway of these files selects this route: name its Gateways in spec.parentRefs"]
    );
}

#[test]
fn what_has_no_successor_is_said_and_left() {
    let old = "\
apiVersion: networking.x-k8s.io/v1alpha1
kind: BackendPolicy
---
apiVersion: networking.x-k8s.io/v1alpha1
kind: HTTPRoute
metadata: {name: a}
spec:
  gateways: {allow: FromList, gatewayRefs: [{name: g}]}
  tls: {certificateRef: {name: c}}
  rules:
  - matches:
    - path: {type: ImplementationSpecific, value: /}
      extensionRef: {name: b}
    forwardTo:
    - serviceName: a
";
    let (_directory, migration) = run(&[old]);
    let lines: Vec<String> = said(&migration, Severity::Error)
        .iter()
        .map(|said| said.split_once(' ').unwrap().0.to_owned())
        .collect();
    assert_eq!(lines, ["2:7", "9:3", "12:20", "13:7", "15:7"]);
    assert!(
        migration.changed[0]
            .after
            .starts_with("apiVersion: networking.x-k8s.io/v1alpha1\nkind: BackendPolicy\n")
    );
}

#[test]
fn what_is_no_yaml_is_left_alone() {
    let (_directory, migration) =
        run(&["kind: [a\n", "apiVersion: gateway.networking.k8s.io/v1beta1\nkind: Gateway\n"]);
    assert_eq!(migration.changed.len(), 1);
    assert_eq!(migration.diagnostics[0].code, "yaml-syntax");
}

#[test]
fn files_are_replaced_whole_and_links_and_permissions_stay() {
    let (directory, _) = run(&["apiVersion: gateway.networking.k8s.io/v1beta1\nkind: Gateway\n"]);
    let (file, link) = (directory.path().join("0.yaml"), directory.path().join("link"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("0.yaml", &link).unwrap();
    migrate(std::slice::from_ref(&link)).changed[0].write().unwrap();
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n"
    );
    assert_eq!(fs::read_link(&link).unwrap(), PathBuf::from("0.yaml"));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    let names: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}
