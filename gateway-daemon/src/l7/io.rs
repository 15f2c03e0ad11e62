//! The client's byte stream, with what has to happen below HTTP: bytes already read are read again, a request head
//! with both kinds of framing is noticed, and the close lingers.

use std::{
    future::Future as _,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use super::{framing::HeadWatch, replay::Replay};

/// How long, and for how many bytes, a closed connection goes on reading.
const LINGER: Duration = Duration::from_secs(1);
/// See [`LINGER`].
const LINGER_BYTES: usize = 4 << 20;

/// The byte stream of a client.
#[derive(Debug)]
pub(crate) struct ClientIo<S> {
    stream: Replay<S>,
    /// Set for HTTP/1.
    heads: Option<Arc<HeadWatch>>,
    linger: Option<Linger>,
}

/// The stream is shut down for writing, and what the client still sends is thrown away: closing at once would
/// answer with a RST, which takes the response from a client that is still sending.
#[derive(Debug)]
struct Linger {
    deadline: Pin<Box<Sleep>>,
    bytes: usize,
}

impl<S> ClientIo<S> {
    /// `prefix` was read before the protocol was known.
    pub(crate) fn new(stream: S, prefix: Bytes, heads: Option<Arc<HeadWatch>>) -> Self {
        Self { stream: Replay::new(stream, prefix), heads, linger: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientIo<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        if let Some(heads) = &this.heads {
            heads.read(&buffer.filled()[before..]);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientIo<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, data)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.linger.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
            this.linger = Some(Linger { deadline: Box::pin(sleep(LINGER)), bytes: 0 });
        }
        let Some(linger) = &mut this.linger else { return Poll::Ready(Ok(())) };
        let mut scratch = [0; 8 << 10];
        while linger.bytes < LINGER_BYTES {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut this.stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => linger.bytes += buffer.filled().len(),
                // The client has closed too, or is gone.
                Poll::Ready(_) => break,
                Poll::Pending => {
                    ready!(linger.deadline.as_mut().poll(context));
                    break;
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}
