//! What the API server has, as far as it was heard.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    net::IpAddr,
};

use kube::core::DynamicObject;
use serde_json::Value;

use super::follow::{Heard, Scope, key};
use crate::api::{Diagnostic, Key, Resources, Severity, served::Served};

/// An object, by kind and name.
pub type Id = (&'static str, Key);

/// What an object says besides its resource: for whoever writes its status.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// Its version in the API server.
    pub resource_version: String,
    /// Counts the changes of the spec.
    pub generation: Option<i64>,
    /// Its status; null if it has none.
    pub status: Value,
}

/// The objects that have a status which is ours to write.
pub type ObservedObjects = BTreeMap<Id, Observed>;

/// What was heard of all kinds.
#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) resources: Resources,
    pub(super) observed: ObservedObjects,
    /// Objects that cannot be read: what is to be said. Such an object stays as it was when it could be.
    faults: BTreeMap<Id, Diagnostic>,
    /// What each object said last, without what nobody reads.
    prints: BTreeMap<Id, u64>,
    /// Of lists that are under way: what was in them so far.
    listing: BTreeMap<ScopeId, BTreeSet<Key>>,
    /// What was heard in whole at least once, or cannot be heard of.
    settled: BTreeSet<ScopeId>,
}

type ScopeId = (&'static str, Option<Key>);

/// What changed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Change {
    /// The resources, or what is to be said about them.
    pub(super) resources: bool,
    /// The versions or statuses of objects.
    pub(super) observed: bool,
}

impl Store {
    /// Takes what was heard.
    pub(super) fn take(&mut self, scope: &Scope, heard: Heard) -> Change {
        let id = (scope.kind.kind, scope.only.clone());
        match heard {
            Heard::Absent => Change { resources: self.settled.insert(id), observed: false },
            // What one may not read, or what does not answer, must not hold up the rest. It is another matter with
            // whole kinds: without them the rest would mean something else.
            Heard::Failed(_) if scope.only.is_some() => {
                Change { resources: self.settled.insert(id), observed: false }
            }
            Heard::Failed(_) => Change::default(),
            Heard::Began => {
                self.listing.insert(id, BTreeSet::new());
                Change::default()
            }
            Heard::Listed(object) => {
                let listed = key(&object);
                let change = self.put(scope.kind, *object);
                self.listing.entry(id).or_default().insert(listed);
                change
            }
            Heard::Complete => {
                let listed = self.listing.remove(&id).unwrap_or_default();
                let mut change = self.drop_others(scope, &listed);
                change.resources |= self.settled.insert(id);
                change
            }
            Heard::Changed(object) => self.put(scope.kind, *object),
            Heard::Gone(key) => self.remove(&(scope.kind.kind, key)),
        }
    }

    /// Whether a scope was heard of in whole, or cannot be.
    pub(super) fn is_settled(&self, kind: &'static str, only: Option<&Key>) -> bool {
        self.settled.contains(&(kind, only.cloned()))
    }

    /// Forgets an object that is not followed any more.
    pub(super) fn forget(&mut self, kind: &'static str, only: &Key) {
        self.settled.remove(&(kind, Some(only.clone())));
        self.listing.remove(&(kind, Some(only.clone())));
        self.remove(&(kind, only.clone()));
    }

    /// What is to be said about objects that cannot be read.
    pub(super) fn faults(&self) -> Vec<Diagnostic> {
        self.faults.values().cloned().collect()
    }

    /// The addresses that the statuses of Gateways have.
    pub(super) fn recorded_addresses(&self) -> BTreeMap<Key, Vec<IpAddr>> {
        let gateways = self.observed.iter().filter(|((kind, _), _)| *kind == "Gateway");
        gateways.map(|((_, key), observed)| (key.clone(), addresses(&observed.status))).collect()
    }

