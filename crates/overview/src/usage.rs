//! Find the users of networks and attachments (KEP-PN-U1 to U3, KEP-PNA-05).
//!
//! An object in use is not deleted.
//!
//! A pod uses what its lists name, whether it has started or not, until it has `Succeeded` or
//! `Failed`; one that is being deleted is still there. It also uses what its status says that it is
//! attached to, so a list or a definition that has changed since frees nothing. A
//! `NetworkAttachmentDefinition` counts by the pods that name it, not by itself: it may be a relic,
//! in a namespace the network's owner does not know. A `PodNetworkAttachment` does count by itself.

use std::collections::{BTreeMap, BTreeSet};

use api::nad::{Meaning, NetworkRef};
use api::selection::{PodAnnotations, PodSelection, Source, Target};
use api::status::{POD_NETWORK_STATUS_ANNOTATION, PodNetworkStatusEntry};

use super::pod::Pod;
use super::view::{Key, View};

/// The most nodes of a network that are named.
const NODES_MAX: usize = 2;

/// Networks, attachments, claims and Ports that one pod refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// Networks, directly, by a definition, or attached to already.
    pub networks: BTreeSet<String>,
    /// Parameterised attachments.
    pub attachments: BTreeSet<Key>,
    /// `IPAMClaim`s.
    pub claims: BTreeSet<Key>,
    /// `Port`s.
    pub ports: BTreeSet<Key>,
}

/// An example of who uses each object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Networks that pods use, also through an attachment: the pod.
    pub by_pods: BTreeMap<String, String>,
    /// Networks that attachments name: the attachment.
    pub by_attachments: BTreeMap<String, String>,
    /// Attachments that pods use: the pod.
    pub attachments: BTreeMap<Key, String>,
    /// `IPAMClaim`s that any pod names.
    pub claims: BTreeSet<Key>,
    /// `Port`s that any pod names.
    pub ports: BTreeSet<Key>,
    /// Nodes that pods of a network are bound to: two of them, where there are more.
    pub nodes: BTreeMap<String, BTreeSet<String>>,
}

impl Usage {
    /// Collects the references of all pods and attachments.
    pub fn of(view: &View) -> Self {
        let mut usage = Self::default();
        for ((namespace, name), attachment) in &view.attachments {
            let network = attachment.spec.pod_network_name.clone();
            usage
                .by_attachments
                .entry(network)
                .or_insert_with(|| format!("PodNetworkAttachment {namespace}/{name}"));
        }
        for pod in view.pods.values() {
            let references = references(pod, view);
            // The address of a claim is the pod's as long as anybody knows the pod.
            usage.claims.extend(references.claims);
            usage.ports.extend(references.ports);
            if pod.has_ended() {
                continue;
            }
            let user = || format!("pod {}/{}", pod.namespace(), pod.name());
            for attachment in references.attachments {
                if let Some(object) = view.attachments.get(&attachment) {
                    let network = object.spec.pod_network_name.clone();
                    usage.note_node(&network, pod);
                    usage.by_pods.entry(network).or_insert_with(user);
                }
                usage.attachments.entry(attachment).or_insert_with(user);
            }
            for network in references.networks {
                usage.note_node(&network, pod);
                usage.by_pods.entry(network).or_insert_with(user);
            }
        }
        usage
    }

    fn note_node(&mut self, network: &str, pod: &Pod) {
        let Some(node) = &pod.spec.node_name else {
            return;
        };
        let nodes = self.nodes.entry(network.to_owned()).or_default();
        nodes.insert(node.clone());
        // The first by name, so that the warning about them changes seldom.
        if nodes.len() > NODES_MAX {
            nodes.pop_last();
        }
    }

    /// Returns the pod or attachment that keeps a network from being deleted, if any.
    pub fn network_user(&self, name: &str) -> Option<&str> {
        let user = self.by_pods.get(name);
        user.or_else(|| self.by_attachments.get(name))
            .map(String::as_str)
    }
}

/// Returns the references of a pod, by its lists and its status.
///
/// Lists that cannot be read refer to nothing: no pod starts with them.
pub fn references(pod: &Pod, view: &View) -> References {
    let mut found = References::default();
    for target in selection(pod, view).unwrap_or_default().attachments {
        if target.source == Source::Default && matches!(target.target, Target::PodNetwork(_)) {
            found.networks.extend(implied(pod, view));
            continue;
        }
        if let Some(claim) = target.options.ipam_claim_reference {
            let namespace = pod.namespace().to_owned();
            found.claims.insert((namespace, claim));
        }
        if let Some(port) = target.options.port {
            found.ports.insert((pod.namespace().to_owned(), port));
        }
        match target.target {
            Target::PodNetwork(name) => {
                found.networks.insert(name);
            }
            Target::Attachment { namespace, name } => {
                found.attachments.insert((namespace, name));
            }
            Target::Definition { namespace, name } => {
                match view.definitions.get(&(namespace, name)) {
                    Some(Ok(Meaning::ByName(name))) => {
                        found.networks.insert(name.clone());
                    }
                    Some(Ok(Meaning::Own(own))) => match own.network.clone() {
                        NetworkRef::PodNetwork(name) => {
                            found.networks.insert(name);
                        }
                        NetworkRef::Attachment { namespace, name } => {
                            found.attachments.insert((namespace, name));
                        }
                    },
                    Some(Ok(Meaning::Delegate(_)) | Err(_)) | None => {}
                }
            }
        }
    }
    found.networks.extend(attached(pod));
    found
}

/// Names the networks that a pod without a list has, or may have.
///
/// On a node with another default network a pod has what its status says. One without a status may have
/// been attached before the node got the other.
fn implied(pod: &Pod, view: &View) -> Vec<String> {
    let cluster = || view.rules.default_network.clone();
    let Some(node) = &pod.spec.node_name else {
        // It has none yet.
        return view
            .takes_default()
            .map(|_| cluster())
            .into_iter()
            .collect();
    };
    let Some(own) = view.node_defaults.of(node) else {
        return vec![cluster()];
    };
    let before = attached(pod).next().is_none().then(cluster);
    let own = own.pod_network().map(ToOwned::to_owned);
    own.into_iter().chain(before).collect()
}

/// A pod's lists, read.
///
/// # Errors
/// As [`PodSelection::read`].
pub fn selection(pod: &Pod, view: &View) -> Result<PodSelection, api::selection::SelectionErrors> {
    let none = BTreeMap::new();
    let annotations = PodAnnotations {
        namespace: pod.namespace(),
        host_network: pod.spec.host_network,
        annotations: pod.metadata.annotations.as_ref().unwrap_or(&none),
    };
    PodSelection::read(&annotations, &view.rules)
}

/// Returns the networks that a pod's status names.
///
/// The agents write the status. One that cannot be read was written by somebody else.
fn attached(pod: &Pod) -> impl Iterator<Item = String> {
    let annotations = pod.metadata.annotations.as_ref();
    let text = annotations.and_then(|all| all.get(POD_NETWORK_STATUS_ANNOTATION));
    let entries: Vec<PodNetworkStatusEntry> = text
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    entries.into_iter().map(|entry| entry.name)
}

#[cfg(test)]
mod tests;
