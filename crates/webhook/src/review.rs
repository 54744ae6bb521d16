//! Judge a pod's lists of networks, by the request and the objects of the cluster.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use api::GATE;
use api::nad::DefinitionProblem;
use api::selection::{
    DEFAULT_NETWORK_ANNOTATION, NETWORKS_ANNOTATION, NICS_ANNOTATION, POD_NETWORKS_ANNOTATION,
    PodAnnotations, PodSelection, SelectedAttachment, SelectionErrors, SelectionRules, Target,
    VPC_ANNOTATION,
};
use api::{PROBLEM_BYTES, Shortened};
use cluster::access::Used;
use k8s_openapi::api::core::v1::Pod;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, Operation};
use kube::core::response::{StatusCause, StatusDetails};
use serde_json::{Value, json};

use super::facts::Facts;

/// The annotations that say something about a pod's networks.
pub const LISTS: [&str; 5] = [
    POD_NETWORKS_ANNOTATION,
    VPC_ANNOTATION,
    NICS_ANNOTATION,
    NETWORKS_ANNOTATION,
    DEFAULT_NETWORK_ANNOTATION,
];

/// Why a request is refused, as the API server passes it on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// The lists are wrong.
    #[error(transparent)]
    Invalid(#[from] SelectionErrors),
    /// An object the pod names is on its way out (KEP-PN-U3).
    #[error("{target} is being deleted; name another network, or try again when it is there again")]
    BeingDeleted {
        /// The object.
        target: Target,
    },
    /// Somebody may not use a network (KEP-P2-1).
    #[error(
        "{who} use {used}; grant the verb use on {}, by a RoleBinding in namespace {} for example",
        used.resource(),
        used.asked_in(namespace)
    )]
    NotAllowed {
        /// The user, the service account, or both, and that they may not.
        who: String,
        /// The network, or the definition.
        used: Used,
        /// The pod's namespace.
        namespace: String,
    },
    /// An object that leads to no known network, so that no right can be checked.
    #[error("{target}: {why}; the cluster controls access to networks, so it must be there first")]
    Unknown {
        /// The object.
        target: Target,
        /// The reason for which its network is unknown.
        why: String,
    },
    /// A definition leads to a plugin or a namespace that definitions may not name.
    #[error("{target}: {problem}")]
    Definition {
        /// The definition.
        target: Target,
        /// Which plugin or namespace.
        problem: Box<DefinitionProblem>,
    },
    /// A network is on nodes on which the pod cannot be (NRI-07).
    #[error("{object}: {problem}")]
    NodeSelector {
        /// The network, or the object that names it.
        object: Target,
        /// The fault of its wish.
        problem: String,
    },
    /// A network is to be there before its pods (NRI-04).
    #[error("{target} does not exist; make it before the pod")]
    Absent {
        /// The object.
        target: Target,
    },
    /// The needs of a pod's networks are not known.
    #[error("the requirements of the pod's networks could not be read: {why}; try again")]
    NotRead {
        /// Why not.
        why: String,
    },
    /// The cluster controls access, and did not tell.
    #[error("access to networks could not be checked: {why}; try again")]
    NotChecked {
        /// Why not.
        why: String,
    },
}

impl Denial {
    /// HTTP status and the reason Kubernetes gives with it.
    fn kind(&self) -> (u16, &'static str) {
        match self {
            Self::Invalid(_) | Self::NodeSelector { .. } | Self::Absent { .. } => (422, "Invalid"),
            Self::BeingDeleted { .. } => (409, "Conflict"),
            Self::NotAllowed { .. } | Self::Unknown { .. } | Self::Definition { .. } => {
                (403, "Forbidden")
            }
            Self::NotChecked { .. } | Self::NotRead { .. } => (503, "ServiceUnavailable"),
        }
    }

    /// For metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Invalid(_) | Self::NodeSelector { .. } | Self::Absent { .. } => "invalid",
            Self::BeingDeleted { .. } => "being_deleted",
            Self::NotAllowed { .. } | Self::Unknown { .. } | Self::Definition { .. } => "forbidden",
            Self::NotChecked { .. } | Self::NotRead { .. } => "not_checked",
        }
    }

    /// The answer.
    pub fn respond(&self, request: &AdmissionRequest<Pod>) -> AdmissionResponse {
        let mut response = AdmissionResponse::from(request).deny(self);
        let (code, reason) = self.kind();
        response.result.code = code;
        reason.clone_into(&mut response.result.reason);
        if let Self::Invalid(errors) = self {
            response.result.details = Some(StatusDetails {
                name: request.name.clone(),
                kind: "pods".to_owned(),
                causes: errors.first.iter().map(cause).collect(),
                group: String::new(),
                uid: String::new(),
                retry_after_seconds: 0,
            });
        }
        response
    }
}

fn cause(error: &api::selection::SelectionError) -> StatusCause {
    StatusCause {
        reason: "FieldValueInvalid".to_owned(),
        message: Shortened(&error.problem, PROBLEM_BYTES).to_string(),
        field: format!("metadata.annotations.{}{}", error.annotation, error.place),
    }
}

