//! Decide the status of `PodNetworkParameters` and `AttachmentParameters`.
//!
//! It says whether podnet reads the object, and how many objects name it. Nothing depends on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::{
    AttachmentParameters, FieldErrors, GROUP, Kind, ParametersRef, ParametersStatus,
    PodNetworkParameters, VALID,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use overview::view::{Key, View};

use super::conditions::{self, Finding};
use super::plan::{ObjectStep, Status, step_of};

/// Reason of [`VALID`] of an object with wrong fields.
const INVALID: &str = "FieldsInvalid";

/// The steps that bring the status of parameters to its wanted state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Steps {
    /// Parameters of networks.
    pub networks: Vec<ObjectStep>,
    /// Parameters of attachments, those of all namespaces in turn.
    ///
    /// One pass writes some of them, and no namespace is to be the last always.
    pub attachments: Vec<ObjectStep>,
}

/// Computes all of them.
pub fn steps(view: &View, now: Timestamp) -> Steps {
    let users = users(view);
    let networks = view.network_parameters.iter();
    let networks = networks.filter_map(|object: &Arc<PodNetworkParameters>| {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let valid = api::network(name, &object.spec).map(drop);
        step(
            &object.metadata,
            object.status.as_ref(),
            &valid,
            &users,
            now,
        )
    });
    let attachments = view.attachment_parameters.iter();
    let attachments = attachments.filter_map(|object: &Arc<AttachmentParameters>| {
        let valid = api::attachment_request(&object.spec).map(drop);
        step(
            &object.metadata,
            object.status.as_ref(),
            &valid,
            &users,
            now,
        )
    });
    Steps {
        networks: networks.collect(),
        attachments: in_turn(attachments.collect()),
    }
}

/// Counts the objects that name each parameters object.
fn users(view: &View) -> BTreeMap<Key, i64> {
    let mut users = BTreeMap::new();
    let mut count = |references: &[ParametersRef], kind: Kind, namespace: &str| {
        let named: BTreeSet<&str> = references
            .iter()
            .filter(|it| it.group == GROUP && it.kind == kind.as_str())
            .filter(|it| {
                it.namespace
                    .as_deref()
                    .is_none_or(|other| other == namespace)
            })
            .map(|it| it.name.as_str())
            .collect();
        for name in named {
            *users
                .entry((namespace.to_owned(), name.to_owned()))
                .or_default() += 1;
        }
    };
    for network in view.networks.values() {
        count(
            &network.spec.parameters_refs,
            Kind::PodNetworkParameters,
            "",
        );
    }
    for ((namespace, _), attachment) in &view.attachments {
        let references = &attachment.spec.parameters_refs;
        count(references, Kind::AttachmentParameters, namespace);
    }
    users
}

fn step(
    metadata: &ObjectMeta,
    status: Option<&ParametersStatus>,
    valid: &Result<(), FieldErrors>,
    users: &BTreeMap<Key, i64>,
    now: Timestamp,
) -> Option<ObjectStep> {
    if metadata.deletion_timestamp.is_some() {
        return None;
    }
    let step = step_of(metadata);
    let key = (
        step.namespace.clone().unwrap_or_default(),
        step.name.clone(),
    );
    let used_by = users.get(&key).copied().unwrap_or_default();
    let refusal = valid
        .as_ref()
        .err()
        .map(|errors| (INVALID, errors.to_string()));
    let finding = Finding::new(VALID, "Valid", refusal.map_or(Ok(()), Err));
    let written: &[Condition] = status.map_or(&[], |status| &status.conditions);
    let conditions = conditions::with_history(&[finding], now, metadata.generation, written);
    let is_written = conditions::are_written(&conditions, written)
        && status.and_then(|status| status.used_by) == Some(used_by);
    (!is_written).then(|| ObjectStep {
        status: Some(Status {
            conditions,
            used_by: Some(used_by),
            ..Status::default()
        }),
        ..step
    })
}

