//! What the data planes have counted, read when somebody asks.
//!
//! Rows of services and backends are bounded ([`MAX_ROWS`] for each data plane): a scraper keeps every row for weeks.
//! What has no rows of its own is in the sums, and the number of services left out is exposed.

use std::fmt;

use gateway_common::{Count, ServiceCount};
use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeLabel as _, EncodeMetric as _, LabelSetEncoder},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

use crate::l7::BackendStats;

/// So many rows have the services and backends of a data plane at most, whole services by name.
const MAX_ROWS: usize = 2_000;

/// Classes of status codes, in the order in which they are counted.
const CODES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// What was counted until now.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// How packets left: entry, outcome.
    pub outcomes: Vec<(&'static str, &'static str, Count)>,
    /// Services of the kernel.
    pub kernel_services: Vec<KernelService>,
    /// Services of the kernel that are not in `kernel_services`.
    pub kernel_services_left_out: usize,
    /// Backends in the kernel that take new flows, and that drain.
    pub kernel_backends: [usize; 2],
    /// Services of the proxy.
    pub proxy_services: Vec<ProxyService>,
    /// Services of the proxy that are not in `proxy_services`.
    pub proxy_services_left_out: usize,
}

/// A service of the kernel.
#[derive(Clone, Debug, Default)]
pub struct KernelService {
    /// Protocol, address and port.
    pub frontend: String,
    /// Name; empty while no route is attached.
    pub service: String,
    /// What it counted.
    pub count: ServiceCount,
    /// Its backends by address and port.
    pub backends: Vec<(String, ServiceCount)>,
}

/// A service of the proxy.
#[derive(Clone, Debug, Default)]
pub struct ProxyService {
    /// Name.
    pub service: String,
    /// Its backends, each name once.
    pub backends: Vec<BackendStats>,
}

/// Keeps as many services as have room, and says how many have none.
pub fn bounded<S>(services: Vec<S>, rows: impl Fn(&S) -> usize) -> (Vec<S>, usize) {
    let (mut kept, mut left_out, mut used) = (Vec::new(), 0, 0);
    for service in services {
        used += rows(&service);
        if used <= MAX_ROWS { kept.push(service) } else { left_out += 1 }
    }
    (kept, left_out)
}

/// Labels of a row.
struct Labels<'a>(&'a [(&'static str, &'a str)]);

impl prometheus_client::encoding::EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|label| label.encode(encoder.encode_label()))
    }
}

/// A metric with one row for each set of labels.
struct Rows<'a>(DescriptorEncoder<'a>);

type Row<'a, const N: usize> = ([(&'static str, &'a str); N], u64);

impl Rows<'_> {
    fn counter<'r, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl Iterator<Item = Row<'r, N>>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in rows {
            ConstCounter::new(value).encode(metric.encode_family(&Labels(&labels))?)?;
        }
        Ok(())
    }

    fn gauge<'r, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl Iterator<Item = Row<'r, N>>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in rows {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            ConstGauge::new(value).encode(metric.encode_family(&Labels(&labels))?)?;
        }
        Ok(())
    }
}

pub(super) fn encode_counts(counts: &Counts, encoder: DescriptorEncoder<'_>) -> fmt::Result {
    let mut rows = Rows(encoder);
    kernel(counts, &mut rows)?;
    kernel_services(counts, &mut rows)?;
    kernel_backends(counts, &mut rows)?;
    proxy_backends(counts, &mut rows)?;
    let left_out = [("kernel", counts.kernel_services_left_out), ("proxy", counts.proxy_services_left_out)];
    rows.gauge(
        "gatewayd_services_left_out",
        "Services without rows of their own in this exposition, since there are too many",
        left_out.into_iter().map(|(plane, count)| ([("plane", plane)], count as u64)),
    )
}

fn kernel(counts: &Counts, rows: &mut Rows<'_>) -> fmt::Result {
    let outcomes = || {
        counts
            .outcomes
            .iter()
            .map(|(entry, outcome, count)| ([("entry", *entry), ("outcome", *outcome)], count))
    };
    rows.counter(
        "gatewayd_kernel_packets",
        "Packets by the program that saw them and how they left",
        outcomes().map(|(labels, count)| (labels, count.packets)),
    )?;
    rows.counter(
        "gatewayd_kernel_bytes",
        "Bytes on the wire by the program that saw them and how they left",
        outcomes().map(|(labels, count)| (labels, count.bytes)),
    )?;
    rows.gauge(
        "gatewayd_kernel_backends",
        "Backends in the kernel's tables",
        ["active", "draining"]
            .iter()
            .zip(counts.kernel_backends)
            .map(|(state, count)| ([("state", *state)], count as u64)),
    )
}

