//! Which networks a pod wants: its two annotations read, checked and made one list.
//!
//! `podnet.dev/networks` is the list of KEP-3698: complete, so a pod that has it is attached to
//! the default network only when the list says so. `k8s.v1.cni.cncf.io/networks` is NPWG's: what
//! a pod wants besides that. A pod can have both; the networks of the KEP come first.
//!
//! ```
//! use api::selection::{PodAnnotations, PodSelection, SelectionRules, Target};
//!
//! let annotations = [("k8s.v1.cni.cncf.io/networks".to_owned(), "blue, ops/red@mgmt0".to_owned())];
//! let pod = PodAnnotations {
//!     namespace: "shop",
//!     host_network: false,
//!     annotations: &annotations.into(),
//! };
//! let selection = PodSelection::read(&pod, &SelectionRules::default())?;
//! let interfaces: Vec<_> = selection.attachments.iter().map(|a| a.interface.as_str()).collect();
//! assert_eq!(interfaces, ["eth0", "net1", "mgmt0"]);
//! assert_eq!(selection.attachments[0].target, Target::PodNetwork("default".to_owned()));
//! # Ok::<(), api::selection::SelectionErrors>(())
//! ```

mod combine;
mod ifname;
mod kep;
mod limits;
mod naming;
mod nics;
mod npwg;
mod options;
mod problem;
mod reader;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use serde::{Deserialize, Serialize};

use crate::listed::{PROBLEM_BYTES, Shortened};
use crate::nad::AllowedPlugins;

pub use ifname::{InterfaceName, InterfaceNameError};
pub use kep::{
    POD_NETWORKS_ANNOTATION, PodNetworkRef, PodNetworkSelection, parse_pod_networks, populated_list,
};
pub use limits::ATTACHMENTS_MAX;
pub use nics::{NICS_ANNOTATION, VPC_ANNOTATION};
pub use npwg::{NETWORKS_ANNOTATION, NetworkSelection, parse_networks};
pub use options::{AttachmentOptions, InfinibandGuid, PortMapping, Protocol};
pub use problem::{Place, SelectionError, SelectionErrors, SelectionProblem};

/// Annotation with another default network of a pod.
///
/// An extension of multus (NPWG-X1).
pub const DEFAULT_NETWORK_ANNOTATION: &str = "v1.multus-cni.io/default-network";

/// Annotation with the network of a list that was filled in.
///
/// KEP-3698 "Auto-population". [`POD_NETWORKS_ANNOTATION`] that has just this network means what no list means, so it changes nothing for
/// the pod. With any other list it has no effect.
pub const POPULATED_ANNOTATION: &str = "podnet.dev/networks-populated";

/// Annotations of a pod about its networks.
#[derive(Clone, Copy, Debug)]
pub struct PodAnnotations<'a> {
    /// The pod's namespace.
    pub namespace: &'a str,
    /// `spec.hostNetwork`.
    pub host_network: bool,
    /// All annotations of the pod.
    pub annotations: &'a BTreeMap<String, String>,
}

/// The cluster's rules for the lists of its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectionRules {
    /// Name of the `PodNetwork` a pod without a list of KEP-3698 is attached to first.
    pub default_network: String,
    /// Name of the `PodNetwork` that such a pod has instead on this node.
    ///
    /// Lists mean the same on every node, so no element of one is this network by the name of the other.
    pub node_default: Option<String>,
    /// Definitions that such a pod is attached to next, by namespace and name.
    pub default_networks: Vec<(String, String)>,
    /// Namespaces whose pods have none of these.
    pub system_namespaces: BTreeSet<String>,
    /// Name of the interface the runtime asks for.
    pub primary_interface: InterfaceName,
    /// Namespace of names in [`DEFAULT_NETWORK_ANNOTATION`] that have none.
    ///
    /// `None` refuses pods with the annotation.
    pub default_override: Option<String>,
    /// Namespaces whose definitions pods of all namespaces may name.
    ///
    /// `None`: a pod may name those of every namespace.
    pub global_namespaces: Option<BTreeSet<String>>,
    /// Plugins that definitions may name.
    pub plugins: AllowedPlugins,
    /// Refuse `ips` with `ipam-claim-reference`, as NPWG §4.1.2.1.11 says it.
    ///
    /// Clients in use send both, so it is not the default.
    pub claim_excludes_ips: bool,
    /// The most attachments of a pod, that to the default network counted.
    pub max_attachments: usize,
}

