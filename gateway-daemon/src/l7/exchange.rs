//! One request and its response: connect, send, classify; again where that is safe, or where the route says so.

use std::{future::Future, sync::Arc, time::Duration};

use http::{Request, Response, header, request::Parts};
use hyper::body::Incoming;
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    balance::pick_endpoint,
    body::RequestBody,
    error::{Error, Retry, Source},
    forward::is_idempotent,
    repeat::Repeat,
    stats::Active,
    upstream::{Endpoint, Lease, Protocol},
    worker::Worker,
};
use crate::model::l7::{self, Policy};

/// How often a request is sent at most by a route without retries, where each failure allows another attempt.
const ATTEMPTS: usize = 3;
/// The longest wait before a retry, as a multiple of the first one.
const BACKOFF_GROWTH: u32 = 10;

/// What a request is exchanged with.
#[derive(Clone, Copy)]
pub(crate) struct Exchange<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) endpoints: &'a [Arc<Endpoint>],
    pub(crate) protocol: Protocol,
    pub(crate) policy: &'a Policy,
    pub(crate) active: &'a Active,
}

/// The beginning of a response.
pub(crate) struct Exchanged {
    pub(crate) response: Response<Incoming>,
    pub(crate) lease: Lease,
    /// When the response has to have ended.
    pub(crate) until: Option<Instant>,
}

/// A failure, and the request where it may be sent again.
type Failed = (Error, Option<Request<RequestBody>>);

