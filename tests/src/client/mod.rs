//! Clients: they open connections as a user's program would, check every byte, and report which backend answered.

pub mod grpc;
pub mod http;
pub mod steady;
pub mod streams;
pub mod tcp;
pub mod udp;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// How long any one step of a client may take. Far more than a lab needs, far less than a retransmitted SYN's third
/// try: what takes longer is lost.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How many connections are open at once in a run of many.
const AT_ONCE: usize = 64;

/// Which backend answered how often.
pub type Seen = BTreeMap<String, u64>;

/// The counts of `backends`, in that order, for [`crate::shares::fit`].
///
/// # Panics
/// When somebody else answered as well: such an answer would otherwise be lost here.
#[track_caller]
pub fn counts(seen: &Seen, backends: &[&str]) -> Vec<u64> {
    let stranger = seen.keys().find(|name| !backends.contains(&name.as_str()));
    assert_eq!(stranger, None, "a backend answered that was not asked for");
    backends.iter().map(|name| seen.get(*name).copied().unwrap_or(0)).collect()
}

/// Bounds one step of a client.
async fn patiently<T>(what: &str, step: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(PATIENCE, step)
        .await
        .with_context(|| format!("{what} took longer than {PATIENCE:?}"))?
        .with_context(|| what.to_owned())
}

/// Does `one` for 0 to `count`, [`AT_ONCE`] at a time, and counts the names that it returns.
async fn many<F>(count: u32, one: impl Fn(u32) -> F) -> Result<Seen>
where
    F: Future<Output = Result<String>> + 'static,
{
    let mut seen = Seen::new();
    let mut running = tokio::task::JoinSet::new();
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            for number in 0..count {
                if running.len() >= AT_ONCE {
                    take_one(&mut running, &mut seen).await?;
                }
                let connection = one(number);
                running.spawn_local(async move { (number, connection.await) });
            }
            while !running.is_empty() {
                take_one(&mut running, &mut seen).await?;
            }
            Ok(seen)
        })
        .await
}

async fn take_one(running: &mut tokio::task::JoinSet<(u32, Result<String>)>, seen: &mut Seen) -> Result<()> {
    if let Some(done) = running.join_next().await {
        let (number, name) = done.context("a client panicked")?;
        let name = name.with_context(|| format!("connection {number}"))?;
        *seen.entry(name).or_default() += 1;
    }
    Ok(())
}
