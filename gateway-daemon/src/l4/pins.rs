//! Where maps and links are pinned, and what is there already.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use aya::maps::MapInfo;
use gateway_common::{
    Backend, Config, Count, Device, Flow, FlowKey4, FlowKey6, Reply4, Reply6, ReplyKey4, ReplyKey6, Service,
    ServiceCount, ServiceKey,
    maps::{
        ALL, BACKEND_STATS, BACKENDS, CLAIMS4, CLAIMS6, CONFIG, COUNTERS, DEVICES, FLOWS4, FLOWS6, LAYOUT,
        OPENING4, OPENING6, REPLIES4, REPLIES6, SERVICE_STATS, SERVICES, TABLES,
    },
};
use rustix::{
    fs::FlockOperation,
    mount::{MountFlags, mount},
};

use super::error::Error;
use crate::record::Record;

/// Where every system with a BPF file system has it.
const BPFFS: &str = "/sys/fs/bpf";
/// `BPF_FS_MAGIC` of the kernel's include/uapi/linux/magic.h.
const BPFFS_MAGIC: i64 = 0xcafe_4a11;
/// Name of the folder that marks the layout. bpffs takes folders and pins only, and no dots in their names.
pub(super) const LAYOUT_MARK: &str = "layout_";

/// The folder of pins, this process's own as long as it is held.
#[derive(Debug)]
pub(super) struct Pins {
    dir: PathBuf,
    _lock: fs::File,
}

impl Pins {
    /// Makes the folder, on a BPF file system, mounting one where there is none.
    pub(super) fn open(dir: &Path, record: &mut Record) -> Result<Self, Error> {
        if !is_bpffs(dir)? {
            mount_bpffs(if dir.starts_with(BPFFS) { Path::new(BPFFS) } else { dir }, record)?;
        }
        make(dir, record)?;
        let lock = lock(dir)?;
        record.change(|changes| changes.pin_dir = Some(dir.to_owned()))?;
        Ok(Self { dir: dir.to_owned(), _lock: lock })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Path of a map's pin.
    pub(super) fn map(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Whether there are maps to adopt. Where there are none, marks the layout.
    pub(super) fn check_maps(&self) -> Result<bool, Error> {
        let other = |what| Error::OtherLayout { pin_dir: self.dir.clone(), what };
        let entries = names(&self.dir)?;
        let pinned: Vec<_> = ALL.into_iter().filter(|map| entries.iter().any(|entry| entry == map)).collect();
        let mark = format!("{LAYOUT_MARK}{LAYOUT}");
        if pinned.is_empty() {
            for stale in entries.iter().filter(|entry| entry.starts_with(LAYOUT_MARK) && **entry != mark) {
                let path = self.dir.join(stale);
                fs::remove_dir(&path).map_err(|source| Error::File { path, source })?;
            }
            let path = self.dir.join(mark);
            match fs::create_dir(&path) {
                Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(Error::File { path, source });
                }
                _ => {}
            }
            return Ok(false);
        }
        if !entries.contains(&mark) {
            let found = entries.iter().find(|entry| entry.starts_with(LAYOUT_MARK));
            return Err(other(format!(
                "{}, this one has {mark}",
                found.map_or("no layout", |entry| entry.as_str())
            )));
        }
        for map in pinned {
            let info = MapInfo::from_pin(self.map(map)).map_err(Error::map(map))?;
            let found = (info.key_size() as usize, info.value_size() as usize);
            let expected = sizes(map);
            if found != expected {
                return Err(other(format!("{map} has keys and values of {found:?} bytes, not {expected:?}")));
            }
        }
        Ok(true)
    }
}

/// Takes a folder of pins for this process, until the file is dropped.
///
/// # Errors
/// `InUse` when another process has it: two writers of the same maps would undo each other's work.
pub(super) fn lock(dir: &Path) -> Result<fs::File, Error> {
    let file_error = |source| Error::File { path: dir.to_owned(), source };
    let file = fs::File::open(dir).map_err(file_error)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::InUse { pin_dir: dir.to_owned() }),
        Err(error) => Err(file_error(error.into())),
    }
}

/// Names of all entries of a folder.
pub(super) fn names(dir: &Path) -> Result<Vec<String>, Error> {
    let file_error = |source| Error::File { path: dir.to_owned(), source };
    let entries = fs::read_dir(dir).map_err(file_error)?;
    entries.map(|entry| Ok(entry.map_err(file_error)?.file_name().to_string_lossy().into_owned())).collect()
}

/// Sizes of a map's key and value, as [`gateway_common`] has them.
fn sizes(map: &str) -> (usize, usize) {
    const fn of<K, V>() -> (usize, usize) {
        (size_of::<K>(), size_of::<V>())
    }
    match map {
        SERVICES => of::<ServiceKey, Service>(),
        BACKENDS => of::<u32, Backend>(),
        FLOWS4 | OPENING4 => of::<FlowKey4, Flow>(),
        FLOWS6 | OPENING6 => of::<FlowKey6, Flow>(),
        REPLIES4 | CLAIMS4 => of::<ReplyKey4, Reply4>(),
        REPLIES6 | CLAIMS6 => of::<ReplyKey6, Reply6>(),
        DEVICES => of::<u32, Device>(),
        CONFIG => of::<u32, Config>(),
        COUNTERS => of::<u32, Count>(),
        SERVICE_STATS | BACKEND_STATS => of::<u32, ServiceCount>(),
        TABLES => of::<u32, u32>(),
        // `names_have_sizes` checks every name of `ALL`.
        _ => (0, 0),
    }
}

/// Whether the folder is, or would be made, on a BPF file system.
fn is_bpffs(dir: &Path) -> Result<bool, Error> {
    let nearest = dir.ancestors().find(|path| path.exists()).unwrap_or_else(|| Path::new("/"));
    let found = rustix::fs::statfs(nearest)
        .map_err(|source| Error::File { path: nearest.to_owned(), source: source.into() })?;
    Ok(found.f_type == BPFFS_MAGIC)
}

/// Mounts a BPF file system, unless another process does so at the same moment.
fn mount_bpffs(at: &Path, record: &mut Record) -> Result<(), Error> {
    make(at, record)?;
    let mount_error = |source: rustix::io::Errno| Error::Mount { path: at.to_owned(), source: source.into() };
    // Locks the folder beneath: who waited for it finds the file system mounted above.
    let beneath = fs::File::open(at).map_err(|source| Error::File { path: at.to_owned(), source })?;
    rustix::fs::flock(&beneath, FlockOperation::LockExclusive).map_err(mount_error)?;
    if is_bpffs(at)? {
        return Ok(());
    }
    record.change(|changes| changes.mounts.push(at.to_owned()))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("bpffs", at, "bpf", flags, None).map_err(mount_error)
}

/// Makes a folder and those above it, and notes which were not there.
fn make(dir: &Path, record: &mut Record) -> Result<(), Error> {
    let mut missing: Vec<_> = dir.ancestors().take_while(|path| !path.exists()).map(Path::to_owned).collect();
    missing.reverse();
    record.change(|changes| changes.folders.extend(missing))?;
    fs::create_dir_all(dir).map_err(|source| Error::File { path: dir.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_sizes() {
        for map in ALL {
            assert_ne!(sizes(map), (0, 0), "{map}");
        }
    }
}
