//! Bytes that can be checked wherever they arrive: position decides value, so that a lost, doubled or moved byte shows.

use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};

use anyhow::{Result, ensure};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// After so many bytes the pattern begins again; no packet size divides it.
const PERIOD: usize = 65_521;

static PATTERN: LazyLock<Bytes> = LazyLock::new(|| {
    let mut state = 0x9e37_79b9_u32;
    let next = || {
        // xorshift32
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(PERIOD).collect()
});

/// The next bytes of the pattern from `position` on, `most` at most.
pub fn at(position: u64, most: usize) -> Bytes {
    let start = usize::try_from(position % PERIOD as u64).unwrap_or_default();
    PATTERN.slice(start..PERIOD.min(start.saturating_add(most)))
}

/// Checks a stream of bytes against the pattern.
#[derive(Clone, Copy, Debug, Default)]
pub struct Check {
    /// How many bytes have been right so far.
    pub position: u64,
}

impl Check {
    /// Takes the next bytes of the stream.
    ///
    /// # Errors
    /// When one of them is wrong; says where in the stream.
    pub fn take(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let expected = at(self.position, bytes.len());
            let (now, later) = bytes.split_at(expected.len());
            if now != expected {
                let wrong = now.iter().zip(&expected).take_while(|(seen, asked)| seen == asked).count();
                ensure!(false, "byte {} is wrong", self.position + wrong as u64);
            }
            self.position += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }
}

/// An HTTP body of the pattern's first `left` bytes, made as it is read.
#[derive(Debug)]
pub struct PatternBody {
    position: u64,
    left: u64,
}

impl PatternBody {
    /// A body of `length` bytes.
    pub fn new(length: u64) -> Self {
        Self { position: 0, left: length }
    }
}

impl Body for PatternBody {
    type Data = Bytes;
    type Error = crate::http::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let chunk = at(self.position, usize::try_from(self.left).unwrap_or(usize::MAX));
        self.position += chunk.len() as u64;
        self.left -= chunk.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::{Check, PERIOD, at};

    #[test]
    fn a_whole_stream_is_right_and_a_shifted_one_is_not() {
        let mut stream = at(0, PERIOD).to_vec();
        stream.extend_from_slice(&at(PERIOD as u64, 100));
        let mut check = Check::default();
        check.take(&stream[..1]).expect("the first byte");
        check.take(&stream[1..]).expect("the rest");
        assert_eq!(check.position, PERIOD as u64 + 100);
        assert!(Check::default().take(&stream[1..]).is_err());
        stream[70] ^= 1;
        let error = Check::default().take(&stream).expect_err("a flipped bit");
        assert_eq!(error.to_string(), "byte 70 is wrong");
    }
}
