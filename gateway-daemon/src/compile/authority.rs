//! Certificates of authorities, in ConfigMaps, and whose certificates they are to validate.

use std::sync::Arc;

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use super::{
    Context,
    refs::{Referrer, not_permitted, permitted},
    status::{INVALID_CA_CERTIFICATE_KIND, INVALID_CA_CERTIFICATE_REF, NO_VALID_CA_CERTIFICATE, Problem},
};
use crate::{
    api::{
        Key, Object, Resources,
        gateway::{CaRef, FrontendValidation, Gateway},
    },
    model::l7::ClientValidation,
};

/// The key of a ConfigMap that holds certificates of authorities.
const KEY: &str = "ca.crt";

/// How a listener validates the certificates of its clients.
#[derive(Debug, Default)]
pub(super) struct Frontend {
    pub(super) clients: Option<ClientValidation>,
    /// Why the listener cannot be served: to do so without asking for certificates would open what is meant to be
    /// closed.
    pub(super) refused: Option<Problem>,
    /// The first reference that does not resolve.
    pub(super) unresolved: Option<Problem>,
}

/// How a Gateway's listeners of protocol HTTPS at a port validate the certificates of their clients.
pub(super) fn frontend(cx: &mut Context<'_>, gateway: &Object<Gateway>, port: u16) -> Frontend {
    let mut frontend = Frontend::default();
    let Some((validation, path)) = validation(&gateway.spec, port) else { return frontend };
    let from = Referrer { kind: "Gateway", namespace: &gateway.metadata.namespace };
    let mut authorities = Vec::new();
    for (index, reference) in validation.ca_certificate_refs.iter().enumerate() {
        match authority(cx.resources, from, reference) {
            Ok(pem) => authorities.push(pem),
            Err(problem) => {
                cx.error(gateway, &format!("{path}.caCertificateRefs[{index}].name"), &problem);
                frontend.unresolved.get_or_insert(problem);
            }
        }
    }
    if authorities.is_empty() {
        let message = "clients cannot be validated: none of the caCertificateRefs can be used";
        frontend.refused = Some(Problem::new(NO_VALID_CA_CERTIFICATE, message));
    } else {
        frontend.clients = Some(ClientValidation { authorities, insecure: validation.is_insecure() });
    }
    frontend
}

/// Whether some port of a Gateway lets clients in without a valid certificate though it asks for one.
pub(super) fn is_insecure(gateway: &Gateway) -> bool {
    validations(gateway).any(FrontendValidation::is_insecure)
}

/// The ConfigMaps that the validations of a Gateway refer to, as far as they may.
pub(super) fn config_maps(resources: &Resources, gateway: &Object<Gateway>) -> Vec<Key> {
    let from = Referrer { kind: "Gateway", namespace: &gateway.metadata.namespace };
    validations(&gateway.spec)
        .flat_map(|validation| &validation.ca_certificate_refs)
        .filter_map(|reference| config_map(resources, from, reference).ok())
        .collect()
}

fn validations(gateway: &Gateway) -> impl Iterator<Item = &FrontendValidation> {
    let frontend = &gateway.tls.frontend;
    let all = std::iter::once(&frontend.default).chain(frontend.per_port.iter().map(|port| &port.tls));
    all.filter_map(|tls| tls.validation.as_ref())
}

/// The validation of a port, and its path. What a port has of its own stands instead of the default, none as well.
fn validation(gateway: &Gateway, port: u16) -> Option<(&FrontendValidation, String)> {
    let frontend = &gateway.tls.frontend;
    let (tls, path) = match frontend.per_port.iter().position(|own| own.port == port) {
        Some(index) => (&frontend.per_port[index].tls, format!("spec.tls.frontend.perPort[{index}].tls")),
        None => (&frontend.default, "spec.tls.frontend.default".to_owned()),
    };
    Some((tls.validation.as_ref()?, format!("{path}.validation")))
}

/// The ConfigMap that a reference leads to, whether or not it is there.
fn config_map(resources: &Resources, from: Referrer<'_>, reference: &CaRef) -> Result<Key, Problem> {
    if (reference.group.as_str(), reference.kind.as_str()) != ("", "ConfigMap") {
        let message =
            format!("{} cannot hold certificates of authorities: refer to a ConfigMap", reference.kind);
        return Err(Problem::new(INVALID_CA_CERTIFICATE_KIND, message));
    }
    let key = Key::new(reference.namespace.as_deref().unwrap_or(from.namespace), &reference.name);
    if !permitted(resources, from, ("", "ConfigMap"), &key) {
        return Err(not_permitted(from, "ConfigMap", &key));
    }
    Ok(key)
}

/// PEM of the certificates that a reference leads to, all of which can be used.
fn authority(resources: &Resources, from: Referrer<'_>, reference: &CaRef) -> Result<Arc<[u8]>, Problem> {
    let invalid = |message: String| Problem::new(INVALID_CA_CERTIFICATE_REF, message);
    let key = config_map(resources, from, reference)?;
    let found = resources.config_maps.get(&key);
    let config_map = found.ok_or_else(|| invalid(format!("there is no ConfigMap {key}")))?;
    let pem = config_map.spec.data.get(KEY);
    let pem = pem.ok_or_else(|| invalid(format!("ConfigMap {key} has no {KEY}")))?;
    check(pem).map_err(|wrong| invalid(format!("ConfigMap {key} has a {KEY} {wrong}")))?;
    Ok(pem.as_bytes().into())
}

/// Says what is wrong with a bundle of certificates.
fn check(pem: &str) -> Result<(), String> {
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| format!("that is not PEM: {error}"))?;
        store.add(certificate).map_err(|error| format!("with a certificate that cannot be read: {error}"))?;
    }
    if store.is_empty() { Err("without a certificate".to_owned()) } else { Ok(()) }
}
