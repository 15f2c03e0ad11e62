//! Certificates of listeners where TLS ends: Secrets, checked.

use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::CertifiedKey,
};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::{
    Context,
    gateway::hostname,
    refs::{Referrer, not_permitted, permitted},
    status::{INVALID_CERTIFICATE_REF, Problem},
};
use crate::{
    api::{
        Key, Object, Resources,
        core::Secret,
        gateway::{Gateway, Listener, SecretRef},
    },
    model::l7::{Certificate, Hostname},
};

/// The certificates of a listener that can be shown, and what is wrong with the first of the others.
pub(super) fn certificates(
    cx: &mut Context<'_>,
    gateway: &Object<Gateway>,
    path: &str,
    listener: &Listener,
) -> (Vec<Certificate>, Option<Problem>) {
    let references = listener.tls.as_ref().map_or(&[][..], |tls| &tls.certificate_refs);
    let (mut certificates, mut problem) = (Vec::new(), None);
    for (index, reference) in references.iter().enumerate() {
        match certificate(cx, &gateway.metadata.namespace, reference) {
            Ok(certificate) => certificates.push(certificate),
            Err(found) => {
                cx.error(gateway, &format!("{path}.tls.certificateRefs[{index}].name"), &found);
                problem.get_or_insert(found);
            }
        }
    }
    if references.is_empty() {
        let found = Problem::new(
            INVALID_CERTIFICATE_REF,
            "the listener names no certificate: write tls.certificateRefs",
        );
        cx.error(gateway, path, &found);
        problem = Some(found);
    }
    (certificates, problem)
}

/// The Secrets that the listeners of a Gateway refer to, as far as they may.
pub(super) fn secrets(resources: &Resources, gateway: &Object<Gateway>) -> Vec<Key> {
    let listeners = gateway.spec.listeners.iter().filter_map(|listener| listener.tls.as_ref());
    listeners
        .flat_map(|tls| &tls.certificate_refs)
        .filter_map(|reference| secret(resources, &gateway.metadata.namespace, reference).ok())
        .collect()
}

/// The Secret that a reference leads to, whether or not it is there.
fn secret(resources: &Resources, namespace: &str, reference: &SecretRef) -> Result<Key, Problem> {
    if (reference.group.as_str(), reference.kind.as_str()) != ("", "Secret") {
        let message = format!("{} cannot be a certificate: refer to a Secret", reference.kind);
        return Err(Problem::new(INVALID_CERTIFICATE_REF, message));
    }
    let key = Key::new(reference.namespace.as_deref().unwrap_or(namespace), &reference.name);
    let from = Referrer { kind: "Gateway", namespace };
    if !permitted(resources, from, ("", "Secret"), &key) {
        return Err(not_permitted(from, "Secret", &key));
    }
    Ok(key)
}

fn certificate(cx: &Context<'_>, namespace: &str, reference: &SecretRef) -> Result<Certificate, Problem> {
    let invalid = |message: String| Problem::new(INVALID_CERTIFICATE_REF, message);
    let key = secret(cx.resources, namespace, reference)?;
    let secret =
        cx.resources.secrets.get(&key).ok_or_else(|| invalid(format!("there is no Secret {key}")))?;
    read(&secret.spec).map_err(|wrong| invalid(format!("Secret {key} {wrong}")))
}

/// A certificate and its key; the sentence says what is wrong with the Secret.
fn read(secret: &Secret) -> Result<Certificate, String> {
    if secret.secret_type.as_deref() != Some("kubernetes.io/tls") {
        return Err("must be of type kubernetes.io/tls".to_owned());
    }
    let part = |name| secret.get(name).ok_or_else(|| format!("has no {name}"));
    let (chain, key) = (part("tls.crt")?, part("tls.key")?);
    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("has a tls.crt that is not PEM: {error}"))?;
    if certificates.is_empty() {
        return Err("has a tls.crt without a certificate".to_owned());
    }
    check_chain(&certificates)?;
    let private = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| format!("has a tls.key that is not PEM: {error}"))?;
    CertifiedKey::from_der(certificates, private, &ring::default_provider())
        .map_err(|error| format!("has a tls.crt and tls.key that cannot be used together: {error}"))?;
    Ok(Certificate { chain: chain.into(), key: key.into() })
}

/// Says where a chain is broken: each certificate must be issued by the one after it.
fn check_chain(certificates: &[CertificateDer<'_>]) -> Result<(), String> {
    let parsed: Vec<X509Certificate<'_>> = certificates
        .iter()
        .map(|der| X509Certificate::from_der(der).map(|(_, certificate)| certificate))
        .collect::<Result<_, _>>()
        .map_err(|error| format!("has a tls.crt with a certificate that cannot be read: {error}"))?;
    let broken = parsed.windows(2).position(|pair| pair[0].issuer().as_raw() != pair[1].subject().as_raw());
    match broken {
        None => Ok(()),
        Some(index) => Err(format!(
            "has a tls.crt whose chain is broken: certificate {} of it was issued by {}, but after it comes {}",
            index + 1,
            parsed[index].issuer(),
            parsed[index + 1].subject()
        )),
    }
}

/// The names that a certificate is for: those of type DNS among its subjectAltNames.
pub(super) fn names(certificate: &Certificate) -> Vec<Hostname> {
    let Some(Ok(der)) = CertificateDer::pem_slice_iter(&certificate.chain).next() else { return Vec::new() };
    let Ok((_, parsed)) = X509Certificate::from_der(&der) else { return Vec::new() };
    let Ok(Some(alternatives)) = parsed.subject_alternative_name() else { return Vec::new() };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(hostname(name)),
        _ => None,
    };
    alternatives.value.general_names.iter().filter_map(name).collect()
}
