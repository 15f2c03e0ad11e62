//! What the data planes need, and nothing of Kubernetes.
//!
//! `compile` makes a [`Model`] from resources; `plan` and `l4` bring its [`l4`] half into the kernel, `l7` serves its
//! [`l7`] half. A model is immutable and complete: it refers to nothing outside itself.
//!
//! Everything in it is sorted, so that equal resources give equal models on every node.
//!
//! Not here: sockets, clocks, maps, or how a model came to be.

pub mod l4;
pub mod l7;

use std::{collections::BTreeSet, fmt, net::IpAddr};

/// Everything that is served, as of one generation.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Model {
    /// Addresses of all Gateways: each must be this node's own while its Gateway exists.
    pub addresses: BTreeSet<IpAddr>,
    /// What the kernel steers, sorted by frontend; frontends are unique.
    pub l4: Vec<l4::Service>,
    /// What the proxy serves.
    pub l7: l7::Proxy,
}

/// A listener of a Gateway, for people: logs, status, metrics.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ListenerName {
    /// Namespace of the Gateway.
    pub namespace: String,
    /// Name of the Gateway.
    pub gateway: String,
    /// Name of the listener.
    pub listener: String,
}

impl fmt::Display for ListenerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.namespace, self.gateway, self.listener)
    }
}
