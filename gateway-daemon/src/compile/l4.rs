//! TCPRoute and UDPRoute to services of the kernel.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use super::{
    Context,
    attach::attach,
    by_age,
    gateway::{Gateway, Listener},
    refs::{Referrer, Traffic, resolve},
    route::{Verdict, parent_statuses},
    status::{Problem, Statuses},
};
pub(super) use crate::model::l4::Protocol;
use crate::{
    api::{Kind, Object, Severity, route::L4Route},
    model::l4::{Frontend, Service, Share, WEIGHT_SCALE},
};

/// As long as RFC 5382 (REQ-5) asks of translators of TCP: two hours and four minutes.
const TCP_IDLE_TIMEOUT: Duration = Duration::from_secs(2 * 3600 + 4 * 60);

/// As long as RFC 4787 (REQ-5) recommends for UDP.
const UDP_IDLE_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// A route as it serves a listener.
#[derive(Clone, Debug)]
pub(super) struct Route {
    /// `tcproute.NAMESPACE.NAME.0` or `udproute…`.
    name: String,
    /// Weight and ready endpoints of each reference; no endpoints if it is invalid.
    shares: Vec<(u32, Vec<SocketAddr>)>,
}

/// Attaches all TCPRoutes and UDPRoutes.
pub(super) fn routes(cx: &mut Context<'_>, gateways: &mut [Gateway<'_>], statuses: &mut Statuses) {
    for object in by_age(&cx.resources.tcp_routes) {
        route(cx, gateways, statuses, object, &object.spec.0, Traffic::Tcp);
    }
    for object in by_age(&cx.resources.udp_routes) {
        route(cx, gateways, statuses, object, &object.spec.0, Traffic::Udp);
    }
}

fn route<S: Kind>(
    cx: &mut Context<'_>,
    gateways: &mut [Gateway<'_>],
    statuses: &mut Statuses,
    object: &Object<S>,
    spec: &L4Route,
    traffic: Traffic,
) {
    let asked = (spec.parent_refs.as_slice(), spec.use_default_gateways.as_deref());
    let parents = attach(cx, gateways, object, asked, &[]);
    let (shares, unresolved) = shares(cx, object, spec, traffic);
    let key = object.key();
    let name = format!("{}.{}.{}.0", S::KIND.to_ascii_lowercase(), key.namespace, key.name);
    let route = Route { name, shares };
    let mut served = std::collections::BTreeSet::new();
    for attachment in parents.iter().filter_map(|parent| parent.outcome.as_ref().ok()).flatten() {
        if !served.insert((attachment.gateway, attachment.listener)) {
            continue;
        }
        let listener = &mut gateways[attachment.gateway].listeners[attachment.listener];
        listener.attached_routes += 1;
        match &listener.l4_route {
            None => listener.l4_route = Some(route.clone()),
            Some(older) => {
                let message = format!(
                    "listener {} is served by {}, which is older or first by name: this route gets nothing there",
                    listener.name(),
                    older.name
                );
                cx.say(object, "metadata.name", Severity::Warning, "route-not-served", message);
            }
        }
    }
    let verdict = Verdict { unresolved, ..Verdict::default() };
    parent_statuses(statuses, object, parents, &verdict);
}

fn shares<S: Kind>(
    cx: &mut Context<'_>,
    object: &Object<S>,
    spec: &L4Route,
    traffic: Traffic,
) -> (Vec<(u32, Vec<SocketAddr>)>, Option<Problem>) {
    let from = Referrer { kind: S::KIND, namespace: &object.metadata.namespace };
    let (mut shares, mut unresolved) = (Vec::new(), None);
    for (index, reference) in spec.rules.iter().flat_map(|rule| &rule.backend_refs).enumerate() {
        let path = format!("spec.rules[0].backendRefs[{index}].name");
        let addresses = match resolve(cx, from, &reference.to, traffic) {
            Ok(endpoints) => {
                if endpoints.addresses.is_empty() && !endpoints.pending {
                    cx.no_endpoints(object, &path, &reference.to);
                }
                endpoints.addresses
            }
            Err(problem) => {
                cx.error(object, &path, &problem);
                unresolved.get_or_insert(problem);
                Vec::new()
            }
        };
        shares.push((reference.weight(), addresses));
    }
    (shares, unresolved)
}

/// The service of a listener at one of its addresses.
pub(super) fn service(listener: &Listener<'_>, address: IpAddr, protocol: Protocol) -> Service {
    let route = listener.l4_route.as_ref();
    Service {
        frontend: Frontend { address, port: listener.spec.port, protocol },
        listener: listener.name().clone(),
        name: route.map(|route| route.name.clone()),
        idle_timeout: match protocol {
            Protocol::Tcp => TCP_IDLE_TIMEOUT,
            Protocol::Udp => UDP_IDLE_TIMEOUT,
        },
        shares: route.map(|route| divide(&route.shares, address.is_ipv4())).unwrap_or_default(),
    }
}

/// Divides each reference's weight among its endpoints of a family, exactly; without any, it is refused.
fn divide(references: &[(u32, Vec<SocketAddr>)], ipv4: bool) -> Vec<Share> {
    let mut weights: BTreeMap<Option<SocketAddr>, u64> = BTreeMap::new();
    for (weight, endpoints) in references {
        let total = u64::from(*weight) * WEIGHT_SCALE;
        let family: Vec<SocketAddr> =
            endpoints.iter().copied().filter(|endpoint| endpoint.is_ipv4() == ipv4).collect();
        let count = family.len() as u64;
        if count == 0 {
            *weights.entry(None).or_default() += total;
        }
        for (index, endpoint) in (0..).zip(family) {
            // Of a number that does not divide evenly, the first endpoints get one more.
            let rest = u64::from(index < total % count);
            *weights.entry(Some(endpoint)).or_default() += total / count + rest;
        }
    }
    weights.into_iter().map(|(backend, weight)| Share { backend, weight }).collect()
}
