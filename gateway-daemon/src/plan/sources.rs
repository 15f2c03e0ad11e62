//! This node's addresses towards its backends.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

/// Which source address the node's routes give towards each backend, and which addresses the node has.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Sources {
    /// Address of a backend to the source address that its route prefers; not there when there is no route.
    pub preferred: BTreeMap<IpAddr, IpAddr>,
    /// Every address of this node.
    pub local: BTreeSet<IpAddr>,
}

impl Sources {
    /// The source address towards a backend, given the one that its flows use now.
    ///
    /// That one stays while the node has it: another would break the flows. It stays as well while there is no
    /// route, because there may be one again.
    pub fn choose(&self, backend: IpAddr, current: Option<IpAddr>) -> Option<IpAddr> {
        current
            .filter(|current| self.local.contains(current))
            .or_else(|| self.preferred.get(&backend).copied())
            .or(current)
    }
}
