//! TLSRoute to tunnels of the proxy.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    Context,
    attach::{Attachment, attach},
    by_age,
    gateway::{Gateway, hostname},
    refs::Traffic,
    route::{Verdict, parent_statuses},
    rule::backend_ref,
    status::{Problem, Statuses},
};
use crate::{
    api::{Object, Severity, tls::TlsRoute},
    model::l7::{Hostname, Service, TunnelRoute},
};

/// Attaches all TLSRoutes, oldest first.
pub(super) fn routes(cx: &mut Context<'_>, gateways: &mut [Gateway<'_>], statuses: &mut Statuses) {
    for object in by_age(&cx.resources.tls_routes) {
        route(cx, gateways, statuses, object);
    }
}

fn route(
    cx: &mut Context<'_>,
    gateways: &mut [Gateway<'_>],
    statuses: &mut Statuses,
    object: &Object<TlsRoute>,
) {
    let spec = &object.spec;
    let hostnames: Vec<Hostname> = spec.hostnames.iter().map(|text| hostname(text)).collect();
    let asked = (spec.parent_refs.as_slice(), spec.use_default_gateways.as_deref());
    let parents = attach(cx, gateways, object, asked, &hostnames);
    let (service, unresolved) = service(cx, object);
    let mut served = BTreeSet::new();
    for attachment in parents.iter().filter_map(|parent| parent.outcome.as_ref().ok()).flatten() {
        if served.insert((attachment.gateway, attachment.listener)) {
            add(cx, gateways, object, attachment, &service);
        }
    }
    parent_statuses(statuses, object, parents, &Verdict { unresolved, ..Verdict::default() });
}

/// Adds a route to a listener, and says which of its hostnames are an older one's there.
fn add(
    cx: &mut Context<'_>,
    gateways: &mut [Gateway<'_>],
    object: &Object<TlsRoute>,
    attachment: &Attachment,
    service: &Arc<Service>,
) {
    let listener = &mut gateways[attachment.gateway].listeners[attachment.listener];
    for hostname in &attachment.hostnames {
        let older = listener.tunnels.iter().find(|older| older.hostnames.contains(hostname));
        if let Some(older) = older {
            let message = format!(
                "{hostname} of listener {} is served by {}, which is older or first by name: this route does not get it",
                listener.name(),
                older.service.name
            );
            cx.say(object, "spec.hostnames", Severity::Warning, "route-not-served", message);
        }
    }
    listener.attached_routes += 1;
    let hostnames = attachment.hostnames.clone();
    listener.tunnels.push(TunnelRoute { hostnames, service: Arc::clone(service) });
}

/// Who takes the connections, and the first reference that does not resolve.
fn service(cx: &mut Context<'_>, object: &Object<TlsRoute>) -> (Arc<Service>, Option<Problem>) {
    let mut unresolved = None;
    let references = object.spec.rules.iter().flat_map(|rule| &rule.backend_refs).enumerate();
    let backends = references.map(|(index, reference)| {
        let path = format!("spec.rules[0].backendRefs[{index}].name");
        backend_ref(cx, object, &path, reference, Traffic::Tcp, &mut unresolved)
    });
    let backends = backends.collect();
    let key = object.key();
    (Arc::new(Service { name: format!("tlsroute.{}.{}.0", key.namespace, key.name), backends }), unresolved)
}
