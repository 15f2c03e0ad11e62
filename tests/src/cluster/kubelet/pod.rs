//! The life of one pod: made, watched, and taken away with its object.

use std::convert::Infallible;
use std::fs;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::future;
use k8s_openapi::api::core::v1::{Container as Spec, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;

use super::container::Container;
use super::logs::Key;
use super::{Kubelet, sockets, status, volumes};
use crate::cluster::network::PodNetwork;

/// What the API server wants of a pod.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Wish {
    /// To run.
    Run,
    /// To end, and its object to be deleted when it has.
    Deleted,
    /// Nothing: the object is gone, or we are going.
    Gone,
}

/// How long a container that ended waits for its next run, at first and at most.
const RESTART_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// Runs a pod until it is wished away, then cleans up after it.
pub(super) async fn live(kubelet: Rc<Kubelet>, pod: Pod, mut wish: watch::Receiver<Wish>) {
    let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    let mut life = Life::of(&kubelet, &pod);
    let failed = tokio::select! {
        Err(error) = life.run() => Some(error),
        // A closed channel means that we are going.
        _closed = wish.wait_for(|wish| *wish != Wish::Run) => None,
    };
    if let Some(error) = failed {
        eprintln!("kubelet: pod {name}: {error:#}");
        life.refuse(&format!("{error:#}")).await;
        let _closed = wish.wait_for(|wish| *wish != Wish::Run).await;
    }
    let wish = *wish.borrow();
    if let Err(error) = life.end(wish).await {
        eprintln!("kubelet: end pod {name}: {error:#}");
    }
}

/// What there is of a pod so far.
struct Life<'a> {
    kubelet: &'a Kubelet,
    pod: &'a Pod,
    api: Api<Pod>,
    root: PathBuf,
    network: Option<PodNetwork>,
    containers: Vec<Container>,
    started: Timestamp,
}

impl<'a> Life<'a> {
    fn of(kubelet: &'a Kubelet, pod: &'a Pod) -> Self {
        Self {
            kubelet,
            pod,
            api: Api::namespaced(kubelet.client.clone(), &pod.namespace().unwrap_or_default()),
            root: kubelet.roots.join(pod.uid().unwrap_or_default()),
            network: None,
            containers: Vec::new(),
            started: Timestamp::now(),
        }
    }

    /// Makes the pod and keeps its containers running.
    async fn run(&mut self) -> Result<Infallible> {
        for spec in self.specs() {
            self.prepare(spec).await.with_context(|| format!("container {}", spec.name))?;
        }
        let network = self.network.insert(self.kubelet.networks.create()?);
        for container in &mut self.containers {
            container.start(&network.netns)?;
        }
        let mut pause = RESTART_AFTER.0;
        loop {
            self.report(false).await?;
            let ended = self.watch().await?;
            self.containers[ended].restarts += 1;
            self.report(false).await?;
            sleep(pause).await;
            pause = RESTART_AFTER.1.min(pause * 2);
            let network = self.network.as_ref().context("a pod that ran has a namespace")?;
            self.containers[ended].start(&network.netns)?;
        }
    }

    /// Writes the container's files and reads what it is to run.
    async fn prepare(&mut self, spec: &Spec) -> Result<()> {
        let root = self.root.join(&spec.name);
        fs::create_dir_all(&root).with_context(|| format!("make {}", root.display()))?;
        let log = self.kubelet.logs.open(self.key(spec));
        self.containers.push(Container::prepare(spec, self.pod, &self.kubelet.programs, root.clone(), log)?);
        volumes::write(&self.kubelet.client, self.pod, spec, &root).await
    }

    /// Reports the pod ready when it listens, and returns which container ended.
    async fn watch(&mut self) -> Result<usize> {
        let network = self.network.as_ref().context("a pod that runs has a namespace")?;
        tokio::select! {
            ended = any_end(&mut self.containers) => return ended,
            settled = sockets::settled(&network.netns) => settled?,
        }
        self.report(true).await?;
        any_end(&mut self.containers).await
    }

    async fn report(&self, ready: bool) -> Result<()> {
        let network = self.network.as_ref().context("a pod that runs has a namespace")?;
        self.patch(status::running(&self.containers, network.addresses, self.started, ready)).await
    }

    /// Says in the status why the pod does not run.
    async fn refuse(&self, reason: &str) {
        let Some(spec) = self.specs().first() else { return };
        let image = spec.image.as_deref().unwrap_or_default();
        if let Err(error) = self.patch(status::refused(&spec.name, image, reason)).await {
            eprintln!("kubelet: {error:#}");
        }
    }

    async fn patch(&self, status: Value) -> Result<()> {
        let name = self.pod.name_any();
        match self.api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(status)).await {
            // Deleted by force: the watch will tell.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(drop).context("report the pod's status"),
        }
    }

    /// Kills what runs, removes the namespace and the files and, if wished, the object.
    async fn end(mut self, wish: Wish) -> Result<()> {
        for container in &mut self.containers {
            container.kill().await?;
        }
        self.network = None;
        for spec in self.specs() {
            self.kubelet.logs.forget(&self.key(spec));
        }
        if self.root.exists() {
            fs::remove_dir_all(&self.root).with_context(|| format!("remove {}", self.root.display()))?;
        }
        if wish == Wish::Deleted {
            self.delete().await?;
        }
        Ok(())
    }

    async fn delete(&self) -> Result<()> {
        let preconditions = Preconditions { uid: self.pod.uid(), resource_version: None };
        let now = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        match self.api.delete(&self.pod.name_any(), &now).await {
            // Gone already, or another pod has the name by now.
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
            other => other.map(drop).context("delete the pod"),
        }
    }

    fn specs(&self) -> &'a [Spec] {
        self.pod.spec.as_ref().map_or(&[], |spec| &spec.containers)
    }

    fn key(&self, spec: &Spec) -> Key {
        Key {
            namespace: self.pod.namespace().unwrap_or_default(),
            pod: self.pod.name_any(),
            container: spec.name.clone(),
        }
    }
}

/// Waits until one of the containers ends, and returns which.
async fn any_end(containers: &mut [Container]) -> Result<usize> {
    let ends = containers.iter_mut().map(|container| Box::pin(container.ended()));
    let (ended, which, _) = future::select_all(ends).await;
    ended.map(|_status| which)
}
