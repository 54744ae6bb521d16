//! Senders and receivers by their labels, directions, and policies that add up.

use super::Case;

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    [rules(), directions(), stacked(), whole()].concat()
}

fn rules() -> Vec<Case> {
    vec![
        Case::new("one sender is allowed by its label")
            .policy(
                "policyTypes: [Ingress], \
                 ingress: [{from: [{podSelector: {matchLabels: {name: a}}}]}]",
            )
            .expects(&["- *>s", "+ a>s"]),
        Case::new("senders of two rules are allowed")
            .policy(
                "policyTypes: [Ingress], \
                 ingress: [{from: [{podSelector: {matchLabels: {name: a}}}]}, \
                 {from: [{podSelector: {matchLabels: {name: c}}}]}]",
            )
            .expects(&["- *>s", "+ ac>s"]),
        Case::new("senders of one rule are allowed")
            .policy(
                "policyTypes: [Ingress], \
                 ingress: [{from: [{podSelector: {matchLabels: {name: b}}}, \
                 {podSelector: {matchLabels: {name: c}}}]}]",
            )
            .expects(&["- *>s", "+ bc>s"]),
        Case::new("one receiver is allowed by its label")
            .policy(
                "policyTypes: [Egress], \
                 egress: [{to: [{podSelector: {matchLabels: {name: a}}}]}]",
            )
            .expects(&["- s>*", "+ s>a"]),
        Case::new("receivers of two rules are allowed")
            .policy(
                "policyTypes: [Egress], \
                 egress: [{to: [{podSelector: {matchLabels: {name: a}}}]}, \
                 {to: [{podSelector: {matchLabels: {name: c}}}]}]",
            )
            .expects(&["- s>*", "+ s>ac"]),
        Case::new("receivers of one rule are allowed")
            .policy(
                "policyTypes: [Egress], \
                 egress: [{to: [{podSelector: {matchLabels: {name: b}}}, \
                 {podSelector: {matchLabels: {name: c}}}]}]",
            )
            .expects(&["- s>*", "+ s>bc"]),
        Case::new("both ends count")
            .policy(
                "policyTypes: [Egress], \
                 egress: [{to: [{podSelector: {matchExpressions: [{key: name, operator: In, values: [a, c]}]}}]}]",
            )
            .selecting(
                "matchLabels: {name: a}",
                "policyTypes: [Ingress], \
                 ingress: [{from: [{podSelector: {matchLabels: {name: b}}}]}]",
            )
            .expects(&["- s>*", "+ s>ac", "- *>a", "+ b>a"]),
    ]
}

fn directions() -> Vec<Case> {
    let from_a = "ingress: [{from: [{podSelector: {matchLabels: {name: a}}}]}]";
    let to_c = "egress: [{to: [{podSelector: {matchLabels: {name: c}}}]}]";
    vec![
        Case::new("a policy without policyTypes and with rules for both isolates both")
            .policy(&format!("{from_a}, {to_c}"))
            .expects(&["- *>s", "+ a>s", "- s>*", "+ s>c"]),
        Case::new("a policy without policyTypes and with rules for ingress isolates for ingress")
            .policy(from_a)
            .expects(&["- *>s", "+ a>s"]),
        Case::new("a policy without policyTypes and with rules for egress isolates both")
            .policy(to_c)
            .expects(&["- *>s", "- s>*", "+ s>c"]),
        Case::new("a policy with an empty list of policyTypes is one without")
            .policy(&format!("policyTypes: [], {to_c}"))
            .expects(&["- *>s", "- s>*", "+ s>c"]),
        Case::new("a policy without policyTypes and rules isolates for ingress")
            .object(super::super::case::object(
                "v1beta1",
                "name: p, namespace: red, annotations: {k8s.v1.cni.cncf.io/policy-for: default/lan}",
                "podSelector: {matchLabels: {name: s}}",
            ))
            .expects(&["- *>s"]),
        Case::new("a policy without policyTypes and with an empty list for egress isolates for ingress")
            .policy("egress: []")
            .expects(&["- *>s"]),
        Case::new("rules for ingress of a policy for egress do nothing")
            .policy(&format!("policyTypes: [Egress], {from_a}, {to_c}"))
            .expects(&["- s>*", "+ s>c"]),
        Case::new("rules for egress of a policy for ingress do nothing")
            .policy(&format!("policyTypes: [Ingress], {from_a}, {to_c}"))
            .expects(&["- *>s", "+ a>s"]),
        Case::new("a policy for egress without rules lets nothing out")
            .policy("policyTypes: [Egress]")
            .expects(&["- s>*"]),
        Case::new("a policy for both without rules lets nothing in or out")
            .policy("policyTypes: [Ingress, Egress]")
            .expects(&["- *>s", "- s>*"]),
    ]
}

