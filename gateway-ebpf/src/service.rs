//! Which packets are ours: those to an address, port and protocol that the daemon serves.

use gateway_common::{Service, ServiceKey};

use crate::{family::Family, maps, parse::Headers};

/// The service that the packet is sent to.
#[inline(always)]
pub(crate) fn find<F: Family>(headers: &Headers<F>) -> Option<Service> {
    maps::service(&ServiceKey {
        address: F::to_addr(headers.destination),
        port: headers.destination_port,
        protocol: headers.protocol,
        pad: 0,
    })
}