    fn put(&mut self, kind: &'static Served, mut object: DynamicObject) -> Change {
        let id = (kind.kind, key(&object));
        let mut change = Change::default();
        if has_our_status(kind) {
            let status = object.data.get_mut("status").map(Value::take).unwrap_or_default();
            let observed = Observed {
                resource_version: object.metadata.resource_version.clone().unwrap_or_default(),
                generation: object.metadata.generation,
                status,
            };
            let before = self.observed.insert(id.clone(), observed.clone());
            change.observed = before.as_ref() != Some(&observed);
            // Addresses are given by what the statuses record.
            change.resources = kind.kind == "Gateway"
                && before.is_some_and(|before| addresses(&before.status) != addresses(&observed.status));
        }
        let document = document(object);
        let print = print(&document);
        if self.prints.get(&id) == Some(&print) {
            return change;
        }
        self.prints.insert(id.clone(), print);
        change.resources = true;
        match kind.read(document) {
            Ok(resource) => {
                self.faults.remove(&id);
                self.resources.insert(resource);
            }
            Err(error) => {
                let fault = Diagnostic {
                    place: None,
                    object: Some(format!("{} {}", id.0, id.1)),
                    severity: Severity::Error,
                    code: "not-decodable",
                    message: format!("the object cannot be read, so it stays as it was: {error}"),
                };
                self.faults.insert(id, fault);
            }
        }
        change
    }

    fn remove(&mut self, id: &Id) -> Change {
        let known = self.prints.remove(id).is_some();
        self.resources.remove(id.0, &id.1);
        self.faults.remove(id);
        Change { resources: known, observed: self.observed.remove(id).is_some() }
    }

    /// Removes what a complete list does not have.
    fn drop_others(&mut self, scope: &Scope, listed: &BTreeSet<Key>) -> Change {
        let of_scope = |(kind, key): &&Id| {
            *kind == scope.kind.kind && scope.only.as_ref().is_none_or(|only| only == key)
        };
        let gone: Vec<Id> =
            self.prints.keys().filter(of_scope).filter(|(_, key)| !listed.contains(key)).cloned().collect();
        let mut change = Change::default();
        for id in gone {
            let removed = self.remove(&id);
            change.resources |= removed.resources;
            change.observed |= removed.observed;
        }
        change
    }
}

/// Whether gatewayd writes the status of a kind.
fn has_our_status(kind: &Served) -> bool {
    kind.group == crate::api::GATEWAY_GROUP && kind.kind != "ReferenceGrant"
}

/// The addresses in the status of a Gateway.
fn addresses(status: &Value) -> Vec<IpAddr> {
    let listed = status["addresses"].as_array().into_iter().flatten();
    listed.filter_map(|address| address["value"].as_str()?.parse().ok()).collect()
}

/// The object as its kind's type reads it: no status, and of the metadata only what is read.
fn document(object: DynamicObject) -> Value {
    let metadata = object.metadata;
    let mut document = object.data;
    if !document.is_object() {
        document = Value::Object(serde_json::Map::new());
    }
    document["metadata"] = serde_json::json!({
        "name": metadata.name,
        "namespace": metadata.namespace,
        "labels": metadata.labels,
        "generation": metadata.generation,
        "creationTimestamp": metadata.creation_timestamp,
    });
    if let Some(fields) = document.as_object_mut() {
        fields.remove("status");
    }
    document
}

