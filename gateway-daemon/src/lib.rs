//! The gatewayd daemon. ARCHITECTURE.md is the map.

pub mod admin;
pub mod api;
pub mod app;
pub mod check;
pub mod cli;
pub mod compile;
pub mod l4;
pub mod l7;
pub mod members;
pub mod migrate;
pub mod model;
pub mod net;
pub mod observe;
pub mod plan;
pub mod record;
pub mod source;
pub mod status;
