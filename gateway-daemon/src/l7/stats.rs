//! What was forwarded where, counted.
//!
//! Every worker counts into cells of its own; reading sums them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use http::StatusCode;

/// One of so many requests of a worker to a backend may be a retry.
const RETRY_SHARE: u64 = 5;
/// So many retries of a worker to a backend are always allowed.
const RETRIES_ALWAYS: u64 = 10;

/// Counts of all services, by name.
pub type Stats = BTreeMap<String, ServiceStats>;

/// Counts of one service since the proxy started.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ServiceStats {
    /// One for each BackendRef, in the order of the service.
    pub backends: Vec<BackendStats>,
}

/// Counts of one BackendRef.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct BackendStats {
    /// `NAMESPACE/NAME:PORT`.
    pub name: String,
    /// Weight asked for, 0 to 1,000,000.
    pub weight: u32,
    /// Requests given to it, whatever became of them.
    pub requests: u64,
    /// Requests whose response has not ended.
    pub active: u64,
    /// Responses, also those made here on its behalf, by class of status: 1xx (only 101), 2xx, 3xx, 4xx, 5xx.
    pub responses: [u64; 5],
}

/// The counters of a BackendRef, one cell for each worker.
#[derive(Debug)]
pub(crate) struct Counters {
    cells: Box<[Cell]>,
}

/// On cache lines of its own: nothing is shared between workers but when it is read.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Cell {
    requests: AtomicU64,
    ended: AtomicU64,
    responses: [AtomicU64; 5],
    /// Waits for a retry, at present.
    retries: AtomicU64,
}

impl Counters {
    pub(crate) fn new(workers: usize) -> Self {
        Self { cells: (0..workers).map(|_| Cell::default()).collect() }
    }

    /// Counts a request, and its end when the guard is dropped.
    pub(crate) fn request(self: &Arc<Self>, worker: usize) -> Active {
        if let Some(cell) = self.cells.get(worker) {
            cell.requests.fetch_add(1, Relaxed);
        }
        Active { counters: Arc::clone(self), worker }
    }

    pub(crate) fn read(&self, name: &str, weight: u32) -> BackendStats {
        let mut stats = BackendStats { name: name.to_owned(), weight, ..BackendStats::default() };
        for cell in &self.cells {
            // The end first, so that a request between the two reads is not missing.
            let ended = cell.ended.load(Relaxed);
            let requests = cell.requests.load(Relaxed);
            stats.requests += requests;
            stats.active += requests.saturating_sub(ended);
            for (sum, one) in stats.responses.iter_mut().zip(&cell.responses) {
                *sum += one.load(Relaxed);
            }
        }
        stats
    }
}

/// A request that has not ended.
#[derive(Debug)]
pub(crate) struct Active {
    counters: Arc<Counters>,
    worker: usize,
}

impl Active {
    pub(crate) fn response(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        let cell = self.counters.cells.get(self.worker);
        if let Some(count) = cell.and_then(|cell| cell.responses.get(class)) {
            count.fetch_add(1, Relaxed);
        }
    }
}

impl Active {
    /// A place for a retry to this backend, held until it is sent; none when too many wait already: what is left of
    /// a backend that fails must not go down under the repeated load.
    pub(crate) fn retry(&self) -> Option<Retrying<'_>> {
        let cell = self.counters.cells.get(self.worker)?;
        let active = cell.requests.load(Relaxed).saturating_sub(cell.ended.load(Relaxed));
        let allowed = (active / RETRY_SHARE).max(RETRIES_ALWAYS);
        if cell.retries.fetch_add(1, Relaxed) < allowed {
            return Some(Retrying(cell));
        }
        cell.retries.fetch_sub(1, Relaxed);
        None
    }
}

/// A retry that waits or is under way.
#[derive(Debug)]
pub(crate) struct Retrying<'a>(&'a Cell);

impl Drop for Retrying<'_> {
    fn drop(&mut self) {
        self.0.retries.fetch_sub(1, Relaxed);
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        if let Some(cell) = self.counters.cells.get(self.worker) {
            cell.ended.fetch_add(1, Relaxed);
        }
    }
}
