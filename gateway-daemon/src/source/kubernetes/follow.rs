//! Follows the objects of one kind, for as long as the daemon runs.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use futures_util::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject},
    runtime::{
        WatchStreamExt as _,
        utils::{Backoff, ResetTimerBackoff},
        watcher::{self, watcher},
    },
};
use tokio::{sync::mpsc, time::Instant};

use crate::api::{Key, served::Served};

/// How often a kind is looked for that is not installed.
const LOOK_AGAIN: Duration = Duration::from_secs(3);

/// After so long without an error, the next one is tried again as soon as the first was.
const CALM: Duration = Duration::from_secs(20);

/// After so many seconds the API server ends a watch, and another goes on where it ended. A watch of what never changes
/// hears nothing, not even bookmarks: without an end, its silence would look like that of an API server that is gone.
pub(super) const WATCH_FOR: u32 = 80;

/// Which objects are followed.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    pub(super) kind: &'static Served,
    /// Only this one.
    pub(super) only: Option<Key>,
}

/// What was heard about the objects of a scope.
#[derive(Debug)]
pub(super) enum Heard {
    /// The kind is not installed.
    Absent,
    /// All objects follow, whatever was heard before.
    Began,
    /// An object of them.
    Listed(Box<DynamicObject>),
    /// Those were all.
    Complete,
    /// An object is new or has changed.
    Changed(Box<DynamicObject>),
    /// An object is gone.
    Gone(Key),
    /// The API server cannot be asked; what was heard before stays.
    Failed(String),
}

/// Hears about the objects of a scope until nobody listens any more.
pub(super) async fn follow(client: Client, scope: Scope, heard: mpsc::Sender<(Scope, Heard)>) {
    let mut patience = Patience::default();
    loop {
        let Some(resource) = find(&client, &scope, &heard).await else { return };
        let began = Instant::now();
        if !follow_installed(client.clone(), &scope, &resource, &heard).await {
            return;
        }
        if began.elapsed() > CALM {
            patience.reset();
        }
        tokio::select! {
            () = tokio::time::sleep(patience.next().unwrap_or(LOOK_AGAIN)) => {}
            () = heard.closed() => return,
        }
    }
}

/// Hears about the objects of a kind that is installed, as far as a watch can be carried on. Says whether anybody
/// listens still.
async fn follow_installed(
    client: Client,
    scope: &Scope,
    resource: &ApiResource,
    heard: &mpsc::Sender<(Scope, Heard)>,
) -> bool {
    let api: Api<DynamicObject> = match &scope.only {
        Some(key) if !key.namespace.is_empty() => Api::namespaced_with(client, &key.namespace, resource),
        _ => Api::all_with(client, resource),
    };
    let mut config = watcher::Config::default().timeout(WATCH_FOR);
    if let Some(key) = &scope.only {
        config = config.fields(&format!("metadata.name={}", key.name));
    }
    let mut events =
        std::pin::pin!(watcher(api, config).backoff(ResetTimerBackoff::new(Patience::default(), CALM)));
    let mut failing = false;
    while let Some(event) = events.next().await {
        let mut starts_over = false;
        let what = match event {
            Ok(event) => {
                if failing && !matches!(event, watcher::Event::Init) {
                    failing = false;
                    tracing::info!(kind = scope.kind.kind, "hearing of changes again");
                }
                hear(event)
            }
            Err(error) => {
                starts_over = cannot_go_on(&error);
                let error = format!("{:#}", anyhow::Error::new(error));
                if !failing {
                    tracing::warn!(kind = scope.kind.kind, error, "cannot watch; it is tried again");
                }
                failing = true;
                Heard::Failed(error)
            }
        };
        if heard.send((scope.clone(), what)).await.is_err() {
            return false;
        }
        if starts_over {
            break;
        }
    }
    true
}

/// Whether the watcher would ask the same again for ever. 404: the kind was removed, and may come back in another
/// version. 410 for a watch that begins: the version that it begins from is too old, so that only a new list helps.
fn cannot_go_on(error: &watcher::Error) -> bool {
    let code = |error: &kube::Error| match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    };
    match error {
        watcher::Error::InitialListFailed(error) => code(error) == 404,
        watcher::Error::WatchStartFailed(error) => [404, 410].contains(&code(error)),
        _ => false,
    }
}

