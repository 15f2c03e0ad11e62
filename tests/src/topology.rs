//! The lab: clients, one node, and backends behind it, each a namespace of its own.
//!
//! ```text
//! client  eth0 ───── client     ┌──────┐  backend-1 ───── eth0  backend-1
//! client-2 eth0 ──── client-2   │ node │  backend-2 ───── eth0  backend-2
//! ```
//! Nobody has a default route. Clients know the way to the service addresses, through the node; backends know the
//! node's end of their own link and nothing else, so that only traffic the node translates can be answered.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;

use crate::netns::Netns;
use crate::pass;

/// What varies between labs.
#[derive(Clone, Copy, Debug)]
pub struct Topology {
    /// How many clients.
    pub clients: u8,
    /// How many backends.
    pub backends: u8,
    /// What the clients' end of the link is like.
    pub client_end: ClientEnd,
    /// Whether the node's end of a backend's link transmits what XDP redirects to it (GRO is on at the far end).
    /// A pod's veth does not.
    pub backends_take_redirects: bool,
    /// Whether the node and its neighbours know each other's link addresses beforehand.
    pub static_neighbours: bool,
}

/// What the clients' end of the link is like.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClientEnd {
    /// As a NIC would look to the node: finished checksums, no oversized packets, and XDP may send through it.
    Nic,
    /// A veth as it comes, with all offloads on.
    Veth,
}

impl Default for Topology {
    fn default() -> Self {
        Self {
            clients: 1,
            backends: 4,
            client_end: ClientEnd::Nic,
            backends_take_redirects: false,
            static_neighbours: false,
        }
    }
}

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both families.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The `n`th address that clients have a route to and nobody owns: one for a Gateway to claim.
    pub fn service_address(self, n: u8) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::new(198, 18, 0, n).into(),
            Self::V6 => Ipv6Addr::new(0xfd00, 0x18, 0, 0, 0, 0, 0, n.into()).into(),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// A namespace with one link to the node.
#[derive(Debug)]
pub struct Host {
    /// The namespace; its end of the link is `eth0`.
    pub netns: Netns,
    /// Its name in the lab: `client`, `backend-2`. Also the name of the node's end of the link.
    pub name: String,
    subnet: Subnet,
    /// Keeps the program at its end of the link.
    pass: Option<OwnedFd>,
}

impl Host {
    /// Its address.
    pub fn address(&self, family: Family) -> IpAddr {
        self.subnet.address(family, 2)
    }

    /// The node's address on the link.
    pub fn node_address(&self, family: Family) -> IpAddr {
        self.subnet.address(family, 1)
    }
}

/// A lab that stands; its namespaces, and with them links and addresses, go when it is dropped.
#[derive(Debug)]
pub struct Lab {
    /// Prefix of all its names.
    pub name: String,
    /// The clients.
    pub clients: Vec<Host>,
    /// Where gatewayd runs.
    pub node: Netns,
    /// The backends.
    pub backends: Vec<Host>,
}

