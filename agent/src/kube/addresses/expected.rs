//! Addresses that will soon be needed.
//!
//! Pods that were bound to this node and are not attached yet need them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::nad::{Definition, Meaning, NetworkRef, read_definition};
use api::selection::{PodAnnotations, PodSelection, SelectedAttachment, Source, Target};
use book::Book;
use book::record::State;
use world::DefaultNetwork;
use world::World;
use world::lists::ListOptions;

use crate::kube::lookup::Pod;

/// Age after which a pod that is not attached is not expected any more.
///
/// It may have ended, or use the node's network.
pub(in crate::kube) const SOON: Duration = Duration::from_secs(120);

/// Counts the attachments that are expected for young `pods`, by network.
pub(super) fn expected(
    book: &Book,
    pods: Vec<Pod>,
    lists: &ListOptions,
    world: &World,
) -> BTreeMap<String, u64> {
    let mut done = Done::default();
    for record in book.pods().records() {
        // What is being attached needs what it has not got yet.
        if let (Some(pod), State::Added | State::Deleting) = (record.pod, record.state) {
            done.pods.insert((pod.namespace, pod.name));
        }
    }
    for entry in book.ledger().entries() {
        if let Some(pod) = &entry.record.pod {
            let key = (pod.namespace.clone(), pod.name.clone());
            let networks = done.attachments.entry(key).or_default();
            let network = entry.record.network.name.clone();
            *networks.entry(network).or_default() += 1;
        }
    }
    done.without(pods.into_iter().map(|pod| {
        let networks = networks(&pod, lists, world);
        ((pod.namespace, pod.name), networks)
    }))
}

/// Attachments that pods have got, by the pod's namespace and name.
#[derive(Debug, Default)]
struct Done {
    /// They have all.
    pods: BTreeSet<(String, String)>,
    /// How many attachments, by network.
    attachments: BTreeMap<(String, String), BTreeMap<String, u64>>,
}

impl Done {
    /// How many attachments to each network are missing to what pods list.
    fn without(
        &self,
        listed: impl Iterator<Item = ((String, String), Vec<String>)>,
    ) -> BTreeMap<String, u64> {
        let mut missing = BTreeMap::new();
        for (pod, networks) in listed.filter(|(pod, _)| !self.pods.contains(pod)) {
            let mut has = self.attachments.get(&pod).cloned().unwrap_or_default();
            for network in networks {
                match has.get_mut(&network) {
                    Some(count) if *count > 0 => *count -= 1,
                    _ => *missing.entry(network).or_default() += 1,
                }
            }
        }
        missing
    }
}

/// Lists the networks of ours that a pod will be attached to.
///
/// A network that the pod lists twice is twice among them. A list that cannot be understood is refused when
/// the pod is attached, and is empty here.
pub(in crate::kube) fn networks(pod: &Pod, lists: &ListOptions, world: &World) -> Vec<String> {
    let annotations = PodAnnotations {
        namespace: &pod.namespace,
        host_network: false,
        annotations: &pod.annotations,
    };
    // A pod that would have a default network that is not known is refused.
    let default = world.default_network(lists);
    let default = default.unwrap_or(DefaultNetwork::None);
    let Ok(selection) = PodSelection::read(&annotations, &lists.rules_on(&default)) else {
        return Vec::new();
    };
    let named = |one: &SelectedAttachment| match &one.target {
        Target::PodNetwork(name) => {
            let default = match one.source {
                Source::Default => &default,
                Source::Kep | Source::Npwg => &lists.default_network,
            };
            let is_others =
                !matches!(default, DefaultNetwork::PodNetwork(_)) && name == default.name();
            (!is_others).then(|| name.clone())
        }
        Target::Attachment { namespace, name } => attachment(world, namespace, name),
        Target::Definition { namespace, name } => {
            let object = world.definitions.get(&(namespace.clone(), name.clone()))?;
            let definition = read_definition(&Definition {
                namespace,
                name,
                annotations: &object.annotations,
                config: &object.config,
            });
            match definition.ok()?.meaning {
                Meaning::ByName(network) => Some(network),
                Meaning::Own(own) => match own.network {
                    NetworkRef::PodNetwork(network) => Some(network),
                    NetworkRef::Attachment { namespace, name } => {
                        attachment(world, &namespace, &name)
                    }
                },
                Meaning::Delegate(_) => None,
            }
        }
    };
    let named = selection.attachments.iter().filter_map(named);
    named.filter(|name| world.network(name).is_ok()).collect()
}

