//! The configuration of the programs on a node. JSON where they want YAML.

use serde_json::{Value, json};

use super::Spec;
use crate::images::PAUSE;

/// Where containerd tells its metrics.
pub(crate) const METRICS: &str = "127.0.0.1:1338";
/// Where containerd listens.
pub(super) const SOCKET: &str = "/run/containerd/containerd.sock";
/// The address in pods' resolv.conf; a cluster with names gives it to a Service.
pub(crate) const DNS: &str = "10.96.0.10";

/// containerd 2, `config.toml` version 3.
pub(super) fn containerd() -> String {
    format!(
        r#"version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
address = "{SOCKET}"

[metrics]
address = "{METRICS}"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"

[plugins."io.containerd.cri.v1.runtime"]
# A machine that may not lower oom_score_adj cannot start containers otherwise.
restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/opt/cni/bin"]
conf_dir = "/etc/cni/net.d"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = false
"#
    )
}

/// The domain of Services.
pub(crate) const DOMAIN: &str = "cluster.local";

/// `KubeletConfiguration`, kubelet.config.k8s.io/v1beta1.
pub(super) fn kubelet(spec: &Spec) -> Value {
    let name = format!("kubelet-{}", spec.name);
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": spec.pki.join("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": spec.pki.join(format!("{name}.crt")),
        "tlsPrivateKeyFile": spec.pki.join(format!("{name}.key")),
        "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
        "clusterDomain": DOMAIN,
        "clusterDNS": [DNS],
        "cgroupDriver": "cgroupfs",
        // By default it refuses a machine with cgroup v1.
        "failCgroupV1": false,
        "failSwapOn": false,
        // The disk and the memory are the machine's, and others use them, too.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
        },
        "serializeImagePulls": false,
    })
}

/// Mode of kube-proxy on a kernel of this release.
///
/// It refuses nftables before Linux 5.13.
fn proxy_mode(release: &str) -> &'static str {
    if xtask::kernel_version(release) < (5, 13) {
        "iptables"
    } else {
        "nftables"
    }
}

/// `KubeProxyConfiguration`, kubeproxy.config.k8s.io/v1alpha1.
pub(super) fn kube_proxy(spec: &Spec) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": proxy_mode(rustix::system::uname().release().to_str().unwrap_or_default()),
        "hostnameOverride": spec.name,
        "clientConnection": {"kubeconfig": spec.pki.join("kube-proxy.kubeconfig")},
        // Those limits are the machine's, not the node's.
        "conntrack": {"maxPerCore": 0, "min": 0},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kube_proxy_gets_the_mode_that_its_kernel_has() {
        assert_eq!(proxy_mode("5.10.0-32-cloud-amd64"), "iptables");
        assert_eq!(proxy_mode("5.13.1"), "nftables");
        assert_eq!(proxy_mode("6.18.44-fc"), "nftables");
    }
}
