//! The ways to backends.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use futures_util::TryStreamExt as _;
use rtnetlink::{
    RouteMessageBuilder,
    packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType},
};

use super::{Error, Network};
use crate::plan::Sources;

/// The first step of a packet on its way to a backend.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Hop {
    /// Interface index of the device it leaves by.
    pub device: u32,
    /// Whose link-layer address it is sent to: the backend itself, or a router.
    pub next: IpAddr,
    /// The source address that the route prefers.
    pub source: IpAddr,
}

/// The ways to all backends.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Hops {
    /// By address of the backend; those without a route are not there, nor are this node's own addresses.
    pub hops: BTreeMap<IpAddr, Hop>,
    /// This node's addresses towards them.
    pub sources: Sources,
}

impl Network {
    /// Looks up the ways to backends.
    ///
    /// # Errors
    /// When the kernel does not tell. A backend without a route is no error.
    pub async fn hops(&self, backends: &BTreeSet<IpAddr>) -> Result<Hops, Error> {
        let mut ways = Hops {
            sources: Sources { local: self.local_addresses().await?, ..Sources::default() },
            ..Hops::default()
        };
        for backend in backends {
            let Some(route) = self.route(*backend).await? else {
                continue;
            };
            let Some(hop) = hop(*backend, &route) else {
                continue;
            };
            ways.sources.preferred.insert(*backend, hop.source);
            if route.header.kind != RouteType::Local {
                ways.hops.insert(*backend, hop);
            }
        }
        Ok(ways)
    }

    async fn route(&self, to: IpAddr) -> Result<Option<RouteMessage>, Error> {
        let message = match to {
            IpAddr::V4(to) => RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(to, 32).build(),
            IpAddr::V6(to) => RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(to, 128).build(),
        };
        match self.handle.route().get(message).execute().try_next().await {
            Ok(route) => Ok(route.filter(|route| is_way(route.header.kind))),
            Err(rtnetlink::Error::NetlinkError(error)) if is_no_route(error.raw_code()) => Ok(None),
            Err(error) => Err(Error::request(format!("look up the route to {to}"))(error)),
        }
    }
}

/// Blackholes and their like are answers, but not ways.
fn is_way(kind: RouteType) -> bool {
    matches!(kind, RouteType::Unicast | RouteType::Local)
}

/// What the lookup answers when there is no route, or one that says no.
fn is_no_route(code: i32) -> bool {
    matches!(-code, libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EINVAL)
}

fn hop(backend: IpAddr, route: &RouteMessage) -> Option<Hop> {
    let mut device = None;
    let mut source = None;
    let mut next = backend;
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Oif(index) => device = Some(*index),
            RouteAttribute::PrefSource(address) => source = ip(address),
            RouteAttribute::Gateway(address) => next = ip(address).unwrap_or(next),
            RouteAttribute::Via(rtnetlink::packet_route::route::RouteVia::Inet6(router)) => {
                next = IpAddr::V6(*router);
            }
            _ => {}
        }
    }
    Some(Hop { device: device?, next, source: source? })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some(IpAddr::V4(*v4)),
        RouteAddress::Inet6(v6) => Some(IpAddr::V6(*v6)),
        _ => None,
    }
}
