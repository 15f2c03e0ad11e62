//! Trees to objects, with every fault and its place.

use std::sync::Arc;

use super::{
    Diagnostic, FIRST_GROUP, Faults, GATEWAY_GROUP, Kind, METADATA, OWN_GROUP, Object, Origin, Resource,
    Severity,
    backend::Backend,
    core::{ConfigMap, EndpointSlice, Namespace, Secret, Service},
    gateway::{Gateway, GatewayClass},
    grant::ReferenceGrant,
    grpc::GrpcRoute,
    http::HttpRoute,
    node::{Node, Value},
    resources::kinds,
    route::{TcpRoute, UdpRoute},
    schema::{self, Schema, Violation, suggestion},
    tls::TlsRoute,
};

/// The objects of a document, and what is to be said about it.
///
/// A document with faults gives no object; a `List` gives those of its items that have none.
pub fn decode(document: &Arc<Node>, file: &Arc<str>, said: &mut Vec<Diagnostic>) -> Vec<Resource> {
    let origin = Origin { file: Arc::clone(file), root: Arc::clone(document) };
    let Some((api_version, kind)) = identify(&origin, said) else { return Vec::new() };
    if (api_version, kind) == ("v1", "List") {
        return items(&origin, said).iter().flat_map(|item| decode(item, file, said)).collect();
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let decoded = decode_kind(group, version, kind, &origin, said);
    if decoded.is_none() {
        said.push(unknown_kind(group, kind, &origin));
    }
    decoded.flatten().into_iter().collect()
}

/// The items of a `List`. A list without any says `items: []`; one that does not say is a slip of the pen.
fn items<'a>(origin: &'a Origin, said: &mut Vec<Diagnostic>) -> &'a [Arc<Node>] {
    if let Some(Value::List(items)) = origin.root.get("items").map(|items| &items.value) {
        return items;
    }
    said.push(Diagnostic {
        place: Some(origin.place("items")),
        object: None,
        severity: Severity::Error,
        code: "wrong-type",
        message: "items must be a list of objects".to_owned(),
    });
    &[]
}

/// What `apiVersion` and `kind` say.
fn identify<'a>(origin: &'a Origin, said: &mut Vec<Diagnostic>) -> Option<(&'a str, &'a str)> {
    let mut fault = |path: &str, code, message: &str| {
        said.push(Diagnostic {
            place: Some(origin.place(path)),
            object: None,
            severity: Severity::Error,
            code,
            message: message.to_owned(),
        });
    };
    if !matches!(origin.root.value, Value::Map(_)) {
        fault("", "wrong-type", "a document must be a mapping with apiVersion, kind and metadata");
        return None;
    }
    let mut text = |field| {
        let text = origin.root.get(field).and_then(Node::as_text);
        if text.is_none() {
            fault(field, "missing-field", &format!("{field} is missing: it is required, as a text"));
        }
        text
    };
    text("apiVersion").zip(text("kind"))
}

macro_rules! by_kind {
    ($($variant:ident $store:ident $spec:ty,)*) => {
        /// The object, if it has no faults; nothing at all if the kind is not one that is read.
        fn decode_kind(
            group: &str,
            version: &str,
            kind: &str,
            origin: &Origin,
            said: &mut Vec<Diagnostic>,
        ) -> Option<Option<Resource>> {
            match (group, kind) {
                $((<$spec>::GROUP, <$spec>::KIND) => {
                    Some(decode_object::<$spec>(version, origin, said).map(|object| Resource::$variant(Arc::new(object))))
                })*
                _ => None,
            }
        }

        /// Kinds of a group that are read.
        fn kinds_of(group: &str) -> Vec<&'static str> {
            let all = [$((<$spec>::GROUP, <$spec>::KIND),)*];
            all.into_iter().filter(|(of, _)| *of == group).map(|(_, kind)| kind).collect()
        }
    };
}
kinds!(by_kind);

fn unknown_kind(group: &str, kind: &str, origin: &Origin) -> Diagnostic {
    let ours = [GATEWAY_GROUP, OWN_GROUP].contains(&group) || group == "gateway.networking.x-k8s.io";
    let known_later = ["ListenerSet", "BackendTLSPolicy", "XBackend", "XBackendTrafficPolicy", "XMesh"];
    let (severity, code, message) = if group == FIRST_GROUP {
        let message = format!(
            "{kind} of {FIRST_GROUP} is of the Gateway API before v1, which is in {GATEWAY_GROUP}: `gatewayd migrate` \
             rewrites it"
        );
        (Severity::Error, "old-group", message)
    } else if ours && known_later.contains(&kind) {
        (Severity::Error, "unsupported-kind", format!("{kind} is not served yet: remove it"))
    } else if ours {
        let hint = suggestion(kind, &kinds_of(group));
        (Severity::Error, "unknown-kind", format!("there is no kind {kind} in {group}: {hint}"))
    } else {
        (Severity::Note, "skipped-kind", format!("{kind} is not a kind that gatewayd reads: skipped"))
    };
    Diagnostic { place: Some(origin.place("kind")), object: None, severity, code, message }
}

