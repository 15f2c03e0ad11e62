//! `gw_backends`: where packets go.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Addr, Be16, layout::map_type};

/// Value of `gw_backends`, an array indexed by backend id: one backend of one service.
///
/// A backend that serves two services has two ids, so that its counters and its removal are those of one service.
///
/// # Layout
/// 40 bytes, align 4. All zero means "no such backend"; index 0 ([`crate::REFUSE`]) always is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Backend {
    /// Address of the backend.
    pub address: Addr,
    /// This node's source address towards the backend: what `nat` mode writes, and where replies come to.
    pub source: Addr,
    /// Port of the backend; zero when there is no such backend.
    pub port: Be16,
    /// Counts the uses of this id, from 1. A flow that remembers another incarnation has lost its backend.
    pub incarnation: Be16,
    /// Service id this backend belongs to, to make an adopted map understandable.
    pub service: u32,
}
map_type!(Backend, size = 40, offsets = { address: 0, source: 16, port: 32, incarnation: 34, service: 36 });
