//! The boot that the records are of, as a file next to the store.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use super::BookError;

/// Changes with every boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// File next to the store that says in which boot it was written.
pub const BOOT_FILE: &str = "boot-id";

fn boot_id() -> Option<String> {
    let id = fs::read_to_string(BOOT_ID).ok()?;
    Some(id.trim().to_owned())
}

/// Reads the boot that is written down; none where nothing is.
///
/// An older agent on a full disk may have left an empty file.
fn written(state_dir: &Path) -> Option<String> {
    let id = fs::read_to_string(state_dir.join(BOOT_FILE)).ok()?;
    let id = id.trim();
    (!id.is_empty()).then(|| id.to_owned())
}

/// True when the records are surely of another boot than this one.
pub(super) fn is_another(state_dir: &Path) -> bool {
    matches!((written(state_dir), boot_id()), (Some(before), Some(now)) if before != now)
}

/// Writes down this boot, whole or not at all.
///
/// A file that is left as it was would have the next start take the records of this boot for those of
/// another, and remove them with all that they name.
///
/// # Errors
/// When it cannot be written.
pub(super) fn remember(state_dir: &Path) -> Result<(), BookError> {
    let Some(id) = boot_id() else {
        tracing::warn!("the kernel does not tell its boot id; a reboot will not be noticed");
        return Ok(());
    };
    if written(state_dir).as_ref() == Some(&id) {
        return Ok(());
    }
    let path = state_dir.join(BOOT_FILE);
    write(state_dir, &path, &id).map_err(|source| BookError::Boot { path, source })
}

fn write(state_dir: &Path, path: &Path, id: &str) -> io::Result<()> {
    let draft = path.with_extension("new");
    let written = fs::File::create(&draft).and_then(|mut file| {
        file.write_all(id.as_bytes())?;
        file.sync_all()
    });
    let placed = written.and_then(|()| fs::rename(&draft, path));
    if placed.is_err() {
        // What is not finished is not left behind; the first error says why.
        let _ = fs::remove_file(&draft);
    }
    placed?;
    fs::File::open(state_dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_is_another_only_where_one_is_written_down() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(BOOT_FILE);
        assert!(!is_another(dir.path()));
        for nothing in ["", "\n"] {
            fs::write(&file, nothing).unwrap();
            assert!(!is_another(dir.path()), "{nothing:?}");
        }
        fs::write(&file, "another").unwrap();
        assert!(is_another(dir.path()));
        remember(dir.path()).unwrap();
        assert!(!is_another(dir.path()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    /// A boot that cannot be written leaves the file as it was, and stops the start.
    #[test]
    fn a_boot_that_cannot_be_written_down_is_an_error_and_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(BOOT_FILE);
        fs::write(&file, "another").unwrap();
        // In the way of the draft, whoever asks.
        fs::create_dir(file.with_extension("new")).unwrap();
        let error = remember(dir.path()).unwrap_err();
        assert!(error.to_string().contains("boot-id"), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "another");
    }
}
