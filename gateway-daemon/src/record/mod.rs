//! What the daemon has changed on this node, one file in the state directory.
//!
//! Each change is written down before it is made, so that `gatewayd cleanup` can undo it after a crash, and after a
//! restart the daemon knows its own changes from the operator's.
//!
//! Not here: making or undoing a change (`net`, `l4`).

use std::{
    fs::{self, File},
    io::{self, Write as _},
    net::IpAddr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

const FILE: &str = "node.json";

/// The file is not there, not readable, not writable, or not ours.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file or its folder could not be read.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// The file or its folder could not be written.
    #[error("write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// The file does not hold what this version writes.
    #[error("{} is not a record of gatewayd's changes; move it away to start without one", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// The changes, in memory and on disk.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    changes: Changes,
}

/// Changes that `cleanup` undoes.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Changes {
    /// Where maps and links are pinned.
    pub pin_dir: Option<PathBuf>,
    /// Folders that were made.
    pub folders: Vec<PathBuf>,
    /// File systems that were mounted.
    pub mounts: Vec<PathBuf>,
    /// Addresses that were put on an interface.
    pub addresses: Vec<Address>,
    /// Settings under `/proc/sys` that were changed.
    pub settings: Vec<Setting>,
}

/// An address that was put on an interface.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Address {
    /// The address; its prefix is as long as it can be.
    pub address: IpAddr,
    /// Name of the interface.
    pub interface: String,
}

/// A changed setting.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// The file under `/proc/sys`.
    pub path: PathBuf,
    /// What it held before.
    pub before: String,
    /// What the daemon wrote.
    pub after: String,
}

impl Record {
    /// Reads the record of a state directory; an empty one when there is none.
    ///
    /// # Errors
    /// When there is one that cannot be read or understood.
    pub fn open(state_dir: &Path) -> Result<Self, Error> {
        let path = state_dir.join(FILE);
        let changes = match fs::read(&path) {
            Ok(json) => {
                serde_json::from_slice(&json).map_err(|source| Error::Parse { path: path.clone(), source })?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Changes::default(),
            Err(source) => return Err(Error::Read { path, source }),
        };
        Ok(Self { path, changes })
    }

    /// What has been changed.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Changes the record, on disk first. Call it before the change of the node when something is added, after it
    /// when something is taken back.
    ///
    /// # Errors
    /// When the file cannot be written; the record is as before then, and so must the node be.
    pub fn change(&mut self, change: impl FnOnce(&mut Changes)) -> Result<(), Error> {
        let mut changes = self.changes.clone();
        change(&mut changes);
        if changes != self.changes {
            self.write(&changes).map_err(|source| Error::Write { path: self.path.clone(), source })?;
            self.changes = changes;
        }
        Ok(())
    }

    fn write(&self, changes: &Changes) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or_else(|| Path::new("/"));
        if *changes == Changes::default() {
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        fs::create_dir_all(folder)?;
        let temporary = self.path.with_extension("json.new");
        let mut file = File::create(&temporary)?;
        serde_json::to_writer_pretty(&mut file, changes)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&temporary, &self.path)?;
        File::open(folder)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_on_disk_and_an_empty_record_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let state_dir = folder.path().join("state");
        let mut record = Record::open(&state_dir).unwrap();
        assert_eq!(record.changes(), &Changes::default());

        let address = Address { address: "198.18.0.1".parse().unwrap(), interface: "eth0".into() };
        record.change(|changes| changes.addresses.push(address.clone())).unwrap();
        assert_eq!(Record::open(&state_dir).unwrap().changes().addresses, [address]);

        record.change(|changes| changes.addresses.clear()).unwrap();
        assert_eq!(fs::read_dir(&state_dir).unwrap().count(), 0);
    }

    #[test]
    fn a_foreign_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), "{\"mount\": 1}").unwrap();
        let error = Record::open(folder.path()).unwrap_err();
        assert!(error.to_string().contains("node.json is not a record"), "{error}");
    }
}
