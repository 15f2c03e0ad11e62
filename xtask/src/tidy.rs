//! The house rules that no lint of the compiler knows: who may name what, how long, how manifests inherit, and that
//! the documents name things that exist.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::CommandFactory as _;

use crate::Cli;

/// Packages of the workspace, each a folder of its name.
const PACKAGES: [&str; 5] = ["gateway-common", "gateway-ebpf", "gateway-daemon", "xtask", "tests"];

/// Documents whose paths and tasks must exist.
const DOCUMENTS: [&str; 2] = ["README.md", "ARCHITECTURE.md"];

/// No function of the packet path may be longer.
const LONGEST_KERNEL_FUNCTION: usize = 60;

/// Modules that are pure: the same input gives the same output, whatever runs around them.
const PURE: [&str; 3] = ["gateway-daemon/src/compile", "gateway-daemon/src/model", "gateway-daemon/src/plan"];

/// What a pure module does not know: runtimes, the kernel, Kubernetes, sockets and clocks.
const IMPURE: [&str; 8] = [
    "tokio::",
    "aya::",
    "kube::",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "Instant::now",
    "SystemTime::now",
];

/// One text file of the repository.
struct Source {
    /// Relative to the repository.
    path: String,
    text: String,
}

pub(crate) fn run(root: &Path) -> Result<()> {
    let mut rust = Vec::new();
    for package in PACKAGES {
        read_sources(root, &root.join(package), &mut rust)?;
    }
    let mut faults = Vec::new();
    for source in &rust {
        faults.extend(who_names_what(source));
        faults.extend(waived_lints(source));
        if source.path.starts_with("gateway-ebpf/") {
            faults.extend(long_functions(source));
        }
    }
    for package in PACKAGES {
        faults.extend(manifest(&read(root, &format!("{package}/Cargo.toml"))?));
    }
    for document in DOCUMENTS {
        faults.extend(named_things(&read(root, document)?, root));
    }
    faults.extend(map_of_the_daemon(&read(root, "ARCHITECTURE.md")?, root)?);
    if faults.is_empty() {
        return Ok(());
    }
    for fault in &faults {
        eprintln!("{fault}");
    }
    bail!("{} faults against the house rules", faults.len())
}

/// Only the daemon's `l4` and the tests name aya (the contract implements one trait of it); pure modules stay pure.
fn who_names_what(source: &Source) -> Vec<String> {
    let pure = PURE.iter().any(|dir| source.path.starts_with(dir));
    let may_name_aya = [
        "gateway-daemon/src/l4",
        "gateway-daemon/tests/",
        "tests/",
        "gateway-common/src/layout.rs",
        "xtask/",
    ]
    .iter()
    .any(|dir| source.path.starts_with(dir));
    let mut faults = Vec::new();
    for (number, line) in code_lines(&source.text) {
        if !may_name_aya && contains_path(line, "aya::") {
            faults.push(format!("{}:{number}: only gateway-daemon/src/l4 may name aya", source.path));
        }
        let named = IMPURE.iter().find(|name| pure && contains_path(line, name));
        faults.extend(named.map(|name| format!("{}:{number}: a pure module names {name}", source.path)));
    }
    faults
}

/// `expect` with a reason instead: it says when it is no longer needed.
fn waived_lints(source: &Source) -> Vec<String> {
    // Written in two parts so that this file keeps its own rule.
    let attribute = concat!("[al", "low(");
    code_lines(&source.text)
        .filter(|(_, line)| line.contains(attribute))
        .map(|(number, _)| format!("{}:{number}: use #[expect(lint, reason = \"...\")]", source.path))
        .collect()
}

/// A function ends at the brace that stands under its first line; rustfmt sees to that.
fn long_functions(source: &Source) -> Vec<String> {
    let lines: Vec<&str> = source.text.lines().collect();
    let mut faults = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let is_function =
            line.trim_start().split([' ', '(']).take_while(|word| *word != "//").any(|word| word == "fn");
        if !is_function || line.trim_start().starts_with("//") || line.trim_end().ends_with(['}', ';']) {
            continue;
        }
        // A trait's declaration has no body, however many lines its signature takes.
        let signature_end = lines[start..].iter().find(|line| line.ends_with('{') || line.ends_with(';'));
        if signature_end.is_some_and(|line| line.ends_with(';')) {
            continue;
        }
        let end = format!("{}}}", " ".repeat(indent));
        let length = lines[start..].iter().position(|line| *line == end).map_or(0, |last| last + 1);
        if length > LONGEST_KERNEL_FUNCTION {
            let place = format!("{}:{}", source.path, start + 1);
            faults.push(format!("{place}: a function of {length} lines; {LONGEST_KERNEL_FUNCTION} at most"));
        }
    }
    faults
}

/// Lints and versions come from the workspace.
fn manifest(source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    if !source.text.contains("[lints]\nworkspace = true") {
        faults.push(format!("{}: does not inherit the workspace's lints", source.path));
    }
    let mut section = "";
    for (number, line) in source.text.lines().enumerate() {
        if line.starts_with('[') {
            section = line;
        }
        let dependency = section.ends_with("dependencies]") && line.contains('=') && !line.starts_with('#');
        let version = section == "[package]" && line.starts_with("version");
        if (dependency || version) && !line.contains("workspace = true") {
            faults.push(format!("{}:{}: not inherited from the workspace", source.path, number + 1));
        }
    }
    faults
}

