//! Resources from files: manifests on disk, watched.
//!
//! [`scan`] finds the files, [`Loader`] reads them and remembers what was good, [`watch()`] does that again whenever
//! something changes.

mod memory;
mod scan;
mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use self::memory::Memory;
pub use self::watch::{Watch, watch};
use super::{
    Loaded,
    yaml::{self, SyntaxFault},
};
use crate::api::{Diagnostic, Key, Place, Resource, Resources, Severity, decode::decode, node::Position};

/// Reads manifests, again and again. A file that goes bad keeps what it had when it was good last.
#[derive(Debug)]
pub struct Loader {
    paths: Vec<PathBuf>,
    files: BTreeMap<PathBuf, File>,
    /// Which file each object is from: when two have it, the one that had it first keeps it.
    owners: BTreeMap<(&'static str, Key), PathBuf>,
    /// Faults of paths, as of the last load.
    path_faults: Vec<Diagnostic>,
    /// Where good files are remembered over restarts.
    memory: Option<Memory>,
}

/// A file as read last.
#[derive(Debug, Default)]
struct File {
    /// Contents; none if they could not be read.
    text: Option<Vec<u8>>,
    /// Its objects, as of the last time it was good; if it never was, those that are good.
    objects: Vec<Resource>,
    /// Whether it was ever good.
    was_good: bool,
    /// What is to be said about it.
    faults: Vec<Diagnostic>,
}

/// What a load found.
#[derive(Debug)]
pub struct Load {
    /// What there is now.
    pub loaded: Loaded,
    /// Whether anything differs from the load before.
    pub changed: bool,
}

/// Larger files are not manifests.
const FILE_MAX: u64 = 16 * 1024 * 1024;

impl Loader {
    /// A loader of these files and directories.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let (files, owners) = (BTreeMap::new(), BTreeMap::new());
        Self { paths, files, owners, path_faults: Vec::new(), memory: None }
    }

    /// Remembers in a directory of its own what was good, and begins with what is remembered there: a file that is bad
    /// or away at the start has what it had before.
    #[must_use]
    pub fn remembering(mut self, dir: PathBuf) -> Self {
        let memory = Memory::new(dir);
        for (path, text) in memory.recall() {
            let name: Arc<str> = path.display().to_string().into();
            let (objects, faults) = parse(&name, text.as_bytes());
            // Another version of the daemon may find fault with what was good.
            if is_good(&faults) {
                self.files.insert(path, File { objects, was_good: true, ..File::default() });
            }
        }
        self.memory = Some(memory);
        self
    }

    /// Reads everything that has changed.
    pub fn load(&mut self) -> Load {
        self.load_scanned(scan::scan(&self.paths))
    }

    fn load_scanned(&mut self, scan: scan::Scan) -> Load {
        let mut changed = scan.faults != self.path_faults;
        self.path_faults = scan.faults;
        let gone = |path: &PathBuf| {
            !scan.files.contains(path)
                && !scan.unreadable.iter().any(|unreadable| path.starts_with(unreadable))
        };
        let gone: Vec<PathBuf> = self.files.keys().filter(|path| gone(path)).cloned().collect();
        changed |= !gone.is_empty();
        for path in gone {
            self.files.remove(&path);
            self.remember(&path, None);
        }
        for path in &scan.files {
            self.files.entry(path.clone()).or_default();
        }
        let mut good = Vec::new();
        for (path, file) in self.files.iter_mut().filter(|(path, _)| scan.files.contains(*path)) {
            if file.read(path) {
                changed = true;
                good.extend(file.good_text().map(|text| (path.clone(), text)));
            }
        }
        for (path, text) in good {
            self.remember(&path, Some(&text));
        }
        Load { loaded: self.merge(), changed }
    }

    /// Remembers a good file, or forgets one that is gone.
    fn remember(&self, path: &Path, text: Option<&[u8]>) {
        let Some(memory) = &self.memory else { return };
        let done = text.map_or_else(|| memory.forget(path), |text| memory.keep(path, text));
        if let Err(error) = done {
            tracing::warn!(path = %path.display(), %error, "cannot remember the file over a restart");
        }
    }

