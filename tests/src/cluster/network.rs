//! The namespaces of the bench, their addresses and their routes.
//!
//! Nobody has a default route but pods, whose goes to the node. All addresses are from ranges set aside for
//! benchmarks and for private use, so nothing that leaves by mistake is anybody's.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};

use crate::netns::{self, Netns};
use crate::reap::PREFIX;

/// Where the API server listens and whence the suite's requests come.
pub const CONTROL_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const CONTROL_ADDRESS_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x18, 0, 0, 0, 0, 0, 1);

/// The node's `InternalIP`: the kubelet listens there.
pub const NODE_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
pub(super) const NODE_ADDRESS_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x18, 0, 0, 0, 0, 0, 2);

/// Addresses for Gateways: on the link of the nodes and the control plane, so whoever has one answers for it.
pub const VIP_RANGE_V4: &str = "198.18.64.0/24";
/// As [`VIP_RANGE_V4`], for IPv6.
pub const VIP_RANGE_V6: &str = "fd00:18:64::/64";

/// Cluster addresses of Services. No route leads there: gatewayd knows the endpoints.
pub const SERVICE_RANGE: &str = "198.19.0.0/16,fd00:18:ffff::/112";

/// The node's interface towards clients.
pub const UPLINK: &str = "uplink";
/// The node's bridge on which all pods hang. One interface, there from the start, sees all their traffic.
pub const POD_BRIDGE: &str = "pods0";

/// The second half of the third and the fourth byte number the pods; 0.0 is the network, 0.1 the bridge.
const POD_NETWORK: Ipv4Addr = Ipv4Addr::new(198, 18, 16, 0);
const POD_NETWORK_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x18, 1, 0, 0, 0, 0, 0);
const MOST_PODS: u16 = (1 << 12) - 2;

/// A second node, without pods: for whoever starts a gatewayd of its own there.
const SECOND_NODE_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 3);
const SECOND_NODE_ADDRESS_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x18, 0, 0, 0, 0, 0, 3);

/// The control plane's namespace and the nodes', gone when the last who holds them lets go.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) control: Arc<Netns>,
    pub(super) node: Arc<Netns>,
    pub(super) second_node: Arc<Netns>,
}

impl Network {
    /// Makes both and the link between them.
    ///
    /// # Errors
    /// When we are not root or the kernel has no bridges.
    pub(super) fn create() -> Result<Self> {
        let control = Netns::create(&name("control"))?;
        let node = Netns::create(&name("node"))?;
        let second = Netns::create(&name("node2"))?;
        control.ip_batch(&[
            "link add lan type bridge".to_owned(),
            format!("addr add {CONTROL_ADDRESS}/24 dev lan"),
            format!("addr add {CONTROL_ADDRESS_V6}/64 dev lan"),
            "link set lan up".to_owned(),
        ])?;
        plug(&control, "node0", &node, NODE_ADDRESS, NODE_ADDRESS_V6)?;
        plug(&control, "node1", &second, SECOND_NODE_ADDRESS, SECOND_NODE_ADDRESS_V6)?;
        let bridge = pod_address(1)?;
        node.ip_batch(&[
            format!("link add {POD_BRIDGE} type bridge"),
            format!("addr add {}/20 dev {POD_BRIDGE}", bridge.v4),
            format!("addr add {}/64 dev {POD_BRIDGE}", bridge.v6),
            format!("link set {POD_BRIDGE} up"),
        ])?;
        second.ip_batch(&[
            format!("route add {POD_NETWORK}/20 via {NODE_ADDRESS}"),
            format!("route add {POD_NETWORK_V6}/64 via {NODE_ADDRESS_V6}"),
        ])?;
        node.sysctl("ipv4/ip_forward", "1")?;
        node.sysctl("ipv6/conf/all/forwarding", "1")?;
        control.ip_batch(&[
            format!("route add {VIP_RANGE_V4} dev lan"),
            format!("route add {VIP_RANGE_V6} dev lan"),
        ])?;
        Ok(Self { control: Arc::new(control), node: Arc::new(node), second_node: Arc::new(second) })
    }
}

