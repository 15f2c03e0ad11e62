//! The CRDs of our own kinds say what the schemas here say, field by field, so that an API server takes what a file
//! may hold and nothing else. What neither can say of a field by itself, the cluster's tests compare.

use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

use super::{
    OWN_GROUP,
    format::Format,
    node::{Node, Value},
    schema::{Object, Schema},
    served::{KINDS, Served},
};
use crate::source::yaml;

/// Kinds that the daemons write and no manifest holds: no schema here is theirs.
const WRITTEN: [&str; 1] = ["GatewayNode"];

#[test]
fn each_crd_says_what_its_schema_says() {
    let crds = crds();
    let mut faults = Vec::new();
    let mut known = BTreeSet::new();
    for own in KINDS.iter().filter(|kind| kind.group == OWN_GROUP) {
        known.insert(own.kind.to_owned());
        let Some(crd) = crds.iter().find(|crd| text(crd, "spec.names.kind") == Some(own.kind)) else {
            faults.push(format!("{} has no file in deploy/crds", own.kind));
            continue;
        };
        compare(own, crd, &mut faults);
    }
    let there: BTreeSet<String> =
        crds.iter().filter_map(|crd| text(crd, "spec.names.kind")).map(str::to_owned).collect();
    known.extend(WRITTEN.map(str::to_owned));
    faults.extend(there.difference(&known).map(|kind| format!("{kind} is a CRD of no kind that is read")));
    assert_eq!(faults, Vec::<String>::new());
}

fn crds() -> Vec<Arc<Node>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
    let mut crds = Vec::new();
    for file in fs::read_dir(dir).unwrap() {
        let path = file.unwrap().path();
        let read = yaml::parse(&fs::read_to_string(&path).unwrap());
        assert!(read.faults.is_empty(), "{}: {:?}", path.display(), read.faults);
        crds.extend(read.documents);
    }
    crds
}

fn compare(own: &Served, crd: &Node, faults: &mut Vec<String>) {
    let mut wrong = |what: &str| faults.push(format!("{}: {what}", own.kind));
    if text(crd, "spec.group") != Some(OWN_GROUP) {
        wrong("another group");
    }
    let scope = if own.namespaced { "Namespaced" } else { "Cluster" };
    if text(crd, "spec.scope") != Some(scope) {
        wrong("another scope");
    }
    let versions = list(crd, "spec.versions");
    let names: Vec<&str> = versions.iter().filter_map(|version| text(version, "name")).collect();
    if names != own.versions {
        wrong("other versions");
    }
    for version in versions {
        let Some(root) = at(version, "schema.openAPIV3Schema") else {
            faults.push(format!("{}: a version without a schema", own.kind));
            continue;
        };
        let needs_spec = words(root, "required").contains("spec");
        if needs_spec == own.spec.required.is_empty() {
            faults.push(format!("{}: whether spec is required differs", own.kind));
        }
        match at(root, "properties.spec") {
            Some(spec) => object(own.spec, spec, &format!("{}.spec", own.kind), faults),
            None => faults.push(format!("{}: no spec", own.kind)),
        }
    }
}

fn field(schema: &Schema, crd: &Node, path: &str, faults: &mut Vec<String>) {
    let mut differs = |what: &str, here: String, there: String| {
        if here != there {
            faults.push(format!("{path}: {what} is {here} in the schema, {there} in the CRD"));
        }
    };
    let mut kind = |expected: &str| {
        differs("type", expected.to_owned(), text(crd, "type").unwrap_or("nothing").to_owned());
    };
    match schema {
        Schema::Any => kind("object"),
        Schema::Bool => kind("boolean"),
        Schema::IntOrText => {
            let either = at(crd, "x-kubernetes-int-or-string").map(|node| &node.value);
            differs("int or string", "true".to_owned(), (either == Some(&Value::Bool(true))).to_string());
        }
        Schema::Int(min, max) => {
            kind("integer");
            differs("minimum", min.to_string(), number(crd, "minimum", i64::MIN).to_string());
            differs("maximum", max.to_string(), number(crd, "maximum", i64::MAX).to_string());
        }
        Schema::IntOf(known) => {
            kind("integer");
            let known: BTreeSet<i64> = known.iter().copied().collect();
            let there = list(crd, "enum").iter().filter_map(|item| as_int(item)).collect::<BTreeSet<_>>();
            differs("enum", format!("{known:?}"), format!("{there:?}"));
        }
        Schema::OneOf(known) => {
            kind("string");
            let known: BTreeSet<&str> = known.iter().copied().collect();
            differs("enum", format!("{known:?}"), format!("{:?}", words(crd, "enum")));
        }
        Schema::Text(min, max, format) => {
            kind("string");
            differs("minLength", min.to_string(), count(crd, "minLength", 0).to_string());
            differs("maxLength", max.to_string(), count(crd, "maxLength", usize::MAX).to_string());
            if !matches!(format, Format::Free) {
                let checked = ["pattern", "x-kubernetes-validations", "format"]
                    .iter()
                    .any(|key| at(crd, key).is_some());
                differs("whether a format is asked for", "true".to_owned(), checked.to_string());
            }
        }
        Schema::List(rules) => {
            kind("array");
            differs("minItems", rules.min.to_string(), count(crd, "minItems", 0).to_string());
            differs("maxItems", rules.max.to_string(), count(crd, "maxItems", usize::MAX).to_string());
            let unique: BTreeSet<&str> = rules.unique.iter().copied().collect();
            differs("unique fields", format!("{unique:?}"), format!("{:?}", unique_fields(crd)));
            inside(crd, "items", &rules.of, path, faults);
        }
        Schema::Map(max, of) => {
            kind("object");
            differs("maxProperties", max.to_string(), count(crd, "maxProperties", usize::MAX).to_string());
            inside(crd, "additionalProperties", of, path, faults);
        }
        Schema::Object(fields) => object(fields, crd, path, faults),
    }
}

