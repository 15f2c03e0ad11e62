//! Whether a run is as `expected.txt` says: every test listed there passes, and no other.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use super::report::Report;
use super::stand::Stand;
use super::suite::{self, Results, SuiteOptions, Verdict};
use crate::cluster::Channel;

/// The list of tests that pass.
#[derive(Debug)]
pub struct Expectation {
    path: PathBuf,
    listed: BTreeSet<String>,
}

impl Expectation {
    /// Reads the list that is kept with the suite's pins.
    ///
    /// # Errors
    /// When there is none.
    pub fn read() -> Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/expected.txt");
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(Self { listed: listed(&text), path })
    }

    /// Runs the suite on the stand, prints what came out and compares; with `update`, writes the list instead.
    ///
    /// # Errors
    /// When the suite did not get as far as its tests, or a result is not the expected one.
    pub async fn judge(&self, stand: &Stand<'_>, options: &SuiteOptions, update: bool) -> Result<()> {
        ensure!(
            !update || is_reference(stand, options),
            "only a whole run with the default channel can be the list"
        );
        let (results, report) = suite::run(stand, options).await?;
        let (passed, failed) = (results.count(Verdict::Passed), results.count(Verdict::Failed));
        if passed + failed == 0 {
            bail!("the suite ran no test; its last lines:\n{}", results.lines(""));
        }
        for (name, _) in results.verdicts.iter().filter(|(_, verdict)| **verdict == Verdict::Failed) {
            println!("\n{name} failed; its last lines:\n{}", results.lines(name));
        }
        println!("\n{}\nthe report is {}", Report::read(&report)?.table(), report.display());
        let faults = faults(&self.listed, &results, is_reference(stand, options));
        let skipped = results.count(Verdict::Skipped);
        println!("{passed} passed, {failed} failed, {skipped} skipped");
        if update {
            return self.write(&results);
        }
        ensure!(faults.is_empty(), "not as {} says:\n{}", self.path.display(), faults.join("\n"));
        Ok(())
    }

    fn write(&self, results: &Results) -> Result<()> {
        let passed = results.verdicts.iter().filter(|(_, verdict)| **verdict == Verdict::Passed);
        let names: String = passed.flat_map(|(name, _)| [name.as_str(), "\n"]).collect();
        fs::write(&self.path, format!("{HEADER}{names}"))
            .with_context(|| format!("write {}", self.path.display()))
    }
}

const HEADER: &str = "\
# Every test of the official suite that passes. `cargo xtask conformance` fails when one of them does not, or when
# another one does; `cargo xtask conformance --update` writes this file.
";

/// The kind of run that the list is of.
fn is_reference(stand: &Stand<'_>, options: &SuiteOptions) -> bool {
    options.is_whole() && stand.options.channel == Channel::Experimental
}

fn listed(text: &str) -> BTreeSet<String> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

/// One line for each result that is not the expected one. Only a `whole` run must have run all that is listed.
fn faults(listed: &BTreeSet<String>, results: &Results, whole: bool) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, verdict) in &results.verdicts {
        match verdict {
            Verdict::Failed if listed.contains(name) => faults.push(format!("{name} is listed and failed")),
            Verdict::Skipped if whole && listed.contains(name) => {
                faults.push(format!("{name} is listed and was skipped"));
            }
            Verdict::Passed if !listed.contains(name) => {
                faults.push(format!("{name} passed and is not listed"));
            }
            _ => {}
        }
    }
    let unknown = listed.iter().filter(|name| whole && !results.verdicts.contains_key(*name));
    faults.extend(unknown.map(|name| format!("{name} is listed and did not run")));
    faults
}

#[cfg(test)]
mod tests {
    use super::{HEADER, faults, listed};
    use crate::cluster::suite::{Results, Verdict};

    fn results(verdicts: &[(&str, Verdict)]) -> Results {
        let verdicts = verdicts.iter().map(|(name, verdict)| ((*name).to_owned(), *verdict)).collect();
        Results { verdicts, ..Results::default() }
    }

    #[test]
    fn both_directions_are_faults() {
        let list = listed(&format!("{HEADER}A\nB\nC\nD\n"));
        let ran = results(&[
            ("A", Verdict::Passed),
            ("B", Verdict::Failed),
            ("C", Verdict::Skipped),
            ("E", Verdict::Passed),
            ("F", Verdict::Failed),
        ]);
        assert_eq!(
            faults(&list, &ran, true),
            [
                "B is listed and failed",
                "C is listed and was skipped",
                "E passed and is not listed",
                "D is listed and did not run"
            ]
        );
        assert_eq!(faults(&list, &ran, false).len(), 2);
    }
}
