//! The consistent-hash table of a service: which backend owns which slot.
//!
//! A race for slots, bounded on both sides. Each backend visits every slot once, in an order of its own and at
//! moments of its own; a backend with twice the weight lives twice as fast. The first at a slot owns it, so a slot
//! changes hands only when its owner or the new owner is what changed. By itself that leaves shares to chance. So a
//! backend that owns its share and a little more, see [`Slack`], is out of the race, and one that ends with less
//! than its share and a little takes slots that it visited early from those with enough.
//!
//! The result is a function of the entries alone: not of their order, not of an earlier table, and of integers only.
//! Every node builds the same table. Shares, moved slots and the time to build are measured by
//! `cargo xtask bench tables` and written down in `docs/tables.md`, next to the methods that lost.
//!
//! # Source
//! The race is weighted rendezvous hashing: D. G. Thaler, C. V. Ravishankar, "Using Name-Based Mappings to Increase
//! Hit Rates" (1998), with exponential times for weights. Visits as permutations instead of independent draws, the
//! bounds and the way to compute it are our own.

mod moments;
mod race;
#[cfg(test)]
mod tests;

use crate::{REFUSE, TABLE_SLOTS};

/// One owner of slots.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TableEntry {
    /// What is written into the slots.
    pub backend: u32,
    /// Share of this entry against the sum of all, which must be less than 2^64. Zero owns no slot.
    pub weight: u64,
    /// What makes this entry's order of visits its own, equal on every node: two words that name the backend. Entries
    /// with equal identity still get their shares.
    pub identity: [u64; 2],
}

/// How many slots an entry may own more or fewer than its exact share, beside the rounding to whole slots.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Slack {
    /// None. Twice to five times as many slots move without need as with [`Slack::HalfRoot`].
    None,
    /// Half the square root of the share. Connections that arrive at random spread by more than that until there
    /// are four for each slot, so nobody sees the difference; this is what [`build`] uses.
    HalfRoot,
    /// Any number. No slot ever moves without need, and shares are left to chance.
    Unbounded,
}

/// Builds the table. With no weight at all every slot refuses ([`REFUSE`]).
///
/// An entry with a share of `q` slots owns at least `floor(q) - sqrt(q) / 2` and at most `ceil(q) + sqrt(q) / 2`.
pub fn build(entries: &[TableEntry]) -> Box<[u32]> {
    build_within(entries, Slack::HalfRoot)
}

/// [`build`] with other bounds; for benches and tests that compare them.
pub fn build_within(entries: &[TableEntry], slack: Slack) -> Box<[u32]> {
    let mut entries: Vec<TableEntry> = entries.iter().filter(|entry| entry.weight > 0).copied().collect();
    entries.sort_unstable_by_key(|entry| (entry.identity, entry.weight, entry.backend));
    if entries.is_empty() {
        return vec![REFUSE; TABLE_SLOTS as usize].into_boxed_slice();
    }
    let owners = race::run(&entries, slack);
    owners.into_iter().map(|owner| entries[owner as usize].backend).collect()
}

/// The fewest and the most slots that an entry may own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Bounds {
    floor: u32,
    cap: u32,
}

impl Bounds {
    /// Over all entries the floors sum to at most [`TABLE_SLOTS`] and the caps to at least as much, because each
    /// pair holds the exact share between them.
    fn new(weight: u64, sum: u128, slack: Slack) -> Self {
        let scaled = u128::from(weight) * u128::from(TABLE_SLOTS);
        // Both fit: a weight is at most the sum.
        let (below, above) = ((scaled / sum) as u32, scaled.div_ceil(sum) as u32);
        let slack = match slack {
            Slack::None => 0,
            Slack::HalfRoot => below.isqrt() / 2,
            Slack::Unbounded => TABLE_SLOTS,
        };
        Self { floor: below.saturating_sub(slack), cap: (above + slack).min(TABLE_SLOTS) }
    }
}
