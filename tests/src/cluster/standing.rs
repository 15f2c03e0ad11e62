//! A stand on a thread of its own, for tests that block.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread;

use anyhow::{Context as _, Result, anyhow};
use clap::Parser;
use tokio::sync::{mpsc, oneshot};

use super::control_plane::{Ill, Order};
use super::network::PodNetwork;
use super::stand::StandOptions;
use crate::netns::{self, Netns};

/// A stand that is up until this is dropped. No gatewayd runs unless the options say so.
#[derive(Debug)]
pub struct Standing {
    /// Whence clients come.
    pub control: Arc<Netns>,
    /// Where gatewayd runs.
    pub node: Arc<Netns>,
    /// Where another one may.
    pub second_node: Arc<Netns>,
    /// The administrator's, for processes in either.
    pub kubeconfig: PathBuf,
    kubectl: PathBuf,
    orders: mpsc::Sender<Order>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<Result<()>>>,
}

/// The command line of a stand, of which only the environment says anything.
#[derive(Parser)]
struct FromEnvironment {
    #[command(flatten)]
    options: StandOptions,
}

impl StandOptions {
    /// A stand with this folder, with the programs that the environment names and without gatewayd.
    ///
    /// # Errors
    /// When the environment does not name the programs.
    pub fn of_tests(state: &Path) -> Result<Self> {
        let line = [Path::new("stand"), Path::new("--state"), state];
        let parsed = FromEnvironment::try_parse_from(line);
        Ok(parsed.context("this runs by `cargo xtask test --cluster`")?.options)
    }
}

impl Standing {
    /// Brings a stand up, with namespaces of `pods` pods that nothing runs in.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(options: StandOptions, pods: usize) -> Result<(Self, Vec<PodNetwork>)> {
        let (tell, told) = std_mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("stand".to_owned()).spawn(move || {
            options.run(async |stand| {
                let pods = (0..pods).map(|_| stand.pods.create()).collect::<Result<Vec<_>>>()?;
                let up = (
                    [stand.control, stand.node, stand.second_node].map(Arc::clone),
                    (stand.kubeconfig.clone(), stand.kubectl_path(), stand.orders.clone()),
                    pods,
                );
                tell.send(up).context("nobody waits for the stand")?;
                // An error is the sender's drop, which means the same.
                let (Ok(()) | Err(_)) = stopped.await;
                Ok(())
            })
        })?;
        match told.recv() {
            Ok(([control, node, second_node], (kubeconfig, kubectl, orders), pods)) => {
                let (stop, thread) = (Some(stop), Some(thread));
                Ok((Self { control, node, second_node, kubeconfig, kubectl, orders, stop, thread }, pods))
            }
            Err(_ended) => {
                let ended = thread.join().map_err(|_payload| anyhow!("the stand panicked"))?;
                Err(ended.err().context("the stand ended before it was up")?)
            }
        }
    }

    /// Does this to the control plane, and waits until it is done.
    ///
    /// # Errors
    /// When it cannot be done, or the stand has ended.
    pub fn make(&self, ill: Ill) -> Result<()> {
        let (tell, told) = oneshot::channel();
        self.orders.blocking_send((ill, tell)).ok().context("the stand has ended")?;
        told.blocking_recv().context("the stand has ended")?.with_context(|| format!("{ill:?}"))
    }

    /// `kubectl`, as the administrator; its path for whoever needs to feed it.
    ///
    /// # Errors
    /// With what it said, when it fails.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        netns::finish(Command::new(&self.kubectl).args(arguments))
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        drop(self.stop.take());
        match self.thread.take().map(thread::JoinHandle::join) {
            Some(Ok(Err(error))) => eprintln!("{error:#}"),
            Some(Err(_payload)) => eprintln!("the stand panicked"),
            Some(Ok(Ok(()))) | None => {}
        }
    }
}
