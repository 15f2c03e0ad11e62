//! References: to backends and their endpoints, and who may refer where.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
};

use super::{
    Context,
    status::{BACKEND_NOT_FOUND, INVALID_KIND, Problem, REF_NOT_PERMITTED, UNSUPPORTED_PROTOCOL},
};
use crate::{
    api::{
        GATEWAY_GROUP, Key, OWN_GROUP, Object, Resources,
        backend::Backend,
        core::{EndpointSlice, SERVICE_NAME_LABEL, Service, ServicePort, TargetPort},
        route::ObjectRef,
    },
    model::l7::AppProtocol,
};

/// Who refers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Referrer<'a> {
    /// Its kind, in the group of the Gateway API.
    pub(super) kind: &'static str,
    /// Its namespace.
    pub(super) namespace: &'a str,
}

/// What traffic a reference must be able to take.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Traffic {
    /// TCP, whatever is in it: also for TLS.
    Tcp,
    /// UDP.
    Udp,
    /// HTTP and gRPC.
    Http,
}

/// What a reference leads to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Endpoints {
    /// What they speak; of no meaning for TCP and UDP.
    pub(super) protocol: AppProtocol,
    /// Ready endpoints of both families, sorted, each once.
    pub(super) addresses: Vec<SocketAddr>,
    /// Whether there may be more once hostnames are resolved.
    pub(super) pending: bool,
}

/// Follows a reference to a backend.
pub(super) fn resolve(
    cx: &mut Context<'_>,
    from: Referrer<'_>,
    to: &ObjectRef,
    traffic: Traffic,
) -> Result<Endpoints, Problem> {
    let namespace = to.namespace.as_deref().unwrap_or(from.namespace);
    let key = Key::new(namespace, &to.name);
    let known = [("", "Service"), (OWN_GROUP, "Backend")].contains(&(to.group.as_str(), to.kind.as_str()));
    if !known {
        let group = if to.group.is_empty() { String::new() } else { format!("{}/", to.group) };
        let message =
            format!("{group}{} cannot be a backend: refer to a Service or a {OWN_GROUP} Backend", to.kind);
        return Err(Problem::new(INVALID_KIND, message));
    }
    // Asked before anything else, so that nobody learns what exists where they may not look.
    if !permitted(cx.resources, from, (&to.group, &to.kind), &key) {
        return Err(not_permitted(from, &to.kind, &key));
    }
    let missing = || Problem::new(BACKEND_NOT_FOUND, format!("there is no {} {key}", to.kind));
    let resources = cx.resources;
    if to.kind == "Service" {
        let service = resources.services.get(&key).ok_or_else(missing)?;
        service_endpoints(&cx.slices, service, to.port, traffic)
    } else {
        let backend = resources.backends.get(&key).ok_or_else(missing)?;
        backend_endpoints(cx, backend, to.port, traffic)
    }
}

/// Whether `from` may refer to `to`: always within its namespace, else by a ReferenceGrant.
pub(super) fn permitted(resources: &Resources, from: Referrer<'_>, to: (&str, &str), key: &Key) -> bool {
    from.namespace == key.namespace
        || resources
            .reference_grants
            // Keys are sorted by namespace.
            .range(Key::new(&key.namespace, "")..)
            .take_while(|(grant, _)| grant.namespace == key.namespace)
            .any(|(_, grant)| {
                let from_fits = |of: &crate::api::grant::From| {
                    (of.group.as_str(), of.kind.as_str(), of.namespace.as_str())
                        == (GATEWAY_GROUP, from.kind, from.namespace)
                };
                let to_fits = |of: &crate::api::grant::To| {
                    (of.group.as_str(), of.kind.as_str()) == to
                        && of.name.as_ref().is_none_or(|name| *name == key.name)
                };
                grant.spec.from.iter().any(from_fits) && grant.spec.to.iter().any(to_fits)
            })
}

/// That a reference into another namespace has no ReferenceGrant.
pub(super) fn not_permitted(from: Referrer<'_>, kind: &str, key: &Key) -> Problem {
    let message = format!(
        "{kind} {key} is in another namespace: it needs a ReferenceGrant there, from {} of {}",
        from.kind, from.namespace
    );
    Problem::new(REF_NOT_PERMITTED, message)
}

/// EndpointSlices by namespace and name of their Service: found once, since every reference asks.
pub(super) type Slices<'a> = HashMap<(&'a str, &'a str), Vec<&'a EndpointSlice>>;

/// The EndpointSlices of each Service.
pub(super) fn slices(resources: &Resources) -> Slices<'_> {
    let mut slices = Slices::new();
    for slice in resources.endpoint_slices.values() {
        if let Some(service) = slice.metadata.labels.get(SERVICE_NAME_LABEL) {
            slices.entry((&slice.metadata.namespace, service)).or_default().push(&slice.spec);
        }
    }
    slices
}

