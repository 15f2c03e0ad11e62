//! What is measured, and the registry that gives it to whoever scrapes.
//!
//! Things that happen are counted where they happen, in [`Metrics`]. What the data planes count by themselves is read
//! when somebody asks, as [`Counts`].

use std::{
    fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, prometheus_text, text},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
        info::Info,
    },
    registry::{Registry, Unit},
};

use super::{
    counts::{Counts, encode_counts},
    process::Process,
};

/// Everything that is measured.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    ready: AtomicBool,
    generation: Gauge<u64, std::sync::atomic::AtomicU64>,
    compile: Histogram,
    event_to_served: Histogram,
    apply_failures: Gauge,
    diagnostics: Family<Severity, Gauge>,
    resources: Family<Kind, Gauge>,
    /// What happens between this daemon and an API server.
    pub kubernetes: Kubernetes,
}

/// What happens between this daemon and an API server; clones count into the same cells.
#[derive(Clone, Debug, Default)]
pub struct Kubernetes {
    leader: Gauge,
    last_event: Gauge<f64, std::sync::atomic::AtomicU64>,
    watch_failures: Family<Kind, Counter>,
    lists: Family<Kind, Counter>,
    status_writes: Family<Written, Counter>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct Severity {
    severity: &'static str,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct Written {
    result: WriteResult,
}

/// What came of writing a status.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "a value of a label")]
pub enum WriteResult {
    /// The API server has it.
    written,
    /// Somebody else was faster, or the object is gone.
    outdated,
    /// It is tried again.
    failed,
}

/// What a model was made of and came to.
#[derive(Debug)]
pub struct Publication<'a> {
    /// Its number.
    pub generation: u64,
    /// How long compiling took.
    pub compile: Duration,
    /// Since when the event that led to it has been known; none if no event of the source did.
    pub heard: Option<std::time::Instant>,
    /// Objects by kind.
    pub resources: &'a [(&'static str, usize)],
    /// Diagnostics by severity.
    pub diagnostics: &'a [(&'static str, usize)],
    /// What of it is not in force.
    pub failures: usize,
}

/// A format of the exposition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Exposition {
    OpenMetrics,
    /// Of Prometheus, for scrapers that know nothing newer, and for people.
    Text,
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            registry: Registry::with_prefix("gatewayd"),
            ready: AtomicBool::new(false),
            generation: Gauge::default(),
            // 0.5 ms to 8 s.
            compile: Histogram::new(exponential_buckets(0.0005, 2.0, 15)),
            // 1 ms to 16 s.
            event_to_served: Histogram::new(exponential_buckets(0.001, 2.0, 15)),
            apply_failures: Gauge::default(),
            diagnostics: Family::default(),
            resources: Family::default(),
            kubernetes: Kubernetes::default(),
        };
        metrics.registered()
    }
}

impl Metrics {
    fn registered(mut self) -> Self {
        let registry = &mut self.registry;
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The daemon that answers", build);
        registry.register("generation", "Number of the model that is served", self.generation.clone());
        registry.register_with_unit(
            "compile",
            "Time from resources to a model",
            Unit::Seconds,
            self.compile.clone(),
        );
        registry.register_with_unit(
            "event_to_served",
            "Time from hearing of a change to kernel and proxy serving it",
            Unit::Seconds,
            self.event_to_served.clone(),
        );
        registry.register(
            "apply_failures",
            "Things of the newest model that are not in force",
            self.apply_failures.clone(),
        );
        registry.register(
            "diagnostics",
            "Sentences about resources, as gatewayd status shows them",
            self.diagnostics.clone(),
        );
        registry.register("resources", "Objects known", self.resources.clone());
        self.kubernetes.register(registry);
        self
    }

    /// Whether the first model has been brought into the kernel and the proxy, and nobody has asked to stop.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Relaxed)
    }

    /// Says whether this daemon serves.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Relaxed);
    }

    /// Records that a model is served.
    pub fn published(&self, publication: &Publication<'_>) {
        self.generation.set(publication.generation);
        self.compile.observe(publication.compile.as_secs_f64());
        if let Some(heard) = publication.heard {
            self.event_to_served.observe(heard.elapsed().as_secs_f64());
        }
        self.apply_failures.set(gauge(publication.failures));
        for (severity, count) in publication.diagnostics {
            self.diagnostics.get_or_create(&Severity { severity }).set(gauge(*count));
        }
        for (kind, count) in publication.resources {
            self.resources.get_or_create(&Kind { kind }).set(gauge(*count));
        }
    }

    /// Everything, with what was counted elsewhere.
    pub(super) fn expose(&self, counts: Counts, exposition: Exposition) -> Result<String, fmt::Error> {
        let mut read = Registry::default();
        read.register_collector(Box::new(Read(Mutex::new(Some(counts)))));
        read.register_collector(Box::new(Process));
        let mut out = String::new();
        match exposition {
            Exposition::OpenMetrics => {
                text::encode_registry(&mut out, &self.registry)?;
                text::encode_registry(&mut out, &read)?;
                text::encode_eof(&mut out)?;
            }
            Exposition::Text => {
                prometheus_text::encode(&mut out, &self.registry)?;
                prometheus_text::encode(&mut out, &read)?;
            }
        }
        Ok(out)
    }
}

