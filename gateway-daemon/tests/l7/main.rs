//! The proxy over real sockets on loopback: what goes in as bytes, and what comes out.

mod basics;
mod http1;
mod http2;
mod publish;
mod support;
mod tls;
mod upgrade;
