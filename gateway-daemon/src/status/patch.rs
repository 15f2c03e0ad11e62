//! What a status should be, given what it is and what compilation says.
//!
//! Pure. What others have written stays: conditions of other types, and a route's entries of other controllers.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{
    api::route::ParentRef,
    compile::{
        CONTROLLER_NAME,
        status::{Condition, GatewayStatus, ParentStatus},
    },
};

/// Types of the conditions that are ours; others are left alone.
const GATEWAY_CONDITIONS: [&str; 4] =
    ["Accepted", "InsecureFrontendValidationMode", "Programmed", "ResolvedRefs"];
const LISTENER_CONDITIONS: [&str; 5] =
    ["Accepted", "Conflicted", "OverlappingTLSConfig", "Programmed", "ResolvedRefs"];
const CLASS_CONDITIONS: [&str; 2] = ["Accepted", "SupportedVersion"];
const ROUTE_CONDITIONS: [&str; 3] = ["Accepted", "PartiallyInvalid", "ResolvedRefs"];

/// The API server takes no longer message.
const MESSAGE_MAX: usize = 32_768;

/// The fields of a GatewayClass's status that are to be written; nothing when they are so already. `now` is the time
/// for conditions that change their status (RFC 3339).
pub(super) fn class(status: &Value, ours: &[Condition], features: &[&str], now: &str) -> Option<Value> {
    let features: Vec<Value> = features.iter().map(|name| json!({"name": name})).collect();
    let wanted = json!({
        "conditions": conditions(&status["conditions"], ours, &CLASS_CONDITIONS, now),
        "supportedFeatures": features,
    });
    unless_same(status, wanted)
}

/// As [`class`], for a Gateway. With `held`, the data plane could not be brought to what was compiled: what is
/// programmed is then what was before.
pub(super) fn gateway(status: &Value, ours: &GatewayStatus, held: Option<&str>, now: &str) -> Option<Value> {
    let addresses: Vec<Value> = ours
        .addresses
        .iter()
        .map(|address| json!({"type": "IPAddress", "value": address.to_string()}))
        .collect();
    let listed = |name: &str| items(&status["listeners"]).iter().find(|listener| listener["name"] == name);
    let listeners: Vec<Value> = ours
        .listeners
        .iter()
        .map(|listener| {
            let before = listed(&listener.name).map_or(&Value::Null, |listener| &listener["conditions"]);
            let kinds: Vec<Value> = listener
                .supported_kinds
                .iter()
                .map(|kind| json!({"group": kind.group, "kind": kind.kind}))
                .collect();
            let said = hold(before, &listener.conditions, held);
            json!({
                "name": listener.name,
                "supportedKinds": kinds,
                "attachedRoutes": listener.attached_routes,
                "conditions": conditions(before, &said, &LISTENER_CONDITIONS, now),
            })
        })
        .collect();
    let said = hold(&status["conditions"], &ours.conditions, held);
    let wanted = json!({
        "addresses": addresses,
        "conditions": conditions(&status["conditions"], &said, &GATEWAY_CONDITIONS, now),
        "listeners": listeners,
    });
    unless_same(status, wanted)
}

/// As [`class`], for a route of any kind: all entries of ours are the given ones.
pub(super) fn route(status: &Value, ours: &[ParentStatus], now: &str) -> Option<Value> {
    let before = items(&status["parents"]);
    let is_ours = |entry: &&Value| entry["controllerName"] == CONTROLLER_NAME;
    let mut parents: Vec<Value> = before.iter().filter(|entry| !is_ours(entry)).cloned().collect();
    for parent in ours {
        let same = |entry: &&Value| {
            serde_json::from_value::<ParentRef>(entry["parentRef"].clone())
                .is_ok_and(|of| of == parent.parent)
        };
        let entry = before.iter().filter(is_ours).find(same);
        let said = entry.map_or(&Value::Null, |entry| &entry["conditions"]);
        parents.push(json!({
            "parentRef": parent_ref(&parent.parent),
            "controllerName": CONTROLLER_NAME,
            "conditions": conditions(said, &parent.conditions, &ROUTE_CONDITIONS, now),
        }));
    }
    // Others may have put their entries between ours.
    let sorted = |entries: &[Value]| entries.iter().map(Value::to_string).collect::<BTreeSet<String>>();
    if before.len() == parents.len() && sorted(before) == sorted(&parents) {
        return None;
    }
    Some(json!({"parents": parents}))
}

