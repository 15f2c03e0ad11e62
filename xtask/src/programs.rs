//! The Go programs of the conformance bench: built once, kept outside the tree.
//!
//! Small Go modules in `tests/conformance` pin what is built: the control plane, the suite with its echo server, a DNS
//! server and, apart from the bench's, Helm. The results of a module are kept in a folder named by a hash of all that decides them,
//! so that a second run, in whichever clone, builds nothing and a new version never meets an old binary.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::exec;

/// Where each module's programs are.
#[derive(Debug)]
pub(crate) struct Programs {
    /// `etcd`, `kube-apiserver`, `kube-controller-manager`, `kubectl`.
    pub control_plane: PathBuf,
    /// `conformance`, `echo-basic`; the folders `crd` and `base`.
    pub suite: PathBuf,
    /// `coredns`.
    pub dns: PathBuf,
}

/// One Go module below `tests/conformance`.
struct Module {
    name: &'static str,
    programs: &'static [Program],
    /// What is copied out of a required module's folder: (module, folder there, folder here).
    copies: &'static [(&'static str, &'static str, &'static str)],
}

struct Program {
    name: &'static str,
    package: &'static str,
    /// A test binary, which `go test -c` makes, rather than a command.
    test: bool,
}

const MODULES: [Module; 3] = [
    Module {
        name: "controlplane",
        programs: &[
            Program::command("etcd", "go.etcd.io/etcd/server/v3"),
            Program::command("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
            Program::command("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
            Program::command("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
        ],
        copies: &[],
    },
    Module {
        name: "suite",
        programs: &[
            Program { name: "conformance", package: ".", test: true },
            Program::command("echo-basic", "sigs.k8s.io/gateway-api/conformance/echo-basic"),
        ],
        copies: &[
            ("sigs.k8s.io/gateway-api", "config/crd", "crd"),
            ("sigs.k8s.io/gateway-api/conformance", "base", "base"),
        ],
    },
    Module { name: "dns", programs: &[Program::command("coredns", ".")], copies: &[] },
];

const HELM: Module =
    Module { name: "helm", programs: &[Program::command("helm", "helm.sh/helm/v3/cmd/helm")], copies: &[] };

/// No symbols and no DWARF, which makes the build about a seventh faster; nothing of this machine in the result.
const GO_FLAGS: &str = "-buildvcs=false -trimpath -mod=readonly -gcflags=all=-dwarf=false";

impl Program {
    const fn command(name: &'static str, package: &'static str) -> Self {
        Self { name, package, test: false }
    }
}

/// Builds what is missing.
///
/// # Errors
/// When Go is missing or too old, or a module cannot be downloaded or built.
pub(crate) fn build(root: &Path) -> Result<Programs> {
    let go = go_version()?;
    let cache = cache_dir()?;
    remove_drafts_of_the_dead(&cache)?;
    let mut folders = Vec::new();
    for module in &MODULES {
        folders.push(built(module, root, &cache, &go)?);
    }
    let [control_plane, suite, dns] = folders.try_into().ok().context("three modules, three folders")?;
    Ok(Programs { control_plane, suite, dns })
}

/// The folder with `helm`, built if it is missing.
///
/// # Errors
/// As [`build`].
pub(crate) fn helm(root: &Path) -> Result<PathBuf> {
    built(&HELM, root, &cache_dir()?, &go_version()?)
}

/// The module's folder in the cache; made first when it is not there.
fn built(module: &Module, root: &Path, cache: &Path, go: &str) -> Result<PathBuf> {
    let source = root.join("tests/conformance").join(module.name);
    let folder = cache.join(format!("{}-{}", module.name, key(module, &source, go)?));
    if folder.is_dir() {
        return Ok(folder);
    }
    // Whole or not at all: made beside its place and moved there, whoever else is making the same.
    let draft = cache.join(format!(".{}-{}", module.name, process::id()));
    fs::create_dir_all(&draft).with_context(|| format!("make {}", draft.display()))?;
    let made = make(module, &source, &draft);
    if made.is_ok() && !folder.is_dir() {
        fs::rename(&draft, &folder).with_context(|| format!("make {}", folder.display()))?;
    } else {
        fs::remove_dir_all(&draft).with_context(|| format!("remove {}", draft.display()))?;
    }
    made.map(|()| folder)
}

/// What a build left that was killed; nobody else would.
fn remove_drafts_of_the_dead(cache: &Path) -> Result<()> {
    for entry in fs::read_dir(cache).into_iter().flatten() {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix('.').and_then(|rest| rest.rsplit_once('-')).map(|(_, pid)| pid);
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            fs::remove_dir_all(entry.path()).with_context(|| format!("remove {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// What decides the results: the module's files, the compiler, the flags and the list of programs.
fn key(module: &Module, source: &Path, go: &str) -> Result<String> {
    let mut hash = Sha256::new();
    let mut files: Vec<PathBuf> = fs::read_dir(source)
        .with_context(|| format!("read {}", source.display()))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.sort();
    for file in files {
        let text = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        hash.update(file.file_name().unwrap_or_default().as_encoded_bytes());
        hash.update(text.len().to_le_bytes());
        hash.update(text);
    }
    hash.update(go);
    hash.update(GO_FLAGS);
    for program in module.programs {
        hash.update(format!("{} {} {}\n", program.name, program.package, program.test));
    }
    for (from, folder, to) in module.copies {
        hash.update(format!("{from} {folder} {to}\n"));
    }
    Ok(hash.finalize().iter().take(8).fold(String::new(), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    }))
}

fn make(module: &Module, source: &Path, folder: &Path) -> Result<()> {
    let linker_flags = linker_flags(source)?;
    for program in module.programs {
        let start = Instant::now();
        println!("building {} (once; kept in the cache)", program.name);
        let mut build = go(source);
        if program.test {
            build.args(["test", "-c"]);
        } else {
            build.arg("build");
        }
        build.args(["-ldflags", &linker_flags, "-o"]).arg(folder.join(program.name)).arg(program.package);
        exec::exec(&mut build)?;
        println!("built {} in {} s", program.name, start.elapsed().as_secs());
    }
    for (from, below, to) in module.copies {
        let origin = exec::output(go(source).args(["list", "-m", "-f", "{{.Dir}}", from]))?;
        copy_dir(&Path::new(origin.trim()).join(below), &folder.join(to))?;
    }
    Ok(())
}

/// The version that Kubernetes' programs tell, which `kubectl` and clients compare: not stamped by `go build`.
fn linker_flags(source: &Path) -> Result<String> {
    let manifest = fs::read_to_string(source.join("go.mod"))
        .with_context(|| format!("read {}", source.join("go.mod").display()))?;
    let required = manifest
        .lines()
        .find_map(|line| line.trim().trim_start_matches("require ").strip_prefix("k8s.io/kubernetes v"));
    let Some(version) = required.and_then(|rest| rest.split_whitespace().next()) else {
        return Ok("-s -w".to_owned());
    };
    let mut numbers = version.split('.');
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        bail!("k8s.io/kubernetes has no version in {}", source.display());
    };
    let package = "k8s.io/component-base/version";
    Ok(format!(
        "-s -w -X {package}.gitVersion=v{version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor} \
         -X {package}.gitTreeState=clean"
    ))
}

/// Go with our settings and nobody else's; `GOPROXY` and the like stay as the user has them.
fn go(source: &Path) -> Command {
    let mut command = Command::new("go");
    command
        .current_dir(source)
        .env("CGO_ENABLED", "0")
        .env("GOTOOLCHAIN", "local")
        .env("GOWORK", "off")
        .env("GOFLAGS", GO_FLAGS);
    command
}

fn go_version() -> Result<String> {
    if exec::find_program("go").is_none() {
        bail!(
            "the conformance bench builds a Kubernetes control plane from its Go modules: please install Go 1.26 \
             or newer"
        );
    }
    exec::output(Command::new("go").args(["env", "GOVERSION", "GOOS", "GOARCH"]).env("GOTOOLCHAIN", "local"))
}

/// Outside the tree, so that clones share it and `cargo clean` leaves it.
fn cache_dir() -> Result<PathBuf> {
    let named = |name: &str| env::var_os(name).filter(|value: &OsString| !value.is_empty());
    let base = named("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| named("HOME").map(|home| Path::new(&home).join(".cache")))
        .context("neither XDG_CACHE_HOME nor HOME says where a cache may be")?;
    Ok(base.join("gatewayd/conformance"))
}

/// Copies a folder; the files are ours to write and remove, which those of Go's module cache are not.
fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            let content =
                fs::read(entry.path()).with_context(|| format!("read {}", entry.path().display()))?;
            fs::write(&target, content).with_context(|| format!("write {}", target.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{MODULES, key, linker_flags};

    #[test]
    fn the_key_follows_the_pins_the_compiler_and_nothing_else() {
        let dir = std::env::temp_dir().join(format!("gatewayd-xtask-key-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("go.mod"), "module a").unwrap();
        let first = key(&MODULES[0], &dir, "go1.26.8").unwrap();
        assert_eq!(key(&MODULES[0], &dir, "go1.26.8").unwrap(), first);
        assert_ne!(key(&MODULES[0], &dir, "go1.26.9").unwrap(), first);
        fs::write(dir.join("go.sum"), "").unwrap();
        assert_ne!(key(&MODULES[0], &dir, "go1.26.8").unwrap(), first);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn kubernetes_tells_the_version_that_is_pinned() {
        let source = crate::workspace_root().join("tests/conformance/controlplane");
        let flags = linker_flags(&source).unwrap();
        assert!(flags.contains(".gitVersion=v1.") && flags.contains(".gitMajor=1 "), "{flags}");
        assert_eq!(linker_flags(&crate::workspace_root().join("tests/conformance/dns")).unwrap(), "-s -w");
    }
}
