//! The configuration that makes a runtime ask podnet for the networks of every pod.

use std::fs;
use std::path::Path;

use cni_spec::{CAP_POD_ANNOTATIONS, DEFAULT_SOCKET};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// File name; runtimes take the first configuration in the order of names.
pub const FILE: &str = "05-podnet.conflist";
/// `type` of the plugin and name of its executable.
pub const PLUGIN: &str = "podnet";
/// Extensions of files that runtimes take for a configuration.
const KINDS: [&str; 3] = ["conf", "conflist", "json"];

/// The configuration, for an agent that listens on this socket.
pub fn text(socket: &Path) -> String {
    let mut plugin = json!({
        "type": PLUGIN,
        "fromPod": true,
        // What the pod's default network may need, and without any API call the pod's own lists.
        "capabilities": {
            CAP_POD_ANNOTATIONS: true,
            "bandwidth": true,
            "cgroupPath": true,
            "dns": true,
            "portMappings": true,
        },
    });
    if socket != Path::new(DEFAULT_SOCKET) {
        plugin["socket"] = socket.display().to_string().into();
    }
    let list = json!({
        // Runtimes that know no list of versions know this one; the others take the newest they
        // know, and with it STATUS and GC (CNI-CONF-11).
        "cniVersion": "1.0.0",
        "cniVersions": ["0.3.1", "0.4.0", "1.0.0", "1.1.0"],
        "name": PLUGIN,
        "plugins": [plugin],
    });
    format!("{list:#}\n")
}

/// Configuration as a runtime hands it to the plugin, without a container.
///
/// # Errors
/// When it is not one of ours.
pub fn plugin(text: &str) -> Result<Box<RawValue>, serde_json::Error> {
    let list: Value = serde_json::from_str(text)?;
    let mut plugin = list["plugins"][0].clone();
    plugin["name"] = list["name"].clone();
    plugin["cniVersion"] = "1.1.0".into();
    serde_json::value::to_raw_value(&plugin)
}

/// True for a configuration of podnet's that leads to the agent on this socket.
pub fn leads_to(text: &str, socket: &Path) -> bool {
    let Ok(list) = serde_json::from_str::<Value>(text) else {
        return false;
    };
    let plugin = &list["plugins"][0];
    let named = plugin["socket"].as_str().unwrap_or(DEFAULT_SOCKET);
    plugin["type"] == PLUGIN && Path::new(named) == socket
}

/// Names of configurations that a runtime would take before ours.
pub fn before_ours(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    let mut rivals: Vec<String> = names
        .filter_map(|name| name.into_string().ok())
        .filter(|name| {
            let kind = Path::new(name).extension().and_then(|kind| kind.to_str());
            kind.is_some_and(|kind| KINDS.contains(&kind)) && name.as_str() < FILE
        })
        .collect();
    rivals.sort();
    rivals
}

#[cfg(test)]
mod tests {
    use cni_spec::{Command, ConfHead, NetConf, NetworkRef};

    use super::*;

    /// CNI-CONF-11
    #[test]
    fn the_configuration_is_one_that_the_plugin_takes() {
        let text = text(Path::new("/tmp/other.sock"));
        let raw = plugin(&text).unwrap();
        assert_eq!(
            ConfHead::version_of(raw.get()),
            cni_spec::CniVersion::LATEST
        );
        let conf = NetConf::parse(raw.get(), Command::Status).unwrap();
        assert_eq!(conf.network, Some(NetworkRef::FromPod));
        assert_eq!(conf.head.name, "podnet");
        let list: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            list["plugins"][0]["capabilities"][CAP_POD_ANNOTATIONS],
            true
        );
        assert_eq!(list["cniVersion"], "1.0.0");
        proof::of!("CNI-CONF-11", "PAIN-TOK-1");
    }

    #[test]
    fn only_the_agents_own_configuration_leads_to_it() {
        let usual = Path::new(DEFAULT_SOCKET);
        let other = Path::new("/tmp/other.sock");
        assert!(!text(usual).contains("socket"));
        assert!(leads_to(&text(usual), usual) && !leads_to(&text(usual), other));
        assert!(leads_to(&text(other), other) && !leads_to(&text(other), usual));
        let foreign = r#"{"name": "podnet", "plugins": [{"type": "bridge"}]}"#;
        assert!(!leads_to(foreign, usual) && !leads_to("{", usual));
    }

    /// RT-CD-01, PAIN-BOOT-2
    #[test]
    fn configurations_that_come_first_are_found() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "00-multus.conf",
            "01-old.conflist.bak",
            "02-x.json",
            "10-calico.conflist",
            ".05-podnet.conflist.podnet-draft",
            FILE,
        ] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(before_ours(dir.path()), ["00-multus.conf", "02-x.json"]);
        proof::of!("RT-CD-01", "PAIN-BOOT-2");
    }
}
