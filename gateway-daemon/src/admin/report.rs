//! What `gatewayd status` shows. Field names in JSON are camelCase and stable.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};

/// The state of the daemon.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Version of the daemon.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Number of the model that is served, counted from 1; 0 before the first one.
    pub generation: u64,
    /// When that model was published (RFC 3339).
    pub applied_at: Option<String>,
    /// The newest change that was not taken, while its faults are there.
    pub last_rejected: Option<Rejection>,
    /// What the newest model could not bring into the kernel or onto the node, if anything.
    pub apply_failures: Vec<ApplyFailure>,
    /// Conditions that are not as they should be, as sentences with their place.
    pub diagnostics: Vec<FaultReport>,
    /// Listeners of all Gateways.
    pub listeners: Vec<ListenerReport>,
    /// Sockets of the proxy that could not be opened.
    pub binds: Vec<BindReport>,
    /// Services steered in the kernel.
    pub services: Vec<L4ServiceReport>,
    /// Services of the proxy.
    pub http_services: Vec<L7ServiceReport>,
    /// Addresses of Gateways.
    #[serde(default)]
    pub addresses: Vec<AddressReport>,
    /// Network devices with our programs.
    pub devices: Vec<DeviceReport>,
    /// Packets by entry (`xdp`, `tc`) and outcome.
    pub counters: BTreeMap<String, BTreeMap<String, u64>>,
}

/// A change that was not taken.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rejection {
    /// When it was read (RFC 3339).
    pub at: String,
    /// Why, each with its place.
    pub faults: Vec<FaultReport>,
}

/// A sentence about a place in a file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FaultReport {
    /// The file; empty when it is not about a file.
    pub file: String,
    /// Line, from 1; 0 when unknown.
    pub line: usize,
    /// Column, from 1; 0 when unknown.
    pub column: usize,
    /// Stable, in kebab-case.
    pub code: String,
    /// What is wrong and what to do.
    pub message: String,
}

/// Something of the model that is not in force.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplyFailure {
    /// What was tried.
    pub what: String,
    /// Why it failed.
    pub error: String,
}

/// An address of a Gateway.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressReport {
    /// The address.
    pub address: IpAddr,
    /// Which of several nodes has it, if one at a time does.
    pub node: Option<String>,
    /// Whether this node has it.
    pub here: bool,
}

/// One listener of a Gateway.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerReport {
    /// `NAMESPACE/NAME` of the Gateway.
    pub gateway: String,
    /// Name of the listener.
    pub name: String,
    /// Addresses of the Gateway.
    pub addresses: Vec<IpAddr>,
    /// Port.
    pub port: u16,
    /// `HTTP`, `HTTPS`, `TCP` or `UDP`.
    pub protocol: String,
    /// Whether its condition Programmed is true.
    pub programmed: bool,
    /// Routes attached.
    pub attached_routes: usize,
}

/// A socket that the proxy could not open.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BindReport {
    /// Address and port.
    pub address: String,
    /// Why.
    pub error: String,
}

/// A service in the kernel.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct L4ServiceReport {
    /// Its name; none while the listener has no route.
    pub name: Option<String>,
    /// Address that clients connect to.
    pub address: IpAddr,
    /// Port that clients connect to.
    pub port: u16,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// `NAMESPACE/GATEWAY/LISTENER`.
    pub listener: String,
    /// Whether the listener is gone, and the service only keeps the flows that it has.
    pub draining: bool,
    /// Flows that began since the service came to be (refused ones are not flows).
    pub flows: u64,
    /// Share of weight that refuses, 0 to 1.
    pub refused_share: f64,
    /// Backends, draining ones included.
    pub backends: Vec<BackendReport>,
}

/// A backend of a service in the kernel.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendReport {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// Share of new flows asked for, 0 to 1.
    pub asked_share: f64,
    /// Share of the service's flows seen, 0 to 1.
    pub seen_share: f64,
    /// Flows that began.
    pub flows: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
    /// Whether it only keeps the flows that it has.
    pub draining: bool,
}

/// A service of the proxy.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct L7ServiceReport {
    /// Its name.
    pub name: String,
    /// Requests since it came to be.
    pub requests: u64,
    /// Its BackendRefs.
    pub backends: Vec<L7BackendReport>,
}

/// A BackendRef of a service of the proxy.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct L7BackendReport {
    /// `NAMESPACE/NAME:PORT`.
    pub name: String,
    /// Share of requests asked for, 0 to 1.
    pub asked_share: f64,
    /// Share of the service's requests seen, 0 to 1.
    pub seen_share: f64,
    /// Requests.
    pub requests: u64,
    /// Endpoints that are ready.
    pub endpoints: usize,
}

/// A network device.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceReport {
    /// Name of the interface.
    pub name: String,
    /// `xdp native`, `xdp generic` or `tc`.
    pub mode: String,
    /// Why this entry.
    pub why: String,
}
