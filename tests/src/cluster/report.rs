//! The suite's report, as a table by profile.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;

/// What is read of the report: `ConformanceReport` of the suite's `apis/v1`.
#[derive(Debug, Deserialize)]
pub(super) struct Report {
    #[serde(rename = "gatewayAPIVersion")]
    version: String,
    #[serde(rename = "gatewayAPIChannel")]
    channel: String,
    #[serde(default)]
    profiles: Option<Vec<Profile>>,
}

#[derive(Debug, Deserialize)]
struct Profile {
    name: String,
    core: Level,
    extended: Option<Level>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Level {
    statistics: Statistics,
    #[serde(default)]
    supported_features: Vec<String>,
    #[serde(default)]
    unsupported_features: Vec<String>,
}

/// Its keys are capitalised, unlike all others.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Statistics {
    passed: u32,
    failed: u32,
    skipped: u32,
}

impl Report {
    /// Reads the file that the suite wrote.
    ///
    /// # Errors
    /// When there is none or it is not what we know.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("read {}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        Ok(serde_yaml::from_str(text)?)
    }

    /// One row a profile. A test counts in every profile that it belongs to.
    pub(super) fn table(&self) -> String {
        let mut table = format!("Gateway API {}, {} channel\n", self.version, self.channel);
        table += &row("profile", "core", "extended", "features claimed");
        table += &row("", "passed failed skipped", "passed failed skipped", "of those extended");
        for profile in self.profiles.iter().flatten() {
            let extended = profile.extended.as_ref();
            let claimed = extended.map_or_else(String::new, |level| {
                let claimed = level.supported_features.len();
                format!("{claimed} of {}", claimed + level.unsupported_features.len())
            });
            let level = extended.map_or_else(String::new, Level::counts);
            table += &row(&profile.name, &profile.core.counts(), &level, &claimed);
        }
        table
    }
}

impl Level {
    fn counts(&self) -> String {
        let Statistics { passed, failed, skipped } = self.statistics;
        format!("{passed:>6} {failed:>6} {skipped:>7}")
    }
}

fn row(profile: &str, core: &str, extended: &str, features: &str) -> String {
    let line = format!("{profile:<14} {core:<23} {extended:<23} {features}");
    format!("{}\n", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::Report;

    const TEXT: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: ConformanceReport
gatewayAPIVersion: v1.6.3
gatewayAPIChannel: experimental
profiles:
- name: GATEWAY-TCP
  summary: Core tests failed with 1 test failures.
  core:
    result: failure
    statistics: {Failed: 1, Passed: 18, Skipped: 0}
    failedTests: [TCPRouteWeightedRouting]
  extended:
    result: success
    statistics: {Failed: 0, Passed: 4, Skipped: 0}
    supportedFeatures: [GatewayPort8080, ListenerSet]
    unsupportedFeatures: [GatewayAddressEmpty]
";

    #[test]
    fn a_profile_is_a_row() {
        let table = Report::parse(TEXT).unwrap().table();
        let last = table.lines().last().unwrap();
        let words: Vec<&str> = last.split_whitespace().collect();
        assert_eq!(words, ["GATEWAY-TCP", "18", "1", "0", "4", "0", "0", "2", "of", "3"]);
    }

    #[test]
    fn a_run_without_tests_has_a_report_too() {
        let text = "{gatewayAPIVersion: v1.6.3, gatewayAPIChannel: standard, profiles: null}";
        assert_eq!(Report::parse(text).unwrap().table().lines().count(), 3);
    }
}
