//! Gateways: which listeners there are, at which addresses, and whether they can be served.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use super::{
    Context,
    authority::{self, Frontend},
    by_age, certificate,
    class::Class,
    conflict, l4,
    status::{
        ACCEPTED, ADDRESS_NOT_ASSIGNED, ADDRESS_NOT_USABLE, CONFIGURATION_CHANGED, Condition, GatewayStatus,
        INVALID, INVALID_PARAMETERS, INVALID_ROUTE_KINDS, LISTENERS_NOT_VALID, ListenerStatus, NO_CONFLICTS,
        PROGRAMMED, Problem, RESOLVED_REFS, Statuses, UNSUPPORTED_ADDRESS, UNSUPPORTED_PROTOCOL,
        UNSUPPORTED_VALUE,
    },
};
use crate::{
    api::{
        GATEWAY_GROUP, Object, Severity,
        gateway::{self as api, RouteKind},
    },
    model::{
        ListenerName, Model,
        l7::{self, Action, Certificate, ClientValidation, Hostname},
    },
};

/// A Gateway of ours.
pub(super) struct Gateway<'a> {
    pub(super) object: &'a Object<api::Gateway>,
    pub(super) listeners: Vec<Listener<'a>>,
    pub(super) addresses: Vec<IpAddr>,
    /// Why it is not served at all.
    pub(super) refused: Option<Problem>,
    /// Why it is not reached, or not at all its addresses.
    unreachable: Option<Problem>,
}

/// A listener of a Gateway of ours.
pub(super) struct Listener<'a> {
    pub(super) spec: &'a api::Listener,
    pub(super) hostname: Option<Hostname>,
    /// Kinds of routes that may be attached.
    pub(super) kinds: Vec<RouteKind>,
    /// Routes that are attached and accepted.
    pub(super) attached_routes: usize,
    /// The oldest TCPRoute or UDPRoute attached.
    pub(super) l4_route: Option<l4::Route>,
    /// Rules of HTTPRoutes and GRPCRoutes attached, in order of precedence.
    pub(super) rules: Vec<l7::Rule>,
    /// TLSRoutes attached, in order of precedence.
    pub(super) tunnels: Vec<l7::TunnelRoute>,
    name: ListenerName,
    pub(super) path: String,
    pub(super) protocol: Option<Protocol>,
    certificates: Vec<Certificate>,
    /// What the certificates are for.
    pub(super) certificate_names: Vec<Hostname>,
    clients: Option<ClientValidation>,
    pub(super) refused: Option<Problem>,
    pub(super) conflicted: Option<Problem>,
    /// With which other listener it may be confused.
    pub(super) overlapping: Option<Problem>,
    unresolved: Option<Problem>,
}

/// Protocols that are served.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Protocol {
    Http,
    Https,
    Tcp,
    Udp,
    Tls,
}

impl Protocol {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "HTTP" => Self::Http,
            "HTTPS" => Self::Https,
            "TCP" => Self::Tcp,
            "UDP" => Self::Udp,
            "TLS" => Self::Tls,
            _ => return None,
        })
    }

    fn kinds(self) -> &'static [&'static str] {
        match self {
            Self::Http | Self::Https => &["HTTPRoute", "GRPCRoute"],
            Self::Tcp => &["TCPRoute"],
            Self::Udp => &["UDPRoute"],
            Self::Tls => &["TLSRoute"],
        }
    }

    /// Whether listeners of one port are told apart by the server name of TLS.
    pub(super) fn has_server_name(self) -> bool {
        matches!(self, Self::Https | Self::Tls)
    }
}

/// All Gateways of ours, oldest first.
pub(super) fn gateways<'a>(cx: &mut Context<'a>, classes: &BTreeMap<String, Class>) -> Vec<Gateway<'a>> {
    let mut gateways = Vec::new();
    for object in by_age(&cx.resources.gateways) {
        match classes.get(&object.spec.gateway_class_name) {
            Some(Class::Foreign) => {}
            Some(class) => gateways.push(gateway(cx, object, *class)),
            None => {
                let message = format!("there is no GatewayClass {}", object.spec.gateway_class_name);
                cx.say(object, "spec.gatewayClassName", Severity::Error, "class-not-found", message);
            }
        }
    }
    conflict::between_gateways(cx, &mut gateways);
    gateways
}

