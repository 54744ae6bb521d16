//! Decide whether a pod's networks let it be scheduled (KEP-POD-10 to 12).
//!
//! They do when each is there, ready, and asked for once.

use std::collections::{BTreeMap, BTreeSet};

use api::nad::{DefinitionError, DefinitionProblem, Meaning, NetworkRef};
use api::selection::{SelectedAttachment, Source, Target};
use api::{DEFAULT_NETWORK, Listed, ResolveError};
use overview::pod::Pod;
use overview::usage::selection;
use overview::view::{Key, View};

/// Whether pods can attach to an object now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectState {
    /// `Ready`, or why not.
    pub ready: Result<(), String>,
    /// It is being deleted.
    pub terminating: bool,
    /// Of a network that podnet does not serve: its provider, empty if it has none.
    pub provider: Option<String>,
}

/// The state of every network and attachment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct States {
    /// Networks by name.
    pub networks: BTreeMap<String, ObjectState>,
    /// Attachments.
    pub attachments: BTreeMap<Key, ObjectState>,
}

/// Returns the obstacles to scheduling a pod, empty if there are none.
pub fn obstacles(pod: &Pod, view: &View, states: &States) -> Vec<String> {
    let selection = match selection(pod, view) {
        Ok(selection) => selection,
        Err(errors) => return vec![errors.to_string()],
    };
    let judge = Judge { view, states };
    let mut found = Vec::new();
    let mut said = BTreeSet::new();
    let mut used = BTreeSet::new();
    for attachment in &selection.attachments {
        if let Some(obstacle) = judge.obstacle(attachment)
            && said.insert(obstacle.clone())
        {
            found.push(obstacle);
        }
        // The list of KEP-3698 has each network once; NPWG's as often as it likes.
        if attachment.source == Source::Kep
            && let Some(network) = judge.network(&attachment.target)
            && !used.insert(network.to_owned())
        {
            found.push(format!(
                "PodNetwork {network} is named twice, by itself or by PodNetworkAttachments; name \
                 it once"
            ));
        }
    }
    found
}

/// Writes obstacles as the scheduler writes that a pod fits on no node.
pub fn as_scheduler(obstacles: &[String], nodes: usize) -> String {
    format!(
        "0/{nodes} nodes are available: {}.",
        Listed::new(obstacles)
            .separated_by(", ")
            .to_string()
            .trim_end_matches('.')
    )
}

struct Judge<'a> {
    view: &'a View,
    states: &'a States,
}

impl Judge<'_> {
    fn obstacle(&self, attachment: &SelectedAttachment) -> Option<String> {
        match &attachment.target {
            // Nodes have a default network before the cluster has an object for it (KEP-DEF-4).
            Target::PodNetwork(name)
                if attachment.source == Source::Default
                    && !self.states.networks.contains_key(name) =>
            {
                None
            }
            Target::PodNetwork(name) => self.network_obstacle(name),
            Target::Attachment { namespace, name } => self.attachment_obstacle(namespace, name),
            Target::Definition { namespace, name } => self.definition_obstacle(namespace, name),
        }
    }

    fn network_obstacle(&self, name: &str) -> Option<String> {
        let state = self.states.networks.get(name);
        self.foreign_obstacle(name)
            .or_else(|| obstacle(&format!("PodNetwork {name}"), state))
    }

    /// A node would refuse the pod, and its kubelet would try again for ever.
    ///
    /// What `default` stands for is up to the nodes: they may leave it to another plugin.
    fn foreign_obstacle(&self, name: &str) -> Option<String> {
        let state = self.states.networks.get(name)?;
        let provider = state.provider.clone();
        let provider = provider.filter(|_| name != DEFAULT_NETWORK)?;
        let name = name.to_owned();
        Some(ResolveError::ForeignProvider { name, provider }.to_string())
    }

    fn attachment_obstacle(&self, namespace: &str, name: &str) -> Option<String> {
        let key = (namespace.to_owned(), name.to_owned());
        let state = self.states.attachments.get(&key);
        let what = format!("PodNetworkAttachment {namespace}/{name}");
        let network = self.view.attachments.get(&key);
        let network = network.map(|it| it.spec.pod_network_name.as_str());
        // Its own state says whether its network is ready, but not whether it will stay.
        network
            .and_then(|name| self.foreign_obstacle(name))
            .or_else(|| obstacle(&what, state))
            .or_else(|| self.network_obstacle(network?))
    }

    fn definition_obstacle(&self, namespace: &str, name: &str) -> Option<String> {
        let key = (namespace.to_owned(), name.to_owned());
        match self.view.definitions.get(&key) {
            None => Some(missing(&format!(
                "NetworkAttachmentDefinition {namespace}/{name}"
            ))),
            Some(Err(error)) => Some(error.to_string()),
            // A node may have a configuration of that name instead (NPWG-3.4.1).
            Some(Ok(Meaning::ByName(network))) => {
                self.states.networks.get(network)?;
                self.network_obstacle(network)
            }
            Some(Ok(Meaning::Own(own))) => match &own.network {
                NetworkRef::PodNetwork(name) => self.network_obstacle(name),
                NetworkRef::Attachment {
                    namespace: other,
                    name: object,
                } => match self.view.rules.check_namespace(namespace, other) {
                    Ok(()) => self.attachment_obstacle(other, object),
                    Err(isolated) => Some(wrong(namespace, name, Box::new(isolated).into())),
                },
            },
            Some(Ok(Meaning::Delegate(chain))) => {
                let checked = self.view.rules.plugins.check(chain);
                checked.err().map(|problem| wrong(namespace, name, problem))
            }
        }
    }

    /// The network of one of ours, if it is known.
    fn network<'a>(&'a self, target: &'a Target) -> Option<&'a str> {
        match target {
            Target::PodNetwork(name) => Some(name),
            Target::Attachment { namespace, name } => {
                let key = (namespace.clone(), name.clone());
                let attachment = self.view.attachments.get(&key)?;
                Some(&attachment.spec.pod_network_name)
            }
            Target::Definition { .. } => None,
        }
    }
}

fn obstacle(what: &str, state: Option<&ObjectState>) -> Option<String> {
    match state {
        None => Some(missing(what)),
        Some(ObjectState {
            terminating: true, ..
        }) => Some(format!("{what} is being deleted")),
        Some(ObjectState {
            ready: Err(why), ..
        }) => Some(format!("{what} is not Ready: {why}")),
        Some(ObjectState { ready: Ok(()), .. }) => None,
    }
}

fn wrong(namespace: &str, name: &str, problem: DefinitionProblem) -> String {
    let error = DefinitionError {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        problem,
    };
    error.to_string()
}

fn missing(what: &str) -> String {
    format!("{what} does not exist; create it, or correct the name")
}

#[cfg(test)]
mod tests;
