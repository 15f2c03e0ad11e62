//! What kinds and fields of earlier versions are called in v1.

use std::collections::BTreeMap;

use super::{
    edit::Edits,
    parents::{Parent, Selections},
    routes,
    tree::{Entry, Tree},
};
use crate::api::{Diagnostic, FIRST_GROUP, GATEWAY_GROUP, Place, Severity};

/// The group of what is not settled yet.
const EXPERIMENTAL_GROUP: &str = "gateway.networking.x-k8s.io";

/// An object of a document.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object<'t> {
    pub(super) root: &'t Tree,
    pub(super) group: &'t str,
    pub(super) version: &'t str,
    pub(super) kind: &'t str,
    pub(super) name: &'t str,
    pub(super) namespace: &'t str,
}

/// Something to tell about a place of a text.
#[derive(Debug)]
pub(super) struct Note {
    /// The byte.
    pub(super) at: usize,
    severity: Severity,
    object: String,
    message: String,
}

/// A text on its way to v1.
#[derive(Debug)]
pub(super) struct Rewrite<'t> {
    pub(super) edits: Edits<'t>,
    notes: Vec<Note>,
    /// The object at work, for notes.
    title: String,
}

/// The text with all its objects in v1, and what is to be said.
pub(super) fn rewrite(text: &str, documents: &[Tree], selections: &Selections) -> (String, Vec<Note>) {
    let mut rewrite = Rewrite { edits: Edits::new(text), notes: Vec::new(), title: String::new() };
    for object in documents.iter().flat_map(objects) {
        rewrite.object(&object, selections);
    }
    (rewrite.edits.apply(), rewrite.notes)
}

/// The objects of a document: itself, or those of a `List`.
pub(super) fn objects(document: &Tree) -> Vec<Object<'_>> {
    let (Some(api_version), Some(kind)) = (document.word("apiVersion"), document.word("kind")) else {
        return Vec::new();
    };
    if (api_version, kind) == ("v1", "List") {
        return document.get("items").map(Tree::items).unwrap_or_default().iter().flat_map(objects).collect();
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let metadata = |key| document.get("metadata").and_then(|metadata| metadata.word(key));
    let (name, namespace) =
        (metadata("name").unwrap_or_default(), metadata("namespace").unwrap_or("default"));
    vec![Object { root: document, group, version, kind, name, namespace }]
}

/// A mapping of texts.
pub(super) fn texts(map: &Tree) -> BTreeMap<String, String> {
    let pair = |entry: &Entry| Some((entry.key.text()?.to_owned(), entry.value.text()?.to_owned()));
    map.entries().iter().filter_map(pair).collect()
}

/// The names of listeners: those of v1alpha1 have none, and get one of their protocol and port.
pub(super) fn listener_names(listeners: &[Tree]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for listener in listeners {
        let given = listener.word("name").map(str::to_owned);
        let name = given.unwrap_or_else(|| {
            let word = |key| listener.word(key).unwrap_or_default().to_ascii_lowercase();
            let base = format!("{}-{}", word("protocol").replace(['/', '.'], "-"), word("port"));
            let again = (2..).map(|number| format!("{base}-{number}"));
            let mut candidates = std::iter::once(base.clone()).chain(again);
            candidates.find(|name| !names.contains(name)).unwrap_or(base)
        });
        names.push(name);
    }
    names
}

impl Object<'_> {
    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        self.root.get("metadata").and_then(|metadata| metadata.get("labels")).map(texts).unwrap_or_default()
    }

    /// Whether it is of v1alpha1.
    pub(super) fn is_first(&self) -> bool {
        self.group == FIRST_GROUP
    }

    /// What it is called today: `apiVersion` and kind. None of what has no successor.
    fn successor(&self) -> Option<(String, &str)> {
        let v1 = format!("{GATEWAY_GROUP}/v1");
        match self.kind {
            "GatewayClass" | "Gateway" | "HTTPRoute" | "GRPCRoute" | "TLSRoute" | "TCPRoute" | "UDPRoute"
            | "ReferenceGrant" | "BackendTLSPolicy" => Some((v1, self.kind)),
            "ReferencePolicy" => Some((v1, "ReferenceGrant")),
            "XListenerSet" => Some((v1, "ListenerSet")),
            "BackendLBPolicy" => Some((format!("{EXPERIMENTAL_GROUP}/v1alpha1"), "XBackendTrafficPolicy")),
            _ => None,
        }
    }
}

impl Note {
    pub(super) fn diagnostic(self, place: Place) -> Diagnostic {
        let code = if self.severity == Severity::Note { "migrated" } else { "not-migrated" };
        Diagnostic {
            place: Some(place),
            object: Some(self.object),
            severity: self.severity,
            code,
            message: self.message,
        }
    }
}

