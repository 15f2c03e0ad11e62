//! The proxy over real sockets on loopback: what goes in as bytes, and what comes out.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod basics;
mod http1;
mod http2;
mod publish;
mod retries;
mod rewrite;
mod support;
mod tls;
mod tunnel;
mod upgrade;
