//! Files that others read at any moment: each is there as a whole, or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::{InstallError, failed};

/// No runtime takes a file with this end for a configuration or executes it.
const DRAFT: &str = ".podnet-draft";

/// Copies an executable; true unless it was there already.
///
/// A running executable is replaced and not written to, so it is never busy.
///
/// # Errors
/// When it cannot be read or written.
pub fn binary(source: &Path, target: &Path) -> Result<bool, InstallError> {
    let content = fs::read(source).map_err(failed("read", source))?;
    put(&content, 0o755, target)
}

/// Writes a configuration; true when it was not there already.
///
/// # Errors
/// When it cannot be written.
pub fn text(text: &str, target: &Path) -> Result<bool, InstallError> {
    put(text.as_bytes(), 0o644, target)
}

fn put(content: &[u8], mode: u32, target: &Path) -> Result<bool, InstallError> {
    if is_there(content, mode, target) {
        return Ok(false);
    }
    let directory = target.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory).map_err(failed("create", directory))?;
    let draft = draft(target);
    let written = write(content, mode, &draft)
        .and_then(|()| fs::rename(&draft, target))
        .and_then(|()| File::open(directory)?.sync_all());
    written.map_err(|error| {
        // If it is there at all; the next attempt replaces it.
        let _ = fs::remove_file(&draft);
        failed("write", target)(error)
    })?;
    Ok(true)
}

/// Path of the draft: in the same directory, with a dot before its name.
///
/// A rename is one step only inside a directory.
fn draft(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}{DRAFT}"))
}

fn write(content: &[u8], mode: u32, path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(path)?;
    // The umask may have taken something away.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(content)?;
    file.sync_all()
}

fn is_there(content: &[u8], mode: u32, path: &Path) -> bool {
    let same_kind = fs::symlink_metadata(path).is_ok_and(|found| {
        found.is_file()
            && found.permissions().mode() & 0o7777 == mode
            && usize::try_from(found.len()) == Ok(content.len())
    });
    same_kind && fs::read(path).is_ok_and(|found| found == content)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Starts a command, again while its file is busy.
    ///
    /// A child that another test is just starting has the new file open for a moment more.
    fn start(command: &mut Command) -> Child {
        command.stdout(Stdio::piped());
        loop {
            match command.spawn() {
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {}
                started => return started.unwrap(),
            }
        }
    }

    /// PAIN-BOOT-1
    #[test]
    fn a_plugin_that_runs_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (Path::new("/bin/cat"), Path::new("/bin/echo"));
        let target = dir.path().join("bin/podnet");
        assert!(binary(old, &target).unwrap());
        let mut running = start(Command::new(&target).stdin(Stdio::piped()));
        assert!(fs::write(&target, "x").is_err(), "it is busy");
        assert!(binary(new, &target).unwrap());
        assert_eq!(fs::read(&target).unwrap(), fs::read(new).unwrap());
        assert!(!binary(new, &target).unwrap(), "nothing is left to do");
        drop(running.stdin.take());
        running.wait().unwrap();
        assert_eq!(names(&dir.path().join("bin")), ["podnet"]);
        let output = start(Command::new(&target).arg("it runs")).wait_with_output();
        assert_eq!(output.unwrap().stdout, b"it runs\n");
        proof::of!("PAIN-BOOT-1");
    }

    /// RT-CD-03
    #[test]
    fn what_is_wrong_in_any_way_is_put_right() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("05-podnet.conflist");
        assert!(text("{}", &target).unwrap());
        assert!(!text("{}", &target).unwrap());
        fs::write(&target, "[]").unwrap();
        assert!(text("{}", &target).unwrap(), "the same length");
        fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(text("{}", &target).unwrap(), "not readable for all");
        fs::rename(&target, dir.path().join("05-podnet.conflist.bak")).unwrap();
        assert!(text("{}", &target).unwrap(), "renamed away");
        fs::remove_file(&target).unwrap();
        std::os::unix::fs::symlink("05-podnet.conflist.bak", &target).unwrap();
        assert!(text("{}", &target).unwrap(), "a link to a file like it");
        // What an agent left that was killed.
        fs::write(draft(&target), "half").unwrap();
        fs::remove_file(&target).unwrap();
        assert!(text("{}", &target).unwrap());
        let names = names(dir.path());
        assert_eq!(names, ["05-podnet.conflist", "05-podnet.conflist.bak"]);
        proof::of!("RT-CD-03");
    }

    #[test]
    fn a_target_that_cannot_be_written_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let error = text("{}", &dir.path().join("file/x.conflist")).unwrap_err();
        assert!(error.to_string().contains("file"), "{error}");
    }
}
