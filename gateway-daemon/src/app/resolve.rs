//! Keeps the addresses of backends that are named by hostname.
//!
//! `compile` is pure, so names are resolved beside it: it says which names it needs, and gets their addresses with
//! the next compilation.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{net::lookup_host, sync::watch, time::timeout};

/// Addresses by hostname; a name without an entry has never been resolved.
pub(super) type Addresses = BTreeMap<String, Vec<IpAddr>>;

/// How often names are asked for again. The system's resolver does not tell how long an answer is good.
const INTERVAL: Duration = Duration::from_secs(30);
/// How long one name may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The running resolver.
#[derive(Debug)]
pub(super) struct Resolver {
    wanted: watch::Sender<BTreeSet<String>>,
    addresses: watch::Receiver<Addresses>,
    /// What [`addresses`](Self::addresses) said last.
    said: Addresses,
}

impl Resolver {
    /// Starts it on the current runtime, with nothing to resolve.
    pub(super) fn start() -> Self {
        let (wanted, wanted_by_task) = watch::channel(BTreeSet::new());
        let (found, addresses) = watch::channel(Addresses::new());
        tokio::spawn(resolve(wanted_by_task, found));
        Self { wanted, addresses, said: Addresses::new() }
    }

    /// Says which names are needed from now on.
    pub(super) fn want(&self, names: BTreeSet<String>) {
        self.wanted.send_if_modified(|wanted| {
            let changed = *wanted != names;
            *wanted = names;
            changed
        });
    }

    /// The addresses known now.
    pub(super) fn addresses(&mut self) -> Addresses {
        self.said.clone_from(&self.addresses.borrow_and_update());
        self.said.clone()
    }

    /// Waits until an address has changed since [`addresses`](Self::addresses) was last asked.
    pub(super) async fn changed(&mut self) {
        let Self { addresses, said, .. } = self;
        if addresses.wait_for(|known| known != said).await.is_err() {
            // The task ends only with the runtime.
            std::future::pending::<()>().await;
        }
    }

    /// Waits until all names that are wanted now have addresses, or had the time to, and gives what was found.
    pub(super) async fn settled(&mut self) -> Addresses {
        let Self { wanted, addresses, .. } = self;
        let all = addresses.wait_for(|known| wanted.borrow().iter().all(|name| known.contains_key(name)));
        // Whether they all have is in what was found.
        let _ = timeout(TIMEOUT, all).await;
        self.addresses()
    }
}

/// What the system's resolver says, sorted.
async fn addresses_of(name: &str) -> std::io::Result<Vec<IpAddr>> {
    let addresses: BTreeSet<IpAddr> = lookup_host((name, 0)).await?.map(|socket| socket.ip()).collect();
    Ok(addresses.into_iter().collect())
}

/// Looks all names up at once, again and again.
async fn resolve(mut wanted: watch::Receiver<BTreeSet<String>>, found: watch::Sender<Addresses>) {
    loop {
        let names = wanted.borrow_and_update().clone();
        let mut addresses = found.borrow().clone();
        addresses.retain(|name, _| names.contains(name));
        let look_up = |name: String| async move { (timeout(TIMEOUT, addresses_of(&name)).await, name) };
        for (answer, name) in join_all(names.into_iter().map(look_up)).await {
            match answer {
                Ok(Ok(answer)) => drop(addresses.insert(name, answer)),
                // What was known stays: a name server that is away must not take backends away.
                Ok(Err(error)) => {
                    tracing::warn!(hostname = name, %error, "cannot resolve a backend's hostname");
                }
                Err(_) => tracing::warn!(hostname = name, "resolving a backend's hostname takes too long"),
            }
        }
        found.send_if_modified(|current| {
            let changed = *current != addresses;
            *current = addresses;
            changed
        });
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_of_names_are_waited_for() {
        let mut resolver = Resolver::start();
        assert_eq!(resolver.addresses(), Addresses::new());
        resolver.want(BTreeSet::from(["localhost".to_owned()]));
        let known = resolver.settled().await;
        assert!(known["localhost"].iter().all(IpAddr::is_loopback) && !known["localhost"].is_empty());
    }
}
