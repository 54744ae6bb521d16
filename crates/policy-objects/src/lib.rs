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
    /// All that it names is of others, who may obey it.
    ///
    /// That is a default network or plugins that are none of podnet's.
    pub is_left_to_others: bool,
}

/// Finds the meaning of a `NetworkAttachmentDefinition` by namespace and name.
pub type MeaningOf<'a> = dyn Fn(&str, &str) -> Option<Result<Meaning, DefinitionError>> + 'a;

/// Networks and definitions, as far as they are known.
pub struct Known<'a> {
    /// The networks and their attachments.
    pub resolved: &'a Resolved,
    /// Default networks that are podnet's.
    ///
    /// Pods without a list are on them, and they have `routing: Node`.
    pub defaults: Vec<String>,
    /// The definitions.
    pub meaning: &'a MeaningOf<'a>,
}

impl fmt::Debug for Known<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Known")
            .field("resolved", &self.resolved)
            .field("defaults", &self.defaults)
            .finish_non_exhaustive()
    }
}

impl Place {
    /// Finds the networks that a policy is for.
    #[must_use]
    pub fn of(object: &PolicyObject, known: &Known<'_>) -> Self {
        let mut place = Self::default();
        match &object.networks {
            PolicyNetworks::Default if known.defaults.is_empty() => {
                place.is_left_to_others = true;
                place.problems.push(
                    "podnet does not enforce it on the default network, which is not one of routing: Node: name the \
                     networks that it is for in the annotation podnet.dev/networks"
                        .to_owned(),
                );
            }
            PolicyNetworks::Default => place.networks.clone_from(&known.defaults),
            PolicyNetworks::PodNetworks(names) => place.networks.clone_from(names),
            PolicyNetworks::Definitions(names) => {
                place.is_left_to_others = !names.is_empty();
                for (namespace, name) in names {
                    let found = known.network_of(namespace, name);
                    place.is_left_to_others &= matches!(found, Err((_, true)));
                    match found {
                        Ok(network) => place.networks.push(network),
                        Err((problem, _)) => place.problems.push(problem),
                    }
                }
            }
        }
        place.networks.sort();
        place.networks.dedup();
        place
    }
}

impl Known<'_> {
    /// Returns the PodNetwork that a definition leads to.
    ///
    /// # Errors
    /// The reason for which it leads to none, with the remedy; true where it leads to a network of another plugin.
    fn network_of(&self, namespace: &str, name: &str) -> Result<String, (String, bool)> {
        let Some(meaning) = (self.meaning)(namespace, name) else {
            let problem = format!(
                "there is no NetworkAttachmentDefinition {namespace}/{name}: create it, or correct the annotation"
            );
            return Err((problem, false));
        };
        let (namespace, name) = match meaning.map_err(|error| (error.to_string(), false))? {
            Meaning::ByName(network) => return Ok(network),
            Meaning::Own(own) => match own.network {
                NetworkRef::PodNetwork(network) => return Ok(network),
                NetworkRef::Attachment { namespace, name } => (namespace, name),
            },
            Meaning::Delegate(_) => {
                let problem = format!(
                    "NetworkAttachmentDefinition {namespace}/{name} is of another plugin, whose networks podnet \
                     does not judge: name one of podnet's"
                );
                return Err((problem, true));
            }
        };
        let attachment = self.resolved.attachment(&namespace, &name);
        attachment
            .map(|it| it.network.clone())
            .map_err(|error| (error.to_string(), false))
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

    use api::nad::{Definition, read_definition};
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
        let meaning = |namespace: &str, name: &str| match (namespace, name) {
            ("shop", "blue-net") => Some(Ok(Meaning::ByName("blue".to_owned()))),
            ("shop", "bridged") => {
                let annotations = BTreeMap::new();
                let definition = Definition {
                    namespace,
                    name,
                    annotations: &annotations,
                    config: r#"{"cniVersion": "1.0.0", "name": "br", "type": "bridge"}"#,
                };
                Some(read_definition(&definition).map(|read| read.meaning))
            }
            _ => None,
        };
        let known = Known {
            resolved: &resolved,
            defaults: Vec::new(),
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
        assert!(!found.is_left_to_others);
    }

    #[test]
    fn a_policy_for_networks_of_other_plugins_alone_is_left_to_them() {
        let of = |names: &str| {
            let annotation = [("k8s.v1.cni.cncf.io/policy-for", names)];
            let spec = json!({"podSelector": {}});
            place(&object(PolicyKind::MultiNetworkPolicy, &annotation, spec))
        };
        let alone = of("bridged");
        assert!(alone.is_left_to_others, "{alone:?}");
        assert!(
            alone.problems[0].contains("is of another plugin"),
            "{alone:?}"
        );
        for mixed in ["bridged, blue-net", "bridged, lost", ""] {
            assert!(!of(mixed).is_left_to_others, "{mixed}");
        }
    }

    #[test]
    fn a_policy_without_networks_is_left_to_others_where_the_node_routes_for_none() {
        let bare = object(PolicyKind::NetworkPolicy, &[], json!({"podSelector": {}}));
        let found = place(&bare);
        assert!(found.is_left_to_others && found.networks.is_empty());
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
