//! What `gatewayd status -o json` says, read in one place.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context as _, Result};
use serde_json::Value;

/// The daemon's report. Fields that are not there read as nothing: tests ask for what they need.
#[derive(Clone, Debug)]
pub struct Status(pub Value);

/// A backend of a service in the kernel.
#[derive(Clone, Debug)]
pub struct BackendStatus {
    /// Its address.
    pub address: IpAddr,
    /// Share of flows asked for, 0 to 1.
    pub asked: f64,
    /// Flows that began.
    pub flows: u64,
}

impl Status {
    /// Reads the report.
    ///
    /// # Errors
    /// When it is not JSON.
    pub fn read(json: &str) -> Result<Self> {
        serde_json::from_str(json).map(Self).with_context(|| format!("read the daemon's report {json:?}"))
    }

    /// Number of the model that is served; 0 before the first one.
    pub fn generation(&self) -> u64 {
        self.0["generation"].as_u64().unwrap_or(0)
    }

    /// Faults of the newest change, if it was not taken, as `file:line:column: code: message`.
    pub fn rejected(&self) -> Option<Vec<String>> {
        let faults = self.0["lastRejected"]["faults"].as_array()?;
        Some(faults.iter().map(fault).collect())
    }

    /// What is not in force or not well, in whatever list: empty when all is.
    pub fn complaints(&self) -> Vec<String> {
        let failures = list(&self.0["applyFailures"])
            .map(|one| format!("{}: {}", text(&one["what"]), text(&one["error"])));
        let binds =
            list(&self.0["binds"]).map(|one| format!("{}: {}", text(&one["address"]), text(&one["error"])));
        failures.chain(binds).chain(self.rejected().into_iter().flatten()).collect()
    }

    /// Backends of the kernel's service at `address`, `port` and `protocol` (`tcp`, `udp`).
    pub fn backends(&self, address: IpAddr, port: u16, protocol: &str) -> Vec<BackendStatus> {
        let address = address.to_string();
        let service = list(&self.0["services"]).find(|service| {
            text(&service["address"]) == address
                && service["port"].as_u64() == Some(port.into())
                && text(&service["protocol"]) == protocol
        });
        let backends = service.map(|service| list(&service["backends"])).into_iter().flatten();
        backends
            .filter_map(|backend| {
                Some(BackendStatus {
                    address: text(&backend["address"]).parse().ok()?,
                    asked: backend["askedShare"].as_f64().unwrap_or(0.0),
                    flows: backend["flows"].as_u64().unwrap_or(0),
                })
            })
            .collect()
    }

    /// Services of the kernel whose listener is gone.
    pub fn draining(&self) -> usize {
        list(&self.0["services"]).filter(|service| service["draining"].as_bool() == Some(true)).count()
    }

    /// Services of the proxy, and how many requests each has been given.
    pub fn http_services(&self) -> BTreeMap<String, u64> {
        list(&self.0["httpServices"])
            .map(|service| (text(&service["name"]), service["requests"].as_u64().unwrap_or(0)))
            .collect()
    }

    /// Packets that left `entry` (`xdp`, `tc`) as `outcome`.
    pub fn packets(&self, entry: &str, outcome: &str) -> u64 {
        self.0["counters"][entry][outcome].as_u64().unwrap_or(0)
    }

    /// Each device with its mode and why.
    pub fn devices(&self) -> Vec<(String, String, String)> {
        let devices = list(&self.0["devices"]);
        devices.map(|one| (text(&one["name"]), text(&one["mode"]), text(&one["why"]))).collect()
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn fault(value: &Value) -> String {
    let place = format!("{}:{}:{}", text(&value["file"]), value["line"], value["column"]);
    format!("{place}: {}: {}", text(&value["code"]), text(&value["message"]))
}

#[cfg(test)]
mod tests {
    use super::Status;

    #[test]
    fn faults_and_backends_are_read() {
        let json = r#"{"generation": 3, "lastRejected": {"at": "", "faults": [{"file": "a.yaml", "line": 4, "column": 7,
            "code": "out-of-range", "message": "no"}]}, "services": [{"address": "198.18.0.1", "port": 9000,
            "protocol": "tcp", "backends": [{"address": "198.19.1.2", "port": 7000, "askedShare": 0.8, "flows": 9}]}],
            "counters": {"xdp": {"forwarded": 5}}}"#;
        let status = Status::read(json).expect("JSON");
        assert_eq!(status.rejected(), Some(vec!["a.yaml:4:7: out-of-range: no".to_owned()]));
        let address = "198.18.0.1".parse().expect("an address");
        assert_eq!(status.backends(address, 9000, "tcp").iter().map(|one| one.flows).sum::<u64>(), 9);
        assert!(status.backends(address, 9000, "udp").is_empty());
        assert_eq!((status.packets("xdp", "forwarded"), status.packets("tc", "forwarded")), (5, 0));
    }
}
