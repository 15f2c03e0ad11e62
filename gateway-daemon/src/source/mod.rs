//! Where resources come from.

pub mod files;
pub mod kubernetes;
pub mod yaml;

use std::{sync::Arc, time::Instant};

use tokio::sync::watch;

use crate::{
    api::{Diagnostic, Resources},
    compile::pool::Assigned,
};

/// What a source has at one moment.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// Everything that is good, or was good last.
    pub resources: Arc<Resources>,
    /// What is to be said about the rest, sorted by place.
    pub faults: Vec<Diagnostic>,
    /// When the first was heard of the changes that led here.
    pub heard: Option<Instant>,
    /// Addresses of Gateways, if there is a pool for them.
    pub assigned: Option<Assigned>,
}

/// Where resources come from, watched until this is dropped.
#[derive(Debug)]
pub enum Source {
    /// Files.
    Files(files::Watch),
    /// An API server.
    Kubernetes(kubernetes::Watch),
}

impl Source {
    /// What there is, and what there will be: the channel changes as soon as there is anything to serve.
    pub fn loaded(&self) -> watch::Receiver<Arc<Loaded>> {
        match self {
            Self::Files(watch) => {
                let mut loaded = watch.loaded();
                loaded.mark_changed();
                loaded
            }
            Self::Kubernetes(watch) => watch.loaded(),
        }
    }

    /// Reads everything again, where that means anything.
    pub fn reload(&self) {
        match self {
            Self::Files(watch) => watch.reload(),
            Self::Kubernetes(_) => tracing::info!("an API server tells its changes by itself"),
        }
    }

    /// Whether there is a GatewayClass of ours without being written.
    pub fn implies_class(&self) -> bool {
        matches!(self, Self::Files(_))
    }
}
