//! Policies of one network among several, and the ways to name networks.

use super::super::case::object;
use super::Case;

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    [which(), names(), kinds()].concat()
}

/// Metadata of a policy of `red` for these definitions.
fn for_these(definitions: &str) -> String {
    format!(
        "name: p, namespace: red, annotations: {{k8s.v1.cni.cncf.io/policy-for: '{definitions}'}}"
    )
}

const S: &str = "podSelector: {matchLabels: {name: s}}";
const FROM_A: &str = "ingress: [{from: [{podSelector: {matchLabels: {name: a}}}]}]";
/// All ports that are asked of cases here: one pod has one on each network.
const PODS: &str = "sadSAD";

fn one(name: &str, metadata: &str, spec: &str, answers: &[&'static str]) -> Case {
    Case::new(name)
        .object(object("v1beta1", metadata, &format!("{S}, {spec}")))
        .among(PODS)
        .expects(answers)
}

fn which() -> Vec<Case> {
    let block = "{ipBlock: {cidr: '$A4/32'}}, {ipBlock: {cidr: '$A6/128'}}";
    let block = format!("ingress: [{{from: [{block}]}}]");
    let both = "policyTypes: [Ingress, Egress]";
    vec![
        one(
            "a policy of one network is none of the other",
            &for_these("default/lan"),
            both,
            &["- *>s", "- s>*"],
        ),
        one(
            "a policy of the other network is none of the first",
            &for_these("default/wan"),
            both,
            &["- *>S", "- S>*"],
        ),
        one(
            "a policy for both networks knows pods by their addresses on each",
            &for_these("default/lan, default/wan"),
            FROM_A,
            &["- *>s", "+ a>s", "- *>S", "+ A>S"],
        ),
        one(
            "a block of the other network's addresses allows nobody",
            &for_these("default/lan"),
            &block,
            &["- *>s"],
        ),
        one(
            "a block of addresses of one network allows nobody on the other",
            &for_these("default/lan,default/wan"),
            &block,
            &["- *>s", "- *>S", "+ A>S"],
        ),
        Case::new("each network has its own policy of one pod")
            .object(object(
                "v1beta1",
                "name: lan, namespace: red, annotations: {k8s.v1.cni.cncf.io/policy-for: default/lan}",
                &format!("{S}, {FROM_A}"),
            ))
            .object(object(
                "v1beta1",
                "name: wan, namespace: red, annotations: {k8s.v1.cni.cncf.io/policy-for: default/wan}",
                &format!("{S}, policyTypes: [Egress], egress: [{{to: [{{namespaceSelector: {{matchLabels: {{env: staging}}}}}}]}}]"),
            ))
            .among(PODS)
            .expects(&["- *>s", "+ a>s", "- S>*", "+ S>D"]),
        Case::new("policies of namespaces with a definition each, of one network")
            .object(object(
                "v1beta1",
                &for_these("red/own,blue/own,green/own"),
                &format!(
                    "{S}, policyTypes: [Ingress, Egress], \
                     ingress: [{{from: [{{podSelector: {{matchLabels: {{name: d}}}}, \
                     namespaceSelector: {{matchLabels: {{env: staging}}}}}}]}}], \
                     egress: [{{to: [{{podSelector: {{matchLabels: {{name: e}}}}, \
                     namespaceSelector: {{matchLabels: {{env: staging}}}}}}]}}]"
                ),
            ))
            .among("sadefg")
            .expects(&["- *>s", "+ d>s", "- s>*", "+ s>e"]),
    ]
}

fn names() -> Vec<Case> {
    let closed: &[&str] = &["- *>s", "+ a>s"];
    vec![
        one(
            "a definition without a namespace is one of the policy's",
            &for_these("own"),
            FROM_A,
            closed,
        ),
        one(
            "a definition that there is not is no network, and another one is",
            &for_these("own,default/nowhere,lan"),
            FROM_A,
            closed,
        ),
        one(
            "a definition of another plugin is no network of podnet",
            &for_these("default/bridge"),
            FROM_A,
            &[],
        ),
        one(
            "a list has spaces, and a definition twice",
            &for_these(" default/lan , own,, default/lan "),
            FROM_A,
            closed,
        ),
        one(
            "a policy that names no network is for none",
            "name: p, namespace: red",
            FROM_A,
            &[],
        ),
        one(
            "a policy names networks of podnet",
            "name: p, namespace: red, annotations: {podnet.dev/networks: 'wan'}",
            FROM_A,
            &["- *>S", "+ A>S"],
        ),
        one(
            "networks of podnet count before definitions",
            "name: p, namespace: red, annotations: {podnet.dev/networks: wan, k8s.v1.cni.cncf.io/policy-for: own}",
            FROM_A,
            &["- *>S", "+ A>S"],
        ),
    ]
}

fn kinds() -> Vec<Case> {
    vec![
        Case::new("the second version of the kind is read as the first")
            .object(object(
                "v1beta2",
                &for_these("default/lan"),
                &format!("{S}, {FROM_A}"),
            ))
            .among(PODS)
            .expects(&["- *>s", "+ a>s"]),
        Case::new("policies of both kinds add up")
            .object(object(
                "v1beta2",
                &for_these("default/lan"),
                &format!("{S}, {FROM_A}"),
            ))
            .object(format!(
                "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
                 metadata: {{name: p, namespace: red, annotations: {{podnet.dev/networks: lan}}}}\n\
                 spec: {{{S}, ingress: [{{from: [{{podSelector: {{matchLabels: {{name: b}}}}}}]}}]}}\n"
            ))
            .expects(&["- *>s", "+ ab>s"]),
        Case::new("policies of one name are of two namespaces")
            .object(object(
                "v1beta1",
                &for_these("default/lan"),
                &format!("{S}, {FROM_A}"),
            ))
            .object(object(
                "v1beta1",
                "name: p, namespace: blue, annotations: {k8s.v1.cni.cncf.io/policy-for: own}",
                "podSelector: {matchLabels: {name: d}}, policyTypes: [Egress]",
            ))
            .among("sadef")
            .expects(&["- *>s", "+ a>s", "- d>*"]),
        Case::new("a policy of a namespace without pods selects none")
            .object(object(
                "v1beta1",
                "name: p, namespace: empty, annotations: {k8s.v1.cni.cncf.io/policy-for: default/lan}",
                "podSelector: {}, policyTypes: [Ingress, Egress]",
            ))
            .expects(&[]),
        // As the rules that an administrator of those suites gives each pod.
        Case::new("a policy of the cluster opens a port to all, before another one")
            .object(
                "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\n\
                 metadata: {name: custom, annotations: {podnet.dev/networks: lan}}\n\
                 spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, \
                 ingress: [{name: open, action: Accept, from: [{namespaces: {}}], \
                 protocols: [{tcp: {destinationPort: {number: 9999}}}]}]}\n",
            )
            .policy(
                "policyTypes: [Ingress], \
                 ingress: [{from: [{podSelector: {matchLabels: {role: friend}}}], \
                 ports: [{port: 8080, protocol: TCP}]}]",
            )
            .ports(&[80, 8080, 9999])
            .among("sabd")
            .expects(&["- *>s", "+ a>s tcp 8080", "+ *>s tcp 9999"]),
    ]
}
