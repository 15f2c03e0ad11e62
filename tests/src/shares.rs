//! Whether counts fit weights: a statistical bound, so that neither luck fails a test nor a wrong table passes it.

#![expect(clippy::cast_precision_loss, reason = "counts of connections are far below 2^52")]

use std::fmt::Write as _;

/// How often right tables may fail, all their backends together.
const SIGNIFICANCE: f64 = 0.001;

/// Checks that each count lies within the two-sided 99.9 % bound of its share.
///
/// Each count is binomial; the exact tails are used, and the significance is divided among the backends (Bonferroni),
/// so that it holds for all of them together. A weight of zero allows no hit at all.
///
/// # Errors
/// With one line for each count that does not fit.
pub fn fit(counts: &[u64], weights: &[u64]) -> Result<(), String> {
    fit_one_of(1, counts, weights)
}

/// As [`fit`], for one of so many `tables` that are checked together: the significance is theirs together.
///
/// # Errors
/// As [`fit`].
pub fn fit_one_of(tables: usize, counts: &[u64], weights: &[u64]) -> Result<(), String> {
    assert_eq!(counts.len(), weights.len(), "a count for each weight");
    let total: u64 = counts.iter().sum();
    let sum: u64 = weights.iter().sum();
    let weighted = weights.iter().filter(|weight| **weight > 0).count();
    let mut faults = String::new();
    if total == 0 || sum == 0 {
        return Err(format!("nothing to compare: {total} connections, weights {weights:?}"));
    }
    for (index, (&count, &weight)) in counts.iter().zip(weights).enumerate() {
        let share = weight as f64 / sum as f64;
        let rarest = SIGNIFICANCE / (tables * weighted) as f64 / 2.0;
        let fits = match weight {
            0 => count == 0,
            _ if weighted == 1 => count == total,
            _ => tail(total, share, count) >= rarest,
        };
        if !fits {
            let expected = share * total as f64;
            let _infallible =
                writeln!(faults, "#{index}: {count} of {total}, expected {expected:.1} (weight {weight})");
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// The smaller of the chances to see at most, and at least, `count` of `total` at probability `p`.
fn tail(total: u64, p: f64, count: u64) -> f64 {
    let log_odds = (p / (1.0 - p)).ln();
    // ln of the probability of exactly k, from that of k - 1.
    let mut log = total as f64 * (1.0 - p).ln();
    let (mut at_most, mut at_least) = (0.0, 0.0);
    for k in 0..=total {
        if k > 0 {
            log += ((total - k + 1) as f64 / k as f64).ln() + log_odds;
        }
        if k <= count {
            at_most += log.exp();
        }
        if k >= count {
            at_least += log.exp();
        }
    }
    f64::min(at_most, at_least)
}

#[cfg(test)]
mod tests {
    use super::{fit, tail};

    #[test]
    fn tails_are_those_of_a_fair_coin() {
        // 10 throws: at most 2 heads in 56 of 1,024 cases.
        assert!((tail(10, 0.5, 2) - 56.0 / 1024.0).abs() < 1e-12);
        assert!((tail(10, 0.5, 8) - 56.0 / 1024.0).abs() < 1e-12);
        // Both tails contain the middle.
        assert!(tail(10, 0.5, 5) > 0.5);
    }

    #[test]
    fn what_is_expected_fits() {
        assert_eq!(fit(&[1600, 300, 100, 0], &[80, 15, 5, 0]), Ok(()));
        assert_eq!(fit(&[1550, 330, 120, 0], &[80, 15, 5, 0]), Ok(()));
        assert_eq!(fit(&[7], &[3]), Ok(()));
    }

    #[test]
    fn what_is_not_does_not() {
        // Equal shares where 80/15/5/0 was asked, and one connection too many on a weight of zero.
        assert!(fit(&[500, 500, 500, 500], &[80, 15, 5, 0]).is_err());
        assert!(fit(&[1599, 300, 100, 1], &[80, 15, 5, 0]).is_err());
        // 70 per cent where 80 was asked is far outside at 2,000.
        assert!(fit(&[1400, 450, 150, 0], &[80, 15, 5, 0]).is_err());
        assert!(fit(&[0, 0], &[1, 1]).is_err());
        assert!(fit(&[9, 1], &[5, 0]).is_err());
    }

    #[test]
    fn the_bound_is_as_wide_as_it_says() {
        // Where a count stops to fit, its tail is at the significance of one side of two backends.
        let edge =
            (1000..2000).find(|count| fit(&[*count, 2000 - count], &[1, 1]).is_err()).expect("an edge");
        assert!(tail(2000, 0.5, edge) < 0.001 / 4.0 && tail(2000, 0.5, edge - 1) >= 0.001 / 4.0);
    }
}
