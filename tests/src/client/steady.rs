//! HTTP requests without a pause, of which every failure is kept.

use std::mem;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::http::{Connection, Protocol};
use crate::netns::{self, Netns};
use crate::wait::eventually;

/// Requests of one connection; then another is opened.
const REQUESTS: u32 = 20;

/// Between two requests of one connection.
const PAUSE: Duration = Duration::from_millis(10);

/// Clients that ask until they are stopped.
#[derive(Debug)]
pub struct Steady {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    answered: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Steady {
    /// Starts `count` clients in `client` that get `uri` from `to`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(
        client: &Netns,
        (to, uri): (SocketAddr, &str),
        protocol: &Protocol,
        count: usize,
    ) -> Result<Self> {
        let shared = Arc::<Shared>::default();
        let (stop, stopped) = watch::channel(false);
        let (counting, uri, protocol) = (Arc::clone(&shared), uri.to_owned(), protocol.clone());
        let thread = client.spawn(move || {
            netns::runtime().block_on(async {
                let mut clients = JoinSet::new();
                for _ in 0..count {
                    let (counting, stopped) = (Arc::clone(&counting), stopped.clone());
                    let (uri, protocol) = (uri.clone(), protocol.clone());
                    clients.spawn(async move { ask_until(&stopped, (to, &uri), &protocol, &counting).await });
                }
                clients.join_all().await;
            });
        })?;
        Ok(Self { shared, stop, thread: Some(thread) })
    }

    /// Waits until there are `more` good answers from now on.
    ///
    /// # Panics
    /// When there are not, within some seconds.
    #[track_caller]
    pub fn wait_for_answers(&self, more: u64) {
        let wanted = self.shared.answered.load(Ordering::Relaxed) + more;
        eventually(Duration::from_secs(30), "answers to steady requests", || {
            let answered = self.shared.answered.load(Ordering::Relaxed);
            ensure!(answered >= wanted, "{answered} of {wanted}; failures: {:?}", self.failures());
            Ok(())
        });
    }

    /// What failed since this was asked for last.
    pub fn take_failures(&self) -> Vec<String> {
        mem::take(&mut self.shared.failures.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn failures(&self) -> Vec<String> {
        self.shared.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Steady {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            eprintln!("a steady client panicked");
        }
    }
}

async fn ask_until(
    stopped: &watch::Receiver<bool>,
    (to, uri): (SocketAddr, &str),
    protocol: &Protocol,
    shared: &Shared,
) {
    while !*stopped.borrow() {
        if let Err(error) = ask(stopped, (to, uri), protocol, shared).await {
            let mut failures = shared.failures.lock().unwrap_or_else(PoisonError::into_inner);
            failures.push(format!("{error:#}"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// One connection and its requests.
async fn ask(
    stopped: &watch::Receiver<bool>,
    (to, uri): (SocketAddr, &str),
    protocol: &Protocol,
    shared: &Shared,
) -> Result<()> {
    let mut connection = Connection::open(to, protocol).await?;
    for number in 0..REQUESTS {
        if *stopped.borrow() {
            break;
        }
        let answer =
            connection.get(uri).await.with_context(|| format!("request {number} of a connection"))?;
        ensure!(answer.status == StatusCode::OK, "answered {}", answer.status);
        answer.report()?;
        shared.answered.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
