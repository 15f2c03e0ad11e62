//! gRPC: what is a request of it, and how it is told that something failed.

use std::fmt::Write as _;

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version, header};

use super::{body::ResponseBody, error::Error};

/// Statuses of gRPC that a gateway answers with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum GrpcStatus {
    DeadlineExceeded = 4,
    Internal = 13,
    Unimplemented = 12,
    Unavailable = 14,
}

/// Whether a request is one of gRPC: over HTTP/2, with its content type.
pub(crate) fn is_grpc<B>(request: &Request<B>) -> bool {
    request.version() == Version::HTTP_2 && has_content_type(request.headers())
}

fn has_content_type(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let rest = value.get(..16).filter(|kind| kind.eq_ignore_ascii_case(b"application/grpc"));
    // Not `application/grpc-web`, which is another protocol.
    rest.is_some() && matches!(value.get(16), None | Some(b'+' | b';' | b' '))
}

impl Error {
    /// The status for clients of gRPC.
    pub(crate) fn grpc_status(&self) -> GrpcStatus {
        match self {
            Self::NoRoute | Self::NoBackend | Self::Misdirected | Self::Connect => GrpcStatus::Unimplemented,
            Self::BadRequest(_) | Self::RequestBody(_) => GrpcStatus::Internal,
            Self::RequestTimeout | Self::BackendTimeout => GrpcStatus::DeadlineExceeded,
            Self::Exhausted(last) => last.grpc_status(),
            Self::Unusable
            | Self::InvalidBackend
            | Self::NoWeight
            | Self::NoEndpoint
            | Self::Busy(_)
            | Self::ConnectFailed { .. }
            | Self::ConnectTimeout(_)
            | Self::Handshake { .. }
            | Self::Closed(_)
            | Self::Unsent { .. }
            | Self::Switched
            | Self::Exchange { .. } => GrpcStatus::Unavailable,
        }
    }
}

/// A response that is nothing but trailers.
pub(crate) fn trailers_only(status: GrpcStatus, message: &str) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = StatusCode::OK;
    *response.headers_mut() = trailers(status, message);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// What a response of gRPC ends with.
pub(crate) fn trailers(status: GrpcStatus, message: &str) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(3);
    trailers.insert("grpc-status", HeaderValue::from(status as u16));
    if let Ok(message) = HeaderValue::try_from(encode_message(message)) {
        trailers.insert("grpc-message", message);
    }
    trailers
}

/// Percent-encodes what `grpc-message` may not carry: all but printable ASCII, and the percent sign.
fn encode_message(message: &str) -> String {
    let mut encoded = String::with_capacity(message.len());
    for byte in message.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types_of_grpc() {
        let rows = [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("Application/GRPC;charset=x", true),
            ("application/grpc-web", false),
            ("application/grpcx", false),
            ("application/json", false),
        ];
        for (value, expected) in rows {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(value))]);
            assert_eq!(has_content_type(&headers), expected, "{value}");
        }
        assert!(!has_content_type(&HeaderMap::new()));
    }

    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(encode_message("50% of ü\n"), "50%25 of %C3%BC%0A");
    }
}
