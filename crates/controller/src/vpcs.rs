//! Decide the status of `Vpc`s: the number of networks, and what is in force.

use api::{READY, Resolved, VpcState};
use k8s_openapi::jiff::Timestamp;
use overview::view::View;

use super::conditions::{self, Finding};
use super::plan::{ObjectStep, Status, StatusOf, step_of};

/// Computes the steps that bring the status of all VPCs to its wanted state.
pub(super) fn steps(view: &View, resolved: &Resolved, now: Timestamp) -> Vec<ObjectStep> {
    let states: Vec<VpcState> = resolved.vpcs().collect();
    let objects = view.vpcs.iter();
    let steps = objects.filter_map(|object| {
        if object.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let step = step_of(&object.metadata);
        let state = states.iter().find(|state| state.name == step.name)?;
        let refusal = (!state.ready).then(|| (state.reason, state.message.clone()));
        let finding = Finding::new(READY, "Ready", refusal.map_or(Ok(()), Err));
        let status = object.status.as_ref();
        let written = status.map_or(&[][..], |status| &status.conditions);
        let generation = object.metadata.generation;
        let conditions = conditions::with_history(&[finding], now, generation, written);
        let networks = i64::try_from(state.networks.len()).unwrap_or(i64::MAX);
        let is_written = conditions::are_written(&conditions, written)
            && status.and_then(|status| status.networks) == Some(networks);
        (!is_written).then(|| ObjectStep {
            status: Some(Status {
                conditions,
                networks: Some(networks),
                ..Status::default()
            }),
            kind: StatusOf::Vpc,
            ..step
        })
    });
    steps.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use overview::samples::{at, network, ours, view};

    fn vpc(name: &str, cidr: &str, peers: &[&str]) -> Value {
        let peers: Vec<Value> = peers.iter().map(|it| json!({"vpc": it})).collect();
        let spec = json!({"cidrs": [cidr], "peers": peers});
        ours("Vpc", json!({"name": name}), spec)
    }

    fn subnet(name: &str, vpc: &str, prefix: &str) -> Value {
        let spec = json!({"mode": "L3", "subnets": [prefix], "vpc": vpc});
        ours("PodNetworkParameters", json!({"name": name}), spec)
    }

    fn steps_of(objects: &[Value]) -> Vec<ObjectStep> {
        let view = view(objects);
        steps(&view, &view.resolve(), at(9))
    }

    fn told(steps: &[ObjectStep], name: &str) -> (String, String, Option<i64>) {
        let step = steps.iter().find(|step| step.name == name).expect("a step");
        let status = step.status.as_ref().expect("a status");
        let condition = &status.conditions[0];
        assert_eq!(
            (&*condition.type_, condition.observed_generation),
            (READY, Some(1))
        );
        let reason = format!("{} {}", condition.status, condition.reason);
        (reason, condition.message.clone(), status.networks)
    }

    #[test]
    fn a_vpc_says_how_many_networks_it_has_and_which_peer_is_not_in_force() {
        let steps = steps_of(&[
            vpc("one", "10.0.0.0/8", &["two"]),
            vpc("two", "10.0.0.0/8", &["one"]),
            vpc("three", "10.0.0.1/8", &[]),
            network("a"),
            subnet("a", "one", "10.1.0.0/16"),
            network("b"),
            subnet("b", "one", "10.2.0.0/16"),
        ]);
        let (reason, message, networks) = told(&steps, "one");
        assert_eq!((reason.as_str(), networks), ("False PeerOverlap", Some(2)));
        assert!(message.contains("10.0.0.0/8 of Vpc two"), "{message}");
        let (reason, message, networks) = told(&steps, "three");
        assert_eq!(
            (reason.as_str(), networks),
            ("False ParamsInvalid", Some(0))
        );
        assert!(message.contains("spec.cidrs[0]"), "{message}");
    }

    #[test]
    fn a_status_that_says_so_already_is_not_written_again() {
        let mut object = vpc("one", "10.0.0.0/8", &[]);
        assert_eq!(told(&steps_of(&[object.clone()]), "one").0, "True Ready");
        object["status"] = json!({"networks": 0, "conditions": [{
            "type": "Ready", "status": "True", "reason": "Ready", "message": "",
            "observedGeneration": 1, "lastTransitionTime": at(0).to_string(),
        }]});
        assert_eq!(steps_of(&[object.clone()]), []);
        object["metadata"]["deletionTimestamp"] = at(0).to_string().into();
        object["status"]["networks"] = 7.into();
        assert_eq!(steps_of(&[object]), [], "one that goes");
    }
}
