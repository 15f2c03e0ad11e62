//! The key of the flow hash: made once, kept in the state directory, shared between nodes that must choose alike.

use std::{fs, io, os::unix::fs::OpenOptionsExt as _, path::Path};

use anyhow::{Context as _, bail};

/// The key's file in the state directory.
pub(super) const FILE: &str = "hash-key";

/// Reads the key, or makes one on the first start: a file of 32 hexadecimal digits, `hash-key`.
///
/// # Errors
/// When the file is there but is no key: making another one would move every flow's slot.
pub(super) fn load_or_create(state_dir: &Path) -> anyhow::Result<[u64; 2]> {
    let path = state_dir.join(FILE);
    match fs::read_to_string(&path) {
        Ok(text) => match u128::from_str_radix(text.trim(), 16) {
            Ok(key) if text.trim().len() == 32 => Ok(words(key)),
            _ => bail!(
                "{} is not a key of 32 hexadecimal digits; restore it, or remove it to get a new one",
                path.display()
            ),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(&path),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}

fn create(path: &Path) -> anyhow::Result<[u64; 2]> {
    let mut bytes = [0; 16];
    io::Read::read_exact(&mut fs::File::open("/dev/urandom").context("open /dev/urandom")?, &mut bytes)
        .context("read /dev/urandom")?;
    let key = u128::from_be_bytes(bytes);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("make {}", path.display()))?;
    io::Write::write_all(&mut file, format!("{key:032x}\n").as_bytes())
        .with_context(|| format!("write {}", path.display()))?;
    Ok(words(key))
}

/// Both halves of the key.
fn words(key: u128) -> [u64; 2] {
    let half = |shift: u32| (key >> shift & u128::from(u64::MAX)).try_into().unwrap_or(u64::MAX);
    [half(64), half(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_key_at_every_start() {
        let dir = tempfile::tempdir().unwrap();
        let key = load_or_create(dir.path()).unwrap();
        assert_eq!(load_or_create(dir.path()).unwrap(), key);
        assert_ne!(load_or_create(tempfile::tempdir().unwrap().path()).unwrap(), key);
    }

    #[test]
    fn a_damaged_key_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), "12").unwrap();
        assert!(load_or_create(dir.path()).is_err());
    }
}
