//! Prepare and read the files in which plugins describe the devices they make.
//!
//! The format is device-info-spec 1.1.0 (NPWG §5.3.7).
//!
//! A plugin that declares the capability is given the path of a file. The file is a copy of the device
//! plugin's description of the device, where there is one; otherwise it does not exist yet. Its content
//! after `ADD` goes into the pod's status; the file goes with the attachment.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use api::RawJson;
use api::nad::{Plugin, PluginChain};
use cni_spec::AttachmentKey;
use serde_json::Value;

use super::process::Runner;

/// The capability (device-info-spec 1.1.0 §3.2).
pub const CAPABILITY: &str = "CNIDeviceInfoFile";
/// Where the specification has such files, on the node.
const DIRECTORY: &str = "/var/run/k8s.cni.cncf.io/devinfo/cni";
/// Where device plugins have theirs.
const OF_DEVICE_PLUGINS: &str = "/var/run/k8s.cni.cncf.io/devinfo/dp";
/// Keys of a plugin's configuration that say which device it is to take.
pub const DEVICE_KEYS: [&str; 2] = ["deviceID", "pciBusID"];
/// The capability of plugins that take the device from `runtimeConfig` (NPWG-X2).
pub const DEVICE_CAPABILITY: &str = "deviceID";
/// Required fields of each type, in an object named as the type (§3.1 to §3.4).
const REQUIRED: [(&str, &[&str]); 4] = [
    ("pci", &["pci-address"]),
    ("vdpa", &["parent-device", "driver", "path"]),
    ("vhost-user", &["mode", "path"]),
    ("memif", &["role", "path", "mode"]),
];
/// The mode of such files: they are there to be read.
const MODE: u32 = 0o444;
/// Largest file that is read, bytes: far above any description.
const SIZE_MAX: u64 = 64 * 1024;

/// The file of an attachment, as the node has it.
pub fn path(network: &str, key: &AttachmentKey) -> PathBuf {
    let network = network.replace('/', "-");
    Path::new(DIRECTORY).join(format!("{network}-{}_{}", key.container, key.ifname))
}

/// Returns the path of a device plugin's description of the device of a network.
///
/// The resource is the one that the definition names, the device the one in the configuration. The file
/// need not exist yet.
pub fn of_device_plugin(chain: &PluginChain) -> Option<PathBuf> {
    let resource = chain.resource_name.as_deref()?;
    let device = device(chain)?;
    let name = format!("{resource}-{device}-device.json").replace('/', "-");
    Some(Path::new(OF_DEVICE_PLUGINS).join(name))
}

/// The device that a configuration names.
pub fn device(chain: &PluginChain) -> Option<String> {
    chain.plugins.iter().find_map(device_of)
}

fn device_of(plugin: &Plugin) -> Option<String> {
    let mut values = DEVICE_KEYS.iter().filter_map(|key| plugin.config.get(key));
    values.find_map(|value| value.read().ok().filter(|id: &String| !id.is_empty()))
}

/// Removes the old file, and copies the device plugin's description where it is.
///
/// The client library that plugins use refuses to write over a file.
///
/// # Errors
/// When the directory cannot be made, or the old file not be replaced.
pub fn prepare(runner: &Runner, path: &Path, from: Option<&Path>) -> io::Result<()> {
    fs::create_dir_all(runner.seen(Path::new(DIRECTORY)))?;
    remove(runner, path)?;
    let Some(from) = from else {
        return Ok(());
    };
    let file = runner.seen(path);
    match fs::copy(runner.seen(from), &file) {
        Ok(_) => fs::set_permissions(&file, Permissions::from_mode(MODE)),
        // It describes its devices, or does not.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => {
            remove(runner, path)?;
            Err(error)
        }
    }
}

/// Returns the description in the file after `ADD`.
///
/// `None` when there is no file, or no description that its readers could use.
pub fn read(runner: &Runner, path: &Path) -> Option<RawJson> {
    let file = runner.seen(path);
    let size = fs::metadata(&file).ok()?.len();
    let read = if size > SIZE_MAX {
        Err(format!("{size} bytes are too many"))
    } else {
        let text = fs::read_to_string(&file).map_err(|error| error.to_string());
        text.and_then(|text| understood(text.trim()))
    };
    match read {
        Ok(raw) => Some(raw),
        Err(why) => {
            tracing::warn!(path = %path.display(), why, "a device-info file cannot be understood, and is left out of the status");
            None
        }
    }
}