/// Counts that were read for one exposition.
#[derive(Debug)]
struct Read(Mutex<Option<Counts>>);

impl prometheus_client::collector::Collector for Read {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        counts.map_or(Ok(()), |counts| encode_counts(&counts, encoder))
    }
}

impl Kubernetes {
    fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("kubernetes");
        registry.register("leader", "Whether this node writes statuses", self.leader.clone());
        registry.register_with_unit(
            "last_event_timestamp",
            "When the API server was last heard of, in Unix time; 0 for never",
            Unit::Seconds,
            self.last_event.clone(),
        );
        registry.register(
            "lists",
            "Lists begun: one a kind at the start, and one whenever a watch cannot go on",
            self.lists.clone(),
        );
        registry.register("watch_failures", "Watches and lists that failed", self.watch_failures.clone());
        registry.register("status_writes", "Statuses sent to the API server", self.status_writes.clone());
    }

    /// Says whether this node writes statuses.
    pub fn set_leader(&self, leads: bool) {
        self.leader.set(leads.into());
    }

    /// Counts that something was heard of a kind.
    pub fn heard(&self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.last_event.set(now.as_secs_f64());
    }

    /// Counts the beginning of a list of a kind.
    pub fn listing(&self, kind: &'static str) {
        self.lists.get_or_create(&Kind { kind }).inc();
    }

    /// Counts a watch or a list that failed.
    pub fn watch_failed(&self, kind: &'static str) {
        self.watch_failures.get_or_create(&Kind { kind }).inc();
    }

    /// Counts a status that was sent.
    pub fn status_sent(&self, result: WriteResult) {
        self.status_writes.get_or_create(&Written { result }).inc();
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::observe::counts::tests::one_of_everything;

    fn exposed(exposition: Exposition) -> String {
        let metrics = Metrics::default();
        metrics.published(&Publication {
            generation: 1,
            compile: Duration::from_millis(3),
            heard: Some(std::time::Instant::now()),
            resources: &[("Gateway", 1)],
            diagnostics: &[("error", 1)],
            failures: 0,
        });
        metrics.kubernetes.set_leader(true);
        metrics.kubernetes.heard();
        metrics.kubernetes.listing("Gateway");
        metrics.kubernetes.watch_failed("Gateway");
        metrics.kubernetes.status_sent(WriteResult::written);
        metrics.expose(one_of_everything(), exposition).unwrap()
    }

    /// Name, type and labels of every metric.
    fn families(text: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
        let mut families = BTreeMap::new();
        for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = line.split_once(' ').unwrap();
            let labels = BTreeSet::new();
            assert!(families.insert(name.to_owned(), (kind.to_owned(), labels)).is_none(), "{name} twice");
        }
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap();
            let family = families.iter_mut().find(|(family, _)| {
                ["", "_total", "_info", "_bucket", "_sum", "_count"]
                    .iter()
                    .any(|end| name == format!("{family}{end}"))
            });
            let (_, (_, labels)) = family.unwrap_or_else(|| panic!("{line} is of no family"));
            if let Some((_, rest)) = line.split_once('{') {
                let inside = rest.rsplit_once('}').unwrap().0;
                labels.extend(inside.split("\",").map(|label| label.split('=').next().unwrap().to_owned()));
            }
        }
        families
    }

    #[test]
    fn the_document_names_every_metric_with_its_type_and_labels() {
        let document = include_str!("../../../docs/metrics.md");
        let mut written = BTreeMap::new();
        for line in document.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let labels: BTreeSet<String> = cells[2]
                .split(' ')
                .filter(|label| !label.is_empty())
                .map(|label| label.trim_matches('`').to_owned())
                .collect();
            written.insert(cells[0].trim_matches('`').to_owned(), (cells[1].to_owned(), labels));
        }
        let mut exposed = families(&exposed(Exposition::OpenMetrics));
        for (kind, labels) in exposed.values_mut() {
            // What every histogram has.
            if kind == "histogram" {
                labels.remove("le");
            }
        }
        assert_eq!(written, exposed);
    }

    #[test]
    fn both_formats_have_the_same_metrics_and_their_own_ends() {
        let (new, old) = (exposed(Exposition::OpenMetrics), exposed(Exposition::Text));
        assert!(new.ends_with("# EOF\n"), "{new}");
        assert!(!old.contains("# EOF") && old.contains("# TYPE gatewayd_generation gauge"), "{old}");
        for line in [
            "gatewayd_generation 1",
            "gatewayd_event_to_served_seconds_count 1",
            "gatewayd_resources{kind=\"Gateway\"} 1",
        ] {
            assert!(new.contains(line) && old.contains(line), "{line} is missing");
        }
    }
}
