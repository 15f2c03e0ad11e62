//! What is served while things go wrong: one Gateway, an HTTPRoute, a TCPRoute and a certificate.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use gateway_tests::backend::{Backend, Serve};
use gateway_tests::client::http::{Connection, Protocol};
use gateway_tests::cluster::{PodNetwork, Standing};
use gateway_tests::tls::Identity;
use gateway_tests::wait::eventually;
use serde_json::{Value, json};

use super::SOON;

pub(crate) const NAME: &str = "web.example.com";
pub(crate) const URI: &str = "http://web.example.com/";
pub(crate) const TLS_URI: &str = "https://web.example.com/";

const GATEWAY_API: &str = "gateway.networking.k8s.io/v1";

/// Kinds whose statuses gatewayd writes here.
const WRITTEN: &str = "gatewayclasses,gateways,httproutes,tcproutes";

/// What is not of objects that stay as they are: signs of life, and a view of the control plane's own parts.
const EVER_CHANGING: [&str; 4] =
    ["componentstatuses", "events", "events.events.k8s.io", "leases.coordination.k8s.io"];

/// Everything that one can see of an object, by kind and name.
pub(crate) type Seen = BTreeMap<String, Value>;

/// The objects and the backends behind them.
pub(crate) struct Scene {
    pub(crate) stand: Standing,
    /// For files that `kubectl` is given.
    pub(crate) state: PathBuf,
    _backends: Vec<(PodNetwork, Backend)>,
    address: IpAddr,
}

impl Scene {
    /// Makes the objects; nobody serves them yet.
    pub(crate) fn create(
        stand: Standing,
        pods: Vec<PodNetwork>,
        state: PathBuf,
        identity: &Identity,
    ) -> Self {
        let addresses: Vec<String> = pods.iter().map(|pod| pod.addresses.v4.to_string()).collect();
        let serve = [Serve::Http(3000), Serve::Tcp(7000)];
        let start = |(number, pod): (usize, PodNetwork)| {
            let backend = Backend::start(&pod.netns, &format!("backend-{number}"), &serve).unwrap();
            (pod, backend)
        };
        let backends = pods.into_iter().enumerate().map(start).collect();
        let scene = Self { stand, state, _backends: backends, address: IpAddr::from([0, 0, 0, 0]) };
        let mut objects = vec![gateway(), secret(identity), http_route(0), tcp_route()];
        for (name, port) in [("web", 3000), ("tcp", 7000)] {
            objects.extend(service(name, port, &addresses));
        }
        scene.apply(&objects);
        scene
    }

    /// Waits until gatewayd has given the Gateway its address, and everything is served.
    pub(crate) fn wait_until_served(&mut self) {
        self.address = eventually(SOON, "the Gateway's address", || {
            let gateway: Value =
                serde_json::from_str(&self.stand.kubectl(&["get", "gateway", "edge", "--output=json"])?)?;
            let addresses = gateway["status"]["addresses"].as_array().cloned().unwrap_or_default();
            let values = addresses.iter().filter_map(|one| one["value"].as_str()?.parse().ok());
            values.into_iter().find(IpAddr::is_ipv4).with_context(|| gateway["status"].to_string())
        });
        eventually(SOON, "the Gateway to be programmed", || {
            let found = self.stand.kubectl(&["wait", "--for=condition=Programmed", "gateway/edge"]);
            found.map(drop)
        });
        self.wait_for_version(0);
    }

    /// Where the listener with this port is.
    pub(crate) fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address, port)
    }

    /// Writes objects as they are to be.
    pub(crate) fn apply(&self, objects: &[Value]) {
        let file = self.state.join("apply.json");
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        fs::write(&file, list.to_string()).unwrap();
        let file = format!("--filename={}", file.display());
        self.stand.kubectl(&["apply", "--server-side", &file]).unwrap();
    }

    /// Waits until requests are answered by this version of the route.
    #[track_caller]
    pub(crate) fn wait_for_version(&self, version: u32) {
        eventually(SOON, "the route's newest version to be served", || {
            let found = self.stand.control.block_on(|| async {
                let mut connection = Connection::open(self.at(80), &Protocol::Http1).await?;
                let answer = connection.get(URI).await?;
                answer.headers.get("x-version").cloned().with_context(|| format!("none: {}", answer.status))
            })?;
            ensure!(found == version.to_string().as_str(), "{found:?} is served, not {version}");
            Ok(())
        });
    }

    /// The statuses that gatewayd writes. Each must tell of the newest version of its object; apart from that number,
    /// all of it is returned, times too: a condition that went away and came back has another one.
    pub(crate) fn statuses(&self) -> Result<Seen> {
        let mut seen = Seen::new();
        for mut object in self.list(WRITTEN)? {
            let generation = object["metadata"]["generation"].clone();
            let (id, mut status) = (id(&object), object["status"].take());
            ensure!(status.to_string().contains("observedGeneration"), "{id} has no status yet");
            drop_observed(&mut status, &generation).with_context(|| id.clone())?;
            seen.insert(id, status);
        }
        Ok(seen)
    }

    /// Waits until statuses are as they were.
    #[track_caller]
    pub(crate) fn wait_for_statuses(&self, before: &Seen) {
        eventually(SOON, "statuses as they were", || differences(before, &self.statuses()?));
    }

    /// The versions of all objects that the API server has.
    pub(crate) fn versions(&self) -> Seen {
        let kinds = self.stand.kubectl(&["api-resources", "--verbs=list", "--output=name"]).unwrap();
        let kinds: Vec<&str> =
            kinds.split_whitespace().filter(|kind| !EVER_CHANGING.contains(kind)).collect();
        assert!(kinds.len() > 30, "too few kinds to prove anything: {kinds:?}");
        let objects = self.list(&kinds.join(",")).unwrap();
        objects.iter().map(|object| (id(object), object["metadata"]["resourceVersion"].clone())).collect()
    }

    fn list(&self, kinds: &str) -> Result<Vec<Value>> {
        let listed = self.stand.kubectl(&["get", kinds, "--all-namespaces", "--output=json"])?;
        let listed: Value = serde_json::from_str(&listed)?;
        listed["items"].as_array().cloned().context("a list")
    }
}

