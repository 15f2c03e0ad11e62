//! Statuses back to the API server, by one node at a time.
//!
//! ```text
//! applied: what compilation says, once the data plane has it ─┐
//! observed: what the API server has                          ─┼─▶ patch ─▶ PATCH …/status, if it differs
//! leads: whether this node holds the Lease                   ─┤
//! nodes: what the others have in force                       ─┘
//! ```
//! Each patch carries the version of the object that it was made of: if somebody else was faster it is refused, and
//! made again of what they wrote.

mod features;
mod lease;
mod nodes;
mod patch;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::StreamExt as _;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};
use tokio_util::task::AbortOnDropHandle;

use self::nodes::Reports;
pub use self::{features::SUPPORTED_FEATURES, lease::Election};
use crate::{
    api::{Key, served::KINDS},
    compile::status::{Condition, Statuses},
    members::Members,
    observe::{Kubernetes as Metrics, WriteResult},
    source::kubernetes::{Id, Observed, ObservedObjects, discover},
};

/// What was compiled last, and what became of it on this node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applied {
    /// What to tell each object.
    pub statuses: Statuses,
    /// Why the data plane is not where it should be.
    pub held: Option<String>,
    /// Gateways with a socket that could not be opened, and why.
    pub closed: BTreeMap<Key, String>,
}

/// How many patches may be under way.
const AT_ONCE: usize = 8;
/// Patches a second, after a burst of as many.
const PER_SECOND: u32 = 100;
/// After a failure, what is left is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Answers that say that the object is not what it was: it is gone, or somebody else was faster.
const OUTDATED: [u16; 2] = [404, 409];
/// How long a patch may take.
const ANSWER: Duration = Duration::from_secs(10);

/// What tells what there is to write.
#[derive(Debug)]
pub struct Inputs {
    /// Written by the writer task, after each publication; its first value is nothing at all.
    pub applied: watch::Receiver<Option<Arc<Applied>>>,
    /// Written by the source.
    pub observed: watch::Receiver<Arc<ObservedObjects>>,
    /// Written by the election.
    pub leads: watch::Receiver<bool>,
    /// Written by the membership.
    pub members: watch::Receiver<Members>,
}

/// What writes to the API server, until this is dropped.
pub struct Writers {
    client: Client,
    node: String,
    tasks: Vec<AbortOnDropHandle<()>>,
}

impl Writers {
    /// Ends the writing.
    pub fn stop(&mut self) {
        self.tasks.clear();
    }

    /// Takes away what is only true while this node serves.
    pub async fn withdraw(mut self) {
        self.stop();
        nodes::withdraw(self.client, &self.node).await;
    }
}

/// Starts to write statuses, on the current runtime, until the handle is dropped.
pub fn start(client: Client, inputs: Inputs, metrics: Metrics) -> Writers {
    let budget = Budget { left: PER_SECOND, refilled: Instant::now() };
    let (resources, written) = (BTreeMap::new(), BTreeMap::new());
    let (tell, reports) = watch::channel(None);
    let node = inputs.members.borrow().own.clone();
    let write = tokio::spawn(nodes::write(client.clone(), node.clone(), inputs.applied.clone()));
    let read = tokio::spawn(nodes::read(client.clone(), inputs.leads.clone(), tell));
    let reporter = Reporter { client: client.clone(), inputs, reports, metrics, resources, written, budget };
    let tasks = vec![tokio::spawn(reporter.run()), write, read];
    Writers { client, node, tasks: tasks.into_iter().map(AbortOnDropHandle::new).collect() }
}

struct Reporter {
    client: Client,
    inputs: Inputs,
    /// What the other nodes have in force, if they tell.
    reports: watch::Receiver<Option<Reports>>,
    metrics: Metrics,
    /// How the API server calls each kind.
    resources: BTreeMap<&'static str, ApiResource>,
    /// What was written and has not been heard of yet: the version it replaced, and what there is since.
    written: BTreeMap<Id, (String, Observed)>,
    budget: Budget,
}

/// A status to write.
struct Task {
    id: Id,
    replaces: Observed,
    fields: Value,
}

