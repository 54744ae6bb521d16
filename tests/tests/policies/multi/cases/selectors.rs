//! Peers by namespaces and pods, alone and together.

use super::Case;

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    [namespaces(), pods(), expressions(), vec![mixed(), tiers()]].concat()
}

/// Allows what comes from peers, a list of YAML without brackets.
fn from(peers: &str) -> String {
    format!("policyTypes: [Ingress], ingress: [{{from: [{peers}]}}]")
}

fn namespaces() -> Vec<Case> {
    vec![
        Case::new("a selector of namespaces that matches none allows nobody")
            .policy(&from("{namespaceSelector: {matchLabels: {foo: bar}}}"))
            .expects(&["- *>s"]),
        Case::new("a selector of namespaces that matches none allows nobody for egress")
            .policy(
                "policyTypes: [Egress], \
                 egress: [{to: [{namespaceSelector: {matchLabels: {foo: bar}}}]}]",
            )
            .expects(&["- s>*"]),
        Case::new("a namespace is selected by its label")
            .policy(&from("{namespaceSelector: {matchLabels: {env: staging}}}"))
            .expects(&["- *>s", "+ de>s"]),
        Case::new("a namespace is selected by its name")
            .policy(&from(
                "{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: green}}}",
            ))
            .expects(&["- *>s", "+ fg>s"]),
        Case::new("the own namespace is one of those that are selected")
            .policy(&from(
                "{namespaceSelector: {matchExpressions: [{key: env, operator: NotIn, values: [test]}]}}",
            ))
            .expects(&["- fg>s"]),
        Case::new("an empty selector of namespaces is all of them")
            .policy(
                "policyTypes: [Ingress, Egress], ingress: [{from: [{namespaceSelector: {}}]}]",
            )
            .expects(&["- s>*"]),
    ]
}

fn pods() -> Vec<Case> {
    vec![
        Case::new("selectors of pods that match none allow nobody")
            .policy(
                "ingress: [{from: [{podSelector: {matchLabels: {no: such}}}], \
                 ports: [{port: 5555, protocol: TCP}]}], \
                 egress: [{to: [{podSelector: {matchLabels: {no: such}}}], \
                 ports: [{port: 5555, protocol: TCP}]}]",
            )
            .expects(&["- *>s", "- s>*"]),
        Case::new("an empty selector of pods is those of the own namespace")
            .policy(&from("{podSelector: {}}"))
            .expects(&["- *>s", "+ abc>s"]),
        Case::new("a selector of pods is for the own namespace")
            .policy(&from("{podSelector: {matchLabels: {role: foe}}}"))
            .expects(&["- *>s", "+ b>s"]),
        Case::new("a policy selects pods of its namespace only")
            .selecting("matchLabels: {role: foe}", "policyTypes: [Ingress, Egress]")
            .among("sabdeg")
            .expects(&["- *>b", "- b>*"]),
        Case::new("selectors in each other both hold")
            .policy(&from(
                "{namespaceSelector: {matchLabels: {env: staging}}, \
                 podSelector: {matchLabels: {role: friend}}}",
            ))
            .expects(&["- *>s", "+ d>s"]),
        Case::new("selectors next to each other each allow")
            .policy(&from(
                "{namespaceSelector: {matchLabels: {env: staging}}}, \
                 {podSelector: {matchLabels: {role: friend}}}",
            ))
            .expects(&["- *>s", "+ acde>s"]),
        Case::new("pods of all namespaces by their label")
            .policy(&from(
                "{namespaceSelector: {}, podSelector: {matchLabels: {role: foe}}}",
            ))
            .expects(&["- *>s", "+ beg>s"]),
    ]
}

