//! Combined services: rules of HTTPRoutes with the same backends share one service.
//!
//! Which rules share is decided by the backends themselves, never by names: names may be cut, and could be alike.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use sha2::{Digest as _, Sha256};

use super::{Context, filter::BackendFilters};
use crate::{
    api::{
        Kind, Object,
        http::{FilteredBackendRef, HttpRoute},
    },
    model::l7::Service,
};

/// Longest name of a service, in characters.
const NAME_MAX: usize = 512;

/// The services of HTTPRoutes that are shared, as far as they are combined at all.
pub(super) struct Services {
    /// Names of shared services; empty if they are not combined.
    names: BTreeMap<Identity, String>,
    built: BTreeMap<Identity, Arc<Service>>,
}

/// What rules must have in common to share a service: the namespace of the route, and the backends.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Identity {
    namespace: String,
    /// Sorted.
    backends: Vec<Backend>,
}

/// A backend as a rule names it; order is by namespace and name first.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Backend {
    namespace: String,
    name: String,
    port: Option<u16>,
    /// As written: where an API server fills in 1, that is part of the name, in files it need not be.
    weight: Option<u32>,
    kind: String,
    group: String,
}

impl Services {
    /// Finds out which rules share a service, and its name.
    pub(super) fn new(cx: &Context<'_>) -> Self {
        let identities: BTreeSet<Identity> = cx
            .resources
            .http_routes
            .values()
            .filter(|_| cx.settings.combined_services)
            .flat_map(|route| {
                route
                    .spec
                    .rules
                    .iter()
                    .map(|rule| Identity::new(&route.metadata.namespace, &rule.backend_refs))
            })
            .filter(|identity| !identity.backends.is_empty())
            .collect();
        let mut taken = BTreeSet::new();
        let mut names = BTreeMap::new();
        for identity in identities {
            let full = identity.name();
            let mut name = if full.len() > NAME_MAX { identity.cut(&full) } else { full };
            if !taken.insert(name.clone()) {
                // Different backends that read alike, such as a Service and a Backend of one name.
                name = identity.cut(&format!("{identity:?}"));
                taken.insert(name.clone());
            }
            names.insert(identity, name);
        }
        Self { names, built: BTreeMap::new() }
    }

    /// The service for a rule, and the filters of its backends: `own`, or the service that it shares with rules of the
    /// same backends, and the filters in its order.
    pub(super) fn share<S: Kind>(
        &mut self,
        route: &Object<S>,
        refs: &[FilteredBackendRef],
        (own, filters): (Arc<Service>, BackendFilters),
    ) -> (Arc<Service>, BackendFilters) {
        let namespace = &route.metadata.namespace;
        let identity = Identity::new(namespace, refs);
        let Some(name) = self.names.get(&identity).filter(|_| S::KIND == HttpRoute::KIND) else {
            return (own, filters);
        };
        // Backends that are wholly alike may change places.
        let mut order: Vec<usize> = (0..refs.len()).collect();
        order.sort_by_cached_key(|at| Backend::new(namespace, &refs[*at]));
        let build = || {
            let backends = order.iter().map(|at| own.backends[*at].clone()).collect();
            Arc::new(Service { name: name.clone(), backends })
        };
        let service = Arc::clone(self.built.entry(identity).or_insert_with(build));
        let filters = order.iter().filter_map(|at| filters.get(*at).cloned()).collect();
        (service, filters)
    }
}

impl Identity {
    fn new(namespace: &str, refs: &[FilteredBackendRef]) -> Self {
        let mut backends: Vec<Backend> =
            refs.iter().map(|reference| Backend::new(namespace, reference)).collect();
        backends.sort();
        Self { namespace: namespace.to_owned(), backends }
    }

    /// `httproute.NAMESPACE.svc.` and the backends, joined by underscores.
    fn name(&self) -> String {
        let backends: Vec<String> = self.backends.iter().map(Backend::name).collect();
        format!("httproute.{}.svc.{}", self.namespace, backends.join("_"))
    }

    /// The first backend, and the hash of everything.
    fn cut(&self, everything: &str) -> String {
        let first = self.backends.first().map(Backend::name).unwrap_or_default();
        let digest = Sha256::digest(everything.as_bytes());
        format!("httproute.{}.svc.{first}_combined.{digest:x}", self.namespace)
    }
}

impl Backend {
    fn new(namespace: &str, reference: &FilteredBackendRef) -> Self {
        let to = reference.backend.to.clone();
        Self {
            namespace: to.namespace.unwrap_or_else(|| namespace.to_owned()),
            name: to.name,
            port: to.port,
            weight: reference.backend.weight,
            kind: to.kind,
            group: to.group,
        }
    }

    /// `NAMESPACE.NAME.PORT.WEIGHT`, without what is not given.
    fn name(&self) -> String {
        let part = |value: Option<u32>| value.map_or_else(String::new, |value| format!(".{value}"));
        format!("{}.{}{}{}", self.namespace, self.name, part(self.port.map(u32::from)), part(self.weight))
    }
}
