//! `gateway-lab`: the lab by hand. `cargo xtask run` and `cargo xtask lab` start it.

mod asked;
mod guard;
mod show;
mod traffic;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};
use gateway_tests::backend::{Backend, Said, Serve};
use gateway_tests::client::grpc;
use gateway_tests::daemon::Gatewayd;
use gateway_tests::reap;
use gateway_tests::topology::{ClientEnd, Lab, Topology};
use tokio::signal::unix::{SignalKind, signal};

use guard::Guard;

/// The configuration that is served, below the folder that the task is run in.
const CONFIG: &str = "examples/quickstart";

/// The client's link stands for a NIC, and the backends' links take what XDP sends there.
const TOPOLOGY: Topology = Topology {
    clients: 1,
    backends: 4,
    client_end: ClientEnd::Nic,
    backends_take_redirects: true,
    static_neighbours: false,
};

/// A lab of network namespaces for gatewayd.
#[derive(Debug, Parser)]
struct Cli {
    /// Prefix of the namespaces: `gw-client`, `gw-node`, `gw-backend-1` and so on. Labs of other names stand beside.
    #[arg(long, global = true, default_value = "gw")]
    name: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lays out the lab, starts gatewayd on examples/quickstart, sends traffic and shows where it went.
    Run {
        /// Succeeds if every share fits its weight, and does not go on serving.
        #[arg(long)]
        once: bool,
    },
    /// Lays out the lab with its backends, without gatewayd, until Ctrl-C or `down`.
    Up,
    /// Removes the lab, wherever it was started.
    Down,
    /// Removes what killed tests left.
    Reap,
    /// Calls the backends' gRPC service at an address, and prints who answered.
    Call {
        /// Address and port to connect to.
        to: SocketAddr,
        /// The authority to name.
        #[arg(long, default_value = "grpc.example")]
        authority: String,
    },
}

fn main() -> ExitCode {
    let Cli { name, command } = Cli::parse();
    let done = match command {
        Command::Run { once } => run(&name, once),
        Command::Up => up(&name),
        Command::Down => Guard::take_over(&name).map(drop),
        Command::Reap => reap::dead().map(|removed| removed.iter().for_each(|one| println!("removed {one}"))),
        Command::Call { to, authority } => call(to, &authority),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(name: &str, once: bool) -> Result<()> {
    let config = Path::new(CONFIG)
        .canonicalize()
        .with_context(|| format!("find {CONFIG}; run this in the repository"))?;
    let _guard = Guard::take(name)?;
    let stop = Stop::listen()?;
    let lab = Lab::with_name(name, TOPOLOGY)?;
    let _backends = backends(&lab)?;
    let mut daemon = Gatewayd::new(&lab)?;
    daemon.config.clone_from(&config);
    // On a veth gatewayd would choose TC; this one is as good as a NIC, and it is XDP that is to be shown.
    daemon.interfaces[0].push_str("=xdp");
    let served = serve(&lab, &mut daemon, &config, once, &stop);
    // The node is to be as it was, whether or not all went well.
    let ended = if daemon.pid().is_some() { daemon.terminate().map(drop) } else { Ok(()) };
    let cleaned = daemon.cleanup();
    if served.is_err() {
        eprintln!("--- gatewayd's log\n{}---", daemon.log());
    }
    served.and(ended).and(cleaned)
}

/// Starts the daemon, shows what happens to traffic, and again after each change until we are stopped.
fn serve(lab: &Lab, daemon: &mut Gatewayd<'_>, config: &Path, once: bool, stop: &Stop) -> Result<()> {
    println!("starting gatewayd on {}", config.display());
    let mut status = daemon.start()?;
    show::devices(&status);
    loop {
        let generation = status.generation();
        let shown = measure(lab, config);
        match shown {
            Ok(true) => {}
            Ok(false) if once => bail!("a share does not fit its weight"),
            Err(error) if once => return Err(error),
            // While serving on, an edit may have been half done: say so and look again at the next change.
            Ok(false) => println!("a share does not fit its weight"),
            Err(error) => println!("{error:#}"),
        }
        show::packets(&daemon.status()?);
        if once {
            return Ok(());
        }
        show::commands(lab, config, &std::env::current_exe()?);
        let changed = stop.or_until(|| {
            let newer = daemon.status()?;
            Ok((newer.generation() > generation).then_some(newer))
        })?;
        match changed {
            Some(newer) => status = newer,
            None => return Ok(()),
        }
        println!(
            "\nthe configuration has changed (generation {}): sending the same traffic again",
            status.generation()
        );
    }
}

/// Sends the traffic that the configuration asks for and prints the table; whether all of it fits.
fn measure(lab: &Lab, config: &Path) -> Result<bool> {
    let asked = asked::read(config)?;
    let measured = asked.iter().map(|asked| traffic::send(lab, asked)).collect::<Result<Vec<_>>>()?;
    Ok(show::table(&asked, &measured))
}

fn up(name: &str) -> Result<()> {
    let _guard = Guard::take(name)?;
    let stop = Stop::listen()?;
    let lab = Lab::with_name(name, TOPOLOGY)?;
    let _backends = backends(&lab)?;
    let names: Vec<&str> = [lab.client().name(), lab.node.name()]
        .into_iter()
        .chain(lab.backends.iter().map(|host| host.netns.name()))
        .collect();
    println!("the lab stands until Ctrl-C: {}", names.join(", "));
    stop.or_until(|| Ok(None::<()>)).map(drop)
}

fn backends(lab: &Lab) -> Result<Vec<Backend>> {
    let serve = [Serve::Tcp(7000), Serve::Udp(7000), Serve::Http(8080)];
    lab.backends.iter().map(|host| Backend::start(&host.netns, &host.name, &serve)).collect()
}

fn call(to: SocketAddr, authority: &str) -> Result<()> {
    let said = Said { text: "hello".to_owned(), ..Said::default() };
    let answer = runtime()?.block_on(async {
        let mut client = grpc::Client::connect(to, authority, traffic::GRPC_SERVICE).await?;
        client.unary("Unary", said).await.map_err(anyhow::Error::from)
    })?;
    println!("{} says {:?}", answer.backend, answer.text);
    Ok(())
}

/// Ctrl-C, a closed terminal or a plain kill: the lab is taken down in order.
struct Stop {
    runtime: tokio::runtime::Runtime,
    asked: tokio::sync::watch::Receiver<bool>,
}

impl Stop {
    fn listen() -> Result<Self> {
        let runtime = runtime()?;
        let (ask, asked) = tokio::sync::watch::channel(false);
        // Registered here, so that no signal after this is missed.
        let registered = {
            let _context = runtime.enter();
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal)
        };
        for signals in registered {
            let mut signals = signals.context("listen for signals")?;
            let ask = ask.clone();
            runtime.spawn(async move {
                signals.recv().await;
                ask.send_replace(true);
            });
        }
        Ok(Self { runtime, asked })
    }

    /// Looks now and then until `look` finds something; nothing when we are to stop.
    fn or_until<T>(&self, mut look: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
        let mut asked = self.asked.clone();
        loop {
            if let Some(found) = look()? {
                return Ok(Some(found));
            }
            let pause = Duration::from_millis(300);
            let stopped = self.runtime.block_on(async {
                tokio::time::timeout(pause, asked.wait_for(|asked| *asked)).await.is_ok()
            });
            if stopped {
                println!("\nstopping, and removing the lab");
                return Ok(None);
            }
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("make a runtime")
}

/// Where the guard of a lab's name lies.
fn guard_path(name: &str) -> PathBuf {
    Path::new("/run").join(format!("gateway-lab-{name}.lock"))
}
