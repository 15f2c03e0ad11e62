//! What a pod's status says.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::container::Container;
use crate::cluster::network::{NODE_ADDRESS, NODE_ADDRESS_V6, PodAddresses};

/// The status of a pod whose containers have been started at least once.
pub(super) fn running(
    containers: &[Container],
    addresses: PodAddresses,
    started: Timestamp,
    ready: bool,
) -> Value {
    let all = addresses.all().map(|address| json!({"ip": address}));
    json!({"status": {
        "phase": "Running",
        "podIP": addresses.v4,
        "podIPs": all,
        "hostIP": NODE_ADDRESS,
        "hostIPs": [{"ip": NODE_ADDRESS}, {"ip": NODE_ADDRESS_V6}],
        "startTime": started.to_string(),
        "conditions": conditions(started, ready),
        "containerStatuses": containers.iter().map(|container| of(container, ready)).collect::<Vec<_>>(),
    }})
}

/// The status of a pod that asks for what there is not here.
pub(super) fn refused(container: &str, image: &str, reason: &str) -> Value {
    json!({"status": {
        "phase": "Pending",
        "containerStatuses": [{
            "name": container,
            "image": image,
            "imageID": "",
            "ready": false,
            "restartCount": 0,
            "state": {"waiting": {"reason": "CreateContainerError", "message": reason}},
        }],
    }})
}

/// The scheduler's condition is set by the API server with the binding, and repeated here.
fn conditions(started: Timestamp, ready: bool) -> Value {
    let condition = |kind: &str, holds: bool, since: Timestamp| {
        let status = if holds { "True" } else { "False" };
        json!({"type": kind, "status": status, "lastTransitionTime": since.to_string()})
    };
    let now = Timestamp::now();
    json!([
        condition("PodScheduled", true, started),
        condition("Initialized", true, started),
        condition("ContainersReady", ready, now),
        condition("Ready", ready, now),
    ])
}

fn of(container: &Container, pod_ready: bool) -> Value {
    let since = container.running_since();
    let state = match since {
        Some(since) => json!({"running": {"startedAt": since.to_string()}}),
        None => json!({"waiting": {"reason": "CrashLoopBackOff"}}),
    };
    json!({
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": pod_ready && since.is_some(),
        "started": since.is_some(),
        "restartCount": container.restarts,
        "state": state,
    })
}
