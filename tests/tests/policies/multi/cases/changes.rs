//! Policies and labels that change while pods are there.

use super::super::case::object;
use super::Case;

fn from(name: &str) -> String {
    format!(
        "policyTypes: [Ingress], \
         ingress: [{{from: [{{podSelector: {{matchLabels: {{name: {name}}}}}}}]}}]"
    )
}

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("a policy is written again, and removed")
            .policy(&from("a"))
            .expects(&["- *>s", "+ a>s"])
            .then()
            .policy(&from("b"))
            .expects(&["- *>s", "+ b>s"])
            .then()
            .expects(&[]),
        Case::new("one of two policies is removed, and comes again")
            .policy(&from("a"))
            .policy(&from("b"))
            .expects(&["- *>s", "+ ab>s"])
            .then()
            .policy(&from("a"))
            .expects(&["- *>s", "+ a>s"])
            .then()
            .policy(&from("a"))
            .policy(&from("b"))
            .expects(&["- *>s", "+ ab>s"]),
        Case::new("a policy is turned to the other direction")
            .policy("policyTypes: [Ingress]")
            .expects(&["- *>s"])
            .then()
            .policy("policyTypes: [Egress]")
            .expects(&["- s>*"]),
        Case::new("ports of a rule change")
            .policy("policyTypes: [Ingress], ingress: [{ports: [{port: 80}]}]")
            .among("sad")
            .expects(&["- *>s", "+ *>s tcp 80"])
            .then()
            .policy("policyTypes: [Ingress], ingress: [{ports: [{protocol: UDP, port: 5555}]}]")
            .expects(&["- *>s", "+ *>s udp 5555"])
            .then()
            .policy("policyTypes: [Ingress], ingress: [{}]")
            .expects(&[]),
        networks(),
        namespaces(),
        pods(),
    ]
}

fn networks() -> Case {
    let on = |definitions: &str| {
        let metadata = format!(
            "name: p, namespace: red, annotations: {{k8s.v1.cni.cncf.io/policy-for: {definitions}}}"
        );
        object(
            "v1beta1",
            &metadata,
            "podSelector: {matchLabels: {name: s}}, policyTypes: [Egress]",
        )
    };
    Case::new("a policy is moved to another network")
        .object(on("default/lan"))
        .among("sadSAD")
        .expects(&["- s>*"])
        .then()
        .object(on("default/wan"))
        .expects(&["- S>*"])
        .then()
        .object(on("'default/wan,own'"))
        .expects(&["- s>*", "- S>*"])
}

fn namespaces() -> Case {
    let staging = "policyTypes: [Ingress], \
                   ingress: [{from: [{namespaceSelector: {matchLabels: {env: staging}}}]}]";
    Case::new("labels of a namespace change")
        .policy(staging)
        .expects(&["- *>s", "+ de>s"])
        .then()
        .policy(staging)
        .namespace("green", "env: staging")
        .namespace("blue", "env: test")
        .expects(&["- *>s", "+ fg>s"])
        .then()
        .policy(staging)
        .namespace("red", "env: staging")
        .namespace("blue", "")
        .expects(&["- *>s", "+ abc>s"])
}

fn pods() -> Case {
    let friends = "policyTypes: [Ingress], \
                   ingress: [{from: [{podSelector: {matchLabels: {role: friend}}}]}]";
    let foes_are_closed = |case: Case| {
        case.policy(friends)
            .selecting("matchLabels: {role: foe}", "policyTypes: [Egress]")
    };
    let case = Case::new("labels of a pod change").among("sabcd");
    let case = foes_are_closed(case).expects(&["- *>s", "+ ac>s", "- b>*"]);
    let case = foes_are_closed(case.then().relabelled('c', "role: foe"))
        .expects(&["- *>s", "+ a>s", "- bc>*"]);
    foes_are_closed(
        case.then()
            .relabelled('c', "role: friend, tier: monitoring"),
    )
    .expects(&["- *>s", "+ ac>s", "- b>*"])
}
