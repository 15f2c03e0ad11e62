//! A real Kubernetes control plane on one machine, with pods that are processes: the bench of the conformance suite.
//!
//! ```text
//! control plane namespace                 node namespace                       one namespace a pod
//! etcd, kube-apiserver,      veth         kubelet (this process), gatewayd     the suite's own server
//! kube-controller-manager, ── node0/uplink ──  bridge pods0 ── podN ───────── eth0
//! the suite as the client  ── node1/uplink ── a second node, for tests that start a gatewayd of their own there
//! (bridge lan)
//! ```
//! `network` lays that out, `control_plane` starts the left side, `kubelet` plays scheduler and kubelet for what the
//! Deployment controller asks for, `daemon` starts gatewayd, `suite` runs the official tests and `outcome` judges
//! them. `standing` is the same for tests that bring clients of their own, and `proxy` makes the API server ill as
//! they see it. Everything is a child of this process and dies with it; what the kernel keeps, the next run removes.
//!
//! Not here: how the programs are built, which is `cargo xtask`'s business.

mod access;
mod control_plane;
mod daemon;
mod kubelet;
mod network;
mod outcome;
mod process;
mod programs;
mod proxy;
mod report;
mod stand;
mod standing;
mod suite;

pub use control_plane::Ill;
pub use network::{
    CONTROL_ADDRESS, NODE_ADDRESS, POD_BRIDGE, PodAddresses, PodNetwork, SERVICE_RANGE, UPLINK, VIP_RANGE_V4,
    VIP_RANGE_V6,
};
pub use outcome::Expectation;
pub use programs::{Channel, Programs};
pub use proxy::{Fault, Proxy, Write};
pub use stand::{Interrupted, Stand, StandOptions, base_path, clean, kubectl_path, owner, ready_path};
pub use standing::Standing;
pub use suite::SuiteOptions;
