//! Which files there are.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use crate::api::{Diagnostic, Severity};

/// What the user's paths lead to.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Files to read, by the path that leads to them.
    pub(super) files: BTreeSet<PathBuf>,
    /// Directories that must be watched to notice every change.
    pub(super) directories: BTreeSet<PathBuf>,
    /// What could not be looked into: what was known below is still known.
    pub(super) unreadable: Vec<PathBuf>,
    /// What is to be said about paths.
    pub(super) faults: Vec<Diagnostic>,
    /// Real path of everything found, so that a file with two names is read once, and links in circles end.
    seen: BTreeMap<PathBuf, PathBuf>,
}

/// Finds the files that `paths` name or contain. A path that does not exist is a fault.
pub(super) fn scan(paths: &[PathBuf]) -> Scan {
    let mut scan = Scan::default();
    for path in paths {
        scan.watch_parent(path);
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => scan.directory(path),
            Ok(metadata) if metadata.is_file() => scan.file(path),
            // Reading a pipe or a device waits for whoever writes, and what was read is gone the next time.
            Ok(_) => scan.fault(path, &io::Error::other("it is neither a file nor a directory")),
            Err(error) => scan.fault(path, &error),
        }
    }
    scan
}

impl Scan {
    fn directory(&mut self, directory: &Path) {
        if !self.is_new(directory) {
            return;
        }
        self.directories.insert(real(directory));
        let entries = fs::read_dir(directory).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut paths: Vec<PathBuf> = match entries {
            Ok(entries) => entries.iter().map(fs::DirEntry::path).collect(),
            Err(error) => return self.fault(directory, &error),
        };
        paths.sort();
        for path in paths.iter().filter(|path| !is_hidden(path)) {
            // Follows links; a link to nothing is an editor's lock or a swap in progress.
            match fs::metadata(path) {
                Ok(metadata) if metadata.is_dir() => self.directory(path),
                Ok(metadata) if metadata.is_file() && has_manifest_extension(path) => self.file(path),
                Err(error) if error.kind() != io::ErrorKind::NotFound => self.fault(path, &error),
                _ => {}
            }
        }
    }

    fn file(&mut self, file: &Path) {
        if self.is_new(file) {
            self.files.insert(file.to_owned());
            // A link's target changes without an event where the link is.
            self.watch_parent(&real(file));
        }
    }

    fn is_new(&mut self, path: &Path) -> bool {
        self.seen.insert(real(path), path.to_owned()).is_none()
    }

    /// Watches the directory that `path` is in, or the nearest one that exists.
    fn watch_parent(&mut self, path: &Path) {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        if let Some(parent) = absolute.ancestors().skip(1).find(|parent| parent.is_dir()) {
            self.directories.insert(real(parent));
        }
    }

    fn fault(&mut self, path: &Path, error: &io::Error) {
        let missing = error.kind() == io::ErrorKind::NotFound;
        self.unreadable.push(path.to_owned());
        self.faults.push(Diagnostic {
            place: None,
            object: Some(path.display().to_string()),
            severity: Severity::Error,
            code: if missing { "path-not-found" } else { "path-unreadable" },
            message: format!("cannot be read: {error}; what it had when it was there last is still served"),
        });
    }
}

fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Names that start with a dot (also `..data` of a mounted ConfigMap, whose files have links beside it), and what
/// editors leave.
fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(['.', '#']) || name.ends_with('~')
}

fn has_manifest_extension(path: &Path) -> bool {
    path.extension().is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|known| extension == *known))
}
