//! The consistent-hash table of a service: which backend owns which slot.
//!
//! Maglev's method, with weights made exact. Each backend has a quota of slots, its share by largest remainder; the
//! backends take turns in the order of `(turns taken + 1/2) / quota`, and at each turn a backend takes the next free
//! slot of its own permutation of the table. So every share is within one slot of the exact one whatever the weights,
//! and most slots keep their owner when a backend comes, goes or changes weight.
//!
//! The result is a function of the entries alone, not of their order: every node builds the same table.
//!
//! # Source
//! D. E. Eisenbud et al., "Maglev: A Fast and Reliable Software Network Load Balancer", NSDI 2016, §3.4 (permutations
//! and turns). Quotas and the order of turns are our own.

use std::{cmp::Ordering, collections::BinaryHeap};

use crate::{REFUSE, TABLE_SLOTS, hash::SipHash};

/// One owner of slots.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TableEntry {
    /// What is written into the slots.
    pub backend: u32,
    /// Share of this entry against the sum of all. Zero owns no slot.
    pub weight: u64,
    /// What makes this entry's permutation its own, equal on every node: two words that name the backend. Entries
    /// with equal identity would contend for the same slots in turn; they still get their shares.
    pub identity: [u64; 2],
}

/// Builds the table. With no weight at all every slot refuses ([`REFUSE`]).
pub fn build(entries: &[TableEntry]) -> Box<[u32]> {
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
    let mut quotas: Vec<u32> = weights.iter().map(|weight| (u128::from(*weight) * slots / sum) as u32).collect();
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn entries(weights: &[u64]) -> Vec<TableEntry> {
        let entry = |(index, weight): (usize, &u64)| TableEntry {
            backend: index as u32 + 1,
            weight: *weight,
            identity: [0xfd00 << 48, index as u64 + 1],
        };
        weights.iter().enumerate().map(entry).collect()
    }

    fn owned(slots: &[u32]) -> BTreeMap<u32, u32> {
        let mut owned = BTreeMap::new();
        for backend in slots {
            *owned.entry(*backend).or_default() += 1;
        }
        owned
    }

    /// Every share is within one slot of the exact one.
    fn assert_shares(weights: &[u64]) {
        let owned = owned(&build(&entries(weights)));
        let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
        for (index, weight) in weights.iter().enumerate() {
            let have = u128::from(owned.get(&(index as u32 + 1)).copied().unwrap_or(0));
            let exact = u128::from(*weight) * u128::from(TABLE_SLOTS);
            assert!((have * sum).abs_diff(exact) < sum.max(1), "weight {weight} of {sum} has {have} slots");
        }
        assert_eq!(owned.get(&REFUSE).copied().unwrap_or(0), if sum == 0 { TABLE_SLOTS } else { 0 });
    }

    fn moved(old: &[u64], new: &[u64]) -> (u32, u32) {
        let (old, new) = (build(&entries(old)), build(&entries(new)));
        let moved = old.iter().zip(&*new).filter(|(old, new)| old != new).count() as u32;
        let (had, has) = (owned(&old), owned(&new));
        let needed = had.iter().map(|(id, count)| count.saturating_sub(has.get(id).copied().unwrap_or(0))).sum();
        (moved, needed)
    }

    #[test]
    fn shares_at_the_edges() {
        assert_shares(&[]);
        assert_shares(&[0]);
        assert_shares(&[0, 0, 0]);
        assert_shares(&[1]);
        assert_shares(&[1_000_000]);
        assert_shares(&[80, 15, 5, 0]);
        assert_shares(&[1, 1_000_000]);
        assert_shares(&[0, 1_000_000, 1, 999_999]);
        assert_shares(&vec![1; 1_000]);
        assert_shares(&(0..1_000).map(|index| index * 1_001).collect::<Vec<_>>());
        // An endpoint's share of its reference's weight is scaled up by the compiler: sums pass 32 bits.
        assert_shares(&[1_000_000 * 720_720, 720_720, 1]);
    }

    #[test]
    fn a_permutation_visits_every_slot_once() {
        for seed in 0..50 {
            let mut permutation = Permutation::new([seed, !seed]);
            let mut seen = vec![false; TABLE_SLOTS as usize];
            for _ in 0..TABLE_SLOTS {
                assert!(!std::mem::replace(&mut seen[permutation.next_slot() as usize], true));
            }
        }
    }

    #[test]
    fn the_order_of_entries_does_not_matter() {
        let forward = entries(&[3, 1, 4, 1, 5, 9, 2, 6]);
        let mut backward = forward.clone();
        backward.reverse();
        assert_eq!(build(&forward), build(&backward));
    }

    #[test]
    fn equal_identities_still_get_their_shares() {
        let mut twins = entries(&[3, 1]);
        twins[1].identity = twins[0].identity;
        let owned = owned(&build(&twins));
        assert_eq!(owned[&1] + owned[&2], TABLE_SLOTS);
        assert!(owned[&1].abs_diff(3 * owned[&2]) <= 4);
    }

    #[test]
    fn few_slots_move_without_need() {
        // Slots moved beyond need, of 65,537, may not pass 2 %.
        let beyond = |old: &[u64], new: &[u64]| {
            let (moved, needed) = moved(old, new);
            moved - needed
        };
        let hundred = vec![10; 100];
        let mut without_last = hundred.clone();
        without_last.pop();
        let mut heavier = hundred.clone();
        heavier[50] = 11;
        let mixed: Vec<u64> = (1..=100).collect();
        for (old, new) in [
            (&hundred[..], &without_last[..]),
            (&without_last, &hundred),
            (&hundred, &heavier),
            (&mixed, &mixed[..99]),
            (&[80, 15, 5, 0], &[60, 35, 5, 0]),
            (&[1, 1], &[1, 1, 1]),
        ] {
            let beyond = beyond(old, new);
            assert!(beyond * 50 <= TABLE_SLOTS, "{beyond} slots moved without need");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn shares_for_any_weights(weights in proptest::collection::vec(0_u64..=1_000_000, 0..60)) {
            assert_shares(&weights);
        }

        #[test]
        fn shares_for_a_few_backends(weights in proptest::collection::vec(prop_oneof![Just(0), Just(1), 0_u64..=1_000_000], 1..5)) {
            assert_shares(&weights);
        }
    }
}
