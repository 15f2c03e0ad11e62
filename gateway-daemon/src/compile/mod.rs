//! Resources to a model: what the Gateway API means.
//!
//! [`compile`] is a pure function. Classes say which Gateways are ours ([`class`]), Gateways give listeners
//! ([`gateway`]), routes are attached to listeners ([`attach`]), their references resolved ([`refs`]), and their rules
//! become services of the kernel ([`l4`]), rules of the proxy ([`http`], [`grpc`]) or its tunnels ([`tls`]). What cannot be honoured is said,
//! in a condition and in a diagnostic with its place.
//!
//! Not here: sockets, clocks, files, Kubernetes.

mod attach;
mod authority;
mod certificate;
mod class;
mod combine;
mod conflict;
mod cross;
mod filter;
mod gateway;
mod grpc;
mod http;
mod l4;
pub mod pool;
mod refs;
mod route;
mod rule;
pub mod status;
mod tls;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use self::{
    pool::Assigned,
    status::{Problem, Statuses},
};
use crate::{
    api::{
        Diagnostic, Key, Kind, Metadata, Object, Resources, Severity, Store,
        core::{ConfigMap, Secret},
        gateway::Gateway,
    },
    model::Model,
};

/// Who we are, in a GatewayClass.
pub const CONTROLLER_NAME: &str = "gatewayd.dev/gateway";

/// The GatewayClass that exists without being written, when [`Settings::implicit_class`] says so.
pub const IMPLICIT_CLASS: &str = "gatewayd";

/// What a model depends on beside the resources.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Whether rules with the same backends share one service.
    pub combined_services: bool,
    /// Addresses of Gateways that ask for none in particular, when there is no pool.
    pub node_addresses: Vec<IpAddr>,
    /// The pool that Gateways get their addresses from, if there is one, and who has which.
    pub assigned: Option<Assigned>,
    /// Addresses of the hostnames of Backends, as far as they are known.
    pub resolved: BTreeMap<String, Vec<IpAddr>>,
    /// Whether there is a GatewayClass [`IMPLICIT_CLASS`] though nobody wrote it.
    pub implicit_class: bool,
}

/// What comes of resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compiled {
    /// What to serve.
    pub model: Model,
    /// What to tell each object.
    pub statuses: Statuses,
    /// What to tell people, sorted by place.
    pub diagnostics: Vec<Diagnostic>,
    /// Hostnames whose addresses the model needs, in [`Settings::resolved`].
    pub hostnames: BTreeSet<String>,
}

/// Compiles resources. The same resources and settings give the same output, byte for byte, on every node.
pub fn compile(resources: &Resources, settings: &Settings) -> Compiled {
    let mut cx = Context::new(resources, settings);
    cx.slices = refs::slices(resources);
    let mut statuses = Statuses::default();
    let classes = class::classes(&mut cx, &mut statuses);
    let mut gateways = gateway::gateways(&mut cx, &classes);
    l4::routes(&mut cx, &mut gateways, &mut statuses);
    route::routes(&mut cx, &mut gateways, &mut statuses);
    tls::routes(&mut cx, &mut gateways, &mut statuses);
    let mut model = Model::default();
    for gateway in &gateways {
        gateway.add_to(&mut model);
        gateway.report(&mut cx, &mut statuses);
    }
    model.l4.sort_by_key(|service| service.frontend);
    for bind in model.l7.binds.values_mut() {
        bind.listeners.sort_by(|a, b| (&a.hostname, &a.name).cmp(&(&b.hostname, &b.name)));
    }
    cx.said.sort();
    cx.said.dedup();
    Compiled { model, statuses, diagnostics: cx.said, hostnames: cx.hostnames }
}

/// The Gateways of ours, the oldest first.
pub fn our_gateways<'a>(resources: &'a Resources, settings: &Settings) -> Vec<&'a Object<Gateway>> {
    let mut cx = Context::new(resources, settings);
    let classes = class::classes(&mut cx, &mut Statuses::default());
    let ours = |gateway: &&Object<Gateway>| {
        classes.get(&gateway.spec.gateway_class_name).is_some_and(|class| *class != class::Class::Foreign)
    };
    by_age(&resources.gateways).into_iter().filter(ours).collect()
}

/// The Secrets and ConfigMaps that [`compile`] looks into for these Gateways, each with its kind.
pub fn referred(resources: &Resources, gateways: &[&Object<Gateway>]) -> BTreeSet<(&'static str, Key)> {
    let of = |gateway: &&Object<Gateway>| {
        let secrets = certificate::secrets(resources, gateway).into_iter().map(|key| (Secret::KIND, key));
        let maps = authority::config_maps(resources, gateway).into_iter().map(|key| (ConfigMap::KIND, key));
        secrets.chain(maps).collect::<Vec<_>>()
    };
    gateways.iter().flat_map(of).collect()
}

/// What all parts of a compilation share.
struct Context<'a> {
    resources: &'a Resources,
    settings: &'a Settings,
    said: Vec<Diagnostic>,
    hostnames: BTreeSet<String>,
    slices: refs::Slices<'a>,
}

impl<'a> Context<'a> {
    fn new(resources: &'a Resources, settings: &'a Settings) -> Self {
        let slices = refs::Slices::new();
        Self { resources, settings, said: Vec::new(), hostnames: BTreeSet::new(), slices }
    }

    /// Says something about a field of an object.
    fn say<S: Kind>(
        &mut self,
        object: &Object<S>,
        path: &str,
        severity: Severity,
        code: &'static str,
        message: String,
    ) {
        let (place, object) = (object.place(path), Some(object.title()));
        self.said.push(Diagnostic { place, object, severity, code, message });
    }

    /// Says that something asked for is not served.
    fn error<S: Kind>(&mut self, object: &Object<S>, path: &str, problem: &Problem) {
        self.say(object, path, Severity::Error, problem.reason.code, problem.message.clone());
    }

    /// Says that a field has no effect.
    fn no_effect<S: Kind>(&mut self, object: &Object<S>, path: &str) {
        let message = format!("{path} has no effect, since gatewayd does not serve it yet");
        self.say(object, path, Severity::Warning, "unsupported-field", message);
    }
}

/// The objects of a store, oldest first, then by namespace and name: who comes first has precedence.
fn by_age<S>(store: &Store<S>) -> Vec<&Object<S>> {
    let mut objects: Vec<&Object<S>> = store.values().map(|object| &**object).collect();
    objects.sort_by_key(|object| age(&object.metadata));
    objects
}

/// The order of precedence.
fn age(metadata: &Metadata) -> (Option<&str>, &str, &str) {
    (metadata.creation_timestamp.as_deref(), &metadata.namespace, &metadata.name)
}

#[cfg(test)]
mod tests;
