//! The race: who is first at which slot, within bounds.
//!
//! All backends' visits in the order of time are about `M ln M`, far fewer than the `M` times `N` that looking at
//! every pair takes. They are run window by window of time. Inside a window visits are gathered backend by backend, and
//! put in order only when one of the backends might reach its cap there. Where windows begin and end does not change the
//! result: a visit at `moment / weight` is compared exactly, by multiplication across.

use std::cmp::Ordering;

use super::{Bounds, Slack, TableEntry, moments};
use crate::{TABLE_SLOTS, hash::SipHash};

/// Runs the race. Returns the index of each slot's owner; there is at least one entry, and none without weight.
pub(super) fn run(entries: &[TableEntry], slack: Slack) -> Vec<u32> {
    let sum = entries.iter().map(|entry| u128::from(entry.weight)).sum();
    let mut twin = 0;
    let racers = entries.iter().enumerate().map(|(index, entry)| {
        let same = index > 0 && entries[index - 1].identity == entry.identity;
        twin = if same { twin + 1 } else { 0 };
        Racer::new(entry, twin, Bounds::new(entry.weight, sum, slack))
    });
    let mut race = Race {
        racers: racers.collect(),
        owners: vec![FREE; TABLE_SLOTS as usize],
        open: Open { taken: [0; WORDS], slots: (0..TABLE_SLOTS).collect() },
        left: TABLE_SLOTS,
        visits: Vec::new(),
    };
    let mut until: u64 = 0;
    while race.left > 0 {
        // Longer and longer: the later, the fewer slots are free.
        until = until.saturating_add(WINDOW.max(until / 2));
        race.window(&Window::new(until, sum));
    }
    race.lift_to_floors();
    race.owners
}

/// Words that hold a bit for each slot.
const WORDS: usize = (TABLE_SLOTS as usize).div_ceil(64);

/// An owner that no entry is.
const FREE: u32 = u32::MAX;

/// Length of the first windows, in moments of a backend that had all the weight. Only speed depends on it.
const WINDOW: u64 = 1 << (moments::BITS - 1);

struct Race {
    racers: Vec<Racer>,
    owners: Vec<u32>,
    open: Open,
    left: u32,
    /// The visits of this window.
    visits: Vec<Visit>,
}

impl Race {
    fn window(&mut self, window: &Window) {
        self.visits.clear();
        let mut tight = false;
        for (index, racer) in self.racers.iter_mut().enumerate() {
            if racer.owned < racer.bounds.cap {
                let before = self.visits.len();
                racer.gather(index as u32, window.end_for(racer.weight), &self.open, &mut self.visits);
                tight |= racer.owned as usize + self.visits.len() - before > racer.bounds.cap as usize;
            }
        }
        if tight {
            self.visits.sort_unstable_by(Visit::order);
            self.serve_in_order();
        } else {
            self.serve_in_any_order();
        }
        for visit in &self.visits {
            let owned = u64::from(self.owners[visit.slot as usize] != FREE);
            self.open.taken[visit.slot as usize / 64] |= owned << (visit.slot % 64);
        }
        if self.left <= Open::FEW {
            let owners = &self.owners;
            self.open.slots.retain(|slot| owners[*slot as usize] == FREE);
        }
    }

    /// First come, first served, up to each racer's cap.
    fn serve_in_order(&mut self) {
        for visit in &self.visits {
            let (owner, racer) =
                (&mut self.owners[visit.slot as usize], &mut self.racers[visit.racer as usize]);
            if *owner == FREE && racer.owned < racer.bounds.cap {
                *owner = visit.racer;
                racer.owned += 1;
                self.left -= 1;
            }
        }
    }

