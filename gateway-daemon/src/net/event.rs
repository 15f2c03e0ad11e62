//! Word of what changes in the network.

use std::pin::Pin;

use futures_util::{Stream, StreamExt as _};
use rtnetlink::{
    MulticastGroup,
    packet_core::{NetlinkMessage, NetlinkPayload},
    packet_route::{RouteNetlinkMessage, neighbour::NeighbourState},
    sys::{AsyncSocketExt as _, SocketAddr, TokioSocket},
};

use super::{Error, netdev};

/// What has changed, so that it should be asked for anew. Several changes may come as one event, never none for one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum NetEvent {
    /// A device came, went, went up or down, or can do other things with XDP.
    Devices,
    /// An address came or went.
    Addresses,
    /// A route came or went.
    Routes,
    /// A neighbour is not known for certain any more.
    Neighbours,
}

/// The events of the namespace that it was opened in.
pub struct Events {
    routing: Messages,
    netdev: TokioSocket,
    /// Events that are due because some were lost.
    due: Vec<NetEvent>,
}

type Messages = Pin<Box<dyn Stream<Item = (NetlinkMessage<RouteNetlinkMessage>, SocketAddr)> + Send>>;

impl Events {
    /// Subscribes, and starts a task on the current runtime that serves the socket.
    ///
    /// # Errors
    /// When there is no socket to be had, or the kernel's `netdev` family does not answer.
    /// # Panics
    /// Outside a tokio runtime with its I/O driver on.
    pub fn open() -> Result<Self, Error> {
        let groups = [
            MulticastGroup::Link,
            MulticastGroup::Neigh,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv6Ifaddr,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
        ];
        let (connection, _, messages) =
            rtnetlink::new_multicast_connection(&groups).map_err(Error::Socket)?;
        tokio::spawn(connection);
        let netdev = netdev::changes().map_err(Error::Netdev)?;
        Ok(Self { routing: Box::pin(messages), netdev, due: Vec::new() })
    }

    /// Waits for the next event; none when the sockets are closed. May be dropped and called again: no event is
    /// lost by it.
    pub async fn next(&mut self) -> Option<NetEvent> {
        loop {
            if let Some(event) = self.due.pop() {
                return Some(event);
            }
            tokio::select! {
                message = self.routing.next() => match event(&message?.0.payload) {
                    Ok(Some(event)) => return Some(event),
                    Ok(None) => {}
                    Err(Lost) => self.due = ALL.to_vec(),
                },
                // What it says is asked for anew all the same; an error is a loss, because the socket was full.
                _ = self.netdev.recv_from_full() => return Some(NetEvent::Devices),
            }
        }
    }
}

const ALL: [NetEvent; 4] = [NetEvent::Devices, NetEvent::Addresses, NetEvent::Routes, NetEvent::Neighbours];

/// Messages were lost, because the socket was full.
struct Lost;

fn event(payload: &NetlinkPayload<RouteNetlinkMessage>) -> Result<Option<NetEvent>, Lost> {
    let NetlinkPayload::InnerMessage(message) = payload else {
        return if matches!(payload, NetlinkPayload::Overrun(_)) { Err(Lost) } else { Ok(None) };
    };
    Ok(match message {
        RouteNetlinkMessage::NewLink(_) | RouteNetlinkMessage::DelLink(_) => Some(NetEvent::Devices),
        RouteNetlinkMessage::NewAddress(_) | RouteNetlinkMessage::DelAddress(_) => Some(NetEvent::Addresses),
        RouteNetlinkMessage::NewRoute(_) | RouteNetlinkMessage::DelRoute(_) => Some(NetEvent::Routes),
        RouteNetlinkMessage::DelNeighbour(_) => Some(NetEvent::Neighbours),
        RouteNetlinkMessage::NewNeighbour(neighbour)
            if matches!(neighbour.header.state, NeighbourState::Stale | NeighbourState::Failed) =>
        {
            Some(NetEvent::Neighbours)
        }
        _ => None,
    })
}
