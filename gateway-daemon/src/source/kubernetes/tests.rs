//! What files say and what an API server says come to the same.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

use super::{
    follow::{Heard, Scope},
    store::Store,
};
use crate::{
    api::{Key, Resources, served::KINDS},
    compile::{Settings, compile},
    source::{files::Loader, yaml},
};

/// All manifests below a folder.
fn manifests(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(manifests(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The manifests of the official suite, where Go keeps them, as the suite would apply them; none if Go does not.
fn suite(copies: &Path) -> Vec<PathBuf> {
    let cache = env::var_os("GOMODCACHE").map(PathBuf::from).or_else(|| {
        let home = env::var_os("GOPATH").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join("go")))?;
        Some(home.join("pkg/mod"))
    });
    let Some(folder) = cache.map(|cache| cache.join("sigs.k8s.io/gateway-api/conformance@v1.6.3")) else {
        return Vec::new();
    };
    if !folder.is_dir() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (index, path) in manifests(&folder).into_iter().enumerate() {
        let text = fs::read_to_string(&path).unwrap();
        let copy = copies.join(format!("{index:03}-{}", path.file_name().unwrap().display()));
        let text = text.replace("{GATEWAY_CLASS_NAME}", "gatewayd");
        // The suite fills these in with addresses.
        fs::write(&copy, text.replace("PLACEHOLDER_USABLE_ADDRS", "198.18.0.9")).unwrap();
        found.push(copy);
    }
    found
}

/// The same objects by the other way: as documents that an API server sends. Only those that were good as a file are
/// taken, since an API server would have refused the others.
fn heard(file: &Path, good: &Resources) -> Resources {
    let mut store = Store::default();
    let mut seen = BTreeSet::new();
    for document in yaml::parse(&fs::read_to_string(file).unwrap()).documents {
        let mut json = document.to_json();
        let Some(kind) = KINDS.iter().find(|served| {
            let group = if served.group.is_empty() { String::new() } else { format!("{}/", served.group) };
            let versions = served.versions.iter().map(|version| format!("{group}{version}"));
            json["kind"] == served.kind && versions.into_iter().any(|version| json["apiVersion"] == version)
        }) else {
            continue;
        };
        if kind.namespaced && json["metadata"]["namespace"].is_null() {
            json["metadata"]["namespace"] = "default".into();
        }
        let text = |field: &str| json["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = Key::new(&text("namespace"), &text("name"));
        if !good.clone().remove(kind.kind, &key) || !seen.insert((kind.kind, key)) {
            continue;
        }
        // What an API server adds must change nothing.
        json["metadata"]["resourceVersion"] = "7".into();
        json["metadata"]["managedFields"] = serde_json::json!([{"manager": "kubectl", "operation": "Apply"}]);
        json["status"] = serde_json::json!({"conditions": []});
        let object = Box::new(serde_json::from_value(json).unwrap());
        store.take(&Scope { kind, only: None }, Heard::Changed(object));
    }
    assert_eq!(store.faults(), [], "{}", file.display());
    store.resources
}

#[test]
fn files_and_an_api_server_give_the_same_model() {
    let copies = tempfile::tempdir().unwrap();
    let examples = manifests(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples"));
    assert!(!examples.is_empty());
    let settings = Settings {
        node_addresses: vec!["198.18.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
        implicit_class: true,
        ..Settings::default()
    };
    let mut rules = 0;
    for file in examples.into_iter().chain(suite(copies.path())) {
        let loaded = Loader::new(vec![file.clone()]).load().loaded;
        let of_files = compile(&loaded.resources, &settings);
        let of_server = compile(&heard(&file, &loaded.resources), &settings);
        let print = |what: &dyn std::fmt::Debug| format!("{what:#?}");
        assert_eq!(print(&of_files.model), print(&of_server.model), "{}", file.display());
        assert_eq!(print(&of_files.statuses), print(&of_server.statuses), "{}", file.display());
        rules += of_files.model.l4.len() + of_files.model.l7.services.len();
    }
    assert!(rules > 10, "too little was compiled to prove anything: {rules}");
}
