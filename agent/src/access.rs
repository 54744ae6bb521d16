//! Who may use which network (KEP-P2-1): the verb `use` on `podnetworks.podnet.dev`, which RBAC or
//! any other authorizer grants.
//!
//! The question is asked for the pod's namespace, so that a `RoleBinding` grants a network to one
//! namespace and a `ClusterRoleBinding` to all. The webhook asks it when a pod is made, and the agent
//! again when the pod is attached: a webhook that is away stops nobody. What the agent cannot know is
//! who made the pod, so it asks about service accounts only.

use clap::ValueEnum;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Resource as _;

/// The verb of KEP-3698's access control.
const VERB: &str = "use";

/// What the kubelet gives the objects of the pods it takes from files. It never runs one of the API
/// server that has this.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";

/// Who is asked about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum AccessControl {
    /// Every pod may list every network
    #[default]
    Off,
    /// Who makes the pod; for pods of a Deployment or Job that is a controller of the cluster
    User,
    /// The pod's service account
    #[value(name = "serviceaccount")]
    ServiceAccount,
    /// One of both
    Either,
}

/// What is asked about a network.
pub(crate) fn attributes(network: &str, namespace: &str) -> ResourceAttributes {
    ResourceAttributes {
        group: Some(api::PodNetwork::group(&()).into_owned()),
        resource: Some(api::PodNetwork::plural(&()).into_owned()),
        name: Some(network.to_owned()),
        namespace: Some(namespace.to_owned()),
        verb: Some(VERB.to_owned()),
        ..ResourceAttributes::default()
    }
}

/// The user name of a service account; a pod that names none has `default`.
pub(crate) fn user_name(namespace: &str, account: Option<&str>) -> String {
    let account = account.filter(|name| !name.is_empty());
    let account = account.unwrap_or("default");
    format!("system:serviceaccount:{namespace}:{account}")
}

/// The question about a service account, by its user name.
pub(crate) fn of_account(user: String, network: &str, namespace: &str) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user),
            groups: Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ]),
            resource_attributes: Some(attributes(network, namespace)),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}
