//! Resources from a Kubernetes API server, watched.
//!
//! ```text
//! follow, one a kind and one a Secret or ConfigMap that is referred to
//!   -> store -> what came together -> Loaded (resources and who has which address)
//!                                  -> observed statuses, for whoever writes them
//! ```
//! Nothing is published before every kind was heard of in whole, and nothing is removed because of an error.
//!
//! Not here: writing to the API server, which is `status`'s business.

mod follow;
mod store;

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::task::AbortOnDropHandle;
use tower::limit::RateLimitLayer;

pub(crate) use self::follow::discover;
pub use self::store::{Id, Observed, ObservedObjects};
use self::{
    follow::{Heard, Scope, follow},
    store::{Change, Store},
};
use crate::{
    api::{Key, Object, Resources, gateway::Gateway, served::KINDS},
    compile::{
        self, Settings,
        pool::{Assigned, Pool, assign},
    },
    observe::Kubernetes as Metrics,
    source::Loaded,
};

/// So long after a change resources are published, together with what else has changed by then.
const GATHER: Duration = Duration::from_millis(2);
/// But not sooner than so long after the last time: changes come in bursts.
const GAP: Duration = Duration::from_millis(50);
/// Resources wait for the Secrets and ConfigMaps that they refer to, but no longer than this.
const REFERRED_PATIENCE: Duration = Duration::from_secs(3);

/// A connection on which nothing came for so long is given up: the API server may be gone without a word. One that is
/// alive ends each watch before.
const SILENCE: Duration = Duration::from_secs(100);
const _: () = assert!((follow::WATCH_FOR as u64) < SILENCE.as_secs());

/// So often a second the API server is asked at the most, whatever for: a watch that is closed is begun again at once,
/// and the API server may close each as soon as it begins.
const REQUESTS_A_SECOND: u64 = 200;

/// How to reach the API server.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// A kubeconfig; without it, what `KUBECONFIG` or the home directory has, or else the pod's ServiceAccount.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; without it, the current one.
    pub context: Option<String>,
}

/// The API server cannot be reached because nobody knows how.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The kubeconfig is not there or cannot be used.
    #[error("read the kubeconfig")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// Nor is there a ServiceAccount.
    #[error("find a kubeconfig or a ServiceAccount")]
    Nothing(#[from] kube::config::InferConfigError),
    /// What it says makes no client.
    #[error("make a client of the API server")]
    Client(#[from] kube::Error),
}

impl Access {
    /// A client; the API server need not answer yet.
    ///
    /// # Errors
    /// See [`AccessError`].
    pub async fn client(&self) -> Result<Client, AccessError> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let mut config = match &self.kubeconfig {
            Some(path) => Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &options).await?,
            None if self.context.is_some() => Config::from_kubeconfig(&options).await?,
            None => Config::infer().await?,
        };
        config.read_timeout = Some(SILENCE);
        let builder = ClientBuilder::try_from(config)?;
        Ok(builder.with_layer(&RateLimitLayer::new(REQUESTS_A_SECOND, Duration::from_secs(1))).build())
    }
}

/// An API server being watched, until this is dropped.
#[derive(Debug)]
pub struct Watch {
    loaded: watch::Receiver<Arc<Loaded>>,
    observed: watch::Receiver<Arc<ObservedObjects>>,
    _task: AbortOnDropHandle<()>,
}

impl Watch {
    /// What there will be; what the channel has before its first change is nothing at all.
    pub fn loaded(&self) -> watch::Receiver<Arc<Loaded>> {
        self.loaded.clone()
    }

    /// The statuses of objects, as the API server has them.
    pub fn observed(&self) -> watch::Receiver<Arc<ObservedObjects>> {
        self.observed.clone()
    }
}

/// Starts to watch, on the current runtime. `leads` says whether this node gives addresses to Gateways.
pub fn watch(client: Client, pool: Pool, leads: watch::Receiver<bool>, metrics: Metrics) -> Watch {
    let (publish, loaded) = watch::channel(Arc::default());
    let (publish_observed, observed) = watch::channel(Arc::default());
    let (tell, hears) = mpsc::channel(1024);
    let mut followers = BTreeMap::new();
    for kind in KINDS.iter().filter(|kind| !ONLY_REFERRED_TO.contains(&kind.kind)) {
        let scope = Scope { kind, only: None };
        let task = tokio::spawn(follow(client.clone(), scope, tell.clone()));
        followers.insert((kind.kind, None), AbortOnDropHandle::new(task));
    }
    let source = Source {
        client,
        pool,
        leads,
        store: Store::default(),
        tell,
        followers,
        wanted_since: BTreeMap::new(),
        heard: None,
        metrics,
        given: BTreeMap::new(),
        publish,
        observed: publish_observed,
    };
    Watch { loaded, observed, _task: AbortOnDropHandle::new(tokio::spawn(source.run(hears))) }
}

/// Kinds of which only those objects are asked for that others refer to.
const ONLY_REFERRED_TO: [&str; 2] = ["Secret", "ConfigMap"];

