//! The common parts of every kind of the group: type, name, references.

use std::{collections::BTreeMap, fmt};

use kube_core::object::HasSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// The API group of every podnet kind.
pub const GROUP: &str = "podnet.dev";
/// Group and version as manifests write them in `apiVersion`.
pub const API_VERSION: &str = "podnet.dev/v1alpha1";
/// The `spec.provider` of the networks this agent serves (KEP-3698 `provider`).
pub const PROVIDER: &str = "podnet.dev/ebpf";
/// The `PodNetwork` every cluster has (KEP-3698 "Default PodNetwork").
pub const DEFAULT_NETWORK: &str = "default";
/// The annotation of a `Node` about the first network of its pods without a list.
///
/// It is `overrideDefaultPodNetwork` of KEP-3698 ("Network Migration"), with the values of the agents'
/// `--default-network`.
pub const NODE_DEFAULT_ANNOTATION: &str = "podnet.dev/default-network";
/// Bytes of [`NODE_DEFAULT_ANNOTATION`] that are read.
///
/// No value of it has as many.
pub const NODE_DEFAULT_MAX: usize = 300;

/// The longest DNS-1123 subdomain (RFC 1123 §2.1), bytes.
const SUBDOMAIN_MAX: usize = 253;
/// The longest DNS-1123 label (RFC 1123 §2.1), bytes.
const LABEL_MAX: usize = 63;
/// [`check_subdomain`] as a schema says it, but for the length.
pub(crate) const SUBDOMAIN_PATTERN: &str =
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// An API group, the core one too.
const GROUP_PATTERN: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$";
/// [`check_label`] as a schema says it, but for the length.
pub(crate) const LABEL_PATTERN: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// The kinds of group `podnet.dev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Kind {
    /// A network pods can attach to (KEP-3698 `PodNetwork`, cluster-scoped).
    PodNetwork,
    /// A parameterised way to attach to one network (KEP-3698, namespaced).
    PodNetworkAttachment,
    /// Parameters of a network: mode, subnets, MTU (cluster-scoped).
    PodNetworkParameters,
    /// Parameters of one attachment: rates, MAC, addresses (namespaced).
    AttachmentParameters,
    /// Networks that are routed to each other (cluster-scoped).
    Vpc,
}

impl Kind {
    /// Every kind, in the order documents usually have them.
    pub const ALL: [Self; 5] = [
        Self::PodNetwork,
        Self::PodNetworkAttachment,
        Self::PodNetworkParameters,
        Self::AttachmentParameters,
        Self::Vpc,
    ];

    /// The word in a manifest's `kind`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PodNetwork => "PodNetwork",
            Self::PodNetworkAttachment => "PodNetworkAttachment",
            Self::PodNetworkParameters => "PodNetworkParameters",
            Self::AttachmentParameters => "AttachmentParameters",
            Self::Vpc => "Vpc",
        }
    }

    /// True for kinds that live in a namespace.
    #[must_use]
    pub const fn is_namespaced(self) -> bool {
        matches!(
            self,
            Self::PodNetworkAttachment | Self::AttachmentParameters
        )
    }

    /// The kind of this name, exactly as manifests spell it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// FNV-1a, 64 bits: to tell texts apart, not to protect.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// One object: its identity and its wishes. Its kind is the type of `S`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Manifest<S> {
    /// Name, namespace, labels.
    pub metadata: Metadata,
    /// The kind's own fields.
    pub spec: S,
}

impl<S: Clone> Manifest<S> {
    /// Makes the manifest with the metadata and the spec of `object`.
    #[must_use]
    pub fn of<K: HasSpec<Spec = S> + kube_core::Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self {
            metadata: Metadata {
                name: meta.name.clone().unwrap_or_default(),
                namespace: meta.namespace.clone(),
                labels: meta.labels.clone().unwrap_or_default(),
                annotations: meta.annotations.clone().unwrap_or_default(),
                created: meta.creation_timestamp.as_ref().map(|it| it.0.as_second()),
            },
            spec: object.spec().clone(),
        }
    }
}

/// The fields of Kubernetes `ObjectMeta` that podnet reads; others are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// A DNS-1123 subdomain, unique per kind and namespace.
    #[serde(default)]
    pub name: String,
    /// Set for namespaced kinds only; `default` when the manifest leaves it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Labels, not interpreted.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub labels: BTreeMap<String, String>,
    /// Annotations, not interpreted.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
    /// Second at which the API server made it (Unix time); none of a file.
    #[serde(skip)]
    pub created: Option<i64>,
}

