//! How much the kernel's verifier has to follow, and how much it may.

use gateway_common::Entry;
use gateway_tests::prog::World;

/// Instructions that the verifier processed (Linux 6.18), by entry. The kernel gives up at a million; what grows by
/// more than a twentieth says why in the commit that changes these.
const VERIFIED: [(Entry, u32); 2] = [(Entry::Xdp, 65_214), (Entry::Tc, 60_733)];

#[test]
fn verification_stays_cheap() {
    let mut world = World::create().unwrap();
    for (entry, expected) in VERIFIED {
        let seen = world.verified(entry).unwrap();
        let bound = expected + expected / 20;
        assert!(seen <= bound, "{}: {seen} verified instructions, {expected} are known", entry.name());
        assert!(
            seen >= expected - expected / 20,
            "{}: {seen} verified instructions: say so here",
            entry.name()
        );
    }
}
