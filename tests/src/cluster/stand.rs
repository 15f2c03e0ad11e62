//! One stand: the bench from its first namespace to its last.

use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::path::{self, Path, PathBuf};
use std::process::{self, Command};
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context as _, Error, Result, bail, ensure};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use super::access;
use super::control_plane::{ControlPlane, Order};
use super::daemon::Daemon;
use super::kubelet::Kubelet;
use super::network::{Network, PodNetworks};
use super::programs::{Channel, Programs};
use crate::netns::Netns;
use crate::reap;

/// The GatewayClass of the suite; `manifests/` holds it.
pub(super) const GATEWAY_CLASS: &str = "gateway-conformance";

/// What a stand is made of.
#[derive(Args, Clone, Debug)]
pub struct StandOptions {
    #[command(flatten)]
    pub programs: Programs,
    /// Folder for data, logs and the `kubectl` script; of this stand alone.
    #[arg(long)]
    pub state: PathBuf,
    /// Which CRDs of the Gateway API to install.
    #[arg(long, value_enum, default_value = "experimental")]
    pub channel: Channel,
    /// The daemon to run on the node; none runs if it has no Kubernetes source.
    #[arg(long)]
    pub gatewayd: Option<PathBuf>,
}

/// A bench that is up. The thread that holds it is on the node.
#[derive(Debug)]
pub struct Stand<'a> {
    pub(super) options: &'a StandOptions,
    pub(super) control: &'a Arc<Netns>,
    pub(super) node: &'a Arc<Netns>,
    pub(super) second_node: &'a Arc<Netns>,
    pub(super) pods: &'a PodNetworks,
    pub(super) kubeconfig: PathBuf,
    /// Takes orders for the control plane.
    pub(super) orders: mpsc::Sender<Order>,
    /// Whether gatewayd runs.
    pub serves: bool,
}

/// What ends by itself only by mistake.
struct Machinery {
    control_plane: ControlPlane,
    kubelet: Rc<Kubelet>,
    daemon: Option<Daemon>,
}

