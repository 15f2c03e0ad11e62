//! The rules of routes: `forwardTo` and its fields (GEP-718), matches and filters.

use super::{
    rules::{Object, Rewrite},
    tree::Tree,
};

/// Rewrites the spec of a route of any kind.
pub(super) fn route(rewrite: &mut Rewrite<'_>, object: &Object<'_>, spec: &Tree) {
    if let Some(tls) = spec.entry("tls").filter(|_| object.is_first()) {
        rewrite.lost(
            &tls.key,
            "routes cannot bring certificates any more: name it in a listener's certificateRefs",
        );
        rewrite.edits.remove(spec, tls);
    }
    let rules = spec.get("rules").map(Tree::items).unwrap_or_default();
    if object.is_first() {
        match object.kind {
            "TLSRoute" => server_names(rewrite, spec, rules),
            "TCPRoute" | "UDPRoute" => rules.iter().for_each(|rule| no_matches(rewrite, rule)),
            _ => {}
        }
    }
    for rule in rules {
        if object.kind == "HTTPRoute" {
            let matches = rule.get("matches").map(Tree::items).unwrap_or_default();
            for of in matches {
                http_match(rewrite, of);
            }
        }
        filters(rewrite, object, rule);
        if let Some(forward_to) = rule.entry("forwardTo") {
            rewrite.edits.rename(forward_to, "backendRefs");
            for backend in forward_to.value.items() {
                backend_ref(rewrite, backend);
                filters(rewrite, object, backend);
            }
        }
        for backend in rule.get("backendRefs").map(Tree::items).unwrap_or_default() {
            if backend.get("serviceName").is_some() || backend.get("backendRef").is_some() {
                backend_ref(rewrite, backend);
            }
            filters(rewrite, object, backend);
        }
    }
}

/// A reference with `serviceName` or a local `backendRef`, of which the first had precedence.
fn backend_ref(rewrite: &mut Rewrite<'_>, backend: &Tree) {
    let local = backend.entry("backendRef");
    let mut kind = "Service";
    if let Some(service) = backend.entry("serviceName") {
        rewrite.edits.rename(service, "name");
        if let Some(local) = local {
            rewrite.edits.remove(backend, local);
        }
    } else if let Some(local) = local {
        rewrite.core_group(&local.value);
        rewrite.edits.unwrap(backend, local);
        kind = local.value.word("kind").unwrap_or(kind);
    }
    if kind == "Service" && backend.get("port").is_none() {
        rewrite.lost(
            backend,
            "a Service needs a port since v1alpha2; before, the port of the request was meant: add it",
        );
    }
}

fn filters(rewrite: &mut Rewrite<'_>, object: &Object<'_>, of: &Tree) {
    for filter in of.get("filters").map(Tree::items).unwrap_or_default() {
        if let Some(headers) = filter.get("requestHeaderModifier") {
            for map in ["set", "add"].into_iter().filter_map(|key| headers.get(key)) {
                rewrite.edits.map_to_list(map, None);
            }
        }
        if let Some(mirror) = filter.get("requestMirror")
            && (object.is_first() || mirror.get("serviceName").is_some())
        {
            backend_ref(rewrite, mirror);
            rewrite.edits.nest(mirror, "backendRef");
        }
        for key in ["urlRewrite", "requestRedirect"] {
            if let Some(path) = filter.get(key).and_then(|filter| filter.get("path")) {
                substitution(rewrite, path);
            }
        }
    }
}

/// `substitution` of early v1alpha2, whose meaning followed from the type.
fn substitution(rewrite: &mut Rewrite<'_>, path: &Tree) {
    let (Some(kind), Some(substitution)) = (path.get("type"), path.entry("substitution")) else { return };
    if kind.text() == Some("ReplacePrefixMatch") {
        rewrite.edits.rename(substitution, "replacePrefixMatch");
    } else {
        rewrite.edits.replace(kind, "ReplaceFullPath");
        rewrite.edits.rename(substitution, "replaceFullPath");
    }
}

fn http_match(rewrite: &mut Rewrite<'_>, of: &Tree) {
    if let Some(kind) = of.get("path").and_then(|path| path.get("type")) {
        match kind.text() {
            Some("Prefix") => rewrite.edits.replace(kind, "PathPrefix"),
            Some("ImplementationSpecific") => {
                rewrite.lost(
                    kind,
                    "there is no such type any more: write Exact, PathPrefix or RegularExpression",
                );
            }
            _ => {}
        }
    }
    for key in ["headers", "queryParams"] {
        if let Some(values) = of.get(key).filter(|map| map.get("values").is_some()) {
            let kind = values.word("type").filter(|kind| *kind != "Exact");
            if kind == Some("ImplementationSpecific") {
                rewrite.lost(values, "there is no such type any more: write Exact or RegularExpression");
            }
            let kind = kind.map(str::to_owned);
            rewrite.edits.values_to_list(values, kind.as_deref().map(|kind| ("type", kind)));
        }
    }
    if let Some(extension) = of.entry("extensionRef") {
        rewrite.lost(&extension.key, "matches cannot be extended any more: remove it");
    }
}

fn no_matches(rewrite: &mut Rewrite<'_>, rule: &Tree) {
    if let Some(matches) = rule.entry("matches") {
        rewrite.lost(&matches.key, "connections and datagrams are not matched any more: removed");
        rewrite.edits.remove(rule, matches);
    }
}

/// Server names were matched by each rule, and are the whole route's hostnames now.
fn server_names(rewrite: &mut Rewrite<'_>, spec: &Tree, rules: &[Tree]) {
    let names = |rule: &Tree| -> Vec<String> {
        let matches = rule.get("matches").map(Tree::items).unwrap_or_default();
        let names = matches.iter().filter_map(|of| of.get("snis")).flat_map(Tree::items);
        names.filter_map(Tree::text).map(str::to_owned).collect()
    };
    let Some(hostnames) = rules.first().map(names).filter(|names| !names.is_empty()) else {
        return rewrite.lost(spec, "a TLSRoute needs hostnames since v1: name the servers in spec.hostnames");
    };
    if let Some(other) = rules.iter().find(|rule| names(rule) != hostnames) {
        let message = "server names are of the whole route since v1alpha2: make a route of each rule, with its names in \
                       spec.hostnames";
        return rewrite.lost(other, message);
    }
    for rule in rules {
        if let Some(matches) = rule.entry("matches") {
            rewrite.edits.remove(rule, matches);
        }
    }
    let (block, flow) = rewrite.words(spec, "hostnames", &hostnames);
    rewrite.edits.insert_first(spec, &block, &flow);
}
