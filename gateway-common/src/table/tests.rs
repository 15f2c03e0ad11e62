use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{race::Permutation, *};
use crate::hash::SipHash;

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

/// Every share is as far from the exact one as the slack says, and no farther.
#[expect(clippy::cast_precision_loss, reason = "far below what is asserted")]
fn assert_shares_within(weights: &[u64], slack: Slack) {
    let slots = build_within(&entries(weights), slack);
    let owned = owned(&slots);
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    for (index, weight) in weights.iter().enumerate() {
        let have = owned.get(&(index as u32 + 1)).copied().unwrap_or(0);
        let exact = *weight as f64 * f64::from(TABLE_SLOTS) / (sum as f64).max(1.0);
        let slack = if slack == Slack::HalfRoot { exact.sqrt() / 2.0 } else { 0.0 };
        let off = (f64::from(have) - exact).abs();
        assert!(off < slack + 1.000_001, "weight {weight} of {sum} has {have} slots, not {exact}");
        assert!(have == 0 || *weight > 0, "weight 0 has {have} slots");
    }
    assert_eq!(owned.get(&REFUSE).copied().unwrap_or(0), if sum == 0 { TABLE_SLOTS } else { 0 });
}

fn assert_shares(weights: &[u64]) {
    assert_shares_within(weights, Slack::HalfRoot);
    assert_shares_within(weights, Slack::None);
}

/// Slots that changed owner though neither owner lost or won by count.
fn moved_beyond_need(old: &[u64], new: &[u64], slack: Slack) -> u32 {
    let (old, new) = (build_within(&entries(old), slack), build_within(&entries(new), slack));
    let moved = old.iter().zip(&*new).filter(|(old, new)| old != new).count() as u32;
    let (had, has) = (owned(&old), owned(&new));
    let needed =
        had.iter().map(|(id, count)| count.saturating_sub(has.get(id).copied().unwrap_or(0))).sum::<u32>();
    moved - needed
}

/// One change of one backend: a new weight, which may be zero, or one more backend at the end.
fn changed(weights: &[u64], at: usize, weight: u64) -> Vec<u64> {
    let mut changed = weights.to_vec();
    match changed.get_mut(at) {
        Some(old) => *old = weight,
        None => changed.push(weight),
    }
    changed
}

/// The race by its definition: each slot's visits from every backend, the first by time owns it.
fn unbounded_by_definition(entries: &[TableEntry]) -> Vec<u32> {
    let edges = moments::edges();
    let mut best = vec![None; TABLE_SLOTS as usize];
    for entry in entries.iter().filter(|entry| entry.weight > 0) {
        let hash =
            |key| entry.identity.iter().fold(SipHash::new([key, 0]), |hash, word| hash.word(*word)).word(0);
        let path = Permutation::new(hash(0x6f66_6673).finish(), hash(0x736b_6970).finish());
        let phase = hash(0x7068_6173).finish() >> 48;
        for (visit, slice) in edges.windows(2).enumerate() {
            let moment = u64::from(slice[0]) + ((u64::from(slice[1] - slice[0]) * phase) >> 16);
            let best = &mut best[path.at(visit as u32) as usize];
            let earlier = |(other, weight, identity, _): (u64, u64, [u64; 2], u32)| {
                let (mine, theirs) =
                    (u128::from(moment) * u128::from(weight), u128::from(other) * u128::from(entry.weight));
                (mine, entry.identity) < (theirs, identity)
            };
            if best.is_none_or(earlier) {
                *best = Some((moment, entry.weight, entry.identity, entry.backend));
            }
        }
    }
    best.into_iter().map(|best| best.map_or(REFUSE, |(.., backend)| backend)).collect()
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
    // The least weight against the greatest sum, and so little that only rounding can give it a slot.
    assert_shares(&[vec![1_000_000 * 720_720; 1_000], vec![1; 100]].concat());
    assert_shares(&[u64::MAX / 2, 1, u64::MAX / 2]);
}

