//! What the kernel knows of this process, under the names that Prometheus' own clients give it.

use std::{fmt, fs};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

/// This process, looked at when somebody asks.
#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // Without /proc there is nothing to say.
        let Some(usage) = Usage::read() else { return Ok(()) };
        let cpu = encoder.encode_descriptor(
            "process_cpu_seconds",
            "Processor time used, by the process and for it",
            None,
            MetricType::Counter,
        )?;
        ConstCounter::new(usage.cpu_seconds).encode(cpu)?;
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Memory that is resident", usage.resident_bytes),
            ("process_virtual_memory_bytes", "Address space", usage.virtual_bytes),
            ("process_open_fds", "Open files and sockets", usage.open_files),
            ("process_threads", "Threads", usage.threads),
            ("process_start_time_seconds", "When it was started, in Unix time", usage.start_seconds),
        ] {
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(gauge)?;
        }
        Ok(())
    }
}

struct Usage {
    cpu_seconds: f64,
    resident_bytes: u64,
    virtual_bytes: u64,
    open_files: u64,
    threads: u64,
    start_seconds: u64,
}

impl Usage {
    /// From `proc_pid_stat(5)`.
    fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // The name in parentheses may have spaces; the fields after it begin with the third.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let ticks = rustix::param::clock_ticks_per_second();
        let booted = fs::read_to_string("/proc/stat").ok()?;
        let booted =
            booted.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse::<u64>().ok()?;
        #[expect(clippy::cast_precision_loss, reason = "exact for the first billion years")]
        let cpu_seconds = (field(14)? + field(15)?) as f64 / ticks as f64;
        Some(Self {
            cpu_seconds,
            resident_bytes: field(24)? * rustix::param::page_size() as u64,
            virtual_bytes: field(23)?,
            open_files: fs::read_dir("/proc/self/fd").ok()?.count() as u64,
            threads: field(20)?,
            start_seconds: booted + field(22)? / ticks,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn the_fields_are_those_of_this_process() {
        let usage = Usage::read().unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        // Boot time is rounded, and a test may take a while.
        assert!((now - 3600..=now + 2).contains(&usage.start_seconds), "{}", usage.start_seconds);
        assert!(usage.resident_bytes > 1 << 20 && usage.resident_bytes < usage.virtual_bytes);
        assert!(usage.threads >= 1 && usage.open_files >= 3);
    }
}
