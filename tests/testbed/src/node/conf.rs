//! Configurations that runtimes and other plugins give to ours.

use serde_json::{Value, json};

use super::Node;

impl Node {
    /// The configuration for an attachment to `network`.
    pub fn conf(&self, network: &str) -> Value {
        json!({
            "cniVersion": "1.1.0",
            "name": network,
            "type": "podnet",
            "podNetwork": network,
            "socket": self.socket().to_str().expect("a path in UTF-8"),
        })
    }

    /// Returns the configuration of network `network` by this PodNetworkAttachment.
    pub fn attachment_conf(&self, network: &str, object: &str) -> Value {
        json!({
            "cniVersion": "1.1.0",
            "name": network,
            "type": "podnet",
            "podNetworkAttachment": object,
            "socket": self.socket().to_str().expect("a path in UTF-8"),
        })
    }

    /// Returns the configuration as it is on disk: pods' own lists name their networks.
    pub fn disk_conf(&self) -> Value {
        json!({
            "cniVersion": "1.1.0",
            "name": "podnet",
            "type": "podnet",
            "fromPod": true,
            "socket": self.socket().to_str().expect("a path in UTF-8"),
            "capabilities": {"io.kubernetes.cri.pod-annotations": true},
        })
    }

    /// The same as a runtime hands it on for a pod with these annotations.
    pub fn pod_conf(&self, annotations: &Value) -> Value {
        let mut conf = self.disk_conf();
        conf["runtimeConfig"] = json!({"io.kubernetes.cri.pod-annotations": annotations});
        conf
    }
}