fn object(schema: &Object, crd: &Node, path: &str, faults: &mut Vec<String>) {
    let required: BTreeSet<&str> = schema.required.iter().map(|(name, _)| *name).collect();
    if required != words(crd, "required") {
        faults.push(format!("{path}: {required:?} are required, in the CRD {:?}", words(crd, "required")));
    }
    let fields = || schema.required.iter().chain(schema.optional);
    let here: BTreeSet<&str> = fields().map(|(name, _)| *name).collect();
    let there = properties(crd);
    if here != there {
        faults.push(format!("{path}: fields are {here:?}, in the CRD {there:?}"));
    }
    for (name, schema) in fields() {
        if let Some(crd) = at(crd, "properties").and_then(|fields| fields.get(name)) {
            field(schema, crd, &format!("{path}.{name}"), faults);
        }
    }
}

fn inside(crd: &Node, key: &str, schema: &Schema, path: &str, faults: &mut Vec<String>) {
    match crd.get(key) {
        Some(crd) => field(schema, crd, &format!("{path}[]"), faults),
        None => faults.push(format!("{path}: the CRD says nothing of its {key}")),
    }
}

/// Fields of which no two items of a list may have all alike: those that are named or, where a rule compares items, all.
///
/// A `set` of objects is no way to say so: server-side apply cannot write one.
fn unique_fields(crd: &Node) -> BTreeSet<&str> {
    match text(crd, "x-kubernetes-list-type") {
        Some("map") => words(crd, "x-kubernetes-list-map-keys"),
        Some("atomic") if rules(crd).any(|rule| rule.contains("exists_one(")) => {
            at(crd, "items").map(properties).unwrap_or_default()
        }
        _ => BTreeSet::new(),
    }
}

fn rules(crd: &Node) -> impl Iterator<Item = &str> {
    list(crd, "x-kubernetes-validations").iter().filter_map(|rule| text(rule, "rule"))
}

fn properties(crd: &Node) -> BTreeSet<&str> {
    match at(crd, "properties").map(|node| &node.value) {
        Some(Value::Map(entries)) => entries.iter().map(|entry| entry.key.as_str()).collect(),
        _ => BTreeSet::new(),
    }
}

fn at<'a>(node: &'a Node, path: &str) -> Option<&'a Node> {
    path.split('.').try_fold(node, |node, key| node.get(key))
}

fn text<'a>(node: &'a Node, path: &str) -> Option<&'a str> {
    at(node, path)?.as_text()
}

fn list<'a>(node: &'a Node, path: &str) -> &'a [Arc<Node>] {
    match at(node, path).map(|node| &node.value) {
        Some(Value::List(items)) => items,
        _ => &[],
    }
}

fn words<'a>(node: &'a Node, path: &str) -> BTreeSet<&'a str> {
    list(node, path).iter().filter_map(|item| item.as_text()).collect()
}

fn as_int(node: &Node) -> Option<i64> {
    match node.value {
        Value::Int(number) => Some(number),
        _ => None,
    }
}

fn number(node: &Node, path: &str, absent: i64) -> i64 {
    at(node, path).and_then(as_int).unwrap_or(absent)
}

fn count(node: &Node, path: &str, absent: usize) -> usize {
    at(node, path).and_then(as_int).map_or(absent, |number| usize::try_from(number).unwrap())
}
