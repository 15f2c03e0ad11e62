//! What can be wrong with certificates, and listeners that may be confused for theirs.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::*;

fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n    ")
}

fn secret(name: &str, chain: &str, key: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\ntype: kubernetes.io/tls\nstringData:\n  tls.crt: |\n    {}\n  tls.key: |\n    {}\n---\n",
        indented(chain),
        indented(key)
    )
}

/// A self-signed certificate for these names, and its key.
fn signed(names: &[&str]) -> (String, String) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

fn https(name: &str, hostname: &str, secret: &str) -> String {
    let hostname = if hostname.is_empty() { String::new() } else { format!(", hostname: '{hostname}'") };
    format!(
        "{{name: {name}, port: 443, protocol: HTTPS{hostname}, tls: {{certificateRefs: [{{name: {secret}}}]}}}}"
    )
}

#[test]
fn a_bad_certificate_costs_its_own_listener_and_its_fault_is_named() {
    let (good, key) = signed(&["a.example"]);
    let (other, other_key) = signed(&["b.example"]);
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "authority");
    let authority = params.self_signed(&authority_key).unwrap().pem();
    let leaf_key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["c.example".to_owned()])
        .unwrap()
        .signed_by(&leaf_key, &Issuer::new(params, authority_key))
        .unwrap()
        .pem();
    let leaf_key = leaf_key.serialize_pem();
    for (chain, key, fault) in [
        (good.clone(), key.clone(), ""),
        (format!("{leaf}{authority}"), leaf_key.clone(), ""),
        (leaf.clone(), leaf_key.clone(), ""),
        ("nothing".into(), key.clone(), "without a certificate"),
        ("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----".into(), key.clone(), "not PEM"),
        (good.clone(), "nothing".into(), "tls.key that is not PEM"),
        (good.clone(), other_key, "cannot be used together"),
        (
            format!("{leaf}{other}"),
            leaf_key.clone(),
            "chain is broken: certificate 1 of it was issued by CN=authority",
        ),
        (format!("{leaf}{authority}{other}"), leaf_key, "certificate 2 of it"),
        (good.replace("MII", "MIJ"), key, "cannot be read"),
    ] {
        let text = [
            gateway_of("g", &[&https("mine", "m.example", "m"), &https("yours", "y.example", "y")]),
            secret("m", &chain, &key),
            {
                let (chain, key) = signed(&["y.example"]);
                secret("y", &chain, &key)
            },
        ];
        let compiled = compiled(&text.concat());
        let status = &compiled.statuses.gateways[&Key::new("default", "g")].listeners[0];
        let resolved = status.conditions.last().unwrap();
        assert_eq!(resolved.status, fault.is_empty(), "{fault}");
        assert!(resolved.message.contains(fault), "{fault}: {}", resolved.message);
        assert_eq!(proxy(&compiled).len(), if fault.is_empty() { 2 } else { 1 }, "{fault}");
        assert_eq!(listener(&compiled, "g", 1).0[2], "Programmed=True Programmed");
    }
}

#[test]
fn listeners_that_may_be_confused_are_told() {
    let reasons = |listeners: &[String]| -> Vec<String> {
        let (wide, wide_key) = signed(&["*.a.example"]);
        let (narrow, narrow_key) = signed(&["x.a.example"]);
        let (other, other_key) = signed(&["b.example"]);
        let listeners: Vec<&str> = listeners.iter().map(String::as_str).collect();
        let secrets = [
            secret("wide", &wide, &wide_key),
            secret("narrow", &narrow, &narrow_key),
            secret("other", &other, &other_key),
        ];
        let compiled = compiled(&format!("{}{}", gateway_of("g", &listeners), secrets.concat()));
        let overlapping = |index| {
            let conditions = listener(&compiled, "g", index).0;
            let found = conditions.iter().find_map(|line| line.strip_prefix("OverlappingTLSConfig=True "));
            assert!(conditions.contains(&"Programmed=True Programmed".to_owned()));
            found.unwrap_or("none").to_owned()
        };
        (0..listeners.len()).map(overlapping).collect()
    };
    let (names, hosts) = ("OverlappingCertificates", "OverlappingHostnames");
    assert_eq!(
        reasons(&[
            https("a", "*.a.example", "wide"),
            https("b", "x.a.example", "other"),
            https("c", "b.example", "narrow")
        ]),
        [names, hosts, names]
    );
    assert_eq!(reasons(&[https("a", "y.a.example", "wide"), https("b", "b.example", "other")]), ["none"; 2]);
    assert_eq!(reasons(&[https("a", "", "wide"), https("b", "b.example", "other")]), [hosts; 2]);
    let elsewhere = https("b", "b.example", "wide").replace("443", "8443");
    assert_eq!(reasons(&[https("a", "", "wide"), elsewhere]), ["none"; 2]);
    // What passes through has its server's certificate.
    let pass = "{name: p, port: 443, protocol: TLS, tls: {mode: Passthrough}}".to_owned();
    assert_eq!(reasons(&[https("a", "a.example", "wide"), pass]), ["none"; 2]);
}