impl Default for SelectionRules {
    fn default() -> Self {
        Self {
            default_network: "default".to_owned(),
            node_default: None,
            default_networks: Vec::new(),
            system_namespaces: BTreeSet::new(),
            primary_interface: InterfaceName::primary(),
            default_override: None,
            global_namespaces: None,
            plugins: AllowedPlugins::All,
            claim_excludes_ips: false,
            max_attachments: ATTACHMENTS_MAX,
        }
    }
}

/// A reference into another namespace, where the cluster isolates namespaces.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "namespace {namespace} is another than {own}, and with --namespace-isolation only those of \
     --global-namespaces may be named from everywhere ({global}); create the object in namespace {own}, \
     or name one of its own"
)]
pub struct NamespaceIsolated {
    /// The namespace that is named.
    pub namespace: String,
    /// The namespace in which the name is written.
    pub own: String,
    /// The namespaces that are everybody's.
    pub global: String,
}

impl SelectionRules {
    /// Returns the network that a pod without a list of KEP-3698 is attached to first.
    fn implied(&self) -> Target {
        let name = self.node_default.as_ref().unwrap_or(&self.default_network);
        Target::PodNetwork(name.clone())
    }

    /// Returns the definitions that a pod without a list of KEP-3698 has next.
    fn given(&self, namespace: &str) -> impl Iterator<Item = Target> {
        let is_system = self.system_namespaces.contains(namespace);
        let given = self.default_networks.iter().filter(move |_| !is_system);
        given.map(|(namespace, name)| Target::Definition {
            namespace: namespace.clone(),
            name: name.clone(),
        })
    }

    /// Checks that an object of namespace `own` may name one of `namespace`.
    ///
    /// # Errors
    /// Namespaces are isolated, and this is another one.
    pub fn check_namespace(&self, own: &str, namespace: &str) -> Result<(), NamespaceIsolated> {
        match &self.global_namespaces {
            Some(global) if namespace != own && !global.contains(namespace) => {
                let names: Vec<&str> = global.iter().map(String::as_str).collect();
                Err(NamespaceIsolated {
                    namespace: namespace.to_owned(),
                    own: own.to_owned(),
                    global: if names.is_empty() {
                        "none".to_owned()
                    } else {
                        names.join(", ")
                    },
                })
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Everything one pod is to be attached to, in the order in which that is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSelection {
    /// None for a pod in its node's network.
    pub attachments: Vec<SelectedAttachment>,
    /// Values that were read and have no effect, or one that surprises.
    pub notes: Vec<SelectionNote>,
}

/// One attachment of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SelectedAttachment {
    /// Place in [`PodSelection::attachments`], from 0.
    pub position: usize,
    /// The list that asks for it.
    pub source: Source,
    /// The network or definition to attach to.
    pub target: Target,
    /// The interface in the pod; no other attachment has it.
    pub interface: InterfaceName,
    /// The default routes of the pod go through its network, for those families no
    /// `default-route` claims. Exactly one attachment has it.
    #[serde(rename = "isDefaultGW")]
    pub is_default_gateway: bool,
    /// Wishes of the element.
    pub options: AttachmentOptions,
}

impl SelectedAttachment {
    /// Reports whether the cluster's options ask for it, and nothing of the pod does.
    ///
    /// It is a network next to the default one, which is the default gateway of such a pod.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.source == Source::Default && !self.is_default_gateway
    }
}

/// Where an attachment comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Source {
    /// Adds the default networks to a pod that has no list of KEP-3698.
    ///
    /// NPWG §6, KEP-DEF-5.
    Default,
    /// [`POD_NETWORKS_ANNOTATION`].
    Kep,
    /// [`NETWORKS_ANNOTATION`].
    Npwg,
}

/// The network or definition of an attachment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Target {
    /// The `PodNetwork` of this name.
    PodNetwork(String),
    /// A `PodNetworkAttachment`.
    Attachment {
        /// Its namespace, the pod's own.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A `NetworkAttachmentDefinition`.
    Definition {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PodNetwork(name) => write!(f, "PodNetwork {name}"),
            Self::Attachment { namespace, name } => {
                write!(f, "PodNetworkAttachment {namespace}/{name}")
            }
            Self::Definition { namespace, name } => {
                write!(f, "NetworkAttachmentDefinition {namespace}/{name}")
            }
        }
    }
}

