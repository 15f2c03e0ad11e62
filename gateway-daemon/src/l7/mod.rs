//! The proxy for HTTP, gRPC and TLS.
//!
//! ```text
//! publish: model -> snapshot (routers compiled once) -> view of each worker (its endpoints, its pools)
//! connection: accept -> connection (TLS: secure -> HTTP or tunnel)
//! request: connection -> request: route, filter, balance -> upstream -> response
//! ```
//! Every worker is a thread with a runtime of its own; on the way of a request workers share nothing. [`Proxy`] is
//! the handle for the control plane.
//!
//! Not here: what is served (compile), addresses (net), health.

mod balance;
mod body;
mod connection;
mod dispatch;
mod error;
mod exchange;
mod filter;
mod forward;
mod framing;
mod grpc;
mod hello;
mod io;
mod listen;
mod repeat;
mod replay;
mod request;
mod route;
mod secure;
mod settings;
mod snapshot;
mod stats;
mod tls;
mod tunnel;
mod upgrade;
mod upstream;
mod worker;

use std::{
    collections::{BTreeMap, HashSet},
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    time::Instant,
};

pub use self::{
    settings::Settings,
    stats::{BackendStats, ServiceStats, Stats},
};
use self::{
    snapshot::{Compiler, Snapshot},
    worker::{Command, Worker},
};
use crate::model::l7;

/// A socket that could not be opened. It is tried again at the next publish.
#[derive(Debug)]
pub struct BindFault {
    /// What was to be listened on.
    pub address: SocketAddr,
    /// Why not.
    pub error: std::io::Error,
}

/// The running proxy. Dropping it ends the workers at once; [`Self::drain`] ends them gracefully.
#[derive(Debug)]
pub struct Proxy {
    workers: Vec<Handle>,
    /// Held while publishing: publishes follow each other.
    publisher: Mutex<Publisher>,
    /// The last one published. Written by publish, read by stats.
    current: ArcSwap<Snapshot>,
}

#[derive(Debug)]
struct Handle {
    commands: mpsc::UnboundedSender<Command>,
    thread: std::sync::Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Publisher {
    compiler: Compiler,
    /// Sockets that the workers have.
    open: HashSet<SocketAddr>,
}

impl Proxy {
    /// Starts the workers. They serve nothing until the first [`Self::publish`].
    ///
    /// # Errors
    /// A thread or its runtime cannot be made.
    pub fn start(settings: Settings) -> std::io::Result<Self> {
        let count = settings.workers.max(1);
        let compiler = Compiler::new(count);
        let settings = Arc::new(settings);
        let workers = (0..count).map(|index| spawn_worker(index, Arc::clone(&settings)));
        let workers = workers.collect::<Result<_, _>>()?;
        Ok(Self {
            workers,
            publisher: Mutex::new(Publisher { compiler, open: HashSet::new() }),
            current: ArcSwap::from_pointee(Snapshot::empty()),
        })
    }

    /// Serves a model from now on. Resolves when every worker does, with the sockets that could not be opened.
    ///
    /// New sockets are opened first and removed ones closed last. A connection goes on over publishes, and each of
    /// its requests sees the newest model; those of a removed socket are told to end.
    pub async fn publish(&self, model: Arc<l7::Proxy>) -> Vec<BindFault> {
        let mut publisher = self.publisher.lock().await;
        let snapshot = Arc::new(publisher.compiler.compile(&model));
        let (mut opened, faults) = publisher.open_sockets(&snapshot, self.workers.len());
        let mut confirmations = Vec::with_capacity(self.workers.len());
        for worker in &self.workers {
            let listeners = opened.iter_mut().filter_map(|(bind, sockets)| Some((*bind, sockets.pop()?)));
            let (done, confirmed) = oneshot::channel();
            let snapshot = Arc::clone(&snapshot);
            let command = Command::Publish { snapshot, listeners: listeners.collect(), done };
            if worker.commands.send(command).is_ok() {
                confirmations.push(confirmed);
            }
        }
        for confirmed in confirmations {
            // A worker that has ended serves nothing.
            let _ = confirmed.await;
        }
        self.current.store(snapshot);
        faults
    }

    /// Stops accepting, lets requests finish (HTTP/1.1 closes after the current one, HTTP/2 says GOAWAY), and ends the
    /// workers: when all connections are gone, or at the deadline.
    pub async fn drain(&self, deadline: Duration) {
        let deadline = Instant::now() + deadline;
        let mut confirmations = Vec::with_capacity(self.workers.len());
        for worker in &self.workers {
            let (done, confirmed) = oneshot::channel();
            if worker.commands.send(Command::Drain { deadline, done }).is_ok() {
                confirmations.push(confirmed);
            }
        }
        for confirmed in confirmations {
            // A worker that has ended is drained.
            let _ = confirmed.await;
        }
        self.publisher.lock().await.open.clear();
    }

    /// What was forwarded where, for the services of the current model.
    pub fn stats(&self) -> Stats {
        self.current.load().stats()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // Nobody is left to tell it anything: it ends.
            let (closed, _) = mpsc::unbounded_channel();
            worker.commands = closed;
        }
        for worker in &self.workers {
            let thread = worker.thread.lock().ok().and_then(|mut thread| thread.take());
            if let Some(Err(_panic)) = thread.map(JoinHandle::join) {
                tracing::error!("a proxy worker panicked");
            }
        }
    }
}

impl Publisher {
    /// Opens what a snapshot has and the workers do not.
    fn open_sockets(
        &mut self,
        snapshot: &Snapshot,
        workers: usize,
    ) -> (BTreeMap<SocketAddr, Vec<TcpListener>>, Vec<BindFault>) {
        let mut opened = BTreeMap::new();
        let mut faults = Vec::new();
        for address in snapshot.binds.keys().filter(|address| !self.open.contains(address)) {
            // Our own sockets on the same port would fail the probe where one of the two is a wildcard.
            let probe = !self.open.iter().chain(opened.keys()).any(|other| overlap(*address, *other));
            match listen::open(*address, workers, probe) {
                Ok(sockets) => drop(opened.insert(*address, sockets)),
                Err(error) => faults.push(BindFault { address: *address, error }),
            }
        }
        self.open.retain(|address| snapshot.binds.contains_key(address));
        self.open.extend(opened.keys());
        faults.sort_by_key(|fault| fault.address);
        (opened, faults)
    }
}

fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && (one.ip().is_unspecified() || other.ip().is_unspecified())
}

fn spawn_worker(index: usize, settings: Arc<Settings>) -> std::io::Result<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let (commands, received) = mpsc::unbounded_channel();
    let thread = std::thread::Builder::new().name(format!("l7-{index}")).spawn(move || {
        runtime.block_on(Worker::new(index, settings).run(received));
        // What is left is cut here.
        drop(runtime);
    })?;
    Ok(Handle { commands, thread: std::sync::Mutex::new(Some(thread)) })
}
