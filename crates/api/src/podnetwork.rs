//! `PodNetwork` and `PodNetworkAttachment`: the kinds of KEP-3698, with its field names.

use serde::{Deserialize, Serialize};

use crate::meta::{Manifest, ParametersRef, is_label, null_as_default};

/// A network pods can attach to.
pub type PodNetwork = Manifest<PodNetworkSpec>;
/// A parameterised way to attach to one network.
pub type PodNetworkAttachment = Manifest<PodNetworkAttachmentSpec>;

/// The longest `spec.provider` of KEP-3698, bytes.
const PROVIDER_MAX: usize = 253;

/// `spec` of a `PodNetwork`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodNetworkSpec {
    /// False refuses new attachments; those there are keep running. Default true.
    #[serde(default = "enabled", deserialize_with = "null_as_enabled")]
    pub enabled: bool,
    /// Who implements the network; this agent serves `podnet.dev/ebpf`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Where the implementation finds its parameters: one `PodNetworkParameters` for podnet.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub parameters_refs: Vec<ParametersRef>,
}

/// `spec` of a `PodNetworkAttachment`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodNetworkAttachmentSpec {
    /// The one network this attaches to; it may be created later.
    pub pod_network_name: String,
    /// What the attachment asks for: any number of `AttachmentParameters`, merged.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub parameters_refs: Vec<ParametersRef>,
}

const fn enabled() -> bool {
    true
}

fn null_as_enabled<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_else(enabled))
}

/// True when `provider` has the form KEP-3698 asks for: `domain/path`, at most 253 bytes.
#[must_use]
pub fn check_provider(provider: &str) -> bool {
    let Some((domain, path)) = provider.split_once('/') else {
        return false;
    };
    provider.len() <= PROVIDER_MAX
        && domain.split('.').all(is_label)
        && !path.is_empty()
        && path
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// KEP-PN-03: the pattern of `spec.provider`.
    #[test]
    fn provider_follows_the_pattern_of_the_kep() {
        for good in ["acme.io/foo", "foo/bar", "podnet.dev/ebpf", "a/b/c:d"] {
            assert!(check_provider(good), "{good}");
        }
        let long = format!("a/{}", "b".repeat(252));
        for bad in [
            "",
            "acme.io",
            "acme.io/",
            "Acme.io/x",
            "a..b/x",
            "a/b c",
            long.as_str(),
        ] {
            assert!(!check_provider(bad), "{bad:?} was taken");
        }
    }
}
