//! One generation of the model, compiled for the request path.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::Arc,
};

use rustls::ServerConfig;

use super::{
    balance::Weights,
    filter::Filters,
    route::{HostMap, RouteTable},
    stats::{Counters, Stats},
    tls::TlsState,
};
use crate::model::l7;

/// Everything that a request needs to know; shared by all workers.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) binds: HashMap<SocketAddr, Bind>,
    pub(crate) services: Vec<Service>,
}

/// A socket's listeners.
#[derive(Debug)]
pub(crate) struct Bind {
    /// Whether connections begin with a TLS handshake.
    pub(crate) tls: bool,
    /// Indices into `listeners`.
    by_hostname: HostMap<usize>,
    listeners: Vec<Listener>,
}

impl Bind {
    /// The listener that a host belongs to, and its index.
    pub(crate) fn listener(&self, host: &str) -> Option<(usize, &Listener)> {
        let index = *self.by_hostname.fitting(host).next()?;
        self.listeners.get(index).map(|listener| (index, listener))
    }

    /// Whether some of its listeners hand connections on.
    pub(crate) fn has_tunnels(&self) -> bool {
        self.listeners.iter().any(|listener| listener.tunnels.is_some())
    }
}

/// A listener and its rules.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) routes: RouteTable,
    pub(crate) rules: Vec<Rule>,
    /// How TLS is ended; none where there is none, and where it passes through.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// Set on a listener that hands connections on: services by server name, as indices into those of the snapshot.
    pub(crate) tunnels: Option<HostMap<Option<usize>>>,
}

/// What is done with a request that matched.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) filters: Filters,
    /// Of single backends, by their index; empty when none has any.
    pub(crate) backend_filters: Box<[Filters]>,
    pub(crate) policy: l7::Policy,
    pub(crate) action: Action,
}

/// What answers a request that matched.
#[derive(Debug)]
pub(crate) enum Action {
    /// A service, as an index into those of the snapshot.
    Forward(usize),
    Answered,
    NoBackend,
    Unusable,
}

/// A weighted set of backends.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) weights: Weights,
    pub(crate) backends: Vec<Backend>,
}

/// One BackendRef.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) name: String,
    pub(crate) weight: u32,
    pub(crate) target: l7::Target,
    pub(crate) counters: Arc<Counters>,
}

/// What outlives a snapshot. Owned by the one who publishes.
#[derive(Debug)]
pub(crate) struct Compiler {
    workers: usize,
    tls: TlsState,
    /// By service and backend, so that counts go on over generations.
    counters: HashMap<(String, String), Arc<Counters>>,
}

impl Compiler {
    pub(crate) fn new(workers: usize) -> Self {
        Self { workers, tls: TlsState::new(), counters: HashMap::new() }
    }

    /// Compiles a model.
    pub(crate) fn compile(&mut self, model: &l7::Proxy) -> Snapshot {
        let names: BTreeMap<&str, usize> =
            model.services.keys().enumerate().map(|(index, name)| (name.as_str(), index)).collect();
        let services = model.services.values().map(|service| self.service(service)).collect();
        let binds = model.binds.iter().map(|(address, bind)| (*address, self.bind(bind, &names)));
        let snapshot = Snapshot { binds: binds.collect(), services };
        self.counters.retain(|_, counters| Arc::strong_count(counters) > 1);
        self.tls.forget_unused();
        snapshot
    }

    fn bind(&mut self, bind: &l7::Bind, services: &BTreeMap<&str, usize>) -> Bind {
        let mut by_hostname = HostMap::default();
        let mut listeners = Vec::with_capacity(bind.listeners.len());
        for (index, listener) in bind.listeners.iter().enumerate() {
            *by_hostname.entry(listener.hostname.as_ref()) = index;
            let terminates = bind.tls && listener.tunnels.as_ref().is_none_or(|tunnels| tunnels.terminate);
            listeners.push(Listener {
                routes: RouteTable::compile(&listener.rules),
                rules: listener.rules.iter().map(|rule| compile_rule(rule, services)).collect(),
                tls: terminates.then(|| self.server_config(listener)).flatten(),
                tunnels: listener.tunnels.as_ref().map(|tunnels| compile_tunnels(tunnels, services)),
            });
        }
        Bind { tls: bind.tls, by_hostname, listeners }
    }

    /// How TLS is ended at a listener; a fault costs this listener only.
    fn server_config(&mut self, listener: &l7::Listener) -> Option<Arc<ServerConfig>> {
        let config = self.tls.server_config(listener);
        config.inspect_err(|error| tracing::error!(listener = %listener.name, %error, "left out")).ok()
    }

    fn service(&mut self, service: &l7::Service) -> Service {
        let backends = service.backends.iter().map(|backend| {
            let key = (service.name.clone(), backend.name.clone());
            let counters = self.counters.entry(key).or_insert_with(|| Arc::new(Counters::new(self.workers)));
            Backend {
                name: backend.name.clone(),
                weight: backend.weight,
                target: backend.target.clone(),
                counters: Arc::clone(counters),
            }
        });
        Service {
            name: service.name.clone(),
            weights: Weights::new(service.backends.iter().map(|backend| backend.weight)),
            backends: backends.collect(),
        }
    }
}

impl Snapshot {
    /// Nothing is served.
    pub(crate) fn empty() -> Self {
        Self { binds: HashMap::new(), services: Vec::new() }
    }

    pub(crate) fn stats(&self) -> Stats {
        let service = |service: &Service| super::stats::ServiceStats {
            backends: service.backends.iter().map(|one| one.counters.read(&one.name, one.weight)).collect(),
        };
        self.services.iter().map(|one| (one.name.clone(), service(one))).collect()
    }
}

fn compile_rule(rule: &l7::Rule, services: &BTreeMap<&str, usize>) -> Rule {
    let action = match &rule.action {
        l7::Action::Forward(service) => {
            let index = services.get(service.name.as_str());
            if index.is_none() {
                tracing::error!(rule = %rule.name, service = %service.name, "rule names an unknown service");
            }
            index.map_or(Action::Unusable, |index| Action::Forward(*index))
        }
        l7::Action::Answered => Action::Answered,
        l7::Action::NoBackend => Action::NoBackend,
        l7::Action::Unusable(_) => Action::Unusable,
    };
    let filters = |list: &[l7::Filter]| Filters::compile(list, &rule.name);
    Rule {
        filters: filters(&rule.filters),
        backend_filters: rule.backend_filters.iter().map(|list| filters(list)).collect(),
        policy: rule.policy.clone(),
        action,
    }
}

/// Of two routes with the same hostname, the first wins.
fn compile_tunnels(tunnels: &l7::Tunnels, services: &BTreeMap<&str, usize>) -> HostMap<Option<usize>> {
    let mut compiled: HostMap<Option<usize>> = HostMap::default();
    for route in &tunnels.routes {
        let index = services.get(route.service.name.as_str());
        if index.is_none() {
            tracing::error!(service = %route.service.name, "tunnel to an unknown service");
        }
        for hostname in &route.hostnames {
            let entry = compiled.entry(Some(hostname));
            *entry = entry.or(index.copied());
        }
    }
    compiled
}
