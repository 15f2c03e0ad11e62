//! Addresses of Gateways on an interface of this node.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use futures_util::TryStreamExt as _;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};

use super::{Error, Network};
use crate::record::{Address, Record};

impl Network {
    /// Makes these addresses the node's own: puts those that are missing on the interface, and takes away those that
    /// an earlier call put somewhere and that are not wanted any more. An address that was there before stays.
    ///
    /// # Errors
    /// When the interface is not there, or an address cannot be added or taken away.
    pub async fn ensure_addresses(
        &self,
        wanted: &BTreeSet<IpAddr>,
        interface: &str,
        record: &mut Record,
    ) -> Result<(), Error> {
        self.remove_addresses_unless(wanted, record).await?;
        let present = self.local_addresses().await?;
        let mut index = None;
        for address in wanted.iter().filter(|address| !present.contains(address)) {
            let index = match index {
                Some(index) => index,
                None => *index.insert(self.interface_index(interface).await?),
            };
            let ours = Address { address: *address, interface: interface.to_owned() };
            record.change(|changes| {
                changes.addresses.retain(|known| known.address != *address);
                changes.addresses.push(ours);
            })?;
            self.add_address(*address, index, interface).await?;
        }
        Ok(())
    }

    /// The addresses that a device has of its own: not those put there by [`ensure_addresses`](Self::ensure_addresses),
    /// nor link-local ones.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub async fn addresses_of(&self, device: u32, record: &Record) -> Result<Vec<IpAddr>, Error> {
        let is_ours =
            |address: &IpAddr| record.changes().addresses.iter().any(|ours| ours.address == *address);
        let messages = self.address_messages().await?;
        let global = messages.iter().filter(|message| {
            message.header.index == device && message.header.scope == AddressScope::Universe
        });
        let addresses: BTreeSet<IpAddr> =
            global.filter_map(local).filter(|address| !is_ours(address)).collect();
        Ok(addresses.into_iter().collect())
    }

    /// Takes away every address that [`ensure_addresses`](Self::ensure_addresses) put on an interface.
    pub(super) async fn remove_addresses(&self, record: &mut Record) -> Result<(), Error> {
        self.remove_addresses_unless(&BTreeSet::new(), record).await
    }

    /// Every address of the node, and the loopback network's.
    pub(super) async fn local_addresses(&self) -> Result<BTreeSet<IpAddr>, Error> {
        Ok(self.address_messages().await?.iter().filter_map(local).collect())
    }

    async fn remove_addresses_unless(
        &self,
        wanted: &BTreeSet<IpAddr>,
        record: &mut Record,
    ) -> Result<(), Error> {
        let ours = record.changes().addresses.clone();
        let gone: Vec<_> = ours.into_iter().filter(|ours| !wanted.contains(&ours.address)).collect();
        if gone.is_empty() {
            return Ok(());
        }
        let names: BTreeMap<_, _> =
            self.devices().await?.into_iter().map(|device| (device.index, device.name)).collect();
        let messages = self.address_messages().await?;
        for ours in gone {
            let on_interface = |message: &&AddressMessage| {
                local(message) == Some(ours.address)
                    && names.get(&message.header.index) == Some(&ours.interface)
            };
            // Somebody may have taken it away before us, or the interface with it.
            if let Some(message) = messages.iter().find(on_interface) {
                let request = format!("take {} away from {}", ours.address, ours.interface);
                let removal = self.handle.address().del(message.clone()).execute().await;
                removal.map_err(Error::request(request))?;
            }
            record.change(|changes| changes.addresses.retain(|known| *known != ours))?;
        }
        Ok(())
    }

    async fn add_address(&self, address: IpAddr, index: u32, interface: &str) -> Result<(), Error> {
        let prefix = if address.is_ipv4() { 32 } else { 128 };
        let mut request = self.handle.address().add(index, address, prefix);
        if address.is_ipv6() {
            // Until duplicate address detection has ended, the address could not be used; and it is ours on purpose.
            request.message_mut().attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        request.execute().await.map_err(Error::request(format!("put {address} on {interface}")))
    }

    async fn address_messages(&self) -> Result<Vec<AddressMessage>, Error> {
        let messages = self.handle.address().get().execute().try_collect().await;
        messages.map_err(Error::request("list addresses"))
    }
}

/// The node's own address of a message; on a point-to-point interface the other one is the peer's.
fn local(message: &AddressMessage) -> Option<IpAddr> {
    let attributes = &message.attributes;
    attributes
        .iter()
        .find_map(|attribute| match attribute {
            AddressAttribute::Local(address) => Some(*address),
            _ => None,
        })
        .or_else(|| {
            attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Address(address) => Some(*address),
                _ => None,
            })
        })
}
