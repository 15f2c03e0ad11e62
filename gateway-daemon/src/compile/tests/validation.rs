//! Validation of the certificates of clients.

use super::*;

const GOOD: &str = "Accepted=True Accepted, Programmed=True Programmed, ResolvedRefs=True ResolvedRefs";

fn pem(text: &str) -> String {
    text.trim_end().replace('\n', "\n    ")
}

/// A ConfigMap `NAME` or `NAMESPACE/NAME` with this `ca.crt`.
fn authority(name: &str, content: &str) -> String {
    let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}}}\ndata:\n  ca.crt: |\n    {}\n---\n",
        pem(content)
    )
}

fn config_map(name: &str) -> String {
    format!("{{group: '', kind: ConfigMap, name: {name}}}")
}

fn validation(refs: &[String], mode: &str) -> String {
    format!("{{validation: {{caCertificateRefs: [{}]{mode}}}}}", refs.join(", "))
}

/// A Gateway with HTTPS listeners at 443 and 8443 and an HTTP listener, with this frontend, and its certificate.
fn with_frontend(frontend: &str) -> String {
    let made = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).unwrap();
    let https = |port| {
        format!("{{name: p{port}, port: {port}, protocol: HTTPS, tls: {{certificateRefs: [{{name: s}}]}}}}")
    };
    let listeners = [https(443), https(8443), "{name: web, port: 80, protocol: HTTP}".to_owned()].join(", ");
    let gateway = object(
        "Gateway",
        "g",
        &format!("{{gatewayClassName: gatewayd, tls: {{frontend: {frontend}}}, listeners: [{listeners}]}}"),
    );
    format!(
        "{gateway}apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\ntype: kubernetes.io/tls\nstringData:\n  tls.crt: |\n    {}\n  tls.key: |\n    {}\n---\n",
        pem(&made.cert.pem()),
        pem(&made.signing_key.serialize_pem()),
    )
}

/// Accepted, Programmed and ResolvedRefs of each listener.
fn listeners(compiled: &Compiled) -> Vec<String> {
    let line = |index| {
        let mut conditions = listener(compiled, "g", index).0;
        conditions.remove(1);
        conditions.join(", ")
    };
    (0..3).map(line).collect()
}

fn ca() -> String {
    rcgen::generate_simple_self_signed(vec!["ca".to_owned()]).unwrap().cert.pem()
}

/// By port: how many bundles validate clients, and whether they need not be valid.
fn validated(compiled: &Compiled) -> Vec<(u16, Option<(usize, bool)>)> {
    let bind = |(address, bind): (&std::net::SocketAddr, &crate::model::l7::Bind)| {
        let clients = bind.listeners[0].clients.as_ref();
        (address.port(), clients.map(|clients| (clients.authorities.len(), clients.insecure)))
    };
    compiled.model.l7.binds.iter().map(bind).collect()
}

#[test]
fn a_port_of_its_own_stands_instead_of_the_default() {
    let default = validation(&[config_map("a"), config_map("b")], "");
    let maps = [authority("a", &ca()), authority("b", &ca())].concat();
    let of = |per_port: &str| {
        let frontend = format!("{{default: {default}{per_port}}}");
        compiled(&format!("{}{maps}", with_frontend(&frontend)))
    };
    let all = of("");
    assert_eq!(listeners(&all), [GOOD; 3]);
    assert_eq!(validated(&all), [(80, None), (443, Some((2, false))), (8443, Some((2, false)))]);
    assert_eq!(gateway(&all, "g"), ["Accepted=True Accepted", "Programmed=True Programmed"]);

    let open = of(", perPort: [{port: 8443, tls: {}}]");
    assert_eq!(validated(&open), [(80, None), (443, Some((2, false))), (8443, None)]);

    let own = validation(&[config_map("b")], ", mode: AllowInsecureFallback");
    let own = of(&format!(", perPort: [{{port: 8443, tls: {own}}}]"));
    assert_eq!(validated(&own), [(80, None), (443, Some((2, false))), (8443, Some((1, true)))]);
    assert_eq!(
        gateway(&own, "g"),
        [
            "Accepted=True Accepted",
            "InsecureFrontendValidationMode=True ConfigurationChanged",
            "Programmed=True Programmed"
        ]
    );
}

#[test]
fn what_cannot_be_validated_is_not_served() {
    let refused = |reason| {
        format!("Accepted=False NoValidCACertificate, Programmed=False Invalid, ResolvedRefs=False {reason}")
    };
    let elsewhere = "{group: '', kind: ConfigMap, name: a, namespace: other}";
    for (reference, reason) in [
        (config_map("nowhere"), "InvalidCACertificateRef"),
        (config_map("empty"), "InvalidCACertificateRef"),
        (config_map("broken"), "InvalidCACertificateRef"),
        ("{group: '', kind: Service, name: a}".to_owned(), "InvalidCACertificateKind"),
        (elsewhere.to_owned(), "RefNotPermitted"),
    ] {
        let maps = [
            authority("empty", "nothing"),
            authority("broken", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"),
            authority("other/a", &ca()),
        ];
        let frontend = format!("{{default: {}}}", validation(std::slice::from_ref(&reference), ""));
        let compiled = compiled(&format!("{}{}", with_frontend(&frontend), maps.concat()));
        assert_eq!(listeners(&compiled), [refused(reason), refused(reason), GOOD.into()], "{reference}");
        assert_eq!(validated(&compiled), [(80, None)]);
        assert!(compiled.diagnostics.iter().any(|said| said.severity == Severity::Error));
    }
}

#[test]
fn one_good_authority_is_enough_and_a_grant_lets_refer() {
    let refs = [config_map("nowhere"), "{group: '', kind: ConfigMap, name: a, namespace: other}".to_owned()];
    let grant = object(
        "ReferenceGrant",
        "other/grant",
        "{from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: default}], to: [{group: '', kind: ConfigMap}]}",
    );
    let frontend = format!("{{default: {}}}", validation(&refs, ""));
    let text = format!("{}{}{grant}", with_frontend(&frontend), authority("other/a", &ca()));
    let partly =
        "Accepted=True Accepted, Programmed=True Programmed, ResolvedRefs=False InvalidCACertificateRef";
    let compiled = compiled(&text);
    assert_eq!(listeners(&compiled), [partly, partly, GOOD]);
    assert_eq!(validated(&compiled), [(80, None), (443, Some((1, false))), (8443, Some((1, false)))]);
    let resources = resources(&text);
    let gateways = crate::compile::our_gateways(&resources, &node4());
    let referred: Vec<String> = crate::compile::referred(&resources, &gateways)
        .into_iter()
        .map(|(kind, key)| format!("{kind} {key}"))
        .collect();
    assert_eq!(referred, ["ConfigMap default/nowhere", "ConfigMap other/a", "Secret default/s"]);
}
