//! Notices request heads with both Content-Length and Transfer-Encoding.
//!
//! Such a request is the classic of smuggling and must be refused (RFC 9112 §6.1). The parser above drops the
//! Content-Length before anybody can see that it was there, so the lines of heads are looked at on their way in.

use std::sync::{Mutex, PoisonError};

/// Watches the bytes of one connection. Shared between its stream and the handler of its requests.
#[derive(Debug, Default)]
pub(crate) struct HeadWatch {
    /// Locked for moments, by one thread.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The head is over; bytes are not looked at until the next one begins.
    in_body: bool,
    /// Bytes of the current line that were seen, and the line's name as far as it matters.
    line: Vec<u8>,
    line_len: usize,
    content_length: bool,
}

const NAME: &[u8] = b"content-length";

impl HeadWatch {
    /// Takes note of bytes that were read.
    pub(crate) fn read(&self, bytes: &[u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.in_body {
            return;
        }
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            state.append(line);
            if state.in_body {
                return;
            }
        }
    }

    /// A request has arrived: its head is over. Tells whether it had a Content-Length line, as far as that was seen.
    pub(crate) fn head_ended(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.in_body = true;
        state.line.clear();
        state.line_len = 0;
        std::mem::take(&mut state.content_length)
    }

    /// The body of the request has been read: what comes is the next head.
    pub(crate) fn body_ended(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).in_body = false;
    }
}

impl State {
    fn append(&mut self, part: &[u8]) {
        let wanted = (NAME.len() + 1).saturating_sub(self.line.len()).min(part.len());
        if self.line.len() == self.line_len {
            self.line.extend_from_slice(&part[..wanted]);
        }
        self.line_len += part.len();
        if part.last() != Some(&b'\n') {
            return;
        }
        let name = self.line.split(|byte| *byte == b':').next().unwrap_or_default();
        self.content_length |= self.line.contains(&b':') && name.eq_ignore_ascii_case(NAME);
        self.in_body = self.line == b"\r\n" || self.line == b"\n";
        self.line.clear();
        self.line_len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(parts: &[&str]) -> bool {
        let watch = HeadWatch::default();
        for part in parts {
            watch.read(part.as_bytes());
        }
        watch.head_ended()
    }

    #[test]
    fn content_length_is_seen_in_heads_only_however_they_arrive() {
        assert!(seen(&["POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc"]));
        assert!(seen(&["POST / HTTP/1.1\r\nCONTENT-Le", "ngth: 3\r\n\r\n"]));
        assert!(seen(&["POST / HTTP/1.1\r\n", "c", "ontent-length", ":3\r\n", "\r\n"]));
        assert!(!seen(&["POST / HTTP/1.1\r\nx: content-length: 3\r\n\r\n"]));
        assert!(!seen(&["POST / HTTP/1.1\r\ncontent-length-x: 3\r\n\r\n"]));
        assert!(!seen(&["POST / HTTP/1.1\r\nhost: a\r\n\r\ncontent-length: 3\r\n"]));
        let watch = HeadWatch::default();
        watch.read(b"POST / HTTP/1.1\r\n\r\n");
        assert!(!watch.head_ended());
        watch.read(b"content-length: 3\r\n");
        watch.body_ended();
        watch.read(b"POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\n");
        assert!(watch.head_ended());
    }
}
