//! What the configuration asks for, read from its files and not from the daemon: the table compares the two.

use std::collections::HashMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize as _;
use serde_json::Value;

/// How to reach a rule.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Tcp,
    Udp,
    Http,
    Grpc,
}

/// One rule of a route on one address of its listener.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub kind: Kind,
    /// `GATEWAY/LISTENER`.
    pub listener: String,
    pub address: IpAddr,
    pub port: u16,
    /// The route's first hostname.
    pub hostname: String,
    /// A path that the rule matches and those before it do not.
    pub path: String,
    /// Backends with their weights, as written.
    pub weights: Vec<(String, u64)>,
}

/// Reads the routes below `config`, with the listeners that they name.
///
/// # Errors
/// When a file cannot be read, or a route names a listener that is not there.
pub(crate) fn read(config: &Path) -> Result<Vec<Asked>> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(config)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let mut documents = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file)?;
        for document in serde_yaml::Deserializer::from_str(&text) {
            let document =
                Value::deserialize(document).with_context(|| format!("read {}", file.display()))?;
            documents.push(document);
        }
    }
    let gateways: HashMap<&str, &Value> =
        of_kind(&documents, "Gateway").map(|one| (name(one), one)).collect();
    let kinds = [
        ("TCPRoute", Kind::Tcp),
        ("UDPRoute", Kind::Udp),
        ("HTTPRoute", Kind::Http),
        ("GRPCRoute", Kind::Grpc),
    ];
    let mut asked = Vec::new();
    for (kind_name, kind) in kinds {
        for route in of_kind(&documents, kind_name) {
            for parent in list(&route["spec"]["parentRefs"]) {
                let gateway = gateways
                    .get(name_of(parent))
                    .with_context(|| format!("no Gateway for {}", name(route)))?;
                asked.extend(on_listener(kind, route, gateway, text(&parent["sectionName"]))?);
            }
        }
    }
    if asked.is_empty() {
        bail!("{} holds no route", config.display());
    }
    Ok(asked)
}

fn on_listener(kind: Kind, route: &Value, gateway: &Value, section: &str) -> Result<Vec<Asked>> {
    let listener = list(&gateway["spec"]["listeners"]).find(|listener| name_of(listener) == section);
    let listener = listener.with_context(|| format!("{} has no listener {section:?}", name(gateway)))?;
    let port =
        listener["port"].as_u64().and_then(|port| u16::try_from(port).ok()).context("a listener's port")?;
    let mut asked = Vec::new();
    for rule in list(&route["spec"]["rules"]) {
        let matched = &rule["matches"][0]["path"]["value"];
        let backends = list(&rule["backendRefs"]);
        let weights: Vec<(String, u64)> =
            backends.map(|to| (name_of(to).to_owned(), to["weight"].as_u64().unwrap_or(1))).collect();
        for address in list(&gateway["spec"]["addresses"]) {
            asked.push(Asked {
                kind,
                listener: format!("{}/{section}", name(gateway)),
                address: text(&address["value"]).parse().context("a Gateway's address")?,
                port,
                hostname: text(&route["spec"]["hostnames"][0]).to_owned(),
                path: matched.as_str().unwrap_or("/").to_owned(),
                weights: weights.clone(),
            });
        }
    }
    Ok(asked)
}

fn of_kind<'a>(documents: &'a [Value], kind: &'static str) -> impl Iterator<Item = &'a Value> {
    documents.iter().filter(move |document| document["kind"] == kind)
}

fn name(object: &Value) -> &str {
    name_of(&object["metadata"])
}

fn name_of(reference: &Value) -> &str {
    text(&reference["name"])
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