impl Reporter {
    async fn run(mut self) {
        let mut retry = None;
        loop {
            tokio::select! {
                Ok(()) = self.inputs.applied.changed() => {}
                Ok(()) = self.inputs.observed.changed() => {}
                Ok(()) = self.inputs.leads.changed() => {}
                Ok(()) = self.inputs.members.changed() => {}
                Ok(()) = self.reports.changed() => {}
                () = tokio::time::sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => {}
                else => return,
            }
            let applied = self.inputs.applied.borrow_and_update().clone();
            let observed = Arc::clone(&self.inputs.observed.borrow_and_update());
            self.written.retain(|id, (replaced, _)| {
                observed.get(id).is_some_and(|observed| observed.resource_version == *replaced)
            });
            let leads = *self.inputs.leads.borrow_and_update();
            self.inputs.members.mark_unchanged();
            self.reports.mark_unchanged();
            let Some(applied) = applied.filter(|_| leads) else {
                retry = None;
                continue;
            };
            let tasks = self.tasks(&applied, &observed);
            let done = self.write(tasks).await;
            retry = (!done).then(|| Instant::now() + RETRY);
        }
    }

    /// Everything that differs.
    fn tasks(&self, applied: &Applied, observed: &ObservedObjects) -> Vec<Task> {
        let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let newest = |(id, heard)| (id, self.written.get(id).map_or(heard, |(_, written)| written));
        let task = |(id, observed): (&Id, &Observed)| {
            let fields = wanted(applied, self.behind(id, observed).as_deref(), id, observed, &now)?;
            Some(Task { id: id.clone(), replaces: observed.clone(), fields })
        };
        observed.iter().map(newest).filter_map(task).collect()
    }

    /// Why a Gateway is not programmed everywhere, if another node says so.
    fn behind(&self, (kind, key): &Id, observed: &Observed) -> Option<String> {
        let reports = self.reports.borrow();
        let (reports, generation) = (reports.as_ref().filter(|_| *kind == "Gateway")?, observed.generation?);
        let members = self.inputs.members.borrow();
        let node = nodes::behind(reports, &members, key, generation)?;
        Some(format!("node {node} has not applied it yet"))
    }

    /// Writes all of these. Says whether nothing is left to be tried again without being told.
    async fn write(&mut self, tasks: Vec<Task>) -> bool {
        let mut kinds: BTreeSet<&'static str> = tasks.iter().map(|task| task.id.0).collect();
        kinds.retain(|kind| !self.resources.contains_key(kind));
        for kind in kinds {
            if let Some(served) = KINDS.iter().find(|served| served.kind == kind) {
                match discover(&self.client, served).await {
                    Ok(Some(resource)) => drop(self.resources.insert(kind, resource)),
                    Ok(None) => {}
                    Err(error) => tracing::warn!(kind, %error, "cannot ask the API server"),
                }
            }
        }
        let (client, resources, budget, leads) =
            (&self.client, &self.resources, &mut self.budget, &self.inputs.leads);
        let mut all_done = true;
        let mut tasks = tasks.into_iter();
        let mut under_way = futures_util::stream::FuturesUnordered::new();
        let mut results = Vec::new();
        loop {
            while under_way.len() < AT_ONCE && *leads.borrow() {
                let Some(task) = tasks.next() else { break };
                let Some(resource) = resources.get(task.id.0) else {
                    all_done = false;
                    continue;
                };
                budget.spend().await;
                under_way.push(send(client.clone(), resource, task));
            }
            let Some(result) = under_way.next().await else { break };
            results.push(result);
        }
        drop(under_way);
        for (task, result) in results {
            all_done &= self.take(task, result);
        }
        all_done
    }

