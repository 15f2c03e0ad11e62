//! Which node has an address.

use std::{collections::BTreeSet, net::IpAddr};

use sha2::{Digest as _, Sha256};

/// The node that has an address, of those that live: the one with the highest hash of both (rendezvous hashing).
///
/// Nodes that see the same members agree without talking. When a node goes, its addresses are divided among the
/// others and no other address moves; when one comes, it takes its share and nothing moves between the others.
pub fn owner(address: IpAddr, live: &BTreeSet<String>) -> Option<&str> {
    live.iter().max_by_key(|node| weight(address, node)).map(String::as_str)
}

fn weight(address: IpAddr, node: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    match address {
        IpAddr::V4(v4) => hash.update(v4.octets()),
        IpAddr::V6(v6) => hash.update(v6.octets()),
    }
    hash.update(node);
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_node_that_goes_moves_its_own_addresses_only(
            nodes in prop::collection::btree_set("[a-z]{1,8}", 1..8),
            gone in any::<prop::sample::Index>(),
        ) {
            let gone = nodes.iter().nth(gone.index(nodes.len())).cloned().unwrap();
            let mut left = nodes.clone();
            left.remove(&gone);
            for last in 0..64 {
                let address = IpAddr::from([198, 18, 0, last]);
                let before = owner(address, &nodes).unwrap();
                let after = owner(address, &left);
                if before == gone {
                    prop_assert_eq!(after.is_none(), left.is_empty());
                } else {
                    prop_assert_eq!(after, Some(before));
                }
            }
        }
    }

    #[test]
    fn addresses_are_divided_evenly() {
        let nodes: BTreeSet<String> = ["a", "b", "c", "d"].map(str::to_owned).into();
        let first = u32::from(Ipv4Addr::new(198, 18, 0, 0));
        for node in &nodes {
            let has = |address: &u32| owner(Ipv4Addr::from(*address).into(), &nodes) == Some(node);
            let count = (first..first + 4000).filter(has).count();
            // Four standard deviations around a quarter.
            assert!((890..=1110).contains(&count), "{node}: {count}");
        }
    }
}