/// Reads the lists of a new pod, or of one whose lists change.
///
/// `None` when there is nothing to look at.
///
/// # Errors
/// All faults of the lists, each with its place.
pub fn read(
    request: &AdmissionRequest<Pod>,
    rules: &SelectionRules,
) -> Result<Option<PodSelection>, SelectionErrors> {
    let Some(pod) = &request.object else {
        return Ok(None);
    };
    let is_news = match request.operation {
        Operation::Create => true,
        Operation::Update => {
            // What goes away needs no networks, and its finalizers must not be held up.
            pod.metadata.deletion_timestamp.is_none()
                && LISTS.iter().any(|list| {
                    annotation(pod, list)
                        != request
                            .old_object
                            .as_ref()
                            .and_then(|old| annotation(old, list))
                })
        }
        Operation::Delete | Operation::Connect => false,
    };
    if !is_news || LISTS.iter().all(|list| annotation(pod, list).is_none()) {
        return Ok(None);
    }
    select(pod, namespace(request), rules).map(Some)
}

/// Returns the attachments that a pod names itself, without the default ones.
pub fn named(selection: &PodSelection) -> impl Iterator<Item = &SelectedAttachment> {
    let is_implied = |attachment: &SelectedAttachment| {
        attachment.is_given()
            || attachment.source == api::selection::Source::Default
                && matches!(attachment.target, Target::PodNetwork(_))
    };
    selection
        .attachments
        .iter()
        .filter(move |attachment| !is_implied(attachment))
}

/// Refuses references to objects that are being deleted (KEP-PN-U3).
///
/// # Errors
/// The first such object.
pub fn check_deletion(selection: &PodSelection, facts: &Facts) -> Result<(), Denial> {
    let found = named(selection).find_map(|attachment| facts.being_deleted(&attachment.target));
    found.map_or(Ok(()), |target| Err(Denial::BeingDeleted { target }))
}

/// Refuses references to definitions that lead where they may not.
///
/// A definition may be limited in the plugins and in the namespaces that it names.
///
/// # Errors
/// The first such definition.
pub fn check_definitions(
    selection: &PodSelection,
    facts: &Facts,
    rules: &SelectionRules,
) -> Result<(), Denial> {
    for attachment in named(selection) {
        let target = &attachment.target;
        let chain = facts.chain(target);
        let checked = chain.map_or(Ok(()), |chain| rules.plugins.check(chain));
        checked
            .and_then(|()| check_attachment(target, facts, rules))
            .map_err(|problem| Denial::Definition {
                target: target.clone(),
                problem: Box::new(problem),
            })?;
    }
    Ok(())
}

/// A definition speaks for its own namespace, as agents see it.
fn check_attachment(
    target: &Target,
    facts: &Facts,
    rules: &SelectionRules,
) -> Result<(), DefinitionProblem> {
    let (Target::Definition { namespace, .. }, Some(other)) = (target, facts.attachment_in(target))
    else {
        return Ok(());
    };
    let checked = rules.check_namespace(namespace, other);
    checked.map_err(|isolated| Box::new(isolated).into())
}

/// Returns the warnings about the lists of a pod that is admitted.
pub fn warnings(selection: &PodSelection) -> Vec<String> {
    selection.notes.iter().map(ToString::to_string).collect()
}

/// Returns the JSON patch (RFC 6902) that makes a new pod wait for its networks.
///
/// `None` for pods that name none or wait already, for those that have a node, which cannot wait, and
/// for those whose lists are wrong, which the validation refuses.
pub fn gate(request: &AdmissionRequest<Pod>, rules: &SelectionRules) -> Option<Value> {
    if request.operation != Operation::Create {
        return None;
    }
    let pod = request.object.as_ref()?;
    let spec = pod.spec.as_ref()?;
    let has_node = spec
        .node_name
        .as_deref()
        .is_some_and(|node| !node.is_empty());
    let gates = spec.scheduling_gates.as_deref().unwrap_or_default();
    if has_node || gates.iter().any(|gate| gate.name == GATE) {
        return None;
    }
    let selection = select(pod, namespace(request), rules).ok()?;
    named(&selection).next()?;
    let gate = json!({ "name": GATE });
    Some(if gates.is_empty() {
        json!([{ "op": "add", "path": "/spec/schedulingGates", "value": [gate] }])
    } else {
        json!([{ "op": "add", "path": "/spec/schedulingGates/-", "value": gate }])
    })
}

/// The namespace a pod is made in; its own metadata may leave that to the request.
pub fn namespace(request: &AdmissionRequest<Pod>) -> &str {
    request.namespace.as_deref().unwrap_or_default()
}

fn select(
    pod: &Pod,
    namespace: &str,
    rules: &SelectionRules,
) -> Result<PodSelection, SelectionErrors> {
    let none = BTreeMap::new();
    let annotations = PodAnnotations {
        namespace,
        host_network: pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true),
        annotations: pod.metadata.annotations.as_ref().unwrap_or(&none),
    };
    PodSelection::read(&annotations, rules)
}

fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations.get(name).map(String::as_str)
}
