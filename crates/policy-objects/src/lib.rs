//! Read network policies as objects of the API.
//!
//! They say what may pass, and which networks they are for.

use std::fmt;

use api::nad::{DefinitionError, Meaning, NetworkRef};
use api::{PolicyKind, PolicyNetworks, PolicyObject, Resolved};
use policy::{Kind, Namespaces, Pods, Policy, PolicyId, Read, Tier};

/// The networks that a policy is for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Names of PodNetworks, sorted.
    pub networks: Vec<String>,
    /// Reasons for which it is not in force somewhere.
    pub problems: Vec<String>,
}

/// Finds the meaning of a `NetworkAttachmentDefinition` by namespace and name.
pub type MeaningOf<'a> = dyn Fn(&str, &str) -> Option<Result<Meaning, DefinitionError>> + 'a;

/// Networks and definitions, as far as they are known.
pub struct Known<'a> {
    /// The networks and their attachments.
    pub resolved: &'a Resolved,
    /// The definitions.
    pub meaning: &'a MeaningOf<'a>,
}

impl fmt::Debug for Known<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Known")
            .field("resolved", &self.resolved)
            .finish_non_exhaustive()
    }
}

impl Place {
    /// Finds the networks that a policy is for.
    #[must_use]
    pub fn of(object: &PolicyObject, known: &Known<'_>) -> Self {
        let mut place = Self::default();
        match &object.networks {
            PolicyNetworks::Default => match known.resolved.routed_by_node() {
                Some(network) => place.networks.push(network.name.clone()),
                None => place.problems.push(
                    "podnet does not enforce it on the default network, which is not one of routing: Node: name the \
                     networks that it is for in the annotation podnet.dev/networks"
                        .to_owned(),
                ),
            },
            PolicyNetworks::PodNetworks(names) => place.networks.clone_from(names),
            PolicyNetworks::Definitions(names) => {
                for (namespace, name) in names {
                    match known.network_of(namespace, name) {
                        Ok(network) => place.networks.push(network),
                        Err(problem) => place.problems.push(problem),
                    }
                }
            }
        }
        place.networks.sort();
        place.networks.dedup();
        place
    }

    /// Reports whether the policy is left to others.
    ///
    /// It is for a default network that is none of podnet's.
    #[must_use]
    pub fn is_left_to_others(&self, object: &PolicyObject) -> bool {
        object.networks == PolicyNetworks::Default && self.networks.is_empty()
    }
}

impl Known<'_> {
    /// Returns the PodNetwork that a definition leads to.
    ///
    /// # Errors
    /// The reason for which it leads to none, and the remedy.
    fn network_of(&self, namespace: &str, name: &str) -> Result<String, String> {
        let Some(meaning) = (self.meaning)(namespace, name) else {
            return Err(format!(
                "there is no NetworkAttachmentDefinition {namespace}/{name}: create it, or correct the annotation"
            ));
        };
        let (namespace, name) = match meaning.map_err(|error| error.to_string())? {
            Meaning::ByName(network) => return Ok(network),
            Meaning::Own(own) => match own.network {
                NetworkRef::PodNetwork(network) => return Ok(network),
                NetworkRef::Attachment { namespace, name } => (namespace, name),
            },
            Meaning::Delegate(_) => {
                return Err(format!(
                    "NetworkAttachmentDefinition {namespace}/{name} is of another plugin, whose networks podnet \
                     does not judge: name one of podnet's"
                ));
            }
        };
        let attachment = self.resolved.attachment(&namespace, &name);
        attachment
            .map(|it| it.network.clone())
            .map_err(|error| error.to_string())
    }
}

fn kind(kind: PolicyKind) -> Kind {
    match kind {
        PolicyKind::NetworkPolicy => Kind::NetworkPolicy,
        PolicyKind::MultiNetworkPolicy => Kind::MultiNetworkPolicy,
        PolicyKind::ClusterNetworkPolicy => Kind::ClusterNetworkPolicy,
    }
}

/// Reads a policy; one that cannot be read isolates all pods that it may be for.
#[must_use]
pub fn read(object: &PolicyObject) -> Read {
    let kind = kind(object.kind);
    let read = match kind {
        Kind::ClusterNetworkPolicy => policy::cluster(&object.name, &object.spec),
        Kind::NetworkPolicy | Kind::MultiNetworkPolicy => {
            policy::network(kind, &object.namespace, &object.name, &object.spec)
        }
    };
    read.unwrap_or_else(|problem| Read {
        policy: Policy {
            id: PolicyId {
                kind,
                namespace: object.namespace.clone(),
                name: object.name.clone(),
            },
            tier: Tier::Network,
            priority: 0,
            subject: Pods {
                namespaces: match kind {
                    Kind::ClusterNetworkPolicy => Namespaces::Matching(policy::Selector::default()),
                    Kind::NetworkPolicy | Kind::MultiNetworkPolicy => {
                        Namespaces::Named(object.namespace.clone())
                    }
                },
                pods: policy::Selector::default(),
            },
            isolates_ingress: true,
            isolates_egress: true,
            ingress: Vec::new(),
            egress: Vec::new(),
        },
        problems: vec![problem],
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;

    fn object(kind: PolicyKind, annotations: &[(&str, &str)], spec: Value) -> PolicyObject {
        let annotations = annotations.iter();
        let annotations: BTreeMap<String, String> = annotations
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        PolicyObject::read(kind, ("shop", "web"), &annotations, spec)
    }

    fn place(object: &PolicyObject) -> Place {
        let resolved = Resolved::default();
        let meaning = |namespace: &str, name: &str| {
            let known = (namespace, name) == ("shop", "blue-net");
            known.then(|| Ok(Meaning::ByName("blue".to_owned())))
        };
        let known = Known {
            resolved: &resolved,
            meaning: &meaning,
        };
        Place::of(object, &known)
    }

    #[test]
    fn a_policy_is_for_the_networks_that_it_names_or_leads_to() {
        let named = object(
            PolicyKind::NetworkPolicy,
            &[("podnet.dev/networks", "green, blue")],
            json!({"podSelector": {}}),
        );
        assert_eq!(place(&named).networks, ["blue", "green"]);
        let multi = object(
            PolicyKind::MultiNetworkPolicy,
            &[("k8s.v1.cni.cncf.io/policy-for", "blue-net, lost")],
            json!({"podSelector": {}}),
        );
        let found = place(&multi);
        assert_eq!(found.networks, ["blue"]);
        assert!(
            found.problems[0].starts_with("there is no NetworkAttachmentDefinition shop/lost"),
            "{found:?}"
        );
        assert!(!found.is_left_to_others(&multi));
    }

    #[test]
    fn a_policy_without_networks_is_left_to_others_where_the_node_routes_for_none() {
        let bare = object(PolicyKind::NetworkPolicy, &[], json!({"podSelector": {}}));
        let found = place(&bare);
        assert!(found.is_left_to_others(&bare) && found.networks.is_empty());
        assert!(found.problems[0].contains("routing: Node"), "{found:?}");
    }

    #[test]
    fn a_policy_that_cannot_be_read_isolates_its_namespace() {
        let wrong = object(PolicyKind::NetworkPolicy, &[], json!({"podSelector": 7}));
        let read = read(&wrong);
        assert_eq!(read.problems.len(), 1);
        let policy = read.policy;
        assert!(policy.isolates_ingress && policy.isolates_egress);
        assert_eq!(
            policy.subject.namespaces,
            Namespaces::Named("shop".to_owned())
        );
        assert!(policy.ingress.is_empty() && policy.egress.is_empty());
    }
}
