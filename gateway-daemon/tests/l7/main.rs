//! The proxy over real sockets on loopback: what goes in as bytes, and what comes out.

mod basics;
mod support;
