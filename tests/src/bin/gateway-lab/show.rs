//! What `run` prints.

use std::path::Path;

use gateway_tests::client::Seen;
use gateway_tests::daemon::Status;
use gateway_tests::shares;
use gateway_tests::topology::Lab;

use crate::asked::{Asked, Kind};

/// Prints each device with the entry that the daemon chose, and why.
pub(crate) fn devices(status: &Status) {
    for (name, mode, why) in status.devices() {
        println!("  {name}: {mode} ({why})");
    }
}

/// Prints what the kernel programs have done so far.
pub(crate) fn packets(status: &Status) {
    for entry in ["xdp", "tc"] {
        let count = |outcome| status.packets(entry, outcome);
        println!(
            "packets at {entry}: {} forwarded to backends, {} replied to clients",
            count("forwarded"),
            count("replied")
        );
    }
}

/// Prints asked share against seen share; whether every one fits.
pub(crate) fn table(asked: &[Asked], measured: &[Seen]) -> bool {
    let mut all_fit = true;
    println!();
    for (asked, seen) in asked.iter().zip(measured) {
        let names: Vec<&str> = asked.weights.iter().map(|(name, _)| name.as_str()).collect();
        let weights: Vec<u64> = asked.weights.iter().map(|(_, weight)| *weight).collect();
        let counts: Vec<u64> = names.iter().map(|name| seen.get(*name).copied().unwrap_or(0)).collect();
        let strangers: Vec<&String> = seen.keys().filter(|name| !names.contains(&name.as_str())).collect();
        let total: u64 = seen.values().sum();
        println!("{}", title(asked, total));
        for ((name, weight), count) in names.iter().zip(&weights).zip(&counts) {
            let (asked, seen) = (percent(*weight, weights.iter().sum()), percent(*count, total));
            println!("    {name:<12} asked {asked:>6.2} %   seen {seen:>6.2} %   {count:>5}");
        }
        if !strangers.is_empty() {
            println!("    answered, but not asked for: {strangers:?}");
            all_fit = false;
        }
        if let Err(faults) = shares::fit_one_of(measured.len(), &counts, &weights) {
            print!("    outside the 99.9 % bound:\n{faults}");
            all_fit = false;
        }
    }
    println!();
    all_fit
}

/// Prints commands to try in another terminal.
pub(crate) fn commands(lab: &Lab, config: &Path, own: &Path) {
    let (client, node) = (lab.client().name(), lab.node.name());
    let own = own.display();
    println!(
        "\nIn another terminal:\n\
         \x20 ip netns exec {client} curl -s -H 'Host: web.example' http://198.18.0.1/shop\n\
         \x20 ip netns exec {client} curl -s --http2-prior-knowledge -H 'Host: web.example' 'http://[fd00:18::1]/'\n\
         \x20 ip netns exec {client} {own} call 198.18.0.1:80\n\
         \x20 ip netns exec {client} bash -c 'exec 3<>/dev/tcp/198.18.0.1/9000; head -n 1 <&3'\n\
         \x20 ip netns exec {client} bash -c 'exec 3<>/dev/udp/fd00:18::1/9000; echo hello >&3; head -n 1 <&3'\n\
         \x20 ip netns exec {node} ip address show\n\
         Edit a weight in {} and watch. Ctrl-C removes everything.",
        config.display()
    );
}

fn title(asked: &Asked, total: u64) -> String {
    let to = std::net::SocketAddr::new(asked.address, asked.port);
    match asked.kind {
        Kind::Tcp => format!("{} (TCP {to}): {total} connections", asked.listener),
        Kind::Udp => format!("{} (UDP {to}): {total} flows", asked.listener),
        Kind::Http => {
            format!("{} (HTTP {to}, {}{}): {total} requests", asked.listener, asked.hostname, asked.path)
        }
        Kind::Grpc => format!("{} (gRPC {to}, {}): {total} calls", asked.listener, asked.hostname),
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts and weights are far below 2^52")]
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}
