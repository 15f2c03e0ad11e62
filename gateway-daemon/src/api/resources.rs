//! All resources of one moment.

use std::{collections::BTreeMap, fmt, sync::Arc};

use super::{
    Kind as _, Object, Origin,
    backend::Backend,
    core::{ConfigMap, EndpointSlice, Namespace, Secret, Service},
    gateway::{Gateway, GatewayClass},
    grant::ReferenceGrant,
    grpc::GrpcRoute,
    http::HttpRoute,
    route::{TcpRoute, UdpRoute},
    tls::TlsRoute,
};

/// Objects of one kind.
pub type Store<S> = BTreeMap<Key, Arc<Object<S>>>;

/// Names an object among those of its kind.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Key {
    /// Namespace; empty for kinds that have none.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// A key of these two.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// Lists the kinds once: their variant, their store, their spec.
macro_rules! kinds {
    ($callback:ident) => {
        $callback! {
            GatewayClass gateway_classes GatewayClass,
            Gateway gateways Gateway,
            TcpRoute tcp_routes TcpRoute,
            UdpRoute udp_routes UdpRoute,
            TlsRoute tls_routes TlsRoute,
            HttpRoute http_routes HttpRoute,
            GrpcRoute grpc_routes GrpcRoute,
            ReferenceGrant reference_grants ReferenceGrant,
            Backend backends Backend,
            Service services Service,
            EndpointSlice endpoint_slices EndpointSlice,
            Secret secrets Secret,
            ConfigMap config_maps ConfigMap,
            Namespace namespaces Namespace,
        }
    };
}
pub(super) use kinds;

macro_rules! define {
    ($($variant:ident $store:ident $spec:ty,)*) => {
        /// An object of any kind that is read.
        #[derive(Clone, Debug)]
        #[expect(missing_docs, reason = "named for their kinds")]
        pub enum Resource {
            $($variant(Arc<Object<$spec>>),)*
        }

        /// All resources of one moment, by kind.
        #[derive(Clone, Debug, Default)]
        #[expect(missing_docs, reason = "named for their kinds")]
        pub struct Resources {
            $(pub $store: Store<$spec>,)*
        }

        impl Resource {
            /// Kind of the object.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => <$spec>::KIND,)*
                }
            }

            /// Namespace and name.
            pub fn key(&self) -> Key {
                match self {
                    $(Self::$variant(object) => object.key(),)*
                }
            }

            /// Where it was written.
            pub fn origin(&self) -> Option<&Origin> {
                match self {
                    $(Self::$variant(object) => object.origin.as_ref(),)*
                }
            }
        }

        impl Resources {
            /// Adds an object, in place of one of the same kind and name.
            pub fn insert(&mut self, resource: Resource) {
                match resource {
                    $(Resource::$variant(object) => { self.$store.insert(object.key(), object); })*
                }
            }

            /// How many objects there are of each kind.
            pub fn counts(&self) -> Vec<(&'static str, usize)> {
                vec![$((<$spec>::KIND, self.$store.len()),)*]
            }

            /// Removes the object of this kind and name, and says whether it was there.
            pub fn remove(&mut self, kind: &str, key: &Key) -> bool {
                $(if kind == <$spec>::KIND {
                    return self.$store.remove(key).is_some();
                })*
                false
            }
        }
    };
}
kinds!(define);