fn print(document: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    // A tree of JSON always prints; its maps are sorted.
    document.to_string().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::served::KINDS;

    fn scope(kind: &str, only: Option<Key>) -> Scope {
        Scope { kind: KINDS.iter().find(|served| served.kind == kind).unwrap(), only }
    }

    fn object(json: Value) -> Box<DynamicObject> {
        Box::new(serde_json::from_value(json).unwrap())
    }

    fn namespace(name: &str, version: &str, labels: &Value) -> Box<DynamicObject> {
        object(serde_json::json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "resourceVersion": version, "labels": labels},
        }))
    }

    fn names(store: &Store) -> Vec<&str> {
        store.resources.namespaces.keys().map(|key| key.name.as_str()).collect()
    }

    #[test]
    fn a_new_list_drops_what_is_gone_and_only_when_it_is_whole() {
        let (mut store, scope) = (Store::default(), scope("Namespace", None));
        store.take(&scope, Heard::Began);
        store.take(&scope, Heard::Listed(namespace("a", "1", &Value::Null)));
        store.take(&scope, Heard::Listed(namespace("b", "2", &Value::Null)));
        assert!(!store.is_settled("Namespace", None));
        assert!(store.take(&scope, Heard::Complete).resources);
        assert!(store.is_settled("Namespace", None));

        store.take(&scope, Heard::Began);
        store.take(&scope, Heard::Listed(namespace("b", "2", &Value::Null)));
        store.take(&scope, Heard::Failed("away".into()));
        assert_eq!(names(&store), ["a", "b"], "an error removes nothing");
        store.take(&scope, Heard::Began);
        store.take(&scope, Heard::Listed(namespace("b", "2", &Value::Null)));
        assert!(store.take(&scope, Heard::Complete).resources);
        assert_eq!(names(&store), ["b"]);
        assert!(store.take(&scope, Heard::Gone(Key::new("", "b"))).resources);
        assert!(names(&store).is_empty());
    }

    #[test]
    fn only_what_is_read_is_a_change() {
        let (mut store, scope) = (Store::default(), scope("Namespace", None));
        assert!(store.take(&scope, Heard::Changed(namespace("a", "1", &Value::Null))).resources);
        assert!(!store.take(&scope, Heard::Changed(namespace("a", "2", &Value::Null))).resources);
        let labelled = namespace("a", "3", &serde_json::json!({"x": "y"}));
        assert!(store.take(&scope, Heard::Changed(labelled)).resources);
    }

    fn gateway(version: &str, class: &Value, status: &Value) -> Box<DynamicObject> {
        object(serde_json::json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "g", "namespace": "n", "resourceVersion": version, "generation": 1},
            "spec": {"gatewayClassName": class, "listeners": []}, "status": status,
        }))
    }

    #[test]
    fn a_status_is_no_change_of_resources_unless_addresses_move() {
        let (mut store, scope) = (Store::default(), scope("Gateway", None));
        let class = Value::from("c");
        let mut take =
            |version, status: Value| store.take(&scope, Heard::Changed(gateway(version, &class, &status)));
        take("1", Value::Null);
        let conditions = serde_json::json!({"conditions": []});
        assert_eq!(take("2", conditions), Change { resources: false, observed: true });
        let addresses = serde_json::json!({"addresses": [{"type": "IPAddress", "value": "198.18.0.1"}]});
        assert_eq!(take("3", addresses), Change { resources: true, observed: true });
        let recorded = store.recorded_addresses();
        assert_eq!(recorded[&Key::new("n", "g")], ["198.18.0.1".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn an_object_that_cannot_be_read_stays_as_it_was() {
        let (mut store, scope) = (Store::default(), scope("Gateway", None));
        store.take(&scope, Heard::Changed(gateway("1", &Value::from("c"), &Value::Null)));
        store.take(&scope, Heard::Changed(gateway("2", &Value::from(7), &Value::Null)));
        assert_eq!(store.resources.gateways[&Key::new("n", "g")].spec.gateway_class_name, "c");
        assert_eq!(store.faults().len(), 1);
        store.take(&scope, Heard::Changed(gateway("3", &Value::from("d"), &Value::Null)));
        assert_eq!(store.resources.gateways[&Key::new("n", "g")].spec.gateway_class_name, "d");
        assert!(store.faults().is_empty());
    }

    #[test]
    fn a_single_object_settles_though_it_cannot_be_read() {
        let (mut store, key) = (Store::default(), Key::new("n", "s"));
        let one = scope("Secret", Some(key.clone()));
        assert!(store.take(&one, Heard::Failed("forbidden".into())).resources);
        assert!(store.is_settled("Secret", Some(&key)));
        let whole = scope("Secret", None);
        store.take(&whole, Heard::Failed("forbidden".into()));
        assert!(!store.is_settled("Secret", None));
    }
}
