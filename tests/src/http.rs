//! What the HTTP backend and the HTTP client share: bodies, and who said what.

use std::collections::BTreeMap;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

/// Any error, of a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Any body.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// A body that is there already.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// What a backend has to say of a request: who it is and what arrived.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// The backend's name.
    pub backend: String,
    /// The method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// `HTTP/1.1` or `HTTP/2.0`.
    pub version: String,
    /// The authority: of the request line in h2, of the Host header in HTTP/1.1.
    pub authority: String,
    /// Headers; several of one name are joined by a comma.
    pub headers: BTreeMap<String, String>,
    /// Who connected to the backend.
    pub remote: String,
    /// Length of the request's body.
    pub body: u64,
}

impl Report {
    /// As the JSON that travels.
    pub fn to_json(&self) -> String {
        json!({
            "backend": self.backend, "method": self.method, "path": self.path, "version": self.version,
            "authority": self.authority, "headers": self.headers, "remote": self.remote, "body": self.body,
        })
        .to_string()
    }

    /// From the JSON that travelled.
    ///
    /// # Errors
    /// When a backend of ours did not write it.
    pub fn from_json(bytes: &[u8]) -> anyhow::Result<Self> {
        let value: Value = serde_json::from_slice(bytes)?;
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let headers = value["headers"].as_object().into_iter().flatten();
        anyhow::ensure!(value["backend"].is_string(), "not a backend's report: {value}");
        Ok(Self {
            backend: text("backend"),
            method: text("method"),
            path: text("path"),
            version: text("version"),
            authority: text("authority"),
            headers: headers
                .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
                .collect(),
            remote: text("remote"),
            body: value["body"].as_u64().unwrap_or_default(),
        })
    }
}
