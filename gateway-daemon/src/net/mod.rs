//! The node's network, by netlink: addresses, routes, neighbours, devices and settings.

mod device;

pub use device::{Device, xdp_features};
