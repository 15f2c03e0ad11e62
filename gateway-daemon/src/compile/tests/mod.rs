//! What manifests come to, written as manifests.

mod attachment;
mod backends;
mod certificates;
mod combined;
mod gateways;
mod order;
mod rules;
mod tls;
mod validation;

use std::{net::IpAddr, sync::Arc};

use super::{Compiled, Settings, compile, status::Condition};
use crate::{
    api::{Key, Resource, Resources, Severity},
    model::l7::{Listener, Rule},
    source::files::parse,
};

/// The objects of a text without faults.
fn objects(text: &str) -> Vec<Resource> {
    let (objects, said) = parse(&Arc::from("f.yaml"), text.as_bytes());
    let faults: Vec<String> = said.iter().map(ToString::to_string).collect();
    assert!(faults.is_empty(), "{}\n{text}", faults.join("\n"));
    objects
}

fn resources(text: &str) -> Resources {
    let mut resources = Resources::default();
    for object in objects(text) {
        resources.insert(object);
    }
    resources
}

/// A node with an address of each family.
fn node() -> Settings {
    Settings {
        node_addresses: vec!["198.18.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
        implicit_class: true,
        ..Settings::default()
    }
}

/// A node with one IPv4 address.
fn node4() -> Settings {
    Settings { node_addresses: vec![IpAddr::from([198, 18, 0, 1])], ..node() }
}

fn compiled(text: &str) -> Compiled {
    compile(&resources(text), &node4())
}

/// `SEVERITY LINE:COLUMN CODE` of everything said.
fn said(compiled: &Compiled) -> Vec<String> {
    let line = |said: &crate::api::Diagnostic| {
        let place = said.place.as_ref().unwrap();
        let severity = match said.severity {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        format!("{severity} {}:{} {}", place.line, place.column, said.code)
    };
    compiled.diagnostics.iter().map(line).collect()
}

/// `TYPE=STATUS REASON` of conditions.
fn summary(conditions: &[Condition]) -> Vec<String> {
    let line = |condition: &Condition| {
        let status = if condition.status { "True" } else { "False" };
        format!("{}={status} {}", condition.condition_type, condition.reason)
    };
    conditions.iter().map(line).collect()
}

/// Conditions of a Gateway in the default namespace.
fn gateway(compiled: &Compiled, name: &str) -> Vec<String> {
    summary(&compiled.statuses.gateways[&Key::new("default", name)].conditions)
}

/// Conditions of a listener, and how many routes it has.
fn listener(compiled: &Compiled, gateway: &str, index: usize) -> (Vec<String>, usize) {
    let listener = &compiled.statuses.gateways[&Key::new("default", gateway)].listeners[index];
    (summary(&listener.conditions), listener.attached_routes)
}

/// Conditions of a route towards its first parent.
fn route(compiled: &Compiled, kind: &'static str, name: &str) -> Vec<String> {
    summary(&compiled.statuses.routes[&(kind, Key::new("default", name))][0].conditions)
}

/// The proxy's listeners, of all sockets.
fn proxy(compiled: &Compiled) -> Vec<&Listener> {
    compiled.model.l7.binds.values().flat_map(|bind| &bind.listeners).collect()
}

/// The only rule there is.
fn only_rule(compiled: &Compiled) -> &Rule {
    let listeners = proxy(compiled);
    let rules: Vec<&Rule> = listeners.iter().flat_map(|listener| &listener.rules).collect();
    assert_eq!(rules.len(), 1, "{:?}", compiled.diagnostics);
    rules[0]
}

/// An object of the Gateway API: its kind, its name with or without a namespace, its spec in flow style.
fn object(kind: &str, name: &str, spec: &str) -> String {
    let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
    let group = if kind == "Backend" { "gatewayd.dev/v1alpha1" } else { "gateway.networking.k8s.io/v1" };
    format!(
        "apiVersion: {group}\nkind: {kind}\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {spec}\n---\n"
    )
}

/// A Gateway with these listeners, each in flow style.
fn gateway_of(name: &str, listeners: &[&str]) -> String {
    object("Gateway", name, &format!("{{gatewayClassName: gatewayd, listeners: [{}]}}", listeners.join(", ")))
}

/// A Backend with these endpoints, `ADDRESS PORT` each.
fn backend(name: &str, endpoints: &[(&str, u16)]) -> String {
    let endpoints: Vec<String> =
        endpoints.iter().map(|(address, port)| format!("{{address: \"{address}\", port: {port}}}")).collect();
    object("Backend", name, &format!("{{endpoints: [{}]}}", endpoints.join(", ")))
}

/// A reference to a Backend.
fn to(name: &str, weight: u32) -> String {
    format!("{{group: gatewayd.dev, kind: Backend, name: {name}, weight: {weight}}}")
}

/// A route to the Gateway `g`, with these fields after its parentRefs.
fn route_of(kind: &str, name: &str, fields: &str) -> String {
    object(kind, name, &format!("{{parentRefs: [{{name: g, namespace: default}}], {fields}}}"))
}
