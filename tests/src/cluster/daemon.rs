//! gatewayd on the node.

use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::time::Duration;

use anyhow::{Context as _, Error, Result, ensure};

use super::network::{POD_BRIDGE, UPLINK, VIP_RANGE_V4, VIP_RANGE_V6};
use super::process::Process;
use crate::netns::Netns;
use crate::reap::{PINS, PREFIX};

/// It takes its programs, addresses and settings off the node.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

/// A running gatewayd.
#[derive(Debug)]
pub(super) struct Daemon(Process);

impl Daemon {
    /// Whether this gatewayd can read an API server, by its own word.
    ///
    /// # Errors
    /// When it is not there or does not run.
    pub(super) fn has_kubernetes_source(program: &Path) -> Result<bool> {
        let output = Command::new(program)
            .args(["run", "--help"])
            .output()
            .with_context(|| format!("start {}", program.display()))?;
        ensure!(output.status.success(), "{} run --help: {}", program.display(), output.status);
        Ok(String::from_utf8_lossy(&output.stdout).split_whitespace().any(|word| word == "--kubernetes"))
    }

    /// Starts it on the node: clients come in by the uplink, all pods hang on the bridge.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn start(program: &Path, node: &Netns, kubeconfig: &Path, state: &Path) -> Result<Self> {
        let mut command = node.command(program)?;
        command.args(["run", "--kubernetes", "--cleanup-on-exit"]);
        command.args(["--interface", UPLINK, "--interface", POD_BRIDGE]);
        command.args(["--address-pool", VIP_RANGE_V4, "--address-pool", VIP_RANGE_V6]);
        command.arg("--state-dir").arg(state.join("gatewayd")).arg("--pin-dir").arg(pins());
        command.env("KUBECONFIG", kubeconfig);
        Ok(Self(Process::start("gatewayd", command, &state.join("logs"))?))
    }

    /// Waits until it ends, which is an error, and returns the error.
    pub(super) async fn ended(&mut self) -> Error {
        self.0.ended().await
    }

    /// Ends it.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub(super) async fn stop(self) -> Result<()> {
        self.0.stop(STOPS_WITHIN).await
    }
}

/// Named after this process, so that [`crate::reap`] knows whether anybody still needs them.
fn pins() -> PathBuf {
    Path::new(PINS).join(format!("{PREFIX}{}-bench", process::id()))
}
