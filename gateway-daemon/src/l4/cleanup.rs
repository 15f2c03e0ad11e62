//! Taking everything away, with or without a daemon.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use gateway_common::maps::ALL;
use rustix::mount::{UnmountFlags, unmount};

use super::{
    attach::{LINK_PREFIX, detach},
    error::Error,
    pins::{LAYOUT_MARK, lock, names},
};
use crate::record::Record;

/// What was left, because something that is not gatewayd's is in it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Left {
    /// Folders and mounted file systems.
    pub paths: Vec<PathBuf>,
}

/// Detaches the programs, removes all pins, and with the last of them the maps and their flows; then unmounts what
/// was mounted and removes the folders that were made.
///
/// `pin_dir` counts when the record does not know one.
///
/// # Errors
/// When something cannot be removed; the record still has it then.
pub fn cleanup(pin_dir: &Path, record: &mut Record) -> Result<Left, Error> {
    let dir = record.changes().pin_dir.clone().unwrap_or_else(|| pin_dir.to_owned());
    if dir.exists() {
        let _lock = lock(&dir)?;
        remove_pins(&dir)?;
    }
    let mut left = Left::default();
    // Last made, first removed; what is made on a mounted file system goes before it is unmounted.
    let changes = record.changes().clone();
    let (inside, outside): (Vec<_>, Vec<_>) =
        changes.folders.iter().rev().partition(|folder| {
            changes.mounts.iter().any(|mount| folder.starts_with(mount) && *folder != mount)
        });
    for folder in inside {
        remove_folder(folder, &mut left)?;
    }
    for mount in changes.mounts.iter().rev() {
        if is_unused(mount) {
            match unmount(mount, UnmountFlags::empty()) {
                // Unmounted by somebody else, or after a reboot.
                Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
                Err(source) => return Err(Error::Mount { path: mount.clone(), source: source.into() }),
            }
        } else {
            left.paths.push(mount.clone());
        }
    }
    let still_mounted = left.paths.clone();
    for folder in outside.into_iter().filter(|folder| !still_mounted.contains(folder)) {
        remove_folder(folder, &mut left)?;
    }
    record.change(|changes| {
        changes.pin_dir = None;
        changes.mounts.clear();
        changes.folders.clear();
    })?;
    Ok(left)
}

/// Whether nothing is pinned on a mounted BPF file system. Its two iterators are the kernel's own.
fn is_unused(mount: &Path) -> bool {
    let own = ["maps.debug", "progs.debug"];
    names(mount).is_ok_and(|names| names.iter().all(|name| own.contains(&name.as_str())))
}

/// Links first, so that no program runs while its maps go.
fn remove_pins(dir: &Path) -> Result<(), Error> {
    let mut entries = names(dir)?;
    // XDP's links sort after TC's: take them off first, as they were put on last.
    entries.sort_unstable_by(|a, b| b.cmp(a));
    for name in entries.iter().filter(|name| name.starts_with(LINK_PREFIX)) {
        detach(&dir.join(name))?;
    }
    for name in &entries {
        let path = dir.join(name);
        let removed = if ALL.contains(&name.as_str()) {
            fs::remove_file(&path)
        } else if name.starts_with(LAYOUT_MARK) {
            fs::remove_dir(&path)
        } else {
            Ok(())
        };
        removed.map_err(|source| Error::File { path, source })?;
    }
    Ok(())
}

fn remove_folder(path: &Path, left: &mut Left) -> Result<(), Error> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => left.paths.push(path.to_owned()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::File { path: path.to_owned(), source: error });
        }
        _ => {}
    }
    Ok(())
}
