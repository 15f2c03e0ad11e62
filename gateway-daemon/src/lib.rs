//! The gatewayd daemon. ARCHITECTURE.md is the map.

pub mod api;
pub mod check;
pub mod compile;
pub mod l4;
pub mod l7;
pub mod model;
pub mod net;
pub mod plan;
pub mod record;
pub mod source;