impl Rewrite<'_> {
    /// Something that has no successor, or none that can be told from here.
    pub(super) fn lost(&mut self, at: &Tree, message: impl Into<String>) {
        self.note(at, Severity::Error, message.into());
    }

    fn note(&mut self, at: &Tree, severity: Severity, message: String) {
        self.notes.push(Note { at: at.range.start, severity, object: self.title.clone(), message });
    }

    fn object(&mut self, object: &Object<'_>, selections: &Selections) {
        if !matches!(object.group, FIRST_GROUP | GATEWAY_GROUP)
            && (object.group, object.kind) != (EXPERIMENTAL_GROUP, "XListenerSet")
        {
            return;
        }
        self.title = format!("{} {}/{}", object.kind, object.namespace, object.name);
        let (Some(api_version), Some(kind)) = (object.root.get("apiVersion"), object.root.get("kind")) else {
            return;
        };
        let Some((version_now, kind_now)) = object.successor() else {
            if object.is_first() {
                self.lost(
                    kind,
                    format!(
                        "{} has no successor and stays as it is; TLS towards backends is asked for by a \
                         BackendTLSPolicy",
                        object.kind
                    ),
                );
            }
            return;
        };
        if version_now != format!("{}/{}", object.group, object.version) {
            self.edits.replace(api_version, &version_now);
        }
        if kind_now != object.kind {
            self.edits.replace(kind, kind_now);
        }
        let Some(spec) = object.root.get("spec") else { return };
        match object.kind {
            "GatewayClass" => self.class(spec),
            "Gateway" => self.gateway(object, spec),
            "BackendTLSPolicy" => self.backend_tls_policy(spec),
            "HTTPRoute" | "GRPCRoute" | "TLSRoute" | "TCPRoute" | "UDPRoute" => {
                if object.is_first() {
                    self.parents(object, spec, &selections.parents(object));
                }
                routes::route(self, object, spec);
            }
            _ => {}
        }
    }

    fn class(&mut self, spec: &Tree) {
        if let Some(controller) = spec.entry("controller") {
            self.edits.rename(controller, "controllerName");
        }
        if let Some(parameters) = spec.get("parametersRef") {
            self.core_group(parameters);
            if let Some(scope) = parameters.entry("scope") {
                self.edits.remove(parameters, scope);
            }
        }
    }

    fn gateway(&mut self, object: &Object<'_>, spec: &Tree) {
        let listeners = spec.get("listeners").map(Tree::items).unwrap_or_default();
        for (listener, name) in listeners.iter().zip(listener_names(listeners)) {
            if listener.get("name").is_none() {
                let name = word(&name);
                let flow = self.flow(listener, &[("name", &name)]);
                self.edits.insert_first(listener, &[format!("name: {name}")], &flow);
            }
            if let Some(hostname) = listener.entry("hostname").filter(|of| of.value.text() == Some("*")) {
                self.edits.remove(listener, hostname);
            }
            if let Some(tls) = listener.get("tls") {
                self.listener_tls(tls);
            }
            if let Some(routes) = listener.entry("routes") {
                self.edits.rename(routes, "allowedRoutes");
                self.allowed_routes(&routes.value);
            }
        }
        if object.is_first() {
            let message = "its listeners no longer select routes: the routes of these files name it in parentRefs \
                           now; routes that are elsewhere must be given theirs";
            self.note(spec, Severity::Note, message.to_owned());
        }
        if let Some(backend) = spec.entry("backendTLS") {
            self.lost(&backend.key, "backendTLS is tls.backend today: move clientCertificateRef there");
        }
    }

    fn listener_tls(&mut self, tls: &Tree) {
        if let Some(certificate) = tls.entry("certificateRef") {
            self.edits.rename(certificate, "certificateRefs");
            self.core_group(&certificate.value);
            self.edits.wrap_in_list(&certificate.value);
        }
        if let Some(over) = tls.entry("routeOverride") {
            if over.value.word("certificate") == Some("Allow") {
                self.lost(
                    &over.key,
                    "routes cannot bring certificates any more: name them all in certificateRefs",
                );
            }
            self.edits.remove(tls, over);
        }
        if let Some(frontend) = tls.entry("frontendValidation") {
            self.lost(
                &frontend.key,
                "frontendValidation is the Gateway's spec.tls.frontend.default.validation today, for all listeners \
                 or by port: move it there",
            );
        }
    }

    /// `routes` of v1alpha1: the kind is one of several now, labels do not select any more.
    fn allowed_routes(&mut self, routes: &Tree) {
        let group = routes.entry("group");
        if let Some(group) = group {
            self.edits.remove(routes, group);
        }
        if let Some(selector) = routes.entry("selector") {
            self.edits.remove(routes, selector);
        }
        if let Some(kind) = routes.entry("kind") {
            let name = kind.value.text().unwrap_or_default().to_owned();
            let foreign = group.and_then(|group| group.value.text()).filter(|group| *group != FIRST_GROUP);
            let mut fields = vec![("kind", name)];
            fields.extend(foreign.map(|group| ("group", group.to_owned())));
            let (block, flow) = self.list(routes, "kinds", &[fields]);
            self.edits.replace_entry(routes, kind, &block, &flow);
        }
    }

    fn parents(&mut self, object: &Object<'_>, spec: &Tree, parents: &[Parent]) {
        let gateways = spec.entry("gateways");
        if parents.is_empty() {
            let message =
                "no Gateway of these files selects this route: name its Gateways in spec.parentRefs";
            self.lost(gateways.map_or(object.root, |gateways| &gateways.key), message);
            if let Some(gateways) = gateways {
                self.edits.remove(spec, gateways);
            }
            return;
        }
        let items: Vec<Vec<(&str, String)>> = parents
            .iter()
            .map(|parent| {
                let mut fields = vec![("name", parent.name.clone())];
                fields.extend(parent.namespace.iter().map(|namespace| ("namespace", namespace.clone())));
                fields.extend(parent.section.iter().map(|section| ("sectionName", section.clone())));
                fields
            })
            .collect();
        let (block, flow) = self.list(spec, "parentRefs", &items);
        match gateways {
            Some(gateways) => self.edits.replace_entry(spec, gateways, &block, &flow),
            None => self.edits.insert_first(spec, &block, &flow),
        }
    }

    fn backend_tls_policy(&mut self, spec: &Tree) {
        if let Some(target) = spec.entry("targetRef") {
            self.edits.rename(target, "targetRefs");
            self.edits.wrap_in_list(&target.value);
        }
        if let Some(tls) = spec.entry("tls") {
            self.edits.rename(tls, "validation");
            for (old, new) in
                [("caCertRefs", "caCertificateRefs"), ("wellKnownCACerts", "wellKnownCACertificates")]
            {
                if let Some(entry) = tls.value.entry(old) {
                    self.edits.rename(entry, new);
                }
            }
        }
    }

    /// The group of core kinds was written `core` once.
    pub(super) fn core_group(&mut self, reference: &Tree) {
        if let Some(group) = reference.get("group").filter(|group| group.text() == Some("core")) {
            self.edits.replace_plain(group, "\"\"");
        }
    }

    /// A list under a new key, as lines and as words within braces.
    pub(super) fn list(&self, map: &Tree, key: &str, items: &[Vec<(&str, String)>]) -> (Vec<String>, String) {
        let mut block = vec![format!("{key}:")];
        let mut flow = Vec::new();
        for item in items {
            for (index, (key, value)) in item.iter().enumerate() {
                let dash = if index == 0 { "-" } else { " " };
                block.push(format!("{dash} {key}: {}", word(value)));
            }
            let fields: Vec<(&str, &str)> = item.iter().map(|(key, value)| (*key, value.as_str())).collect();
            flow.push(format!("{{{}}}", self.flow(map, &fields)));
        }
        let key = self.edits.quoted_like_keys_of(map, key);
        (block, format!("{key}: [{}]", flow.join(", ")))
    }

    /// A list of texts under a new key, as lines and as words within braces.
    pub(super) fn words(&self, map: &Tree, key: &str, words: &[String]) -> (Vec<String>, String) {
        let mut block = vec![format!("{key}:")];
        block.extend(words.iter().map(|text| format!("- {}", word(text))));
        let key = self.edits.quoted_like_keys_of(map, key);
        let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
        (block, format!("{key}: [{}]", words.join(", ")))
    }

    fn flow(&self, map: &Tree, fields: &[(&str, &str)]) -> String {
        let quote = |word: &str| self.edits.quoted_like_keys_of(map, word);
        let value = |text: &str| if quote("") == "\"\"" { quote(text) } else { word(text) };
        let pairs: Vec<String> =
            fields.iter().map(|(key, text)| format!("{}: {}", quote(key), value(text))).collect();
        pairs.join(", ")
    }
}

/// A text as YAML has it: one that could be read as a number, say, needs quotes.
pub(super) fn word(text: &str) -> String {
    let plain = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-./_".contains(c))
        && !["true", "false", "null", "yes", "no", "on", "off"].contains(&text.to_ascii_lowercase().as_str());
    if plain { text.to_owned() } else { format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")) }
}
