//! The kernel side and the network side of the daemon, on a real kernel, in network namespaces.

mod l4;
mod net;
mod node;