fn decode_object<S: Kind>(version: &str, origin: &Origin, said: &mut Vec<Diagnostic>) -> Option<Object<S>> {
    let before = said.len();
    let mut violations = document_violations::<S>(version, &origin.root);
    let mut object = None;
    if violations.is_empty() {
        match Object::<S>::from_json(origin.root.to_json(), Some(origin.clone())) {
            Ok(decoded) => object = Some(decoded),
            // The schema is meant to be at least as strict as the type; where it is not, this still has a place.
            Err(error) => violations.push(Violation {
                at: origin.root.at,
                code: "not-decodable",
                message: format!("the object cannot be read: {error}"),
            }),
        }
    }
    let title = title::<S>(&origin.root);
    let error = |place, code, message| Diagnostic {
        place: Some(place),
        object: title.clone(),
        severity: Severity::Error,
        code,
        message,
    };
    for Violation { at, code, message } in violations {
        said.push(error(origin.at(at), code, message));
    }
    if let Some(object) = &object {
        let mut faults = Faults::default();
        object.spec.rules(&mut faults);
        for fault in faults.0 {
            said.push(error(origin.place(&fault.path), fault.code, fault.message));
        }
    }
    object.filter(|_| said.len() == before)
}

/// Everything that the schemas do not allow in a whole document.
fn document_violations<S: Kind>(version: &str, root: &Node) -> Vec<Violation> {
    const BESIDE: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];
    let mut violations = Vec::new();
    if !S::VERSIONS.contains(&version) {
        let group = if S::GROUP.is_empty() { String::new() } else { format!("{}/", S::GROUP) };
        let migrate = if S::GROUP == GATEWAY_GROUP { ", or let `gatewayd migrate` do it" } else { "" };
        let message = format!(
            "{} is not read in version {version}: write `{group}{}`{migrate}",
            S::KIND,
            S::VERSIONS[0]
        );
        violations.push(Violation { at: root.find("apiVersion"), code: "unknown-version", message });
    }
    if let Some(entry) = root.entry("metadata") {
        violations.extend(schema::check(&entry.value, entry.at, &Schema::Object(&METADATA), "metadata"));
        if let Some(namespace) = entry.value.entry("namespace").filter(|_| !S::NAMESPACED) {
            let message =
                format!("metadata.namespace means nothing here, since a {} has none: remove it", S::KIND);
            violations.push(Violation { at: namespace.at, code: "unknown-field", message });
        }
    } else {
        let message = "metadata is missing: it is required, with a name".to_owned();
        violations.push(Violation { at: root.at, code: "missing-field", message });
    }
    let Value::Map(entries) = &root.value else { return violations };
    if S::UNDER_SPEC {
        for entry in
            entries.iter().filter(|entry| !BESIDE.contains(&entry.key.as_str()) && entry.key != "spec")
        {
            let hint = suggestion(&entry.key, &["spec", "metadata"]);
            let message = format!("there is no field `{}` in a {}: {hint}", entry.key, S::KIND);
            violations.push(Violation { at: entry.at, code: "unknown-field", message });
        }
        match root.entry("spec") {
            Some(entry) => {
                violations.extend(schema::check(&entry.value, entry.at, &Schema::Object(S::SCHEMA), "spec"));
            }
            None if !S::SCHEMA.required.is_empty() => {
                let message = "spec is missing: it is required".to_owned();
                violations.push(Violation { at: root.at, code: "missing-field", message });
            }
            None => {}
        }
    } else {
        let own = Node {
            at: root.at,
            value: Value::Map(
                entries.iter().filter(|entry| !BESIDE.contains(&entry.key.as_str())).cloned().collect(),
            ),
        };
        violations.extend(schema::check(&own, root.at, &Schema::Object(S::SCHEMA), ""));
    }
    violations
}

/// The object for messages, as far as it can be told.
fn title<S: Kind>(root: &Node) -> Option<String> {
    let metadata = root.get("metadata")?;
    let name = metadata.get("name")?.as_text()?;
    let namespace = metadata.get("namespace").and_then(Node::as_text).unwrap_or("default");
    Some(if S::NAMESPACED {
        format!("{} {namespace}/{name}", S::KIND)
    } else {
        format!("{} {name}", S::KIND)
    })
}
