//! Bodies of requests that may be sent again.
//!
//! What a try has read is kept for the next one, up to [`REPEAT_BUFFER`]; a body that is longer is sent once.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use super::{error::BodyError, framing::HeadWatch, settings::REPEAT_BUFFER};

/// The body of a request, and what was read of it.
#[derive(Debug)]
pub(crate) struct Repeat {
    /// Locked for moments, by one thread.
    state: Mutex<State>,
    /// As it was before anything was read.
    hint: SizeHint,
}

#[derive(Debug)]
struct State {
    incoming: Incoming,
    /// Told when the body has ended.
    heads: Option<Arc<HeadWatch>>,
    /// All that was read; none once it was too much.
    kept: Option<Vec<Part>>,
    /// Bytes of `kept`.
    bytes: usize,
    /// Only the newest reader may read.
    readers: usize,
    ended: bool,
}

#[derive(Clone, Debug)]
enum Part {
    Data(Bytes),
    Trailers(HeaderMap),
}

/// One reading of a body from its beginning.
#[derive(Debug)]
pub(crate) struct Reader {
    repeat: Arc<Repeat>,
    number: usize,
    /// Parts of what is kept that were read.
    at: usize,
}

impl Repeat {
    pub(crate) fn new(incoming: Incoming, heads: Option<Arc<HeadWatch>>) -> Self {
        let hint = incoming.size_hint();
        let kept = Some(Vec::new());
        Self { state: Mutex::new(State { incoming, heads, kept, bytes: 0, readers: 0, ended: false }), hint }
    }

    /// Reads the body from its beginning, and ends earlier readings; none when it cannot be read again.
    pub(crate) fn again(self: &Arc<Self>) -> Option<Reader> {
        let mut state = self.state();
        state.kept.as_ref()?;
        state.readers += 1;
        Some(Reader { repeat: Arc::clone(self), number: state.readers, at: 0 })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Reads on from the client.
    fn read(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Part, BodyError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.incoming).poll_frame(context)).transpose()?;
        self.ended = frame.is_none() || self.incoming.is_end_stream();
        if self.ended
            && let Some(heads) = self.heads.take()
        {
            heads.body_ended();
        }
        let Some(part) = frame.and_then(Part::of) else { return Poll::Ready(None) };
        self.bytes += part.size();
        self.kept = self.kept.take().filter(|_| self.bytes <= REPEAT_BUFFER);
        if let Some(kept) = &mut self.kept {
            kept.push(part.clone());
        }
        Poll::Ready(Some(Ok(part)))
    }
}

impl Part {
    fn of(frame: Frame<Bytes>) -> Option<Self> {
        match frame.into_data() {
            Ok(data) => Some(Self::Data(data)),
            Err(frame) => frame.into_trailers().ok().map(Self::Trailers),
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Data(data) => data.len(),
            // About what HTTP/2 counts.
            Self::Trailers(map) => {
                map.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum()
            }
        }
    }

    fn into_frame(self) -> Frame<Bytes> {
        match self {
            Self::Data(data) => Frame::data(data),
            Self::Trailers(map) => Frame::trailers(map),
        }
    }
}

impl Reader {
    pub(crate) fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut state = self.repeat.state();
        if state.readers != self.number {
            return Poll::Ready(Some(Err(BodyError::Superseded)));
        }
        let known = state.kept.as_ref().and_then(|kept| kept.get(self.at)).cloned();
        let part = match known {
            Some(part) => part,
            None => match ready!(state.read(context)) {
                Some(part) => part?,
                None => return Poll::Ready(None),
            },
        };
        self.at += 1;
        Poll::Ready(Some(Ok(part.into_frame())))
    }

    pub(crate) fn is_at_end(&self) -> bool {
        let state = self.repeat.state();
        state.ended && state.kept.as_ref().is_none_or(|kept| kept.len() <= self.at)
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        if self.at == 0 { self.repeat.hint } else { SizeHint::default() }
    }
}