/// Checks that a description has the fields that its type requires.
///
/// Types that are not known yet are passed on.
fn understood(text: &str) -> Result<RawJson, String> {
    let raw = RawJson::parse(text).map_err(|error| error.to_string())?;
    let value: Value = raw.read().map_err(|error| error.to_string())?;
    for key in ["type", "version"] {
        if !value[key].is_string() {
            return Err(format!("{key} is missing"));
        }
    }
    let required = REQUIRED.iter().find(|(name, _)| value["type"] == **name);
    let (kind, keys) = required.copied().unwrap_or_default();
    for key in keys {
        if !value[kind][key].is_string() {
            return Err(format!("{kind}.{key} is missing"));
        }
    }
    Ok(raw)
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
        proof::of!("NPWG-DI-1");
    }

    /// NPWG-DI-1, NPWG-X1
    #[test]
    fn the_device_plugins_file_goes_by_the_resource_and_the_device() {
        let of = |text: &str, resource: Option<&str>| {
            let mut chain = PluginChain::parse(text, "lan").unwrap();
            chain.resource_name = resource.map(str::to_owned);
            of_device_plugin(&chain).map(|path| path.display().to_string())
        };
        let resource = Some("example.com/fast");
        let list = r#"{"plugins":[{"type":"tuning"},{"type":"sriov","deviceID":"0000:04:00.5"}]}"#;
        let expected =
            "/var/run/k8s.cni.cncf.io/devinfo/dp/example.com-fast-0000:04:00.5-device.json";
        assert_eq!(of(list, resource).as_deref(), Some(expected));
        let host = r#"{"type":"host-device","pciBusID":"0000:04:00.5"}"#;
        assert_eq!(of(host, resource).as_deref(), Some(expected));
        assert_eq!(of(list, None), None);
        assert_eq!(of(r#"{"type":"sriov"}"#, resource), None);
        // Not out of the directory.
        let path = of(r#"{"type":"sriov","deviceID":"../../x"}"#, resource);
        assert!(
            path.unwrap()
                .ends_with("/dp/example.com-fast-..-..-x-device.json")
        );
        proof::of!("NPWG-DI-1", "NPWG-X1");
    }

    /// NPWG-DI-3, NPWG-DI-4
    #[test]
    fn a_file_is_new_read_once_and_removed() {
        let root = tempfile::tempdir().unwrap();
        let runner = Runner::new(root.path().to_owned(), Duration::from_secs(1), 1);
        let path = path("lan", &key());
        remove(&runner, &path).unwrap();
        prepare(&runner, &path, None).unwrap();
        assert_eq!(read(&runner, &path), None);
        fs::write(runner.seen(&path), r#"{"type":"x","version":"1.1.0"}"#).unwrap();
        assert!(read(&runner, &path).is_some());
        prepare(&runner, &path, None).unwrap();
        assert!(!runner.seen(&path).exists());
        proof::of!("NPWG-DI-3", "NPWG-DI-4");
    }

    /// NPWG-DI-3: and what the plugin writes in its place counts.
    #[test]
    fn the_file_begins_with_what_the_device_plugin_has_written() {
        let root = tempfile::tempdir().unwrap();
        let runner = Runner::new(root.path().to_owned(), Duration::from_secs(1), 1);
        let path = path("lan", &key());
        let from = Path::new(OF_DEVICE_PLUGINS).join("r-d-device.json");
        prepare(&runner, &path, Some(&from)).unwrap();
        assert_eq!(read(&runner, &path), None, "the device plugin says nothing");

        let text = r#"{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:04:00.5"}}"#;
        fs::create_dir_all(runner.seen(Path::new(OF_DEVICE_PLUGINS))).unwrap();
        fs::write(runner.seen(&from), text).unwrap();
        for _ in 0..2 {
            prepare(&runner, &path, Some(&from)).unwrap();
            assert_eq!(read(&runner, &path).unwrap().get(), text);
        }
        let mode = fs::metadata(runner.seen(&path))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, MODE);
        remove(&runner, &path).unwrap();
        assert!(
            runner.seen(&from).exists(),
            "that one is the device plugin's"
        );
        proof::of!("NPWG-DI-3");
    }

    /// NPWG-DI-2: each known type has its required fields; unknown types are passed on.
    #[test]
    fn a_description_without_what_its_type_requires_is_not_told() {
        let with = |kind: &str, fields: &str| {
            format!(r#"{{"type":"{kind}","version":"1.1.0","{kind}":{{{fields}}}}}"#)
        };
        for good in [
            with(
                "pci",
                r#""pci-address":"0000:04:00.5","rdma-device":"mlx5_0""#,
            ),
            with(
                "vdpa",
                r#""parent-device":"vdpa1","driver":"vhost","path":"/dev/vhost-vdpa-0""#,
            ),
            with("vhost-user", r#""mode":"client","path":"/run/vhost.sock""#),
            with(
                "memif",
                r#""role":"master","path":"/run/memif.sock","mode":"ethernet""#,
            ),
            r#"{"type":"later","version":"9"}"#.to_owned(),
        ] {
            assert_eq!(understood(&good).map(|raw| raw.get().to_owned()), Ok(good));
        }
        for (bad, why) in [
            ("", "EOF"),
            ("[]", "type is missing"),
            ("{}", "type is missing"),
            (r#"{"type":"pci"}"#, "version is missing"),
            (
                r#"{"type":"pci","version":"1"}"#,
                "pci.pci-address is missing",
            ),
            (
                &with("memif", r#""role":"master","mode":"ip""#),
                "memif.path is missing",
            ),
            (
                &with("vdpa", r#""parent-device":"x","path":"y""#),
                "vdpa.driver is missing",
            ),
            (
                &with("vhost-user", r#""path":"y""#),
                "vhost-user.mode is missing",
            ),
        ] {
            let error = understood(bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
        proof::of!("NPWG-DI-2");
    }
}
