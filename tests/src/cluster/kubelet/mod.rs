//! A scheduler and kubelet for one node whose pods are processes in namespaces.
//!
//! What it knows is what the conformance suite's Deployments ask for, and no more: a pod that asks for anything else
//! is told so in its status and does not start. `volumes`, `network` and `container` make a pod; `sockets` says when
//! it is ready; `status` reports; `logs` keeps what containers print and `server` hands it out.
//!
//! Pods are children of the thread that runs this, and die with it.

mod container;
mod logs;
mod node;
mod pod;
mod server;
mod sockets;
mod status;
mod volumes;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;

use anyhow::{Context as _, Result, bail};
use futures_util::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Status};
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_local};

use self::logs::Logs;
use self::node::NODE;
use self::pod::Wish;
use super::network::PodNetworks;
use super::programs::Programs;

/// What every pod of the node shares.
pub(super) struct Kubelet {
    client: Client,
    programs: Programs,
    networks: PodNetworks,
    /// Root folders of pods, each named by the pod's UID.
    roots: PathBuf,
    logs: Logs,
    pods: RefCell<HashMap<String, Entry>>,
}

/// A pod that is running, starting or ending.
#[derive(Debug)]
struct Entry {
    wish: watch::Sender<Wish>,
    life: JoinHandle<()>,
}

impl Kubelet {
    pub(super) fn new(client: Client, programs: Programs, networks: PodNetworks, roots: PathBuf) -> Rc<Self> {
        let (logs, pods) = (Logs::default(), RefCell::default());
        Rc::new(Self { client, programs, networks, roots, logs, pods })
    }

    /// Registers the node, then schedules and runs its pods until dropped; to be awaited inside a `LocalSet`.
    ///
    /// # Errors
    /// When the node cannot be registered or the log endpoint cannot listen.
    pub(super) async fn run(self: Rc<Self>) -> Result<()> {
        let listener = server::listen()?;
        node::register(&self.client).await?;
        let pods: Api<Pod> = Api::all(self.client.clone());
        let watching = watcher(pods, watcher::Config::default()).default_backoff();
        let mut events = pin!(watching);
        let mut listed = HashSet::new();
        let watch = async {
            loop {
                match events.try_next().await {
                    Ok(Some(event)) => self.on_event(event, &mut listed),
                    Ok(None) => bail!("the watch of pods ended"),
                    // The watcher tries again by itself, later and later.
                    Err(error) => eprintln!("kubelet: watch pods: {error}"),
                }
            }
        };
        tokio::select! {
            ended = watch => ended,
            ended = server::serve(listener, self.logs.clone()) => ended,
        }
    }

    /// Ends every pod of the node and waits until their namespaces are gone; their objects stay as they are.
    pub(super) async fn stop(&self) {
        let entries: Vec<Entry> = self.pods.borrow_mut().drain().map(|(_, entry)| entry).collect();
        for entry in &entries {
            // A life that has ended already needs no wish.
            let _ended = entry.wish.send(Wish::Gone);
        }
        for entry in entries {
            if let Err(error) = entry.life.await {
                eprintln!("kubelet: {error}");
            }
        }
    }

    fn on_event(self: &Rc<Self>, event: watcher::Event<Pod>, listed: &mut HashSet<String>) {
        match event {
            watcher::Event::Apply(pod) => self.on_pod(pod),
            watcher::Event::Delete(pod) => self.end(&pod.uid().unwrap_or_default()),
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(pod) => {
                listed.extend(pod.uid());
                self.on_pod(pod);
            }
            watcher::Event::InitDone => {
                let known: Vec<String> = self.pods.borrow().keys().cloned().collect();
                known.iter().filter(|uid| !listed.contains(*uid)).for_each(|uid| self.end(uid));
            }
        }
    }

    fn on_pod(self: &Rc<Self>, pod: Pod) {
        let Some(uid) = pod.uid() else { return };
        let deleted = pod.metadata.deletion_timestamp.is_some();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        match node {
            None if !deleted => {
                let kubelet = Rc::clone(self);
                spawn_local(async move {
                    if let Err(error) = kubelet.bind(&pod).await {
                        eprintln!("scheduler: {}: {error:#}", pod.name_any());
                    }
                });
            }
            Some(NODE) => {
                let mut pods = self.pods.borrow_mut();
                if let Some(entry) = pods.get(&uid) {
                    if deleted {
                        let _ended = entry.wish.send(Wish::Deleted);
                    }
                } else {
                    let (wish, wished) = watch::channel(if deleted { Wish::Deleted } else { Wish::Run });
                    let life = spawn_local(pod::live(Rc::clone(self), pod, wished));
                    pods.insert(uid, Entry { wish, life });
                }
            }
            _ => {}
        }
    }

    /// The object is gone, whether by our word or by force.
    fn end(&self, uid: &str) {
        if let Some(entry) = self.pods.borrow_mut().remove(uid) {
            let _ended = entry.wish.send(Wish::Gone);
        }
    }

    /// There is one node, so every pod goes there.
    async fn bind(&self, pod: &Pod) -> Result<()> {
        let namespace = pod.namespace().context("a pod has a namespace")?;
        let name = pod.name_any();
        let binding = Binding {
            metadata: ObjectMeta { name: Some(name.clone()), uid: pod.uid(), ..ObjectMeta::default() },
            target: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(NODE.to_owned()),
                ..ObjectReference::default()
            },
        };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        match pods.create_subresource::<_, Status>("binding", &name, &PostParams::default(), &binding).await {
            // Bound already (seen twice before the first binding came back), or deleted meanwhile.
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => Ok(()),
            other => other.map(drop).context("bind the pod"),
        }
    }
}
