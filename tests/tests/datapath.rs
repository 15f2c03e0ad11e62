//! The kernel programs, one packet at a time: maps and a packet in; return code, packet and counters out.
//!
//! Each row runs in XDP and in TC, on a node of its own. What is expected is built from its meaning by
//! `gateway_tests::packet`, every checksum computed in full.

#[path = "cases/answer.rs"]
mod answer;
#[path = "cases/foreign.rs"]
mod foreign;
#[path = "cases/forward.rs"]
mod forward;
#[path = "cases/layout.rs"]
mod layout;
#[path = "cases/nat.rs"]
mod nat;
#[path = "cases/opening.rs"]
mod opening;
#[path = "cases/route.rs"]
mod route;
#[path = "cases/row.rs"]
mod row;
#[path = "cases/verifier.rs"]
mod verifier;