    /// The same where nobody can reach a cap: then only visits of one slot need comparing.
    fn serve_in_any_order(&mut self) {
        // Owners hold the index of the best visit until all are seen.
        for (index, visit) in self.visits.iter().enumerate() {
            let best = &mut self.owners[visit.slot as usize];
            if *best == FREE || visit.order(&self.visits[*best as usize]) == Ordering::Less {
                *best = index as u32;
            }
        }
        // A slot is settled at its best visit; a later visit of a settled slot finds a bit set.
        for (index, visit) in self.visits.iter().enumerate() {
            let bit = 1 << (visit.slot % 64);
            let taken = &mut self.open.taken[visit.slot as usize / 64];
            let owner = &mut self.owners[visit.slot as usize];
            if *taken & bit == 0 && *owner == index as u32 {
                *taken |= bit;
                *owner = visit.racer;
                self.racers[visit.racer as usize].owned += 1;
                self.left -= 1;
            }
        }
    }

    /// Whoever is below its floor walks its permutation from the start and takes what others can spare.
    ///
    /// One walk is enough: the floors sum to at most the table, and a racer that can spare nothing never can again.
    fn lift_to_floors(&mut self) {
        for index in 0..self.racers.len() {
            let path = self.racers[index].path;
            let mut visit = 0;
            while self.racers[index].owned < self.racers[index].bounds.floor {
                let owner = &mut self.owners[path.at(visit) as usize];
                visit += 1;
                let giver = &mut self.racers[*owner as usize];
                if giver.owned > giver.bounds.floor {
                    giver.owned -= 1;
                    *owner = index as u32;
                    self.racers[index].owned += 1;
                }
            }
        }
    }
}

/// One backend in the race.
struct Racer {
    weight: u64,
    bounds: Bounds,
    owned: u32,
    path: Permutation,
    /// Visits so far.
    visits: u32,
    /// Where in its slice each of the visits falls, in 65,536ths: a backend with less than a slot's share would
    /// otherwise be always late or always early.
    phase: u32,
}

impl Racer {
    fn new(entry: &TableEntry, twin: u64, bounds: Bounds) -> Self {
        // The keys are part of the contract between nodes, like the method: changing them moves every flow's slot.
        let hash = |key| {
            let hash = SipHash::new([key, 0]).word(entry.identity[0]).word(entry.identity[1]);
            hash.word(twin).finish()
        };
        Self {
            weight: entry.weight,
            bounds,
            owned: 0,
            path: Permutation::new(hash(0x6f66_6673), hash(0x736b_6970)),
            visits: 0,
            phase: (hash(0x7068_6173) >> 48) as u32,
        }
    }

    /// Adds the visits up to `end` of slots that nobody had before.
    fn gather(&mut self, index: u32, end: u32, open: &Open, visits: &mut Vec<Visit>) {
        let edges = moments::edges();
        let done = self.visits_until(end, edges);
        let visit = |number, slot| Visit {
            moment: self.moment(number, edges),
            racer: index,
            slot,
            weight: self.weight,
        };
        if open.slots.len() < (done - self.visits) as usize {
            // Fewer slots are open than visits to make: look where they are on the way.
            for slot in &open.slots {
                let number = self.path.position(*slot);
                if self.visits <= number && number < done {
                    visits.push(visit(number, *slot));
                }
            }
        } else {
            let mut slot = self.path.at(self.visits);
            let mut first = self.visits;
            while first < done {
                // A word of hits without a branch each: whether a slot is open cannot be guessed.
                let count = (done - first).min(64);
                let mut hits = 0_u64;
                for bit in 0..count {
                    hits |= (!open.taken(slot) & 1) << bit;
                    slot = self.path.after(slot);
                }
                while hits != 0 {
                    let number = first + hits.trailing_zeros();
                    visits.push(visit(number, self.path.at(number)));
                    hits &= hits - 1;
                }
                first += count;
            }
        }
        self.visits = done;
    }

    /// How many visits are made up to and at a moment, those before this window included.
    fn visits_until(&self, end: u32, edges: &moments::Edges) -> u32 {
        let ahead = &edges[self.visits as usize..];
        // Edges are never closer to each other than the first two.
        let at_most = (end.saturating_sub(ahead[0]) / (edges[1] - 1) + 2) as usize;
        let begun =
            self.visits + ahead[..ahead.len().min(at_most)].partition_point(|edge| *edge <= end) as u32;
        // Of the slice that `end` falls into the visit may be past it; what was done stays done.
        let sure = begun.saturating_sub(1);
        let last = u32::from(sure < TABLE_SLOTS && self.moment(sure, edges) <= end);
        (sure + last).max(self.visits)
    }

