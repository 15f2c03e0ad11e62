//! The one writer task: owns every table and changes them one generation after the other.
//!
//! ```text
//! resources, the node or a timer changed
//!   -> compile -> plan -> kernel maps -> programs on devices -> proxy snapshot -> addresses on the node -> report
//! ```

use std::{
    collections::BTreeSet,
    fs,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Context as _;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, oneshot, watch},
    time::MissedTickBehavior,
};

use super::{Options, STATUS_FILE, clean, report, resolve::Resolver};
use crate::{
    admin::{ApplyFailure, BindReport, Rejection, Report},
    api::{Resources, Severity},
    compile::{Compiled, Settings, compile},
    l4::{Counters, Kernel},
    l7::Proxy,
    members::Members,
    net::{Device, Events, Hops, NetEvent, Network},
    observe::{Counts, Metrics, Publication},
    record::Record,
    source::{Loaded, Source},
    status::Applied,
};

/// How long after a failure the same model is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// How long events of the network are gathered before they are acted upon: they come in bursts.
const GATHER: Duration = Duration::from_millis(50);
/// How often neighbours are confirmed without an event.
const CONFIRM: Duration = Duration::from_secs(10);

/// What the writer task is asked for while it serves.
pub(super) struct Questions {
    pub(super) reports: mpsc::Receiver<oneshot::Sender<Report>>,
    pub(super) counts: mpsc::Receiver<oneshot::Sender<Counts>>,
}

/// The writer task's state.
pub(super) struct Writer {
    pub(super) options: Options,
    pub(super) record: Record,
    pub(super) kernel: Kernel,
    pub(super) network: Network,
    pub(super) proxy: Proxy,
    resolver: Resolver,
    /// The ways to all backends, as of the last publish.
    pub(super) hops: Hops,
    /// Devices as they were when the programs were attached last.
    pub(super) attached: Vec<Device>,
    /// When the daemon started: the clock that plans are told the time of.
    pub(super) start: Instant,
    /// What the source has; nothing before it has told, and until then nothing on the node is touched.
    loaded: Option<Arc<Loaded>>,
    implicit_class: bool,
    pub(super) compiled: Compiled,
    generation: u64,
    applied_at: Option<SystemTime>,
    rejected: Option<Rejection>,
    failures: Vec<ApplyFailure>,
    binds: Vec<BindReport>,
    /// When to try again what failed.
    retry_at: Option<Instant>,
    metrics: Arc<Metrics>,
    /// The other nodes, where resources come from an API server.
    pub(super) cluster: Option<Cluster>,
    /// Addresses that neighbours were told of.
    pub(super) announced: BTreeSet<IpAddr>,
}

/// What the writer has to do with other nodes.
pub(super) struct Cluster {
    /// Who is told what was applied.
    pub(super) applied: watch::Sender<Option<Arc<Applied>>>,
    /// Who lives.
    pub(super) members: watch::Receiver<Members>,
    /// Who is told that this node serves.
    pub(super) serving: watch::Sender<bool>,
}

