//! Bodies: streamed both ways, never collected. Each is pulled by whoever writes it, so a slow reader slows its writer.

use std::{
    future::Future as _,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep_until};

use super::{
    error::{BodyError, Error},
    framing::HeadWatch,
    grpc::{GrpcStatus, trailers},
    repeat::{Reader, Repeat},
    stats::Active,
    upstream::Lease,
};

/// The body of a request on its way to a backend.
#[derive(Debug)]
pub(crate) enum RequestBody {
    Empty,
    Streaming {
        incoming: Incoming,
        /// Told when the body has ended.
        heads: Option<Arc<HeadWatch>>,
    },
    /// One that may be sent again.
    Repeated(Reader),
}

impl RequestBody {
    pub(crate) fn new(incoming: Incoming, heads: Option<&Arc<HeadWatch>>) -> Self {
        if incoming.is_end_stream() {
            Self::Empty
        } else {
            Self::Streaming { incoming, heads: heads.map(Arc::clone) }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    /// The body as one that may be sent again, with what reads it then; none where there is nothing to read.
    pub(crate) fn repeatable(self) -> (Self, Option<Arc<Repeat>>) {
        let Self::Streaming { incoming, heads } = self else { return (self, None) };
        let repeat = Arc::new(Repeat::new(incoming, heads));
        (repeat.again().map_or(Self::Empty, Self::Repeated), Some(repeat))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Streaming { incoming, heads } => {
                let polled = Pin::new(&mut *incoming).poll_frame(context);
                let ended = matches!(polled, Poll::Ready(None)) || incoming.is_end_stream();
                if ended && let Some(heads) = heads.take() {
                    heads.body_ended();
                }
                polled.map_err(BodyError::Broken)
            }
            Self::Repeated(reader) => reader.poll(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Streaming { incoming, .. } => incoming.is_end_stream(),
            Self::Repeated(reader) => reader.is_at_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Streaming { incoming, .. } => incoming.size_hint(),
            Self::Repeated(reader) => reader.size_hint(),
        }
    }
}

/// The body of a response on its way to a client.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    content: Content,
    /// Held until the body has ended: the backend is busy until then. Given back to the pool only when it did end.
    lease: Option<Lease>,
    /// Counted until the body has ended.
    active: Option<Active>,
    limit: Option<Limit>,
}

/// When a body has to have ended.
#[derive(Debug)]
struct Limit {
    until: Pin<Box<Sleep>>,
    /// Whether the client is told in the words of gRPC.
    grpc: bool,
}

#[derive(Debug)]
enum Content {
    Ended,
    Text(Bytes),
    Streaming(Incoming),
}

impl ResponseBody {
    pub(crate) fn empty() -> Self {
        Self { content: Content::Ended, lease: None, active: None, limit: None }
    }

    pub(crate) fn text(text: impl Into<Bytes>) -> Self {
        Self { content: Content::Text(text.into()), lease: None, active: None, limit: None }
    }

    pub(crate) fn streaming(incoming: Incoming, lease: Lease, active: Active) -> Self {
        let content = Content::Streaming(incoming);
        let mut body = Self { content, lease: Some(lease), active: Some(active), limit: None };
        if body.is_end_stream() {
            body.ended();
        }
        body
    }

    /// Ends the body at a moment, if it has not ended before.
    pub(crate) fn limited(mut self, until: Option<Instant>, grpc: bool) -> Self {
        if !matches!(self.content, Content::Ended) {
            self.limit = until.map(|until| Limit { until: Box::pin(sleep_until(until)), grpc });
        }
        self
    }

    /// The time is over: the client is told that the body is not whole.
    fn cut(&mut self, grpc: bool) -> Result<Frame<Bytes>, BodyError> {
        *self = Self::empty();
        if grpc {
            Ok(Frame::trailers(trailers(GrpcStatus::DeadlineExceeded, &Error::RequestTimeout.to_string())))
        } else {
            Err(BodyError::Timeout)
        }
    }

    fn ended(&mut self) {
        self.content = Content::Ended;
        self.limit = None;
        drop(self.active.take());
        if let Some(lease) = self.lease.take() {
            lease.give_back();
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Some(Limit { until, grpc }) = &mut this.limit
            && until.as_mut().poll(context).is_ready()
        {
            let grpc = *grpc;
            return Poll::Ready(Some(this.cut(grpc)));
        }
        match &mut this.content {
            Content::Ended => Poll::Ready(None),
            Content::Text(text) => {
                let text = std::mem::take(text);
                this.content = Content::Ended;
                Poll::Ready(Some(Ok(Frame::data(text))))
            }
            Content::Streaming(incoming) => {
                let polled = Pin::new(&mut *incoming).poll_frame(context);
                // hyper does not ask again once it knows the end.
                if matches!(polled, Poll::Ready(None)) || incoming.is_end_stream() {
                    this.ended();
                }
                polled.map_err(BodyError::Broken)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Ended => true,
            Content::Text(text) => text.is_empty(),
            Content::Streaming(incoming) => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Ended => SizeHint::with_exact(0),
            Content::Text(text) => SizeHint::with_exact(text.len() as u64),
            Content::Streaming(incoming) => incoming.size_hint(),
        }
    }
}
