//! Check the right to use a network (KEP-P2-1).
//!
//! The right is the verb `use` on `podnetworks.podnet.dev`. RBAC or any other authorizer grants it. A
//! `NetworkAttachmentDefinition` of another namespace that leads to plugins of others is asked about in
//! the same way, in its own namespace: the pod's namespace decides about its own definitions only.
//!
//! The question is asked for the pod's namespace, so that a `RoleBinding` grants a network to one
//! namespace and a `ClusterRoleBinding` to all. The webhook asks it when a pod is made, and the agent
//! again when the pod is attached: an absent webhook does not open the networks. The agent cannot know
//! the author of the pod, so it asks about service accounts only.

use api::selection::Target;
use clap::ValueEnum;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Resource as _;

/// The verb of KEP-3698's access control.
const VERB: &str = "use";

/// Annotation by which the kubelet marks the mirror objects of static pods.
///
/// The kubelet never runs a pod of the API server that has it.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// The user whose access is checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum AccessControl {
    /// Every pod may list every network
    #[default]
    Off,
    /// The pod's creator; for pods of a Deployment or Job a controller of the cluster
    User,
    /// The pod's service account
    #[value(name = "serviceaccount")]
    ServiceAccount,
    /// One of both
    Either,
}

/// An object of the cluster that a pod uses when it is attached.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Used {
    /// The `PodNetwork` of this name.
    Network(String),
    /// A `NetworkAttachmentDefinition` of plugins of others.
    Definition {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

impl Used {
    /// Returns the definition by which a pod of `pod_namespace` uses plugins of others.
    ///
    /// `None` when the definition is in the pod's own namespace.
    pub fn chain(target: &Target, pod_namespace: &str) -> Option<Self> {
        match target {
            Target::Definition { namespace, name } if namespace != pod_namespace => {
                Some(Self::Definition {
                    namespace: namespace.clone(),
                    name: name.clone(),
                })
            }
            Target::Definition { .. } | Target::PodNetwork(_) | Target::Attachment { .. } => None,
        }
    }

    /// Returns the namespace of the question, in which a RoleBinding grants the use.
    pub fn asked_in<'a>(&'a self, pod_namespace: &'a str) -> &'a str {
        match self {
            Self::Network(_) => pod_namespace,
            Self::Definition { namespace, .. } => namespace,
        }
    }

    /// Returns the attributes of the access review, for a pod of `pod_namespace`.
    pub fn attributes(&self, pod_namespace: &str) -> ResourceAttributes {
        let (group, resource, name) = match self {
            Self::Network(name) => (
                api::PodNetwork::group(&()),
                api::PodNetwork::plural(&()),
                name,
            ),
            Self::Definition { name, .. } => (
                api::NetworkAttachmentDefinition::group(&()),
                api::NetworkAttachmentDefinition::plural(&()),
                name,
            ),
        };
        ResourceAttributes {
            group: Some(group.into_owned()),
            resource: Some(resource.into_owned()),
            name: Some(name.clone()),
            namespace: Some(self.asked_in(pod_namespace).to_owned()),
            verb: Some(VERB.to_owned()),
            ..ResourceAttributes::default()
        }
    }

    /// The resource and the name that a rule of RBAC has to have.
    pub fn resource(&self) -> String {
        match self {
            Self::Network(name) => format!("podnetworks.podnet.dev {name}"),
            Self::Definition { name, .. } => {
                format!("network-attachment-definitions.k8s.cni.cncf.io {name}")
            }
        }
    }
}

impl std::fmt::Display for Used {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Network(name) => write!(out, "PodNetwork {name}"),
            Self::Definition { namespace, name } => {
                write!(out, "NetworkAttachmentDefinition {namespace}/{name}")
            }
        }
    }
}

/// The user name of a service account; a pod that names none has `default`.
pub fn user_name(namespace: &str, account: Option<&str>) -> String {
    let account = account.filter(|name| !name.is_empty());
    let account = account.unwrap_or("default");
    format!("system:serviceaccount:{namespace}:{account}")
}

/// The question about a service account of a namespace, by its user name.
pub fn of_account(user: String, used: &Used, namespace: &str) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user),
            groups: Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ]),
            resource_attributes: Some(used.attributes(namespace)),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ATT-07a: a definition of another namespace is granted in that namespace.
    ///
    /// A definition of the pod's own namespace is not asked about.
    #[test]
    fn a_definition_of_another_namespace_is_asked_about_in_that_namespace() {
        let target = Target::Definition {
            namespace: "ops".to_owned(),
            name: "lan".to_owned(),
        };
        assert_eq!(Used::chain(&target, "ops"), None);
        let used = Used::chain(&target, "shop").unwrap();
        let asked = used.attributes("shop");
        assert_eq!(asked.namespace.as_deref(), Some("ops"));
        assert_eq!(asked.name.as_deref(), Some("lan"));
        assert_eq!(asked.group.as_deref(), Some("k8s.cni.cncf.io"));
        assert_eq!(
            asked.resource.as_deref(),
            Some("network-attachment-definitions")
        );
        let network = Used::Network("blue".to_owned());
        assert_eq!(network.asked_in("shop"), "shop");
        assert_eq!(
            Used::chain(&Target::PodNetwork("blue".to_owned()), ""),
            None
        );
        proof::of!("ATT-07a");
    }
}
