//! Link-layer addresses of backends, kept known.
//!
//! XDP cannot wait for an unknown neighbour: it leaves such packets to TC. So that this is the exception, the kernel
//! is asked to look neighbours up before they are needed, and to confirm those that have become stale.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use futures_util::TryStreamExt as _;
use rtnetlink::packet_route::{
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState},
    route::RouteType,
};

use super::{Error, Hops, Network};

impl Network {
    /// Has the kernel resolve or confirm every first hop that is not reachable for certain. Cheap when all are;
    /// meant to be called after each change, on [`super::NetEvent::Neighbours`], and every ten seconds or so.
    ///
    /// # Errors
    /// When the kernel does not tell or refuses. A neighbour that does not answer is no error.
    pub async fn resolve_neighbours(&self, hops: &Hops) -> Result<(), Error> {
        let wanted: BTreeSet<_> = hops.hops.values().map(|hop| (hop.device, hop.next)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let known = self.neighbours().await?;
        for (device, address) in wanted {
            if known.get(&(device, address)).is_some_and(|state| is_sure(*state)) {
                continue;
            }
            let request = self
                .handle
                .neighbours()
                .add(device, address)
                .state(NeighbourState::None)
                .flags(NeighbourFlags::Use)
                .kind(RouteType::Unspec)
                .replace();
            match request.execute().await {
                Ok(()) => {}
                // The device has gone since, or is down: there will be an event.
                Err(rtnetlink::Error::NetlinkError(error))
                    if matches!(-error.raw_code(), libc::ENODEV | libc::ENETDOWN | libc::EINVAL) => {}
                Err(error) => return Err(Error::request(format!("resolve {address}"))(error)),
            }
        }
        Ok(())
    }

    async fn neighbours(&self) -> Result<BTreeMap<(u32, IpAddr), NeighbourState>, Error> {
        let neighbours: Vec<NeighbourMessage> = self
            .handle
            .neighbours()
            .get()
            .execute()
            .try_collect()
            .await
            .map_err(Error::request("list neighbours"))?;
        let entry = |neighbour: &NeighbourMessage| {
            Some(((neighbour.header.ifindex, destination(neighbour)?), neighbour.header.state))
        };
        Ok(neighbours.iter().filter_map(entry).collect())
    }
}

/// Whether the kernel would not look the neighbour up if it were asked to, or is at it.
fn is_sure(state: NeighbourState) -> bool {
    matches!(
        state,
        NeighbourState::Permanent
            | NeighbourState::Noarp
            | NeighbourState::Reachable
            | NeighbourState::Incomplete
            | NeighbourState::Delay
            | NeighbourState::Probe
    )
}

/// The IP address of a neighbour.
fn destination(neighbour: &NeighbourMessage) -> Option<IpAddr> {
    neighbour.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => Some(IpAddr::V4(*v4)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => Some(IpAddr::V6(*v6)),
        _ => None,
    })
}
