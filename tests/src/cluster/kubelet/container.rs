//! One container: a static program with its root changed to a folder of the pod.

use std::env;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Container as Spec, EnvVar, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::Child;
use tokio::task::spawn_local;

use super::logs::Log;
use crate::cluster::programs::Programs;
use crate::netns::Netns;

/// What a container is, before and between its runs.
#[derive(Debug)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) image: String,
    pub(super) restarts: i32,
    /// Where the container sees `/`.
    root: PathBuf,
    program: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    log: Log,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    since: Timestamp,
}

impl Container {
    /// Reads the specification and puts the program under `root`.
    ///
    /// # Errors
    /// When it asks for what there is not here: another image, a command, other sources of variables.
    pub(super) fn prepare(
        spec: &Spec,
        pod: &Pod,
        programs: &Programs,
        root: PathBuf,
        log: Log,
    ) -> Result<Self> {
        let image = spec.image.clone().unwrap_or_default();
        let program =
            programs.of_image(&image).with_context(|| format!("no program for the image {image}"))?;
        ensure!(spec.command.is_none(), "a command in place of the image's own");
        ensure!(spec.env_from.as_ref().is_none_or(Vec::is_empty), "variables from a whole object");
        let name = program.file_name().context("programs have names")?.to_string_lossy().into_owned();
        place(&program, &root.join(&name))?;
        let environment =
            spec.env.iter().flatten().map(|variable| value(variable, pod)).collect::<Result<Vec<_>>>()?;
        Ok(Self {
            name: spec.name.clone(),
            image,
            restarts: 0,
            root,
            program: name,
            arguments: spec.args.clone().unwrap_or_default(),
            environment,
            log,
            running: None,
        })
    }

    /// Starts the program in the pod's namespace. Dropped, it is killed.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn start(&mut self, netns: &Netns) -> Result<()> {
        let mut command = netns.command("chroot")?;
        self.describe(&mut command);
        let mut child = tokio::process::Command::from(command)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {}", self.program))?;
        if let Some(output) = child.stdout.take() {
            spawn_local(keep(output, self.log.clone()));
        }
        if let Some(output) = child.stderr.take() {
            spawn_local(keep(output, self.log.clone()));
        }
        self.running = Some(Running { child, since: Timestamp::now() });
        Ok(())
    }

    fn describe(&self, command: &mut Command) {
        command.arg(&self.root).arg(format!("/{}", self.program)).args(&self.arguments);
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        // For finding `chroot`.
        command.env("PATH", env::var_os("PATH").unwrap_or_default());
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    }

    /// Waits until the program ends; for ever if it does not run.
    pub(super) async fn ended(&mut self) -> Result<ExitStatus> {
        match &mut self.running {
            Some(running) => {
                let status = running.child.wait().await;
                self.running = None;
                status.with_context(|| format!("wait for {}", self.program))
            }
            None => std::future::pending().await,
        }
    }

    /// Kills the program if it runs, and waits for its end.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub(super) async fn kill(&mut self) -> Result<()> {
        match &mut self.running {
            Some(running) => running.child.kill().await.with_context(|| format!("end {}", self.program)),
            None => Ok(()),
        }
    }

    /// Since when it runs.
    pub(super) fn running_since(&self) -> Option<Timestamp> {
        self.running.as_ref().map(|running| running.since)
    }
}

/// A hard link where that is possible: pods then share the program's pages and cost no space.
fn place(program: &Path, to: &Path) -> Result<()> {
    if fs::hard_link(program, to).is_err() {
        fs::copy(program, to)
            .with_context(|| format!("copy {} to {}", program.display(), to.display()))
            .map(drop)?;
    }
    Ok(())
}

fn value(variable: &EnvVar, pod: &Pod) -> Result<(String, String)> {
    let name = variable.name.clone();
    let Some(source) = &variable.value_from else {
        return Ok((name, variable.value.clone().unwrap_or_default()));
    };
    let field = source.field_ref.as_ref().map(|field| field.field_path.as_str());
    let value = match field {
        Some("metadata.name") => pod.name_any(),
        Some("metadata.namespace") => pod.namespace().unwrap_or_default(),
        _ => bail!("the variable {name} from another source than the pod's name and namespace"),
    };
    Ok((name, value))
}

/// Adds lines to the log until the program closes its end.
async fn keep(output: impl AsyncRead + Unpin, log: Log) {
    let mut lines = BufReader::new(output).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        log.push(String::from_utf8_lossy(&line).into_owned());
    }
}
