//! The core kinds that Gateway API objects refer to. Fields that gatewayd does not read are known and left alone.

use std::{collections::BTreeMap, net::IpAddr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, de};

use super::{
    Faults, Kind, NAME_MAX,
    format::Format,
    route::PORT,
    schema::{List, Object, Schema},
};

/// Label of an EndpointSlice that names its Service.
pub const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

/// Label that every Namespace has, with its own name.
pub const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Spec of a Service.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Service {
    /// `ClusterIP` when not given.
    #[serde(rename = "type")]
    pub service_type: Option<String>,
    /// Its ports.
    #[serde(default)]
    pub ports: Vec<ServicePort>,
}

/// A port of a Service.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// Its name; endpoints belong to it by this name.
    #[serde(default)]
    pub name: String,
    /// The port that a BackendRef names.
    pub port: u16,
    /// `TCP` when not given.
    pub protocol: Option<String>,
    /// Where the endpoints listen.
    pub target_port: Option<TargetPort>,
    /// What the endpoints speak.
    pub app_protocol: Option<String>,
}

/// A port by number, or by the name that it has in the pods (EndpointSlices hold the number then).
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum TargetPort {
    /// By number.
    Number(u16),
    /// By name.
    Name(String),
}

/// An EndpointSlice.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSlice {
    /// `IPv4`, `IPv6` or `FQDN`.
    pub address_type: String,
    /// Endpoints.
    #[serde(default)]
    pub endpoints: Vec<Endpoint>,
    /// Ports of each endpoint.
    #[serde(default)]
    pub ports: Vec<EndpointPort>,
}

/// An endpoint of an EndpointSlice.
#[derive(Clone, Debug, Deserialize)]
pub struct Endpoint {
    /// All the same endpoint; the first one is used, as Kubernetes does.
    pub addresses: Vec<String>,
    /// How it is.
    #[serde(default)]
    pub conditions: EndpointConditions,
}

/// How an endpoint is.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct EndpointConditions {
    /// Takes new connections; unknown counts as yes.
    pub ready: Option<bool>,
}

/// A port of an EndpointSlice.
#[derive(Clone, Debug, Deserialize)]
pub struct EndpointPort {
    /// The name of the Service's port.
    #[serde(default)]
    pub name: String,
    /// None for all ports.
    pub port: Option<u16>,
    /// `TCP` when not given.
    pub protocol: Option<String>,
}

/// A Secret.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Secret {
    /// `Opaque` when not given.
    #[serde(rename = "type")]
    pub secret_type: Option<String>,
    /// Contents.
    #[serde(default)]
    data: BTreeMap<String, Bytes>,
    /// Contents, written as they are; they win over `data`.
    #[serde(default)]
    string_data: BTreeMap<String, String>,
}

impl Secret {
    /// The contents of a key.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        let plain = self.string_data.get(key).map(String::as_bytes);
        plain.or_else(|| self.data.get(key).map(|bytes| bytes.0.as_slice()))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The contents must not reach a log.
        f.debug_struct("Secret").field("secret_type", &self.secret_type).finish_non_exhaustive()
    }
}

/// A ConfigMap.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ConfigMap {
    /// Contents.
    #[serde(default)]
    pub data: BTreeMap<String, String>,
}

/// A Namespace: only its labels matter, for selectors.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Namespace {}

/// Bytes that are base64 on the wire.
#[derive(Clone)]
struct Bytes(Vec<u8>);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Block scalars wrap base64 over lines.
        let joined: String = String::deserialize(deserializer)?.split_whitespace().collect();
        STANDARD.decode(joined).map(Self).map_err(|_bad| de::Error::custom("not base64"))
    }
}

impl Kind for Service {
    const GROUP: &'static str = "";
    const VERSIONS: &'static [&'static str] = &["v1"];
    const KIND: &'static str = "Service";
    const SCHEMA: &'static Object = &Object::new(
        &[],
        &[
            ("type", Schema::OneOf(&["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"])),
            (
                "ports",
                Schema::List(&List { min: 0, max: 1000, of: SERVICE_PORT, unique: &["port", "protocol"] }),
            ),
            ("allocateLoadBalancerNodePorts", Schema::Any),
            ("clusterIP", Schema::Any),
            ("clusterIPs", Schema::Any),
            ("externalIPs", Schema::Any),
            ("externalName", Schema::Any),
            ("externalTrafficPolicy", Schema::Any),
            ("healthCheckNodePort", Schema::Any),
            ("internalTrafficPolicy", Schema::Any),
            ("ipFamilies", Schema::Any),
            ("ipFamilyPolicy", Schema::Any),
            ("loadBalancerClass", Schema::Any),
            ("loadBalancerIP", Schema::Any),
            ("loadBalancerSourceRanges", Schema::Any),
            ("publishNotReadyAddresses", Schema::Any),
            ("selector", Schema::Any),
            ("sessionAffinity", Schema::Any),
            ("sessionAffinityConfig", Schema::Any),
            ("trafficDistribution", Schema::Any),
        ],
    );
}

