//! The node's network, by netlink: addresses, routes, neighbours, devices and settings.
//!
//! [`Network`] asks and changes; [`Events`] tells when to ask again. What is changed for the Gateways' sake is
//! written into the [`Record`] first, and [`Network::cleanup`] undoes it.
//!
//! Not here: programs and maps (`l4`), what to do about an event (the writer task).

mod address;
mod announce;
mod device;
mod event;
mod neighbour;
mod netdev;
mod route;
mod setting;

use std::{io, path::PathBuf};

pub use self::{
    device::{Device, device_map, xdp_features},
    event::{Events, NetEvent},
    route::{Hop, Hops},
};
use crate::record::{self, Record};

/// Why the network could not be asked or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No netlink socket.
    #[error("open a netlink socket")]
    Socket(#[source] io::Error),
    /// The kernel refused a request or its answer makes no sense.
    #[error("{request}")]
    Request {
        /// What was asked, in words.
        request: String,
        /// What happened.
        source: Box<rtnetlink::Error>,
    },
    /// The kernel's `netdev` family, which tells XDP features, does not answer.
    #[error("ask the kernel's netdev family for the XDP features of devices")]
    Netdev(#[source] io::Error),
    /// There is no such interface.
    #[error("there is no interface {0}")]
    NoInterface(String),
    /// The device of this index has no Ethernet address.
    #[error("device {0} has no Ethernet address")]
    NoEthernet(u32),
    /// A setting could not be read or written.
    #[error("{}", path.display())]
    Setting {
        /// Its file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// The record of changes failed.
    #[error("note what is changed on this node")]
    Record(#[from] record::Error),
}

impl Error {
    /// For `map_err` on netlink requests.
    fn request(request: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> Self {
        |source| Self::Request { request: request.into(), source: Box::new(source) }
    }
}

/// Asks and changes the network of the namespace it was opened in.
#[derive(Clone, Debug)]
pub struct Network {
    handle: rtnetlink::Handle,
}

impl Network {
    /// Opens a netlink socket and starts a task on the current runtime that serves it.
    ///
    /// # Errors
    /// When there is no socket to be had.
    /// # Panics
    /// Outside a tokio runtime with its I/O driver on.
    pub fn open() -> Result<Self, Error> {
        let (connection, handle, _) = rtnetlink::new_connection().map_err(Error::Socket)?;
        tokio::spawn(connection);
        Ok(Self { handle })
    }

    /// Undoes everything of the network that the record knows: takes away addresses, restores settings.
    ///
    /// # Errors
    /// At the first thing that cannot be undone; it stays in the record.
    pub async fn cleanup(&self, record: &mut Record) -> Result<(), Error> {
        self.remove_addresses(record).await?;
        setting::restore(record)
    }

    /// Switches forwarding on for these interfaces where it is off: the FIB lookup of the programs refuses
    /// otherwise. Where an interface takes its IPv6 routes from router advertisements, it goes on to.
    ///
    /// # Errors
    /// When a setting cannot be read or written.
    pub fn enable_forwarding<'a>(
        &self,
        interfaces: impl IntoIterator<Item = &'a str>,
        record: &mut Record,
    ) -> Result<(), Error> {
        interfaces.into_iter().try_for_each(|interface| setting::enable_forwarding(interface, record))
    }
}
