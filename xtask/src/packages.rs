//! The distribution's packages: installed where we know how, named exactly where we do not.

use std::cell::Cell;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::exec;

/// A piece of the system, and what it is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Package {
    /// Name on Debian and Ubuntu.
    pub name: &'static str,
    /// The program that shows that it is there.
    pub program: &'static str,
    /// Why gatewayd's tasks need it.
    pub purpose: &'static str,
}

impl Package {
    pub(crate) fn is_missing(&self) -> bool {
        exec::find_program(self.program).is_none()
    }
}

/// apt, with its lists refreshed at most once a run.
#[derive(Debug, Default)]
pub(crate) struct Apt {
    refreshed: Cell<bool>,
}

impl Apt {
    /// apt on Debian and Ubuntu, nothing elsewhere.
    pub(crate) fn of_this_system() -> Option<Self> {
        let known = Path::new("/etc/debian_version").exists() && exec::find_program("apt-get").is_some();
        known.then(Self::default)
    }

    /// Whether the distribution has a package of this name that can be installed.
    pub(crate) fn offers(&self, package: &str) -> Result<bool> {
        if candidate(package)? {
            return Ok(true);
        }
        if self.refreshed.get() {
            return Ok(false);
        }
        self.refresh()?;
        candidate(package)
    }

    /// Installs `packages`, saying why in one line.
    ///
    /// # Errors
    /// When we are not root, or apt fails.
    pub(crate) fn install(&self, packages: &[&str], purpose: &str) -> Result<()> {
        let list = packages.join(" ");
        if !exec::is_root() {
            bail!("{purpose} needs packages, and only root may install them: apt-get install {list}");
        }
        println!("installing {list}: {purpose}");
        for package in packages {
            // Also refreshes the lists when they are missing or too old to know the package.
            if !self.offers(package)? {
                bail!("the distribution has no package {package} ({purpose})");
            }
        }
        let install = || exec::output(apt_get().args(["install", "--no-install-recommends"]).args(packages));
        if install().is_err() {
            // The lists may name versions that the mirror has already replaced.
            self.refresh()?;
            install()?;
        }
        Ok(())
    }

    fn refresh(&self) -> Result<()> {
        if !exec::is_root() {
            bail!("the package lists are missing or old, and only root may refresh them: apt-get update");
        }
        if !self.refreshed.replace(true) {
            exec::output(apt_get().arg("update"))?;
        }
        Ok(())
    }
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    command.args(["--yes", "--quiet", "-o", "DPkg::Lock::Timeout=120"]);
    command
}

fn candidate(package: &str) -> Result<bool> {
    let policy = exec::output(Command::new("apt-cache").env("LC_ALL", "C").args(["policy", package]))?;
    Ok(policy
        .lines()
        .any(|line| line.trim().strip_prefix("Candidate:").is_some_and(|version| version.trim() != "(none)")))
}
