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

    /// Runs the suite on the stand, prints what came out and compares; with `update`, corrects the list instead.
    ///
    /// # Errors
    /// When the suite did not get as far as its tests, or a result is not the expected one.
    pub async fn judge(&self, stand: &Stand<'_>, options: &SuiteOptions, update: bool) -> Result<()> {
        ensure!(
            !update || stand.options.channel == Channel::Experimental,
            "the list is of runs with the default channel"
        );
        let whole = options.is_whole() && stand.options.channel == Channel::Experimental;
        let logs = stand.options.state.join("logs");
        let (results, report) = suite::run(stand, options).await?;
        let [passed, failed, skipped] =
            [Verdict::Passed, Verdict::Failed, Verdict::Skipped].map(|verdict| results.count(verdict));
        if passed + failed == 0 {
            bail!("the suite ran no test; its last lines:\n{}", last_lines(results.lines("")));
        }
        tell_failures(&results, &logs.join("failed"))?;
        println!("\n{}\nthe report is {}", Report::read(&report)?.table(), report.display());
        println!("everything the suite and gatewayd said is in {}", logs.display());
        println!("{passed} passed, {failed} failed, {skipped} skipped");
        if update {
            return self.write(&corrected(&self.listed, &results, whole));
        }
        let faults = faults(&self.listed, &results, whole);
        ensure!(faults.is_empty(), "not as {} says:\n{}", self.path.display(), faults.join("\n"));
        println!("as {} says", self.path.display());
        Ok(())
    }

    fn write(&self, passing: &BTreeSet<String>) -> Result<()> {
        let names: String = passing.iter().flat_map(|name| [name.as_str(), "\n"]).collect();
        fs::write(&self.path, format!("{HEADER}{names}"))
            .with_context(|| format!("write {}", self.path.display()))
    }
}

const HEADER: &str = "\
# Every test of the official suite that passes. `cargo xtask conformance` fails when one of them does not, or when
# another one does; `cargo xtask conformance --update` corrects this file, with `--run-test NAME` or `--profile P` for
# what ran.
";

/// Lines that are shown of a test that failed.
const LINES_OF_A_FAILURE: usize = 25;

/// Shows the end of what each failed test said, and leaves all of it in a file of its own below `folder`.
fn tell_failures(results: &Results, folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    for (name, _) in results.verdicts.iter().filter(|(_, verdict)| **verdict == Verdict::Failed) {
        let file = folder.join(format!("{name}.log"));
        fs::write(&file, results.lines(name)).with_context(|| format!("write {}", file.display()))?;
        let last = last_lines(results.lines(name));
        println!("\n{name} failed; the end of {}:\n{last}", file.display());
    }
    Ok(())
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES_OF_A_FAILURE)..].join("\n")
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
                faults.push(format!("{name} is listed and was skipped: is its feature still claimed?"));
            }
            Verdict::Passed if !listed.contains(name) => faults.push(format!(
                "{name} passed and is not listed: `cargo xtask conformance --run-test {name} --update` lists it"
            )),
            _ => {}
        }
    }
    let unknown = listed.iter().filter(|name| whole && !results.verdicts.contains_key(*name));
    faults.extend(unknown.map(|name| format!("{name} is listed and did not run")));
    faults
}

/// The list as it should be: what passed, and what a run of a part said nothing about.
fn corrected(listed: &BTreeSet<String>, results: &Results, whole: bool) -> BTreeSet<String> {
    let with = |verdict| results.verdicts.iter().filter(move |(_, found)| **found == verdict);
    let mut corrected = if whole { BTreeSet::new() } else { listed.clone() };
    for (name, _) in with(Verdict::Failed) {
        corrected.remove(name);
    }
    corrected.extend(with(Verdict::Passed).map(|(name, _)| name.clone()));
    corrected
}

#[cfg(test)]
mod tests {
    use super::{HEADER, corrected, faults, listed};
    use crate::cluster::suite::{Results, Verdict};

    fn results(verdicts: &[(&str, Verdict)]) -> Results {
        let verdicts = verdicts.iter().map(|(name, verdict)| ((*name).to_owned(), *verdict)).collect();
        Results { verdicts, ..Results::default() }
    }

    fn run() -> Results {
        results(&[
            ("A", Verdict::Passed),
            ("B", Verdict::Failed),
            ("C", Verdict::Skipped),
            ("E", Verdict::Passed),
            ("F", Verdict::Failed),
        ])
    }

    #[test]
    fn both_directions_are_faults() {
        let list = listed(&format!("{HEADER}A\nB\nC\nD\n"));
        let faults = |whole| faults(&list, &run(), whole);
        for (fault, start) in faults(true).iter().zip([
            "B is listed and failed",
            "C is listed and was skipped",
            "E passed and is not listed",
            "D is listed and did not run",
        ]) {
            assert!(fault.starts_with(start), "{fault}");
        }
        assert_eq!((faults(true).len(), faults(false).len()), (4, 2));
    }

    #[test]
    fn a_part_corrects_what_ran_and_the_whole_all() {
        let list = listed("A\nB\nC\nD\n");
        let corrected = |whole| corrected(&list, &run(), whole).into_iter().collect::<String>();
        assert_eq!((corrected(false).as_str(), corrected(true).as_str()), ("ACDE", "AE"));
    }
}
