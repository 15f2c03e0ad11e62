//! Where the Go programs are that `cargo xtask` built.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};

/// The folders of programs, one for each Go module.
#[derive(Args, Clone, Debug)]
pub struct Programs {
    /// Folder of etcd, kube-apiserver, kube-controller-manager and kubectl.
    #[arg(long, env = "GATEWAYD_BENCH_CONTROL_PLANE")]
    control_plane: PathBuf,
    /// Folder of the suite, its echo server, the CRDs and the suite's manifests.
    #[arg(long, env = "GATEWAYD_BENCH_SUITE")]
    suite: PathBuf,
    /// Folder of the DNS server.
    #[arg(long, env = "GATEWAYD_BENCH_DNS")]
    dns: PathBuf,
}

/// Which CRDs of the Gateway API are installed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum Channel {
    /// What is stable.
    #[default]
    Standard,
    /// What may change as well.
    Experimental,
}

impl Programs {
    /// A program of the control plane.
    ///
    /// # Errors
    /// When it is not there.
    pub fn control_plane(&self, name: &str) -> Result<PathBuf> {
        there(self.control_plane.join(name))
    }

    /// The compiled test of the suite.
    pub(super) fn suite(&self) -> Result<PathBuf> {
        there(self.suite.join("conformance"))
    }

    /// The manifests that all tests of the suite stand on, as its module has them: the name of the GatewayClass is
    /// still to be filled in.
    ///
    /// # Errors
    /// When they are not there.
    pub fn base_manifests(&self) -> Result<PathBuf> {
        there(self.suite.join("base/manifests.yaml"))
    }

    /// All manifests that the suite applies, as its module has them.
    ///
    /// # Errors
    /// When they are not there.
    pub fn manifests(&self) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let mut folders = ["base", "mesh", "tests"].map(|name| self.suite.join(name)).to_vec();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(there(folder)?)? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "yaml") {
                    found.push(path);
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// The folder of the channel's CRDs.
    pub(super) fn crds(&self, channel: Channel) -> Result<PathBuf> {
        let name = match channel {
            Channel::Standard => "standard",
            Channel::Experimental => "experimental",
        };
        there(self.suite.join("crd").join(name))
    }

    /// The program of a container image, by the last part of the image's name; none if it is neither of the two
    /// that the suite uses. Tags count for nothing: there is one version here.
    pub(super) fn of_image(&self, image: &str) -> Option<PathBuf> {
        match image_name(image) {
            "echo-basic" => Some(self.suite.join("echo-basic")),
            "coredns" => Some(self.dns.join("coredns")),
            _ => None,
        }
    }
}

fn there(path: PathBuf) -> Result<PathBuf> {
    ensure!(Path::new(&path).exists(), "{} is not there: run `cargo xtask test --cluster`", path.display());
    Ok(path)
}

fn image_name(image: &str) -> &str {
    let untagged = image.split('@').next().unwrap_or(image);
    let last = untagged.rsplit('/').next().unwrap_or(untagged);
    last.split(':').next().unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::image_name;

    #[test]
    fn images_are_known_by_name() {
        assert_eq!(image_name("registry.example:5000/gateway-api/echo-basic:v1.5.1"), "echo-basic");
        assert_eq!(image_name("coredns@sha256:00"), "coredns");
        assert_eq!(image_name("nginx"), "nginx");
    }
}
