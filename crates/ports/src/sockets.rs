//! Socket files that pods connect to, each in a directory for its pod.
//!
//! The pod may have the directory mounted: that of a device which the kubelet has given to the pod, else
//! one of the port's own.
//!
//! A pod can do what it likes in such a directory, links that lead elsewhere included. So a file is made
//! ready beside the directory, where no pod gets to, and put in its place then.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::Value;

pub(crate) use self::description::path as path_in_pod;
pub(super) use self::description::{describe, file};
use book::record::{Attachment, Device};

use crate::directories::Directories;

mod description;
pub mod error;

pub use self::error::PlaceError;

/// The directory of all ports is root's: a pod gets that of its own port mounted.
const ALL_MODE: u32 = 0o700;
/// Mode of a port's directory: all users may write, and remove only their own.
///
/// Clients of memif refuse a directory that they cannot write.
const ONE_MODE: u32 = 0o1777;
/// Mode of sockets: programs of the pod connect under any user.
pub(crate) const SOCKET_MODE: u32 = 0o666;
/// Mode of files that the pod only reads.
const TOLD_MODE: u32 = 0o444;

/// Returns the path of a port's socket file.
///
/// It is in the directory of its device, else in one with the name of its host end among `all`.
///
/// # Errors
/// When the directory cannot be made.
pub(crate) fn place(
    device: Option<&Device>,
    devices: &Directories,
    (all, host): (&Path, &str),
    file: &str,
) -> Result<PathBuf, PlaceError> {
    let one = match device {
        Some(device) => {
            let path = devices.path(&device.resource, &device.id);
            let made = devices.ensure(&device.resource, &device.id);
            made.map_err(PlaceError::make(&path))?
        }
        None => all.join(host),
    };
    Ok(one.join(file))
}

/// Has `make` make a file next to its directory, and moves it there.
///
/// # Errors
/// Those of `make`; [`PlaceError`] when the kernel refuses the rest.
pub(crate) fn publish<T, E: From<PlaceError>>(
    path: &Path,
    mode: u32,
    make: impl FnOnce(&Path) -> Result<T, E>,
) -> Result<T, E> {
    let one = path.parent().unwrap_or(Path::new("/"));
    directory(one).map_err(PlaceError::make(one))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = one.with_extension(format!("new-{name}"));
    match fs::remove_file(&new) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(PlaceError::Remove { path: new, source }.into());
        }
        _ => {}
    }
    let made = make(&new)?;
    fs::set_permissions(&new, Permissions::from_mode(mode))
        .and_then(|()| fs::rename(&new, path))
        .map_err(|source| {
            // What is left is no socket that anybody knows of.
            let _ = fs::remove_file(&new);
            PlaceError::make(path)(source)
        })?;
    Ok(made)
}

fn directory(one: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(ALL_MODE)
        .create(one)?;
    // Not by the mode it is made with, which the umask limits.
    fs::set_permissions(one, Permissions::from_mode(ONE_MODE))
}

/// Tells the pod's programs the use of the port, by a file next to the socket.
///
/// A port that is no socket has no such file.
///
/// # Errors
/// When the file cannot be made.
pub(crate) fn tell(record: &Attachment, more: Value) -> Result<(), PlaceError> {
    let Some(one) = record.socket_path.as_deref().and_then(Path::parent) else {
        return Ok(());
    };
    let text = format!("{:#}\n", describe(record, more));
    publish(&one.join(file(record)), TOLD_MODE, |path| {
        fs::write(path, &text).map_err(|source| PlaceError::Write {
            path: path.to_owned(),
            source,
        })
    })
}

/// Removes the socket of a port and the files that the pod has put next to it.
///
/// The directory of a device stays with the device, and is emptied before another pod gets it. A file that
/// cannot be removed is logged, and does not keep the pod from going: the pod may have seen to that.
pub(crate) fn remove(record: &Attachment) {
    let Some(path) = record.socket_path.as_deref() else {
        return;
    };
    let targets = match record.device {
        Some(_) => vec![path.to_owned(), path.with_file_name(file(record))],
        None => path.parent().map(Path::to_owned).into_iter().collect(),
    };
    for target in targets {
        let removed = match fs::symlink_metadata(&target) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(&target),
            Ok(_) => fs::remove_file(&target),
            Err(error) => Err(error),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let path = target.display();
                tracing::warn!(attachment = %record.key, %path, %error, "a file of the port's socket could not be removed");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt as _, symlink};
    use std::os::unix::net::UnixListener;

    use book::samples;

    use super::*;

    fn listen(path: &Path) -> Result<UnixListener, PlaceError> {
        UnixListener::bind(path).map_err(PlaceError::make(path))
    }

    #[test]
    fn what_a_pod_has_put_in_the_place_of_its_socket_leads_nowhere() {
        let run = tempfile::tempdir().unwrap();
        let (one, outside) = (run.path().join("all/pn1"), run.path().join("secret"));
        fs::write(&outside, "").unwrap();
        fs::set_permissions(&outside, Permissions::from_mode(0o600)).unwrap();
        fs::create_dir_all(&one).unwrap();
        symlink(&outside, one.join("memif.sock")).unwrap();
        let path = one.join("memif.sock");
        let _socket = publish(&path, SOCKET_MODE, listen).unwrap();
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
        assert!(fs::symlink_metadata(&path).unwrap().file_type().is_socket());
        assert_eq!((mode(&path), mode(&one)), (0o666, 0o1777));
        assert_eq!(mode(&outside), 0o600, "nothing was done to it");
        assert_eq!(fs::read_dir(run.path().join("all")).unwrap().count(), 1);
        // A directory cannot be replaced, and that is said.
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let refused = publish(&path, SOCKET_MODE, listen).unwrap_err();
        assert!(refused.to_string().contains("memif.sock"), "{refused}");
        assert_eq!(fs::read_dir(run.path().join("all")).unwrap().count(), 1);
    }

    #[test]
    fn the_directory_of_a_device_outlives_the_socket_in_it() {
        let run = tempfile::tempdir().unwrap();
        let directories = Directories::new(
            &run.path().join("agent.sock"),
            &datapath::PinDir::new(run.path().join("pins")),
        );
        let device = Device {
            resource: "podnet.dev/blue".to_owned(),
            id: "7".to_owned(),
        };
        let all = run.path().join("memif");
        for device in [Some(device), None] {
            let at = (all.as_path(), "pn1");
            let path = place(device.as_ref(), &directories, at, "memif.sock").unwrap();
            let _socket = publish(&path, SOCKET_MODE, listen).unwrap();
            let one = path.parent().unwrap().to_owned();
            let has_device = device.is_some();
            let mut record = samples::record(&samples::network("blue", api::Mode::L2, &[]), |_| {});
            record.device = device;
            record.socket_path = Some(path.clone());
            tell(&record, Value::Null).unwrap();
            let told = fs::read_to_string(one.join("net1.json")).unwrap();
            assert!(told.contains("blue"), "{told}");
            remove(&record);
            assert!(!path.exists() && !one.join("net1.json").exists());
            assert_eq!(one.exists(), has_device);
            remove(&record);
        }
    }
}
