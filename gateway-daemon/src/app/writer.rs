//! The one writer task: owns every table and changes them one generation after the other.
//!
//! ```text
//! resources, the node or a timer changed
//!   -> compile -> addresses on the node -> plan -> kernel maps -> proxy snapshot -> report
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
    signal::unix::{SignalKind, signal},
    sync::{mpsc, oneshot},
    time::MissedTickBehavior,
};

use super::{Options, clean, interface, report, resolve::Resolver};
use crate::{
    admin::{ApplyFailure, BindReport, Rejection, Report},
    api::Severity,
    compile::{Compiled, Settings, compile},
    l4::Kernel,
    l7::Proxy,
    net::{self, Device, Events, Hops, NetEvent, Network},
    plan::{self, State},
    record::Record,
    source::{Loaded, files::Watch},
};

/// How long after a failure the same model is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// How long events of the network are gathered before they are acted upon: they come in bursts.
const GATHER: Duration = Duration::from_millis(50);
/// How often neighbours are confirmed without an event.
const CONFIRM: Duration = Duration::from_secs(10);

/// The writer task's state.
pub(super) struct Writer {
    options: Options,
    record: Record,
    kernel: Kernel,
    network: Network,
    proxy: Proxy,
    resolver: Resolver,
    /// The ways to all backends, as of the last publish.
    hops: Hops,
    /// When the daemon started: the clock that plans are told the time of.
    start: Instant,
    loaded: Arc<Loaded>,
    compiled: Compiled,
    generation: u64,
    applied_at: Option<SystemTime>,
    rejected: Option<Rejection>,
    failures: Vec<ApplyFailure>,
    binds: Vec<BindReport>,
    /// When to try again what failed.
    retry_at: Option<Instant>,
}

impl Writer {
    pub(super) fn new(
        options: Options,
        record: Record,
        kernel: Kernel,
        network: Network,
        proxy: Proxy,
        resolver: Resolver,
    ) -> Self {
        Self {
            options,
            record,
            kernel,
            network,
            hops: Hops::default(),
            proxy,
            resolver,
            start: Instant::now(),
            loaded: Arc::default(),
            compiled: Compiled::default(),
            generation: 0,
            applied_at: None,
            rejected: None,
            failures: Vec::new(),
            binds: Vec::new(),
            retry_at: None,
        }
    }

