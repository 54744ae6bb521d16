//! Who may use which network (KEP-P2-1), asked when a pod is made: see [`crate::access`]. The default
//! network is everybody's: a pod that says nothing has it.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use api::selection::PodSelection;
use futures_util::future::try_join_all;
use k8s_openapi::api::authorization::v1::{SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::core::admission::AdmissionRequest;

use super::facts::{Facts, Reached};
use super::review::{Denial, named, namespace};
pub use crate::access::AccessControl;
use crate::access::{MIRROR, attributes, of_account, user_name};

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

const fn subjects(control: AccessControl) -> &'static [Who] {
    match control {
        AccessControl::Off => &[],
        AccessControl::User => &[Who::User],
        AccessControl::ServiceAccount => &[Who::ServiceAccount],
        AccessControl::Either => &[Who::User, Who::ServiceAccount],
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
        for who in subjects(control) {
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
    match who {
        Who::User => {
            let user = request.user_info.clone();
            let spec = SubjectAccessReviewSpec {
                user: user.username,
                uid: user.uid,
                groups: user.groups,
                extra: user.extra,
                resource_attributes: Some(attributes(network, namespace)),
                ..SubjectAccessReviewSpec::default()
            };
            SubjectAccessReview {
                spec,
                ..SubjectAccessReview::default()
            }
        }
        Who::ServiceAccount => of_account(account(request), network, namespace),
    }
}

/// The user name of the pod's service account.
fn account(request: &AdmissionRequest<Pod>) -> String {
    let pod = request.object.as_ref();
    let spec = pod.and_then(|pod| pod.spec.as_ref());
    let name = spec.and_then(|spec| spec.service_account_name.as_deref());
    user_name(namespace(request), name)
}

fn name(who: Who, request: &AdmissionRequest<Pod>) -> String {
    match who {
        Who::User => request.user_info.username.clone().unwrap_or_default(),
        Who::ServiceAccount => account(request),
    }
}

/// True for the copy of a static pod, which runs already.
pub(super) fn is_mirror(request: &AdmissionRequest<Pod>) -> bool {
    let pod = request.object.as_ref();
    pod.and_then(|pod| pod.metadata.annotations.as_ref())
        .is_some_and(|annotations| annotations.contains_key(MIRROR))
}
