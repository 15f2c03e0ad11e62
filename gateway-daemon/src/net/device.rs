//! Network devices and what XDP can do with them.

use std::collections::BTreeMap;

use futures_util::TryStreamExt as _;
use gateway_common::{Device as MapDevice, device_flags};
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage};

use super::{Error, Network, netdev};

/// Bits of a device's XDP features, as the `netdev` family of generic netlink tells them.
///
/// # Source
/// `enum netdev_xdp_act` in the kernel's include/uapi/linux/netdev.h.
pub mod xdp_features {
    /// The driver runs XDP programs and takes every basic verdict.
    pub const BASIC: u64 = 1;
    /// Programs may redirect packets that the device received.
    pub const REDIRECT: u64 = 1 << 1;
    /// The device transmits what is redirected to it.
    pub const NDO_XMIT: u64 = 1 << 2;
}

/// A network device.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Device {
    /// Interface index.
    pub index: u32,
    /// Interface name.
    pub name: String,
    /// Whether it is up.
    pub up: bool,
    /// The kind of a virtual device, such as `veth` or `bond`; none for a NIC.
    pub kind: Option<String>,
    /// The kind of the device that it is a port of, such as `bridge` or `bond`.
    pub master_kind: Option<String>,
    /// Link-layer address; zero when it has none, or a longer one.
    pub address: [u8; 6],
    /// Bits of [`xdp_features`].
    pub xdp_features: u64,
}

/// What the programs must know of each device, by interface index.
pub fn device_map(devices: &[Device]) -> BTreeMap<u32, MapDevice> {
    let value = |device: &Device| {
        let has = |feature| device.up && device.xdp_features & feature != 0;
        let transmits = if has(xdp_features::NDO_XMIT) { device_flags::XDP_TRANSMIT } else { 0 };
        let is_veth = device.kind.as_deref() == Some("veth");
        let sends_back = if has(xdp_features::BASIC) && !is_veth { device_flags::XDP_TX } else { 0 };
        let flags = transmits | sends_back;
        (device.index, MapDevice { flags, address: device.address, ..MapDevice::default() })
    };
    devices.iter().map(value).collect()
}

impl Network {
    /// Every device of the namespace, by index.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub async fn devices(&self) -> Result<Vec<Device>, Error> {
        let links: Vec<LinkMessage> =
            self.handle.link().get().execute().try_collect().await.map_err(Error::request("list devices"))?;
        let features = netdev::xdp_features().map_err(Error::Netdev)?;
        let kinds: BTreeMap<_, _> =
            links.iter().filter_map(|link| Some((link.header.index, kind(link)?))).collect();
        let mut devices: Vec<_> = links
            .iter()
            .map(|link| Device {
                index: link.header.index,
                name: name(link),
                up: link.header.flags.contains(LinkFlags::Up),
                kind: kinds.get(&link.header.index).cloned(),
                master_kind: master(link)
                    .map(|master| kinds.get(&master).cloned().unwrap_or_else(|| "master".to_owned())),
                address: address(link),
                xdp_features: features.get(&link.header.index).copied().unwrap_or(0),
            })
            .collect();
        devices.sort_by_key(|device| device.index);
        Ok(devices)
    }

    pub(super) async fn interface_index(&self, name: &str) -> Result<u32, Error> {
        let devices = self.devices().await?;
        let device = devices.iter().find(|device| device.name == name);
        device.map(|device| device.index).ok_or_else(|| Error::NoInterface(name.to_owned()))
    }
}

fn name(link: &LinkMessage) -> String {
    let name = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    });
    name.unwrap_or_default()
}

fn address(link: &LinkMessage) -> [u8; 6] {
    let address = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Address(address) => address.as_slice().try_into().ok(),
        _ => None,
    });
    address.unwrap_or_default()
}

fn kind(link: &LinkMessage) -> Option<String> {
    let info = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(info) => Some(info),
        _ => None,
    })?;
    info.iter().find_map(|info| match info {
        LinkInfo::Kind(kind) => Some(kind.to_string()),
        _ => None,
    })
}

fn master(link: &LinkMessage) -> Option<u32> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Controller(index) => Some(*index),
        _ => None,
    })
}
