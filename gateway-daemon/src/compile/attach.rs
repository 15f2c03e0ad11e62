//! Attachment: which listeners take a route, and for which hosts.

use std::collections::BTreeMap;

use super::{
    Context,
    gateway::{Gateway, Listener},
    status::{NO_MATCHING_LISTENER_HOSTNAME, NO_MATCHING_PARENT, NOT_ALLOWED_BY_LISTENERS, Problem},
};
use crate::{
    api::{
        GATEWAY_GROUP, Key, Kind, Object, Severity,
        core::NAMESPACE_NAME_LABEL,
        gateway::{LabelExpression, LabelSelector},
        route::ParentRef,
    },
    model::l7::Hostname,
};

/// What comes of one of a route's parentRefs.
pub(super) struct Parent {
    pub(super) reference: ParentRef,
    /// Where the route is attached, or why nowhere.
    pub(super) outcome: Result<Vec<Attachment>, Problem>,
}

/// A listener that takes a route.
pub(super) struct Attachment {
    /// Index of the Gateway.
    pub(super) gateway: usize,
    /// Index of its listener.
    pub(super) listener: usize,
    /// Hosts of the route within the listener's; empty for all of the listener.
    pub(super) hostnames: Vec<Hostname>,
}

/// Attaches a route to the Gateways of ours that it names, and to the default ones when it says so (GEP-3793).
/// `hostnames` are the route's; empty for kinds without.
pub(super) fn attach<S: Kind>(
    cx: &mut Context<'_>,
    gateways: &[Gateway<'_>],
    route: &Object<S>,
    (parents, use_default_gateways): (&[ParentRef], Option<&str>),
    hostnames: &[Hostname],
) -> Vec<Parent> {
    let mut attached = Vec::new();
    let defaults = if use_default_gateways == Some("All") {
        default_gateways(gateways, route, parents)
    } else {
        Vec::new()
    };
    if parents.is_empty() && use_default_gateways != Some("All") {
        let message = "the route names no parent, so nothing reaches it: write spec.parentRefs".to_owned();
        cx.say(route, "spec", Severity::Warning, "no-parent", message);
    }
    let named =
        parents.iter().enumerate().map(|(index, parent)| (format!("spec.parentRefs[{index}]"), parent));
    let by_default = defaults.iter().map(|parent| ("spec.useDefaultGateways".to_owned(), parent));
    for (path, parent) in named.chain(by_default) {
        let key = Key::new(parent.namespace.as_deref().unwrap_or(&route.metadata.namespace), &parent.name);
        if (parent.group.as_str(), parent.kind.as_str()) != (GATEWAY_GROUP, "Gateway") {
            let message = format!("a {} cannot be a parent here: refer to a Gateway", parent.kind);
            cx.say(route, &format!("{path}.kind"), Severity::Warning, "unsupported-parent", message);
            continue;
        }
        let Some(position) = gateways.iter().position(|gateway| gateway.object.key() == key) else {
            if !cx.resources.gateways.contains_key(&key) {
                let message = format!("there is no Gateway {key}");
                cx.say(route, &format!("{path}.name"), Severity::Error, "parent-not-found", message);
            }
            continue;
        };
        let outcome = listeners(cx, &gateways[position], route, parent, hostnames).map(|found| {
            found
                .into_iter()
                .map(|(listener, hostnames)| Attachment { gateway: position, listener, hostnames })
                .collect()
        });
        if let Err(problem) = &outcome {
            cx.error(route, &path, problem);
        }
        attached.push(Parent { reference: parent.clone(), outcome });
    }
    attached
}

/// References to the default Gateways that a route does not name itself.
fn default_gateways<S: Kind>(
    gateways: &[Gateway<'_>],
    route: &Object<S>,
    named: &[ParentRef],
) -> Vec<ParentRef> {
    let of = |parent: &ParentRef| {
        Key::new(parent.namespace.as_deref().unwrap_or(&route.metadata.namespace), &parent.name)
    };
    let is_named = |key: &Key| named.iter().any(|parent| parent.kind == "Gateway" && of(parent) == *key);
    gateways
        .iter()
        .filter(|gateway| gateway.object.spec.default_scope.as_deref() == Some("All"))
        .map(|gateway| gateway.object.key())
        .filter(|key| !is_named(key))
        .map(|key| ParentRef {
            group: GATEWAY_GROUP.to_owned(),
            kind: "Gateway".to_owned(),
            namespace: Some(key.namespace),
            name: key.name,
            section_name: None,
            port: None,
        })
        .collect()
}

/// The listeners of a Gateway that take a route. Each step has its own reason when it leaves none.
fn listeners<S: Kind>(
    cx: &Context<'_>,
    gateway: &Gateway<'_>,
    route: &Object<S>,
    parent: &ParentRef,
    hostnames: &[Hostname],
) -> Result<Vec<(usize, Vec<Hostname>)>, Problem> {
    let key = gateway.object.key();
    let named: Vec<(usize, &Listener<'_>)> = gateway
        .listeners
        .iter()
        .enumerate()
        .filter(|(_, listener)| parent.section_name.as_ref().is_none_or(|name| *name == listener.spec.name))
        .filter(|(_, listener)| parent.port.is_none_or(|port| port == listener.spec.port))
        .collect();
    if named.is_empty() {
        let message =
            format!("Gateway {key} has no listener with the sectionName and port that are asked for");
        return Err(Problem::new(NO_MATCHING_PARENT, message));
    }
    let allowed: Vec<&(usize, &Listener<'_>)> = named
        .iter()
        .filter(|(_, listener)| {
            listener.kinds.iter().any(|kind| kind.group == GATEWAY_GROUP && kind.kind == S::KIND)
        })
        .filter(|(_, listener)| {
            let namespaces = &listener.spec.allowed_routes.namespaces;
            match namespaces.from.as_deref() {
                Some("All") => true,
                Some("Selector") => namespaces
                    .selector
                    .as_ref()
                    .is_some_and(|selector| selects(selector, &labels(cx, &route.metadata.namespace))),
                _ => route.metadata.namespace == key.namespace,
            }
        })
        .collect();
    if allowed.is_empty() {
        let message = format!(
            "no listener of Gateway {key} allows a {} of namespace {}: see its protocol and allowedRoutes",
            S::KIND,
            route.metadata.namespace
        );
        return Err(Problem::new(NOT_ALLOWED_BY_LISTENERS, message));
    }
    let attached: Vec<(usize, Vec<Hostname>)> = allowed
        .iter()
        .filter_map(|(index, listener)| Some((*index, intersect(listener.hostname.as_ref(), hostnames)?)))
        .collect();
    if attached.is_empty() {
        let message = format!("no listener of Gateway {key} serves a hostname of the route");
        return Err(Problem::new(NO_MATCHING_LISTENER_HOSTNAME, message));
    }
    Ok(attached)
}

/// The hosts that both serve; empty for all of the listener, nothing if they have none in common.
pub(super) fn intersect(listener: Option<&Hostname>, route: &[Hostname]) -> Option<Vec<Hostname>> {
    let Some(listener) = listener else { return Some(sorted(route.to_vec())) };
    if route.is_empty() {
        return Some(Vec::new());
    }
    let common: Vec<Hostname> = route
        .iter()
        .filter_map(|hostname| {
            // The narrower of the two, if the other has it within.
            if covers(listener, hostname) {
                Some(hostname.clone())
            } else {
                covers(hostname, listener).then(|| listener.clone())
            }
        })
        .collect();
    (!common.is_empty()).then(|| sorted(common))
}

/// Whether every host of the second is one of the first.
pub(super) fn covers(wide: &Hostname, narrow: &Hostname) -> bool {
    match (wide, narrow) {
        (Hostname::Exact(wide), Hostname::Exact(narrow)) => wide == narrow,
        (Hostname::Exact(_), Hostname::Wildcard(_)) => false,
        (Hostname::Wildcard(suffix), Hostname::Exact(name)) => is_below(name, suffix),
        (Hostname::Wildcard(suffix), Hostname::Wildcard(other)) => other == suffix || is_below(other, suffix),
    }
}

/// Whether a name is one or more labels in front of a suffix.
fn is_below(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix).is_some_and(|labels| labels.len() > 1 && labels.ends_with('.'))
}

fn sorted(mut hostnames: Vec<Hostname>) -> Vec<Hostname> {
    hostnames.sort();
    hostnames.dedup();
    hostnames
}

/// Labels of a namespace. That of its name is always there, as the API server sees to.
fn labels(cx: &Context<'_>, namespace: &str) -> BTreeMap<String, String> {
    let object = cx.resources.namespaces.get(&Key::new("", namespace));
    let mut labels = object.map(|object| object.metadata.labels.clone()).unwrap_or_default();
    labels.entry(NAMESPACE_NAME_LABEL.to_owned()).or_insert_with(|| namespace.to_owned());
    labels
}

fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let holds = |LabelExpression { key, operator, values }: &LabelExpression| {
        let value = labels.get(key);
        match operator.as_str() {
            "In" => value.is_some_and(|value| values.contains(value)),
            "NotIn" => value.is_none_or(|value| !values.contains(value)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    };
    selector.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
        && selector.match_expressions.iter().all(holds)
}
