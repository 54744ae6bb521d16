//! Name the files of a store, to open them again after their file system failed.

use std::{
    fmt,
    fs::{self, OpenOptions, TryLockError},
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{SeekFrom, major, minor, seek},
    io::Errno,
};

use crate::{
    databases::{self, CommitFailed, Databases},
    error::StoreError,
    file,
};

/// Bytes that are written back in one step.
const CHUNK: u64 = 64 << 10;
/// The kernel's list of mounts, as this process sees them (proc_pid_mountinfo(5)).
const MOUNTS: &str = "/proc/self/mountinfo";

/// A store that passed every check.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) databases: Databases,
    /// Damage was found and mended; the last commits may be gone.
    pub(crate) repaired: bool,
}

/// A place that a store can be opened at, again and again.
pub(crate) trait Place: fmt::Debug + Send + Sync {
    /// Opens the store there.
    fn open(&self) -> Result<Opened, StoreError>;

    /// Writes everything that is readable there back to the disk, and waits for that.
    ///
    /// The kernel takes a page whose write failed for clean (fsync(2), errors): it may be readable and
    /// never reach the disk. A store that is opened again would build on such pages.
    fn write_back(&self) -> Result<(), StoreError>;

    /// A failed commit, with the file and the disk that it was for.
    fn commit_failed(&self, failed: CommitFailed) -> StoreError;
}

/// One or two files.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) lasting: PathBuf,
    /// File of the records that end with the boot, where it is another.
    pub(crate) of_boot: Option<PathBuf>,
}

impl Place for Files {
    fn open(&self) -> Result<Opened, StoreError> {
        match &self.of_boot {
            Some(of_boot) => databases::open(&self.lasting, of_boot),
            None => {
                let file::Opened { database, repaired } = file::open(&self.lasting)?;
                Ok(Opened {
                    databases: Databases::one(database),
                    repaired,
                })
            }
        }
    }

    fn write_back(&self) -> Result<(), StoreError> {
        let mut all = [&self.lasting].into_iter().chain(&self.of_boot);
        all.try_for_each(|path| write_back(path))
    }

    fn commit_failed(&self, failed: CommitFailed) -> StoreError {
        let of_boot = self.of_boot.as_ref().filter(|_| failed.of_boot);
        commit_failed(of_boot.unwrap_or(&self.lasting), failed.source)
    }
}

/// Names the file and the disk that a commit was for.
pub(crate) fn commit_failed(path: &Path, source: redb::Error) -> StoreError {
    StoreError::Commit {
        path: path.to_owned(),
        disk: disk_of(path).unwrap_or_default(),
        source: Arc::new(source),
    }
}

fn write_back(path: &Path) -> Result<(), StoreError> {
    let failed = |source: io::Error| StoreError::File {
        operation: "write back",
        path: path.to_owned(),
        source: Arc::new(source),
    };
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        // It is made anew.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    // The store was closed to be opened again: it could be another process's by now.
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(StoreError::InUse {
                path: path.to_owned(),
            });
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    rewrite(&file).map_err(failed)
}

/// Reads and writes each byte that takes room on the disk; holes stay holes.
fn rewrite(file: &fs::File) -> io::Result<()> {
    let mut buffer = vec![0; usize::try_from(CHUNK).map_err(io::Error::other)?];
    let mut at = 0;
    loop {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            // Behind the last of them.
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = seek(file, SeekFrom::Hole(start))?;
        at = start;
        while at < end {
            let length = usize::try_from((end - at).min(CHUNK)).map_err(io::Error::other)?;
            let (chunk, _) = buffer.split_at_mut(length);
            file.read_exact_at(chunk, at)?;
            file.write_all_at(chunk, at)?;
            at += u64::try_from(length).map_err(io::Error::other)?;
        }
    }
    file.sync_all()
}

/// Names the disk of a file, as ", on /dev/sda1 mounted at /var".
///
/// None where the kernel lists no mount of the file's device number, as for a subvolume of btrfs.
fn disk_of(path: &Path) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    let device = fs::metadata(&path).ok()?.dev();
    let device = format!("{}:{}", major(device), minor(device));
    disk_in(&fs::read_to_string(MOUNTS).ok()?, &device, &path)
}

fn disk_in(mounts: &str, device: &str, path: &Path) -> Option<String> {
    let mounts = mounts.lines().filter_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(2);
        let (number, at) = (mount.next()?, mount.nth(1)?);
        let source = file_system.split(' ').nth(1)?;
        (number == device && path.starts_with(at)).then_some((at, source))
    });
    // The deepest is the one that the path leads through.
    let (at, source) = mounts.max_by_key(|(at, _)| at.len())?;
    Some(format!(", on {source} mounted at {at}"))
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};

    use super::*;

    #[test]
    fn the_disk_of_a_file_is_the_deepest_mount_above_it() {
        let mounts = "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n\
                      40 22 0:39 / /var rw shared:5 - tmpfs tmpfs rw\n\
                      41 40 254:1 /x /var/lib/podnet rw - ext4 /dev/vda1 rw\n";
        let disk = |device, path: &str| disk_in(mounts, device, Path::new(path));
        assert_eq!(
            disk("254:1", "/var/lib/podnet/a").as_deref(),
            Some(", on /dev/vda1 mounted at /var/lib/podnet")
        );
        assert_eq!(
            disk("0:39", "/var/x").as_deref(),
            Some(", on tmpfs mounted at /var")
        );
        assert_eq!(disk("0:40", "/var/x"), None);
    }

    #[test]
    fn writing_back_changes_nothing_and_keeps_holes() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 5000]).unwrap();
        file.seek(io::SeekFrom::Start(1 << 20)).unwrap();
        file.write_all(&[9; 200_000]).unwrap();
        file.set_len(4 << 20).unwrap();
        file.sync_all().unwrap();
        let read = |file: &fs::File| {
            let mut all = vec![0; 4 << 20];
            file.read_exact_at(&mut all, 0).unwrap();
            all
        };
        let before = (read(&file), file.metadata().unwrap().blocks());
        rewrite(&file).unwrap();
        assert!(before == (read(&file), file.metadata().unwrap().blocks()));
        rewrite(&tempfile::tempfile().unwrap()).unwrap();
    }
}
