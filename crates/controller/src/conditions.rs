//! Decide `Ready`, `ParamsReady`, `Split` and `InUse` of objects.
//!
//! KEP-PN-R1 to R8, KEP-PNA-02 to 06.

use std::collections::BTreeSet;

use api::{
    IN_USE, Listed, NODE_DEFAULT_ANNOTATION, PARAMS_READY, ParametersRef, PodNetwork,
    PodNetworkAttachment, READY, ResolveError, SPLIT, VALID,
};
use cluster::events::beginning;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;

use super::numbers::NumberConflict;

/// The longest message, bytes (Kubernetes API, `metav1.Condition`).
const MESSAGE_MAX: usize = 32_768;

/// A condition without its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// [`READY`], [`PARAMS_READY`], [`SPLIT`], [`IN_USE`] or [`VALID`].
    pub type_: &'static str,
    /// `True` or `False`.
    pub holds: bool,
    /// One word for programs.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
}

/// Why an object is not ready: reason and message.
pub type Refusal = (&'static str, String);

impl Finding {
    pub(super) fn new(
        type_: &'static str,
        reason: &'static str,
        refusal: Result<(), Refusal>,
    ) -> Self {
        let holds = refusal.is_ok();
        let (reason, message) = refusal.err().unwrap_or((reason, String::new()));
        Self {
            type_,
            holds,
            reason,
            message: beginning(&message, MESSAGE_MAX).to_owned(),
        }
    }
}

/// Reason of `Ready` of an object that is being deleted.
const TERMINATING: &str = "Terminating";

/// Refuses pods on an object that is being deleted, and names its user.
fn terminating(metadata: &ObjectMeta, user: Option<&str>) -> Result<(), Refusal> {
    if metadata.deletion_timestamp.is_none() {
        return Ok(());
    }
    let rest = user.map_or(String::new(), |user| format!("; it waits for {user} to go"));
    let message = format!("it is being deleted and takes no new pods{rest}");
    Err((TERMINATING, message))
}

/// Returns the state and the conditions of a network of podnet's class.
///
/// `parameters` is the result of following its references; `conflict` is the reason for which it does
/// not have the number that it asks for; `user` is what keeps it while it is being deleted.
pub fn of_network(
    network: &PodNetwork,
    parameters: Result<(), &ResolveError>,
    conflict: Option<&NumberConflict>,
    user: Option<&str>,
) -> (Result<(), Refusal>, Vec<Finding>) {
    let name = network.metadata.name.as_deref().unwrap_or_default();
    let has_parameters = !network.spec.parameters_refs.is_empty();
    let parameters = match (parameters, conflict) {
        // The one the cluster began with is what the nodes are set up with (KEP-P1-08).
        (Err(ResolveError::ParametersMissing { .. }), _) if name == api::DEFAULT_NETWORK => Ok(()),
        (Err(error), _) => Err((error.reason(), error.to_string())),
        (Ok(()), Some(conflict)) => Err(("NetworkIDConflict", conflict.to_string())),
        (Ok(()), None) => Ok(()),
    };
    let ready = terminating(&network.metadata, user).and_then(|()| {
        if !network.spec.enabled {
            let message = "spec.enabled is false; set it to true to allow new attachments";
            return Err(("AdministrativelyDisabled", message.to_owned()));
        }
        let parameters = parameters.clone();
        parameters.map_err(|(_, message)| ("ParamsNotReady", message))
    });
    let mut findings = vec![Finding::new(READY, "Ready", ready.clone())];
    if has_parameters {
        findings.push(params_ready(&network.spec.parameters_refs, parameters));
    }
    (ready, findings)
}

/// Tells of all references of an object (KEP-PN-R4).
fn params_ready(references: &[ParametersRef], parameters: Result<(), Refusal>) -> Finding {
    let mut finding = Finding::new(PARAMS_READY, "Resolved", parameters);
    if finding.holds && references.len() > 1 {
        let read = Listed::new(references).at_most(references.len());
        let read = read.separated_by(", ");
        finding.message = format!("{} objects are read as one: {read}", references.len());
    }
    finding
}

/// Returns the condition `Split` of a network, and a warning if it holds.
///
/// The network ends at the node, and has pods on these nodes.
pub fn split(nodes: &BTreeSet<String>) -> (Finding, Option<String>) {
    let mut names = nodes.iter();
    let why = match (names.next(), names.next()) {
        (Some(first), Some(second)) => Some(format!(
            "pods of this network are on several nodes, {first} and {second} among them, and with \
             transport Local no pod reaches a pod of another node; make a PodNetwork with transport VXLAN \
             for them, or keep them on one node"
        )),
        _ => None,
    };
    let finding = Finding {
        type_: SPLIT,
        holds: why.is_some(),
        reason: if why.is_some() {
            "SeveralNodes"
        } else {
            "OneNode"
        },
        message: why.clone().unwrap_or_default(),
    };
    (finding, why)
}

/// Returns the condition `InUse` of the network `default`.
///
/// It has no finalizer, because it is never seen terminating: the policy of the API server lets it go by this.
/// `user` is a pod or an attachment; `taken` is why pods without a list may get it.
pub fn in_use(user: Option<&str>, taken: Option<&str>) -> Finding {
    let (reason, message) = match (user, taken) {
        (Some(user), _) => ("Used", format!("{user} uses it")),
        (None, Some(why)) => (
            "DefaultOfNodes",
            format!(
                "{why}; annotate every Node with {NODE_DEFAULT_ANNOTATION}, as podnetwork:NAME, before it \
                 is deleted"
            ),
        ),
        (None, None) => (
            "Unused",
            "no pod uses it, and every Node has another default network: it can be deleted"
                .to_owned(),
        ),
    };
    Finding {
        type_: IN_USE,
        holds: user.is_some() || taken.is_some(),
        reason,
        message: beginning(&message, MESSAGE_MAX).to_owned(),
    }
}

/// Returns the state and the conditions of an attachment.
///
/// `network` is whether its network is ready: `None` when there is no such network. `user` is what
/// keeps the attachment while it is being deleted.
pub fn of_attachment(
    attachment: &PodNetworkAttachment,
    parameters: Result<(), &ResolveError>,
    network: Option<&Result<(), String>>,
    user: Option<&str>,
) -> (Result<(), Refusal>, Vec<Finding>) {
    let has_parameters = !attachment.spec.parameters_refs.is_empty();
    let parameters = parameters.map_err(|error| (error.reason(), error.to_string()));
    let name = &attachment.spec.pod_network_name;
    let not_ready = |message| Err(("PodNetworkNotReady", message));
    let ready = terminating(&attachment.metadata, user).and_then(|()| match network {
        None => not_ready(format!("PodNetwork {name} does not exist; create it")),
        Some(Err(why)) => not_ready(format!("PodNetwork {name} is not Ready: {why}")),
        Some(Ok(())) => parameters
            .clone()
            .map_err(|(_, message)| ("ParamsNotReady", message)),
    });
    let mut findings = vec![Finding::new(READY, "Ready", ready.clone())];
    if has_parameters {
        findings.push(params_ready(&attachment.spec.parameters_refs, parameters));
    }
    (ready, findings)
}

/// Returns the conditions of `findings` with the time of their last change.
///
/// Conditions of other types belong to other writers, and are not among them.
pub fn with_history(
    findings: &[Finding],
    now: Timestamp,
    generation: Option<i64>,
    written: &[Condition],
) -> Vec<Condition> {
    let with_history = |finding: &Finding| {
        let status = if finding.holds { "True" } else { "False" };
        let before = written.iter().find(|old| old.type_ == finding.type_);
        let unchanged = before.filter(|old| old.status == status);
        Condition {
            type_: finding.type_.to_owned(),
            status: status.to_owned(),
            reason: finding.reason.to_owned(),
            message: finding.message.clone(),
            observed_generation: generation,
            last_transition_time: unchanged
                .map_or_else(|| Time(now), |old| old.last_transition_time.clone()),
        }
    };
    findings.iter().map(with_history).collect()
}

/// True when `written` says what `wanted` does, about the types that are ours.
pub fn are_written(wanted: &[Condition], written: &[Condition]) -> bool {
    [READY, PARAMS_READY, SPLIT, IN_USE, VALID]
        .into_iter()
        .all(|type_| {
            let find = |all: &[Condition]| all.iter().find(|it| it.type_ == type_).cloned();
            find(wanted) == find(written)
        })
}

#[cfg(test)]
mod tests;
