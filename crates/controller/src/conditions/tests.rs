use std::sync::Arc;

use overview::samples::{at, attachment, network, ours, parameters, view};
use serde_json::{Value, json};

use super::*;

/// `Ready` and `ParamsReady` of network `name`, as `status/reason`.
fn states(objects: &[Value], name: &str) -> (String, Option<String>) {
    let view = view(objects);
    let resolved = view.resolve();
    let parameters = resolved.network(name).map(drop);
    let network = &view.networks[name];
    let (_, findings) = of_network(network, parameters.as_ref().copied(), None, None);
    words(&findings)
}

fn words(findings: &[Finding]) -> (String, Option<String>) {
    let word = |type_| {
        let finding = findings.iter().find(|it| it.type_ == type_)?;
        Some(format!("{}/{}", finding.holds, finding.reason))
    };
    (
        word(READY).expect("Ready is always said"),
        word(PARAMS_READY),
    )
}

fn disabled(mut network: Value) -> Value {
    network["spec"]["enabled"] = false.into();
    network
}

fn check(objects: &[Value], ready: &str, params: Option<&str>) {
    let name = objects[0]["metadata"]["name"].as_str().expect("a name");
    let (found, of_params) = states(objects, name);
    assert_eq!(
        (found.as_str(), of_params.as_deref()),
        (ready, params),
        "{objects:?}"
    );
}

/// KEP-PN-R1, KEP-PN-R2, KEP-PN-R4, KEP-PN-R8
#[test]
fn a_network_is_ready_when_its_parameters_are() {
    let all_well = [network("blue"), parameters("blue", None)];
    check(&all_well, "true/Ready", Some("true/Resolved"));
    let missing = [network("blue")];
    check(
        &missing,
        "false/ParamsNotReady",
        Some("false/ParamsNotFound"),
    );
    let invalid = ours(
        "PodNetworkParameters",
        json!({"name": "blue"}),
        json!({"mode": "L3"}),
    );
    check(
        &[network("blue"), invalid],
        "false/ParamsNotReady",
        Some("false/ParamsInvalid"),
    );
    let mut foreign_kind = network("blue");
    foreign_kind["spec"]["parametersRefs"][0]["kind"] = "ConfigMap".into();
    check(
        &[foreign_kind],
        "false/ParamsNotReady",
        Some("false/KindNotSupported"),
    );
    proof::of!(
        "KEP-PN-R1",
        "KEP-PN-R2",
        "KEP-PN-R4",
        "KEP-PN-R8",
        "KEP-P1-06"
    );
}

/// KEP-PN-R3: other faults are said, too.
#[test]
fn a_disabled_network_says_so_first() {
    let disabled = disabled(network("blue"));
    check(
        &[disabled.clone(), parameters("blue", None)],
        "false/AdministrativelyDisabled",
        Some("true/Resolved"),
    );
    check(
        &[disabled],
        "false/AdministrativelyDisabled",
        Some("false/ParamsNotFound"),
    );
    proof::of!("KEP-PN-R3");
}

/// KEP-PN-R5
#[test]
fn the_default_network_is_ready_without_parameters() {
    let default = ours(
        "PodNetwork",
        json!({"name": "default"}),
        json!({"enabled": true}),
    );
    check(std::slice::from_ref(&default), "true/Ready", None);
    check(&[disabled(default)], "false/AdministrativelyDisabled", None);
    proof::of!("KEP-PN-R5");
}

/// KEP-PN-R1: it is not valid, since no node knows what to make of it.
#[test]
fn another_network_of_ours_without_parameters_is_not_ready() {
    let mut bare = network("blue");
    bare["spec"]["parametersRefs"] = json!([]);
    check(&[bare], "false/ParamsNotReady", None);
    proof::of!("KEP-PN-R1");
}

#[test]
fn two_networks_that_ask_for_one_number_are_both_refused() {
    let objects = [
        network("blue"),
        parameters("blue", Some(7)),
        network("red"),
        parameters("red", Some(7)),
    ];
    check(
        &objects,
        "false/ParamsNotReady",
        Some("false/NetworkIDConflict"),
    );
}

