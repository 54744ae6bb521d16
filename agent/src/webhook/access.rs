//! Who may use which network (KEP-P2-1): the verb `use` on `podnetworks.podnet.dev`, which RBAC or
//! any other authorizer grants.
//!
//! The question is asked for the pod's namespace, so that a `RoleBinding` grants a network to one
//! namespace and a `ClusterRoleBinding` to all. The default network is everybody's: a pod that says
//! nothing has it.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use api::selection::PodSelection;
use clap::ValueEnum;
use futures_util::future::try_join_all;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use kube::core::admission::AdmissionRequest;
use kube::{Client, Resource as _};

use super::facts::{Facts, Reached};
use super::review::{Denial, named, namespace};

/// The verb of KEP-3698's access control.
const VERB: &str = "use";
/// What the kubelet gives the pods it takes from files; the API server never runs one.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

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

/// A subject of the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// Who makes the pod.
    User,
    /// The pod's service account.
    ServiceAccount,
}

/// May this one use this network?
pub type Question = (Who, String);

impl AccessControl {
    fn subjects(self) -> &'static [Who] {
        match self {
            Self::Off => &[],
            Self::User => &[Who::User],
            Self::ServiceAccount => &[Who::ServiceAccount],
            Self::Either => &[Who::User, Who::ServiceAccount],
        }
    }
}

/// Everything that must be asked about a pod.
///
/// # Errors
/// An object does not say which network it leads to.
pub fn questions(
    control: AccessControl,
    request: &AdmissionRequest<Pod>,
    selection: &PodSelection,
    facts: &Facts,
    default_network: &str,
) -> Result<Vec<Question>, Denial> {
    if control == AccessControl::Off || is_mirror(request) {
        return Ok(Vec::new());
    }
    let mut questions = Vec::new();
    for attachment in named(selection) {
        let network = match facts.reached(&attachment.target) {
            Reached::Network(network) if network == default_network => continue,
            Reached::Network(network) => network,
            Reached::Others => continue,
            Reached::Unknown(why) => {
                let target = attachment.target.clone();
                return Err(Denial::Unknown { target, why });
            }
        };
        for who in control.subjects() {
            let question = (*who, network.clone());
            if !questions.contains(&question) {
                questions.push(question);
            }
        }
    }
    Ok(questions)
}

/// Every network needs one subject that may use it.
///
/// # Errors
/// The first network that has none.
pub fn check(request: &AdmissionRequest<Pod>, answers: &[(Question, bool)]) -> Result<(), Denial> {
    let mut networks: BTreeMap<&str, (bool, Vec<Who>)> = BTreeMap::new();
    for ((who, network), allowed) in answers {
        let (any, asked) = networks.entry(network).or_default();
        *any |= allowed;
        asked.push(*who);
    }
    let refused = networks.into_iter().find(|(_, (allowed, _))| !allowed);
    refused.map_or(Ok(()), |(network, (_, asked))| {
        let names: Vec<String> = asked.iter().map(|who| name(*who, request)).collect();
        Err(Denial::NotAllowed {
            who: match names.as_slice() {
                [one, other] => format!("neither {one} nor {other} may"),
                names => format!("{} may not", names.concat()),
            },
            network: network.to_owned(),
            namespace: namespace(request).to_owned(),
        })
    })
}

/// Asks the API server.
///
/// # Errors
/// When it does not answer.
pub async fn ask(
    client: &Client,
    request: &AdmissionRequest<Pod>,
    questions: Vec<Question>,
) -> kube::Result<Vec<(Question, bool)>> {
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    try_join_all(questions.into_iter().map(|question| {
        let reviews = reviews.clone();
        async move {
            let review = review(&question, request);
            let answer = reviews.create(&PostParams::default(), &review).await?;
            let allowed = answer.status.is_some_and(|status| status.allowed);
            Ok((question, allowed))
        }
    }))
    .await
}

fn review((who, network): &Question, request: &AdmissionRequest<Pod>) -> SubjectAccessReview {
    let namespace = namespace(request);
    let mut spec = SubjectAccessReviewSpec {
        resource_attributes: Some(ResourceAttributes {
            group: Some(api::PodNetwork::group(&()).into_owned()),
            resource: Some(api::PodNetwork::plural(&()).into_owned()),
            name: Some(network.clone()),
            namespace: Some(namespace.to_owned()),
            verb: Some(VERB.to_owned()),
            ..ResourceAttributes::default()
        }),
        ..SubjectAccessReviewSpec::default()
    };
    match who {
        Who::User => {
            let user = request.user_info.clone();
            spec.user = user.username;
            spec.uid = user.uid;
            spec.groups = user.groups;
            spec.extra = user.extra;
        }
        Who::ServiceAccount => {
            spec.user = Some(account(request));
            spec.groups = Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ]);
        }
    }
    SubjectAccessReview {
        spec,
        ..SubjectAccessReview::default()
    }
}

/// The user name of the pod's service account.
fn account(request: &AdmissionRequest<Pod>) -> String {
    let pod = request.object.as_ref();
    let name = pod
        .and_then(|pod| pod.spec.as_ref())
        .and_then(|spec| spec.service_account_name.as_deref())
        .filter(|name| !name.is_empty())
        .unwrap_or("default");
    format!("system:serviceaccount:{}:{name}", namespace(request))
}

fn name(who: Who, request: &AdmissionRequest<Pod>) -> String {
    match who {
        Who::User => request.user_info.username.clone().unwrap_or_default(),
        Who::ServiceAccount => account(request),
    }
}

fn is_mirror(request: &AdmissionRequest<Pod>) -> bool {
    let pod = request.object.as_ref();
    pod.and_then(|pod| pod.metadata.annotations.as_ref())
        .is_some_and(|annotations| annotations.contains_key(MIRROR_ANNOTATION))
}
