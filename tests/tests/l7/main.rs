//! HTTP and gRPC through the proxy, from clients to backends in namespaces of their own.

mod bodies;
mod changes;
mod combined;
mod filters;
mod grpc;
mod https;
mod routing;
mod stand;
mod statuses;
mod tunnels;
