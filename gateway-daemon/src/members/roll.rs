//! Who answers, by a clock that stands still while nobody can be asked.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

/// What was seen of each node's Lease.
#[derive(Debug, Default)]
pub(super) struct Roll {
    nodes: BTreeMap<String, Seen>,
    /// How long the API server has answered, gaps left out.
    clock: Duration,
    answered: Option<Instant>,
}

#[derive(Debug)]
struct Seen {
    version: String,
    /// When this version was first seen, by the clock.
    since: Duration,
}

impl Roll {
    /// Takes what the API server has now: nodes and the version of their Leases.
    ///
    /// More than `gap` between two answers is not counted: the API server was away, and others could not renew either.
    pub(super) fn call(&mut self, leases: BTreeMap<String, String>, now: Instant, gap: Duration) {
        let passed = self.answered.map_or(Duration::ZERO, |before| now.duration_since(before).min(gap));
        self.answered = Some(now);
        self.clock += passed;
        // A Lease that is gone was given up.
        self.nodes.retain(|node, _| leases.contains_key(node));
        for (node, version) in leases {
            match self.nodes.get_mut(&node) {
                Some(seen) if seen.version == version => {}
                _ => drop(self.nodes.insert(node, Seen { version, since: self.clock })),
            }
        }
    }

    /// The nodes whose Lease has changed within this time.
    pub(super) fn live(&self, duration: Duration) -> BTreeSet<String> {
        let fresh = |(_, seen): &(&String, &Seen)| self.clock <= seen.since + duration;
        self.nodes.iter().filter(fresh).map(|(node, _)| node.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DURATION: Duration = Duration::from_secs(6);

    /// Calls the roll at a second, with each node's version; then says who lives.
    fn call(roll: &mut Roll, start: Instant, second: u64, leases: &[(&str, u32)]) -> Vec<String> {
        let leases = leases.iter().map(|(node, version)| ((*node).to_owned(), version.to_string())).collect();
        roll.call(leases, start + Duration::from_secs(second), Duration::from_secs(3));
        roll.live(DURATION).into_iter().collect()
    }

    #[test]
    fn a_node_that_is_silent_is_gone_after_its_duration() {
        let (mut roll, start) = (Roll::default(), Instant::now());
        for step in 0..=3 {
            assert_eq!(call(&mut roll, start, 2 * u64::from(step), &[("a", step), ("b", 7)]), ["a", "b"]);
        }
        assert_eq!(call(&mut roll, start, 8, &[("a", 9), ("b", 7)]), ["a"]);
        assert_eq!(call(&mut roll, start, 10, &[("a", 10), ("b", 8)]), ["a", "b"]);
        assert_eq!(call(&mut roll, start, 11, &[("a", 11)]), ["a"], "one that has left is gone at once");
    }

    #[test]
    fn an_api_server_that_is_away_takes_nobody_away() {
        let (mut roll, start) = (Roll::default(), Instant::now());
        assert_eq!(call(&mut roll, start, 0, &[("a", 1), ("b", 1)]), ["a", "b"]);
        assert_eq!(call(&mut roll, start, 600, &[("a", 1), ("b", 1)]), ["a", "b"]);
        assert_eq!(call(&mut roll, start, 603, &[("a", 2), ("b", 1)]), ["a", "b"]);
        assert_eq!(call(&mut roll, start, 606, &[("a", 3), ("b", 1)]), ["a"]);
    }
}