/// That both are the same, or what is not.
pub(crate) fn differences(before: &Seen, after: &Seen) -> Result<()> {
    let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differs = |name: &&&String| before.get(**name) != after.get(**name);
    let differing = names.iter().filter(differs);
    let told: Vec<String> = differing
        .map(|name| format!("{name}: {:?} became {:?}", before.get(*name), after.get(*name)))
        .collect();
    ensure!(told.is_empty(), "{}", told.join("\n"));
    Ok(())
}

/// Statuses without the times of conditions.
pub(crate) fn timeless(mut seen: Seen) -> Seen {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.remove("lastTransitionTime");
                fields.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    seen.values_mut().for_each(strip);
    seen
}

fn drop_observed(status: &mut Value, generation: &Value) -> Result<()> {
    match status {
        Value::Object(fields) => {
            if let Some(observed) = fields.remove("observedGeneration")
                && observed != *generation
            {
                bail!("it tells of generation {observed}, not {generation}");
            }
            fields.values_mut().try_for_each(|value| drop_observed(value, generation))
        }
        Value::Array(items) => items.iter_mut().try_for_each(|value| drop_observed(value, generation)),
        _ => Ok(()),
    }
}

fn id(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let (kind, version) = (object["kind"].as_str(), object["apiVersion"].as_str());
    format!("{} {} {}/{}", version.unwrap_or("v1"), kind.unwrap_or_default(), text("namespace"), text("name"))
}

fn gateway() -> Value {
    let certificate = json!({"certificateRefs": [{"name": "certificate"}]});
    json!({
        "apiVersion": GATEWAY_API, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "default"},
        "spec": {"gatewayClassName": "gateway-conformance", "listeners": [
            {"name": "http", "port": 80, "protocol": "HTTP"},
            {"name": "https", "port": 443, "protocol": "HTTPS", "tls": certificate},
            {"name": "tcp", "port": 9000, "protocol": "TCP"},
        ]},
    })
}

/// A certificate as the Gateway refers to it.
pub(crate) fn secret(identity: &Identity) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": "certificate", "namespace": "default"},
        "stringData": {"tls.crt": identity.certificate_pem, "tls.key": identity.key_pem},
    })
}

/// The route of the load; responses tell the version.
pub(crate) fn http_route(version: u32) -> Value {
    let headers = json!([{"name": "x-version", "value": version.to_string()}]);
    json!({
        "apiVersion": GATEWAY_API, "kind": "HTTPRoute", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"parentRefs": [{"name": "edge"}], "hostnames": [NAME], "rules": [{
            "filters": [{"type": "ResponseHeaderModifier", "responseHeaderModifier": {"set": headers}}],
            "backendRefs": [{"name": "web", "port": 80}],
        }]},
    })
}

/// The route of the long-lived connections.
pub(crate) fn tcp_route() -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "TCPRoute",
        "metadata": {"name": "tcp", "namespace": "default"},
        "spec": {"parentRefs": [{"name": "edge", "sectionName": "tcp"}],
            "rules": [{"backendRefs": [{"name": "tcp", "port": 80}]}]},
    })
}

/// A Service without a selector, and its endpoints.
fn service(name: &str, port: u16, addresses: &[String]) -> [Value; 2] {
    let endpoints: Vec<Value> = addresses
        .iter()
        .map(|address| json!({"addresses": [address], "conditions": {"ready": true}}))
        .collect();
    [
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
            "spec": {"ports": [{"name": "main", "port": 80, "targetPort": port}]},
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": format!("{name}-1"), "namespace": "default",
                "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "main", "port": port}],
        }),
    ]
}