fn attachment(world: &World, namespace: &str, name: &str) -> Option<String> {
    let attachment = world.attachment(namespace, name).ok()?;
    Some(attachment.network.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORKS: &str = r#"
apiVersion: podnet.dev/v1alpha1
kind: PodNetwork
metadata: {name: blue}
spec: {provider: podnet.dev/ebpf, parametersRefs: [{group: podnet.dev, kind: PodNetworkParameters, name: p}]}
---
apiVersion: podnet.dev/v1alpha1
kind: PodNetworkParameters
metadata: {name: p}
spec: {mode: L2, subnets: [10.10.0.0/24]}
---
apiVersion: podnet.dev/v1alpha1
kind: PodNetworkAttachment
metadata: {name: fast, namespace: shop}
spec: {podNetworkName: blue}
"#;

    fn world() -> World {
        let parsed = api::parse_manifests("test", NETWORKS).into_iter();
        let objects: Vec<_> = parsed.map(|object| object.unwrap()).collect();
        let definition = |config: &str| world::Definition {
            annotations: BTreeMap::new(),
            config: config.to_owned(),
        };
        let own = r#"{"cniVersion": "1.0.0", "type": "podnet", "podNetwork": "blue"}"#;
        let others = r#"{"cniVersion": "1.0.0", "name": "x", "type": "macvlan"}"#;
        let key = |name: &str| ("shop".to_owned(), name.to_owned());
        World {
            resolved: api::resolve(objects),
            definitions: [
                (key("own"), definition(own)),
                (key("blue"), definition("")),
                (key("others"), definition(others)),
            ]
            .into(),
            ..World::default()
        }
    }

    fn lists(default_network: &str) -> ListOptions {
        ListOptions {
            default_network: default_network.parse().unwrap(),
            default_networks: [].into(),
            system_namespaces: Vec::new(),
            default_override: None,
            max_attachments_per_pod: 32,
            delegates_allowed: None,
            namespace_isolation: false,
            global_namespaces: Vec::new(),
        }
    }

    fn pod(annotations: &[(&str, &str)]) -> Pod {
        let annotations = annotations.iter();
        Pod {
            namespace: "shop".to_owned(),
            annotations: annotations
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            ..Pod::default()
        }
    }

    fn of(default_network: &str, annotations: &[(&str, &str)]) -> Vec<String> {
        networks(&pod(annotations), &lists(default_network), &world())
    }

    const KEP: &str = "podnet.dev/networks";
    const NPWG: &str = "k8s.v1.cni.cncf.io/networks";

    #[test]
    fn the_networks_of_a_pod_are_those_of_its_lists_by_whatever_they_are_named() {
        assert_eq!(of("none", &[(KEP, r#"[{"name": "blue"}]"#)]), ["blue"]);
        assert_eq!(
            of("none", &[(KEP, r#"[{"attachmentName": "fast"}]"#)]),
            ["blue"]
        );
        assert_eq!(of("none", &[(NPWG, "own,blue,others")]), ["blue", "blue"]);
    }

    /// KEP-DEF-6: addresses are asked for on the network that the pod will have.
    #[test]
    fn a_node_with_another_default_network_needs_addresses_of_that_one() {
        let on = |node: &str, default: &str, annotations: &[(&str, &str)]| {
            let world = World {
                node_default: Some(node.to_owned()),
                ..world()
            };
            networks(&pod(annotations), &lists(default), &world)
        };
        assert_eq!(on("podnetwork:blue", "none", &[]), ["blue"]);
        assert_eq!(on("podnetwork:blue", "delegate", &[]), ["blue"]);
        for other in ["delegate", "none", "nonsense", "podnetwork:missing"] {
            assert!(on(other, "podnetwork:blue", &[]).is_empty(), "{other}");
        }
        // A list is not about the node.
        let list = [(KEP, r#"[{"name": "blue"}]"#)];
        assert_eq!(on("nonsense", "delegate", &list), ["blue"]);
        proof::of!("KEP-DEF-6");
    }

    /// Keeps the next address of a pod while the pod is being attached.
    #[test]
    fn a_pod_needs_what_it_lists_and_has_not_got_until_it_has_all() {
        let pod = |name: &str| ("shop".to_owned(), name.to_owned());
        let missing = |done: &Done| {
            let listed = ["blue", "red", "blue"].map(str::to_owned).to_vec();
            let missing = done.without(std::iter::once((pod("web"), listed)));
            let of = |network| missing.get(network).copied().unwrap_or(0);
            (of("blue"), of("red"))
        };
        let mut done = Done::default();
        assert_eq!(missing(&done), (2, 1));
        done.attachments
            .insert(pod("db"), [("red".to_owned(), 1)].into());
        done.attachments
            .insert(pod("web"), [("blue".to_owned(), 1)].into());
        assert_eq!(missing(&done), (1, 1));
        done.pods.insert(pod("web"));
        assert_eq!(missing(&done), (0, 0));
    }

    #[test]
    fn the_default_network_counts_when_it_is_ours() {
        assert_eq!(of("podnetwork:blue", &[]), ["blue"]);
        assert!(of("delegate", &[]).is_empty());
        assert!(of("none", &[]).is_empty());
    }

    #[test]
    fn what_is_not_there_or_not_understood_is_not_expected() {
        assert!(of("none", &[(KEP, r#"[{"name": "red"}]"#)]).is_empty());
        assert!(of("none", &[(NPWG, "missing")]).is_empty());
        assert!(of("none", &[(NPWG, "[{")]).is_empty());
    }
}
