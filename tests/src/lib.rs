//! The lab of network namespaces, and every test that needs it.
//!
//! `topology` lays out clients, a node and backends; `daemon` runs gatewayd on the node; `backend` and `client` are
//! the two ends of the traffic; `shares` says whether what was seen fits the weights. `cluster` is a Kubernetes
//! cluster in the place of the lab.

pub mod backend;
pub mod client;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod daemon;
pub mod http;
pub mod manifest;
pub mod netns;
pub mod packet;
pub mod pass;
pub mod pattern;
pub mod prog;
pub mod reap;
pub mod shares;
pub mod tls;
pub mod topology;
pub mod wait;