    /// All objects of all files. Of those that are defined twice, one is kept and the other is a fault.
    fn merge(&mut self) -> Loaded {
        let mut owners: BTreeMap<(&'static str, Key), PathBuf> = BTreeMap::new();
        let mut resources = Resources::default();
        let mut faults = self.path_faults.clone();
        let mut first_places: BTreeMap<_, Option<Place>> = BTreeMap::new();
        // Former owners first, so that a new double cannot take the place of what is served.
        for former in [true, false] {
            for (path, file) in &self.files {
                for object in &file.objects {
                    let id = (object.kind(), object.key());
                    if (self.owners.get(&id) == Some(path)) != former {
                        continue;
                    }
                    let place = object.origin().map(|origin| origin.place("metadata.name"));
                    if let Some(first) = first_places.get(&id) {
                        faults.push(duplicate(object, place, first.as_ref()));
                        continue;
                    }
                    first_places.insert(id.clone(), place);
                    owners.insert(id, path.clone());
                    resources.insert(object.clone());
                }
            }
        }
        self.owners = owners;
        faults.extend(self.files.values().flat_map(|file| file.faults.iter().cloned()));
        faults.sort();
        Loaded { resources: Arc::new(resources), faults, heard: None, assigned: None }
    }
}

fn duplicate(object: &Resource, place: Option<Place>, first: Option<&Place>) -> Diagnostic {
    let title = format!("{} {}", object.kind(), object.key());
    let first = first.map_or_else(|| "elsewhere".to_owned(), |first| format!("at {first}"));
    Diagnostic {
        place,
        message: format!("{title} is already defined {first}: remove one of them"),
        object: Some(title),
        severity: Severity::Error,
        code: "duplicate-object",
    }
}

impl File {
    /// Reads the file if it has changed, and says whether it had.
    fn read(&mut self, path: &Path) -> bool {
        let name: Arc<str> = path.display().to_string().into();
        let text = match contents(path) {
            Ok(text) => text,
            Err(error) => {
                let faults = vec![Diagnostic {
                    place: None,
                    object: Some(name.to_string()),
                    severity: Severity::Error,
                    code: "file-unreadable",
                    message: format!("cannot be read: {error}"),
                }];
                let changed = self.faults != faults;
                (self.text, self.faults) = (None, faults);
                return changed;
            }
        };
        if self.text.as_ref() == Some(&text) {
            return false;
        }
        let (objects, faults) = parse(&name, &text);
        let good = is_good(&faults);
        if good || !self.was_good {
            self.objects = objects;
        }
        self.was_good |= good;
        (self.text, self.faults) = (Some(text), faults);
        true
    }

    /// What it holds, when that is good.
    fn good_text(&self) -> Option<Vec<u8>> {
        self.text.clone().filter(|_| is_good(&self.faults))
    }
}

fn is_good(faults: &[Diagnostic]) -> bool {
    faults.iter().all(|fault| fault.severity != Severity::Error)
}

/// The files that these paths name or contain, and what is to be said about paths.
pub(crate) fn find(paths: &[PathBuf]) -> (BTreeSet<PathBuf>, Vec<Diagnostic>) {
    let scan = scan::scan(paths);
    (scan.files, scan.faults)
}

/// What a file holds, if it is not too large for a manifest.
pub(crate) fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    fs::File::open(path)?.take(FILE_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE_MAX {
        return Err(io::Error::other(format!("it has more than {FILE_MAX} bytes")));
    }
    Ok(text)
}

/// The good objects of a text, and what is to be said about it.
pub(crate) fn parse(name: &Arc<str>, text: &[u8]) -> (Vec<Resource>, Vec<Diagnostic>) {
    let (documents, syntax) = match str::from_utf8(text) {
        Ok(text) => {
            let read = yaml::parse(text);
            (read.documents, read.faults)
        }
        Err(error) => (Vec::new(), vec![not_utf8(text, error.valid_up_to())]),
    };
    let mut faults: Vec<Diagnostic> = syntax
        .into_iter()
        .map(|SyntaxFault { at, code, message }| {
            let place = Some(Place { file: Arc::clone(name), line: at.line, column: at.column });
            Diagnostic { place, object: None, severity: Severity::Error, code, message }
        })
        .collect();
    let bad_syntax = !faults.is_empty();
    let mut objects: Vec<Resource> =
        documents.iter().flat_map(|document| decode(document, name, &mut faults)).collect();
    if bad_syntax {
        // Where the text itself is broken, nobody knows where a document ends.
        objects.clear();
    }
    let mut seen: BTreeMap<_, Option<Place>> = BTreeMap::new();
    for object in &objects {
        let place = object.origin().map(|origin| origin.place("metadata.name"));
        if let Some(first) = seen.get(&(object.kind(), object.key())) {
            faults.push(duplicate(object, place, first.as_ref()));
        } else {
            seen.insert((object.kind(), object.key()), place);
        }
    }
    let mut known = BTreeSet::new();
    objects.retain(|object| known.insert((object.kind(), object.key())));
    (objects, faults)
}

fn not_utf8(text: &[u8], valid: usize) -> SyntaxFault {
    let before = String::from_utf8_lossy(&text[..valid]);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let message = "the file is not UTF-8 here: save it as UTF-8".to_owned();
    SyntaxFault { at: Position { line, column }, code: "not-utf8", message }
}

#[cfg(test)]
mod tests;
