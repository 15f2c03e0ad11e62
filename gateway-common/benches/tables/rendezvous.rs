//! What lost: weighted rendezvous with independent draws, as a race. Each backend emits arrivals at random moments
//! and random slots; divided by its weight, the first arrival at a slot owns it. In floating point, as the result
//! stays on this machine.

use std::{cmp::Reverse, collections::BinaryHeap};

use gateway_common::{TABLE_SLOTS, hash::SipHash, table::TableEntry};

/// Builds the table.
pub(crate) fn build(entries: &[TableEntry]) -> Box<[u32]> {
    let mut streams: Vec<Arrivals> =
        entries.iter().filter(|entry| entry.weight > 0).map(Arrivals::new).collect();
    // Times are positive, so their bits order as they do.
    let mut next: BinaryHeap<Reverse<(u64, usize)>> =
        streams.iter_mut().enumerate().map(|(index, stream)| Reverse((stream.advance(), index))).collect();
    let mut slots = vec![u32::MAX; TABLE_SLOTS as usize].into_boxed_slice();
    let mut left = TABLE_SLOTS;
    while left > 0 {
        let Some(mut first) = next.peek_mut() else { break };
        let stream = &mut streams[first.0.1];
        let slot = &mut slots[stream.slot as usize];
        if *slot == u32::MAX {
            *slot = stream.backend;
            left -= 1;
        }
        first.0.0 = stream.advance();
    }
    slots
}

struct Arrivals {
    backend: u32,
    weight: f64,
    seed: u64,
    count: u64,
    unscaled: f64,
    slot: u32,
}

impl Arrivals {
    fn new(entry: &TableEntry) -> Self {
        let seed = SipHash::new([1, 2]).word(entry.identity[0]).word(entry.identity[1]).finish();
        Self { backend: entry.backend, weight: entry.weight as f64, seed, count: 0, unscaled: 0.0, slot: 0 }
    }

    /// Goes to the next arrival and returns its time.
    fn advance(&mut self) -> u64 {
        let draw = SipHash::new([self.seed, 0]).word(self.count).finish();
        self.count += 1;
        self.slot = ((u64::from(draw as u32) * u64::from(TABLE_SLOTS)) >> 32) as u32;
        self.unscaled -= (((draw >> 32) as f64 + 0.5) / 2_f64.powi(32)).ln();
        (self.unscaled / self.weight).to_bits()
    }
}
