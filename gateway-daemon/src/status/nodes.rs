//! What every node has in force: each writes a `GatewayNode` of its own, and the one that writes statuses reads all.
//!
//! An object of our own rather than an annotation of the node's Lease: a Lease is written every few seconds and read by
//! every node, while the list of a thousand Gateways changes rarely and only one node reads it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::{Value, json};
use tokio::{sync::watch, time::timeout};

use super::Applied;
use crate::{
    api::{Key, OWN_GROUP},
    members::Members,
};

/// Between two writes at least, and between two tries.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the API server may take for an answer.
const ANSWER: Duration = Duration::from_secs(10);

/// The generations of Gateways that are in force, by node.
pub(super) type Reports = BTreeMap<String, BTreeMap<Key, i64>>;

/// The first of the other nodes that live which has not applied this generation of a Gateway.
pub(super) fn behind<'m>(
    reports: &Reports,
    members: &'m Members,
    key: &Key,
    generation: i64,
) -> Option<&'m str> {
    let has = |node: &str| reports.get(node).and_then(|gateways| gateways.get(key)).copied();
    let others = members.live.iter().filter(|node| **node != members.own);
    others.map(String::as_str).find(|node| has(node).is_none_or(|applied| applied < generation))
}

/// Writes this node's report whenever it changes.
pub(super) async fn write(client: Client, node: String, mut applied: watch::Receiver<Option<Arc<Applied>>>) {
    let api = api(client);
    // After a restart over a cluster that has not changed, nothing is written.
    let mut written = match timeout(ANSWER, api.get_opt(&node)).await {
        Ok(Ok(Some(object))) => {
            Some(json!({"version": object.data["version"], "gateways": object.data["gateways"]}))
        }
        _ => None,
    };
    let mut missing = false;
    while applied.changed().await.is_ok() {
        let Some(report) = applied.borrow_and_update().as_deref().and_then(report) else { continue };
        if written.as_ref() == Some(&report) {
            continue;
        }
        let mut object = report.clone();
        object["apiVersion"] = json!(format!("{OWN_GROUP}/v1alpha1"));
        object["kind"] = json!("GatewayNode");
        object["metadata"] = json!({"name": node});
        let parameters = PatchParams::apply("gatewayd").force();
        match timeout(ANSWER, api.patch(&node, &parameters, &Patch::Apply(object))).await {
            Ok(Ok(_)) => {
                written = Some(report);
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                if !std::mem::replace(&mut missing, true) {
                    tracing::info!("there is no CRD of GatewayNode: Programmed speaks of one node alone");
                }
            }
            Ok(Err(error)) => tracing::warn!(%error, "cannot report what this node has applied"),
            Err(_late) => tracing::warn!("cannot report what this node has applied: no answer"),
        }
        // What could not be written is tried again.
        tokio::time::sleep(PAUSE).await;
        applied.mark_changed();
    }
}

/// Takes this node's report away.
pub(super) async fn withdraw(client: Client, node: &str) {
    let (api, parameters) = (api(client), DeleteParams::default());
    match timeout(ANSWER, api.delete(node, &parameters)).await {
        Ok(Ok(_)) => {}
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => {}
        Ok(Err(error)) => tracing::info!(%error, "the node's report is left behind"),
        Err(_late) => tracing::info!("the node's report is left behind: no answer"),
    }
}

/// Reads all nodes' reports while this node leads. There are none as long as the kind is not installed.
pub(super) async fn read(
    client: Client,
    mut leads: watch::Receiver<bool>,
    tell: watch::Sender<Option<Reports>>,
) {
    let api = api(client);
    loop {
        if leads.wait_for(|leads| *leads).await.is_err() {
            return;
        }
        let follow = follow(&api, &tell);
        let stop = leads.wait_for(|leads| !*leads);
        tokio::select! {
            () = follow => {}
            _ = stop => {}
        }
        tell.send_replace(None);
    }
}

async fn follow(api: &Api<DynamicObject>, tell: &watch::Sender<Option<Reports>>) {
    let mut events = std::pin::pin!(watcher(api.clone(), watcher::Config::default()).default_backoff());
    let mut reports = Reports::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => reports = Reports::new(),
            Ok(watcher::Event::InitApply(object)) => drop(take(&mut reports, &object)),
            Ok(watcher::Event::Apply(object)) => {
                drop(take(&mut reports, &object));
                tell.send_replace(Some(reports.clone()));
            }
            Ok(watcher::Event::InitDone) => drop(tell.send_replace(Some(reports.clone()))),
            Ok(watcher::Event::Delete(object)) => {
                object.metadata.name.and_then(|node| reports.remove(&node));
                tell.send_replace(Some(reports.clone()));
            }
            // The watcher tries again, after growing pauses.
            Err(error) => tracing::debug!(%error, "cannot watch the nodes' reports"),
        }
    }
}

fn take(reports: &mut Reports, object: &DynamicObject) -> Option<BTreeMap<Key, i64>> {
    let gateway = |of: &Value| {
        Some((Key::new(of["namespace"].as_str()?, of["name"].as_str()?), of["generation"].as_i64()?))
    };
    let gateways = object.data["gateways"].as_array().map(Vec::as_slice).unwrap_or_default();
    reports.insert(object.metadata.name.clone()?, gateways.iter().filter_map(gateway).collect())
}

/// What this node has in force; as long as something is held back, what was told before holds.
fn report(applied: &Applied) -> Option<Value> {
    if applied.held.is_some() {
        return None;
    }
    let gateways = applied.statuses.gateways.iter().filter(|(key, _)| !applied.closed.contains_key(key));
    let gateways: Vec<Value> = gateways
        .filter_map(|(key, status)| {
            let generation = status.conditions.first()?.observed_generation?;
            Some(json!({"namespace": key.namespace, "name": key.name, "generation": generation}))
        })
        .collect();
    Some(json!({"version": env!("CARGO_PKG_VERSION"), "gateways": gateways}))
}

fn api(client: Client) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: OWN_GROUP.to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: format!("{OWN_GROUP}/v1alpha1"),
        kind: "GatewayNode".to_owned(),
        plural: "gatewaynodes".to_owned(),
    };
    Api::all_with(client, &resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_waits_for_every_other_node_that_lives() {
        let key = Key::new("default", "g");
        let members = |live: &[&str]| Members {
            own: "a".to_owned(),
            live: live.iter().map(|node| (*node).to_owned()).collect(),
        };
        let reports = |nodes: &[(&str, i64)]| -> Reports {
            let one = |(node, generation): &(&str, i64)| {
                ((*node).to_owned(), BTreeMap::from([(key.clone(), *generation)]))
            };
            nodes.iter().map(one).collect()
        };
        for (live, reported, expected) in [
            (&["a"][..], &[][..], None),
            (&["a", "b"], &[("b", 2)], None),
            (&["a", "b"], &[("b", 3)], None),
            (&["a", "b"], &[("b", 1)], Some("b")),
            (&["a", "b"], &[("a", 2)], Some("b")),
            (&["a", "c"], &[("b", 1), ("c", 2)], None),
        ] {
            let (reports, members) = (reports(reported), members(live));
            assert_eq!(behind(&reports, &members, &key, 2), expected, "{live:?}, {reported:?}");
        }
    }
}
