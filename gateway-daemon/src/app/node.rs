//! The writer's dealings with the node: its devices, its addresses, the kernel's maps.

use std::{collections::BTreeSet, net::IpAddr};

use super::{Announce, Interface, interface, writer::Writer};
use crate::{
    admin::AddressReport,
    members::owner,
    model::Model,
    net::{self, Device},
    plan,
};

impl Writer {
    /// All devices of the node, and the addresses for Gateways that name none: those of the first interface that are
    /// the operator's.
    pub(super) async fn look_at_node(&self) -> Result<(Vec<Device>, Vec<IpAddr>), net::Error> {
        let devices = self.network.devices().await?;
        let first = self.options.interfaces.first();
        let device = devices.iter().find(|device| first.is_some_and(|first| first.matches(&device.name)));
        let addresses = match device {
            Some(device) => self.network.addresses_of(device.index, &self.record).await?,
            None => Vec::new(),
        };
        Ok((devices, addresses))
    }

    /// Attaches to those devices that are named, and lets them forward, if anything about devices has changed.
    pub(super) fn attach(&mut self, devices: &[Device]) {
        let named = self.options.interfaces.iter().filter_map(Interface::exact);
        let is_there = |name: &&str| devices.iter().any(|device| device.name == *name);
        let missing: Vec<String> = named.filter(|name| !is_there(name)).map(str::to_owned).collect();
        for name in missing {
            self.fail(&format!("attach to {name}"), anyhow::anyhow!("there is no such network interface"));
        }
        if devices == self.attached {
            return;
        }
        match self.attach_selected(devices) {
            Ok(()) => devices.clone_into(&mut self.attached),
            Err(error) => self.fail("attach the programs", error),
        }
    }

    fn attach_selected(&mut self, devices: &[Device]) -> anyhow::Result<()> {
        let selected = interface::select(&self.options.interfaces, devices);
        let names = selected.iter().map(|(device, _)| device.name.as_str());
        self.network.enable_forwarding(names, &mut self.record)?;
        self.kernel.set_devices(&net::device_map(devices))?;
        let before = self.kernel.attachments().to_vec();
        let attachments = self.kernel.attach(&selected)?;
        for attachment in attachments.iter().filter(|attachment| !before.contains(attachment)) {
            let (interface, way) = (&attachment.interface, attachment.way);
            tracing::info!(interface, %way, why = attachment.reason, "attached");
        }
        Ok(())
    }

    /// Puts the addresses of Gateways on the first interface, and takes ours away that no Gateway has any more and no
    /// service that drains needs.
    pub(super) async fn ensure_addresses(&mut self, addresses: &BTreeSet<IpAddr>) {
        let draining = self.kernel.ledger().services().filter(|(_, held)| held.state.until().is_some());
        let addresses = draining.map(|(frontend, _)| frontend.address).chain(addresses.iter().copied());
        let Some(addresses) = self.owned(addresses.collect()) else { return };
        let named = self.options.interfaces.iter().find_map(Interface::exact);
        let interface = named.unwrap_or_default().to_owned();
        if let Err(error) = self.network.ensure_addresses(&addresses, &interface, &mut self.record).await {
            return self.fail("put the addresses of Gateways on the node", error);
        }
        let new: Vec<IpAddr> = addresses.difference(&self.announced).copied().collect();
        if self.options.announce == Announce::L2 && !new.is_empty() {
            tracing::info!(interface, addresses = ?new, "announcing addresses");
            match self.network.announce(&interface, new).await {
                Ok(()) => {}
                // Such as the loopback device: there are no neighbours.
                Err(net::Error::NoEthernet(_)) => {
                    tracing::debug!(interface, "no neighbours to announce addresses to");
                }
                Err(error) => return self.fail("announce the addresses of Gateways", error),
            }
        }
        self.announced = addresses;
    }

    /// Those of the Gateways' addresses that this node has; nothing as long as that is not known.
    pub(super) fn owned(&self, mut addresses: BTreeSet<IpAddr>) -> Option<BTreeSet<IpAddr>> {
        if let Some(cluster) = self.cluster.as_ref().filter(|_| self.options.announce == Announce::L2) {
            let members = cluster.members.borrow();
            if members.live.is_empty() {
                return None;
            }
            addresses.retain(|address| members.owns(*address));
        }
        Some(addresses)
    }

    /// The addresses of Gateways, and which node has each.
    pub(super) fn address_reports(&self) -> Vec<AddressReport> {
        let members = self.cluster.as_ref().map(|cluster| cluster.members.borrow().clone());
        let members = members.filter(|_| self.options.announce == Announce::L2);
        let node =
            |address| members.as_ref().and_then(|members| owner(address, &members.live)).map(str::to_owned);
        let report = |address: &IpAddr| AddressReport {
            address: *address,
            node: node(*address),
            here: members.as_ref().is_none_or(|members| members.owns(*address)),
        };
        self.compiled.model.addresses.iter().map(report).collect()
    }

    /// Brings the kernel's maps from what they hold to the model.
    pub(super) async fn program(&mut self, model: &Model) {
        let services = &model.l4;
        let backends = services.iter().flat_map(|service| &service.shares).filter_map(|share| share.backend);
        let backends: BTreeSet<IpAddr> = backends.map(|backend| backend.ip()).collect();
        self.hops = match self.network.hops(&backends).await {
            Ok(hops) => hops,
            Err(error) => return self.fail("look up routes to backends", error),
        };
        self.confirm_neighbours().await;
        let ledger = self.kernel.ledger();
        match plan::plan(
            ledger,
            services,
            &self.hops.sources,
            &model.l7.binds.keys().copied().collect(),
            self.start.elapsed(),
            self.options.drain_timeout,
        ) {
            Ok(plan) => {
                for step in &plan.steps {
                    tracing::debug!("{step}");
                }
                if let Err(error) = self.kernel.apply(&plan) {
                    self.fail("write the kernel's tables", error);
                }
            }
            Err(error) => self.fail("plan the kernel's tables", error),
        }
    }
}