    /// Serves until SIGTERM or SIGINT.
    pub(super) async fn run(
        &mut self,
        source: &Watch,
        mut events: Events,
        mut reports: mpsc::Receiver<oneshot::Sender<Report>>,
    ) -> anyhow::Result<()> {
        let listen = |kind| signal(kind).context("listen for signals");
        let mut hangup = listen(SignalKind::hangup())?;
        let mut terminate = listen(SignalKind::terminate())?;
        let mut interrupt = listen(SignalKind::interrupt())?;
        let mut confirm = tokio::time::interval(CONFIRM);
        confirm.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut loaded = source.loaded();
        loaded.mark_changed();
        loop {
            let wake = self.next_wake();
            tokio::select! {
                Ok(()) = loaded.changed() => {
                    let newest = Arc::clone(&loaded.borrow_and_update());
                    self.take(newest).await;
                }
                () = self.resolver.changed() => self.publish().await,
                Some(event) = events.next() => self.network_changed(event, &mut events).await,
                () = sleep_until(wake) => self.publish().await,
                _ = confirm.tick() => self.confirm_neighbours().await,
                Some(request) = reports.recv() => {
                    // Whoever asked may be gone.
                    let _ = request.send(self.report());
                }
                _ = hangup.recv() => {
                    tracing::info!("SIGHUP: reading the configuration again");
                    source.reload();
                }
                _ = terminate.recv() => return Ok(()),
                _ = interrupt.recv() => return Ok(()),
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

    async fn confirm_neighbours(&self) {
        if let Err(error) = self.network.resolve_neighbours(&self.hops).await {
            tracing::warn!(error = format!("{:#}", anyhow::Error::new(error)), "cannot confirm neighbours");
        }
    }

    /// Ends the proxy gracefully. The kernel path goes on serving, unless everything is to be taken away.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        tracing::info!("stopping: the proxy finishes its requests");
        self.proxy.drain(self.options.drain_timeout).await;
        if self.options.cleanup_on_exit {
            drop(self.kernel);
            clean(&self.network, &mut self.record, &self.options.pin_dir).await?;
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
        self.loaded = loaded;
        self.publish().await;
    }

    /// Compiles, and brings what comes of it everywhere. What fails is in the report and tried again.
    async fn publish(&mut self) {
        let started = Instant::now();
        self.failures.clear();
        let devices = self.prepare_node().await;
        let settings = Settings {
            combined_services: self.options.combined_services,
            node_addresses: self.node_addresses(&devices).await,
            resolved: self.resolver.addresses(),
            implicit_class: true,
        };
        let compiled = compile(&self.loaded.resources, &settings);
        self.resolver.want(compiled.hostnames.clone());
        for diagnostic in compiled.diagnostics.iter().filter(|said| !self.compiled.diagnostics.contains(said))
        {
            tracing::warn!("{diagnostic}");
        }
        self.ensure_addresses(&compiled.model.addresses).await;
        self.program(&compiled).await;
        let faults = self.proxy.publish(Arc::new(compiled.model.l7.clone())).await;
        let bind = |fault: crate::l7::BindFault| {
            tracing::error!(address = %fault.address, error = %fault.error, "cannot listen");
            BindReport { address: fault.address.to_string(), error: fault.error.to_string() }
        };
        self.binds = faults.into_iter().map(bind).collect();
        let failed = !self.failures.is_empty() || !self.binds.is_empty();
        self.retry_at = failed.then(|| Instant::now() + RETRY);
        let changed = self.generation == 0 || compiled.model != self.compiled.model;
        self.compiled = compiled;
        if changed {
            self.generation += 1;
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
    }

    /// Attaches to the devices that are there, and lets them forward.
    async fn prepare_node(&mut self) -> Vec<Device> {
        let devices = match self.network.devices().await {
            Ok(devices) => devices,
            Err(error) => {
                self.fail("list network devices", error);
                return Vec::new();
            }
        };
        let selected = interface::select(&self.options.interfaces, &devices);
        let named = self.options.interfaces.iter().filter_map(super::Interface::exact);
        let missing = named.filter(|name| !selected.iter().any(|(device, _)| device.name == *name));
        for name in missing.map(str::to_owned).collect::<Vec<_>>() {
            self.fail(&format!("attach to {name}"), anyhow::anyhow!("there is no such network interface"));
        }
        let names = selected.iter().map(|(device, _)| device.name.as_str());
        if let Err(error) = self.network.enable_forwarding(names, &mut self.record) {
            self.fail("switch on forwarding", error);
        }
        if let Err(error) = self.kernel.set_devices(&net::device_flags(&devices)) {
            self.fail("tell the programs what devices can do", error);
        }
        let before = self.kernel.attachments().to_vec();
        match self.kernel.attach(&selected) {
            Ok(attachments) => {
                for attachment in attachments.iter().filter(|attachment| !before.contains(attachment)) {
                    let (interface, way) = (&attachment.interface, attachment.way);
                    tracing::info!(interface, %way, why = attachment.reason, "attached");
                }
            }
            Err(error) => self.fail("attach the programs", error),
        }
        selected.into_iter().map(|(device, _)| device).collect()
    }

    /// Addresses for Gateways that name none: those of the first interface that are the operator's.
    async fn node_addresses(&mut self, selected: &[Device]) -> Vec<IpAddr> {
        let first = self.options.interfaces.first();
        let device = selected.iter().find(|device| first.is_some_and(|first| first.matches(&device.name)));
        let Some(device) = device else { return Vec::new() };
        match self.network.addresses_of(device.index, &self.record).await {
            Ok(addresses) => addresses,
            Err(error) => {
                self.fail("list addresses", error);
                Vec::new()
            }
        }
    }

    /// Puts the addresses of Gateways on the first interface, and takes ours away that no Gateway has any more.
    async fn ensure_addresses(&mut self, addresses: &BTreeSet<IpAddr>) {
        let named = self.options.interfaces.iter().find_map(super::Interface::exact);
        let interface = named.unwrap_or_default().to_owned();
        if let Err(error) = self.network.ensure_addresses(addresses, &interface, &mut self.record).await {
            self.fail("put the addresses of Gateways on the node", error);
        }
    }

    /// Brings the kernel's maps from what they hold to the model.
    async fn program(&mut self, compiled: &Compiled) {
        let services = &compiled.model.l4;
        let backends = services.iter().flat_map(|service| &service.shares).filter_map(|share| share.backend);
        let backends: BTreeSet<IpAddr> = backends.map(|backend| backend.ip()).collect();
        self.hops = match self.network.hops(&backends).await {
            Ok(hops) => hops,
            Err(error) => return self.fail("look up routes to backends", error),
        };
        self.confirm_neighbours().await;
        let ledger = self.kernel.ledger();
        match plan::plan(
            ledger,
            services,
            &self.hops.sources,
            self.start.elapsed(),
            self.options.drain_timeout,
        ) {
            Ok(plan) => {
                for step in &plan.steps {
                    tracing::debug!("{step}");
                }
                if let Err(error) = self.kernel.apply(&plan) {
                    self.fail("write the kernel's tables", error);
                }
            }
            Err(error) => self.fail("plan the kernel's tables", error),
        }
    }

    fn fail(&mut self, what: &str, error: impl Into<anyhow::Error>) {
        let error = format!("{:#}", error.into());
        tracing::error!(what, error, "cannot bring the configuration into force; it is tried again");
        self.failures.push(ApplyFailure { what: what.to_owned(), error });
    }

    /// When something is due without an event: the end of a drain, or another try.
    fn next_wake(&self) -> Option<Instant> {
        let drained = self.kernel.ledger().backends().filter_map(|(_, backend)| match backend.state {
            State::Draining { until } => Some(self.start + until),
            State::Active => None,
        });
        drained.chain(self.retry_at).min()
    }

    fn report(&self) -> Report {
        let counters = self.kernel.counters().unwrap_or_else(|error| {
            tracing::error!(%error, "cannot read the kernel's counters");
            crate::l4::Counters::default()
        });
        let model = &self.compiled.model;
        Report {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            generation: self.generation,
            applied_at: self.applied_at.map(rfc3339),
            last_rejected: self.rejected.clone(),
            apply_failures: self.failures.clone(),
            diagnostics: self.compiled.diagnostics.iter().map(report::fault).collect(),
            listeners: report::listeners(&self.loaded.resources, &self.compiled.statuses),
            binds: self.binds.clone(),
            services: report::l4_services(&model.l4, self.kernel.ledger(), &counters),
            http_services: report::l7_services(&model.l7, &self.proxy.stats()),
            devices: report::devices(self.kernel.attachments()),
            counters: report::counters(&counters),
        }
    }

    /// Writes the report beside the socket, for whoever watches files.
    fn write_status_file(&self) {
        let path = self.options.state_dir.join("status.json");
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

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(wake) => tokio::time::sleep_until(wake.into()).await,
        None => std::future::pending().await,
    }
}

fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}
