//! etcd, kube-apiserver and kube-controller-manager, real ones, in a namespace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Error, Result, anyhow, bail};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client};
use rustix::process::Signal;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep};

use super::access::{self, Credentials, PORT};
use super::network::{CONTROL_ADDRESS, SERVICE_RANGE};
use super::process::Process;
use super::programs::Programs;
use crate::netns::Netns;

/// On two busy cores the API server has been seen to take 20 s.
const STARTS_WITHIN: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(50);

/// What the bench's objects need: `Deployment`s, `DaemonSet`s, `EndpointSlice`s, deletion of namespaces and of what is
/// owned, and the `default` `ServiceAccount` without which no pod is admitted.
const CONTROLLERS: &str = "deployment-controller,replicaset-controller,daemonset-controller,\
                           endpointslice-controller,namespace-controller,garbage-collector-controller,\
                           serviceaccount-controller";

/// What a test may have done to the control plane.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ill {
    /// The API server is killed and stays away.
    KillApiServer,
    /// It is started again; done when it is ready.
    StartApiServer,
    /// etcd stands still.
    PauseEtcd,
    /// It goes on.
    ResumeEtcd,
}

/// Something to do, and whom to tell when it is done.
pub(super) type Order = (Ill, oneshot::Sender<Result<()>>);

/// A control plane that answers.
pub(super) struct ControlPlane {
    etcd: Process,
    /// Not there while a test has it killed.
    api_server: Option<Process>,
    controllers: Process,
    /// What the API server is started from.
    programs: Programs,
    netns: Arc<Netns>,
    credentials: Credentials,
    logs: PathBuf,
    pub(super) client: Client,
    pub(super) kubeconfig: PathBuf,
}

impl ControlPlane {
    /// Starts the three and waits until pods could be made.
    ///
    /// `state` is a folder for data and logs; the calling thread is in a namespace that reaches `netns`.
    ///
    /// # Errors
    /// When one of them ends or they are not ready in time; with the last lines of the log.
    pub(super) async fn start(programs: &Programs, netns: &Arc<Netns>, state: &Path) -> Result<Self> {
        let credentials = Credentials::create(state.join("pki"))?;
        let logs = state.join("logs");
        let mut etcd = Process::start("etcd", etcd(programs, netns, &state.join("etcd"))?, &logs)?;
        let mut api_server =
            Process::start("kube-apiserver", api_server(programs, netns, &credentials)?, &logs)?;
        let ready = async {
            let kubeconfig = until("its certificate", async || credentials.kubeconfig()).await?;
            let client = access::client(&kubeconfig).await?;
            until("the API server to be ready", async || ready(&client).await).await?;
            Ok((kubeconfig, client))
        };
        let (kubeconfig, client) = unless_ended(&mut [&mut etcd, &mut api_server], ready).await?;
        let command = controllers(programs, netns, &credentials, &kubeconfig)?;
        let mut controllers = Process::start("kube-controller-manager", command, &logs)?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
        let account =
            until("the default ServiceAccount", async || accounts.get("default").await.map_err(Error::from));
        unless_ended(&mut [&mut etcd, &mut api_server, &mut controllers], account).await?;
        Ok(Self {
            etcd,
            api_server: Some(api_server),
            controllers,
            programs: programs.clone(),
            netns: Arc::clone(netns),
            credentials,
            logs,
            client,
            kubeconfig,
        })
    }

    /// Follows orders until one of the three ends that nobody ordered to, and returns why.
    pub(super) async fn ended(&mut self, orders: &mut mpsc::Receiver<Order>) -> Error {
        loop {
            let api_server = async {
                match &mut self.api_server {
                    Some(process) => process.ended().await,
                    None => std::future::pending().await,
                }
            };
            let (ill, done) = tokio::select! {
                error = self.etcd.ended() => return error,
                error = api_server => return error,
                error = self.controllers.ended() => return error,
                Some(order) = orders.recv() => order,
            };
            // Who ordered it may be gone.
            let _ = done.send(self.obey(ill).await);
        }
    }

    async fn obey(&mut self, ill: Ill) -> Result<()> {
        match ill {
            Ill::KillApiServer => {
                let mut process = self.api_server.take().context("the API server does not run")?;
                process.kill().await
            }
            Ill::StartApiServer => {
                let command = api_server(&self.programs, &self.netns, &self.credentials)?;
                self.api_server = Some(Process::start("kube-apiserver", command, &self.logs)?);
                until("the API server to be ready", async || ready(&self.client).await).await
            }
            Ill::PauseEtcd => self.etcd.signal(Signal::STOP),
            Ill::ResumeEtcd => self.etcd.signal(Signal::CONT),
        }
    }

