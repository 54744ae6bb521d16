//! Files in which plugins describe the devices they make (device-info-spec 1.1.0, NPWG §5.3.7).
//!
//! A plugin that declares the capability is given the path of a file that is not there yet. What it
//! writes goes into the pod's status; the file goes with the attachment.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use api::RawJson;
use cni_spec::AttachmentKey;

use super::process::Runner;

/// The capability (device-info-spec 1.1.0 §3.2).
pub const CAPABILITY: &str = "CNIDeviceInfoFile";
/// Where the specification has such files, on the node.
const DIRECTORY: &str = "/var/run/k8s.cni.cncf.io/devinfo/cni";
/// Largest file that is read, bytes: far above any description.
const SIZE_MAX: u64 = 64 * 1024;

/// The file of an attachment, as the node has it.
pub fn path(network: &str, key: &AttachmentKey) -> PathBuf {
    let network = network.replace('/', "-");
    Path::new(DIRECTORY).join(format!("{network}-{}_{}", key.container, key.ifname))
}

/// Makes way for a new file: the client library that plugins use refuses to write over one.
///
/// # Errors
/// When the directory cannot be made, or the old file not be removed.
pub fn prepare(runner: &Runner, path: &Path) -> io::Result<()> {
    fs::create_dir_all(runner.seen(Path::new(DIRECTORY)))?;
    remove(runner, path)
}

/// What the plugins wrote; nothing when they wrote nothing, or no JSON object of a bearable size.
pub fn read(runner: &Runner, path: &Path) -> Option<RawJson> {
    let file = runner.seen(path);
    let size = fs::metadata(&file).ok()?.len();
    let text = (size <= SIZE_MAX).then(|| fs::read_to_string(&file));
    let read = text.and_then(Result::ok).and_then(|text| {
        let raw = RawJson::parse(text.trim()).ok()?;
        raw.get().starts_with('{').then_some(raw)
    });
    if read.is_none() {
        tracing::warn!(path = %path.display(), "a device-info file that says nothing");
    }
    read
}

/// Removes the file; one that is not there is removed already.
///
/// # Errors
/// When it may still be there.
pub fn remove(runner: &Runner, path: &Path) -> io::Result<()> {
    match fs::remove_file(runner.seen(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cni_spec::{ContainerId, IfName};

    use super::*;

    fn key() -> AttachmentKey {
        AttachmentKey {
            container: ContainerId::new("c1").unwrap(),
            ifname: IfName::new("net1").unwrap(),
        }
    }

    /// NPWG-DI-1
    #[test]
    fn the_path_is_that_of_the_specification() {
        let found = path("ns/lan", &key());
        let wanted = "/var/run/k8s.cni.cncf.io/devinfo/cni/ns-lan-c1_net1";
        assert_eq!(found, Path::new(wanted));
    }

    /// NPWG-DI-3, NPWG-DI-4
    #[test]
    fn a_file_is_new_read_once_and_removed() {
        let root = tempfile::tempdir().unwrap();
        let runner = Runner::new(root.path().to_owned(), Duration::from_secs(1), 1);
        let path = path("lan", &key());
        remove(&runner, &path).unwrap();
        prepare(&runner, &path).unwrap();
        assert_eq!(read(&runner, &path), None);
        for (text, says) in [
            (r#"{"type":"pci","version":"1.1.0"}"#, true),
            (" {}\n", true),
            ("[]", false),
            ("{", false),
            ("", false),
        ] {
            fs::write(runner.seen(&path), text).unwrap();
            let found = read(&runner, &path);
            assert_eq!(found.is_some(), says, "{text}");
        }
        prepare(&runner, &path).unwrap();
        assert!(!runner.seen(&path).exists());
    }
}