fn stacked() -> Vec<Case> {
    let from = |name: &str| {
        format!(
            "policyTypes: [Ingress], \
             ingress: [{{from: [{{podSelector: {{matchLabels: {{name: {name}}}}}}}]}}]"
        )
    };
    let to = |name: &str| {
        format!(
            "policyTypes: [Egress], \
             egress: [{{to: [{{podSelector: {{matchLabels: {{name: {name}}}}}}}]}}]"
        )
    };
    vec![
        Case::new("two policies add up")
            .policy(&from("a"))
            .policy(&from("b"))
            .expects(&["- *>s", "+ ab>s"]),
        Case::new("two policies for egress add up")
            .policy(&to("a"))
            .policy(&to("b"))
            .expects(&["- s>*", "+ s>ab"]),
        Case::new("a policy for each direction")
            .policy(&from("a"))
            .policy(&to("b"))
            .expects(&["- *>s", "+ a>s", "- s>*", "+ s>b"]),
        Case::new("policies that select in two ways add up")
            .policy(&from("a"))
            .selecting("matchLabels: {tier: backend}", &from("b"))
            .selecting(
                "matchExpressions: [{key: role, operator: In, values: [server, foe]}]",
                &from("c"),
            )
            .expects(&["- *>sb", "+ abc>s", "+ c>b"])
            .among("sabcde"),
    ]
}

fn whole() -> Vec<Case> {
    let friends = "policyTypes: [Ingress], \
                   ingress: [{from: [{podSelector: {matchLabels: {role: friend}}}], \
                   ports: [{protocol: TCP, port: 80}]}]";
    vec![
        Case::new("all is denied for a namespace")
            .selecting("", "policyTypes: [Ingress, Egress]")
            .among("sabdfSAD")
            .expects(&["- *>sab", "- sab>*", "+ SAD>SAD"]),
        Case::new("all is denied, and a specific rule allows")
            .policy("policyTypes: [Ingress], ingress: []")
            .policy(friends)
            .expects(&["- *>s", "+ ac>s tcp 80"]),
        Case::new("all is denied for a namespace, and a specific rule allows for a pod")
            .selecting("", "policyTypes: [Ingress]")
            .policy(friends)
            .among("sabcd")
            .expects(&["- *>sabc", "+ ac>s tcp 80"]),
        Case::new("an empty list of senders allows all, next to a specific rule")
            .policy("policyTypes: [Ingress], ingress: [{from: []}]")
            .policy(friends)
            .policy("policyTypes: [Egress]")
            .expects(&["- s>*"]),
        Case::new("an empty rule allows all, next to a policy that denies all")
            .policy("policyTypes: [Ingress, Egress]")
            .policy("policyTypes: [Ingress], ingress: [{}]")
            .expects(&["- s>*"]),
        Case::new("an empty rule for egress allows all")
            .policy("policyTypes: [Ingress, Egress], egress: [{}]")
            .expects(&["- *>s"]),
        Case::new("an empty list of receivers allows all, and one of ports")
            .policy("policyTypes: [Ingress, Egress], egress: [{to: [], ports: []}]")
            .expects(&["- *>s"]),
    ]
}
