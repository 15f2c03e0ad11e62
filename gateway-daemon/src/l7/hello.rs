//! The ClientHello that opens a TLS connection, read before anybody answers it.
//!
//! Nothing is asked of it but which server it is for, so that what passes through stays as the client wrote it. It may
//! come in any number of records (RFC 8446 §5.1) and packets. With Encrypted Client Hello, the name is the outer one.
//!
//! Not here: how long it may take (the caller's), what is done with the connection (`secure`).

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::route::Host;

/// Longest that is read, framing included: twice what all extensions together may take.
const MAX: usize = 128 << 10;

/// What is read at once: most fit, those with post-quantum key shares too.
const CHUNK: usize = 4 << 10;

/// Content type of a record.
const HANDSHAKE: u8 = 22;
/// Longest content of a record (RFC 8446 §5.1).
const RECORD_MAX: usize = 1 << 14;
/// Bytes before a record's content: type, version, length.
const RECORD_HEAD: usize = 5;

/// Type of a handshake message.
const CLIENT_HELLO: u8 = 1;
/// Bytes before a handshake message's body: type, length.
const MESSAGE_HEAD: usize = 4;

/// Type of the extension `server_name` (RFC 6066 §3).
const SERVER_NAME: u16 = 0;
/// Type of a name that is a hostname.
const HOST_NAME: u8 = 0;

/// What opened a connection.
#[derive(Debug)]
pub(crate) struct Hello {
    /// Every byte that was read, for whoever answers.
    pub(crate) raw: Bytes,
    /// The server that is asked for; [`Host::NONE`] when no name was given.
    pub(crate) server_name: Host,
}

/// Why a connection does not open with a ClientHello.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("not TLS")]
    NotTls,
    #[error("the ClientHello is too long")]
    TooLong,
    #[error("the ClientHello is malformed")]
    Malformed,
}

/// Reads until the ClientHello is whole.
///
/// # Errors
/// The connection failed or ended before, or there is a [`Fault`] (as `InvalidData`).
pub(crate) async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Hello> {
    let mut reader = Reader::default();
    loop {
        reader.raw.reserve(CHUNK);
        if stream.read_buf(&mut reader.raw).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let server_name = reader.advance().map_err(|fault| io::Error::new(io::ErrorKind::InvalidData, fault));
        if let Some(server_name) = server_name? {
            return Ok(Hello { raw: reader.raw.freeze(), server_name });
        }
    }
}

/// The ClientHello as far as it is there.
#[derive(Debug, Default)]
struct Reader {
    raw: BytesMut,
    /// Contents of the whole records before `next`.
    message: Vec<u8>,
    /// Where in `raw` the next record begins.
    next: usize,
}

impl Reader {
    /// Takes what has come; the server name once the message is whole.
    fn advance(&mut self) -> Result<Option<Host>, Fault> {
        loop {
            if let Some(body) = body(&self.message)? {
                return server_name(body).map(Some);
            }
            let Some(content) = record(&self.raw[self.next..])? else { break };
            self.message.extend_from_slice(content);
            self.next += RECORD_HEAD + content.len();
        }
        if self.raw.len() > MAX { Err(Fault::TooLong) } else { Ok(None) }
    }
}

/// The content of the record that begins here, once it is whole.
fn record(bytes: &[u8]) -> Result<Option<&[u8]>, Fault> {
    // Said at the first byte that cannot be TLS: who speaks another protocol may wait for us.
    if bytes.first().is_some_and(|kind| *kind != HANDSHAKE) || bytes.get(1).is_some_and(|major| *major != 3) {
        return Err(Fault::NotTls);
    }
    let Some((head, rest)) = bytes.split_at_checked(RECORD_HEAD) else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
    if length == 0 || length > RECORD_MAX {
        return Err(Fault::Malformed);
    }
    Ok(rest.get(..length))
}

/// The body of the ClientHello that a message is, once it is whole.
fn body(message: &[u8]) -> Result<Option<&[u8]>, Fault> {
    if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
        return Err(Fault::Malformed);
    }
    let Some((head, rest)) = message.split_at_checked(MESSAGE_HEAD) else { return Ok(None) };
    let length = u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize;
    if length > MAX { Err(Fault::TooLong) } else { Ok(rest.get(..length)) }
}

/// The name that a ClientHello asks for (RFC 8446 §4.1.2, RFC 6066 §3).
fn server_name(body: &[u8]) -> Result<Host, Fault> {
    let mut hello = Fields(body);
    let _version_and_random = hello.take(2 + 32)?;
    let _session = hello.vector8()?;
    let _suites = hello.vector16()?;
    let _compression = hello.vector8()?;
    if hello.0.is_empty() {
        return Ok(Host::NONE);
    }
    let mut extensions = Fields(hello.vector16()?);
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let content = extensions.vector16()?;
        if kind == SERVER_NAME {
            return host_name(content);
        }
    }
    Ok(Host::NONE)
}

fn host_name(content: &[u8]) -> Result<Host, Fault> {
    let mut names = Fields(Fields(content).vector16()?);
    while !names.0.is_empty() {
        let kind = names.take(1)?[0];
        let name = names.vector16()?;
        if kind == HOST_NAME {
            // A name and nothing else: neither a port nor an address in brackets.
            let plain = !name.is_empty() && !name.iter().any(|byte| matches!(byte, b':' | b'[' | b']'));
            return plain.then(|| Host::parse(name)).flatten().ok_or(Fault::Malformed);
        }
    }
    Ok(Host::NONE)
}