impl StandOptions {
    /// Brings the bench up, does `work` and takes it down, whether or not `work` succeeds or a signal ends it.
    ///
    /// # Errors
    /// Those of `work`; when another stand uses the same folder; when a program ends that should not.
    pub fn run<T: Send>(&self, work: impl AsyncFnOnce(&Stand<'_>) -> Result<T> + Send) -> Result<T> {
        // Programs are started in other folders than ours.
        let here = Self { state: path::absolute(&self.state)?, ..self.clone() };
        here.run_here(work)
    }

    fn run_here<T: Send>(&self, work: impl AsyncFnOnce(&Stand<'_>) -> Result<T> + Send) -> Result<T> {
        let _lock = lock(&self.state)?;
        for removed in reap::dead()? {
            println!("removed what a dead run left: {removed}");
        }
        clear(&self.state)?;
        fs::create_dir_all(self.state.join("logs"))?;
        write(&self.state.join("pid"), &process::id().to_string())?;
        let network = Network::create()?;
        let done = network.node.block_on(|| async {
            // Dropped at the end with whatever still runs in it.
            let tasks = LocalSet::new();
            tasks.run_until(self.on_the_node(&network, work)).await
        });
        drop(network);
        clear(&self.state)?;
        done
    }

    async fn on_the_node<T>(
        &self,
        network: &Network,
        work: impl AsyncFnOnce(&Stand<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut interrupted = std::pin::pin!(interrupted());
        let pods = PodNetworks::of(network);
        let (orders, mut ordered) = mpsc::channel(1);
        let mut stand = Stand {
            options: self,
            control: &network.control,
            node: &network.node,
            second_node: &network.second_node,
            pods: &pods,
            kubeconfig: PathBuf::new(),
            orders,
            serves: false,
        };
        let mut machinery = tokio::select! {
            started = stand.start() => started?,
            error = &mut interrupted => return Err(error),
        };
        let done = tokio::select! {
            done = work(&stand) => done,
            error = machinery.ended(&mut ordered) => Err(error),
            error = interrupted => Err(error),
        };
        machinery.stop().await?;
        done
    }
}

impl Machinery {
    /// Waits until a part ends, and returns why.
    async fn ended(&mut self, orders: &mut mpsc::Receiver<Order>) -> Error {
        let daemon = async {
            match &mut self.daemon {
                Some(daemon) => daemon.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            error = self.control_plane.ended(orders) => error,
            error = daemon => error,
            Err(error) = Rc::clone(&self.kubelet).run() => error.context("the kubelet ended"),
        }
    }

    async fn stop(self) -> Result<()> {
        if let Some(daemon) = self.daemon {
            daemon.stop().await?;
        }
        self.kubelet.stop().await;
        self.control_plane.stop().await
    }
}

impl Stand<'_> {
    async fn start(&mut self) -> Result<Machinery> {
        let options = self.options;
        let control_plane = ControlPlane::start(&options.programs, self.control, &options.state).await?;
        self.kubeconfig.clone_from(&control_plane.kubeconfig);
        self.furnish().await?;
        let roots = options.state.join("pods");
        let kubelet =
            Kubelet::new(control_plane.client.clone(), options.programs.clone(), self.pods.clone(), roots);
        let daemon = match &options.gatewayd {
            Some(program) if Daemon::has_kubernetes_source(program)? => {
                Some(Daemon::start(program, self.node, &self.kubeconfig, &options.state)?)
            }
            Some(program) => {
                println!(
                    "{} has no Kubernetes source (`run --kubernetes`): no gatewayd runs",
                    program.display()
                );
                None
            }
            None => None,
        };
        self.serves = daemon.is_some();
        Ok(Machinery { control_plane, kubelet, daemon })
    }

    /// Installs the CRDs and our own objects, and leaves `kubectl` and the base manifests at hand.
    async fn furnish(&self) -> Result<()> {
        let kubectl = self.options.programs.control_plane("kubectl")?;
        access::kubectl_script(&self.kubectl_path(), &kubectl, &self.kubeconfig, self.control.name())?;
        let base =
            fs::read_to_string(self.options.programs.base_manifests()?).context("read the base manifests")?;
        write(&self.base_path(), &base.replace("{GATEWAY_CLASS_NAME}", GATEWAY_CLASS))?;
        let mut apply = vec!["apply".to_owned(), "--server-side".to_owned()];
        for file in manifests(&self.options.programs.crds(self.options.channel)?)? {
            apply.push(format!("--filename={}", file.display()));
        }
        let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
        for file in manifests(&ours)? {
            apply.push(format!("--filename={}", file.display()));
        }
        self.kubectl(&apply).await.context("install the CRDs")?;
        self.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]).await?;
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/manifests");
        self.kubectl(&["apply", "--filename", &own.to_string_lossy()])
            .await
            .context("apply our own objects")
            .map(drop)
    }

    /// Runs `kubectl` with these arguments and returns what it printed.
    ///
    /// # Errors
    /// With what it said, when it fails.
    pub async fn kubectl(&self, arguments: &[impl AsRef<str>]) -> Result<String> {
        let mut command = Command::new(self.kubectl_path());
        command.args(arguments.iter().map(AsRef::as_ref));
        let output = tokio::process::Command::from(command)
            .kill_on_drop(true)
            .stdin(process::Stdio::null())
            .output()
            .await
            .context("start kubectl")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {}: {}", arguments[0].as_ref(), said.trim_end());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Tells whoever waits that the bench is up, then waits until a signal takes it down.
    ///
    /// # Errors
    /// When the word cannot be written.
    pub async fn stand_until_told(&self) -> Result<()> {
        write(&ready_path(&self.options.state), "")?;
        println!("the cluster is up; kubectl is {}", self.kubectl_path().display());
        std::future::pending().await
    }

    /// A `kubectl` that reaches this cluster from anywhere on the machine.
    pub fn kubectl_path(&self) -> PathBuf {
        kubectl_path(&self.options.state)
    }

    /// The suite's base manifests, for our GatewayClass.
    pub fn base_path(&self) -> PathBuf {
        base_path(&self.options.state)
    }
}

/// Where the `kubectl` of the stand with this folder is.
pub fn kubectl_path(state: &Path) -> PathBuf {
    state.join("kubectl")
}

/// Where the base manifests of the stand with this folder are.
pub fn base_path(state: &Path) -> PathBuf {
    state.join("base.yaml")
}

/// Exists while the stand with this folder is up.
pub fn ready_path(state: &Path) -> PathBuf {
    state.join("ready")
}

/// The process of the stand with this folder, if there is one that has not ended.
///
/// # Errors
/// When the folder cannot be read.
pub fn owner(state: &Path) -> Result<Option<u32>> {
    if !state.is_dir() || lock(state).is_ok() {
        return Ok(None);
    }
    let pid = fs::read_to_string(state.join("pid")).context("read whose stand it is")?;
    pid.trim().parse().map(Some).context("read whose stand it is")
}

/// Removes what a stand left in its folder that was killed.
///
/// # Errors
/// When it was not, and still uses it.
pub fn clean(state: &Path) -> Result<()> {
    let _lock = lock(state)?;
    clear(state)
}

/// Held as long as the file is open, by one process; a process that is killed holds nothing.
fn lock(state: &Path) -> Result<File> {
    fs::create_dir_all(state).with_context(|| format!("make {}", state.display()))?;
    let file = File::create(state.join("lock")).context("make the lock file")?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!("another stand uses {}", state.display()),
        Err(TryLockError::Error(error)) => Err(error).context("lock"),
    }
}

/// Removes what only a running stand needs; logs and reports stay until the next one.
fn clear(state: &Path) -> Result<()> {
    for dir in ["etcd", "pki", "pods", "gatewayd"] {
        let dir = state.join(dir);
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
        }
    }
    for file in [ready_path(state), kubectl_path(state), state.join("pid"), base_path(state)] {
        if file.exists() {
            fs::remove_file(&file).with_context(|| format!("remove {}", file.display()))?;
        }
    }
    Ok(())
}

/// The objects of a folder: its YAML files but for kustomize's own.
fn manifests(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("read {}", dir.display()))? {
        let path = entry?.path();
        let is_object = path.file_name().is_some_and(|name| name != "kustomization.yaml");
        if is_object && path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn write(path: &Path, text: &str) -> Result<()> {
    let mut file = File::create(path).with_context(|| format!("make {}", path.display()))?;
    file.write_all(text.as_bytes()).with_context(|| format!("write {}", path.display()))
}

/// Waits for the signals that end a program, and returns what to say.
async fn interrupted() -> Error {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let mut signals = Vec::new();
    for kind in kinds {
        match signal(kind) {
            Ok(signal) => signals.push(signal),
            Err(error) => return Error::new(error).context("watch for signals"),
        }
    }
    let waits = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
    futures_util::future::select_all(waits).await;
    Interrupted.into()
}

/// A signal ended the stand; nothing is wrong with it.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;
