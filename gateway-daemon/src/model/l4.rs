//! TCP and UDP: what the kernel programs steer.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use super::ListenerName;

/// One service of the kernel: a frontend, and the weighted backends behind it.
///
/// A service has exactly one frontend; a route on two listeners or two addresses makes as many services.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Service {
    /// What clients connect to.
    pub frontend: Frontend,
    /// The listener it belongs to.
    pub listener: ListenerName,
    /// The service's name, `tcproute.NAMESPACE.NAME.RULE` or `udproute…`; none while no route is attached, and
    /// then every flow is refused.
    pub name: Option<String>,
    /// After so long without a packet a flow is forgotten.
    pub idle_timeout: Duration,
    /// Who gets which share of new flows, sorted by backend; a backend occurs once. Nobody, or nothing but zero
    /// weights, refuses every flow.
    pub shares: Vec<Share>,
}

/// Address, port and protocol of a listener.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Frontend {
    /// Address of the Gateway.
    pub address: IpAddr,
    /// Port of the listener.
    pub port: u16,
    /// Protocol of the listener.
    pub protocol: Protocol,
}

impl fmt::Display for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.protocol, SocketAddr::new(self.address, self.port))
    }
}

/// Protocols that the kernel steers.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// A share of a service's new flows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Share {
    /// The backend, of the frontend's address family; none for a share that is refused, because its BackendRef is
    /// invalid or has no ready endpoint of that family.
    pub backend: Option<SocketAddr>,
    /// Weight against the sum of all shares of the service: the BackendRef's weight times [`WEIGHT_SCALE`], divided
    /// among its endpoints.
    pub weight: u64,
}

/// What a BackendRef's weight is multiplied by, so that it can be divided among up to 16 endpoints without a rest.
pub const WEIGHT_SCALE: u64 = 720_720;