    fn moment(&self, visit: u32, edges: &moments::Edges) -> u32 {
        let (start, next) = (edges[visit as usize], edges[visit as usize + 1]);
        start + ((u64::from(next - start) * u64::from(self.phase)) >> 16) as u32
    }
}

/// The slots that nobody owned before this window.
struct Open {
    /// A bit for each slot that is not: small enough to stay in the nearest cache.
    taken: [u64; WORDS],
    /// The slots, once they are few.
    slots: Vec<u32>,
}

impl Open {
    /// So many slots are few.
    const FEW: u32 = TABLE_SLOTS / 16;

    /// In the lowest bit; the others are of no meaning.
    fn taken(&self, slot: u32) -> u64 {
        self.taken[slot as usize / 64] >> (slot % 64)
    }
}

/// A racer at a slot.
#[derive(Clone, Copy)]
struct Visit {
    moment: u32,
    racer: u32,
    slot: u32,
    weight: u64,
}

impl Visit {
    /// By `moment / weight`, exactly; then by rank.
    fn order(&self, other: &Self) -> Ordering {
        let (mine, theirs) = (
            u128::from(self.moment) * u128::from(other.weight),
            u128::from(other.moment) * u128::from(self.weight),
        );
        mine.cmp(&theirs).then_with(|| self.racer.cmp(&other.racer))
    }
}

/// The end of a window, as a moment of weight one with 64 more fraction bits; or none. Equal for all racers, so that
/// everything in a window is before everything in the next.
struct Window(Option<u128>);

impl Window {
    /// `until` in moments of a backend that had all the weight.
    fn new(until: u64, sum: u128) -> Self {
        Self((until < u64::MAX).then(|| (u128::from(until) << 64) / sum))
    }

    /// The last moment inside this window of a racer.
    fn end_for(&self, weight: u64) -> u32 {
        let end = self.0.and_then(|end| end.checked_mul(u128::from(weight)));
        end.and_then(|end| u32::try_from(end >> 64).ok()).unwrap_or(u32::MAX)
    }
}

/// Every slot once, in an order of its own: `start + i * step`, modulo the prime [`TABLE_SLOTS`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Permutation {
    start: u32,
    step: u32,
    /// Of `step`, modulo the prime.
    inverse: u32,
}

impl Permutation {
    /// From two hashes.
    pub(super) fn new(start: u64, step: u64) -> Self {
        let slots = u64::from(TABLE_SLOTS);
        let step = step % (slots - 1) + 1;
        // Fermat: the inverse is the power of `slots - 2`, whose sixteen bits are all ones.
        let power = |(all, square): (u64, u64), _| (all * square % slots, square * square % slots);
        let (inverse, _) = (0..16).fold((1, step), power);
        // All fit: they are remainders of a 17-bit number.
        Self { start: (start % slots) as u32, step: step as u32, inverse: inverse as u32 }
    }

    /// The slot of a visit, from 0.
    pub(super) fn at(self, visit: u32) -> u32 {
        ((u64::from(self.start) + u64::from(visit) * u64::from(self.step)) % u64::from(TABLE_SLOTS)) as u32
    }

    /// The visit of a slot.
    fn position(self, slot: u32) -> u32 {
        let way = u64::from(slot + TABLE_SLOTS - self.start);
        (way * u64::from(self.inverse) % u64::from(TABLE_SLOTS)) as u32
    }

    /// The slot of the visit after that of `slot`.
    fn after(self, slot: u32) -> u32 {
        // One of the two is within the table, the other far above. No branch: it would be guessed wrong half the time.
        let next = slot + self.step;
        next.min(next.wrapping_sub(TABLE_SLOTS))
    }
}
