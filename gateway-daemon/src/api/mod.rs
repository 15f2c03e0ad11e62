//! The resources gatewayd reads: Gateway API kinds, the core kinds they refer to, and its own.
//!
//! One set of types for all sources: a type derives serde for the wire, and a [`schema`] next to it holds what an API
//! server would check, so that [`decode`] can do the same for files and say where each fault is.
//!
//! Not here: what resources mean together (`compile`), where they come from (`source`).

pub mod backend;
pub mod core;
pub mod decode;
pub mod diagnostic;
pub mod filter;
mod format;
pub mod gateway;
pub mod grant;
pub mod grpc;
pub mod http;
pub mod node;
pub mod resources;
pub mod route;
mod schema;
pub mod served;
pub mod tls;

use std::collections::BTreeMap;

use serde::{Deserialize, de::DeserializeOwned};

pub use self::{
    diagnostic::{Diagnostic, Place, Severity},
    node::Origin,
    resources::{Key, Resource, Resources, Store},
};
use self::{
    format::Format,
    schema::{Object as Fields, Schema},
};

/// Group of the Gateway API.
pub const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// Group of the Gateway API's first version, v1alpha1.
pub const FIRST_GROUP: &str = "networking.x-k8s.io";

/// Group of our own kinds.
pub const OWN_GROUP: &str = "gatewayd.dev";

/// Longest name of an object.
const NAME_MAX: usize = 253;

/// An object: its metadata, and what it says.
#[derive(Clone, Debug)]
pub struct Object<S> {
    /// Who it is.
    pub metadata: Metadata,
    /// What is under `spec`; of kinds that have no `spec`, their own fields.
    pub spec: S,
    /// Where it was written, if it came from a file.
    pub origin: Option<Origin>,
}

/// The part of `metadata` that gatewayd reads.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Name.
    pub name: String,
    /// Namespace; empty for kinds that have none.
    #[serde(default)]
    pub namespace: String,
    /// Labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Counts the changes of the spec; set by the API server only.
    pub generation: Option<i64>,
    /// When it was created, as RFC 3339 in UTC, so that order of texts is order of time; set by the API server only.
    pub creation_timestamp: Option<String>,
}

/// A kind of resource.
pub trait Kind: DeserializeOwned {
    /// API group; empty for core.
    const GROUP: &'static str;
    /// Versions that are read; they have the same fields.
    const VERSIONS: &'static [&'static str];
    /// Name of the kind.
    const KIND: &'static str;
    /// Whether objects have a namespace.
    const NAMESPACED: bool = true;
    /// Whether the fields are under `spec` (else beside `metadata`).
    const UNDER_SPEC: bool = true;
    /// The fields, under `spec` or beside `metadata`.
    const SCHEMA: &'static Fields;

    /// Says what no schema can: rules between fields.
    fn rules(&self, _faults: &mut Faults) {}
}

impl<S> Object<S> {
    /// Where a field was written, when the object came from a file.
    pub fn place(&self, path: &str) -> Option<Place> {
        self.origin.as_ref().map(|origin| origin.place(path))
    }

    /// Namespace and name.
    pub fn key(&self) -> Key {
        Key { namespace: self.metadata.namespace.clone(), name: self.metadata.name.clone() }
    }
}

impl<S: Kind> Object<S> {
    /// The object for messages: `KIND NAMESPACE/NAME`.
    pub fn title(&self) -> String {
        match self.metadata.namespace.as_str() {
            "" => format!("{} {}", S::KIND, self.metadata.name),
            namespace => format!("{} {namespace}/{}", S::KIND, self.metadata.name),
        }
    }

    /// Decodes an object that an API server has checked, or [`decode`] has.
    pub fn from_json(mut json: serde_json::Value, origin: Option<Origin>) -> Result<Self, serde_json::Error> {
        let mut metadata = Metadata::deserialize(json["metadata"].take())?;
        if S::NAMESPACED && metadata.namespace.is_empty() {
            "default".clone_into(&mut metadata.namespace);
        }
        let spec = if S::UNDER_SPEC { json["spec"].take() } else { json };
        let spec = if spec.is_null() { serde_json::Value::Object(serde_json::Map::default()) } else { spec };
        Ok(Self { metadata, spec: S::deserialize(spec)?, origin })
    }
}

/// Faults that the rules of a kind find, by the path of the field at fault.
#[derive(Debug, Default)]
pub struct Faults(Vec<RuleFault>);

#[derive(Debug)]
struct RuleFault {
    path: String,
    code: &'static str,
    message: String,
}

impl Faults {
    /// Records a fault; the message gets the path in front.
    fn add(&mut self, path: impl Into<String>, code: &'static str, message: &str) {
        let path = path.into();
        self.0.push(RuleFault { message: format!("{path} {message}"), path, code });
    }
}

/// All of ObjectMeta.
const METADATA: Fields = Fields {
    required: &[("name", Schema::Text(1, NAME_MAX, Format::Subdomain))],
    optional: &[
        ("namespace", Schema::Text(1, 63, Format::Label)),
        ("labels", Schema::Map(usize::MAX, &Schema::Text(0, 63, Format::Free))),
        ("annotations", Schema::Map(usize::MAX, &Schema::Text(0, 262_144, Format::Free))),
        ("generation", Schema::Int(0, i64::MAX)),
        ("creationTimestamp", Schema::Text(1, 20, Format::Timestamp)),
        ("deletionGracePeriodSeconds", Schema::Any),
        ("deletionTimestamp", Schema::Any),
        ("finalizers", Schema::Any),
        ("generateName", Schema::Any),
        ("managedFields", Schema::Any),
        ("ownerReferences", Schema::Any),
        ("resourceVersion", Schema::Any),
        ("selfLink", Schema::Any),
        ("uid", Schema::Any),
    ],
    gone: &[],
};

#[cfg(test)]
mod crds;
#[cfg(test)]
mod tests;