impl Lab {
    /// A lab under a name that no other has, which says whose it is: [`crate::reap`] removes it if we are killed.
    ///
    /// # Errors
    /// When we are not root.
    pub fn create(topology: Topology) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self::with_name(&format!("{}{}-{number}", crate::reap::PREFIX, process::id()), topology)
    }

    /// A lab whose namespaces are called `NAME-client`, `NAME-node`, `NAME-backend-1` and so on.
    ///
    /// # Errors
    /// When we are not root, or the name is taken.
    pub fn with_name(name: &str, topology: Topology) -> Result<Self> {
        let node = Netns::create(&format!("{name}-node"))?;
        node.sysctl("ipv4/ip_forward", "1")?;
        node.sysctl("ipv6/conf/all/forwarding", "1")?;
        let mut lab = Self { name: name.to_owned(), clients: Vec::new(), node, backends: Vec::new() };
        for n in 1..=topology.clients {
            let client = if n == 1 { "client".to_owned() } else { format!("client-{n}") };
            let mut host = lab.connect(&client, Subnet { third: 9 + n, second: 18 }, topology)?;
            host.netns.ip_batch(&[
                format!("route add 198.18.0.0/24 via {}", host.node_address(Family::V4)),
                format!("route add fd00:18::/64 via {}", host.node_address(Family::V6)),
            ])?;
            if topology.client_end == ClientEnd::Nic {
                host.netns.offload("eth0", "tx off")?;
                host.pass = Some(pass::attach(&host.netns, "eth0")?);
            }
            lab.clients.push(host);
        }
        for n in 1..=topology.backends {
            let host = lab.connect(&format!("backend-{n}"), Subnet { third: n, second: 19 }, topology)?;
            if topology.backends_take_redirects {
                host.netns.offload("eth0", "gro on")?;
            }
            lab.backends.push(host);
        }
        Ok(lab)
    }

    /// The first client.
    pub fn client(&self) -> &Netns {
        &self.clients[0].netns
    }

    /// The node's interfaces, clients' first.
    pub fn interfaces(&self) -> impl Iterator<Item = &str> {
        self.clients.iter().chain(&self.backends).map(|host| host.name.as_str())
    }

    fn connect(&self, name: &str, subnet: Subnet, topology: Topology) -> Result<Host> {
        let netns = Netns::create(&format!("{}-{name}", self.name))?;
        let host = Host { netns, name: name.to_owned(), subnet, pass: None };
        let mut node = vec![format!("link add {name} type veth peer name eth0 netns {}", host.netns.name())];
        node.extend(subnet.up(name, 1));
        self.node.ip_batch(&node)?;
        host.netns.ip_batch(&subnet.up("eth0", 2))?;
        if topology.static_neighbours {
            introduce(&self.node, name, &host.netns, "eth0", subnet, 2)?;
            introduce(&host.netns, "eth0", &self.node, name, subnet, 1)?;
        }
        Ok(host)
    }
}

/// The two networks of a link, `198.SECOND.THIRD.0/24` and `fd00:SECOND:THIRD::/64`: the node is 1, the host 2.
#[derive(Clone, Copy, Debug)]
struct Subnet {
    second: u8,
    third: u8,
}

impl Subnet {
    fn address(self, family: Family, host: u8) -> IpAddr {
        match family {
            Family::V4 => Ipv4Addr::new(198, self.second, self.third, host).into(),
            // The same digits in both families, though they mean other numbers: 198.19.10.2 and fd00:19:10::2.
            Family::V6 => {
                let [second, third] = [self.second, self.third].map(in_hexadecimal);
                Ipv6Addr::new(0xfd00, second, third, 0, 0, 0, 0, host.into()).into()
            }
        }
    }

    /// The lines of `ip` that give an interface its addresses and turn it on.
    fn up(self, interface: &str, host: u8) -> [String; 3] {
        [
            format!("addr add {}/24 dev {interface}", self.address(Family::V4, host)),
            format!("addr add {}/64 dev {interface} nodad", self.address(Family::V6, host)),
            format!("link set {interface} up"),
        ]
    }
}

/// The number whose hexadecimal digits are the decimal digits of `number`.
fn in_hexadecimal(number: u8) -> u16 {
    let (tens, ones) = (u16::from(number / 10), u16::from(number % 10));
    (tens / 10) << 8 | (tens % 10) << 4 | ones
}

/// Tells `netns` for good the link address of the neighbour at the other end of `interface`.
fn introduce(
    netns: &Netns,
    interface: &str,
    neighbour: &Netns,
    neighbour_interface: &str,
    subnet: Subnet,
    host: u8,
) -> Result<()> {
    let shown = neighbour.ip(&format!("-br link show {neighbour_interface}"))?;
    let address = shown.split_whitespace().nth(2).map(str::to_owned);
    let address = address.ok_or_else(|| anyhow::anyhow!("no link address in {shown:?}"))?;
    netns.ip_batch(&Family::ALL.map(|family| {
        format!(
            "neigh replace {} lladdr {address} dev {interface} nud permanent",
            subnet.address(family, host)
        )
    }))
}