/// A reference to an object with parameters (KEP-3698 `parametersRefs[]`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ParametersRef {
    /// API group, `podnet.dev` for kinds of this agent; empty is the core group.
    #[schemars(length(max = 253), regex(pattern = GROUP_PATTERN))]
    pub group: String,
    /// Kind of the object.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = "^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$")
    )]
    pub kind: String,
    /// Name of the object.
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN_PATTERN))]
    pub name: String,
    /// Namespace of the object; absent means the referrer's own.
    #[schemars(length(min = 1, max = 63), regex(pattern = LABEL_PATTERN))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Group of the definitions of the NPWG.
const DEFINITION_GROUP: &str = "k8s.cni.cncf.io";
/// Their kind, and the plural that KEP-3698 has in its place.
const DEFINITION_KINDS: [&str; 2] = [
    "NetworkAttachmentDefinition",
    "network-attachment-definitions",
];

impl ParametersRef {
    /// Reports whether it names a `NetworkAttachmentDefinition` (NPWG v1.3 §3.1).
    #[must_use]
    pub fn names_definition(&self) -> bool {
        self.group == DEFINITION_GROUP && DEFINITION_KINDS.contains(&self.kind.as_str())
    }
}

impl fmt::Display for ParametersRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} ", self.group, self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}

/// Kubernetes treats `key: null` as an absent key.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Why a name is not one Kubernetes would accept (RFC 1123 §2.1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing was given.
    #[error("a name is required")]
    Empty,
    /// More bytes than DNS allows.
    #[error("\"{name}\" has {} bytes; shorten it to at most {max}", name.len())]
    TooLong {
        /// The name as given.
        name: String,
        /// The most bytes allowed.
        max: usize,
    },
    /// A character or a place DNS does not allow.
    #[error(
        "\"{name}\" is not a DNS-1123 name; use lower-case letters, digits, '-'{} and \
         begin and end with a letter or digit",
        if *.dots { " and '.'," } else { "," }
    )]
    Character {
        /// The name as given.
        name: String,
        /// Whether dots are allowed here.
        dots: bool,
    },
}

/// Accepts a DNS-1123 subdomain, the form of object names.
///
/// # Errors
/// Empty, longer than 253 bytes, or with a character out of place.
pub fn check_subdomain(name: &str) -> Result<(), NameError> {
    check(name, SUBDOMAIN_MAX, true)
}

/// Accepts a DNS-1123 label, the form of namespace names.
///
/// # Errors
/// Empty, longer than 63 bytes, or with a character out of place.
pub fn check_label(name: &str) -> Result<(), NameError> {
    check(name, LABEL_MAX, false)
}

fn check(name: &str, max: usize, dots: bool) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > max {
        return Err(NameError::TooLong {
            name: name.to_owned(),
            max,
        });
    }
    let well_formed = if dots {
        name.split('.').all(is_label)
    } else {
        is_label(name)
    };
    if well_formed {
        Ok(())
    } else {
        Err(NameError::Character {
            name: name.to_owned(),
            dots,
        })
    }
}

/// `[a-z0-9]([-a-z0-9]*[a-z0-9])?`, of any length as Kubernetes checks it.
pub(crate) fn is_label(label: &str) -> bool {
    !label.is_empty()
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_object_names_are_accepted() {
        for name in ["a", "blue", "blue-2", "0", "a.b-c.d", &"a".repeat(253)] {
            assert_eq!(check_subdomain(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn names_kubernetes_refuses_are_refused() {
        for name in [
            "", "-a", "a-", "A", "a_b", "a..b", ".a", "a.", "a/b", "a b", "ä",
        ] {
            assert!(check_subdomain(name).is_err(), "{name:?} was taken");
        }
        assert_eq!(
            check_subdomain(&"a".repeat(254)),
            Err(NameError::TooLong {
                name: "a".repeat(254),
                max: 253
            })
        );
    }

    #[test]
    fn a_namespace_has_no_dots_and_63_bytes() {
        assert_eq!(check_label(&"a".repeat(63)), Ok(()));
        assert!(check_label(&"a".repeat(64)).is_err());
        assert_eq!(
            check_label("a.b").unwrap_err().to_string(),
            "\"a.b\" is not a DNS-1123 name; use lower-case letters, digits, '-', and begin and \
             end with a letter or digit"
        );
    }
}
