//! Tunnels: what becomes of a connection after a backend has switched protocols.

use http::Response;
use hyper::{body::Incoming, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use super::{body::ResponseBody, connection::Connection, stats::Active, upstream::Lease};

/// Ties the client's connection to the backend's, as soon as both have switched.
///
/// Only after the backend said 101: before that, bytes of the client are bytes of HTTP.
pub(crate) fn tunnel(
    connection: &Connection,
    client: OnUpgrade,
    response: Response<Incoming>,
    lease: Lease,
    active: Active,
) -> Response<ResponseBody> {
    let (parts, _body) = response.into_parts();
    let mut response = Response::from_parts(parts, ());
    let backend = hyper::upgrade::on(&mut response);
    connection.worker.tasks.spawn(async move {
        // The backend is busy, and the request counts as active, until the tunnel ends.
        let _held = (lease, active);
        match tokio::try_join!(client, backend) {
            Ok((client, backend)) => {
                let (mut client, mut backend) = (TokioIo::new(client), TokioIo::new(backend));
                if let Err(error) = copy_bidirectional(&mut client, &mut backend).await {
                    tracing::debug!(%error, "tunnel broke");
                }
            }
            Err(error) => tracing::debug!(%error, "tunnel did not open"),
        }
    });
    response.map(|()| ResponseBody::empty())
}
