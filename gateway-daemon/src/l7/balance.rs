//! Balancing: a BackendRef by weight, then an endpoint by load. Both anew for every request.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::upstream::Endpoint;

/// Random numbers of one worker (SplitMix64): cheap, seeded by the system, not for secrets.
#[derive(Debug)]
pub(crate) struct Random {
    /// Atomic for the sake of `Sync` only: one thread uses it.
    state: AtomicU64,
}

impl Random {
    pub(crate) fn new() -> Self {
        Self { state: AtomicU64::new(RandomState::new().hash_one(0)) }
    }

    /// A number below `bound`, each equally likely but for 2⁻⁶⁴ times `bound`.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(bound);
        // The upper half of a product of two 64-bit numbers.
        u64::try_from(wide >> 64).unwrap_or_default()
    }

    fn next(&self) -> u64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut mixed = self.state.fetch_add(STEP, Relaxed).wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// Weights of a service's backends, summed up for a choice.
#[derive(Debug)]
pub(crate) struct Weights {
    /// Sum of the weights up to and with each backend.
    sums: Box<[u64]>,
}

impl Weights {
    pub(crate) fn new(weights: impl Iterator<Item = u32>) -> Self {
        let sums = weights.scan(0, |sum, weight| {
            *sum += u64::from(weight);
            Some(*sum)
        });
        Self { sums: sums.collect() }
    }

    /// The index of a backend, with a chance of its weight in the sum; none when all weights are zero.
    pub(crate) fn pick(&self, random: &Random) -> Option<usize> {
        let total = self.sums.last().copied().filter(|total| *total > 0)?;
        if self.sums.len() == 1 {
            return Some(0);
        }
        let drawn = random.below(total);
        Some(self.sums.partition_point(|sum| *sum <= drawn))
    }
}

/// The less busy of two endpoints drawn at random; not `avoid`, when there is another.
pub(crate) fn pick_endpoint<'a>(
    endpoints: &'a [Arc<Endpoint>],
    avoid: Option<&Arc<Endpoint>>,
    random: &Random,
) -> Option<&'a Arc<Endpoint>> {
    let avoided = |one: &Arc<Endpoint>| avoid.is_some_and(|avoid| Arc::ptr_eq(one, avoid));
    match endpoints {
        [] => None,
        [only] => Some(only),
        _ => {
            let count = endpoints.len() as u64;
            let first = random.below(count);
            // Another one, by an offset that is never zero.
            let second = (first + 1 + random.below(count - 1)) % count;
            let at = |index: u64| usize::try_from(index).ok().and_then(|index| endpoints.get(index));
            let (first, second) = (at(first)?, at(second)?);
            let first_is_better = first.active() <= second.active();
            Some(if avoided(second) || (first_is_better && !avoided(first)) { first } else { second })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fit_weights_and_zero_gets_nothing() {
        let random = Random::new();
        let weights = [800_000, 150_000, 50_000, 0];
        let picker = Weights::new(weights.into_iter());
        let draws = 200_000_u32;
        let mut seen = [0_u32; 4];
        for _ in 0..draws {
            seen[picker.pick(&random).unwrap()] += 1;
        }
        assert_eq!(seen[3], 0);
        for (weight, seen) in weights.into_iter().zip(seen) {
            let share = f64::from(weight) / 1_000_000.0;
            // Five standard deviations: one run in a million fails by chance.
            let bound = 5.0 * (share * (1.0 - share) / f64::from(draws)).sqrt();
            assert!((f64::from(seen) / f64::from(draws) - share).abs() <= bound, "{weight}: {seen}");
        }
    }

    #[test]
    fn nothing_is_picked_when_all_weights_are_zero() {
        let random = Random::new();
        assert_eq!(Weights::new([0, 0].into_iter()).pick(&random), None);
        assert_eq!(Weights::new(std::iter::empty()).pick(&random), None);
        assert_eq!(Weights::new([0].into_iter()).pick(&random), None);
        assert_eq!(Weights::new([1].into_iter()).pick(&random), Some(0));
        assert_eq!(Weights::new([0, 1, 0].into_iter()).pick(&random), Some(1));
    }
}
