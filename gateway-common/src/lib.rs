//! The contract between the kernel programs and the daemon, and the arithmetic that both sides share.
//!
//! Every type in a BPF map is here, `repr(C)` and without padding; wire values carry their byte order in their
//! type ([`Be16`], [`Be32`]). The daemon writes services, backends, tables and devices; the kernel programs write
//! flows, replies and counters.
//!
//! Not here: packet access (gateway-ebpf) and anything that allocates in the kernel's build of this crate.
#![cfg_attr(not(feature = "user"), no_std)]
#![warn(missing_docs)]
#![expect(clippy::cast_possible_truncation, reason = "words are cut on purpose; each place says why it fits")]
#![expect(
    clippy::inline_always,
    reason = "the kernel's verifier follows straight code more cheaply than calls"
)]

mod backend;
mod be;
mod config;
mod counter;
pub mod csum;
mod device;
mod flow;
pub mod hash;
mod layout;
pub mod maps;
mod reply;
mod service;
#[cfg(feature = "user")]
pub mod table;

pub use backend::Backend;
pub use be::{Addr, Be16, Be32};
pub use config::Config;
pub use counter::{Count, Entry, Outcome, ServiceCount};
pub use device::{Device, device_flags};
pub use flow::{Flow, FlowKey4, FlowKey6, tcp_state};
pub use reply::{Reply4, Reply6, ReplyKey4, ReplyKey6};
pub use service::{Service, ServiceKey};

/// IANA protocol number of TCP.
pub const TCP: u8 = 6;
/// IANA protocol number of UDP.
pub const UDP: u8 = 17;

/// Slots of every consistent-hash table: a prime, so that every step is coprime to it and a permutation.
pub const TABLE_SLOTS: u32 = 65_537;

/// Backend id that refuses: TCP is answered with a reset, UDP with port unreachable.
pub const REFUSE: u32 = 0;

/// Coarse time: the monotonic clock (`CLOCK_MONOTONIC_COARSE`) in nanoseconds, shifted right by this. One tick is
/// 2^30 ns, about 1.07 s.
pub const TICK_SHIFT: u32 = 30;

/// Seconds as ticks, rounded up, so that a timeout is never shorter than asked.
pub const fn seconds_to_ticks(seconds: u32) -> u32 {
    ((seconds as u64 * 1_000_000_000) >> TICK_SHIFT) as u32 + 1
}
