//! Policies, and what they select by: labels of namespaces, pods and nodes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use api::{PolicyNetworks, PolicyObject};
use tokio::sync::watch;

#[cfg(test)]
mod tests;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// All policies at one moment, and what they select by.
#[derive(Debug, Default, PartialEq)]
pub struct PolicyWorld {
    /// The policies that could be read, by kind, namespace and name.
    ///
    /// Shared with the copy of the cluster or of the files, and with the world before.
    pub policies: Vec<Arc<PolicyObject>>,
    /// Labels of each namespace.
    pub namespaces: BTreeMap<String, Labels>,
    /// Pods by namespace and name, less those of the host's network.
    ///
    /// Only while a policy is for a network of podnet; without a cluster there are none. Shared with the copy of the cluster
    /// and with the world before: ten thousand pods are some 16 MiB.
    pub pods: BTreeMap<(String, String), Arc<PodFacts>>,
    /// Nodes by name, as pods.
    pub nodes: Vec<NodeFacts>,
    /// One line for each document, object or part of one that is not obeyed, sorted.
    pub broken: Vec<String>,
    /// Sources that were never read yet and are needed.
    ///
    /// While there are any, what policies allow is not known.
    pub unread: Vec<String>,
}

/// The parts of a pod that policies select by.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodFacts {
    /// Its labels.
    pub labels: Labels,
    /// Named ports of its containers, those of restartable init containers too.
    pub ports: Vec<PodPort>,
    /// Node that it is bound to, empty before that.
    ///
    /// A member that a slice of another node names is not this pod.
    pub node: String,
    /// Its addresses as its node reports them, those of its default network.
    pub addresses: Vec<IpAddr>,
    /// True in phase Succeeded or Failed: its addresses may be another's.
    pub ended: bool,
}

/// A named port of a container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodPort {
    /// Its name.
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Its number.
    pub number: u16,
}

/// The parts of a node that policies select by.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// All of its addresses.
    pub addresses: Vec<IpAddr>,
}

impl PolicyWorld {
    /// A world of which nothing is known, for these reasons.
    pub fn unread(reasons: Vec<String>) -> Self {
        Self {
            unread: reasons,
            ..Self::default()
        }
    }

    /// True when a policy is for networks that it names.
    pub fn names_networks(&self) -> bool {
        let mut policies = self.policies.iter();
        policies.any(|policy| policy.networks.names_any())
    }

    /// True when a policy is for the default network.
    pub fn is_for_default(&self) -> bool {
        let mut policies = self.policies.iter();
        policies.any(|policy| policy.networks == PolicyNetworks::Default)
    }

    /// Brings everything into the order in which equal worlds are equal.
    ///
    /// Of two policies of one name the first counts. What is wrong with policies is told in
    /// [`Self::broken`].
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.policies.sort_by(|a, b| a.key().cmp(&b.key()));
        let broken = &mut self.broken;
        self.policies.dedup_by(|later, first| {
            let same = later.key() == first.key();
            if same {
                broken.push(format!(
                    "{later} is written twice, and the first counts; remove one"
                ));
            }
            same
        });
        for policy in &self.policies {
            let problems = policy.problems.iter();
            broken.extend(problems.map(|problem| format!("{policy}: {problem}")));
        }
        broken.sort();
        broken.dedup();
        self.nodes.sort();
        self
    }

    /// Logs what is not obeyed.
    pub fn complain(&self) {
        for problem in &self.broken {
            tracing::warn!(%problem, "a policy cannot be obeyed as it is written: correct it");
        }
    }
}

/// The current policies, shared and replaced as a whole.
#[derive(Debug, Default)]
pub struct PolicyCurrent {
    world: RwLock<Arc<PolicyWorld>>,
    /// How often it was replaced by another.
    version: watch::Sender<u64>,
}

impl PolicyCurrent {
    /// The policies as they are now.
    pub fn get(&self) -> Arc<PolicyWorld> {
        Arc::clone(&self.world.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces them; true when that is a change.
    pub fn set(&self, world: PolicyWorld) -> bool {
        let mut current = self.world.write().unwrap_or_else(PoisonError::into_inner);
        if **current == world {
            return false;
        }
        *current = Arc::new(world);
        drop(current);
        self.version.send_modify(|version| *version += 1);
        true
    }

    /// Tells of each replacement by others from now on.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }
}