/// Fields of a message that have not been read.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Fault::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16, Fault> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// What follows its length in one byte.
    fn vector8(&mut self) -> Result<&'a [u8], Fault> {
        let length = self.take(1)?[0];
        self.take(length.into())
    }

    /// What follows its length in two bytes.
    fn vector16(&mut self) -> Result<&'a [u8], Fault> {
        let length = self.u16()?;
        self.take(length.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector16(content: &[u8]) -> Vec<u8> {
        [&u16::try_from(content.len()).unwrap().to_be_bytes(), content].concat()
    }

    fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        [kind.to_be_bytes().to_vec(), vector16(content)].concat()
    }

    fn named(name: &[u8]) -> Vec<u8> {
        extension(SERVER_NAME, &vector16(&[vec![HOST_NAME], vector16(name)].concat()))
    }

    /// A handshake message with these extensions.
    fn message(extensions: &[u8]) -> Vec<u8> {
        let suites = vector16(&[0x13, 0x01]);
        let body =
            [&[3, 3][..], &[7; 32], &[4, 1, 2, 3, 4], &suites, &[1, 0], &vector16(extensions)].concat();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[CLIENT_HELLO][..], &length[1..], &body].concat()
    }

    /// A message in records of at most so many bytes.
    fn records(message: &[u8], most: usize) -> Vec<u8> {
        message.chunks(most).flat_map(|part| [&[HANDSHAKE, 3, 1][..], &vector16(part)].concat()).collect()
    }

    /// What comes of bytes that come in pieces of at most so many.
    fn advance(bytes: &[u8], most: usize) -> Result<Option<Host>, Fault> {
        let mut reader = Reader::default();
        for piece in bytes.chunks(most) {
            reader.raw.extend_from_slice(piece);
            if let Some(host) = reader.advance()? {
                return Ok(Some(host));
            }
        }
        Ok(None)
    }

    fn name(bytes: &[u8], most: usize) -> Result<Option<String>, Fault> {
        Ok(advance(bytes, most)?.map(|host| host.as_str().to_owned()))
    }

    #[test]
    fn the_name_is_found_however_the_message_is_cut() {
        let share = extension(51, &vec![0; 60_000]);
        let outer = extension(0xfe0d, &[0; 300]);
        for extensions in [
            named(b"A.example"),
            [share.clone(), named(b"a.example")].concat(),
            [outer, named(b"a.example."), share].concat(),
        ] {
            let message = message(&extensions);
            for record in [1, 5, 1000, RECORD_MAX] {
                let bytes = records(&message, record);
                if bytes.len() > MAX {
                    continue;
                }
                for packet in [1, 7, 1400, bytes.len()] {
                    assert_eq!(name(&bytes, packet), Ok(Some("a.example".into())), "{record}, {packet}");
                }
                // Not a byte before it is whole.
                assert_eq!(name(&bytes[..bytes.len() - 1], 1400), Ok(None), "{record}");
            }
        }
    }

    #[test]
    fn what_follows_is_nothing_to_it() {
        let mut bytes = records(&message(&named(b"a.example")), RECORD_MAX);
        bytes.extend_from_slice(b"\x17\x03\x03\x00\x01e");
        assert_eq!(name(&bytes, bytes.len()), Ok(Some("a.example".into())));
    }

    #[test]
    fn a_name_may_be_missing() {
        let other = extension(SERVER_NAME, &vector16(&[vec![9], vector16(b"x")].concat()));
        for extensions in [vec![], extension(43, &[2, 3, 4]), other] {
            assert_eq!(name(&records(&message(&extensions), RECORD_MAX), 9999), Ok(Some(String::new())));
        }
        // TLS 1.2 allows to leave all extensions out.
        let mut bare = message(&[]);
        bare.truncate(bare.len() - 2);
        let length = u8::try_from(bare.len() - MESSAGE_HEAD).unwrap();
        bare[3] = length;
        assert_eq!(name(&records(&bare, RECORD_MAX), 9999), Ok(Some(String::new())));
    }

    #[test]
    fn everything_else_is_refused_as_soon_as_it_is_clear() {
        let good = records(&message(&named(b"a.example")), RECORD_MAX);
        let changed = |index: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[index] = byte;
            bytes
        };
        let long = [&[HANDSHAKE, 3, 1, 0, 4, CLIENT_HELLO, 2, 0, 1][..]].concat();
        let endless = records(&message(&extension(51, &vec![0; 65_000])), 1);
        let rows: [(&[u8], Fault); 10] = [
            (b"G", Fault::NotTls),
            (b"\x16S", Fault::NotTls),
            (&changed(3, 0x41), Fault::Malformed),
            (b"\x16\x03\x01\x00\x00", Fault::Malformed),
            // Another handshake message.
            (&changed(5, 2), Fault::Malformed),
            // A session longer than the message.
            (&changed(43, 255), Fault::Malformed),
            (&records(&message(&named(b"")), 999), Fault::Malformed),
            (&records(&message(&named(b"a:443")), 999), Fault::Malformed),
            (&long, Fault::TooLong),
            (&endless, Fault::TooLong),
        ];
        for (bytes, fault) in rows {
            assert_eq!(name(bytes, 100).unwrap_err(), fault, "{:?}", &bytes[..bytes.len().min(9)]);
        }
    }
}