/// Links a node to the network of the control plane and the clients.
fn plug(control: &Netns, port: &str, node: &Netns, address: Ipv4Addr, address_v6: Ipv6Addr) -> Result<()> {
    control.ip_batch(&[
        format!("link add {port} type veth peer name {UPLINK} netns {}", node.name()),
        format!("link set {port} master lan up"),
    ])?;
    node.ip_batch(&[
        format!("addr add {address}/24 dev {UPLINK}"),
        format!("addr add {address_v6}/64 dev {UPLINK} nodad"),
        format!("link set {UPLINK} up"),
    ])
}

/// Makes namespaces for pods.
#[derive(Clone, Debug)]
pub(super) struct PodNetworks {
    node: Rc<str>,
    last: Rc<Cell<u16>>,
}

/// A pod's namespace and addresses.
#[derive(Debug)]
pub struct PodNetwork {
    /// Its namespace, gone when dropped.
    pub netns: Netns,
    /// What it is reached by.
    pub addresses: PodAddresses,
}

/// The addresses of a pod, which are no other's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PodAddresses {
    /// The primary one.
    pub v4: Ipv4Addr,
    /// The other one.
    pub v6: Ipv6Addr,
}

impl PodAddresses {
    /// The primary one first.
    pub(super) fn all(self) -> [IpAddr; 2] {
        [self.v4.into(), self.v6.into()]
    }
}

impl PodNetworks {
    pub(super) fn of(network: &Network) -> Self {
        Self { node: network.node.name().into(), last: Rc::new(Cell::new(1)) }
    }

    /// A namespace on the bridge with addresses that no pod of this run has had.
    ///
    /// # Errors
    /// When the pod range is used up or `ip` fails.
    pub(super) fn create(&self) -> Result<PodNetwork> {
        let number = self.last.get() + 1;
        let addresses = pod_address(number)?;
        self.last.set(number);
        let netns = Netns::create(&name(&format!("pod{number}")))?;
        let bridge = pod_address(1)?;
        netns.ip_batch(&[
            format!("link add eth0 type veth peer name pod{number} netns {}", self.node),
            format!("addr add {}/20 dev eth0", addresses.v4),
            format!("addr add {}/64 dev eth0", addresses.v6),
            "link set eth0 up".to_owned(),
            format!("route add default via {}", bridge.v4),
            format!("route add default via {}", bridge.v6),
        ])?;
        let mut ip = process::Command::new("ip");
        ip.args(["-netns", &self.node, "link", "set", &format!("pod{number}"), "master", POD_BRIDGE, "up"]);
        netns::finish(&mut ip).with_context(|| format!("hang pod{number} on the bridge"))?;
        Ok(PodNetwork { netns, addresses })
    }
}

fn pod_address(number: u16) -> Result<PodAddresses> {
    ensure!(number <= MOST_PODS, "this run has made {MOST_PODS} pods, and there are no more addresses");
    let v4 = Ipv4Addr::from_bits(POD_NETWORK.to_bits() + u32::from(number));
    let v6 = Ipv6Addr::from_bits(POD_NETWORK_V6.to_bits() + u128::from(number));
    Ok(PodAddresses { v4, v6 })
}

/// Named after this process, so that [`crate::reap`] knows whether anybody still needs it.
fn name(what: &str) -> String {
    format!("{PREFIX}{}-bench-{what}", process::id())
}

#[cfg(test)]
mod tests {
    use super::{MOST_PODS, pod_address};

    #[test]
    fn pods_stay_inside_their_range() {
        assert_eq!(pod_address(1).unwrap().v4.to_string(), "198.18.16.1");
        assert_eq!(pod_address(MOST_PODS).unwrap().v4.to_string(), "198.18.31.254");
        assert!(pod_address(MOST_PODS + 1).is_err());
    }
}
