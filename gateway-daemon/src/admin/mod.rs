//! The control socket: HTTP/1.1 over a Unix socket in the state directory.
//!
//! `GET /status` answers a [`Report`] as JSON. Only root can connect: the socket's mode is 0600.

mod client;
mod report;
mod server;

use std::path::{Path, PathBuf};

pub use client::fetch;
pub use report::{
    AddressReport, ApplyFailure, BackendReport, BindReport, DeviceReport, FaultReport, L4ServiceReport,
    L7BackendReport, L7ServiceReport, ListenerReport, Rejection, Report,
};
pub use server::{ReportRequests, Server, ServerError};

/// The control socket of the daemon that uses this state directory.
pub fn socket_path(state_dir: &Path) -> PathBuf {
    state_dir.join("gatewayd.sock")
}

/// Whether a daemon answers on the control socket of this state directory.
pub async fn is_running(state_dir: &Path) -> bool {
    tokio::net::UnixStream::connect(socket_path(state_dir)).await.is_ok()
}