struct Source {
    client: Client,
    pool: Pool,
    leads: watch::Receiver<bool>,
    store: Store,
    tell: mpsc::Sender<(Scope, Heard)>,
    followers: BTreeMap<(&'static str, Option<Key>), AbortOnDropHandle<()>>,
    /// Secrets and ConfigMaps that are referred to, each by its kind, and since when.
    wanted_since: BTreeMap<(&'static str, Key), Instant>,
    /// Since when there are changes that were not published.
    heard: Option<std::time::Instant>,
    metrics: Metrics,
    /// Addresses that this node gave, whether or not a status has them yet.
    given: BTreeMap<Key, Vec<IpAddr>>,
    publish: watch::Sender<Arc<Loaded>>,
    observed: watch::Sender<Arc<ObservedObjects>>,
}

impl Source {
    async fn run(mut self, mut news_of: mpsc::Receiver<(Scope, Heard)>) {
        let mut due: Option<Instant> = None;
        let mut settled = Instant::now();
        let mut news = Change::default();
        let mut leads = self.leads.clone();
        loop {
            let changed = tokio::select! {
                Some((scope, heard)) = news_of.recv() => self.take(&scope, heard),
                Ok(()) = leads.changed() => Change { resources: true, observed: false },
                () = sleep_until(due) => {
                    due = self.settle(&mut news);
                    settled = Instant::now();
                    Change::default()
                }
            };
            news.resources |= changed.resources;
            news.observed |= changed.observed;
            if changed != Change::default() {
                let now = Instant::now();
                let soon = (now + GATHER).max(settled + GAP);
                due = Some(due.map_or(soon, |due| due.min(soon)));
            }
            if changed.resources {
                self.heard.get_or_insert_with(std::time::Instant::now);
            }
        }
    }

    fn take(&mut self, scope: &Scope, heard: Heard) -> Change {
        // The last words about an object that nobody refers to any more.
        let unwanted = |only: &Key| !self.wanted_since.contains_key(&(scope.kind.kind, only.clone()));
        if scope.only.as_ref().is_some_and(unwanted) {
            return Change::default();
        }
        match &heard {
            Heard::Failed(_) => self.metrics.watch_failed(scope.kind.kind),
            Heard::Began => {
                self.metrics.listing(scope.kind.kind);
                self.metrics.heard();
            }
            _ => self.metrics.heard(),
        }
        self.store.take(scope, heard)
    }

    /// Publishes what is new. Says when to try again if something is still waited for.
    fn settle(&mut self, news: &mut Change) -> Option<Instant> {
        if std::mem::take(&mut news.observed) {
            self.observed.send_replace(Arc::new(self.store.observed.clone()));
        }
        let mut whole = self.followers.keys().filter(|(_, only)| only.is_none());
        if !news.resources || !whole.all(|(kind, _)| self.store.is_settled(kind, None)) {
            // The list that is missing makes an event when it comes.
            return None;
        }
        let resources: Arc<Resources> = Arc::new(self.store.resources.clone());
        let gateways = compile::our_gateways(&resources, &Settings::default());
        if let Some(overdue) = self.follow_referred(&resources, &gateways) {
            return Some(overdue);
        }
        news.resources = false;
        let assigned = (self.pool != Pool::default()).then(|| self.assign(&gateways));
        let (resources, faults, heard) = (Arc::clone(&resources), self.store.faults(), self.heard.take());
        let loaded = Loaded { resources, faults, heard, assigned };
        self.publish.send_replace(Arc::new(loaded));
        None
    }

    /// Follows the Secrets and ConfigMaps that are referred to and no others. Says when to stop waiting for those that
    /// have not been heard of.
    fn follow_referred(&mut self, resources: &Resources, gateways: &[&Object<Gateway>]) -> Option<Instant> {
        let wanted = compile::referred(resources, gateways);
        let dropped: Vec<(&'static str, Key)> =
            self.wanted_since.keys().filter(|id| !wanted.contains(id)).cloned().collect();
        for (kind, key) in dropped {
            self.store.forget(kind, &key);
            let id = (kind, key);
            self.wanted_since.remove(&id);
            self.followers.remove(&(id.0, Some(id.1)));
        }
        let now = Instant::now();
        for (kind, key) in wanted {
            let Some(kind) = KINDS.iter().find(|served| served.kind == kind) else { continue };
            self.wanted_since.entry((kind.kind, key.clone())).or_insert(now);
            self.followers.entry((kind.kind, Some(key.clone()))).or_insert_with(|| {
                let scope = Scope { kind, only: Some(key) };
                AbortOnDropHandle::new(tokio::spawn(follow(self.client.clone(), scope, self.tell.clone())))
            });
        }
        let waiting =
            self.wanted_since.iter().filter(|((kind, key), _)| !self.store.is_settled(kind, Some(key)));
        waiting.map(|(_, since)| *since + REFERRED_PATIENCE).filter(|overdue| *overdue > now).max()
    }

    /// Gives addresses to Gateways, if it is on this node to do so.
    fn assign(&mut self, gateways: &[&Object<Gateway>]) -> Assigned {
        let mut recorded = self.store.recorded_addresses();
        let leads = *self.leads.borrow();
        if leads {
            // What was given a moment ago is not in the statuses yet.
            for (key, given) in &self.given {
                let addresses = recorded.entry(key.clone()).or_default();
                if addresses.is_empty() {
                    addresses.clone_from(given);
                }
            }
        }
        let given = assign(&self.pool, gateways, &recorded, leads);
        self.given.clone_from(&given);
        Assigned { pool: self.pool.clone(), given }
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