#[test]
fn more_entries_than_slots() {
    let owned = owned(&build(&entries(&vec![7; 70_000])));
    assert!(owned.values().all(|count| *count <= 1));
}

#[test]
fn a_permutation_visits_every_slot_once() {
    for seed in 0..50 {
        let permutation = Permutation::new(seed * 0x9e37_79b9, !seed);
        let mut seen = vec![false; TABLE_SLOTS as usize];
        for visit in 0..TABLE_SLOTS {
            assert!(!std::mem::replace(&mut seen[permutation.at(visit) as usize], true));
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
    for slack in [Slack::None, Slack::HalfRoot, Slack::Unbounded] {
        let mut twins = entries(&[3, 1]);
        twins[1].identity = twins[0].identity;
        let owned = owned(&build_within(&twins, slack));
        assert_eq!(owned[&1] + owned[&2], TABLE_SLOTS);
        // 1 % of the table when chance decides.
        assert!(owned[&1].abs_diff(3 * owned[&2]) <= TABLE_SLOTS / 25, "{owned:?}");
    }
}

#[test]
fn the_windows_do_not_change_the_race() {
    for weights in [vec![80, 15, 5], vec![1; 40], (1..=60).collect(), vec![1_000_000 * 720_720, 720_720, 1]] {
        let entries = entries(&weights);
        assert_eq!(build_within(&entries, Slack::Unbounded).into_vec(), unbounded_by_definition(&entries));
    }
}

#[test]
fn a_handful_of_backends_loses_nothing_without_need() {
    for (old, new) in [
        (&[80, 15, 5][..], &[80, 15, 5, 20][..]),
        (&[80, 15, 5], &[80, 30, 5]),
        (&[80, 15, 5], &[80, 15, 0]),
        (&[1, 1], &[1, 1, 1]),
        (&[90, 10], &[50, 50]),
    ] {
        assert_eq!(moved_beyond_need(old, new, Slack::HalfRoot), 0, "{old:?} to {new:?}");
    }
}

/// Nodes of different builds must agree. Whoever changes this number moves the flows of every cluster that upgrades.
#[test]
fn the_method_is_what_it_was() {
    let weights: Vec<u64> = (0..200).map(|index| index * index % 101 * 720_720).collect();
    let digest = |slack| {
        let slots = build_within(&entries(&weights), slack);
        slots.iter().fold(SipHash::new([0, 0]), |hash, slot| hash.word(u64::from(*slot))).finish()
    };
    assert_eq!(digest(Slack::HalfRoot), 2_563_854_703_628_434_014);
    assert_eq!(digest(Slack::Unbounded), 17_760_844_941_424_188_692);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn shares_for_any_weights(weights in proptest::collection::vec(0_u64..=1_000_000, 0..60)) {
        assert_shares(&weights);
    }

    #[test]
    fn shares_for_a_few_backends(weights in proptest::collection::vec(prop_oneof![Just(0), Just(1), 0_u64..=1_000_000], 1..5)) {
        assert_shares(&weights);
    }

    #[test]
    fn unbounded_never_moves_without_need(
        weights in proptest::collection::vec(0_u64..=1_000_000, 1..60),
        at in 0_usize..60,
        weight in 0_u64..=1_000_000,
    ) {
        let changed = changed(&weights, at, weight);
        prop_assert_eq!(moved_beyond_need(&weights, &changed, Slack::Unbounded), 0);
    }

    #[test]
    fn few_slots_move_without_need(
        weights in proptest::collection::vec(0_u64..=1_000_000, 1..400),
        at in 0_usize..400,
        weight in 0_u64..=1_000_000,
    ) {
        let beyond = moved_beyond_need(&weights, &changed(&weights, at, weight), Slack::HalfRoot);
        prop_assert!(beyond * 200 <= TABLE_SLOTS, "{} slots moved without need", beyond);
    }
}