impl Writer {
    pub(super) fn new(
        options: Options,
        record: Record,
        kernel: Kernel,
        network: Network,
        proxy: Proxy,
        cluster: Option<Cluster>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            options,
            record,
            kernel,
            network,
            hops: Hops::default(),
            attached: Vec::new(),
            proxy,
            resolver: Resolver::start(),
            start: Instant::now(),
            loaded: None,
            implicit_class: false,
            compiled: Compiled::default(),
            generation: 0,
            applied_at: None,
            rejected: None,
            failures: Vec::new(),
            binds: Vec::new(),
            retry_at: None,
            metrics,
            cluster,
            announced: BTreeSet::new(),
        }
    }

    /// Serves until SIGTERM or SIGINT.
    pub(super) async fn run(
        &mut self,
        source: &Source,
        mut events: Events,
        mut questions: Questions,
    ) -> anyhow::Result<()> {
        let mut hangup = signal(SignalKind::hangup()).context("listen for signals")?;
        let mut stop = Stop::listen()?;
        let mut confirm = tokio::time::interval(CONFIRM);
        confirm.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut loaded = source.loaded();
        self.implicit_class = source.implies_class();
        loop {
            let wake = self.next_wake();
            tokio::select! {
                Ok(()) = loaded.changed() => {
                    let newest = Arc::clone(&loaded.borrow_and_update());
                    self.take(newest).await;
                }
                () = self.resolver.changed() => self.publish().await,
                () = members_changed(&mut self.cluster) => self.settle_addresses().await,
                Some(event) = events.next() => self.network_changed(event, &mut events).await,
                () = sleep_until(wake) => self.publish().await,
                _ = confirm.tick() => self.confirm_neighbours().await,
                Some(request) = questions.reports.recv() => {
                    // Whoever asked may be gone.
                    let _ = request.send(self.report());
                }
                Some(request) = questions.counts.recv() => {
                    let _ = request.send(self.counts());
                }
                _ = hangup.recv() => {
                    tracing::info!("SIGHUP: reading the configuration again");
                    source.reload();
                }
                () = stop.asked() => return Ok(()),
            }
        }
    }

    /// Acts on an event of the network and those that come with it.
    async fn network_changed(&mut self, first: NetEvent, events: &mut Events) {
        let mut all = BTreeSet::from([first]);
        let gathered = async {
            while let Some(event) = events.next().await {
                all.insert(event);
            }
        };
        // Running into the timeout is how gathering ends.
        let _ = tokio::time::timeout(GATHER, gathered).await;
        if all == BTreeSet::from([NetEvent::Neighbours]) {
            self.confirm_neighbours().await;
        } else {
            self.publish().await;
        }
    }

    pub(super) async fn confirm_neighbours(&self) {
        if let Err(error) = self.network.resolve_neighbours(&self.hops).await {
            tracing::warn!(error = format!("{:#}", anyhow::Error::new(error)), "cannot confirm neighbours");
        }
    }

    /// Ends the proxy gracefully; asked a second time, at once. The kernel path goes on serving, unless everything is
    /// to be taken away.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        self.metrics.set_ready(false);
        tracing::info!("stopping: the proxy finishes its requests");
        let mut stop = Stop::listen()?;
        tokio::select! {
            () = self.proxy.drain(self.options.drain_timeout) => {}
            () = stop.asked() => tracing::warn!("asked to stop again: requests that are not finished are cut off"),
        }
        if self.options.cleanup_on_exit {
            drop(self.kernel);
            clean(&self.network, &mut self.record, &self.options.state_dir, &self.options.pin_dir).await?;
        } else {
            tracing::info!("stopped; the kernel goes on steering TCP and UDP");
        }
        Ok(())
    }

    /// Takes what the source has now.
    async fn take(&mut self, loaded: Arc<Loaded>) {
        for fault in &loaded.faults {
            match fault.severity {
                Severity::Error => tracing::error!("{fault}"),
                Severity::Warning => tracing::warn!("{fault}"),
                Severity::Note => tracing::info!("{fault}"),
            }
        }
        let errors = loaded.faults.iter().filter(|fault| fault.severity == Severity::Error);
        let faults: Vec<_> = errors.map(report::fault).collect();
        self.rejected = match self.rejected.take() {
            _ if faults.is_empty() => None,
            Some(before) if before.faults == faults => Some(before),
            _ => Some(Rejection { at: rfc3339(SystemTime::now()), faults }),
        };
        let heard = loaded.heard;
        self.loaded = Some(loaded);
        self.publish_heard(heard).await;
    }

    /// Brings the newest resources into force.
    async fn publish(&mut self) {
        self.publish_heard(None).await;
    }

    /// Compiles, and brings what comes of it everywhere. What fails is in the report and tried again. `heard` is when
    /// it was heard of the change that asks for it.
    async fn publish_heard(&mut self, heard: Option<Instant>) {
        let Some(loaded) = self.loaded.clone() else { return };
        let started = Instant::now();
        self.failures.clear();
        let (devices, node_addresses) = match self.look_at_node().await {
            Ok(seen) => seen,
            // Compiled without them, Gateways would lose their addresses: what is served goes on until they are known.
            Err(error) => {
                self.fail("look at the node's devices and addresses", error);
                self.retry_at = Some(Instant::now() + RETRY);
                return;
            }
        };
        let mut settings = Settings {
            combined_services: self.options.combined_services,
            node_addresses,
            resolved: self.resolver.addresses(),
            assigned: loaded.assigned.clone(),
            implicit_class: self.implicit_class,
        };
        let compiling = Instant::now();
        let mut compiled = compile(&loaded.resources, &settings);
        let compile_time = compiling.elapsed();
        self.resolver.want(compiled.hostnames.clone());
        if self.generation == 0 && !compiled.hostnames.is_empty() {
            // An adopted service must not refuse while its backends' names are looked up.
            settings.resolved = self.resolver.settled().await;
            compiled = compile(&loaded.resources, &settings);
        }
        for diagnostic in compiled.diagnostics.iter().filter(|said| !self.compiled.diagnostics.contains(said))
        {
            tracing::warn!("{diagnostic}");
        }
        // Tables before programs and both before addresses, so that the first packet that can come is served.
        self.program(&compiled.model).await;
        self.attach(&devices);
        let faults = self.proxy.publish(Arc::new(compiled.model.l7.clone())).await;
        let bind = |fault: crate::l7::BindFault| {
            tracing::error!(address = %fault.address, error = %fault.error, "cannot listen");
            BindReport { address: fault.address.to_string(), error: fault.error.to_string() }
        };
        self.binds = faults.into_iter().map(bind).collect();
        self.ensure_addresses(&compiled.model.addresses).await;
        let failed = !self.failures.is_empty() || !self.binds.is_empty();
        self.retry_at = failed.then(|| Instant::now() + RETRY);
        if let Some(cluster) = self.cluster.as_ref().filter(|_| !failed) {
            cluster.serving.send_if_modified(|serves| !std::mem::replace(serves, true));
        }
        let changed = self.generation == 0 || compiled.model != self.compiled.model;
        self.generation += u64::from(changed);
        self.compiled = compiled;
        self.measure(compile_time, heard);
        if changed {
            self.applied_at = Some(SystemTime::now());
            tracing::info!(
                generation = self.generation,
                kernel_services = self.compiled.model.l4.len(),
                proxy_services = self.compiled.model.l7.services.len(),
                took_ms = started.elapsed().as_millis(),
                "applied"
            );
        }
        self.write_status_file();
        self.tell_applied(&loaded.resources);
    }

    /// Tells the metrics what is served now, and since when it was asked for.
    fn measure(&self, compile: Duration, heard: Option<Instant>) {
        let resources = self.loaded.as_ref().map(|loaded| loaded.resources.counts()).unwrap_or_default();
        let severities =
            [("error", Severity::Error), ("warning", Severity::Warning), ("note", Severity::Note)];
        let of = |severity| self.compiled.diagnostics.iter().filter(|said| said.severity == severity).count();
        self.metrics.published(&Publication {
            generation: self.generation,
            compile,
            heard,
            resources: &resources,
            diagnostics: &severities.map(|(name, severity)| (name, of(severity))),
            failures: self.failures.len() + self.binds.len(),
        });
        if self.failures.is_empty() {
            self.metrics.set_ready(true);
        }
    }

    /// Other nodes have come or gone: their addresses are this node's now, or the reverse.
    async fn settle_addresses(&mut self) {
        let addresses = self.compiled.model.addresses.clone();
        if self.loaded.is_some() {
            let failures = self.failures.len();
            self.ensure_addresses(&addresses).await;
            if self.failures.len() > failures {
                self.retry_at = Some(Instant::now() + RETRY);
            }
            self.write_status_file();
            if let Some(loaded) = self.loaded.clone() {
                self.tell_applied(&loaded.resources);
            }
        }
    }

    /// Tells what may be said in statuses now.
    fn tell_applied(&self, resources: &Resources) {
        let Some(tell) = self.cluster.as_ref().map(|cluster| &cluster.applied) else { return };
        let held = self.failures.first().map(|failure| format!("{}: {}", failure.what, failure.error));
        // As long as it is not known who has an address, nobody may have it.
        let held = held.or_else(|| {
            let known = self.owned(BTreeSet::new()).is_some();
            (!known).then(|| "the nodes do not know of one another yet".to_owned())
        });
        let closed = report::closed(resources, &self.compiled.statuses, &self.binds);
        let applied = Applied { statuses: self.compiled.statuses.clone(), held, closed };
        tell.send_if_modified(|told| {
            let new = told.as_deref() != Some(&applied);
            if new {
                *told = Some(Arc::new(applied));
            }
            new
        });
    }

    pub(super) fn fail(&mut self, what: &str, error: impl Into<anyhow::Error>) {
        let error = format!("{:#}", error.into());
        tracing::error!(what, error, "cannot bring the configuration into force; it is tried again");
        self.failures.push(ApplyFailure { what: what.to_owned(), error });
    }

    /// When something is due without an event: the end of a drain, or another try.
    fn next_wake(&self) -> Option<Instant> {
        // While something fails, a drain that is over waits for the next try: what is due already would be due at once.
        let drained = || self.kernel.ledger().next_deadline().map(|until| self.start + until);
        self.retry_at.or_else(drained)
    }

    pub(super) fn kernel_counters(&self) -> Counters {
        self.kernel.counters().unwrap_or_else(|error| {
            tracing::error!(%error, "cannot read the kernel's counters");
            Counters::default()
        })
    }

    fn report(&self) -> Report {
        let counters = self.kernel_counters();
        let model = &self.compiled.model;
        Report {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            generation: self.generation,
            applied_at: self.applied_at.map(rfc3339),
            last_rejected: self.rejected.clone(),
            apply_failures: self.failures.clone(),
            diagnostics: self.compiled.diagnostics.iter().map(report::fault).collect(),
            listeners: self.loaded.as_ref().map_or_else(Vec::new, |loaded| {
                report::listeners(&loaded.resources, &self.compiled.statuses)
            }),
            binds: self.binds.clone(),
            services: report::l4_services(&model.l4, self.kernel.ledger(), &counters),
            http_services: report::l7_services(&model.l7, &self.proxy.stats()),
            addresses: self.address_reports(),
            devices: report::devices(self.kernel.attachments()),
            counters: report::counters(&counters),
        }
    }

    /// Writes the report beside the socket, for whoever watches files.
    fn write_status_file(&self) {
        let path = self.options.state_dir.join(STATUS_FILE);
        let new = path.with_extension("json.new");
        let written = serde_json::to_vec_pretty(&self.report())
            .map_err(std::io::Error::other)
            .and_then(|json| fs::write(&new, json))
            .and_then(|()| fs::rename(&new, &path));
        if let Err(error) = written {
            tracing::warn!(%error, path = %path.display(), "cannot write the status file");
        }
    }
}

/// SIGTERM and SIGINT.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("listen for signals");
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Waits until one of them comes.
    async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

async fn members_changed(cluster: &mut Option<Cluster>) {
    let changed = match cluster {
        Some(cluster) => cluster.members.changed().await.is_ok(),
        None => false,
    };
    if !changed {
        std::future::pending::<()>().await;
    }
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(wake) => tokio::time::sleep_until(wake.into()).await,
        None => std::future::pending().await,
    }
}

fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}