/// KEP-PNA-02, KEP-PNA-03, KEP-PNA-06
#[test]
fn an_attachment_is_ready_when_its_network_and_its_parameters_are() {
    let mut pna = attachment("shop", "fast", "blue");
    pna["spec"]["parametersRefs"] =
        json!([{"group": "podnet.dev", "kind": "AttachmentParameters", "name": "fast"}]);
    let metadata = json!({"namespace": "shop", "name": "fast"});
    let params = ours("AttachmentParameters", metadata, json!({}));
    let not_ready = Err("spec.enabled is false".to_owned());
    for (objects, of_network, ready, of_params) in [
        (
            vec![pna.clone(), params.clone()],
            Some(&Ok(())),
            "true/Ready",
            "true/Resolved",
        ),
        (
            vec![pna.clone(), params.clone()],
            None,
            "false/PodNetworkNotReady",
            "true/Resolved",
        ),
        (
            vec![pna.clone(), params],
            Some(&not_ready),
            "false/PodNetworkNotReady",
            "true/Resolved",
        ),
        (
            vec![pna.clone()],
            Some(&Ok(())),
            "false/ParamsNotReady",
            "false/ParamsNotFound",
        ),
        // The network first: parameters may depend on it.
        (
            vec![pna],
            None,
            "false/PodNetworkNotReady",
            "false/ParamsNotFound",
        ),
    ] {
        let view = view(&objects);
        let resolved = view.resolve();
        let object = Arc::clone(&view.attachments[&("shop".to_owned(), "fast".to_owned())]);
        let parameters = resolved.attachment("shop", "fast").map(drop);
        let (_, findings) = of_attachment(&object, parameters.as_ref().copied(), of_network, None);
        assert_eq!(
            words(&findings),
            (ready.to_owned(), Some(of_params.to_owned()))
        );
    }
    proof::of!("KEP-PNA-02", "KEP-PNA-03", "KEP-PNA-06");
}

/// An object on its way out is not ready, and names its user.
#[test]
fn an_object_that_is_being_deleted_says_so_and_what_it_waits_for() {
    let mut network = disabled(network("blue"));
    let mut pna = attachment("shop", "fast", "blue");
    for object in [&mut network, &mut pna] {
        object["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
    }
    let view = view(&[network, pna, parameters("blue", None)]);
    let (network, key) = (
        &view.networks["blue"],
        ("shop".to_owned(), "fast".to_owned()),
    );
    for user in [None, Some("pod shop/web")] {
        let (ready, findings) = of_network(network, Ok(()), None, user);
        let (other, of_attachment) =
            of_attachment(&view.attachments[&key], Ok(()), Some(&Ok(())), user);
        assert_eq!(ready, other);
        let (reason, message) = ready.expect_err("no pod can attach");
        assert_eq!(reason, "Terminating");
        assert_eq!(message.contains("waits for pod shop/web"), user.is_some());
        assert_eq!(
            words(&findings),
            (
                "false/Terminating".to_owned(),
                Some("true/Resolved".to_owned())
            )
        );
        assert_eq!(words(&of_attachment).0, "false/Terminating");
    }
}

/// KEP-PN-R6
#[test]
fn the_time_of_a_condition_moves_with_its_status_only() {
    let finding = |holds, reason| Finding {
        type_: READY,
        holds,
        reason,
        message: String::new(),
    };
    let first = with_history(&[finding(false, "ParamsNotReady")], at(0), Some(1), &[]);
    assert_eq!(first[0].last_transition_time, Time(at(0)));
    let reason = finding(false, "AdministrativelyDisabled");
    let second = with_history(&[reason], at(10), Some(2), &first);
    assert_eq!(second[0].last_transition_time, Time(at(0)));
    assert_eq!(second[0].observed_generation, Some(2));
    assert!(!are_written(&second, &first));
    let third = with_history(&[finding(true, "Ready")], at(20), Some(2), &second);
    assert_eq!(third[0].last_transition_time, Time(at(20)));
    let same = with_history(&[finding(true, "Ready")], at(30), Some(2), &third);
    assert!(are_written(&same, &third));
    proof::of!("KEP-PN-R6");
}

#[test]
fn conditions_of_others_do_not_matter() {
    let foreign = Condition {
        type_: "acme.io/Audited".to_owned(),
        status: "True".to_owned(),
        reason: "Audited".to_owned(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: Time(at(0)),
    };
    let ready = Finding {
        type_: READY,
        holds: true,
        reason: "Ready",
        message: String::new(),
    };
    let wanted = with_history(&[ready], at(0), None, &[]);
    let written = [wanted.clone(), vec![foreign]].concat();
    assert!(are_written(&wanted, &written));
    // One that is no longer said has to go.
    assert!(!are_written(&[], &written));
}