/// Something in an annotation that has no effect, or one that surprises.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum SelectionNote {
    /// An unknown key without a period, reserved by NPWG §4.1.2.1.
    #[serde(rename = "ignoredKey")]
    IgnoredKey {
        /// Path of the key, as `k8s.v1.cni.cncf.io/networks[0].mut`.
        path: String,
    },
    /// [`DEFAULT_NETWORK_ANNOTATION`] with a list of KEP-3698, which is complete.
    #[serde(rename = "overrideIgnored")]
    OverrideIgnored,
    /// The default network is not at the interface whose address Kubernetes knows.
    #[serde(rename = "defaultMoved")]
    DefaultMoved {
        /// Name of the default network.
        network: String,
        /// Its interface in the pod.
        interface: InterfaceName,
        /// The interface that the runtime reads the pod's addresses from.
        primary: InterfaceName,
    },
    /// Further notes, which are not kept.
    #[serde(rename = "more")]
    More {
        /// How many.
        count: usize,
    },
}

impl fmt::Display for SelectionNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IgnoredKey { path } => {
                let path = Shortened(path, PROBLEM_BYTES);
                write!(f, "{path} is not known and ignored")
            }
            Self::More { count } => write!(f, "and {count} more keys are not known and ignored"),
            Self::OverrideIgnored => write!(
                f,
                "{DEFAULT_NETWORK_ANNOTATION} is ignored: {POD_NETWORKS_ANNOTATION} names all \
                 networks of the pod"
            ),
            Self::DefaultMoved {
                network,
                interface,
                primary,
            } => write!(
                f,
                "the default network {network} is at {interface} and another network at {primary}, whose \
                 address Kubernetes takes for the pod's: Services and probes of the node do not reach \
                 the pod at its address of {network}; give {network} the interfaceName {primary}"
            ),
        }
    }
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

impl PodSelection {
    /// Reads all lists of a pod, without the objects they name.
    ///
    /// No element is read of a list that is longer than `rules` allow.
    ///
    /// # Errors
    /// Everything that is wrong with the lists, and with both of them together. Whether the pod
    /// fails then, or gets [`PodSelection::default_only`], is the caller's decision.
    pub fn read(pod: &PodAnnotations<'_>, rules: &SelectionRules) -> Result<Self, SelectionErrors> {
        combine::read(pod, rules)
    }

    /// Returns the selection of a pod of `namespace` without any annotation.
    #[must_use]
    pub fn default_only(namespace: &str, rules: &SelectionRules) -> Self {
        let pod = PodAnnotations {
            namespace,
            host_network: false,
            annotations: &BTreeMap::new(),
        };
        // No list has an error.
        combine::read(&pod, rules).unwrap_or_default()
    }

    /// Returns the attachment with the default route of `family` (NPWG §4.1.2.1.9).
    ///
    /// It is the one whose `default-route` has a gateway of the family; or the one whose `default-route`
    /// is empty, when its network `supplies` a default route; else the default gateway. So no family
    /// loses its default route to an attachment that has none to give.
    #[must_use]
    pub fn default_route(
        &self,
        family: Family,
        supplies: impl Fn(&SelectedAttachment) -> bool,
    ) -> Option<&SelectedAttachment> {
        let claims = |attachment: &&SelectedAttachment| match &attachment.options.default_route {
            None => false,
            Some(gateways) if gateways.is_empty() => supplies(attachment),
            Some(gateways) => gateways.iter().any(|via| Family::of(*via) == family),
        };
        self.attachments.iter().find(claims).or_else(|| {
            self.attachments
                .iter()
                .find(|attachment| attachment.is_default_gateway)
        })
    }
}
