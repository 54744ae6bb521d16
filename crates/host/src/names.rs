//! The names and aliases by which links of the node are known as podnet's.

use cni_spec::AttachmentKey;
use cni_spec::digest::digest;

/// Host ends start with this; the kernel's names have at most 15 bytes.
pub const HOST_PREFIX: &str = "pn";
/// Near ends of shaper pairs start with this, where what a pod sends waits.
pub const NEAR_PREFIX: &str = "ps";
/// Far ends of shaper pairs start with this, where it is handed back.
pub const FAR_PREFIX: &str = "pt";
/// `ifalias` of a host end starts so, and goes on with the attachment.
pub const ALIAS_PREFIX: &str = "podnet: ";

/// The name of the host end of an attachment.
///
/// It is always the same one, so that a record can name it before it is there, and a restart finds it.
pub fn host_name(key: &AttachmentKey) -> String {
    let digest = digest(key.to_string().as_bytes());
    // 48 of its 64 bits fit.
    format!("{HOST_PREFIX}{:012x}", digest >> 16)
}

/// The name of the near end of the shaper that belongs to this host end.
pub fn near_name(host: &str) -> String {
    sibling(host, NEAR_PREFIX)
}

/// The name of the far end of the shaper that belongs to this host end.
pub fn far_name(host: &str) -> String {
    sibling(host, FAR_PREFIX)
}

fn sibling(host: &str, prefix: &str) -> String {
    format!("{prefix}{}", host.strip_prefix(HOST_PREFIX).unwrap_or(host))
}

#[cfg(test)]
mod tests {
    use cni_spec::{ContainerId, IfName};

    use super::*;

    #[test]
    fn a_host_name_fits_the_kernel_and_belongs_to_one_attachment() {
        let key = |container: &str, ifname: &str| AttachmentKey {
            container: ContainerId::new(container).unwrap(),
            ifname: IfName::new(ifname).unwrap(),
        };
        let long = "c".repeat(64);
        let names = [
            key("a", "net1"),
            key("a", "net2"),
            key("b", "net1"),
            key(&long, "net1"),
        ]
        .map(|key| host_name(&key));
        for name in &names {
            assert!(name.len() <= 15 && name.starts_with(HOST_PREFIX), "{name}");
        }
        let shapers = names
            .iter()
            .flat_map(|name| [near_name(name), far_name(name)]);
        let all: Vec<String> = names.iter().cloned().chain(shapers).collect();
        assert!(all.iter().all(|name| name.len() == 14), "{all:?}");
        let unique: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(unique.len(), all.len());
    }
}