impl Exchange<'_> {
    /// # Errors
    /// What became of the last try.
    pub(crate) async fn run(self, request: Request<RequestBody>) -> Result<Exchanged, Error> {
        let deadline = self.policy.request_timeout.map(|limit| Instant::now() + limit);
        match &self.policy.retry {
            None => self.within(deadline, self.once(request)).await,
            Some(retry) => self.persistently(retry, deadline, request).await,
        }
    }

    /// Waits no longer than the limits of the route allow for one try.
    async fn within(
        self,
        deadline: Option<Instant>,
        exchanged: impl Future<Output = Result<(Response<Incoming>, Lease), Error>>,
    ) -> Result<Exchanged, Error> {
        let own = self.policy.backend_timeout.map(|limit| Instant::now() + limit);
        let until = match (own, deadline) {
            (Some(own), Some(deadline)) => Some(own.min(deadline)),
            (own, deadline) => own.or(deadline),
        };
        let exchanged = match until {
            None => exchanged.await,
            Some(until) => timeout_at(until, exchanged).await.unwrap_or_else(|_elapsed| {
                Err(if Some(until) == deadline { Error::RequestTimeout } else { Error::BackendTimeout })
            }),
        };
        exchanged.map(|(response, lease)| Exchanged { response, lease, until })
    }

    /// Sends a request; again only where no backend can have acted on it.
    async fn once(self, mut request: Request<RequestBody>) -> Result<(Response<Incoming>, Lease), Error> {
        let mut failed = None;
        let mut attempt = 1;
        loop {
            let endpoint = self.endpoint(failed.as_ref())?;
            let leased = endpoint.lease(self.protocol, attempt > 1, &self.worker.settings).await;
            let error = match leased {
                Ok(lease) => match send(lease, request).await {
                    Ok(exchanged) => return Ok(exchanged),
                    Err((error, None)) => return Err(error),
                    Err((error, Some(again))) => {
                        request = again;
                        error
                    }
                },
                // Another endpoint may be there; the same one would not be, a moment later.
                Err(error) if error.retry() != Retry::Safe || self.endpoints.len() < 2 => return Err(error),
                Err(error) => error,
            };
            if attempt == ATTEMPTS {
                return Err(error);
            }
            debug_assert_eq!(error.source(), Source::Upstream);
            attempt += 1;
            failed = Some(Arc::clone(endpoint));
        }
    }

    /// Sends a request as often as the route says, while tries fail.
    async fn persistently(
        self,
        retry: &l7::Retry,
        deadline: Option<Instant>,
        request: Request<RequestBody>,
    ) -> Result<Exchanged, Error> {
        let (head, body) = request.into_parts();
        let (first, repeat) = body.repeatable();
        let mut request = Request::from_parts(head.clone(), first);
        let mut failed = None;
        let mut retries = 0;
        loop {
            let endpoint = self.endpoint(failed.as_ref())?;
            let tried = self.within(deadline, self.try_at(endpoint, request)).await;
            let again = match &tried {
                Ok(exchanged) => retry.codes.contains(&exchanged.response.status()),
                Err(error) => error.of_connection(),
            };
            if !again {
                return tried;
            }
            let place = (retries < retry.attempts).then(|| self.active.retry()).flatten();
            // Last, since it takes the body away from the try that was.
            let next = place.and_then(|place| Some((place, repeated(&head, repeat.as_ref())?)));
            let Some((place, next)) = next else {
                return tried
                    .map_err(|error| if retries > 0 { Error::Exhausted(Box::new(error)) } else { error });
            };
            drop(tried);
            self.back_off(retry.backoff, retries, deadline).await?;
            drop(place);
            request = next;
            retries += 1;
            failed = Some(Arc::clone(endpoint));
        }
    }

    /// One try of a route with retries. Only a connection that had gone stale in the pool does not count as one.
    async fn try_at(
        self,
        endpoint: &Arc<Endpoint>,
        request: Request<RequestBody>,
    ) -> Result<(Response<Incoming>, Lease), Error> {
        let mut lease = endpoint.lease(self.protocol, false, &self.worker.settings).await?;
        let failed = match lease.send(request).await {
            Ok(response) => return Ok((response, lease)),
            Err(failed) => failed,
        };
        let Some(request) = failed.request.filter(|_| lease.is_reused()) else { return Err(failed.error) };
        let mut lease = endpoint.lease(self.protocol, true, &self.worker.settings).await?;
        match lease.send(*request).await {
            Ok(response) => Ok((response, lease)),
            Err(failed) => Err(failed.error),
        }
    }

    /// Waits before a retry: at least `backoff`, twice as long each time, and by chance up to half of that more.
    async fn back_off(self, backoff: Duration, retries: u32, deadline: Option<Instant>) -> Result<(), Error> {
        let growth = 1_u32.checked_shl(retries).unwrap_or(BACKOFF_GROWTH).min(BACKOFF_GROWTH);
        let wait = backoff.saturating_mul(growth);
        let half = u64::try_from(wait.as_micros() / 2).unwrap_or_default();
        let wait = wait + Duration::from_micros(self.worker.random.below(half + 1));
        match deadline {
            None => sleep(wait).await,
            Some(deadline) => {
                timeout_at(deadline, sleep(wait)).await.map_err(|_elapsed| Error::RequestTimeout)?;
            }
        }
        Ok(())
    }

    fn endpoint(&self, failed: Option<&Arc<Endpoint>>) -> Result<&Arc<Endpoint>, Error> {
        pick_endpoint(self.endpoints, failed, &self.worker.random).ok_or(Error::NoEndpoint)
    }
}

/// The request once more; none when its body was too long to be kept.
fn repeated(head: &Parts, repeat: Option<&Arc<Repeat>>) -> Option<Request<RequestBody>> {
    let body = match repeat {
        None => RequestBody::Empty,
        Some(repeat) => RequestBody::Repeated(repeat.again()?),
    };
    Some(Request::from_parts(head.clone(), body))
}

/// Sends a request over a lease. On failure, gives the request back where it may be sent again.
async fn send(
    mut lease: Lease,
    request: Request<RequestBody>,
) -> Result<(Response<Incoming>, Lease), Failed> {
    let reused = lease.is_reused();
    let repeatable = request.body().is_empty() && !request.headers().contains_key(header::UPGRADE);
    let idempotent = is_idempotent(request.method());
    // Kept only where a race with a closing connection is possible.
    let copy = (reused && repeatable).then(|| copy_head(&request));
    match lease.send(request).await {
        Ok(response) => Ok((response, lease)),
        Err(failed) => {
            let again = match (failed.request, failed.error.retry()) {
                (Some(request), _) => Some(*request),
                (None, Retry::Safe) => copy,
                (None, Retry::IfReused) => copy.filter(|_| idempotent),
                (None, Retry::Never) => None,
            };
            Err((failed.error, again))
        }
    }
}

fn copy_head(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(RequestBody::Empty);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    copy.headers_mut().clone_from(request.headers());
    copy
}
