//! Which nodes there are: each has a Lease of its own, and renews it as long as it serves.
//!
//! ```text
//! Lease gatewayd-node-NAME, renewed ─┐
//! Leases of the others, listed      ─┴─▶ Roll: who lives ─▶ owner of each address
//! ```
//! One Lease a node, not one an address: a thousand addresses then cost no more than one, and every node works out the
//! owners by itself ([`owner()`]). A node counts as gone when its Lease did not change for its duration **while the API
//! server answered us**; as long as nobody can ask, nothing changes hands. Two nodes may have an address for a while:
//! both serve it from equal tables, and the neighbours believe the one that announced last.

mod owner;
mod roll;

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, timeout},
};
use tokio_util::task::AbortOnDropHandle;

pub use self::owner::owner;
use self::roll::Roll;

/// Leases of nodes are called so, and then by the node's name.
const PREFIX: &str = "gatewayd-node-";
/// The label that they have.
const LABEL: &str = "gatewayd.dev/node-lease";
/// How long the API server may take for an answer.
const ANSWER: Duration = Duration::from_secs(2);

/// This node, as others see it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Node {
    /// Its name, no other node's; a part of the name of an object.
    pub name: String,
    /// How long others wait for it when it is silent. A quarter of that is how often it renews its Lease and looks at
    /// the others'.
    pub lease_duration: Duration,
}

/// A node among others, until this is dropped.
#[derive(Debug)]
pub struct Membership {
    members: watch::Receiver<Members>,
    serving: watch::Sender<bool>,
    api: Api<DynamicObject>,
    node: Node,
    task: AbortOnDropHandle<()>,
}

/// The nodes that live, as this one sees it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Members {
    /// This node.
    pub own: String,
    /// All that live; this one too, once it serves.
    pub live: BTreeSet<String>,
}

impl Members {
    /// Whether an address is this node's.
    pub fn owns(&self, address: std::net::IpAddr) -> bool {
        owner(address, &self.live) == Some(&self.own)
    }
}

impl Membership {
    /// Joins, on the current runtime; the others count on this node once [`serving`](Self::serving) was told so.
    pub fn join(client: Client, node: Node) -> Self {
        let resource = ApiResource {
            group: "coordination.k8s.io".to_owned(),
            version: "v1".to_owned(),
            api_version: "coordination.k8s.io/v1".to_owned(),
            kind: "Lease".to_owned(),
            plural: "leases".to_owned(),
        };
        let api: Api<DynamicObject> = Api::default_namespaced_with(client, &resource);
        let (tell, members) = watch::channel(Members { own: node.name.clone(), live: BTreeSet::new() });
        let (serving, serves) = watch::channel(false);
        let member =
            Member { api: api.clone(), resource, node: node.clone(), serves, roll: Roll::default(), tell };
        Self { members, serving, api, node, task: AbortOnDropHandle::new(tokio::spawn(member.run())) }
    }

    /// Who lives; nobody before the API server has answered for the first time.
    pub fn members(&self) -> watch::Receiver<Members> {
        self.members.clone()
    }

    /// Who is told when this node serves all that is asked of it.
    pub fn serving(&self) -> watch::Sender<bool> {
        self.serving.clone()
    }

    /// Leaves, so that the others need not wait.
    pub async fn leave(self) {
        drop(self.task);
        let (lease, parameters) = (lease_of(&self.node.name), DeleteParams::default());
        match timeout(ANSWER, self.api.delete(&lease, &parameters)).await {
            Ok(Ok(_)) => {}
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {}
            Ok(Err(error)) => tracing::info!(%error, "the node's Lease is left to run out"),
            Err(_late) => tracing::info!("the node's Lease is left to run out: no answer"),
        }
    }
}

struct Member {
    api: Api<DynamicObject>,
    resource: ApiResource,
    node: Node,
    serves: watch::Receiver<bool>,
    roll: Roll,
    tell: watch::Sender<Members>,
}

impl Member {
    async fn run(mut self) {
        let mut ticks = tokio::time::interval(self.node.lease_duration / 4);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                Ok(()) = self.serves.changed() => {}
            }
            let asked = Instant::now();
            match timeout(ANSWER, self.round(asked)).await {
                Ok(Ok(())) => self.tell(),
                Ok(Err(kube::Error::Api(status))) => {
                    tracing::warn!(error = %status, "the API server refuses the nodes' Leases");
                }
                Ok(Err(error)) => tracing::debug!(%error, "cannot ask for the nodes' Leases"),
                Err(_late) => tracing::debug!("cannot ask for the nodes' Leases: no answer"),
            }
        }
    }

    /// Renews this node's Lease, and looks at all.
    async fn round(&mut self, now: Instant) -> Result<(), kube::Error> {
        if *self.serves.borrow_and_update() {
            self.renew().await?;
        }
        let leases = self.api.list_metadata(&ListParams::default().labels(LABEL)).await?;
        let seen = leases.items.into_iter().filter_map(|lease| {
            let node = lease.metadata.name?.strip_prefix(PREFIX)?.to_owned();
            Some((node, lease.metadata.resource_version?))
        });
        self.roll.call(seen.collect(), now, self.node.lease_duration / 2);
        Ok(())
    }

    async fn renew(&self) -> Result<(), kube::Error> {
        let name = lease_of(&self.node.name);
        let time = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
        let lease = json!({
            "apiVersion": self.resource.api_version, "kind": self.resource.kind,
            "metadata": {"name": name, "labels": {LABEL: "true"}},
            "spec": {"holderIdentity": self.node.name, "leaseDurationSeconds": self.node.lease_duration.as_secs(), "renewTime": time},
        });
        // Nobody else writes it, so nothing is fought over: server-side apply makes it or renews it.
        let parameters = PatchParams::apply("gatewayd").force();
        self.api.patch(&name, &parameters, &Patch::Apply(lease)).await.map(drop)
    }

    fn tell(&self) {
        let live = self.roll.live(self.node.lease_duration);
        self.tell.send_if_modified(|members| {
            let gone: Vec<&String> = members.live.difference(&live).collect();
            let come: Vec<&String> = live.difference(&members.live).collect();
            let changed = !gone.is_empty() || !come.is_empty();
            if changed {
                tracing::info!(?come, ?gone, "the nodes that serve have changed");
                members.live.clone_from(&live);
            }
            changed
        });
    }
}

fn lease_of(node: &str) -> String {
    format!("{PREFIX}{node}")
}
