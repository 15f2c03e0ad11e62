//! ReferenceGrant: who may refer into a namespace.

use serde::Deserialize;

use super::{
    GATEWAY_GROUP, Kind,
    route::{GROUP, KIND, NAME, NAMESPACE},
    schema::{List, Object, Schema},
};

/// Spec of a ReferenceGrant: each of `from` may refer to each of `to` in the grant's own namespace.
#[derive(Clone, Debug, Deserialize)]
pub struct ReferenceGrant {
    /// Who may.
    pub from: Vec<From>,
    /// To what.
    pub to: Vec<To>,
}

/// Objects that refer.
#[derive(Clone, Debug, Deserialize)]
pub struct From {
    /// Their group; empty for core.
    pub group: String,
    /// Their kind.
    pub kind: String,
    /// Their namespace.
    pub namespace: String,
}

/// Objects that are referred to.
#[derive(Clone, Debug, Deserialize)]
pub struct To {
    /// Their group; empty for core.
    pub group: String,
    /// Their kind.
    pub kind: String,
    /// Only the one of this name.
    pub name: Option<String>,
}

impl Kind for ReferenceGrant {
    const GROUP: &'static str = GATEWAY_GROUP;
    const VERSIONS: &'static [&'static str] = &["v1", "v1beta1"];
    const KIND: &'static str = "ReferenceGrant";
    const SCHEMA: &'static Object = &Object::new(
        &[("from", Schema::List(&List::new(1, 16, FROM))), ("to", Schema::List(&List::new(1, 16, TO)))],
        &[],
    );
}

const FROM: Schema =
    Schema::Object(&Object::new(&[("group", GROUP), ("kind", KIND), ("namespace", NAMESPACE)], &[]));
const TO: Schema = Schema::Object(&Object::new(&[("group", GROUP), ("kind", KIND)], &[("name", NAME)]));