    /// Remembers what was written. Says whether nothing is left to do about it.
    fn take(&mut self, task: Task, result: Result<DynamicObject, Failure>) -> bool {
        let (kind, key) = &task.id;
        self.metrics.status_sent(match &result {
            Ok(_) => WriteResult::written,
            Err(Failure::Refused(error)) if OUTDATED.contains(&error.code) => WriteResult::outdated,
            Err(_) => WriteResult::failed,
        });
        match result {
            Ok(object) => {
                tracing::debug!(kind, %key, "status written");
                // Until the source has heard of it, this is what the API server has. A version that this replaced
                // is kept from before, if the source has not even heard of that one.
                let replaced = self
                    .written
                    .remove(&task.id)
                    .map_or(task.replaces.resource_version, |(replaced, _)| replaced);
                let observed = Observed {
                    resource_version: object.metadata.resource_version.unwrap_or_default(),
                    generation: object.metadata.generation,
                    status: object.data.get("status").cloned().unwrap_or_default(),
                };
                self.written.insert(task.id, (replaced, observed));
                true
            }
            // Somebody else was faster, or it is gone: the source hears of it.
            Err(Failure::Refused(error)) if OUTDATED.contains(&error.code) => {
                self.written.remove(&task.id);
                if error.code == 404 {
                    // Or the kind is served in another version now.
                    self.resources.remove(kind);
                }
                true
            }
            Err(failure) => {
                self.resources.remove(kind);
                let error = failure.to_string();
                tracing::warn!(kind, %key, error, "cannot write the status; it is tried again");
                false
            }
        }
    }
}

/// Why a status was not written.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the API server refused it: {0}")]
    Refused(Box<kube::core::Status>),
    #[error("the API server cannot be asked: {0}")]
    Unasked(kube::Error),
    #[error("the API server did not answer within {} s", ANSWER.as_secs())]
    Unanswered,
}

async fn send(client: Client, resource: &ApiResource, task: Task) -> (Task, Result<DynamicObject, Failure>) {
    let (_, key) = &task.id;
    let api: Api<DynamicObject> = if key.namespace.is_empty() {
        Api::all_with(client, resource)
    } else {
        Api::namespaced_with(client, &key.namespace, resource)
    };
    let patch = json!({
        "metadata": {"resourceVersion": task.replaces.resource_version},
        "status": task.fields,
    });
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
    let sent = tokio::time::timeout(ANSWER, api.patch_status(&key.name, &parameters, &patch)).await;
    let result = match sent {
        Ok(Ok(object)) => Ok(object),
        Ok(Err(kube::Error::Api(status))) => Err(Failure::Refused(status)),
        Ok(Err(error)) => Err(Failure::Unasked(error)),
        Err(_late) => Err(Failure::Unanswered),
    };
    (task, result)
}

/// The fields of an object's status that are to be written, if any. What was compiled of an older generation is not:
/// the next compilation is on its way.
fn wanted(
    applied: &Applied,
    behind: Option<&str>,
    (kind, key): &Id,
    observed: &Observed,
    now: &str,
) -> Option<Value> {
    let current = |conditions: &[Condition]| {
        conditions.iter().all(|said| said.observed_generation == observed.generation)
    };
    let statuses = &applied.statuses;
    match *kind {
        "GatewayClass" => {
            let ours = statuses.classes.get(&key.name).filter(|ours| current(ours))?;
            patch::class(&observed.status, ours, &SUPPORTED_FEATURES, now)
        }
        "Gateway" => {
            let ours = statuses.gateways.get(key).filter(|ours| current(&ours.conditions))?;
            let held = applied.held.as_ref().or_else(|| applied.closed.get(key)).map(String::as_str);
            patch::gateway(&observed.status, ours, held.or(behind), now)
        }
        _ => {
            let ours = statuses.routes.get(&(*kind, key.clone())).map_or(&[][..], Vec::as_slice);
            let all_current = ours.iter().all(|parent| current(&parent.conditions));
            if all_current { patch::route(&observed.status, ours, now) } else { None }
        }
    }
}

/// How many patches may be sent.
struct Budget {
    left: u32,
    refilled: Instant,
}

impl Budget {
    /// Waits until one more may be sent.
    async fn spend(&mut self) {
        let second = Duration::from_secs(1);
        if self.refilled.elapsed() >= second {
            (self.left, self.refilled) = (PER_SECOND, Instant::now());
        }
        if self.left == 0 {
            tokio::time::sleep_until(self.refilled + second).await;
            (self.left, self.refilled) = (PER_SECOND, Instant::now());
        }
        self.left -= 1;
    }
}