/// The part of `wanted` to write, if it differs from what is there.
fn unless_same(status: &Value, wanted: Value) -> Option<Value> {
    let same = |(field, value): (&String, &Value)| {
        // An empty list and none are the same.
        status[field.as_str()] == *value || (status[field.as_str()].is_null() && *value == json!([]))
    };
    (!wanted.as_object().into_iter().flatten().all(same)).then_some(wanted)
}

/// Conditions with ours brought in: those of other types stay, those of `own` types that are not given go.
fn conditions(before: &Value, ours: &[Condition], own: &[&str], now: &str) -> Vec<Value> {
    let mut merged = Vec::new();
    let mut left: Vec<&Condition> = ours.iter().collect();
    for old in items(before) {
        let of_type = |condition: &&Condition| old["type"] == condition.condition_type;
        if let Some(index) = left.iter().position(of_type) {
            merged.push(condition(left.remove(index), Some(old), now));
        } else if !own.iter().any(|own| old["type"] == *own) {
            merged.push(old.clone());
        }
    }
    merged.extend(left.into_iter().map(|ours| condition(ours, None, now)));
    merged
}

fn condition(ours: &Condition, before: Option<&Value>, now: &str) -> Value {
    let status = if ours.status { "True" } else { "False" };
    let since = before
        .filter(|before| before["status"] == status)
        .and_then(|before| before["lastTransitionTime"].as_str())
        .unwrap_or(now);
    let message: String = ours.message.chars().take(MESSAGE_MAX).collect();
    let mut fields = json!({
        "type": ours.condition_type,
        "status": status,
        "reason": ours.reason,
        "message": message,
        "lastTransitionTime": since,
    });
    if let Some(generation) = ours.observed_generation {
        fields["observedGeneration"] = generation.into();
    }
    fields
}

/// Conditions as they are while the data plane is not where it should be: what was programmed still is, and what was
/// not waits.
fn hold(before: &Value, ours: &[Condition], held: Option<&str>) -> Vec<Condition> {
    let mut said = ours.to_vec();
    let Some(why) = held else { return said };
    let programmed = |old: &&Value| old["type"] == "Programmed" && old["status"] == "True";
    let before = items(before).iter().find(programmed).map(|old| old["observedGeneration"].as_i64());
    for condition in said.iter_mut().filter(|said| said.condition_type == "Programmed" && said.status) {
        if let Some(generation) = before {
            condition.observed_generation = generation;
        } else {
            (condition.status, condition.reason) = (false, "Pending");
            condition.message = format!("the data plane could not be brought to this yet: {why}");
        }
    }
    said
}

