//! What all routes share, and the two kinds that have nothing else: TCPRoute and UDPRoute.

use serde::Deserialize;

use super::{
    Faults, GATEWAY_GROUP, Kind, NAME_MAX,
    format::Format,
    schema::{List, Object, Schema},
};

/// Which Gateway, and which of its listeners, a route wants to be attached to.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd)]
#[serde(rename_all = "camelCase")]
pub struct ParentRef {
    /// Group of the parent.
    #[serde(default = "gateway_group")]
    pub group: String,
    /// Kind of the parent.
    #[serde(default = "gateway_kind")]
    pub kind: String,
    /// Namespace; none for the route's own.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// Only the listener of this name.
    pub section_name: Option<String>,
    /// Only listeners with this port.
    pub port: Option<u16>,
}

/// Where a share of a rule's traffic goes.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
pub struct BackendRef {
    /// What it refers to.
    #[serde(flatten)]
    pub to: ObjectRef,
    /// Share of this reference: weight against the sum of all weights. None was written: 1.
    pub weight: Option<u32>,
}

impl BackendRef {
    /// The weight in effect.
    pub fn weight(&self) -> u32 {
        self.weight.unwrap_or(1)
    }
}

/// A reference to something that takes traffic.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd)]
pub struct ObjectRef {
    /// Group; empty for core.
    #[serde(default)]
    pub group: String,
    /// Kind.
    #[serde(default = "service_kind")]
    pub kind: String,
    /// Namespace; none for the route's own.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// Port; required for a Service.
    pub port: Option<u16>,
}

/// Spec of a TCPRoute.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", transparent)]
pub struct TcpRoute(pub L4Route);

/// Spec of a UDPRoute.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct UdpRoute(pub L4Route);

/// What TCPRoute and UDPRoute both say.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct L4Route {
    /// Where to be attached.
    #[serde(default)]
    pub parent_refs: Vec<ParentRef>,
    /// Exactly one.
    pub rules: Vec<L4Rule>,
    /// Whether to be attached to default Gateways.
    pub use_default_gateways: Option<String>,
}

/// The rule of a TCPRoute, UDPRoute or TLSRoute.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct L4Rule {
    /// At least one.
    pub backend_refs: Vec<BackendRef>,
}

impl Kind for TcpRoute {
    const GROUP: &'static str = GATEWAY_GROUP;
    const VERSIONS: &'static [&'static str] = &["v1"];
    const KIND: &'static str = "TCPRoute";
    const SCHEMA: &'static Object = &L4_ROUTE;

    fn rules(&self, faults: &mut Faults) {
        l4_rules(&self.0, faults);
    }
}

impl Kind for UdpRoute {
    const GROUP: &'static str = GATEWAY_GROUP;
    const VERSIONS: &'static [&'static str] = &["v1"];
    const KIND: &'static str = "UDPRoute";
    const SCHEMA: &'static Object = &L4_ROUTE;

    fn rules(&self, faults: &mut Faults) {
        l4_rules(&self.0, faults);
    }
}

fn l4_rules(route: &L4Route, faults: &mut Faults) {
    parent_rules(&route.parent_refs, faults);
    for (index, backend) in route.rules.iter().flat_map(|rule| &rule.backend_refs).enumerate() {
        backend_rules(&backend.to, &format!("spec.rules[0].backendRefs[{index}]"), faults);
    }
}

/// References to one parent must name different listeners, all of them by name, or all by port, or all by both.
pub(super) fn parent_rules(parents: &[ParentRef], faults: &mut Faults) {
    for (index, parent) in parents.iter().enumerate() {
        let same_object = |other: &ParentRef| {
            (&other.group, &other.kind, &other.namespace, &other.name)
                == (&parent.group, &parent.kind, &parent.namespace, &parent.name)
        };
        let clashes = |other: &ParentRef| {
            let narrowed_by = |parent: &ParentRef| (parent.section_name.is_some(), parent.port.is_some());
            let listeners = |parent: &ParentRef| (parent.section_name.clone(), parent.port);
            same_object(other)
                && (narrowed_by(other) != narrowed_by(parent) || listeners(other) == listeners(parent))
        };
        if let Some(first) = parents[..index].iter().position(clashes) {
            let message = format!(
                "refers to the same parent as spec.parentRefs[{first}]: give both a sectionName or port that differ"
            );
            faults.add(format!("spec.parentRefs[{index}]"), "not-unique", &message);
        }
    }
}

