//! Long-lived TCP connections with data always running, watched for resets and stalls.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::patiently;
use crate::netns::{self, Netns};
use crate::pattern;
use crate::wait::eventually;

/// Bytes of one round: more than one segment.
const ROUND: usize = 4_000;

/// Between two rounds of one connection.
const PAUSE: Duration = Duration::from_millis(20);

/// What became of one connection.
#[derive(Debug)]
pub struct Report {
    /// The backend it reached; empty if it did not.
    pub backend: String,
    /// How often data went there and back.
    pub rounds: u64,
    /// Why it ended before it was asked to: reset, closed, stalled longer than [`super::PATIENCE`], a wrong byte.
    pub failure: Option<String>,
}

/// Connections that run until they are stopped.
#[derive(Debug)]
pub struct Streams {
    rounds: Vec<Arc<AtomicU64>>,
    stop: watch::Sender<bool>,
    thread: thread::JoinHandle<Vec<Report>>,
}

impl Streams {
    /// Opens `count` connections from `client` to `to`; each has been there and back once when this returns.
    ///
    /// # Errors
    /// When no thread can be started.
    ///
    /// # Panics
    /// When a connection makes no first round.
    #[track_caller]
    pub fn start(client: &Netns, to: SocketAddr, count: usize) -> Result<Self> {
        let rounds: Vec<Arc<AtomicU64>> = (0..count).map(|_| Arc::default()).collect();
        let (stop, stopped) = watch::channel(false);
        let counters = rounds.clone();
        let thread = client.spawn(move || netns::runtime().block_on(all(to, counters, stopped)))?;
        let streams = Self { rounds, stop, thread };
        streams.wait_for_rounds(1, count);
        Ok(streams)
    }

    /// Waits until `least` of the connections have made `more` rounds from now on.
    ///
    /// # Panics
    /// When they do not within some seconds.
    #[track_caller]
    pub fn wait_for_rounds(&self, more: u64, least: usize) {
        let read = || self.rounds.iter().map(|rounds| rounds.load(Ordering::Relaxed));
        let then: Vec<u64> = read().collect();
        eventually(Duration::from_secs(15), "data on long-lived connections", || {
            let alive = read().zip(&then).filter(|(now, then)| *now >= *then + more).count();
            ensure!(alive >= least, "only {alive} of {} went on, not {least}", then.len());
            Ok::<_, anyhow::Error>(())
        });
    }

    /// Waits until every connection has ended by itself.
    ///
    /// # Panics
    /// When one goes on.
    #[track_caller]
    pub fn wait_for_end(&self) {
        eventually(Duration::from_secs(15), "the end of long-lived connections", || {
            ensure!(self.thread.is_finished(), "some go on");
            Ok::<_, anyhow::Error>(())
        });
    }

    /// Closes all connections and tells what became of each.
    ///
    /// # Errors
    /// When their thread has panicked.
    pub fn stop(self) -> Result<Vec<Report>> {
        self.stop.send_replace(true);
        self.thread.join().ok().context("the thread of the connections panicked")
    }
}

async fn all(to: SocketAddr, counters: Vec<Arc<AtomicU64>>, stopped: watch::Receiver<bool>) -> Vec<Report> {
    let tasks: Vec<_> = counters
        .into_iter()
        .map(|rounds| {
            let stopped = stopped.clone();
            tokio::spawn(async move {
                let mut report = Report { backend: String::new(), rounds: 0, failure: None };
                let ran = run(to, &rounds, &stopped, &mut report.backend).await;
                report.failure = ran.err().map(|error| format!("{error:#}"));
                report.rounds = rounds.load(Ordering::Relaxed);
                report
            })
        })
        .collect();
    let mut reports = Vec::new();
    for task in tasks {
        reports.push(task.await.expect("a connection's task does not panic"));
    }
    reports
}

async fn run(
    to: SocketAddr,
    rounds: &AtomicU64,
    stopped: &watch::Receiver<bool>,
    backend: &mut String,
) -> Result<()> {
    let stream = patiently("connect", async { Ok(TcpStream::connect(to).await?) }).await?;
    let (from, mut into) = stream.into_split();
    let mut from = BufReader::new(from);
    patiently("read the backend's name", async { Ok(from.read_line(backend).await?) }).await?;
    backend.truncate(backend.trim_end().len());
    let mut buffer = vec![0; ROUND];
    while !*stopped.borrow() {
        let sent = pattern::at(rounds.load(Ordering::Relaxed), ROUND);
        let answer = &mut buffer[..sent.len()];
        patiently("a round", async {
            into.write_all(&sent).await.context("send")?;
            from.read_exact(answer).await.context("receive")?;
            Ok(())
        })
        .await?;
        ensure!(*answer == sent, "another byte came back than was sent");
        rounds.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