/// Paths in backticks that begin with one of our folders, and `cargo xtask` tasks.
fn named_things(source: &Source, root: &Path) -> Vec<String> {
    let cli = Cli::command();
    let tasks: Vec<&str> = cli.get_subcommands().map(clap::Command::get_name).collect();
    let mut faults = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        let place = format!("{}:{}", source.path, number + 1);
        for path in line.split('`').skip(1).step_by(2).filter(|quoted| names_a_path(quoted)) {
            if !root.join(path).exists() {
                faults.push(format!("{place}: {path} does not exist"));
            }
        }
        for after in line.split("cargo xtask ").skip(1) {
            let task: String = after.chars().take_while(char::is_ascii_lowercase).collect();
            if !after.starts_with('-') && !tasks.contains(&task.as_str()) {
                faults.push(format!("{place}: there is no task {task:?}"));
            }
        }
    }
    faults
}

fn names_a_path(quoted: &str) -> bool {
    let plain = quoted.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    let ours = PACKAGES.iter().chain(&["examples", "docs", ".ci"]);
    plain && ours.into_iter().any(|dir| quoted.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/')))
}

/// Every module of the daemon stands in the map.
fn map_of_the_daemon(map: &Source, root: &Path) -> Result<Vec<String>> {
    let modules = "gateway-daemon/src";
    let mut faults = Vec::new();
    for entry in fs::read_dir(root.join(modules)).with_context(|| format!("read {modules}"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() && !map.text.contains(&format!("{name}/")) {
            faults.push(format!("{}: its map lacks {modules}/{name}/", map.path));
        }
    }
    Ok(faults)
}

/// Lines that are not only a comment, numbered from 1.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Whether `line` holds `path` as a whole first segment: `aya::` but not `libaya::`.
fn contains_path(line: &str, path: &str) -> bool {
    line.match_indices(path)
        .any(|(at, _)| !line[..at].ends_with(|before: char| before.is_ascii_alphanumeric() || before == '_'))
}

fn read(root: &Path, path: &str) -> Result<Source> {
    let text = fs::read_to_string(root.join(path)).with_context(|| format!("read {path}"))?;
    Ok(Source { path: path.to_owned(), text })
}

fn read_sources(root: &Path, dir: &Path, sources: &mut Vec<Source>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("read {}", dir.display()))? {
        let path: PathBuf = entry?.path();
        if path.is_dir() {
            read_sources(root, &path, sources)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let relative = path.strip_prefix(root).unwrap_or(&path);
            sources.push(read(root, &relative.to_string_lossy())?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Source, contains_path, long_functions, manifest, named_things, who_names_what};

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn aya_is_named_in_one_module() {
        let text = "use aya::Ebpf;\n";
        assert_eq!(who_names_what(&source("gateway-daemon/src/l7/mod.rs", text)).len(), 1);
        assert_eq!(who_names_what(&source("gateway-daemon/src/l4/load.rs", text)).len(), 0);
        assert!(!contains_path("use libaya::Ebpf", "aya::"));
    }

    #[test]
    fn pure_modules_know_no_runtime() {
        let text = "// tokio:: in a comment\nuse tokio::net;\n";
        assert_eq!(who_names_what(&source("gateway-daemon/src/plan/mod.rs", text)).len(), 1);
    }

    #[test]
    fn a_long_function_is_found_and_a_short_one_is_not() {
        let body = "    x();\n".repeat(59);
        let long = source("gateway-ebpf/src/nat.rs", &format!("pub(crate) fn f() {{\n{body}}}\n"));
        let short = source("gateway-ebpf/src/nat.rs", &format!("fn f() {{\n{}}}\n", &body[9..]));
        assert_eq!(long_functions(&long).len(), 1);
        assert_eq!(long_functions(&short).len(), 0);
        let between = "    // between\n".repeat(60);
        let declared =
            format!("trait T {{\n    fn f(\n        x: u8,\n    );\n{between}    fn g() {{\n    }}\n}}\n");
        assert_eq!(long_functions(&source("gateway-ebpf/src/family.rs", &declared)).len(), 0);
    }

    #[test]
    fn a_manifest_inherits_lints_and_versions() {
        let good = "[package]\nversion.workspace = true\n[dependencies]\na.workspace = true\n[lints]\nworkspace = true\n";
        assert_eq!(manifest(&source("tests/Cargo.toml", good)).len(), 0);
        let bad = "[package]\nversion = \"1\"\n[dependencies]\na = \"1\"\n";
        assert_eq!(manifest(&source("tests/Cargo.toml", bad)).len(), 3);
    }

    #[test]
    fn documents_name_what_exists() {
        let root = crate::workspace_root();
        let good = source("README.md", "`cargo xtask run` uses `xtask/src/main.rs`");
        assert_eq!(named_things(&good, &root), Vec::<String>::new());
        let bad = source("README.md", "`cargo xtask fly` uses `xtask/src/fly.rs`");
        assert_eq!(named_things(&bad, &root).len(), 2);
    }
}
