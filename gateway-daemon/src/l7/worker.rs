//! A worker: one thread with listeners, connections, pools and a view of the snapshot of its own.

use std::{
    collections::HashMap,
    net::{SocketAddr, TcpListener as StdListener},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc, oneshot},
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    balance::Random, connection::serve, listen::accept, settings::Settings, snapshot::Snapshot,
    upstream::Endpoint,
};
use crate::model::l7::Target;

/// How often idle connections to endpoints are looked through.
const REAP_INTERVAL: Duration = Duration::from_secs(1);

/// What the tasks of a worker share.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) settings: Arc<Settings>,
    pub(crate) random: Random,
    /// Connections and tunnels.
    pub(crate) tasks: TaskTracker,
    /// Written by the worker's main task, read once by every request. Of its own, so that no worker writes to a cache
    /// line of another's.
    view: ArcSwap<View>,
    places: Arc<Semaphore>,
    /// Kept over snapshots. Locked for moments, by one thread.
    endpoints: Mutex<HashMap<SocketAddr, Arc<Endpoint>>>,
}

/// A snapshot as one worker sees it: with its own endpoints.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) snapshot: Arc<Snapshot>,
    /// By service and backend.
    endpoints: Vec<Vec<Vec<Arc<Endpoint>>>>,
}

impl View {
    pub(crate) fn endpoints(&self, service: usize, backend: usize) -> &[Arc<Endpoint>] {
        let backends = self.endpoints.get(service);
        backends.and_then(|backends| backends.get(backend)).map(Vec::as_slice).unwrap_or_default()
    }
}

/// What a worker is told.
#[derive(Debug)]
pub(crate) enum Command {
    /// Serve this snapshot; with listeners that are new to it. Confirmed when every request sees it, and when the
    /// listeners that it no longer has are closed.
    Publish { snapshot: Arc<Snapshot>, listeners: Vec<(SocketAddr, StdListener)>, done: oneshot::Sender<()> },
    /// Accept no more, end what is there, at the latest at the deadline.
    Drain { deadline: Instant, done: oneshot::Sender<()> },
}

/// An accept loop.
#[derive(Debug)]
struct Listening {
    stop: CancellationToken,
    drain: CancellationToken,
    task: JoinHandle<()>,
}

impl Listening {
    /// Closes the socket; its connections are told to end.
    async fn close(self) {
        self.stop.cancel();
        // It ends by itself; only a panic could be reported.
        let _ = self.task.await;
        self.drain.cancel();
    }
}

impl Worker {
    pub(crate) fn new(index: usize, settings: Arc<Settings>) -> Arc<Self> {
        let view = View { snapshot: Arc::new(Snapshot::empty()), endpoints: Vec::new() };
        Arc::new(Self {
            index,
            random: Random::new(),
            tasks: TaskTracker::new(),
            view: ArcSwap::from_pointee(view),
            places: Arc::new(Semaphore::new(settings.max_connections)),
            endpoints: Mutex::new(HashMap::new()),
            settings,
        })
    }

    /// The newest view.
    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Does what it is told, until it is told to drain or nobody is left to tell.
    pub(crate) async fn run(self: Arc<Self>, mut commands: mpsc::UnboundedReceiver<Command>) {
        let mut listening = HashMap::new();
        let mut reap = interval(REAP_INTERVAL);
        reap.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let command = tokio::select! {
                command = commands.recv() => command,
                _ = reap.tick() => {
                    self.reap();
                    continue;
                }
            };
            match command {
                Some(Command::Publish { snapshot, listeners, done }) => {
                    self.publish(snapshot, listeners, &mut listening).await;
                    // Whoever published may not wait for it.
                    let _ = done.send(());
                }
                Some(Command::Drain { deadline, done }) => {
                    self.drain(deadline, listening).await;
                    let _ = done.send(());
                    return;
                }
                None => return,
            }
        }
    }

    /// Serves an accepted connection, or closes it when there are too many.
    pub(crate) fn admit(
        self: &Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        bind: SocketAddr,
        drain: &CancellationToken,
    ) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            tracing::warn!(%bind, "too many connections, one was closed");
            return;
        };
        let connection = serve(Arc::clone(self), stream, peer, bind, drain.child_token());
        self.tasks.spawn(async move {
            connection.await;
            drop(place);
        });
    }

    async fn publish(
        self: &Arc<Self>,
        snapshot: Arc<Snapshot>,
        listeners: Vec<(SocketAddr, StdListener)>,
        listening: &mut HashMap<SocketAddr, Listening>,
    ) {
        let view = self.view_of(snapshot);
        let removed: Vec<SocketAddr> =
            listening.keys().filter(|bind| !view.snapshot.binds.contains_key(bind)).copied().collect();
        self.view.store(Arc::new(view));
        for (bind, listener) in listeners {
            match self.listen(bind, listener) {
                Ok(started) => drop(listening.insert(bind, started)),
                Err(error) => tracing::error!(%bind, %error, "cannot listen"),
            }
        }
        for bind in removed {
            if let Some(closing) = listening.remove(&bind) {
                closing.close().await;
            }
        }
    }

    fn listen(self: &Arc<Self>, bind: SocketAddr, listener: StdListener) -> std::io::Result<Listening> {
        let listener = TcpListener::from_std(listener)?;
        let (stop, drain) = (CancellationToken::new(), CancellationToken::new());
        let task = tokio::spawn(accept(Arc::clone(self), listener, bind, stop.clone(), drain.clone()));
        Ok(Listening { stop, drain, task })
    }

    fn view_of(&self, snapshot: Arc<Snapshot>) -> View {
        let mut known = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        let mut used = HashMap::new();
        let mut endpoints_of = |target: &Target| match target {
            Target::Invalid(_) => Vec::new(),
            Target::Endpoints { endpoints, .. } => endpoints
                .iter()
                .map(|address| {
                    let endpoint =
                        known.entry(*address).or_insert_with(|| Endpoint::new(*address, &self.settings));
                    used.insert(*address, Arc::clone(endpoint));
                    Arc::clone(endpoint)
                })
                .collect(),
        };
        let services = snapshot.services.iter();
        let endpoints = services
            .map(|service| service.backends.iter().map(|backend| endpoints_of(&backend.target)).collect())
            .collect();
        known.iter().filter(|(address, _)| !used.contains_key(*address)).for_each(|(_, gone)| gone.retire());
        *known = used;
        View { snapshot, endpoints }
    }

    fn reap(&self) {
        let endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        endpoints.values().for_each(|endpoint| endpoint.close_idle(&self.settings));
    }

    async fn drain(&self, deadline: Instant, listening: HashMap<SocketAddr, Listening>) {
        for (_, closing) in listening {
            closing.close().await;
        }
        self.tasks.close();
        if timeout_at(deadline, self.tasks.wait()).await.is_err() {
            tracing::warn!(worker = self.index, open = self.tasks.len(), "connections cut at the deadline");
        }
    }
}
