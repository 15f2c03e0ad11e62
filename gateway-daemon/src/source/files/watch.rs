//! Loads again whenever a file changes.
//!
//! A thread of its own: reading files blocks. It watches directories rather than files, since editors and kubelet
//! replace files and links instead of writing to them.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode, ModifyKind},
};
use tokio::sync::watch as channel;

use super::{Load, Loader, scan::scan};
use crate::{
    api::{Diagnostic, Severity},
    source::Loaded,
};

/// After an event, files are read once nothing has happened for so long: an editor's save is several events.
const QUIET: Duration = Duration::from_millis(75);

/// But after so long they are read anyway.
const PATIENCE: Duration = Duration::from_millis(500);

/// Files being watched, until this is dropped.
#[derive(Debug)]
pub struct Watch {
    loaded: channel::Receiver<Arc<Loaded>>,
    wake: mpsc::Sender<Wake>,
}

impl Watch {
    /// What there is now, and what there will be.
    pub fn loaded(&self) -> channel::Receiver<Arc<Loaded>> {
        self.loaded.clone()
    }

    /// Reads everything now, and publishes it even if nothing has changed.
    pub fn reload(&self) {
        // The thread ends only after this is dropped, or when nobody listens any more.
        let _ = self.wake.send(Wake::Reload);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.wake.send(Wake::Stop);
    }
}

/// What happened.
enum Wake {
    Changed(notify::Result<Event>),
    Reload,
    Stop,
}

/// Loads, and starts to watch everything that the loader's paths lead to. Never fails on account of what is
/// there or not there; that is in [`Loaded::faults`].
pub fn watch(mut files: Loader) -> io::Result<Watch> {
    let (wake, woken) = mpsc::channel();
    let events = wake.clone();
    let mut directories = Directories::default();
    // The thread hears of every event as long as it lives; afterwards nobody needs to.
    match notify::recommended_watcher(move |event| drop(events.send(Wake::Changed(event)))) {
        Ok(watcher) => directories.watcher = Some(watcher),
        Err(error) => directories.fault = Some(not_watched(&error)),
    }
    let first = load(&mut files, &mut directories).0;
    let (publish, loaded) = channel::channel(Arc::new(first));
    thread::Builder::new()
        .name("source-files".to_owned())
        .spawn(move || run(&woken, &mut files, &mut directories, &publish))?;
    Ok(Watch { loaded, wake })
}

fn run(
    woken: &mpsc::Receiver<Wake>,
    files: &mut Loader,
    directories: &mut Directories,
    publish: &channel::Sender<Arc<Loaded>>,
) {
    while let Some((forced, heard)) = wait(woken, directories) {
        let (mut loaded, changed) = load(files, directories);
        loaded.heard = Some(heard);
        if (changed || forced) && publish.send(Arc::new(loaded)).is_err() {
            return;
        }
    }
}

/// Waits until there is reason to read and then until it is quiet. Says whether someone asked, and when there was
/// first a reason; nothing at the end.
fn wait(woken: &mpsc::Receiver<Wake>, directories: &mut Directories) -> Option<(bool, Instant)> {
    let mut forced = false;
    let mut heard: Option<Instant> = None;
    loop {
        let next = match heard {
            None => woken.recv().map_err(|_closed| mpsc::RecvTimeoutError::Disconnected),
            Some(heard) => woken.recv_timeout(QUIET.min(PATIENCE.saturating_sub(heard.elapsed()))),
        };
        match next {
            Ok(Wake::Changed(event)) if !directories.concerns(&event) => {}
            Ok(Wake::Changed(_)) => heard = heard.or_else(|| Some(Instant::now())),
            Ok(Wake::Reload) => {
                forced = true;
                heard = heard.or_else(|| Some(Instant::now()));
            }
            Ok(Wake::Stop) | Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            // There is no timeout before something was heard.
            Err(mpsc::RecvTimeoutError::Timeout) => return heard.map(|heard| (forced, heard)),
        }
    }
}

/// Watches what there is, then reads it: a change in between makes an event.
fn load(files: &mut Loader, directories: &mut Directories) -> (Loaded, bool) {
    let before = directories.fault.clone();
    let scan = loop {
        let scan = scan(&files.paths);
        if !directories.follow(&scan.directories) {
            break scan;
        }
    };
    let Load { mut loaded, changed } = files.load_scanned(scan);
    loaded.faults.extend(directories.fault.clone());
    (loaded, changed || directories.fault != before)
}

/// Directories being watched.
#[derive(Default)]
struct Directories {
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    /// Why changes may go unnoticed.
    fault: Option<Diagnostic>,
}

impl Directories {
    /// Watches these directories and no others. Says whether some are new: they may have changed before they were
    /// watched.
    fn follow(&mut self, wanted: &BTreeSet<PathBuf>) -> bool {
        let Some(watcher) = &mut self.watcher else { return false };
        for old in self.watched.difference(wanted) {
            // Fails when the directory is gone, which is as good.
            let _ = watcher.unwatch(old);
        }
        self.watched.retain(|directory| wanted.contains(directory));
        let mut new = false;
        for directory in wanted.difference(&self.watched.clone()) {
            match watcher.watch(directory, RecursiveMode::NonRecursive) {
                Ok(()) => new |= self.watched.insert(directory.clone()),
                Err(error) => self.fault = Some(not_watched(&error)),
            }
        }
        new
    }

    /// Whether an event may mean a change of contents. Forgets directories that were removed or moved: if there is
    /// one of the same name again, it must be watched anew.
    fn concerns(&mut self, event: &notify::Result<Event>) -> bool {
        let Ok(event) = event else { return true };
        if matches!(event.kind, EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_))) {
            for path in &event.paths {
                self.forget(path);
            }
        }
        match event.kind {
            EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
            _ => true,
        }
    }

    fn forget(&mut self, directory: &Path) {
        if let Some(watcher) = self.watcher.as_mut().filter(|_| self.watched.remove(directory)) {
            let _ = watcher.unwatch(directory);
        }
    }
}

fn not_watched(error: &notify::Error) -> Diagnostic {
    Diagnostic {
        place: None,
        object: None,
        severity: Severity::Warning,
        code: "not-watched",
        message: format!("changes may go unnoticed: {error}; send SIGHUP after a change"),
    }
}
