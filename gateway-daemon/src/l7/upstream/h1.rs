//! HTTP/1.1 connections to one endpoint: kept alive, one exchange at a time.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};

use super::connect::connect;
use crate::l7::{
    body::RequestBody,
    error::Error,
    settings::{H1_BUFFER, Settings},
};

type Sender = http1::SendRequest<RequestBody>;

/// Idle connections, and places for busy ones.
#[derive(Debug)]
pub(super) struct Pool {
    /// The one used last is at the end. Locked for moments, by one thread.
    idle: Mutex<Vec<(Sender, Instant)>>,
    places: Arc<Semaphore>,
    max_idle: usize,
}

/// A connection in use.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) sender: Sender,
    pub(super) reused: bool,
    _place: OwnedSemaphorePermit,
}

impl Pool {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            idle: Mutex::new(Vec::new()),
            places: Arc::new(Semaphore::new(settings.max_requests)),
            max_idle: settings.max_idle,
        }
    }

    pub(super) async fn acquire(
        &self,
        address: SocketAddr,
        fresh: bool,
        settings: &Settings,
    ) -> Result<Taken, Error> {
        let place = self.place(address, settings).await?;
        if !fresh && let Some(sender) = self.take_idle(settings.pool_idle_timeout) {
            return Ok(Taken { sender, reused: true, _place: place });
        }
        let stream = connect(address, settings).await?;
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(H1_BUFFER)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|source| Error::Handshake { address, source })?;
        // Ends with the sender, or when the backend closes.
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%address, %error, "backend connection failed");
            }
        });
        Ok(Taken { sender, reused: false, _place: place })
    }

    /// The connection is done with its exchange, or about to be: [`Self::acquire`] looks before it uses it.
    pub(super) fn give_back(&self, taken: Taken) {
        if taken.sender.is_closed() {
            return;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.max_idle {
            idle.push((taken.sender, Instant::now()));
        }
    }

    pub(super) fn close_idle(&self, after: Duration) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(sender, since)| !sender.is_closed() && since.elapsed() < after);
    }

    async fn place(&self, address: SocketAddr, settings: &Settings) -> Result<OwnedSemaphorePermit, Error> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(place);
        }
        let waited = timeout(settings.connect_timeout, Arc::clone(&self.places).acquire_owned()).await;
        waited.ok().and_then(Result::ok).ok_or(Error::Busy(address))
    }

    fn take_idle(&self, timeout: Duration) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = idle.len();
        while let Some(next) = at.checked_sub(1) {
            at = next;
            let (sender, since) = &idle[at];
            if sender.is_closed() || since.elapsed() >= timeout {
                idle.swap_remove(at);
            } else if sender.is_ready() {
                // Order among idle ones matters little; the end stays the warmest.
                return Some(idle.swap_remove(at).0);
            }
        }
        None
    }
}