/// Both directions of what a service or backend counted.
fn directions(packets_or_bytes: (u64, u64)) -> [(&'static str, u64); 2] {
    [("in", packets_or_bytes.0), ("out", packets_or_bytes.1)]
}

fn kernel_services(counts: &Counts, rows: &mut Rows<'_>) -> fmt::Result {
    let services = || {
        counts
            .kernel_services
            .iter()
            .map(|one| ([("frontend", one.frontend.as_str()), ("service", &one.service)], &one.count))
    };
    rows.counter(
        "gatewayd_kernel_service_flows",
        "Flows that began, refused ones not included",
        services().map(|(labels, count)| (labels, count.flows)),
    )?;
    let both = |of: fn(&ServiceCount) -> (u64, u64)| {
        services().flat_map(move |([frontend, service], count)| {
            directions(of(count)).map(|(way, value)| ([frontend, service, ("direction", way)], value))
        })
    };
    rows.counter(
        "gatewayd_kernel_service_packets",
        "Packets of flows, in from clients and out to them",
        both(|count| (count.packets_in, count.packets_out)),
    )?;
    rows.counter(
        "gatewayd_kernel_service_bytes",
        "Bytes of flows, in from clients and out to them",
        both(|count| (count.bytes_in, count.bytes_out)),
    )
}

fn kernel_backends(counts: &Counts, rows: &mut Rows<'_>) -> fmt::Result {
    let backends = || {
        counts.kernel_services.iter().flat_map(|service| {
            let frontend = ("frontend", service.frontend.as_str());
            service
                .backends
                .iter()
                .map(move |(backend, count)| ([frontend, ("backend", backend.as_str())], count))
        })
    };
    rows.counter(
        "gatewayd_kernel_backend_flows",
        "Flows that began towards a backend",
        backends().map(|(labels, count)| (labels, count.flows)),
    )?;
    let both = |of: fn(&ServiceCount) -> (u64, u64)| {
        backends().flat_map(move |([frontend, backend], count)| {
            directions(of(count)).map(|(way, value)| ([frontend, backend, ("direction", way)], value))
        })
    };
    rows.counter(
        "gatewayd_kernel_backend_packets",
        "Packets of a backend's flows, in from clients and out to them",
        both(|count| (count.packets_in, count.packets_out)),
    )?;
    rows.counter(
        "gatewayd_kernel_backend_bytes",
        "Bytes of a backend's flows, in from clients and out to them",
        both(|count| (count.bytes_in, count.bytes_out)),
    )
}

fn proxy_backends(counts: &Counts, rows: &mut Rows<'_>) -> fmt::Result {
    let backends = || {
        counts.proxy_services.iter().flat_map(|service| {
            let name = ("service", service.service.as_str());
            service.backends.iter().map(move |backend| ([name, ("backend", backend.name.as_str())], backend))
        })
    };
    rows.counter(
        "gatewayd_proxy_backend_requests",
        "Requests given to a backendRef, whatever became of them",
        backends().map(|(labels, backend)| (labels, backend.requests)),
    )?;
    rows.gauge(
        "gatewayd_proxy_backend_active_requests",
        "Requests to a backendRef whose response has not ended",
        backends().map(|(labels, backend)| (labels, backend.active)),
    )?;
    let responses = backends().flat_map(|([service, name], backend)| {
        CODES
            .into_iter()
            .zip(backend.responses)
            .map(move |(code, count)| ([service, name, ("code", code)], count))
    });
    rows.counter(
        "gatewayd_proxy_backend_responses",
        "Responses of a backendRef, those made on its behalf included",
        responses,
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// At least one row of every metric.
    pub(in super::super) fn one_of_everything() -> Counts {
        let count = ServiceCount { flows: 1, packets_in: 2, bytes_in: 3, packets_out: 4, bytes_out: 5 };
        let backends = vec![("198.18.8.1:80".to_owned(), count)];
        let stats = BackendStats { name: "n/b:80".into(), requests: 7, ..BackendStats::default() };
        Counts {
            outcomes: vec![("xdp", "forwarded", Count { packets: 1, bytes: 60 })],
            kernel_services: vec![KernelService {
                frontend: "udp 198.18.0.1:53".into(),
                service: "s".into(),
                count,
                backends,
            }],
            kernel_backends: [1, 0],
            proxy_services: vec![ProxyService { service: "httproute.n.r.0".into(), backends: vec![stats] }],
            ..Counts::default()
        }
    }

    #[test]
    fn rows_are_bounded_by_whole_services() {
        let (kept, left_out) = bounded(vec![MAX_ROWS - 1, 1, 1, 1], |rows| *rows);
        assert_eq!((kept, left_out), (vec![MAX_ROWS - 1, 1], 2));
    }
}