fn expressions() -> Vec<Case> {
    let all = |expression: &str| {
        from(&format!(
            "{{namespaceSelector: {{}}, podSelector: {{matchExpressions: [{expression}]}}}}"
        ))
    };
    vec![
        Case::new("a label has one of some values")
            .policy(&all(
                "{key: tier, operator: In, values: [frontend, external]}",
            ))
            .expects(&["- *>s", "+ adg>s"]),
        Case::new("a label has none of some values, or is not there")
            .policy(&all(
                "{key: tier, operator: NotIn, values: [frontend, database]}",
            ))
            .expects(&["- *>s", "+ cdef>s"]),
        Case::new("a label is there")
            .policy(&all("{key: tier, operator: Exists}"))
            .expects(&["- *>s", "+ abcdg>s"]),
        Case::new("a label is not there")
            .policy(&all("{key: tier, operator: DoesNotExist}"))
            .expects(&["- *>s", "+ ef>s"]),
        Case::new("all conditions of a selector hold")
            .policy(&all(
                "{key: tier, operator: Exists}, {key: role, operator: NotIn, values: [friend]}",
            ))
            .expects(&["- *>s", "+ bg>s"]),
        Case::new("a policy selects pods by an expression")
            .selecting(
                "matchExpressions: [{key: name, operator: NotIn, values: [b, c]}]",
                &from("{podSelector: {matchLabels: {name: b}}}"),
            )
            .among("sabcd")
            .expects(&["- *>sa", "+ b>sa"]),
    ]
}

/// Three policies with peers of both kinds.
fn mixed() -> Case {
    let port = "ports: [{port: 5555, protocol: TCP}]";
    let both = "{namespaceSelector: {matchLabels: {env: staging}}, \
                podSelector: {matchLabels: {role: friend}}}";
    let either = "{podSelector: {matchLabels: {role: friend}}}, \
                  {namespaceSelector: {matchLabels: {env: staging}}}";
    Case::new("selectors next to each other and in each other")
        .namespace("green", "env: staging")
        .policy(&format!(
            "policyTypes: [Ingress], ingress: [{{from: [{both}], {port}}}]"
        ))
        .policy(&format!(
            "policyTypes: [Ingress], ingress: [{{from: [{either}], {port}}}]"
        ))
        .policy(&format!(
            "policyTypes: [Egress], egress: [{{to: [{both}], {port}}}]"
        ))
        .expects(&["- *>s", "+ acdefg>s tcp 5555", "- s>*", "+ s>d tcp 5555"])
}

/// Tiers of an application, each with its policy.
fn tiers() -> Case {
    let tier = |name: &str| format!("{{podSelector: {{matchLabels: {{tier: {name}}}}}}}");
    let web = "ports: [{port: 80, protocol: TCP}, {port: 443, protocol: TCP}]";
    let select = |name: &str| format!("matchLabels: {{tier: {name}}}");
    Case::new("a frontend, a backend, a database and monitoring")
        .selecting(
            &select("frontend"),
            &format!(
                "policyTypes: [Ingress, Egress], \
                 ingress: [{{from: [{{namespaceSelector: {{matchLabels: {{env: production}}}}}}], {web}}}], \
                 egress: [{{to: [{}], {web}}}]",
                tier("backend")
            ),
        )
        .selecting(
            &select("backend"),
            &format!(
                "policyTypes: [Ingress, Egress], ingress: [{{from: [{}], {web}}}, \
                 {{from: [{}], ports: [{{port: 8080, protocol: TCP}}]}}], \
                 egress: [{{to: [{}], ports: [{{port: 3306, protocol: TCP}}]}}]",
                tier("frontend"),
                tier("monitoring"),
                tier("database")
            ),
        )
        .selecting(
            &select("database"),
            &format!(
                "policyTypes: [Ingress], \
                 ingress: [{{from: [{}], ports: [{{port: 3306, protocol: TCP}}]}}]",
                tier("backend")
            ),
        )
        .selecting(
            &select("monitoring"),
            &format!(
                "policyTypes: [Egress], \
                 egress: [{{to: [{}], ports: [{{port: 8080, protocol: TCP}}]}}]",
                tier("backend")
            ),
        )
        .ports(&[22, 80, 443, 3306, 8080])
        .among("sabcd")
        .expects(&[
            // The frontend `a` is asked by its namespace, and asks the backend `s`.
            "- *>a",
            "+ b>a tcp 80 443",
            "- a>*",
            "- *>s",
            "+ a>s tcp 80 443",
            "+ c>s tcp 8080",
            "- s>*",
            "- *>b",
            "+ s>b tcp 3306",
            "- c>*",
            "+ c>s tcp 8080",
            // Nobody selects `c` for ingress: only those that are not isolated for egress ask it.
            "+ bd>c",
        ])
}
