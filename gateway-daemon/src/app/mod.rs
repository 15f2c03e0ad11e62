//! Wiring: opens every part, starts the writer task, and takes everything down in the right order.
//!
//! Everything here runs on the control runtime, one thread; requests are served by the proxy's own threads.

mod counts;
mod hash_key;
mod interface;
mod node;
mod report;
mod resolve;
mod writer;

use std::{
    fs,
    hash::{BuildHasher as _, RandomState},
    net::SocketAddr,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

pub use self::interface::{Interface, InterfaceError};
use self::writer::{Cluster, Questions, Writer};
use crate::{
    admin,
    compile::pool::Pool,
    l4, l7,
    members::{Membership, Node},
    net, observe,
    record::Record,
    source::{self, Source, files::Loader, kubernetes::Access},
    status::{self, Applied, Election},
};

/// The report after each generation, in the state directory.
const STATUS_FILE: &str = "status.json";

/// What each file was when it was good last, in the state directory.
const LAST_GOOD: &str = "last-good";

/// What `gatewayd run` was told.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where resources come from.
    pub source: SourceOptions,
    /// Devices that carry clients or backends. Gateway addresses go on the first one.
    pub interfaces: Vec<Interface>,
    /// Where state is kept; exists.
    pub state_dir: PathBuf,
    /// Where kernel objects are pinned.
    pub pin_dir: PathBuf,
    /// Who is told where the addresses of Gateways are.
    pub announce: Announce,
    /// Whether rules with the same backends share a service.
    pub combined_services: bool,
    /// Whether SIGTERM takes everything off the node.
    pub cleanup_on_exit: bool,
    /// How long flows and tunnels of removed backends, and requests when the proxy stops, may live on.
    pub drain_timeout: Duration,
    /// Entries of each flow map.
    pub max_flows: u32,
    /// Source ports towards backends.
    pub nat_ports: Option<RangeInclusive<u16>>,
    /// Threads of the proxy.
    pub workers: Option<usize>,
    /// Where metrics and health are asked for, if anywhere.
    pub metrics_address: Option<SocketAddr>,
}

/// Who is told where the addresses of Gateways are.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Announce {
    /// The neighbours on the link of the first interface, by ARP and Neighbour Discovery. Of several nodes one has an
    /// address at a time.
    L2,
    /// Nobody: a router sends to the nodes (BGP, ECMP, static routes), and every node has every address.
    None,
}

/// Where resources come from.
#[derive(Clone, Debug)]
pub enum SourceOptions {
    /// Files and directories to read, and to watch.
    Files(Vec<PathBuf>),
    /// An API server to watch.
    Kubernetes {
        /// How to reach it.
        access: Access,
        /// Addresses for Gateways; empty for those of the node.
        pool: Pool,
        /// This node among the others.
        node: Node,
    },
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// When a part cannot be opened. What can fail later is reported and tried again.
pub fn run(options: Options) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(serve(options))
}

async fn serve(options: Options) -> anyhow::Result<()> {
    // The control socket first: it tells whether another daemon uses this state directory.
    let admin = admin::Server::open(&options.state_dir).await?;
    let monitor = open_monitor(&options).await?;
    let metrics = Arc::new(observe::Metrics::default());
    let mut record = Record::open(&options.state_dir)?;
    let network = net::Network::open()?;
    let events = net::Events::open()?;
    let kernel = l4::Kernel::open(&kernel_options(&options)?, &mut record)?;
    tracing::info!(
        adopted = kernel.adopted(),
        pin_dir = %options.pin_dir.display(),
        nat_ports = ?kernel.nat_ports(),
        "kernel programs loaded"
    );
    let proxy = l7::Proxy::start(proxy_settings(&options)).context("start the proxy's threads")?;
    let (source, reporting) = open_source(&options, &metrics.kubernetes).await?;
    let leads = reporting.as_ref().map(|reporting| reporting.election.leads());
    let cleanup_on_exit = options.cleanup_on_exit;
    let (cluster, reporter) = match reporting {
        Some(Reporting { applied, election, writers, membership }) => {
            let (members, serving) = (membership.members(), membership.serving());
            (Some(Cluster { applied, members, serving }), Some((election, writers, membership)))
        }
        None => (None, None),
    };

    let (requests, reports) = mpsc::channel(8);
    let (count_requests, counts) = mpsc::channel(8);
    let answers = observe::Sources { metrics: Arc::clone(&metrics), counts: count_requests, leads };
    let _monitor = monitor.map(|monitor| AbortOnDropHandle::new(tokio::spawn(monitor.serve(answers))));
    let mut writer = Writer::new(options, record, kernel, network, proxy, cluster, metrics);
    tokio::select! {
        result = writer.run(&source, events, Questions { reports, counts }) => result?,
        () = admin.serve(requests) => {}
    }
    if let Some((election, mut writers, membership)) = reporter {
        // Before anybody else can begin to write.
        writers.stop();
        election.resign().await;
        // What stays in the kernel goes on serving, and the next daemon of this node is expected before its Lease
        // runs out: addresses that moved meanwhile would break every flow.
        if cleanup_on_exit {
            membership.leave().await;
            writers.withdraw().await;
        }
    }
    writer.stop().await
}

