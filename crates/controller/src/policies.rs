//! Find what the writer of a network policy should know.
//!
//! Agents obey policies, and each would say the same of one; so the controller says it, once for the cluster. What
//! only a node can know, as a table that is full, is in that node's log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::{PolicyKind, PolicyObject};
use cluster::events::Note;
use k8s_openapi::api::core::v1::ObjectReference;
use policy::{Member, Policy, Warning, Workload, Workloads, World};
use policy_objects::{Known, Place};

use overview::usage::references;
use overview::view::View;

/// Action of the Events.
const ACTION: &str = "Obey";

/// A policy with the UID of its object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Followed {
    pub(super) uid: String,
    pub(super) policy: Arc<PolicyObject>,
}

/// Policies that are for networks of podnet, and what they select by.
#[derive(Debug, Default)]
pub(super) struct Policies {
    pub(super) all: Vec<Followed>,
    /// Labels of namespaces by name.
    pub(super) namespaces: BTreeMap<String, policy::Labels>,
}

/// Events about policies, and the policies that select no pod.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) notes: Vec<Note>,
    /// UIDs of policies that select no pod.
    pub(super) selecting_none: BTreeSet<String>,
}

impl Policies {
    /// Finds what is to be said.
    ///
    /// A policy that selects no pod has a note only if it did not `before`, either: pods come after their policy.
    pub(super) fn look(&self, view: &View, before: &BTreeSet<String>) -> Found {
        let resolved = view.resolve();
        let known = Known {
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
        let placed: Vec<(&Followed, Place)> = placed
            .filter(|(it, place)| !place.is_left_to_others(&it.policy))
            .collect();
        let networks = placed.iter().flat_map(|(_, place)| &place.networks);
        let worlds = self.worlds(view, &networks.map(String::as_str).collect());
        let mut found = Found::default();
        for (followed, place) in &placed {
            let read = policy_objects::read(&followed.policy);
            let lost = place
                .networks
                .iter()
                .filter(|network| !view.networks.contains_key(*network));
            let lost = lost.map(|network| {
                format!("there is no PodNetwork {network}: create it, or correct the annotation")
            });
            let own = followed.policy.problems.iter().chain(&place.problems);
            let problems = own.cloned().chain(lost);
            let problems = problems.chain(read.problems.iter().map(ToString::to_string));
            found.add(followed, ("NotObeyed", true), &problems.collect::<Vec<_>>());
            let worlds = place
                .networks
                .iter()
                .filter_map(|it| worlds.get(it.as_str()));
            let worlds: Vec<&World> = worlds.collect();
            let warnings = warnings(&worlds, &read.policy);
            let (nobody, open): (Vec<Warning>, Vec<Warning>) = warnings
                .into_iter()
                .partition(|it| *it == Warning::SelectsNobody);
            let sentences = |all: Vec<Warning>| -> Vec<String> {
                all.iter().map(ToString::to_string).collect()
            };
            found.add(followed, ("AllowsEverything", true), &sentences(open));
            if !nobody.is_empty() {
                found.selecting_none.insert(followed.uid.clone());
                if before.contains(&followed.uid) {
                    found.add(followed, ("SelectsNothing", false), &sentences(nobody));
                }
            }
        }
        found
    }

    /// The pods of these networks, with labels.
    fn worlds<'a>(&self, view: &View, networks: &BTreeSet<&'a str>) -> BTreeMap<&'a str, World> {
        let mut members: BTreeMap<&str, Vec<Member>> =
            networks.iter().map(|name| (*name, Vec::new())).collect();
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
        let worlds = members.into_iter().map(|(network, members)| {
            let world = World {
                namespaces: self.namespaces.clone(),
                members,
                nodes: Vec::new(),
            };
            (network, world)
        });
        worlds.collect()
    }
}

impl Found {
    fn add(&mut self, of: &Followed, (reason, is_warning): (&'static str, bool), text: &[String]) {
        if text.is_empty() {
            return;
        }
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

/// Returns the warnings of a policy that can be obeyed, each once.
///
/// However many networks it is for. It selects nobody where it does so on all of them. A rule that leaves out the peers alone, as one that opens a
/// port to all, is what many policies are for.
fn warnings(worlds: &[&World], policy: &Policy) -> BTreeSet<Warning> {
    let each = worlds
        .iter()
        .map(|world| policy::warnings(world, policy, true));
    let each: Vec<Vec<Warning>> = each.collect();
    let everywhere = each.iter().all(|all| all.contains(&Warning::SelectsNobody));
    let all = each.into_iter().flatten();
    let told = all.filter(|warning| match warning {
        Warning::SelectsNobody => everywhere,
        Warning::AnyPeer { any_port, .. } => *any_port,
        Warning::NoAddresses { .. } => false,
    });
    told.collect()
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