/// A Service without a port says nothing.
pub(super) fn backend_rules(to: &ObjectRef, path: &str, faults: &mut Faults) {
    if to.group.is_empty() && to.kind == "Service" && to.port.is_none() {
        faults.add(path, "missing-field", "needs a port, since it refers to a Service");
    }
}

fn gateway_group() -> String {
    GATEWAY_GROUP.to_owned()
}

fn gateway_kind() -> String {
    "Gateway".to_owned()
}

fn service_kind() -> String {
    "Service".to_owned()
}

const L4_ROUTE: Object = Object {
    required: &[("rules", Schema::List(&List::new(1, 1, Schema::Object(&L4_RULE))))],
    optional: &[("parentRefs", PARENT_REFS), ("useDefaultGateways", USE_DEFAULT_GATEWAYS)],
    gone: GONE_FROM_ROUTES,
};

pub(super) const L4_RULE: Object = Object {
    required: &[("backendRefs", Schema::List(&List::new(1, 16, Schema::Object(&BACKEND_REF))))],
    optional: &[("name", SECTION_NAME)],
    gone: GONE_FROM_RULES,
};

pub(super) const PARENT_REFS: Schema = Schema::List(&List::new(
    0,
    32,
    Schema::Object(&Object::new(
        &[("name", NAME)],
        &[
            ("group", GROUP),
            ("kind", KIND),
            ("namespace", NAMESPACE),
            ("sectionName", SECTION_NAME),
            ("port", PORT),
        ],
    )),
));

pub(super) const USE_DEFAULT_GATEWAYS: Schema = Schema::OneOf(&["All", "None"]);

pub(super) const BACKEND_REF: Object = Object {
    required: &[("name", NAME)],
    optional: &[
        ("group", GROUP),
        ("kind", KIND),
        ("namespace", NAMESPACE),
        ("port", PORT),
        ("weight", WEIGHT),
    ],
    gone: GONE_FROM_BACKEND_REFS,
};

/// A BackendRef without a weight.
pub(super) const BACKEND_OBJECT_REF: Object = Object {
    required: &[("name", NAME)],
    optional: &[("group", GROUP), ("kind", KIND), ("namespace", NAMESPACE), ("port", PORT)],
    gone: GONE_FROM_BACKEND_REFS,
};

pub(super) const GONE_FROM_ROUTES: &[(&str, &str)] =
    &[("gateways", "name the Gateways in `parentRefs`"), ("forwardTo", "write `backendRefs` under `rules`")];
pub(super) const GONE_FROM_RULES: &[(&str, &str)] =
    &[("forwardTo", "write `backendRefs`, with `name` and `port` in each")];
pub(super) const GONE_FROM_BACKEND_REFS: &[(&str, &str)] = &[
    ("serviceName", "write `name`; the kind is Service when none is given"),
    ("backendRef", "write its `group`, `kind` and `name` here, beside `port` and `weight`"),
];

pub(super) const NAME: Schema = Schema::Text(1, NAME_MAX, Format::Free);
pub(super) const NAMESPACE: Schema = Schema::Text(1, 63, Format::Label);
pub(super) const GROUP: Schema = Schema::Text(0, NAME_MAX, Format::Group);
pub(super) const KIND: Schema = Schema::Text(1, 63, Format::Kind);
pub(super) const SECTION_NAME: Schema = Schema::Text(1, NAME_MAX, Format::Subdomain);
pub(super) const PORT: Schema = Schema::Int(1, 65_535);
pub(super) const WEIGHT: Schema = Schema::Int(0, 1_000_000);
pub(super) const HOSTNAMES: Schema =
    Schema::List(&List::new(0, 16, Schema::Text(1, NAME_MAX, Format::Hostname)));
