//! `gatewayd status`.

use std::{fmt::Write as _, net::SocketAddr, path::Path};

use anyhow::Context as _;

use crate::admin::{self, FaultReport, Report};

/// Prints the daemon's report for programs.
pub(super) fn print_json(state_dir: &Path) -> anyhow::Result<()> {
    let report: serde_json::Value =
        serde_json::from_slice(&fetch(state_dir)?).context("read the daemon's answer")?;
    println!("{report:#}");
    Ok(())
}

/// Prints the daemon's report for people.
pub(super) fn print_text(state_dir: &Path) -> anyhow::Result<()> {
    let report = serde_json::from_slice(&fetch(state_dir)?)
        .context("read the daemon's answer; is it of this version? `gatewayd status -o json` shows it raw")?;
    print!("{}", render(&report).context("write the report")?);
    Ok(())
}

fn fetch(state_dir: &Path) -> anyhow::Result<bytes::Bytes> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
    runtime.block_on(admin::fetch(state_dir))
}

fn render(report: &Report) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    render_head(&mut out, report)?;
    render_listeners(&mut out, report)?;
    render_addresses(&mut out, report)?;
    render_services(&mut out, report)?;
    render_devices(&mut out, report)?;
    Ok(out)
}

fn render_head(out: &mut String, report: &Report) -> std::fmt::Result {
    let applied = report.applied_at.as_deref().unwrap_or("never");
    writeln!(
        out,
        "gatewayd {} (pid {}), generation {} applied {applied}",
        report.version, report.pid, report.generation
    )?;
    if let Some(rejection) = &report.last_rejected {
        writeln!(out, "\nNot taken, at {} (what was there before goes on serving):", rejection.at)?;
        rejection.faults.iter().try_for_each(|fault| writeln!(out, "  {}", sentence(fault)))?;
    }
    for failure in &report.apply_failures {
        writeln!(out, "\nNot in force: {}: {}", failure.what, failure.error)?;
    }
    for bind in &report.binds {
        writeln!(out, "\nNot listening on {}: {}", bind.address, bind.error)?;
    }
    if !report.diagnostics.is_empty() {
        writeln!(out, "\nTo look at:")?;
        report.diagnostics.iter().try_for_each(|fault| writeln!(out, "  {}", sentence(fault)))?;
    }
    Ok(())
}

fn sentence(fault: &FaultReport) -> String {
    match fault {
        FaultReport { file, code, message, .. } if file.is_empty() => format!("{code}: {message}"),
        FaultReport { file, line: 0, code, message, .. } => format!("{file}: {code}: {message}"),
        FaultReport { file, line, column, code, message } => {
            format!("{file}:{line}:{column}: {code}: {message}")
        }
    }
}

fn render_listeners(out: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(out, "\nListeners")?;
    for listener in &report.listeners {
        let addresses: Vec<String> = listener
            .addresses
            .iter()
            .map(|address| SocketAddr::new(*address, listener.port).to_string())
            .collect();
        let state = if listener.programmed { "programmed" } else { "not programmed" };
        writeln!(
            out,
            "  {}/{}  {} {}  {state}, {} routes",
            listener.gateway,
            listener.name,
            listener.protocol,
            addresses.join(" "),
            listener.attached_routes
        )?;
    }
    Ok(())
}

/// Which node has which address, where there are several.
fn render_addresses(out: &mut String, report: &Report) -> std::fmt::Result {
    let shared: Vec<_> = report.addresses.iter().filter_map(|of| Some((of, of.node.as_ref()?))).collect();
    if shared.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nAddresses")?;
    shared.iter().try_for_each(|(of, node)| {
        let here = if of.here { "  (this node)" } else { "" };
        writeln!(out, "  {}  on {node}{here}", of.address)
    })
}

fn render_services(out: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(out, "\nServices in the kernel")?;
    for service in &report.services {
        let frontend = SocketAddr::new(service.address, service.port);
        let name = service.name.as_deref().unwrap_or("(no route: refuses)");
        let draining = if service.draining { "  draining" } else { "" };
        writeln!(out, "  {} {frontend}  {name}  {} flows{draining}", service.protocol, service.flows)?;
        for backend in &service.backends {
            let address = SocketAddr::new(backend.address, backend.port).to_string();
            let draining = if backend.draining { "  draining" } else { "" };
            writeln!(
                out,
                "    {address:<40} asked {:6.2} %  seen {:6.2} %  {} flows{draining}",
                backend.asked_share * 100.0,
                backend.seen_share * 100.0,
                backend.flows
            )?;
        }
        if service.refused_share > 0.0 {
            writeln!(out, "    {:<40} asked {:6.2} %", "refused", service.refused_share * 100.0)?;
        }
    }
    writeln!(out, "\nServices of the proxy")?;
    for service in &report.http_services {
        writeln!(out, "  {}  {} requests", service.name, service.requests)?;
        for backend in &service.backends {
            writeln!(
                out,
                "    {:<40} asked {:6.2} %  seen {:6.2} %  {} requests, {} endpoints",
                backend.name,
                backend.asked_share * 100.0,
                backend.seen_share * 100.0,
                backend.requests,
                backend.endpoints
            )?;
        }
    }
    Ok(())
}

fn render_devices(out: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(out, "\nDevices")?;
    for device in &report.devices {
        writeln!(out, "  {}  {}: {}", device.name, device.mode, device.why)?;
    }
    for (entry, outcomes) in &report.counters {
        let seen: Vec<String> = outcomes
            .iter()
            .filter(|(_, packets)| **packets > 0)
            .map(|(outcome, packets)| format!("{outcome} {packets}"))
            .collect();
        writeln!(
            out,
            "  packets at {entry}: {}",
            if seen.is_empty() { "none".to_owned() } else { seen.join(", ") }
        )?;
    }
    Ok(())
}
