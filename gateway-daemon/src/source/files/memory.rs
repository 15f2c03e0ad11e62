//! What each file was when it was good last, kept over restarts.
//!
//! One file in a directory of its own for each manifest: the path and the text, as JSON, for root's eyes only, since
//! manifests hold keys.

use std::{
    collections::BTreeMap,
    fs, io,
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The directory.
#[derive(Debug)]
pub(super) struct Memory {
    dir: PathBuf,
}

#[derive(Deserialize, Serialize)]
struct Good {
    path: PathBuf,
    text: String,
}

impl Memory {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Everything that is remembered, by path. What cannot be read is not remembered.
    pub(super) fn recall(&self) -> BTreeMap<PathBuf, String> {
        let Ok(entries) = fs::read_dir(&self.dir) else { return BTreeMap::new() };
        let read = |entry: fs::DirEntry| serde_json::from_slice::<Good>(&fs::read(entry.path()).ok()?).ok();
        entries.flatten().filter_map(read).map(|good| (good.path, good.text)).collect()
    }

    /// Remembers a file as it is now.
    pub(super) fn keep(&self, path: &Path, text: &[u8]) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let good = Good { path: path.to_owned(), text: String::from_utf8_lossy(text).into_owned() };
        let new = self.dir.join("new");
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(&good)?)?;
        fs::rename(new, self.place(path))
    }

    /// Forgets a file that is gone.
    pub(super) fn forget(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(self.place(path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn place(&self, path: &Path) -> PathBuf {
        self.dir.join(format!("{:x}", Sha256::digest(path.as_os_str().as_encoded_bytes())))
    }
}