fn gateway<'a>(cx: &mut Context<'a>, object: &'a Object<api::Gateway>, class: Class) -> Gateway<'a> {
    let spec = &object.spec;
    let mut refused = None;
    if class == Class::Refused {
        let message = format!("GatewayClass {} is not accepted", spec.gateway_class_name);
        refused = Some(("spec.gatewayClassName", Problem::new(INVALID, message)));
    }
    if let Some(parameters) = &spec.infrastructure.parameters_ref {
        let message = format!(
            "gatewayd takes no parameters, but the Gateway refers to {} {}: remove parametersRef",
            parameters.kind, parameters.name
        );
        refused = Some(("spec.infrastructure.parametersRef", Problem::new(INVALID_PARAMETERS, message)));
    }
    if spec.tls.backend.is_some() {
        cx.no_effect(object, "spec.tls.backend");
    }
    if spec.allowed_listeners.namespaces.from.as_deref().is_some_and(|from| from != "None") {
        cx.no_effect(object, "spec.allowedListeners");
    }
    let (addresses, unsupported, unreachable) = addresses(cx, object);
    let refused = refused.or_else(|| Some(("spec.addresses", unsupported?)));
    if let Some((path, problem)) = &refused {
        cx.error(object, path, problem);
    }
    let mut listeners: Vec<Listener<'a>> =
        spec.listeners.iter().enumerate().map(|(index, spec)| listener(cx, object, index, spec)).collect();
    conflict::within_gateway(cx, object, &mut listeners);
    conflict::overlaps(&mut listeners);
    Gateway { object, listeners, addresses, refused: refused.map(|(_, problem)| problem), unreachable }
}

/// Addresses of a Gateway, why it is refused for what it asks for, and why it is not reached at all of them.
fn addresses(
    cx: &mut Context<'_>,
    object: &Object<api::Gateway>,
) -> (Vec<IpAddr>, Option<Problem>, Option<Problem>) {
    let mut addresses = BTreeSet::new();
    let (mut refused, mut unreachable) = (None, None);
    for (index, asked) in object.spec.addresses.iter().enumerate() {
        let path = format!("spec.addresses[{index}].value");
        if asked.address_type != "IPAddress" {
            let message =
                format!("addresses of type {} are not served: write an IPAddress", asked.address_type);
            refused = Some(Problem::new(UNSUPPORTED_ADDRESS, message));
        } else if asked.value.is_empty() {
            addresses.extend(any_addresses(cx, object));
        } else {
            match asked.value.parse::<IpAddr>() {
                Ok(address) if !can_have(cx, address) => {
                    let message = format!("{address} is not in the pool of addresses that Gateways can have");
                    let problem = Problem::new(ADDRESS_NOT_USABLE, message);
                    cx.error(object, &path, &problem);
                    unreachable = Some(problem);
                }
                Ok(address) if !address.is_unspecified() && !address.is_multicast() => {
                    addresses.insert(address);
                }
                _ => {
                    let message = format!("{} is not an address that a node can have", asked.value);
                    let problem = Problem::new(ADDRESS_NOT_USABLE, message);
                    cx.error(object, &path, &problem);
                    unreachable = Some(problem);
                }
            }
        }
    }
    if object.spec.addresses.is_empty() {
        addresses.extend(any_addresses(cx, object));
    }
    if addresses.is_empty() && unreachable.is_none() && refused.is_none() {
        let message = match &cx.settings.assigned {
            None => "there is no address to assign: write spec.addresses",
            Some(_) => "no address of the pool is assigned, or none is left: widen the pool",
        };
        let problem = Problem::new(ADDRESS_NOT_ASSIGNED, message);
        cx.error(object, "spec", &problem);
        unreachable = Some(problem);
    }
    (addresses.into_iter().collect(), refused, unreachable)
}

/// The addresses of a Gateway that asks for none in particular.
fn any_addresses<'a>(cx: &'a Context<'_>, object: &Object<api::Gateway>) -> &'a [IpAddr] {
    match &cx.settings.assigned {
        None => &cx.settings.node_addresses,
        Some(assigned) => assigned.given.get(&object.key()).map_or(&[], Vec::as_slice),
    }
}

/// Whether a Gateway can have an address that it asks for.
fn can_have(cx: &Context<'_>, address: IpAddr) -> bool {
    cx.settings.assigned.as_ref().is_none_or(|assigned| assigned.pool.contains(address))
}

