//! The kinds as an API server has them: where they are found, and how what it says becomes an object.
//!
//! Not here: the checks of [`decode`](super::decode). An API server has made them before it keeps an object.

use std::sync::Arc;

use serde_json::Value;

use super::{
    Kind as _, Object, Resource,
    backend::Backend,
    core::{ConfigMap, EndpointSlice, Namespace, Secret, Service},
    gateway::{Gateway, GatewayClass},
    grant::ReferenceGrant,
    grpc::GrpcRoute,
    http::HttpRoute,
    resources::kinds,
    route::{TcpRoute, UdpRoute},
    schema,
    tls::TlsRoute,
};

/// A kind that is read.
#[derive(Debug)]
pub struct Served {
    /// API group; empty for core.
    pub group: &'static str,
    /// Versions that are read, the preferred one first.
    pub versions: &'static [&'static str],
    /// Name of the kind.
    pub kind: &'static str,
    /// Whether objects have a namespace.
    pub namespaced: bool,
    /// What its spec, or all of it where it has none, must be.
    pub spec: &'static schema::Object,
    read: fn(Value) -> serde_json::Result<Resource>,
}

impl Served {
    /// The object that a document of this kind says.
    ///
    /// # Errors
    /// When it is not as the kind's type asks for.
    pub fn read(&self, mut document: Value) -> serde_json::Result<Resource> {
        strip_nulls(&mut document);
        (self.read)(document)
    }
}

macro_rules! table {
    ($($variant:ident $store:ident $spec:ty,)*) => {
        /// All kinds that are read.
        pub const KINDS: &[Served] = &[$(
            Served {
                group: <$spec>::GROUP,
                versions: <$spec>::VERSIONS,
                kind: <$spec>::KIND,
                namespaced: <$spec>::NAMESPACED,
                spec: <$spec>::SCHEMA,
                read: |document| Ok(Resource::$variant(Arc::new(Object::<$spec>::from_json(document, None)?))),
            },
        )*];
    };
}
kinds!(table);

/// Null and absent are the same in Kubernetes; serde knows only the latter.
fn strip_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(strip_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_the_same_as_absent() {
        let slices = KINDS.iter().find(|served| served.kind == "EndpointSlice").unwrap();
        let document = serde_json::json!({
            "metadata": {"name": "a", "namespace": "b", "labels": null},
            "addressType": "IPv4", "endpoints": null, "ports": [{"name": "x", "port": null}],
        });
        let Resource::EndpointSlice(slice) = slices.read(document).unwrap() else { panic!("another kind") };
        assert_eq!((slice.spec.endpoints.len(), slice.spec.ports[0].port), (0, None));
    }
}