    /// Ends the three. Nothing they hold is needed again, so they are not asked: the API server would take a while.
    ///
    /// # Errors
    /// When one cannot be waited for.
    pub(super) async fn stop(mut self) -> Result<()> {
        self.controllers.kill().await?;
        if let Some(mut api_server) = self.api_server {
            api_server.kill().await?;
        }
        self.etcd.kill().await
    }
}

fn etcd(programs: &Programs, netns: &Netns, data: &Path) -> Result<Command> {
    let mut command = netns.command(programs.control_plane("etcd")?)?;
    let (clients, peers) = ("http://127.0.0.1:2379", "http://127.0.0.1:2380");
    command.args(["--name", "bench", "--data-dir"]).arg(data);
    command.args(["--listen-client-urls", clients, "--advertise-client-urls", clients]);
    command.args(["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]);
    command.args(["--initial-cluster", &format!("bench={peers}")]);
    // Nothing of a bench must survive the machine.
    command.args(["--unsafe-no-fsync", "--log-level", "warn"]);
    Ok(command)
}

fn api_server(programs: &Programs, netns: &Netns, credentials: &Credentials) -> Result<Command> {
    let mut command = netns.command(programs.control_plane("kube-apiserver")?)?;
    let file = |name: &str| credentials.dir.join(name).display().to_string();
    command.args([
        "--etcd-servers=http://127.0.0.1:2379".to_owned(),
        format!("--cert-dir={}", credentials.dir.display()),
        format!("--bind-address={CONTROL_ADDRESS}"),
        format!("--advertise-address={CONTROL_ADDRESS}"),
        format!("--secure-port={PORT}"),
        // One API server whose address is no endpoint that anything here dials.
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--token-auth-file={}", file("tokens.csv")),
        "--authorization-mode=RBAC".to_owned(),
        "--anonymous-auth=true".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", file("sa.pub")),
        format!("--service-account-signing-key-file={}", file("sa.key")),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        "--allow-privileged=true".to_owned(),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
    ]);
    Ok(command)
}

fn controllers(
    programs: &Programs,
    netns: &Netns,
    credentials: &Credentials,
    kubeconfig: &Path,
) -> Result<Command> {
    let mut command = netns.command(programs.control_plane("kube-controller-manager")?)?;
    for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
        command.arg(format!("--{flag}={}", kubeconfig.display()));
    }
    let certificates = credentials.dir.join("controller-manager");
    fs::create_dir_all(&certificates).with_context(|| format!("make {}", certificates.display()))?;
    command.args([
        "--leader-elect=false".to_owned(),
        "--use-service-account-credentials=false".to_owned(),
        format!("--service-account-private-key-file={}", credentials.dir.join("sa.key").display()),
        format!("--root-ca-file={}", credentials.dir.join("apiserver.crt").display()),
        "--bind-address=127.0.0.1".to_owned(),
        "--secure-port=10257".to_owned(),
        format!("--cert-dir={}", certificates.display()),
        "--allocate-node-cidrs=false".to_owned(),
        "--cloud-provider=".to_owned(),
        format!("--controllers={CONTROLLERS}"),
    ]);
    Ok(command)
}

async fn ready(client: &Client) -> Result<()> {
    let request = http::Request::get("/readyz").body(Vec::new())?;
    let answer = client.request_text(request).await?;
    if answer == "ok" { Ok(()) } else { bail!("the API server says {answer}") }
}

/// Looks until `look` succeeds.
pub(super) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        match look().await {
            Ok(found) => return Ok(found),
            Err(why) if start.elapsed() > STARTS_WITHIN => {
                return Err(why.context(format!("waited {STARTS_WITHIN:?} for {what}")));
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// The result of `work`, or of the first of `processes` that ends.
async fn unless_ended<T>(processes: &mut [&mut Process], work: impl Future<Output = Result<T>>) -> Result<T> {
    let endings = processes.iter_mut().map(|process| Box::pin(process.ended()));
    tokio::select! {
        done = work => done,
        (error, ..) = futures_util::future::select_all(endings) => Err(anyhow!("while it started: {error:#}")),
    }
}
