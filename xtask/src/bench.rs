//! `cargo xtask bench`: the measurements that the documents quote.

use std::path::Path;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::exec::{cargo, exec};

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Ways to build the consistent-hash table: shares, slots moved beyond need, time. Feeds docs/tables.md.
    Tables,
}

pub(crate) fn run(options: &Options, root: &Path) -> Result<()> {
    match options.bench {
        Bench::Tables => exec(cargo(root).args([
            "bench",
            "--quiet",
            "--package",
            "gateway-common",
            "--features",
            "user",
            "--bench",
            "tables",
        ])),
    }
}
