//! The gatewayd daemon. ARCHITECTURE.md is the map.

pub mod model;
pub mod plan;
