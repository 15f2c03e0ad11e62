//! `manifests`: renders the Helm chart to deploy/manifests, for those who have no Helm; with `--check`, says whether
//! what is there is what would be rendered.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::{exec, programs};

/// Options of `manifests`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Change nothing; fail when deploy/manifests is not what the chart says.
    #[arg(long)]
    check: bool,
}

const CHART: &str = "deploy/helm/gatewayd";
const RENDERED: &str = "deploy/manifests/gatewayd.yaml";

/// The oldest Kubernetes that the chart is for, which is its `kubeVersion`.
const KUBERNETES: &str = "1.31.0";

pub(crate) fn run(options: &Options, root: &Path) -> Result<()> {
    let rendered = render(root)?;
    let path = root.join(RENDERED);
    if options.check {
        let there = fs::read_to_string(&path).with_context(|| format!("read {RENDERED}"))?;
        ensure!(there == rendered, "{RENDERED} is not what {CHART} says: run `cargo xtask manifests`");
        return Ok(());
    }
    fs::write(&path, rendered).with_context(|| format!("write {RENDERED}"))
}

/// Fails when the manifests are not what the chart says.
pub(crate) fn check(root: &Path) -> Result<()> {
    run(&Options { check: true }, root)
}

fn render(root: &Path) -> Result<String> {
    let helm = programs::helm(root)?.join("helm");
    exec::exec(Command::new(&helm).current_dir(root).args(["lint", "--quiet", "--strict", CHART]))?;
    let mut template = Command::new(&helm);
    template.current_dir(root).args(["template", "gatewayd", CHART, "--include-crds"]);
    template.args(["--kube-version", KUBERNETES, "--namespace", "gatewayd-system"]);
    let rendered = exec::output(template.args(["--set", "createNamespace=true"]))?;
    Ok(format!("# Rendered from {CHART} by `cargo xtask manifests`.\n{rendered}\n"))
}
