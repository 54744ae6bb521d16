use api::selection::{SelectionRules, Target};
use serde_json::{Value, json};

use super::super::facts::{Facts, Reached, Way};
use super::super::review::{self, Denial};
use super::super::samples::{create, listing, pod};
use super::{AccessControl, Question, Used, Who, check, questions, review as question};

fn network(name: &str) -> (Target, Way) {
    (
        Target::PodNetwork(name.to_owned()),
        Way::to(Reached::Network(name.to_owned())),
    )
}

fn definition(name: &str, reached: Reached) -> (Target, Way) {
    let target = Target::Definition {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
    };
    (target, Way::to(reached))
}

fn asked(control: AccessControl, pod: &Value, facts: &Facts) -> Result<Vec<Question>, Denial> {
    let request = create(pod);
    let selection = review::read(&request, &SelectionRules::default())
        .expect("valid lists")
        .expect("lists");
    questions(control, &request, &selection, facts, "default")
}

/// KEP-P2-1: who is asked about.
#[test]
fn the_subjects_are_those_of_the_option() {
    let pod = listing(r#"[{"name": "blue"}]"#);
    let facts: Facts = [network("blue")].into_iter().collect();
    let blue = |who: Who| (who, Used::Network("blue".to_owned()));
    for (control, expected) in [
        (AccessControl::Off, vec![]),
        (AccessControl::User, vec![blue(Who::User)]),
        (
            AccessControl::ServiceAccount,
            vec![blue(Who::ServiceAccount)],
        ),
        (
            AccessControl::Either,
            vec![blue(Who::User), blue(Who::ServiceAccount)],
        ),
    ] {
        assert_eq!(asked(control, &pod, &facts), Ok(expected), "{control:?}");
    }
    proof::of!("KEP-P2-1");
}

/// KEP-P2-1: each network is asked about once, whatever object names it.
///
/// The default network and the plugins of others in the pod's own namespace need no right.
#[test]
fn every_network_is_asked_about_once() {
    let pod = pod(
        &json!({
            "podnet.dev/networks": r#"[{"name": "default"}, {"name": "blue"}, {"attachmentName": "fast"}]"#,
            "k8s.v1.cni.cncf.io/networks": "red,also-blue,macvlan",
        }),
        &json!({ "containers": [{ "name": "c", "image": "i" }] }),
    );
    let fast = Target::Attachment {
        namespace: "shop".to_owned(),
        name: "fast".to_owned(),
    };
    let facts: Facts = [
        network("default"),
        network("blue"),
        (fast, Way::to(Reached::Network("green".to_owned()))),
        definition("red", Reached::Network("red".to_owned())),
        definition("also-blue", Reached::Network("blue".to_owned())),
        definition("macvlan", Reached::Others),
    ]
    .into_iter()
    .collect();
    let networks = asked(AccessControl::User, &pod, &facts).expect("all known");
    let names: Vec<String> = networks.iter().map(|(_, used)| used.to_string()).collect();
    assert_eq!(
        names,
        ["PodNetwork blue", "PodNetwork green", "PodNetwork red"]
    );
    proof::of!("KEP-P2-1");
}

/// KEP-P2-1: an object that appears later must not lead around the check.
#[test]
fn an_unknown_object_is_refused_where_access_is_controlled() {
    let pod = listing(r#"[{"name": "blue"}, {"attachmentName": "fast"}]"#);
    let fast = Target::Attachment {
        namespace: "shop".to_owned(),
        name: "fast".to_owned(),
    };
    let facts: Facts = [
        network("blue"),
        (
            fast.clone(),
            Way::to(Reached::Unknown("does not exist".to_owned())),
        ),
    ]
    .into_iter()
    .collect();
    assert_eq!(asked(AccessControl::Off, &pod, &facts), Ok(vec![]));
    let denial = asked(AccessControl::ServiceAccount, &pod, &facts).unwrap_err();
    let why = "does not exist".to_owned();
    assert_eq!(denial, Denial::Unknown { target: fast, why });
    proof::of!("KEP-P2-1");
}

/// Kubernetes static pods: no question is asked about their mirror pods.
///
/// They run whatever the API server says, and have no service account.
#[test]
fn nobody_is_asked_about_a_mirror_pod() {
    let annotations = json!({
        "podnet.dev/networks": r#"[{"name": "blue"}]"#,
        "kubernetes.io/config.mirror": "1f",
    });
    let pod = pod(&annotations, &json!({ "nodeName": "n1", "containers": [] }));
    let facts: Facts = [network("blue")].into_iter().collect();
    assert_eq!(asked(AccessControl::Either, &pod, &facts), Ok(vec![]));
}

/// KEP-P2-1: one subject that may is enough, for every network.
#[test]
fn every_network_needs_one_subject_that_may_use_it() {
    let request = create(&listing("[]"));
    let answer = |who, network: &str, allowed| ((who, Used::Network(network.to_owned())), allowed);
    let (user, account) = (Who::User, Who::ServiceAccount);
    let table = [
        (vec![], None),
        (vec![answer(user, "a", true)], None),
        (
            vec![answer(user, "a", false), answer(account, "a", true)],
            None,
        ),
        (
            vec![answer(user, "a", false)],
            Some("alice may not use PodNetwork a"),
        ),
        (
            vec![answer(account, "a", true), answer(account, "b", false)],
            Some("system:serviceaccount:shop:default may not use PodNetwork b"),
        ),
        (
            vec![answer(user, "a", false), answer(account, "a", false)],
            Some("neither alice nor system:serviceaccount:shop:default may use PodNetwork a"),
        ),
        (
            vec![
                answer(user, "a", true),
                answer(account, "b", true),
                answer(user, "b", false),
                answer(account, "a", false),
            ],
            None,
        ),
    ];
    for (answers, refusal) in table {
        match (check(&request, &answers), refusal) {
            (Ok(()), None) => {}
            (Err(denial), Some(words)) => {
                let message = denial.to_string();
                assert!(message.starts_with(words), "{message}");
                assert!(
                    message.contains("by a RoleBinding in namespace shop"),
                    "{message}"
                );
                assert_eq!(denial.respond(&request).result.code, 403);
            }
            (found, expected) => panic!("{found:?}, not {expected:?}"),
        }
    }
    proof::of!("KEP-P2-1");
}

/// Kubernetes authorization: the question RBAC answers, for the pod's namespace.
#[test]
fn the_question_is_about_a_verb_on_one_network_in_the_namespace_of_the_pod() {
    let mut pod = listing(r#"[{"name": "blue"}]"#);
    pod["spec"]["serviceAccountName"] = json!("runner");
    let request = create(&pod);
    for (who, user, group) in [
        (Who::User, "alice", "system:authenticated"),
        (
            Who::ServiceAccount,
            "system:serviceaccount:shop:runner",
            "system:serviceaccounts:shop",
        ),
    ] {
        let asked = question(&(who, Used::Network("blue".to_owned())), &request).spec;
        assert_eq!(asked.user.as_deref(), Some(user));
        assert!(asked.groups.expect("groups").contains(&group.to_owned()));
        let about = serde_json::to_value(asked.resource_attributes).expect("JSON");
        let expected = json!({
            "group": "podnet.dev", "resource": "podnetworks", "name": "blue",
            "namespace": "shop", "verb": "use",
        });
        assert_eq!(about, expected);
    }
}

/// ATT-07a: a definition of another namespace is asked about, in its namespace.
#[test]
fn a_definition_of_another_namespace_is_asked_about() {
    let annotations = json!({ "k8s.v1.cni.cncf.io/networks": "ops/lan,lan" });
    let pod = pod(&annotations, &json!({ "containers": [] }));
    let lan = |namespace: &str| Target::Definition {
        namespace: namespace.to_owned(),
        name: "lan".to_owned(),
    };
    let facts: Facts = ["ops", "shop"]
        .map(|namespace| (lan(namespace), Way::to(Reached::Others)))
        .into_iter()
        .collect();
    let all = asked(AccessControl::ServiceAccount, &pod, &facts).expect("all known");
    let used = Used::Definition {
        namespace: "ops".to_owned(),
        name: "lan".to_owned(),
    };
    assert_eq!(all, [(Who::ServiceAccount, used.clone())]);
    let about = question(&(Who::ServiceAccount, used), &create(&pod)).spec;
    let about = serde_json::to_value(about.resource_attributes).expect("JSON");
    let expected = json!({
        "group": "k8s.cni.cncf.io", "resource": "network-attachment-definitions", "name": "lan",
        "namespace": "ops", "verb": "use",
    });
    assert_eq!(about, expected);
    let denial = check(&create(&pod), &[(all[0].clone(), false)]).unwrap_err();
    let message = denial.to_string();
    assert!(
        message.contains("may not use NetworkAttachmentDefinition ops/lan")
            && message.contains("by a RoleBinding in namespace ops"),
        "{message}"
    );
    proof::of!("ATT-07a");
}
