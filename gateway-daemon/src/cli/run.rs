//! `gatewayd run`.

use std::{fs, net::SocketAddr, ops::RangeInclusive, path::PathBuf, str::FromStr, time::Duration};

use anyhow::{Context as _, ensure};
use clap::Args;

use super::{PinDir, StateDir};
use crate::{
    app::{self, Announce, Interface, Options, SourceOptions},
    compile::pool::Range,
    members::Node,
    source::kubernetes::Access,
};

/// Flags of `gatewayd run`. Each is an environment variable as well.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// File, or directory that is searched for .yaml, .yml and .json; watched. May be given several times.
    #[arg(long, value_name = "PATH", env = "GATEWAYD_CONFIG", value_delimiter = ',')]
    #[arg(required_unless_present = "kubernetes", conflicts_with = "kubernetes")]
    config: Vec<PathBuf>,
    /// Read resources from a Kubernetes API server instead of files, and follow its changes.
    #[arg(long, env = "GATEWAYD_KUBERNETES")]
    kubernetes: bool,
    /// How to reach the API server; without it, the kubeconfig of `KUBECONFIG` or the home directory, or else the
    /// pod's ServiceAccount.
    #[arg(long, value_name = "PATH", requires = "kubernetes")]
    kubeconfig: Option<PathBuf>,
    /// Addresses for Gateways that ask for none in particular, one of each family for each Gateway: `198.18.0.0/24`,
    /// `198.18.0.10-198.18.0.20` or `2001:db8::7`; may be given several times. Without it, Gateways share the addresses
    /// of the first interface.
    #[arg(
        long,
        value_name = "RANGE",
        requires = "kubernetes",
        env = "GATEWAYD_ADDRESS_POOL",
        value_delimiter = ','
    )]
    address_pool: Vec<Range>,
    /// Context of the kubeconfig; without it, its current one.
    #[arg(long, value_name = "NAME", requires = "kubernetes")]
    context: Option<String>,
    /// This node's name among those of the cluster; without it, the host's.
    #[arg(long, value_name = "NAME", requires = "kubernetes", env = "NODE_NAME")]
    node_name: Option<String>,
    /// Seconds after which the other nodes take the addresses of a node that is silent.
    #[arg(long, value_name = "SECONDS", requires = "kubernetes", env = "GATEWAYD_LEASE_DURATION")]
    #[arg(default_value_t = 10, value_parser = clap::value_parser!(u16).range(2..=600))]
    lease_duration: u16,
    /// Who is told where the addresses of Gateways are: the neighbours of the first interface (`l2`), of several nodes
    /// by the one that has the address; or nobody (`none`), where routers send to all nodes and each has every address.
    #[arg(long, value_name = "HOW", env = "GATEWAYD_ANNOUNCE", default_value = "l2")]
    announce: Announce,
    /// Network interface that carries clients or backends, and how its packets are taken: `auto` (default), `xdp`,
    /// `xdp-generic` or `tc`. May be given several times; Gateway addresses are put on the first one.
    #[arg(long, value_name = "IF[=MODE]", env = "GATEWAYD_INTERFACE", value_delimiter = ',')]
    interface: Vec<Interface>,
    #[command(flatten)]
    state: StateDir,
    #[command(flatten)]
    pins: PinDir,
    /// Let rules of different HTTPRoutes of one namespace with the same backends share one service.
    #[arg(long = "combined-services-from-different-httproutes")]
    #[arg(env = "GATEWAYD_COMBINED_SERVICES_FROM_DIFFERENT_HTTPROUTES")]
    combined_services: bool,
    /// On SIGTERM take everything off this node, instead of leaving the kernel path serving.
    #[arg(long, env = "GATEWAYD_CLEANUP_ON_EXIT")]
    cleanup_on_exit: bool,
    /// Seconds that flows of a removed backend may live on, and that the proxy waits for requests when it stops.
    #[arg(long, env = "GATEWAYD_DRAIN_TIMEOUT", value_name = "SECONDS", default_value_t = 300)]
    drain_timeout: u32,
    /// Established flows of each address family that the kernel remembers: 130 bytes each for IPv4, 190 for IPv6, and
    /// 16 MB for those that open. Takes effect when maps are made, that is, not while an earlier daemon's are adopted.
    #[arg(long, env = "GATEWAYD_MAX_FLOWS", default_value_t = gateway_common::maps::DEFAULT_FLOWS)]
    max_flows: u32,
    /// Source ports towards backends, outside `net.ipv4.ip_local_port_range`; by default the widest such range.
    #[arg(long, env = "GATEWAYD_NAT_PORTS", value_name = "FIRST-LAST")]
    nat_ports: Option<PortRange>,
    /// Threads of the proxy; by default one for each CPU that this process may use.
    #[arg(long, env = "GATEWAYD_WORKERS")]
    workers: Option<usize>,
    /// Address and port for `/metrics` (Prometheus), `/healthz` and `/readyz`; without it, nothing is opened for them.
    #[arg(long, env = "GATEWAYD_METRICS_ADDRESS", value_name = "ADDRESS:PORT")]
    metrics_address: Option<SocketAddr>,
}

/// `FIRST-LAST`.
#[derive(Clone, Debug)]
struct PortRange(RangeInclusive<u16>);

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed =
            text.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
        match parsed {
            Some((first, last)) if 0 < first && first < last => Ok(Self(first..=last)),
            _ => Err("write it as FIRST-LAST, such as 1024-32767".to_owned()),
        }
    }
}

/// Runs the daemon.
pub(super) fn run(args: RunArgs) -> anyhow::Result<()> {
    ensure!(
        !args.interface.is_empty(),
        "no interface is named: give --interface IF for each device that carries clients or backends"
    );
    ensure!(
        rustix::process::geteuid().is_root(),
        "gatewayd needs root: it loads kernel programs and changes addresses"
    );
    let state_dir = args.state.state_dir;
    fs::create_dir_all(&state_dir)
        .with_context(|| format!("make the state directory {}", state_dir.display()))?;
    let source = if args.kubernetes {
        let access = Access { kubeconfig: args.kubeconfig, context: args.context };
        let node = Node {
            name: args.node_name.unwrap_or_else(host_name),
            lease_duration: Duration::from_secs(args.lease_duration.into()),
        };
        SourceOptions::Kubernetes { access, pool: args.address_pool.into_iter().collect(), node }
    } else {
        SourceOptions::Files(args.config)
    };
    app::run(Options {
        source,
        interfaces: args.interface,
        announce: args.announce,
        state_dir,
        pin_dir: args.pins.pin_dir,
        combined_services: args.combined_services,
        cleanup_on_exit: args.cleanup_on_exit,
        drain_timeout: Duration::from_secs(args.drain_timeout.into()),
        max_flows: args.max_flows,
        nat_ports: args.nat_ports.map(|range| range.0),
        workers: args.workers,
        metrics_address: args.metrics_address,
    })
}

/// In lower case, as names of objects are.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().to_lowercase()
}
