//! The Internet checksum: whole and incremental.
//!
//! All sums are of 16-bit words as they stand in memory, so a value can be written back without a swap whatever
//! the machine's byte order.
//!
//! # Source
//! RFC 1071 (the sum), RFC 1624 §3 equation 3 (the update).

/// Folds a 32-bit sum of 16-bit words to 16 bits.
#[inline(always)]
pub const fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum + (sum >> 16)) as u16
}

/// Folds a 64-bit sum of 16- and 32-bit words to 16 bits.
#[inline(always)]
pub const fn fold64(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
    fold(sum as u32)
}

/// What a change adds to the sum under a checksum: collect changes, then [`apply`](Self::apply) them at once.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Delta(u64);

impl Delta {
    /// No change.
    pub const NONE: Self = Self(0);

    /// Adds the change of one 16-bit word (wire order).
    #[inline(always)]
    #[must_use]
    pub const fn word16(self, old: u16, new: u16) -> Self {
        Self(self.0 + (!old) as u64 + new as u64)
    }

    /// Adds the change of one 32-bit word (wire order).
    #[inline(always)]
    #[must_use]
    pub const fn word32(self, old: u32, new: u32) -> Self {
        Self(self.0 + (!old) as u64 + new as u64)
    }

    /// Adds the change of four 32-bit words (wire order), an IPv6 address.
    #[inline(always)]
    #[must_use]
    pub const fn word128(self, old: [u32; 4], new: [u32; 4]) -> Self {
        self.word32(old[0], new[0]).word32(old[1], new[1]).word32(old[2], new[2]).word32(old[3], new[3])
    }

    /// Both changes.
    #[inline(always)]
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    /// What the change adds to the sum of 16-bit words: the difference that kernel helpers take.
    #[inline(always)]
    pub const fn sum(self) -> u16 {
        fold64(self.0)
    }

    /// The checksum after the change.
    #[inline(always)]
    pub const fn apply(self, checksum: u16) -> u16 {
        !fold64((!checksum) as u64 + self.0)
    }

    /// The checksum of a UDP datagram after the change: zero, "no checksum", stays zero over IPv4, and a sum that
    /// comes out as zero is written as all ones.
    ///
    /// # Source
    /// RFC 768.
    #[inline(always)]
    pub const fn apply_udp(self, checksum: u16) -> u16 {
        if checksum == 0 {
            return 0;
        }
        match self.apply(checksum) {
            0 => 0xffff,
            sum => sum,
        }
    }
}

/// The checksum of bytes, given a sum to start from (a pseudo-header's, or 0).
pub fn checksum(start: u32, bytes: &[u8]) -> u16 {
    let mut sum = u64::from(start);
    let mut words = bytes.chunks_exact(2);
    for word in &mut words {
        sum += u64::from(u16::from_ne_bytes([word[0], word[1]]));
    }
    if let [last] = words.remainder() {
        sum += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    !fold64(sum)
}

/// The sum of a pseudo-header over IPv4; `length` is the transport's, in host order, `protocol` its number.
///
/// # Source
/// RFC 9293 §3.1, RFC 768.
pub const fn pseudo4(source: u32, destination: u32, length: u16, protocol: u8) -> u32 {
    let sum = source as u64 + destination as u64 + length.to_be() as u64 + (protocol as u16).to_be() as u64;
    fold64(sum) as u32
}

/// The sum of a pseudo-header over IPv6; `length` is the upper layer's, in host order, `protocol` its number.
///
/// # Source
/// RFC 8200 §8.1.
pub const fn pseudo6(source: [u32; 4], destination: [u32; 4], length: u32, protocol: u8) -> u32 {
    let addresses = source[0] as u64
        + source[1] as u64
        + source[2] as u64
        + source[3] as u64
        + destination[0] as u64
        + destination[1] as u64
        + destination[2] as u64
        + destination[3] as u64;
    fold64(addresses + length.to_be() as u64 + (protocol as u32).to_be() as u64) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Two checksums are equal when they are equal as one's complement numbers: 0 and 0xffff are the same zero.
    fn same(a: u16, b: u16) -> bool {
        a == b || (a | b == 0xffff && a & b == 0)
    }

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(0, &bytes).to_be(), !0xddf2);
    }

    #[test]
    fn the_example_of_rfc_1624() {
        // §4: a checksum of 0xdd2f, a word from 0x5555 to 0x3285, gives 0x0000.
        let new = Delta::NONE.word16(0x5555_u16.to_be(), 0x3285_u16.to_be()).apply(0xdd2f_u16.to_be());
        assert!(same(new, 0));
    }

    #[test]
    fn udp_without_a_checksum_keeps_none() {
        assert_eq!(Delta::NONE.word32(1, 2).apply_udp(0), 0);
    }

    proptest! {
        #[test]
        fn an_update_equals_a_recomputation(
            mut bytes in proptest::collection::vec(any::<u8>(), 2..200),
            at in any::<prop::sample::Index>(),
            word in any::<u16>(),
        ) {
            let at = at.index(bytes.len() / 2) * 2;
            let before = checksum(0, &bytes);
            let old = u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
            bytes[at..at + 2].copy_from_slice(&word.to_ne_bytes());
            let updated = Delta::NONE.word16(old, word).apply(before);
            prop_assert!(same(updated, checksum(0, &bytes)));
        }

        #[test]
        fn an_update_of_addresses_equals_a_recomputation(
            old in any::<[[u32; 4]; 2]>(), new in any::<[[u32; 4]; 2]>(), payload in any::<[u8; 20]>(),
            length in any::<u16>(), protocol in any::<u8>(),
        ) {
            let before = checksum(pseudo6(old[0], old[1], length.into(), protocol), &payload);
            let after = checksum(pseudo6(new[0], new[1], length.into(), protocol), &payload);
            let updated = Delta::NONE.word128(old[0], new[0]).word128(old[1], new[1]).apply(before);
            prop_assert!(same(updated, after));

            let before = checksum(pseudo4(old[0][0], old[1][0], length, protocol), &payload);
            let after = checksum(pseudo4(new[0][0], new[1][0], length, protocol), &payload);
            let updated = Delta::NONE.word32(old[0][0], new[0][0]).word32(old[1][0], new[1][0]).apply(before);
            prop_assert!(same(updated, after));
        }

        #[test]
        fn many_changes_at_once(changes in proptest::collection::vec(any::<(u32, u32)>(), 0..12), checksum in any::<u16>()) {
            let all = changes.iter().fold(Delta::NONE, |delta, (old, new)| delta.word32(*old, *new)).apply(checksum);
            let one_by_one =
                changes.iter().fold(checksum, |sum, (old, new)| Delta::NONE.word32(*old, *new).apply(sum));
            prop_assert!(same(all, one_by_one));
        }
    }
}
