//! Keyed hashing of flows and of backends.
//!
//! SipHash-1-3 over whole words. Keyed, because a client that knew the hash could aim its flows at one slot.
//!
//! # Source
//! Aumasson and Bernstein, "`SipHash`: a fast short-input PRF" (2012), with one compression and three
//! finalisation rounds.

/// Hash state with a 128-bit key; feed it words, then [`finish`](Self::finish).
#[derive(Clone, Copy, Debug)]
pub struct SipHash {
    v: [u64; 4],
    words: u64,
}

impl SipHash {
    /// Starts with a key.
    #[inline(always)]
    #[must_use]
    pub const fn new(key: [u64; 2]) -> Self {
        Self {
            v: [
                key[0] ^ 0x736f_6d65_7073_6575,
                key[1] ^ 0x646f_7261_6e64_6f6d,
                key[0] ^ 0x6c79_6765_6e65_7261,
                key[1] ^ 0x7465_6462_7974_6573,
            ],
            words: 0,
        }
    }

    /// Adds one word.
    #[inline(always)]
    #[must_use]
    pub const fn word(mut self, word: u64) -> Self {
        self.v[3] ^= word;
        self = self.round();
        self.v[0] ^= word;
        self.words += 1;
        self
    }

    /// The hash of all words so far.
    #[inline(always)]
    #[must_use]
    pub const fn finish(mut self) -> u64 {
        // The last word of SipHash carries the message's length in bytes, modulo 256.
        self = self.word((self.words * 8) << 56);
        self.v[2] ^= 0xff;
        self = self.round().round().round();
        self.v[0] ^ self.v[1] ^ self.v[2] ^ self.v[3]
    }

    #[inline(always)]
    const fn round(self) -> Self {
        let [mut a, mut b, mut c, mut d] = self.v;
        a = a.wrapping_add(b);
        b = b.rotate_left(13) ^ a;
        a = a.rotate_left(32);
        c = c.wrapping_add(d);
        d = d.rotate_left(16) ^ c;
        a = a.wrapping_add(d);
        d = d.rotate_left(21) ^ a;
        c = c.wrapping_add(b);
        b = b.rotate_left(17) ^ c;
        c = c.rotate_left(32);
        Self { v: [a, b, c, d], words: self.words }
    }
}

/// The slot of a hash in a table of [`crate::TABLE_SLOTS`], without a division.
#[inline(always)]
pub const fn slot(hash: u64) -> u32 {
    (((hash >> 32) * crate::TABLE_SLOTS as u64) >> 32) as u32
}

#[cfg(all(test, feature = "user"))]
mod tests {
    use super::*;

    /// A plain restatement of the paper, over bytes.
    fn reference(key: [u64; 2], words: &[u64]) -> u64 {
        let mut v = [
            key[0] ^ 0x736f_6d65_7073_6575,
            key[1] ^ 0x646f_7261_6e64_6f6d,
            key[0] ^ 0x6c79_6765_6e65_7261,
            key[1] ^ 0x7465_6462_7974_6573,
        ];
        let round = |v: &mut [u64; 4]| {
            v[0] = v[0].wrapping_add(v[1]);
            v[2] = v[2].wrapping_add(v[3]);
            v[1] = v[1].rotate_left(13);
            v[3] = v[3].rotate_left(16);
            v[1] ^= v[0];
            v[3] ^= v[2];
            v[0] = v[0].rotate_left(32);
            v[2] = v[2].wrapping_add(v[1]);
            v[0] = v[0].wrapping_add(v[3]);
            v[1] = v[1].rotate_left(17);
            v[3] = v[3].rotate_left(21);
            v[1] ^= v[2];
            v[3] ^= v[0];
            v[2] = v[2].rotate_left(32);
        };
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let length = bytes.len();
        bytes.resize(length.next_multiple_of(8).max(length) + 8, 0);
        *bytes.last_mut().expect("it is never empty") = length as u8;
        for chunk in bytes.chunks_exact(8) {
            let m = u64::from_le_bytes(chunk.try_into().expect("chunks of eight"));
            v[3] ^= m;
            round(&mut v);
            v[0] ^= m;
        }
        v[2] ^= 0xff;
        for _ in 0..3 {
            round(&mut v);
        }
        v.iter().fold(0, |all, part| all ^ part)
    }

    #[test]
    fn agrees_with_the_paper() {
        for words in [&[][..], &[0], &[1, 2], &[u64::MAX, 7, 1 << 63], &[9; 40]] {
            let ours = words.iter().fold(SipHash::new([3, 5]), |hash, word| hash.word(*word)).finish();
            assert_eq!(ours, reference([3, 5], words));
        }
    }

    #[test]
    fn the_key_matters() {
        assert_ne!(SipHash::new([0, 0]).word(1).finish(), SipHash::new([0, 1]).word(1).finish());
    }

    #[test]
    fn slots_are_within_the_table() {
        assert_eq!(slot(0), 0);
        assert_eq!(slot(u64::MAX), crate::TABLE_SLOTS - 1);
    }
}
