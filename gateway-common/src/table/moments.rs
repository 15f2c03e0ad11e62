//! When a backend of weight one visits the slots of its permutation.

use std::sync::LazyLock;

use crate::TABLE_SLOTS;

/// Fraction bits of a moment.
pub(super) const BITS: u32 = 28;

/// The last moment of all; the logarithm has none, so this one ends an ordinary step after the one before.
pub(super) const LAST: u32 = 12 << BITS;

/// Where the slices of time begin, and where the last one ends.
pub(super) type Edges = [u32];

/// `-ln(1 - k / TABLE_SLOTS)` for each `k`: the exponential distribution cut into slices of equal probability. The
/// `k`-th visit falls into the slice that begins at `edges()[k]`, so a backend's moments are exponential, as
/// rendezvous by weight needs, and evenly spread, which independent draws are not.
pub(super) fn edges() -> &'static Edges {
    static EDGES: LazyLock<Box<Edges>> = LazyLock::new(compute);
    &EDGES
}

/// Integers only, so that every machine has the same moments.
fn compute() -> Box<Edges> {
    /// Fraction bits while adding up; the sum stays below 12.
    const ADDING: u32 = 56;
    let mut sum = 0_u64;
    let mut edges = vec![0; TABLE_SLOTS as usize + 1].into_boxed_slice();
    for (edge, left) in edges[1..].iter_mut().zip((2..=u64::from(TABLE_SLOTS)).rev()) {
        // ln(left / (left - 1)) = 2 (x + x^3/3 + x^5/5 + ...) with x = 1 / (2 left - 1).
        let inverse = 2 * left - 1;
        let mut power = (1 << ADDING) / inverse;
        let mut order = 1;
        while power > 0 {
            sum += 2 * power / order;
            power /= inverse * inverse;
            order += 2;
        }
        *edge = (sum >> (ADDING - BITS)) as u32;
    }
    edges[TABLE_SLOTS as usize] = LAST;
    edges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::cast_precision_loss, reason = "a slot's number fits")]
    fn edges_are_the_logarithm_and_rise() {
        let edges = edges();
        assert_eq!(edges.len(), TABLE_SLOTS as usize + 1);
        assert!(edges.windows(2).all(|pair| pair[0] < pair[1]));
        let slots = f64::from(TABLE_SLOTS);
        for (k, edge) in edges.iter().enumerate().take(TABLE_SLOTS as usize) {
            let exact = -(-(k as f64) / slots).ln_1p() * f64::from(1 << BITS);
            assert!((f64::from(*edge) - exact).abs() < 2.0, "edge {k} is {edge}, not {exact}");
        }
    }
}