/// Puts the first of each namespace before the second of any.
fn in_turn(steps: Vec<ObjectStep>) -> Vec<ObjectStep> {
    let mut places: BTreeMap<Option<String>, usize> = BTreeMap::new();
    let mut placed: Vec<(usize, ObjectStep)> = steps
        .into_iter()
        .map(|step| {
            let place = places.entry(step.namespace.clone()).or_default();
            *place += 1;
            (*place, step)
        })
        .collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, step)| step).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use overview::samples::{at, network, ours, parameters, view};

    fn asks(namespace: &str, name: &str, spec: Value) -> Value {
        let metadata = json!({"namespace": namespace, "name": name});
        ours("AttachmentParameters", metadata, spec)
    }

    fn attachment(name: &str, references: &[(&str, Value)]) -> Value {
        let references: Vec<Value> = references
            .iter()
            .map(|(name, namespace)| {
                json!({
                    "group": "podnet.dev", "kind": "AttachmentParameters", "name": name,
                    "namespace": namespace,
                })
            })
            .collect();
        let metadata = json!({"namespace": "shop", "name": name});
        let spec = json!({"podNetworkName": "blue", "parametersRefs": references});
        ours("PodNetworkAttachment", metadata, spec)
    }

    fn told(steps: &[ObjectStep], name: &str) -> (String, String, Option<i64>) {
        let step = steps.iter().find(|step| step.name == name).expect("a step");
        let status = step.status.as_ref().expect("a status");
        let [condition] = status.conditions.as_slice() else {
            unreachable!("one condition: {status:?}");
        };
        assert_eq!(condition.type_, VALID);
        assert_eq!(condition.observed_generation, Some(1));
        let reason = format!("{} {}", condition.status, condition.reason);
        (reason, condition.message.clone(), status.used_by)
    }

    #[test]
    fn parameters_say_which_field_is_wrong_and_how_many_name_them() {
        let wrong =
            json!({"mode": "L2", "subnets": ["10.0.0.0/24"], "gateway": "10.9.0.1", "mtu": 9});
        let view = view(&[
            network("blue"),
            parameters("blue", None),
            ours("PodNetworkParameters", json!({"name": "red"}), wrong),
            asks("shop", "slow", json!({"egressRate": 9000})),
            asks("shop", "wrong", json!({"egressRate": -9})),
            asks("other", "slow", json!({})),
            attachment("one", &[("slow", Value::Null), ("wrong", json!("shop"))]),
            attachment("two", &[("slow", json!("shop")), ("slow", Value::Null)]),
            attachment("three", &[("slow", json!("other"))]),
        ]);
        let steps = steps(&view, at(0));
        let valid = |used| ("True Valid".to_owned(), String::new(), Some(used));
        assert_eq!(told(&steps.networks, "blue"), valid(1));
        let (reason, message, used) = told(&steps.networks, "red");
        assert_eq!((reason.as_str(), used), ("False FieldsInvalid", Some(0)));
        for part in [
            "spec.gateway[0]: 10.9.0.1",
            "spec.mtu: 9 is out of range; write",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        // An attachment cannot use those of another namespace, and one that names it twice is one.
        let of = |namespace: &str| {
            let all = steps.attachments.iter();
            let found = all.filter(|it| it.namespace.as_deref() == Some(namespace));
            found.cloned().collect::<Vec<_>>()
        };
        assert_eq!(told(&of("shop"), "slow"), valid(2));
        assert_eq!(told(&of("other"), "slow"), valid(0));
        let (reason, message, used) = told(&of("shop"), "wrong");
        assert_eq!((reason.as_str(), used), ("False FieldsInvalid", Some(1)));
        assert!(
            message.contains("spec.egressRate: -9 is negative"),
            "{message}"
        );
    }

    #[test]
    fn a_status_that_says_so_already_is_not_written_again() {
        let status = |used: i64, time: i64| {
            json!({"usedBy": used, "conditions": [{
                "type": "Valid", "status": "True", "reason": "Valid", "message": "",
                "observedGeneration": 1, "lastTransitionTime": at(time).to_string(),
            }]})
        };
        let with = |status: Value| {
            let mut object = parameters("blue", None);
            object["status"] = status;
            steps(&view(&[network("blue"), object]), at(9)).networks
        };
        assert_eq!(with(status(1, 0)), []);
        let other = with(status(2, 0));
        let written = other[0].status.as_ref().expect("a status");
        assert_eq!(written.used_by, Some(1));
        assert_eq!(
            written.conditions[0].last_transition_time.0,
            at(0),
            "it stayed valid"
        );
        let mut going = parameters("blue", None);
        going["metadata"]["deletionTimestamp"] = at(0).to_string().into();
        assert_eq!(steps(&view(&[going]), at(9)).networks, [], "one that goes");
    }

    /// A namespace with many objects does not keep those of others from their status.
    #[test]
    fn namespaces_have_their_turn() {
        let mut all: Vec<Value> = (0..5)
            .map(|it| asks("a", &format!("p{it}"), json!({})))
            .collect();
        all.extend(["x", "y"].map(|name| asks("b", name, json!({}))));
        let steps = steps(&view(&all), at(0)).attachments;
        let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["p0", "x", "p1", "y", "p2", "p3", "p4"]);
    }
}