fn parent_ref(parent: &ParentRef) -> Value {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        fields.extend(value.map(|value| (name.to_owned(), value)));
    };
    put("group", Some(parent.group.clone().into()));
    put("kind", Some(parent.kind.clone().into()));
    put("namespace", parent.namespace.clone().map(Value::from));
    put("name", Some(parent.name.clone().into()));
    put("sectionName", parent.section_name.clone().map(Value::from));
    put("port", parent.port.map(Value::from));
    Value::Object(fields)
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::status::ListenerStatus;

    const THEN: &str = "2026-01-01T00:00:00Z";
    const NOW: &str = "2026-02-02T00:00:00Z";

    fn said(condition_type: &'static str, status: bool, reason: &'static str, generation: i64) -> Condition {
        let observed_generation = Some(generation);
        Condition { condition_type, status, reason, message: String::new(), observed_generation }
    }

    fn apply(status: &mut Value, patch: Option<Value>) {
        for (field, value) in patch.unwrap().as_object().unwrap() {
            status[field] = value.clone();
        }
    }

    fn times(conditions: &Value) -> Vec<String> {
        let line = |one: &Value| {
            let text = |field: &str| one[field].as_str().unwrap_or("-").to_owned();
            format!(
                "{}={} {} {}",
                text("type"),
                text("status"),
                one["observedGeneration"],
                text("lastTransitionTime")
            )
        };
        items(conditions).iter().map(line).collect()
    }

    #[test]
    fn times_move_with_the_status_only_and_foreign_conditions_stay() {
        let mut status = json!({"conditions": [
            {"type": "Accepted", "status": "Unknown", "reason": "Pending", "message": "",
             "lastTransitionTime": "1970-01-01T00:00:00Z"},
            {"type": "example.com/Audited", "status": "True", "reason": "Yes", "message": "",
             "lastTransitionTime": THEN},
        ]});
        let good = [said("Accepted", true, "Accepted", 1)];
        let patch = class(&status, &good, &["A", "B"], NOW);
        apply(&mut status, patch);
        let foreign = format!("example.com/Audited=True null {THEN}");
        assert_eq!(times(&status["conditions"]), [format!("Accepted=True 1 {NOW}"), foreign.clone()]);
        assert_eq!(class(&status, &good, &["A", "B"], "later"), None, "nothing has changed");

        let newer = [said("Accepted", true, "Accepted", 2)];
        let patch = class(&status, &newer, &["A", "B"], "later");
        apply(&mut status, patch);
        assert_eq!(times(&status["conditions"]), [format!("Accepted=True 2 {NOW}"), foreign]);
        assert!(class(&status, &newer, &["A"], "later").is_some(), "features are compared as well");
    }

    #[test]
    fn entries_of_other_controllers_stay_and_stale_ones_of_ours_go() {
        let parent = |name: &str| -> ParentRef { serde_json::from_value(json!({"name": name})).unwrap() };
        let ours = |name: &str| ParentStatus {
            parent: parent(name),
            conditions: vec![said("Accepted", true, "Accepted", 1)],
        };
        let foreign = json!({"controllerName": "example.com/other", "parentRef": {"name": "a"},
            "conditions": [{"type": "Accepted", "status": "False"}]});
        let mut status = json!({"parents": [foreign]});
        let patch = route(&status, &[ours("a"), ours("b")], THEN);
        apply(&mut status, patch);
        assert_eq!(status["parents"].as_array().unwrap().len(), 3);
        assert_eq!(route(&status, &[ours("a"), ours("b")], NOW), None);

        status["parents"].as_array_mut().unwrap().rotate_left(1);
        assert_eq!(route(&status, &[ours("a"), ours("b")], NOW), None, "order is nothing");

        let patch = route(&status, &[ours("b")], NOW);
        apply(&mut status, patch);
        let left: Vec<&Value> =
            items(&status["parents"]).iter().map(|entry| &entry["parentRef"]["name"]).collect();
        assert_eq!(left, ["a", "b"]);
        assert_eq!(status["parents"][1]["conditions"][0]["lastTransitionTime"], THEN);
        assert_eq!(route(&json!({}), &[], NOW), None, "a route that is not ours");
        let patch = route(&status, &[], NOW);
        apply(&mut status, patch);
        assert_eq!(status["parents"], json!([foreign]));
    }

    #[test]
    fn a_condition_that_is_over_is_removed() {
        let partly = json!({"parents": [{"controllerName": CONTROLLER_NAME,
            "parentRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "a"},
            "conditions": [{"type": "PartiallyInvalid", "status": "True", "lastTransitionTime": THEN}]}]});
        let parent = serde_json::from_value(json!({"name": "a"})).unwrap();
        let ours = ParentStatus { parent, conditions: vec![said("Accepted", true, "Accepted", 1)] };
        let patch = route(&partly, &[ours], NOW).unwrap();
        assert_eq!(times(&patch["parents"][0]["conditions"]), [format!("Accepted=True 1 {NOW}")]);
    }

    #[test]
    fn what_is_not_in_force_is_not_programmed_unless_it_was() {
        let conditions =
            vec![said("Accepted", true, "Accepted", 2), said("Programmed", true, "Programmed", 2)];
        let listener = ListenerStatus {
            name: "l".into(),
            supported_kinds: Vec::new(),
            attached_routes: 1,
            conditions: conditions.clone(),
        };
        let ours = GatewayStatus {
            addresses: vec!["198.18.0.1".parse().unwrap()],
            conditions,
            listeners: vec![listener],
        };
        let mut status = json!({});
        let patch = gateway(&status, &ours, Some("no device"), NOW);
        apply(&mut status, patch);
        assert_eq!(status["conditions"][1]["reason"], "Pending");
        assert_eq!(status["listeners"][0]["conditions"][1]["status"], "False");
        let patch = gateway(&status, &ours, None, NOW);
        apply(&mut status, patch);
        assert_eq!(status["conditions"][1]["reason"], "Programmed");
        assert_eq!(gateway(&status, &ours, Some("no device"), NOW), None);
    }
}
