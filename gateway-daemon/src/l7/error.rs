//! Why a request is not answered by a backend: whose fault, whether to try again, and what the client is told.

use std::{io, net::SocketAddr};

use http::StatusCode;

/// Whose fault a failure is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Source {
    /// The backend, or the way to it.
    Upstream,
    /// The client.
    Downstream,
    /// The gateway: its configuration or its limits.
    Internal,
}

/// Whether a request may be sent again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Retry {
    /// The backend may have acted on it, or would fail again.
    Never,
    /// Where the connection had served before and the request is safe to repeat: the backend has probably closed it
    /// while the request was on its way.
    IfReused,
    /// No byte of it was acted on.
    Safe,
}

/// Why a request is not answered by a backend.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("bad request: {0}")]
    BadRequest(&'static str),
    #[error("misdirected request: this connection was opened for another host")]
    Misdirected,
    #[error("method not supported: this is no forward proxy")]
    Connect,
    #[error("no route for this request")]
    NoRoute,
    #[error("no backend: the route names none")]
    NoBackend,
    #[error("no backend: the route cannot be served as it is written")]
    Unusable,
    #[error("invalid backend: the route refers to one that it cannot use")]
    InvalidBackend,
    #[error("no backend: every weight is zero")]
    NoWeight,
    #[error("no ready endpoint")]
    NoEndpoint,
    #[error("backend is busy: too many requests wait for it")]
    Busy(SocketAddr),
    #[error("cannot connect to the backend")]
    ConnectFailed { address: SocketAddr, source: io::Error },
    #[error("backend did not accept a connection in time")]
    ConnectTimeout(SocketAddr),
    #[error("backend does not speak the protocol expected of it")]
    Handshake { address: SocketAddr, source: hyper::Error },
    #[error("backend closed the connection before it took a request")]
    Closed(SocketAddr),
    /// The request did not leave, or the backend said that it did not look at it.
    #[error("backend closed the connection before it took the request")]
    Unsent { address: SocketAddr, source: hyper::Error },
    #[error("backend failed before it answered")]
    Exchange { address: SocketAddr, source: hyper::Error },
    #[error("backend switched protocols without being asked")]
    Switched,
    #[error("request ended early")]
    RequestBody(hyper::Error),
    #[error("request took longer than its route allows")]
    RequestTimeout,
    #[error("backend took longer than the route allows")]
    BackendTimeout,
    /// The retries that its route has are used up; the last try failed like this.
    #[error("backend failed at every attempt")]
    Exhausted(#[source] Box<Self>),
}

/// Why the body of a message ends before its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error(transparent)]
    Broken(#[from] hyper::Error),
    #[error("took longer than the route allows")]
    Timeout,
    /// A later try has taken the body over.
    #[error("sent again")]
    Superseded,
}

impl Error {
    /// Sorts what came of sending a request.
    pub(crate) fn of_exchange(address: SocketAddr, source: hyper::Error, returned: bool) -> Self {
        if source.is_user() && !returned {
            Self::RequestBody(source)
        } else if returned || refused(&source) {
            Self::Unsent { address, source }
        } else {
            Self::Exchange { address, source }
        }
    }

    pub(crate) fn source(&self) -> Source {
        match self {
            Self::BadRequest(_)
            | Self::Misdirected
            | Self::Connect
            | Self::RequestBody(_)
            | Self::RequestTimeout
            | Self::NoRoute => Source::Downstream,
            Self::NoBackend | Self::Unusable | Self::InvalidBackend | Self::NoWeight => Source::Internal,
            Self::NoEndpoint
            | Self::Busy(_)
            | Self::ConnectFailed { .. }
            | Self::ConnectTimeout(_)
            | Self::Handshake { .. }
            | Self::Closed(_)
            | Self::Unsent { .. }
            | Self::Switched
            | Self::BackendTimeout
            | Self::Exhausted(_)
            | Self::Exchange { .. } => Source::Upstream,
        }
    }

    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::ConnectFailed { .. } | Self::ConnectTimeout(_) | Self::Closed(_) | Self::Unsent { .. } => {
                Retry::Safe
            }
            Self::Exchange { .. } => Retry::IfReused,
            _ => Retry::Never,
        }
    }

    /// Whether a route with retries sends the request again: the connection failed, or the backend took too long.
    pub(crate) fn of_connection(&self) -> bool {
        matches!(
            self,
            Self::ConnectFailed { .. }
                | Self::ConnectTimeout(_)
                | Self::Handshake { .. }
                | Self::Closed(_)
                | Self::Unsent { .. }
                | Self::Exchange { .. }
                | Self::BackendTimeout
        )
    }

    /// The status for clients of HTTP.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) | Self::RequestBody(_) => StatusCode::BAD_REQUEST,
            Self::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Self::Connect => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoRoute => StatusCode::NOT_FOUND,
            Self::NoBackend | Self::Unusable | Self::InvalidBackend | Self::NoWeight => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Self::NoEndpoint | Self::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::ConnectTimeout(_) | Self::RequestTimeout | Self::BackendTimeout => {
                StatusCode::GATEWAY_TIMEOUT
            }
            // The route asked for a backend that works, and there is none at present.
            Self::Exhausted(last) => match last.status() {
                StatusCode::BAD_GATEWAY => StatusCode::SERVICE_UNAVAILABLE,
                status => status,
            },
            Self::ConnectFailed { .. }
            | Self::Handshake { .. }
            | Self::Closed(_)
            | Self::Unsent { .. }
            | Self::Switched
            | Self::Exchange { .. } => StatusCode::BAD_GATEWAY,
        }
    }
}

/// Whether the backend said that it did not process the stream (RFC 9113 §8.7).
fn refused(error: &hyper::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let code = error.reason();
            // GOAWAY ends only the streams after the last one that it names.
            return error.is_remote()
                && (error.is_go_away() && code == Some(h2::Reason::NO_ERROR)
                    || error.is_reset() && code == Some(h2::Reason::REFUSED_STREAM));
        }
        cause = error.source();
    }
    false
}
