//! Find what the writer of a network policy should know.
//!
//! Agents obey policies, and each would say the same of one; so the controller says it, once for the cluster. What
//! only a node can know, as a table that is full, is in that node's log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::{PolicyKind, PolicyObject};
use cluster::events::Note;
use k8s_openapi::api::core::v1::ObjectReference;
use overview::usage::references;
use overview::view::View;
use policy::{Member, Read, Warning, Workload, Workloads, World};
use policy_objects::{Known, Place};
use serde_json::Value;

/// Action of the Events.
const ACTION: &str = "Obey";

/// A policy with the UID of its object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Followed {
    uid: String,
    /// Without the spec, of which only what was read is kept.
    policy: PolicyObject,
    read: Read,
}

impl Followed {
    /// Reads a policy.
    pub(super) fn new(uid: String, policy: &PolicyObject) -> Self {
        Self {
            uid,
            policy: PolicyObject {
                spec: Value::Null,
                ..policy.clone()
            },
            read: policy_objects::read(policy),
        }
    }
}

/// Policies of the cluster, and what they select by.
#[derive(Debug, Default)]
pub(super) struct Policies {
    /// All policies.
    pub(super) all: Vec<Arc<Followed>>,
    /// Labels of namespaces by name.
    pub(super) namespaces: BTreeMap<String, policy::Labels>,
}

/// Events about policies, and the policies that select no pod.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Events that are due, in the order of the policies.
    pub(super) notes: Vec<Note>,
    /// UIDs of policies that select no pod.
    pub(super) selecting_none: BTreeSet<String>,
}

/// Warnings of a policy on all of its networks.
#[derive(Debug, Default)]
struct Warned {
    /// Rules that allow everything.
    open: BTreeSet<Warning>,
    /// It selects a pod of some network.
    selects: bool,
}

impl Policies {
    /// Finds the Events that are due.
    ///
    /// A policy that selects no pod has one only if it did not `before`, either: pods come after their policy.
    pub(super) fn look(self, view: &View, before: &BTreeSet<String>) -> Found {
        let resolved = view.resolve();
        let known = Known {
            defaults: view.routed_defaults(&resolved),
            resolved: &resolved,
            meaning: &|namespace, name| {
                let key = (namespace.to_owned(), name.to_owned());
                view.definitions.get(&key).cloned()
            },
        };
        let placed = self
            .all
            .iter()
            .map(|it| (it, Place::of(&it.policy, &known)));
        let placed: Vec<(&Arc<Followed>, Place)> = placed
            .filter(|(_, place)| !place.is_left_to_others)
            .collect();
        let mut warned: Vec<Warned> = placed.iter().map(|_| Warned::default()).collect();
        let mut by_network: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, (_, place)) in placed.iter().enumerate() {
            for network in &place.networks {
                // Whoever names a network that is not there costs no look at its pods.
                if let Some((name, _)) = view.networks.get_key_value(network) {
                    by_network.entry(name).or_default().push(at);
                }
            }
        }
        let mut members = members(view, &by_network);
        // One world for all networks: namespaces are the largest part of it.
        let mut world = World {
            namespaces: self.namespaces,
            ..World::default()
        };
        for (network, policies) in by_network {
            world.members = members.remove(network).unwrap_or_default();
            for at in policies {
                let (Some((followed, _)), Some(warned)) = (placed.get(at), warned.get_mut(at))
                else {
                    continue;
                };
                let warnings = policy::warnings(&world, &followed.read.policy, true);
                warned.add(warnings);
            }
        }
        let mut found = Found::default();
        for ((followed, place), warned) in placed.into_iter().zip(warned) {
            let refused = place
                .networks
                .iter()
                .filter_map(|it| resolved.network(it).err());
            let refused: Vec<String> = refused.map(|error| error.to_string()).collect();
            // Where a network is missing, nothing says which pods it would have had.
            let has_all = refused.is_empty() && place.problems.is_empty();
            let selects_none = has_all && !place.networks.is_empty() && !warned.selects;
            let own = followed.policy.problems.iter().chain(&place.problems);
            let problems = own.cloned().chain(refused);
            let problems = problems.chain(followed.read.problems.iter().map(ToString::to_string));
            found.add(followed, ("NotObeyed", true), problems);
            let open = warned.open.iter().map(ToString::to_string);
            found.add(followed, ("AllowsEverything", true), open);
            if selects_none {
                found.selecting_none.insert(followed.uid.clone());
                if before.contains(&followed.uid) {
                    let text = Warning::SelectsNobody.to_string();
                    found.add(followed, ("SelectsNothing", false), [text].into_iter());
                }
            }
        }
        found
    }
}

/// The pods of these networks, with labels.
fn members<'a>(
    view: &View,
    networks: &BTreeMap<&'a str, Vec<usize>>,
) -> BTreeMap<&'a str, Vec<Member>> {
    let mut members: BTreeMap<&str, Vec<Member>> =
        networks.keys().map(|name| (*name, Vec::new())).collect();
    let mut workloads = Workloads::default();
    // Where no policy is, nobody has to know which pods are on which network.
    let pods = view.pods.values().filter(|_| !networks.is_empty());
    for pod in pods.filter(|pod| !pod.has_ended() && !pod.spec.host_network) {
        let found = references(pod, view);
        let attachments = found.attachments.iter();
        let attachments = attachments.filter_map(|key| view.attachments.get(key));
        let by_attachment = attachments.map(|it| &it.spec.pod_network_name);
        let on: BTreeSet<&String> = found.networks.iter().chain(by_attachment).collect();
        let workload = workloads.share(Workload {
            namespace: pod.namespace().to_owned(),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            ports: Vec::new(),
        });
        for network in on {
            if let Some(members) = members.get_mut(network.as_str()) {
                members.push(Member {
                    workload: Arc::clone(&workload),
                    addresses: Vec::new(),
                });
            }
        }
    }
    members
}

impl Warned {
    /// Adds the warnings on one network.
    ///
    /// A rule that leaves out the peers alone, as one that opens a port to all, is what many policies are for.
    fn add(&mut self, warnings: Vec<Warning>) {
        self.selects |= !warnings.contains(&Warning::SelectsNobody);
        let is_open = |it: &Warning| matches!(it, Warning::AnyPeer { any_port: true, .. });
        self.open.extend(warnings.into_iter().filter(is_open));
    }
}

impl Found {
    fn add(
        &mut self,
        of: &Followed,
        (reason, is_warning): (&'static str, bool),
        sentences: impl Iterator<Item = String>,
    ) {
        let text: Vec<String> = sentences.collect();
        if !text.is_empty() {
            self.notes.push(Note {
                about: about(of),
                reason,
                action: ACTION,
                is_warning,
                varies: false,
                text: text.join("; "),
            });
        }
    }
}

fn about(of: &Followed) -> ObjectReference {
    let policy = &of.policy;
    let versions = policy.kind.versions();
    let version = versions.first().copied().unwrap_or_default();
    let namespaced = policy.kind != PolicyKind::ClusterNetworkPolicy;
    ObjectReference {
        api_version: Some(format!("{}/{version}", policy.kind.group())),
        kind: Some(policy.kind.as_str().to_owned()),
        namespace: namespaced.then(|| policy.namespace.clone()),
        name: Some(policy.name.clone()),
        uid: Some(of.uid.clone()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests;
