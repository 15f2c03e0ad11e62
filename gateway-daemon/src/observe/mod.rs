//! What the daemon says of itself: the log, metrics, whether it is well.

mod counts;
mod metrics;
mod process;
mod server;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

pub use self::{
    counts::{Counts, KernelService, ProxyService, bounded},
    metrics::{Kubernetes, Metrics, Publication, WriteResult},
    server::{CountRequests, Server, Sources},
};

/// How log lines are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging to standard error. `GATEWAYD_LOG` filters, in the syntax of `RUST_LOG`; `info` by default.
pub fn init(format: LogFormat) {
    let filter = EnvFilter::try_from_env("GATEWAYD_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => {
            builder.with_target(false).with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init();
        }
        LogFormat::Json => builder.json().init(),
    }
}
