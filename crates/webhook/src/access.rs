//! Check the right to use the networks of a new pod (KEP-P2-1).
//!
//! See [`cluster::access`]. The default network needs no right: a pod that lists nothing has it.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use api::selection::PodSelection;
pub use cluster::access::AccessControl;
use cluster::access::{MIRROR, Used, of_account, user_name};
use k8s_openapi::api::authorization::v1::{SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::core::admission::AdmissionRequest;

use super::facts::{Facts, Reached};
use super::lookup::{Asked, Lookup, all};
use super::review::{Denial, named, namespace};

/// A subject of the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// The user that makes the pod.
    User,
    /// The pod's service account.
    ServiceAccount,
}

/// May this one use this?
pub type Question = (Who, Used);

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
    let mut questions = BTreeSet::new();
    for attachment in named(selection) {
        let used = match facts.reached(&attachment.target) {
            Reached::Network(network) if network == default_network => continue,
            Reached::Network(network) => Used::Network(network),
            Reached::Others => match Used::chain(&attachment.target, namespace(request)) {
                Some(definition) => definition,
                None => continue,
            },
            Reached::Unknown(why) => {
                let target = attachment.target.clone();
                return Err(Denial::Unknown { target, why });
            }
        };
        for who in subjects(control) {
            questions.insert((*who, used.clone()));
        }
    }
    Ok(questions.into_iter().collect())
}

/// Every network and definition needs one subject that may use it.
///
/// # Errors
/// The first one that has none.
pub fn check(request: &AdmissionRequest<Pod>, answers: &[(Question, bool)]) -> Result<(), Denial> {
    let mut uses: BTreeMap<&Used, (bool, Vec<Who>)> = BTreeMap::new();
    for ((who, used), allowed) in answers {
        let (any, asked) = uses.entry(used).or_default();
        *any |= allowed;
        asked.push(*who);
    }
    let refused = uses.into_iter().find(|(_, (allowed, _))| !allowed);
    refused.map_or(Ok(()), |(used, (_, asked))| {
        let names: Vec<String> = asked.iter().map(|who| name(*who, request)).collect();
        Err(Denial::NotAllowed {
            who: match names.as_slice() {
                [one, other] => format!("neither {one} nor {other} may"),
                names => format!("{} may not", names.concat()),
            },
            used: used.clone(),
            namespace: namespace(request).to_owned(),
        })
    })
}

/// Asks the API server.
///
/// # Errors
/// When it does not answer, or too much would have to be asked.
pub async fn ask(
    lookup: &Lookup,
    request: &AdmissionRequest<Pod>,
    questions: Vec<Question>,
) -> Asked<Vec<(Question, bool)>> {
    let asked = questions.into_iter().map(|question| async move {
        let allowed = lookup.may(&review(&question, request)).await?;
        Ok((question, allowed))
    });
    all(asked.collect()).await
}

fn review((who, used): &Question, request: &AdmissionRequest<Pod>) -> SubjectAccessReview {
    let namespace = namespace(request);
    match who {
        Who::User => {
            let user = request.user_info.clone();
            let spec = SubjectAccessReviewSpec {
                user: user.username,
                uid: user.uid,
                groups: user.groups,
                extra: user.extra,
                resource_attributes: Some(used.attributes(namespace)),
                ..SubjectAccessReviewSpec::default()
            };
            SubjectAccessReview {
                spec,
                ..SubjectAccessReview::default()
            }
        }
        Who::ServiceAccount => of_account(account(request), used, namespace),
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
