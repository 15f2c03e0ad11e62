//! `Backend`, our own kind: servers by address or hostname, so that nobody needs a Service and an EndpointSlice to
//! name two of them.

use std::net::IpAddr;

use serde::Deserialize;

use super::{
    Faults, Kind, NAME_MAX, OWN_GROUP,
    format::Format,
    route::PORT,
    schema::{List, Object, Schema},
};

/// Spec of a Backend.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Backend {
    /// The servers. A BackendRef's weight is divided among them evenly.
    pub endpoints: Vec<Endpoint>,
    /// What they speak, with the words that a Service's port has for it.
    pub app_protocol: Option<String>,
}

/// A server: a port, and either an address or a hostname.
#[derive(Clone, Debug, Deserialize)]
pub struct Endpoint {
    /// Its address.
    pub address: Option<IpAddr>,
    /// Or its name, resolved by the daemon.
    pub hostname: Option<String>,
    /// Its port.
    pub port: u16,
}

impl Kind for Backend {
    const GROUP: &'static str = OWN_GROUP;
    const VERSIONS: &'static [&'static str] = &["v1alpha1"];
    const KIND: &'static str = "Backend";
    const SCHEMA: &'static Object = &Object::new(
        &[(
            "endpoints",
            Schema::List(&List { min: 1, max: 1000, of: ENDPOINT, unique: &["address", "hostname", "port"] }),
        )],
        &[("appProtocol", Schema::Text(1, NAME_MAX, Format::Free))],
    );

    fn rules(&self, faults: &mut Faults) {
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            let path = format!("spec.endpoints[{index}]");
            match (&endpoint.address, &endpoint.hostname) {
                (None, None) => faults.add(path, "missing-field", "needs an address or a hostname"),
                (Some(_), Some(_)) => {
                    faults.add(
                        format!("{path}.hostname"),
                        "conflicting-fields",
                        "excludes address: remove one of them",
                    );
                }
                (Some(address), None) if !is_one_host(*address) => {
                    faults.add(
                        format!("{path}.address"),
                        "unusable-address",
                        "cannot be a server: it must be the address of one host, not unspecified, multicast, \
                         broadcast, link-local or IPv4 written as IPv6",
                    );
                }
                _ => {}
            }
        }
    }
}

/// Whether an address says by itself which host it is; one of a link's means nothing without the link.
fn is_one_host(address: IpAddr) -> bool {
    !address.is_unspecified()
        && !address.is_multicast()
        && match address {
            IpAddr::V4(v4) => !v4.is_broadcast() && !v4.is_link_local(),
            // An IPv4 address in disguise: Kubernetes refuses it too.
            IpAddr::V6(v6) => !v6.is_unicast_link_local() && v6.to_ipv4_mapped().is_none(),
        }
}

const ENDPOINT: Schema = Schema::Object(&Object::new(
    &[("port", PORT)],
    &[
        ("address", Schema::Text(1, NAME_MAX, Format::Address)),
        ("hostname", Schema::Text(1, NAME_MAX, Format::ExactHostname)),
    ],
));
