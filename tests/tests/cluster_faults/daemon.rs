//! A gatewayd with an API server of its own to fall ill: a proxy before the real one.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use gateway_tests::client::http::{Connection, Protocol};
use gateway_tests::cluster::{NODE_ADDRESS, Proxy, Standing, VIP_RANGE_V4, VIP_RANGE_V6};
use gateway_tests::daemon::program;
use gateway_tests::netns::Netns;
use gateway_tests::reap::{PINS, PREFIX};
use gateway_tests::wait::eventually;

use super::SOON;

const METRICS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9600);

/// A gatewayd that is killed when dropped.
pub(crate) struct Daemon<'a> {
    pub(crate) proxy: Proxy,
    name: String,
    netns: &'a Netns,
    interfaces: &'static [&'static str],
    dir: PathBuf,
    pins: PathBuf,
    child: Option<Child>,
}

impl<'a> Daemon<'a> {
    /// Starts it in the namespace of a node, and waits until it serves.
    pub(crate) fn start(
        stand: &Standing,
        state: &Path,
        name: &str,
        netns: &'a Netns,
        interfaces: &'static [&'static str],
    ) -> Self {
        let dir = state.join(name);
        // What an earlier run left: its log is not this one's.
        let _absent = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        let proxy =
            Proxy::start(&stand.node, NODE_ADDRESS, &stand.kubeconfig, dir.join("kubeconfig")).unwrap();
        let pins = Path::new(PINS).join(format!("{PREFIX}{}-{name}", process::id()));
        let mut daemon = Self { proxy, name: name.to_owned(), netns, interfaces, dir, pins, child: None };
        daemon.run();
        daemon
    }

    /// Starts it, and waits until it serves.
    pub(crate) fn run(&mut self) {
        let log = File::options().create(true).append(true).open(self.dir.join("log")).unwrap();
        let mut command: Command = self.netns.command(program().unwrap()).unwrap();
        command.args(["run", "--kubernetes", "--kubeconfig"]).arg(&self.proxy.kubeconfig);
        for interface in self.interfaces {
            command.args(["--interface", interface]);
        }
        command.args(["--node-name", &self.name]);
        command.args(["--address-pool", VIP_RANGE_V4, "--address-pool", VIP_RANGE_V6]);
        command.args(["--metrics-address", &METRICS.to_string()]);
        command.arg("--state-dir").arg(self.dir.join("state")).arg("--pin-dir").arg(&self.pins);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(command.spawn().unwrap());
        eventually(SOON, "gatewayd to serve", || {
            ensure!(self.metric("gatewayd_generation")? >= 1.0, "nothing is served");
            Ok(())
        });
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("gatewayd runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Waits until it writes statuses, or does not any more.
    #[track_caller]
    pub(crate) fn wait_until_leads(&self, leads: bool) {
        eventually(SOON, "the Lease to be held or lost", || {
            let found = self.metric("gatewayd_kubernetes_leader")?;
            ensure!((found > 0.5) == leads, "leads: {found}");
            Ok(())
        });
    }

    /// All that it has logged, over all its starts.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// A metric, all its labels summed.
    pub(crate) fn metric(&self, name: &str) -> Result<f64> {
        let answer = self.netns.block_on(|| async {
            Connection::open(METRICS, &Protocol::Http1).await?.get(&format!("http://{METRICS}/metrics")).await
        })?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let samples = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ') || rest.starts_with('{'))
        });
        let values = samples.map(|line| line.rsplit(' ').next().unwrap_or_default().parse::<f64>());
        let values = values.collect::<Result<Vec<_>, _>>().with_context(|| format!("read {name}"))?;
        ensure!(!values.is_empty(), "there is no {name}");
        Ok(values.iter().sum())
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let killed = child.kill().and_then(|()| child.wait());
            if let Err(error) = killed {
                eprintln!("{error}");
            }
        }
        // Links go with their pins.
        let _absent = fs::remove_dir_all(&self.pins);
        if std::thread::panicking() {
            eprintln!("--- {} said\n{}---", self.dir.display(), self.log());
        }
    }
}
