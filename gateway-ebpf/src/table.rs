//! Which backend a new flow goes to: the owner of its slot in the service's table.

use gateway_common::{REFUSE, hash};

use crate::{family::Family, maps, parse::Headers};

/// The backend id for a client's new flow; [`REFUSE`] when its slot refuses, or the service has no table yet.
///
/// A function of its own, because the state of the hash would take the stack of its caller.
#[inline(never)]
pub(crate) fn choose<F: Family>(headers: &Headers<F>, service: u32) -> u32 {
    let Some(config) = maps::config() else { return REFUSE };
    let port_and_service = u64::from(headers.source_port.wire()) << 32 | u64::from(service);
    let hash = F::hash(hash::SipHash::new(config.hash_key), headers.source).word(port_and_service).finish();
    maps::slot_owner(service, hash::slot(hash)).unwrap_or(REFUSE)
}