/// Opens the socket for metrics and health, where one is asked for.
async fn open_monitor(options: &Options) -> anyhow::Result<Option<observe::Server>> {
    let Some(address) = options.metrics_address else { return Ok(None) };
    let server = observe::Server::open(address).await;
    server.map(Some).with_context(|| format!("open --metrics-address {address}"))
}

/// What writes statuses to an API server.
struct Reporting {
    applied: watch::Sender<Option<Arc<Applied>>>,
    election: Election,
    writers: status::Writers,
    membership: Membership,
}

/// Starts to watch, and where statuses go, to write them.
async fn open_source(
    options: &Options,
    metrics: &observe::Kubernetes,
) -> anyhow::Result<(Source, Option<Reporting>)> {
    let (access, pool, node) = match &options.source {
        SourceOptions::Files(paths) => {
            let files = Loader::new(paths.clone()).remembering(options.state_dir.join(LAST_GOOD));
            let watch = source::files::watch(files).context("watch the configuration")?;
            return Ok((Source::Files(watch), None));
        }
        SourceOptions::Kubernetes { access, pool, node } => (access, pool, node),
    };
    let client = access.client().await?;
    let election = Election::stand(client.clone(), identity(&node.name));
    let watch = source::kubernetes::watch(client.clone(), pool.clone(), election.leads(), metrics.clone());
    let (applied, newest) = watch::channel(None);
    let membership = Membership::join(client.clone(), node.clone());
    let inputs = status::Inputs {
        applied: newest,
        observed: watch.observed(),
        leads: election.leads(),
        members: membership.members(),
    };
    let writers = status::start(client, inputs, metrics.clone());
    Ok((Source::Kubernetes(watch), Some(Reporting { applied, election, writers, membership })))
}

/// The node's name, and what no other daemon has: two on one node are two candidates.
fn identity(node: &str) -> String {
    // Every RandomState has keys of its own.
    let random = RandomState::new().hash_one(std::process::id());
    format!("{node}_{random:016x}")
}

fn kernel_options(options: &Options) -> anyhow::Result<l4::Options> {
    Ok(l4::Options {
        pin_dir: options.pin_dir.clone(),
        max_flows: options.max_flows,
        hash_key: Some(hash_key::load_or_create(&options.state_dir)?),
        nat_ports: options.nat_ports.clone(),
    })
}

fn proxy_settings(options: &Options) -> l7::Settings {
    let settings = l7::Settings::default();
    l7::Settings {
        workers: options.workers.unwrap_or(settings.workers),
        drain_timeout: options.drain_timeout,
        ..settings
    }
}

/// Takes everything off this node that a daemon with these directories left.
///
/// # Errors
/// When such a daemon is running, or something cannot be removed.
pub fn cleanup(state_dir: &Path, pin_dir: &Path) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        anyhow::ensure!(
            !admin::is_running(state_dir).await,
            "gatewayd is running with state directory {}; stop it first",
            state_dir.display()
        );
        let mut record = Record::open(state_dir)?;
        let network = net::Network::open()?;
        clean(&network, &mut record, state_dir, pin_dir).await
    })
}

/// Undoes every change that the record has.
async fn clean(
    network: &net::Network,
    record: &mut Record,
    state_dir: &Path,
    pin_dir: &Path,
) -> anyhow::Result<()> {
    // Programs first: with the addresses gone they would steer packets that nobody sends back.
    let left = l4::cleanup(pin_dir, record)?;
    network.cleanup(record).await?;
    remove_state(state_dir).context("remove the state directory")?;
    for path in left.paths {
        tracing::warn!(path = %path.display(), "left in place: something that is not gatewayd's is in it");
    }
    tracing::info!("this node is as it was found");
    Ok(())
}

/// Removes the files of the state directory that a daemon made, and the directory when nothing else is in it.
fn remove_state(state_dir: &Path) -> std::io::Result<()> {
    let gone = |result: std::io::Result<()>| match result {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    for file in [STATUS_FILE, hash_key::FILE] {
        gone(fs::remove_file(state_dir.join(file)))?;
    }
    gone(fs::remove_file(admin::socket_path(state_dir)))?;
    gone(fs::remove_dir_all(state_dir.join(LAST_GOOD)))?;
    match fs::remove_dir(state_dir) {
        Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => Ok(()),
        result => gone(result),
    }
}
