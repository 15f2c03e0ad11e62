//! What lost: Maglev with exact quotas. Backends take turns in the order of `(turns taken + 1/2) / quota`; at each a
//! backend takes the next free slot of its permutation.
//!
//! # Source
//! D. E. Eisenbud et al., "Maglev: A Fast and Reliable Software Network Load Balancer", NSDI 2016, §3.4 (permutations
//! and turns). Quotas by largest remainder and the order of turns are our own.

use std::{cmp::Ordering, collections::BinaryHeap};

use gateway_common::{REFUSE, TABLE_SLOTS, hash::SipHash, table::TableEntry};

/// Builds the table. With no weight at all every slot refuses ([`REFUSE`]).
pub(crate) fn build(entries: &[TableEntry]) -> Box<[u32]> {
    let mut slots = vec![REFUSE; TABLE_SLOTS as usize].into_boxed_slice();
    let mut turns = first_turns(entries);
    let mut taken = vec![false; TABLE_SLOTS as usize];
    while let Some(mut turn) = turns.pop() {
        let mut slot = turn.permutation.next_slot();
        while std::mem::replace(&mut taken[slot as usize], true) {
            slot = turn.permutation.next_slot();
        }
        slots[slot as usize] = turn.backend;
        turn.taken += 1;
        if turn.taken < turn.quota {
            turns.push(turn);
        }
    }
    slots
}

/// Shares of [`TABLE_SLOTS`] by largest remainder; they sum to it, or all are zero. Ties go to the lower index.
fn quotas(weights: &[u64]) -> Vec<u32> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    if sum == 0 {
        return vec![0; weights.len()];
    }
    let slots = u128::from(TABLE_SLOTS);
    // A quota is at most TABLE_SLOTS, because a weight is at most the sum.
    let mut quotas: Vec<u32> =
        weights.iter().map(|weight| (u128::from(*weight) * slots / sum) as u32).collect();
    let mut by_remainder: Vec<usize> = (0..weights.len()).collect();
    by_remainder.sort_by_key(|index| std::cmp::Reverse(u128::from(weights[*index]) * slots % sum));
    let missing = TABLE_SLOTS - quotas.iter().sum::<u32>();
    for index in by_remainder.into_iter().take(missing as usize) {
        quotas[index] += 1;
    }
    quotas
}

fn first_turns(entries: &[TableEntry]) -> BinaryHeap<Turn> {
    let mut entries = entries.to_vec();
    entries.sort_by_key(|entry| (entry.identity, entry.weight, entry.backend));
    let weights: Vec<u64> = entries.iter().map(|entry| entry.weight).collect();
    let turns = entries.iter().zip(quotas(&weights)).enumerate();
    turns
        .filter(|(_, (_, quota))| *quota > 0)
        .map(|(rank, (entry, quota))| Turn {
            taken: 0,
            quota,
            rank,
            backend: entry.backend,
            permutation: Permutation::new(entry.identity),
        })
        .collect()
}

/// A backend's next turn; the heap gives the earliest.
struct Turn {
    taken: u32,
    quota: u32,
    /// Position among the entries sorted by identity: decides between turns due at the same moment.
    rank: usize,
    backend: u32,
    permutation: Permutation,
}

impl Ord for Turn {
    fn cmp(&self, other: &Self) -> Ordering {
        // Due at (2 * taken + 1) / (2 * quota); compared across without a division. At most 2^17 * 2^17.
        let due = u64::from(2 * self.taken + 1) * u64::from(other.quota);
        let other_due = u64::from(2 * other.taken + 1) * u64::from(self.quota);
        // Reversed, because the heap gives the greatest.
        other_due.cmp(&due).then_with(|| other.rank.cmp(&self.rank))
    }
}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Turn {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Turn {}

/// Every slot once, in an order of its own: `offset + i * step`, modulo the prime [`TABLE_SLOTS`].
#[derive(Clone, Copy, Debug)]
struct Permutation {
    next: u32,
    step: u32,
}

impl Permutation {
    fn new(identity: [u64; 2]) -> Self {
        // The keys are part of the contract between nodes, like the method: changing them moves every flow's slot.
        let offset = SipHash::new([0x6f66_6673, 0]).word(identity[0]).word(identity[1]).finish();
        let step = SipHash::new([0x736b_6970, 0]).word(identity[0]).word(identity[1]).finish();
        let slots = u64::from(TABLE_SLOTS);
        // Both fit: they are remainders of a 17-bit number.
        Self { next: (offset % slots) as u32, step: (step % (slots - 1)) as u32 + 1 }
    }

    fn next_slot(&mut self) -> u32 {
        let slot = self.next;
        self.next += self.step;
        if self.next >= TABLE_SLOTS {
            self.next -= TABLE_SLOTS;
        }
        slot
    }
}