fn hear(event: watcher::Event<DynamicObject>) -> Heard {
    match event {
        watcher::Event::Init => Heard::Began,
        watcher::Event::InitApply(object) => Heard::Listed(Box::new(object)),
        watcher::Event::InitDone => Heard::Complete,
        watcher::Event::Apply(object) => Heard::Changed(Box::new(object)),
        watcher::Event::Delete(object) => Heard::Gone(key(&object)),
    }
}

/// Namespace and name of an object.
pub(super) fn key(object: &DynamicObject) -> Key {
    let metadata = &object.metadata;
    Key {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}

/// Finds out how the API server calls the kind, waiting until it is there. Nothing when nobody listens any more.
async fn find(client: &Client, scope: &Scope, heard: &mpsc::Sender<(Scope, Heard)>) -> Option<ApiResource> {
    let mut patience = Patience::default();
    let mut said = None;
    loop {
        let (what, pause) = match discover(client, scope.kind).await {
            Ok(Some(resource)) => {
                if said.is_some() {
                    tracing::info!(kind = scope.kind.kind, "there is this kind now");
                }
                return Some(resource);
            }
            Ok(None) => (Heard::Absent, LOOK_AGAIN),
            Err(error) => {
                let pause = patience.next().unwrap_or(LOOK_AGAIN);
                (Heard::Failed(format!("{:#}", anyhow::Error::new(error))), pause)
            }
        };
        let absent = matches!(what, Heard::Absent);
        if said != Some(absent) {
            said = Some(absent);
            let (kind, group) = (scope.kind.kind, scope.kind.group);
            if let Heard::Failed(error) = &what {
                tracing::warn!(kind, group, error, "cannot ask the API server; it is tried again");
            } else {
                tracing::info!(kind, group, "the cluster has no such kind: left out until it has");
            }
            if heard.send((scope.clone(), what)).await.is_err() {
                return None;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = heard.closed() => return None,
        }
    }
}

/// How the API server calls a kind, in the best version that both know.
pub(crate) async fn discover(client: &Client, served: &Served) -> Result<Option<ApiResource>, kube::Error> {
    let installed = match served.group {
        "" => client.list_core_api_versions().await?.versions,
        group => {
            let groups = client.list_api_groups().await?.groups;
            let found = groups.into_iter().find(|found| found.name == group);
            let versions = found.map(|found| found.versions).unwrap_or_default();
            versions.into_iter().map(|version| version.version).collect()
        }
    };
    for version in served.versions.iter().filter(|version| installed.iter().any(|one| one == *version)) {
        let (api_version, listed) = if served.group.is_empty() {
            ((*version).to_owned(), client.list_core_api_resources(version).await)
        } else {
            let api_version = format!("{}/{version}", served.group);
            let listed = client.list_api_group_resources(&api_version).await;
            (api_version, listed)
        };
        let listed = match listed {
            Ok(listed) => listed,
            // Gone in this moment.
            Err(kube::Error::Api(status)) if status.code == 404 => continue,
            Err(error) => return Err(error),
        };
        let kind = |one: &APIResource| one.kind == served.kind && !one.name.contains('/');
        if let Some(found) = listed.resources.into_iter().find(kind) {
            return Ok(Some(ApiResource {
                group: served.group.to_owned(),
                version: (*version).to_owned(),
                api_version,
                kind: found.kind,
                plural: found.name,
            }));
        }
    }
    Ok(None)
}

/// Pauses between tries: from a tenth of a second to five, each up to half longer or shorter than the last one doubled,
/// so that nodes do not all come back at once.
#[derive(Debug, Default)]
struct Patience {
    tries: u32,
}

impl Iterator for Patience {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let full = Duration::from_millis(100 << self.tries.min(6)).min(Duration::from_secs(5));
        self.tries += 1;
        // Every RandomState has keys of its own.
        let random = RandomState::new().hash_one(self.tries) % 1000;
        Some(full / 2 + full * u32::try_from(random).unwrap_or(0) / 1000)
    }
}

impl Backoff for Patience {
    fn reset(&mut self) {
        self.tries = 0;
    }
}
