//! Who attaches to whom, in the words of v1alpha1: a listener selects routes by kind, labels and namespace, and a
//! route says by whom it may be selected. Since v1alpha2 a route names its parents.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    rules::{Object, listener_names},
    tree::Tree,
};
use crate::api::FIRST_GROUP;

/// All selections that are in force among the objects at hand.
#[derive(Debug, Default)]
pub(super) struct Selections {
    gateways: Vec<Selecting>,
    /// Labels of the Namespaces that are there.
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

/// A Gateway of v1alpha1.
#[derive(Debug)]
struct Selecting {
    namespace: String,
    name: String,
    listeners: Vec<Listener>,
}

#[derive(Debug)]
struct Listener {
    name: String,
    kind: String,
    labels: LabelSelector,
    from: From,
}

#[derive(Debug)]
enum From {
    All,
    Same,
    Selector(LabelSelector),
}

#[derive(Debug, Default)]
struct LabelSelector {
    labels: BTreeMap<String, String>,
    /// Key, operator, values.
    expressions: Vec<(String, String, BTreeSet<String>)>,
}

/// A parent that a route should name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Parent {
    pub(super) name: String,
    /// When it is not the route's own.
    pub(super) namespace: Option<String>,
    /// When not every listener of the route's kind selects the route.
    pub(super) section: Option<String>,
}

impl Selections {
    pub(super) fn new<'t>(objects: impl Iterator<Item = Object<'t>>) -> Self {
        let mut selections = Self::default();
        for object in objects {
            if (object.group, object.kind) == (FIRST_GROUP, "Gateway") {
                selections.gateways.push(Selecting::new(&object));
            } else if (object.group, object.kind) == ("", "Namespace") {
                let mut labels = object.labels();
                labels.insert("kubernetes.io/metadata.name".to_owned(), object.name.to_owned());
                selections.namespaces.insert(object.name.to_owned(), labels);
            }
        }
        selections
    }

    /// The parents of a route of v1alpha1.
    pub(super) fn parents(&self, route: &Object<'_>) -> Vec<Parent> {
        let allowed = route.root.get("spec").and_then(|spec| spec.get("gateways"));
        match allowed.and_then(|gateways| gateways.word("allow")).unwrap_or("SameNamespace") {
            "FromList" => {
                let listed = allowed.and_then(|gateways| gateways.get("gatewayRefs"));
                let listed = listed.map(Tree::items).unwrap_or_default();
                listed.iter().flat_map(|reference| self.listed(reference, route)).collect()
            }
            allow => {
                let allows = |gateway: &&Selecting| allow == "All" || gateway.namespace == route.namespace;
                self.gateways
                    .iter()
                    .filter(allows)
                    .flat_map(|gateway| self.of_gateway(gateway, route))
                    .collect()
            }
        }
    }

    /// The parents that a reference of a route means. A Gateway that is not at hand is taken to select the route.
    fn listed(&self, reference: &Tree, route: &Object<'_>) -> Vec<Parent> {
        let name = reference.word("name").unwrap_or_default();
        let namespace = reference.word("namespace").unwrap_or(route.namespace);
        let known =
            self.gateways.iter().find(|gateway| gateway.name == name && gateway.namespace == namespace);
        known.map_or_else(
            || {
                let other = (namespace != route.namespace).then(|| namespace.to_owned());
                vec![Parent { name: name.to_owned(), namespace: other, section: None }]
            },
            |gateway| self.of_gateway(gateway, route),
        )
    }

    fn of_gateway(&self, gateway: &Selecting, route: &Object<'_>) -> Vec<Parent> {
        let of_kind: Vec<&Listener> =
            gateway.listeners.iter().filter(|listener| listener.kind == route.kind).collect();
        let selecting: Vec<&&Listener> =
            of_kind.iter().filter(|listener| self.selects(gateway, listener, route)).collect();
        let parent = |section| Parent {
            name: gateway.name.clone(),
            namespace: (gateway.namespace != route.namespace).then(|| gateway.namespace.clone()),
            section,
        };
        if selecting.is_empty() {
            Vec::new()
        } else if selecting.len() == of_kind.len() {
            vec![parent(None)]
        } else {
            selecting.iter().map(|listener| parent(Some(listener.name.clone()))).collect()
        }
    }

    fn selects(&self, gateway: &Selecting, listener: &Listener, route: &Object<'_>) -> bool {
        let from = match &listener.from {
            From::All => true,
            From::Same => gateway.namespace == route.namespace,
            From::Selector(selector) => {
                self.namespaces.get(route.namespace).is_some_and(|labels| selector.matches(labels))
            }
        };
        from && listener.labels.matches(&route.labels())
    }
}

impl Selecting {
    fn new(object: &Object<'_>) -> Self {
        let listeners = object.root.get("spec").and_then(|spec| spec.get("listeners"));
        let listeners = listeners.map(Tree::items).unwrap_or_default();
        Self {
            namespace: object.namespace.to_owned(),
            name: object.name.to_owned(),
            listeners: listeners
                .iter()
                .zip(listener_names(listeners))
                .map(|(listener, name)| Listener::new(listener, name))
                .collect(),
        }
    }
}

impl Listener {
    fn new(listener: &Tree, name: String) -> Self {
        let routes = listener.get("routes");
        let field = |key| routes.and_then(|routes| routes.get(key));
        let namespaces = field("namespaces");
        let from = match namespaces.and_then(|namespaces| namespaces.word("from")) {
            Some("All") => From::All,
            Some("Selector") => {
                From::Selector(LabelSelector::new(namespaces.and_then(|of| of.get("selector"))))
            }
            _ => From::Same,
        };
        let kind = field("kind").and_then(Tree::text).unwrap_or_default().to_owned();
        Self { name, kind, labels: LabelSelector::new(field("selector")), from }
    }
}

impl LabelSelector {
    fn new(selector: Option<&Tree>) -> Self {
        let Some(selector) = selector else { return Self::default() };
        let expression = |of: &Tree| {
            let values = of.get("values").map(Tree::items).unwrap_or_default();
            let values = values.iter().filter_map(Tree::text).map(str::to_owned).collect();
            Some((of.word("key")?.to_owned(), of.word("operator")?.to_owned(), values))
        };
        let expressions = selector.get("matchExpressions").map(Tree::items).unwrap_or_default();
        Self {
            labels: selector.get("matchLabels").map(super::rules::texts).unwrap_or_default(),
            expressions: expressions.iter().filter_map(expression).collect(),
        }
    }

    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let expression = |(key, operator, values): &(String, String, BTreeSet<String>)| {
            let value = labels.get(key);
            match operator.as_str() {
                "In" => value.is_some_and(|value| values.contains(value)),
                "NotIn" => value.is_none_or(|value| !values.contains(value)),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        };
        self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.expressions.iter().all(expression)
    }
}
