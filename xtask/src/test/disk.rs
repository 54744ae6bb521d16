//! Tell before a run whether the disk has room for what it builds.
//!
//! Without room a compiler ends in the middle of a run, after a quarter of an hour, and by an error that names a file.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Space that a run of all tiers takes in a clean target directory, GiB.
///
/// Two profiles with all tests are most of it: without tables for debuggers 3 GiB and 2 GiB.
const WHOLE_RUN: u64 = 9;
/// Space that a run takes where all of that is there, GiB.
const REST: u64 = 2;
const GIB: u64 = 1 << 30;

/// Checks that a run of all tiers has room in the target directory.
///
/// # Errors
/// It has not, or the directory cannot be read.
pub(super) fn check() -> Result<()> {
    let target = workspace::target();
    let reading = || format!("reading how much room {} has", target.display());
    fs::create_dir_all(&target).with_context(reading)?;
    let disk = rustix::fs::statvfs(&target).with_context(reading)?;
    let (free, there) = (disk.f_bavail * disk.f_frsize, size(&target));
    let lacking = lacking(free, there);
    if lacking > 0 {
        bail!(
            "the disk of {} has {} GiB left, and a run of all tiers fills {WHOLE_RUN} GiB there, of which {} are there: \
             make room for {lacking} GiB more (`rm -r {}/debug/incremental` is safe), or set CARGO_TARGET_DIR to a \
             directory on a larger disk",
            target.display(),
            free / GIB,
            there / GIB,
            target.display()
        );
    }
    Ok(())
}

/// Returns the space that a run lacks, GiB.
///
/// `free`: bytes that the disk has. `there`: bytes that the target directory has.
fn lacking(free: u64, there: u64) -> u64 {
    let wanted = (WHOLE_RUN * GIB).saturating_sub(there).max(REST * GIB);
    wanted.saturating_sub(free).div_ceil(GIB)
}

/// Returns the size of all files under a directory, bytes.
///
/// What cannot be read has none.
fn size(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => size(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clean_checkout_wants_room_for_a_whole_run() {
        assert_eq!(lacking(WHOLE_RUN * GIB, 0), 0);
        assert_eq!(lacking(WHOLE_RUN * GIB - 1, 0), 1);
        assert_eq!(lacking(0, 0), WHOLE_RUN);
    }

    #[test]
    fn what_was_built_before_is_not_built_again() {
        assert_eq!(lacking(5 * GIB, (WHOLE_RUN - 5) * GIB), 0);
        assert_eq!(lacking(4 * GIB, (WHOLE_RUN - 5) * GIB), 1);
        // Something is written always.
        assert_eq!(lacking(GIB, 3 * WHOLE_RUN * GIB), REST - 1);
    }

    #[test]
    fn the_size_of_a_directory_is_that_of_all_files_under_it() {
        let scratch = tempfile::tempdir().unwrap();
        fs::create_dir_all(scratch.path().join("a/b")).unwrap();
        fs::write(scratch.path().join("a/one"), [0; 300]).unwrap();
        fs::write(scratch.path().join("a/b/two"), [0; 50]).unwrap();
        assert_eq!(size(scratch.path()), 350);
    }
}
