//! One method on one set of weights, as a row of a table.

use std::hint::black_box;
use std::time::Instant;

use gateway_common::{TABLE_SLOTS, table::TableEntry};

use crate::Build;

/// Sets of backends, each with identities of its own.
pub(crate) const SETS: u64 = 5;

/// Builds timed; the fastest counts, as everything else on the machine only adds.
const TIMED: usize = 25;

/// Shares off (root mean square, most over, most under; in per cent of the share, and slots), moved slots beyond need,
/// milliseconds on one core.
pub(crate) fn row(weights: &[u64], build: Build) -> String {
    let mut shares = Shares::default();
    let mut beyond = [0; 4];
    for set in 0..SETS {
        let table = build(&entries(weights, set));
        shares.add(weights, &table);
        for (sum, changed) in beyond.iter_mut().zip(changes(weights)) {
            *sum += moved_beyond_need(&table, &build(&entries(&changed, set)), weights.len() + 1);
        }
    }
    let moved: Vec<String> =
        beyond.iter().map(|sum| format!("{:.0}", f64::from(*sum) / SETS as f64)).collect();
    format!("| {shares} | {} | {:.2} ms |", moved.join(" | "), milliseconds(weights, build))
}

fn entries(weights: &[u64], set: u64) -> Vec<TableEntry> {
    let entry = |(index, weight): (usize, &u64)| TableEntry {
        backend: index as u32 + 1,
        weight: *weight,
        identity: [(0xfd00 << 48) | set, index as u64 + 1],
    };
    weights.iter().enumerate().map(entry).collect()
}

/// One backend more; one less (a weight of 0 is the same); one with 10 % more; and half of one's weight to another.
fn changes(weights: &[u64]) -> [Vec<u64>; 4] {
    let at = weights.len() / 2;
    let (mut more, mut less, mut heavier, mut shift) =
        (weights.to_vec(), weights.to_vec(), weights.to_vec(), weights.to_vec());
    more.push(weights[at]);
    less[at] = 0;
    heavier[at] += weights[at] / 10;
    shift[at] -= weights[at] / 2;
    shift[0] += weights[at] / 2;
    [more, less, heavier, shift]
}

/// Slots with another owner, less those that the change in numbers of slots asks for.
fn moved_beyond_need(old: &[u32], new: &[u32], backends: usize) -> u32 {
    let moved = old.iter().zip(new).filter(|(old, new)| old != new).count() as u32;
    let needed: u32 =
        owned(old, backends).iter().zip(owned(new, backends)).map(|(had, has)| had.saturating_sub(has)).sum();
    moved - needed
}

/// Slots of each backend; backends are numbered from 1.
fn owned(table: &[u32], backends: usize) -> Vec<u32> {
    let mut owned = vec![0; backends + 1];
    for backend in table {
        owned[*backend as usize] += 1;
    }
    owned
}

fn milliseconds(weights: &[u64], build: Build) -> f64 {
    let entries = entries(weights, 0);
    let time = || {
        let start = Instant::now();
        black_box(build(black_box(&entries)));
        start.elapsed().as_secs_f64() * 1e3
    };
    (0..TIMED).map(|_| time()).fold(f64::INFINITY, f64::min)
}

/// How far shares are from the exact ones, over all backends of all sets.
#[derive(Default)]
struct Shares {
    squares: f64,
    count: f64,
    /// Relative, and in slots.
    over: (f64, f64),
    under: (f64, f64),
}

impl Shares {
    fn add(&mut self, weights: &[u64], table: &[u32]) {
        let sum = weights.iter().sum::<u64>() as f64;
        for (weight, owned) in weights.iter().zip(owned(table, weights.len()).into_iter().skip(1)) {
            let exact = *weight as f64 * f64::from(TABLE_SLOTS) / sum;
            let off = f64::from(owned) - exact;
            self.squares += (off / exact).powi(2);
            self.count += 1.0;
            self.over = (self.over.0.max(off / exact), self.over.1.max(off));
            self.under = (self.under.0.min(off / exact), self.under.1.min(off));
        }
    }
}

impl std::fmt::Display for Shares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rms = (self.squares / self.count).sqrt() * 100.0;
        let part = |(relative, slots): (f64, f64)| format!("{:+.2} %, {slots:+.0}", relative * 100.0);
        write!(f, "{rms:.2} % | {} | {}", part(self.over), part(self.under))
    }
}
