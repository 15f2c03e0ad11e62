//! Compares ways to build the table: how far shares are off, how many slots move without need, how long it takes.
//!
//! `cargo bench -p gateway-common --features user --bench tables`, or `cargo xtask bench tables`. Prints one Markdown
//! table for each set of weights; everything but the time is the same on every machine.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "slots and counts are small; figures are for people"
)]

mod maglev;
mod measure;
mod rendezvous;

use gateway_common::table::{self, Slack, TableEntry};

/// A way to build a table.
type Build = fn(&[TableEntry]) -> Box<[u32]>;

const METHODS: [(&str, Build); 5] = [
    ("Maglev, exact quotas", maglev::build),
    ("rendezvous, independent draws", rendezvous::build),
    ("race, unbounded", |entries| table::build_within(entries, Slack::Unbounded)),
    ("race, exact shares", |entries| table::build_within(entries, Slack::None)),
    ("**race, half a root**", table::build),
];

fn main() {
    println!(
        "{} slots. Slots moved beyond need: mean of {} sets of backends.",
        gateway_common::TABLE_SLOTS,
        measure::SETS
    );
    for (name, weights) in cases() {
        println!("\n### {name}\n");
        println!(
            "| method | share off, rms | most over | most under | add | remove or 0 | +10 % | shift | build |"
        );
        println!("|---|---|---|---|---|---|---|---|---|");
        for (method, build) in METHODS {
            println!("| {method} {}", measure::row(&weights, build));
        }
    }
}

/// Weights as the compiler hands them over: scaled, so that no number is special.
fn cases() -> Vec<(String, Vec<u64>)> {
    const SCALE: u64 = 720_720;
    let mut cases = vec![("3 backends, 80/15/5".to_owned(), vec![80 * SCALE, 15 * SCALE, 5 * SCALE])];
    for count in [3_u64, 30, 300, 1_000] {
        cases.push((format!("{count} backends, equal"), vec![SCALE; count as usize]));
        let mixed = (0..count).map(|index| (index * 37 % 100 + 1) * SCALE).collect();
        cases.push((format!("{count} backends, weights 1 to 100"), mixed));
    }
    let mut canary = vec![111 * SCALE; 9];
    canary.push(SCALE);
    cases.push(("10 backends, one with 0.1 %".to_owned(), canary));
    cases
}
