//! Which ports a pod listens on, from the kernel's own tables.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::sleep;

use crate::netns::Netns;

const PAUSE: Duration = Duration::from_millis(50);

/// TCP sockets in this state listen (`TCP_LISTEN` in the kernel's `tcp_states.h`).
const LISTEN: &str = "0A";
/// UDP sockets that are bound and not connected (`TCP_CLOSE` there).
const UNCONNECTED: &str = "07";

/// Waits until the namespace has listening sockets and two looks in a row see the same ones: a program that opens
/// several is then through.
///
/// # Errors
/// When the kernel's tables cannot be read.
pub(super) async fn settled(netns: &Netns) -> Result<()> {
    let mut before = BTreeSet::new();
    loop {
        let now = listening(netns)?;
        if !now.is_empty() && now == before {
            return Ok(());
        }
        before = now;
        sleep(PAUSE).await;
    }
}

/// Protocol and port of all listening sockets of the namespace.
fn listening(netns: &Netns) -> Result<BTreeSet<(&'static str, u16)>> {
    netns.run(|| {
        let mut found = BTreeSet::new();
        for (table, protocol, state) in [
            ("tcp", "tcp", LISTEN),
            ("tcp6", "tcp", LISTEN),
            ("udp", "udp", UNCONNECTED),
            ("udp6", "udp", UNCONNECTED),
        ] {
            // By thread: only this one is in the namespace.
            let path = format!("/proc/thread-self/net/{table}");
            let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
            found.extend(ports(&text, state).map(|port| (protocol, port)));
        }
        Ok(found)
    })
}

/// Local ports of the rows of a table that are in this state.
fn ports<'a>(table: &'a str, state: &'a str) -> impl Iterator<Item = u16> + 'a {
    table.lines().skip(1).filter_map(move |row| {
        let mut fields = row.split_whitespace();
        let local = fields.nth(1)?;
        let found = fields.nth(1)?;
        let port = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
        (found == state).then_some(port)
    })
}

#[cfg(test)]
mod tests {
    use super::{LISTEN, ports};

    #[test]
    fn only_listening_sockets_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
                     0: 00000000:0BB8 00000000:0000 0A 00000000:00000000 00:00000000\n   \
                     1: 0100007F:9C40 0100007F:0BB8 01 00000000:00000000 00:00000000\n";
        assert_eq!(ports(table, LISTEN).collect::<Vec<_>>(), [3000]);
    }
}