fn listener<'a>(
    cx: &mut Context<'a>,
    object: &Object<api::Gateway>,
    index: usize,
    spec: &'a api::Listener,
) -> Listener<'a> {
    let path = format!("spec.listeners[{index}]");
    let protocol = Protocol::named(&spec.protocol);
    let mut refused = None;
    let mut refuse = |cx: &mut Context<'_>, field: &str, reason, message: String| {
        let problem = Problem::new(reason, message);
        cx.error(object, &format!("{path}.{field}"), &problem);
        refused.get_or_insert(problem);
    };
    if protocol.is_none() {
        let message =
            format!("protocol {} is not served: it can be HTTP, HTTPS, TLS, TCP or UDP", spec.protocol);
        refuse(cx, "protocol", UNSUPPORTED_PROTOCOL, message);
    }
    if let Some(option) = spec.tls.as_ref().and_then(|tls| tls.options.keys().next()) {
        refuse(
            cx,
            "tls.options",
            UNSUPPORTED_VALUE,
            format!("gatewayd has no TLS option {option}: remove it"),
        );
    }
    let mut clients = Frontend::default();
    if protocol == Some(Protocol::Https) {
        clients = authority::frontend(cx, object, spec.port);
        refused = refused.or(clients.refused);
    }
    let (kinds, mut unresolved) = kinds(cx, object, &path, spec, protocol);
    let mut certificates = Vec::new();
    if terminates(protocol, spec) {
        let (good, problem) = certificate::certificates(cx, object, &path, spec);
        certificates = good;
        unresolved = problem.or(clients.unresolved).or(unresolved);
    }
    Listener {
        spec,
        hostname: spec.hostname.as_deref().map(hostname),
        kinds,
        attached_routes: 0,
        l4_route: None,
        rules: Vec::new(),
        tunnels: Vec::new(),
        name: ListenerName {
            namespace: object.metadata.namespace.clone(),
            gateway: object.metadata.name.clone(),
            listener: spec.name.clone(),
        },
        path,
        protocol,
        certificate_names: certificates.iter().flat_map(certificate::names).collect(),
        certificates,
        clients: clients.clients,
        refused,
        conflicted: None,
        overlapping: None,
        unresolved,
    }
}

/// Whether TLS ends at a listener.
fn terminates(protocol: Option<Protocol>, spec: &api::Listener) -> bool {
    let mode = spec.tls.as_ref().and_then(|tls| tls.mode.as_deref());
    protocol.is_some_and(Protocol::has_server_name) && mode != Some("Passthrough")
}

/// Kinds of routes that may be attached: those of the protocol, narrowed by `allowedRoutes.kinds`.
fn kinds(
    cx: &mut Context<'_>,
    object: &Object<api::Gateway>,
    path: &str,
    spec: &api::Listener,
    protocol: Option<Protocol>,
) -> (Vec<RouteKind>, Option<Problem>) {
    let possible: Vec<RouteKind> = protocol
        .map_or(&[][..], Protocol::kinds)
        .iter()
        .map(|kind| RouteKind { group: GATEWAY_GROUP.to_owned(), kind: (*kind).to_owned() })
        .collect();
    if spec.allowed_routes.kinds.is_empty() || protocol.is_none() {
        return (possible, None);
    }
    let (mut kinds, mut problem) = (Vec::new(), None);
    for (index, kind) in spec.allowed_routes.kinds.iter().enumerate() {
        if possible.contains(kind) {
            kinds.push(kind.clone());
            continue;
        }
        let message =
            format!("a {} cannot be attached to a listener of protocol {}", kind.kind, spec.protocol);
        let found = Problem::new(INVALID_ROUTE_KINDS, message);
        cx.error(object, &format!("{path}.allowedRoutes.kinds[{index}].kind"), &found);
        problem.get_or_insert(found);
    }
    (kinds, problem)
}

impl Listener<'_> {
    /// Whether nothing but references may be in its way.
    pub(super) fn is_valid(&self) -> bool {
        self.refused.is_none() && self.conflicted.is_none() && self.protocol.is_some()
    }

    fn is_programmed(&self) -> bool {
        self.is_valid() && (!terminates(self.protocol, self.spec) || !self.certificates.is_empty())
    }

    fn status(&self, generation: Option<i64>, gateway: Option<&Problem>) -> ListenerStatus {
        let invalid = Problem::new(INVALID, "the listener is not served, see its other conditions");
        let programmed = (!self.is_programmed() || gateway.is_some()).then_some(&invalid);
        let accepted = self.refused.as_ref().or(self.conflicted.as_ref());
        let mut conflicted = Condition::new("Conflicted", self.conflicted.as_ref(), NO_CONFLICTS, generation);
        // This one holds when there is a problem.
        conflicted.status = self.conflicted.is_some();
        let mut conditions = vec![Condition::new("Accepted", accepted, ACCEPTED, generation), conflicted];
        if let Some(overlapping) = &self.overlapping {
            conditions.push(Condition {
                status: true,
                ..Condition::new("OverlappingTLSConfig", Some(overlapping), overlapping.reason, generation)
            });
        }
        conditions.push(Condition::new("Programmed", programmed, PROGRAMMED, generation));
        conditions.push(Condition::new("ResolvedRefs", self.unresolved.as_ref(), RESOLVED_REFS, generation));
        ListenerStatus {
            name: self.spec.name.clone(),
            supported_kinds: self.kinds.clone(),
            attached_routes: self.attached_routes,
            conditions,
        }
    }
}

