//! Volumes: files below the root folder of a container.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Container, KeyToPath, Pod, Secret, Volume, VolumeMount};
use kube::{Api, Client, ResourceExt as _};
use tokio::time::sleep;

/// The suite makes Secrets after the Deployments that mount them.
const PAUSE: Duration = Duration::from_millis(200);

/// Writes the volumes that `container` mounts below `root`, waiting for objects that do not exist yet.
///
/// # Errors
/// When a volume is of a kind that there is not here.
pub(super) async fn write(client: &Client, pod: &Pod, container: &Container, root: &Path) -> Result<()> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    for mount in container.volume_mounts.iter().flatten() {
        let volume = volumes.iter().find(|volume| volume.name == mount.name);
        let volume = volume.with_context(|| format!("the pod has no volume {}", mount.name))?;
        // The token that every pod gets; nothing in the suite uses it.
        if volume.projected.is_some() {
            continue;
        }
        let namespace = pod.namespace().context("a pod has a namespace")?;
        let files = files(client, &namespace, volume).await?;
        let dir = below(root, mount)?;
        for (path, content) in files {
            put(&dir, &path, &content)?;
        }
    }
    Ok(())
}

/// The files of a volume by their path in it.
async fn files(client: &Client, namespace: &str, volume: &Volume) -> Result<BTreeMap<String, Vec<u8>>> {
    loop {
        let found = if let Some(source) = &volume.secret {
            let name = source.secret_name.as_deref().unwrap_or_default();
            let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
            secrets
                .get_opt(name)
                .await?
                .and_then(|secret| select(secret_data(secret), source.items.as_deref()))
        } else if let Some(source) = &volume.config_map {
            let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
            maps.get_opt(&source.name).await?.and_then(|map| select(map_data(map), source.items.as_deref()))
        } else {
            bail!("the volume {} is neither of a Secret nor of a ConfigMap", volume.name);
        };
        match found {
            Some(files) => return Ok(files),
            None => sleep(PAUSE).await,
        }
    }
}

fn secret_data(secret: Secret) -> BTreeMap<String, Vec<u8>> {
    secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect()
}

fn map_data(map: ConfigMap) -> BTreeMap<String, Vec<u8>> {
    let text = map.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.into_bytes()));
    text.chain(map.binary_data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0))).collect()
}

/// All keys, or those that are listed at the paths that are given; none while a listed one is missing.
fn select(
    mut data: BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
) -> Option<BTreeMap<String, Vec<u8>>> {
    match items {
        None | Some([]) => Some(data),
        Some(items) => items.iter().map(|item| Some((item.path.clone(), data.remove(&item.key)?))).collect(),
    }
}

/// Where a mount is, seen from outside.
fn below(root: &Path, mount: &VolumeMount) -> Result<PathBuf> {
    ensure!(mount.sub_path.is_none() && mount.sub_path_expr.is_none(), "a mount of part of a volume");
    Ok(root.join(relative(&mount.mount_path)?))
}

fn put(dir: &Path, path: &str, content: &[u8]) -> Result<()> {
    let file = dir.join(relative(path)?);
    let parent = file.parent().context("a file has a folder")?;
    fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))?;
    fs::write(&file, content).with_context(|| format!("write {}", file.display()))
}

/// A path that stays below whatever it is joined to.
fn relative(path: &str) -> Result<&Path> {
    let path = Path::new(path.trim_start_matches('/'));
    let stays = path.components().all(|part| matches!(part, Component::Normal(_)));
    ensure!(stays, "the path {} leaves its folder", path.display());
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::KeyToPath;

    use super::{relative, select};

    #[test]
    fn a_volume_waits_for_every_listed_key() {
        let data =
            BTreeMap::from([("tls.crt".to_owned(), b"c".to_vec()), ("other".to_owned(), b"o".to_vec())]);
        let item = |key: &str| KeyToPath { key: key.to_owned(), path: "crt".to_owned(), mode: None };
        let listed = select(data.clone(), Some(&[item("tls.crt")])).unwrap();
        assert_eq!(listed, BTreeMap::from([("crt".to_owned(), b"c".to_vec())]));
        assert_eq!(select(data.clone(), Some(&[item("tls.key")])), None);
        assert_eq!(select(data.clone(), None), Some(data));
    }

    #[test]
    fn no_path_leaves_its_folder() {
        assert!(relative("/etc/secret-volume").is_ok());
        assert!(relative("/etc/../../run").is_err());
    }
}
