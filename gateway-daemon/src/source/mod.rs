//! Where resources come from.

pub mod files;
pub mod yaml;

use std::sync::Arc;

use crate::api::{Diagnostic, Resources};

/// What a source has at one moment.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// Everything that is good, or was good last.
    pub resources: Arc<Resources>,
    /// What is to be said about the rest, sorted by place.
    pub faults: Vec<Diagnostic>,
}