impl Gateway<'_> {
    /// Adds what it serves to the model.
    pub(super) fn add_to(&self, model: &mut Model) {
        if self.refused.is_some() {
            return;
        }
        model.addresses.extend(&self.addresses);
        for listener in self.listeners.iter().filter(|listener| listener.is_programmed()) {
            for address in &self.addresses {
                match listener.protocol {
                    Some(Protocol::Tcp) => model.l4.push(l4::service(listener, *address, l4::Protocol::Tcp)),
                    Some(Protocol::Udp) => model.l4.push(l4::service(listener, *address, l4::Protocol::Udp)),
                    Some(Protocol::Http | Protocol::Https | Protocol::Tls) => {
                        listener.add_to_proxy(*address, &mut model.l7);
                    }
                    None => {}
                }
            }
        }
    }

    /// Says how it is.
    pub(super) fn report(&self, cx: &mut Context<'_>, statuses: &mut Statuses) {
        let generation = self.object.metadata.generation;
        let valid = self.listeners.iter().filter(|listener| listener.is_valid()).count();
        let not_valid =
            Problem::new(LISTENERS_NOT_VALID, "not every listener is valid, see their conditions");
        let accepted = self.refused.as_ref().or_else(|| (valid == 0).then_some(&not_valid));
        let mut conditions = vec![Condition::new("Accepted", accepted, ACCEPTED, generation)];
        if accepted.is_none() && valid < self.listeners.len() {
            conditions[0].reason = LISTENERS_NOT_VALID.name;
            conditions[0].message.clone_from(&not_valid.message);
        }
        let nothing = Problem::new(INVALID, "no listener can be served, see their conditions");
        let none_programmed = !self.listeners.iter().any(Listener::is_programmed);
        let programmed =
            (accepted.is_some() || none_programmed).then_some(&nothing).or(self.unreachable.as_ref());
        if programmed == Some(&nothing) {
            cx.error(self.object, "metadata.name", &nothing);
        }
        if authority::is_insecure(&self.object.spec) {
            conditions.push(Condition {
                condition_type: "InsecureFrontendValidationMode",
                status: true,
                reason: CONFIGURATION_CHANGED.name,
                message: "clients are let in without a valid certificate, see spec.tls.frontend".to_owned(),
                observed_generation: generation,
            });
        }
        conditions.push(Condition::new("Programmed", programmed, PROGRAMMED, generation));
        let listeners = self
            .listeners
            .iter()
            .map(|listener| listener.status(generation, self.refused.as_ref()))
            .collect();
        let addresses = if self.refused.is_some() { Vec::new() } else { self.addresses.clone() };
        statuses.gateways.insert(self.object.key(), GatewayStatus { addresses, conditions, listeners });
    }
}

impl Listener<'_> {
    /// Its name in the model.
    pub(super) fn name(&self) -> &ListenerName {
        &self.name
    }

    fn add_to_proxy(&self, address: IpAddr, proxy: &mut l7::Proxy) {
        let forwarded = self.rules.iter().filter_map(|rule| match &rule.action {
            Action::Forward(service) => Some(service),
            _ => None,
        });
        for service in forwarded.chain(self.tunnels.iter().map(|tunnel| &tunnel.service)) {
            proxy.services.insert(service.name.clone(), Arc::clone(service));
        }
        let bind = proxy.binds.entry(SocketAddr::new(address, self.spec.port)).or_insert_with(|| l7::Bind {
            tls: self.protocol.is_some_and(Protocol::has_server_name),
            listeners: Vec::new(),
        });
        bind.listeners.push(l7::Listener {
            name: self.name.clone(),
            hostname: self.hostname.clone(),
            certificates: self.certificates.clone(),
            clients: self.clients.clone(),
            rules: self.rules.clone(),
            tunnels: (self.protocol == Some(Protocol::Tls)).then(|| l7::Tunnels {
                terminate: terminates(self.protocol, self.spec),
                routes: self.tunnels.clone(),
            }),
        });
    }
}

/// A hostname as the model has it.
pub(super) fn hostname(text: &str) -> Hostname {
    let text = text.to_ascii_lowercase();
    match text.strip_prefix("*.") {
        Some(suffix) => Hostname::Wildcard(suffix.to_owned()),
        None => Hostname::Exact(text),
    }
}
