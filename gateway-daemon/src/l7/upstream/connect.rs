//! TCP connections to endpoints.

use std::{io, net::SocketAddr};

use tokio::{net::TcpStream, time::timeout};

use crate::l7::{error::Error, settings::Settings};

/// Connects, within the time for it.
pub(super) async fn connect(address: SocketAddr, settings: &Settings) -> Result<TcpStream, Error> {
    let connected = timeout(settings.connect_timeout, TcpStream::connect(address)).await;
    let failed = |source: io::Error| {
        // The kernel gave up before we did.
        if source.kind() == io::ErrorKind::TimedOut {
            Error::ConnectTimeout(address)
        } else {
            Error::ConnectFailed { address, source }
        }
    };
    let stream = connected.map_err(|_elapsed| Error::ConnectTimeout(address))?.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    Ok(stream)
}
