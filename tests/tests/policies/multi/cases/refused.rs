//! Parts that an API server refuses of a NetworkPolicy.
//!
//! They isolate, and allow nothing. The definition of MultiNetworkPolicy does not have it refuse most of them.

use super::Case;

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    [ports(), peers(), specs()].concat()
}

/// Wrong items of `ports`, each next to a right one.
fn ports() -> Vec<Case> {
    let items = [
        ("port 0", "{port: 0}"),
        ("a port above 65535", "{port: 65616}"),
        ("a negative port", "{port: -80}"),
        (
            "a range that ends before it begins",
            "{port: 5556, endPort: 80}",
        ),
        ("a range that ends above 65535", "{port: 1, endPort: 65536}"),
        ("a range without a beginning", "{endPort: 5555}"),
        (
            "a range that begins with a name",
            "{port: http, endPort: 65535}",
        ),
        ("a port in quotes", "{port: '5555'}"),
        ("a protocol that has no ports", "{protocol: ICMP}"),
        ("a protocol in small letters", "{protocol: udp}"),
    ];
    let case = |(name, item): (&str, &str)| {
        Case::new(format!("{name} allows nothing, and its neighbour does"))
            .policy(&format!(
                "policyTypes: [Ingress], ingress: [{{ports: [{item}, {{port: 80}}]}}]"
            ))
            .among("sad")
            .expects(&["- *>s", "+ *>s tcp 80"])
    };
    items.into_iter().map(case).collect()
}

/// Wrong items of `from` and `to`, each next to a right one.
fn peers() -> Vec<Case> {
    let items = [
        ("an empty peer", "{}"),
        ("a block that is none", "{ipBlock: {cidr: everything}}"),
        ("a block without a prefix", "{ipBlock: {cidr: '$d4'}}"),
        (
            "an exception with too long a prefix",
            "{ipBlock: {cidr: '$net4', except: ['$d4/33']}}",
        ),
        (
            "an exception outside of its block",
            "{ipBlock: {cidr: '$net4', except: [192.0.2.0/24]}}",
        ),
        (
            "an exception of the other family",
            "{ipBlock: {cidr: 0.0.0.0/0, except: ['::/0']}}",
        ),
        (
            "a block next to a selector",
            "{ipBlock: {cidr: '$d4/32'}, namespaceSelector: {}}",
        ),
        (
            "a selector with an operator that is none",
            "{namespaceSelector: {}, podSelector: {matchExpressions: [{key: name, operator: Is, values: [d]}]}}",
        ),
        (
            "a selector without values",
            "{namespaceSelector: {}, podSelector: {matchExpressions: [{key: name, operator: In, values: []}]}}",
        ),
        (
            "a selector of what is there with values",
            "{namespaceSelector: {matchExpressions: [{key: env, operator: Exists, values: [staging]}]}}",
        ),
    ];
    let a = "{podSelector: {matchLabels: {name: a}}}";
    let case = |(name, item): (&str, &str)| {
        Case::new(format!(
            "{name} allows nobody, and its neighbour is allowed"
        ))
        .policy(&format!(
            "ingress: [{{from: [{item}, {a}]}}], egress: [{{to: [{item}, {a}]}}]"
        ))
        .among("sad")
        .expects(&["- *>s", "+ a>s", "- s>*", "+ s>a"])
    };
    items.into_iter().map(case).collect()
}

fn specs() -> Vec<Case> {
    vec![
        Case::new("rules with nothing but wrong parts isolate")
            .policy("ingress: [{from: [{}]}], egress: [{ports: [{port: 0}]}]")
            .among("sad")
            .expects(&["- *>s", "- s>*"]),
        Case::new("a type of policies that there is not isolates both")
            .policy("policyTypes: [Ingres], ingress: [{ports: [{port: 80}]}]")
            .among("sad")
            .expects(&["- *>s", "+ *>s tcp 80", "- s>*"]),
        Case::new("a policy whose pods cannot be told isolates its namespace")
            .selecting(
                "matchExpressions: [{key: name, operator: Is, values: [s]}]",
                "policyTypes: [Ingress], ingress: [{}]",
            )
            .among("sadf")
            .expects(&["- *>sa", "- sa>*"]),
        Case::new("a policy with a rule where a list belongs isolates its namespace")
            .policy("policyTypes: [Ingress], ingress: {from: []}")
            .among("sadf")
            .expects(&["- *>sa", "- sa>*"]),
        Case::new("a policy without a selector of pods is for its namespace")
            .object(super::super::case::object(
                "v1beta1",
                "name: p, namespace: red, annotations: {k8s.v1.cni.cncf.io/policy-for: default/lan}",
                "policyTypes: [Ingress], ingress: [{ports: [{port: 80}]}]",
            ))
            .among("sadf")
            .expects(&["- *>sa", "+ *>sa tcp 80"]),
        Case::new("a wrong policy takes nothing from another one")
            .policy("policyTypes: [Ingress], ingress: [{from: [{}]}]")
            .policy(
                "policyTypes: [Ingress], \
                 ingress: [{from: [{podSelector: {matchLabels: {name: a}}}]}]",
            )
            .among("sad")
            .expects(&["- *>s", "+ a>s"]),
    ]
}
