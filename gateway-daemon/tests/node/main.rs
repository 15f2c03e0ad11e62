//! The kernel side and the network side of the daemon, on a real kernel, in network namespaces.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod l4;
mod net;
mod node;
