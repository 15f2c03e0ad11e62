//! TLSRoute.

use std::net::IpAddr;

use serde::Deserialize;

use super::{
    Faults, GATEWAY_GROUP, Kind, NAME_MAX,
    format::Format,
    route::{
        GONE_FROM_ROUTES, L4_RULE, L4Rule, PARENT_REFS, ParentRef, USE_DEFAULT_GATEWAYS, backend_rules,
        parent_rules,
    },
    schema::{List, Object, Schema},
};

/// Spec of a TLSRoute.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TlsRoute {
    /// Where to be attached.
    #[serde(default)]
    pub parent_refs: Vec<ParentRef>,
    /// Server names, at least one.
    pub hostnames: Vec<String>,
    /// Exactly one.
    pub rules: Vec<L4Rule>,
    /// Whether to be attached to default Gateways.
    pub use_default_gateways: Option<String>,
}

impl Kind for TlsRoute {
    const GROUP: &'static str = GATEWAY_GROUP;
    const VERSIONS: &'static [&'static str] = &["v1"];
    const KIND: &'static str = "TLSRoute";
    const SCHEMA: &'static Object = &Object {
        required: &[
            ("hostnames", HOSTNAMES),
            ("rules", Schema::List(&List::new(1, 1, Schema::Object(&L4_RULE)))),
        ],
        optional: &[("parentRefs", PARENT_REFS), ("useDefaultGateways", USE_DEFAULT_GATEWAYS)],
        gone: GONE_FROM_ROUTES,
    };

    fn rules(&self, faults: &mut Faults) {
        parent_rules(&self.parent_refs, faults);
        for (index, hostname) in self.hostnames.iter().enumerate() {
            // RFC 6066 §3: no server name is an address.
            if hostname.parse::<IpAddr>().is_ok() {
                faults.add(
                    format!("spec.hostnames[{index}]"),
                    "bad-format",
                    "must be a name, not an address",
                );
            }
        }
        for (index, backend) in self.rules.iter().flat_map(|rule| &rule.backend_refs).enumerate() {
            backend_rules(&backend.to, &format!("spec.rules[0].backendRefs[{index}]"), faults);
        }
    }
}

const HOSTNAMES: Schema = Schema::List(&List::new(1, 1024, Schema::Text(1, NAME_MAX, Format::Hostname)));