fn service_endpoints(
    slices: &Slices<'_>,
    service: &Object<Service>,
    port: Option<u16>,
    traffic: Traffic,
) -> Result<Endpoints, Problem> {
    let key = service.key();
    if service.spec.service_type.as_deref() == Some("ExternalName") {
        let message =
            format!("Service {key} is an ExternalName, which cannot be a backend: write a Backend instead");
        return Err(Problem::new(INVALID_KIND, message));
    }
    let wanted = if traffic == Traffic::Udp { "UDP" } else { "TCP" };
    let fits = |candidate: &&ServicePort| {
        Some(candidate.port) == port && candidate.protocol.as_deref().unwrap_or("TCP") == wanted
    };
    let Some(service_port) = service.spec.ports.iter().find(fits) else {
        let port = port.map_or_else(|| "no port".to_owned(), |port| format!("port {port}"));
        let message = format!("Service {key} does not have what is referred to, {port} of protocol {wanted}");
        return Err(Problem::new(BACKEND_NOT_FOUND, message));
    };
    let mut addresses: Vec<SocketAddr> = slices
        .get(&(key.namespace.as_str(), key.name.as_str()))
        .into_iter()
        .flatten()
        .flat_map(|slice| slice_endpoints(slice, service_port))
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    let protocol = app_protocol(service_port.app_protocol.as_deref(), traffic)?;
    Ok(Endpoints { protocol, addresses, pending: false })
}

/// Ready endpoints of a slice for a port of its Service: ports belong together by name and protocol.
fn slice_endpoints(slice: &EndpointSlice, service_port: &ServicePort) -> Vec<SocketAddr> {
    let protocol = |protocol: &Option<String>| protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    let port = slice.ports.iter().find(|port| {
        port.name == service_port.name && protocol(&port.protocol) == protocol(&service_port.protocol)
    });
    // A slice's port without a number stands for every port.
    let Some(number) = port.map(|port| port.port.unwrap_or_else(|| target(service_port))) else {
        return Vec::new();
    };
    slice
        .endpoints
        .iter()
        .filter(|endpoint| endpoint.conditions.ready.unwrap_or(true))
        .filter_map(|endpoint| endpoint.addresses.first()?.parse::<IpAddr>().ok())
        .map(|address| SocketAddr::new(address, number))
        .collect()
}

fn target(port: &ServicePort) -> u16 {
    match port.target_port {
        Some(TargetPort::Number(number)) => number,
        // What a name means is known to the pods only.
        Some(TargetPort::Name(_)) | None => port.port,
    }
}

/// A Backend's endpoints; a reference with a port means only those with that port.
fn backend_endpoints(
    cx: &mut Context<'_>,
    backend: &Object<Backend>,
    port: Option<u16>,
    traffic: Traffic,
) -> Result<Endpoints, Problem> {
    let protocol = app_protocol(backend.spec.app_protocol.as_deref(), traffic)?;
    let mut endpoints = Endpoints { protocol, addresses: Vec::new(), pending: false };
    let mut found = false;
    for endpoint in
        backend.spec.endpoints.iter().filter(|endpoint| port.is_none_or(|port| endpoint.port == port))
    {
        found = true;
        endpoints.addresses.extend(endpoint.address.map(|address| SocketAddr::new(address, endpoint.port)));
        if let Some(hostname) = &endpoint.hostname {
            cx.hostnames.insert(hostname.clone());
            match cx.settings.resolved.get(hostname) {
                Some(known) => {
                    endpoints
                        .addresses
                        .extend(known.iter().map(|address| SocketAddr::new(*address, endpoint.port)));
                }
                None => endpoints.pending = true,
            }
        }
    }
    if !found {
        let port = port.map_or_else(String::new, |port| format!(" with port {port}"));
        return Err(Problem::new(
            BACKEND_NOT_FOUND,
            format!("Backend {} has no endpoint{port}", backend.key()),
        ));
    }
    endpoints.addresses.sort_unstable();
    endpoints.addresses.dedup();
    Ok(endpoints)
}

fn app_protocol(name: Option<&str>, traffic: Traffic) -> Result<AppProtocol, Problem> {
    match name {
        _ if traffic != Traffic::Http => Ok(AppProtocol::Http),
        None | Some("http" | "kubernetes.io/ws") => Ok(AppProtocol::Http),
        Some("kubernetes.io/h2c") => Ok(AppProtocol::H2c),
        Some(other) => {
            let message = format!(
                "appProtocol {other} is not served: it can be http, kubernetes.io/h2c or kubernetes.io/ws"
            );
            Err(Problem::new(UNSUPPORTED_PROTOCOL, message))
        }
    }
}
