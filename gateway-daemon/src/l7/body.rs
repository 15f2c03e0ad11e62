//! Bodies: streamed both ways, never collected. Each is pulled by whoever writes it, so a slow reader slows its writer.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::{framing::HeadWatch, stats::Active, upstream::Lease};

/// The body of a request on its way to a backend.
#[derive(Debug)]
pub(crate) enum RequestBody {
    Empty,
    Streaming {
        incoming: Incoming,
        /// Told when the body has ended.
        heads: Option<Arc<HeadWatch>>,
    },
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
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Streaming { incoming, heads } => {
                let polled = Pin::new(&mut *incoming).poll_frame(context);
                let ended = matches!(polled, Poll::Ready(None)) || incoming.is_end_stream();
                if ended && let Some(heads) = heads.take() {
                    heads.body_ended();
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Streaming { incoming, .. } => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Streaming { incoming, .. } => incoming.size_hint(),
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
}

#[derive(Debug)]
enum Content {
    Ended,
    Text(Bytes),
    Streaming(Incoming),
}

impl ResponseBody {
    pub(crate) fn empty() -> Self {
        Self { content: Content::Ended, lease: None, active: None }
    }

    pub(crate) fn text(text: impl Into<Bytes>) -> Self {
        Self { content: Content::Text(text.into()), lease: None, active: None }
    }

    pub(crate) fn streaming(incoming: Incoming, lease: Lease, active: Active) -> Self {
        let mut body =
            Self { content: Content::Streaming(incoming), lease: Some(lease), active: Some(active) };
        if body.is_end_stream() {
            body.ended();
        }
        body
    }

    fn ended(&mut self) {
        self.content = Content::Ended;
        drop(self.active.take());
        if let Some(lease) = self.lease.take() {
            lease.give_back();
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
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
                polled
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
