//! Removes what test processes left that were killed before they could clean up.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::netns;

/// Names of a test's namespaces, pins and folders begin with this and the process id of the test.
pub const PREFIX: &str = "gwt-";

/// Where the daemons of tests pin their programs, each in a folder named after its lab.
pub const PINS: &str = "/sys/fs/bpf";

/// Removes namespaces, pins and temporary folders of test processes that are no more, and says what it removed.
///
/// Their daemons and backends died with them; this is for what the kernel keeps.
///
/// # Errors
/// When something cannot be removed.
pub fn dead() -> Result<Vec<String>> {
    let mut removed = Vec::new();
    for name in orphans(Path::new(netns::NAMES)) {
        netns::remove(&name)?;
        removed.push(format!("namespace {name}"));
    }
    for place in [PathBuf::from(PINS), env::temp_dir()] {
        for name in orphans(&place) {
            let dir = place.join(&name);
            fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
            removed.push(format!("folder {}", dir.display()));
        }
    }
    Ok(removed)
}

/// Entries of `dir` with our prefix whose process is gone; none if there is no such folder.
fn orphans(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| is_orphan(name))
        .collect()
}

fn is_orphan(name: &str) -> bool {
    let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
    // A process that has ended and that nobody waited for is still listed, but runs no program.
    owner.is_some_and(|pid| fs::read_link(format!("/proc/{pid}/exe")).is_err())
}

#[cfg(test)]
mod tests {
    use super::is_orphan;

    #[test]
    fn only_names_of_dead_processes_are_orphans() {
        assert!(!is_orphan(&format!("gwt-{}-0-client", std::process::id())));
        // Above the kernel's largest process id.
        assert!(is_orphan("gwt-4194999-0-client"));
        assert!(!is_orphan("gw-client"));
        assert!(!is_orphan("gwt-x-0"));
    }
}
