//! The node object.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, from_value, json};

use super::server;
use crate::cluster::network::{NODE_ADDRESS, NODE_ADDRESS_V6};

/// The one node's name.
pub(super) const NODE: &str = "bench";

/// Makes the Node, ready from the start.
///
/// # Errors
/// When the API server refuses it.
pub(super) async fn register(client: &Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let labels = json!({"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux"});
    let node: Node = from_value(json!({"metadata": {"name": NODE, "labels": labels}}))?;
    nodes.create(&PostParams::default(), &node).await.context("register the node")?;
    let status = Patch::Merge(json!({"status": status(Timestamp::now())}));
    nodes.patch_status(NODE, &PatchParams::default(), &status).await.context("report the node's status")?;
    // Admission taints every new node until its controller, which does not run here, has seen it ready.
    let untainted = Patch::Merge(json!({"spec": {"taints": null}}));
    nodes.patch(NODE, &PatchParams::default(), &untainted).await.context("remove the node's taints").map(drop)
}

fn status(now: Timestamp) -> Value {
    let now = now.to_string();
    json!({
        "addresses": [
            {"type": "Hostname", "address": NODE},
            {"type": "InternalIP", "address": NODE_ADDRESS},
            {"type": "InternalIP", "address": NODE_ADDRESS_V6},
        ],
        "capacity": {"pods": "1000", "cpu": "1000", "memory": "1Ti"},
        "allocatable": {"pods": "1000", "cpu": "1000", "memory": "1Ti"},
        "conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "pods are processes of the bench",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": server::PORT}},
    })
}
