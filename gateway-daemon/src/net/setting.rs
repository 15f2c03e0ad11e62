//! Settings under `/proc/sys/net`, of the namespace of the calling thread.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::Error;
use crate::record::{Record, Setting};

const ROOT: &str = "/proc/sys/net";

/// The same of a container, whose own is read-only: where its pod mounts the node's.
const MOUNTED: &str = "/host/proc/sys/net";

/// Switches forwarding on for an interface, where it is off and the family is there at all.
pub(super) fn enable_forwarding(interface: &str, record: &mut Record) -> Result<(), Error> {
    let root = if Path::new(MOUNTED).is_dir() { MOUNTED } else { ROOT };
    let of =
        |family: &str, setting: &str| Path::new(root).join(family).join("conf").join(interface).join(setting);
    set(of("ipv4", "forwarding"), "0", "1", record)?;
    // An interface that forwards stops taking router advertisements unless told that it should all the same. Before
    // forwarding goes on, because the routes that it has from them would be dropped at once.
    set(of("ipv6", "accept_ra"), "1", "2", record)?;
    set(of("ipv6", "forwarding"), "0", "1", record)
}

/// Changes a setting from one value to another; leaves it alone when it has neither, or is not there.
fn set(path: PathBuf, from: &str, to: &str, record: &mut Record) -> Result<(), Error> {
    let Some(before) = read(&path)? else {
        return Ok(());
    };
    if before != from {
        return Ok(());
    }
    let setting = Setting { path: path.clone(), before, after: to.to_owned() };
    record.change(|changes| {
        changes.settings.retain(|known| known.path != setting.path);
        changes.settings.push(setting);
    })?;
    fs::write(&path, to).map_err(|source| Error::Setting { path, source })
}

/// Puts back every setting that is still as the daemon left it, last changed first.
pub(super) fn restore(record: &mut Record) -> Result<(), Error> {
    while let Some(setting) = record.changes().settings.last().cloned() {
        // Gone with its interface, or changed by somebody else since: theirs.
        if read(&setting.path)?.as_ref() == Some(&setting.after) {
            fs::write(&setting.path, &setting.before)
                .map_err(|source| Error::Setting { path: setting.path.clone(), source })?;
        }
        record.change(|changes| {
            changes.settings.pop();
        })?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Setting { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_put_back_unless_somebody_changed_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::open(&folder.path().join("state")).unwrap();
        let path = |name: &str| folder.path().join(name);
        for (name, value) in [("off", "0\n"), ("on", "1\n"), ("touched", "0\n")] {
            fs::write(path(name), value).unwrap();
            set(path(name), "0", "1", &mut record).unwrap();
        }
        set(path("missing"), "0", "1", &mut record).unwrap();
        assert_eq!(record.changes().settings.len(), 2);
        assert_eq!(fs::read_to_string(path("off")).unwrap(), "1");

        fs::write(path("touched"), "2\n").unwrap();
        restore(&mut record).unwrap();
        assert_eq!(fs::read_to_string(path("off")).unwrap(), "0");
        assert_eq!(fs::read_to_string(path("on")).unwrap(), "1\n");
        assert_eq!(fs::read_to_string(path("touched")).unwrap(), "2\n");
        assert_eq!(record.changes().settings, []);
    }
}