const SERVICE_PORT: Schema = Schema::Object(&Object::new(
    &[("port", PORT)],
    &[
        ("name", Schema::Text(0, 63, Format::Free)),
        ("protocol", PROTOCOL),
        ("targetPort", Schema::IntOrText),
        ("appProtocol", Schema::Text(1, NAME_MAX, Format::Free)),
        ("nodePort", Schema::Any),
    ],
));

const PROTOCOL: Schema = Schema::OneOf(&["TCP", "UDP", "SCTP"]);

impl Kind for EndpointSlice {
    const GROUP: &'static str = "discovery.k8s.io";
    const VERSIONS: &'static [&'static str] = &["v1"];
    const KIND: &'static str = "EndpointSlice";
    const UNDER_SPEC: bool = false;
    const SCHEMA: &'static Object = &Object::new(
        &[
            ("addressType", Schema::OneOf(&["IPv4", "IPv6", "FQDN"])),
            ("endpoints", Schema::List(&List::new(0, 1000, ENDPOINT))),
        ],
        &[("ports", Schema::List(&List { min: 0, max: 100, of: ENDPOINT_PORT, unique: &["name"] }))],
    );

    fn rules(&self, faults: &mut Faults) {
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            for (nth, address) in endpoint.addresses.iter().enumerate() {
                let parsed = address.parse::<IpAddr>();
                let good = match self.address_type.as_str() {
                    "IPv4" => parsed.is_ok_and(|address| address.is_ipv4()),
                    "IPv6" => parsed.is_ok_and(|address| address.is_ipv6()),
                    _ => true,
                };
                if !good {
                    let message = format!("must be an {} address, as addressType says", self.address_type);
                    faults.add(format!("endpoints[{index}].addresses[{nth}]"), "bad-format", &message);
                }
            }
        }
    }
}

const ENDPOINT: Schema = Schema::Object(&Object::new(
    &[("addresses", Schema::List(&List::new(1, 100, Schema::Text(1, NAME_MAX, Format::Free))))],
    &[
        ("conditions", CONDITIONS),
        ("deprecatedTopology", Schema::Any),
        ("hints", Schema::Any),
        ("hostname", Schema::Any),
        ("nodeName", Schema::Any),
        ("targetRef", Schema::Any),
        ("zone", Schema::Any),
    ],
));

const CONDITIONS: Schema = Schema::Object(&Object::new(
    &[],
    &[("ready", Schema::Bool), ("serving", Schema::Bool), ("terminating", Schema::Bool)],
));

const ENDPOINT_PORT: Schema = Schema::Object(&Object::new(
    &[],
    &[
        ("name", Schema::Text(0, 63, Format::Free)),
        ("port", PORT),
        ("protocol", PROTOCOL),
        ("appProtocol", Schema::Any),
    ],
));

impl Kind for Secret {
    const GROUP: &'static str = "";
    const VERSIONS: &'static [&'static str] = &["v1"];
    const KIND: &'static str = "Secret";
    const UNDER_SPEC: bool = false;
    const SCHEMA: &'static Object = &Object::new(
        &[],
        &[
            ("type", Schema::Text(0, NAME_MAX, Format::Free)),
            ("data", Schema::Map(usize::MAX, &Schema::Text(0, DATA_MAX, Format::Base64))),
            ("stringData", Schema::Map(usize::MAX, &Schema::Text(0, DATA_MAX, Format::Free))),
            ("immutable", Schema::Any),
        ],
    );
}

impl Kind for ConfigMap {
    const GROUP: &'static str = "";
    const VERSIONS: &'static [&'static str] = &["v1"];
    const KIND: &'static str = "ConfigMap";
    const UNDER_SPEC: bool = false;
    const SCHEMA: &'static Object = &Object::new(
        &[],
        &[
            ("data", Schema::Map(usize::MAX, &Schema::Text(0, DATA_MAX, Format::Free))),
            ("binaryData", Schema::Any),
            ("immutable", Schema::Any),
        ],
    );
}

impl Kind for Namespace {
    const GROUP: &'static str = "";
    const VERSIONS: &'static [&'static str] = &["v1"];
    const KIND: &'static str = "Namespace";
    const NAMESPACED: bool = false;
    const SCHEMA: &'static Object = &Object::new(&[], &[("finalizers", Schema::Any)]);
}

/// Kubernetes keeps a Secret or ConfigMap below 1 MiB; base64 makes a third more of it.
const DATA_MAX: usize = 1_500_000;
