//! `gatewayd migrate`.

use std::{path::PathBuf, process::ExitCode};

use similar::TextDiff;

use super::EXIT_CONFIG;
use crate::{api::Severity, migrate::migrate};

/// Prints what would change, or changes it; what is to be said goes to standard error, so that the diff is a patch.
pub(super) fn run(paths: &[PathBuf], write: bool) -> ExitCode {
    let migration = migrate(paths);
    for diagnostic in &migration.diagnostics {
        eprintln!("{diagnostic}");
    }
    let mut failed = false;
    for file in &migration.changed {
        let name = file.path.display().to_string();
        if !write {
            let diff = TextDiff::from_lines(&file.before, &file.after);
            print!("{}", diff.unified_diff().header(&name, &name));
        } else if let Err(error) = file.write() {
            eprintln!("{name}: not-written: {error}");
            failed = true;
        } else {
            println!("{name}: rewritten");
        }
    }
    if failed {
        ExitCode::FAILURE
    } else if migration.diagnostics.iter().any(|said| said.severity == Severity::Error) {
        ExitCode::from(EXIT_CONFIG)
    } else {
        ExitCode::SUCCESS
    }
}
