//! Peers by blocks of addresses, of which those of pods are some.

use super::Case;

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    [lists(), exceptions(), families()].concat()
}

/// An item for both addresses of a pod.
fn of(pod: char) -> String {
    format!("{{ipBlock: {{cidr: '${pod}4/32'}}}}, {{ipBlock: {{cidr: '${pod}6/128'}}}}")
}

fn rule(list: &str) -> String {
    format!("{{from: [{list}]}}")
}

fn ingress(rules: &str) -> String {
    format!("policyTypes: [Ingress], ingress: [{rules}]")
}

fn lists() -> Vec<Case> {
    let both = format!("{}, {}", of('a'), of('b'));
    vec![
        Case::new("blocks in one rule")
            .policy(&ingress(&rule(&both)))
            .expects(&["- *>s", "+ ab>s"]),
        Case::new("blocks in two rules")
            .policy(&ingress(&format!("{}, {}", rule(&of('a')), rule(&of('d')))))
            .expects(&["- *>s", "+ ad>s"]),
        Case::new("blocks of two policies")
            .policy(&ingress(&rule(&of('a'))))
            .policy(&ingress(&rule(&of('f'))))
            .expects(&["- *>s", "+ af>s"]),
        Case::new("blocks for what a pod sends")
            .policy(&format!(
                "policyTypes: [Egress], egress: [{{to: [{both}]}}]"
            ))
            .expects(&["- s>*", "+ s>ab"]),
        Case::new("a block and a selector in one rule")
            .policy(&ingress(&rule(&format!(
                "{}, {{podSelector: {{matchLabels: {{name: b}}}}}}",
                of('e')
            ))))
            .expects(&["- *>s", "+ be>s"]),
        Case::new("a block with ports")
            .policy(&ingress(&format!(
                "{{from: [{}], ports: [{{protocol: UDP, port: 80}}]}}",
                of('c')
            )))
            .expects(&["- *>s", "+ c>s udp 80"]),
    ]
}

fn exceptions() -> Vec<Case> {
    let all_but = |pods: &[char]| {
        let list = |family: char, length: u8| {
            let each = pods.iter().map(|pod| format!("'${pod}{family}/{length}'"));
            each.collect::<Vec<_>>().join(", ")
        };
        format!(
            "{{ipBlock: {{cidr: '$net4', except: [{}]}}}}, \
             {{ipBlock: {{cidr: '$net6', except: [{}]}}}}",
            list('4', 32),
            list('6', 128)
        )
    };
    let but_c_and_e = all_but(&['c', 'e']);
    vec![
        Case::new("a block with exceptions for what a pod receives and sends")
            .policy(&ingress(&rule(&but_c_and_e)))
            .policy(&format!(
                "policyTypes: [Egress], egress: [{{to: [{but_c_and_e}]}}]"
            ))
            .expects(&["- ce>s", "- s>ce"]),
        Case::new("an exception denies nothing that another item allows")
            .policy(&ingress(&rule(&format!(
                "{but_c_and_e}, {{podSelector: {{matchLabels: {{name: c}}}}}}"
            ))))
            .expects(&["- e>s"]),
        Case::new("an exception denies nothing that another policy allows")
            .policy(&ingress(&rule(&but_c_and_e)))
            .policy(&ingress(&rule(&of('e'))))
            .expects(&["- c>s"]),
        Case::new("an exception of all of a block leaves nothing")
            .policy(&ingress(&rule(
                "{ipBlock: {cidr: '$net4', except: ['$net4']}}, \
                 {ipBlock: {cidr: '$net6', except: ['$net6']}}",
            )))
            .expects(&["- *>s"]),
    ]
}

fn families() -> Vec<Case> {
    vec![
        Case::new("a block of IPv4 allows nothing of IPv6")
            .policy(&ingress(&rule("{ipBlock: {cidr: 0.0.0.0/0}}")))
            .expects(&["- *>s", "+ *>s v4"]),
        Case::new("a block of IPv6 allows nothing of IPv4")
            .policy("policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: '::/0'}}]}]")
            .expects(&["- s>*", "+ s>* v6"]),
        Case::new("blocks of all addresses allow all pods")
            .policy(
                "policyTypes: [Ingress, Egress], \
                 ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}}, {ipBlock: {cidr: '::/0'}}]}]",
            )
            .expects(&["- s>*"]),
        Case::new("bits of an address behind the prefix of a block do not count")
            .policy(&ingress(&rule(
                "{ipBlock: {cidr: '$a4/24'}}, {ipBlock: {cidr: '$a6/128'}}",
            )))
            .expects(&["- *>s", "+ *>s v4", "+ a>s v6"]),
        Case::new("a block of addresses that no pod has isolates")
            .policy(
                "ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24}}]}], \
                 egress: [{to: [{ipBlock: {cidr: '2001:db8::/32'}}]}]",
            )
            .expects(&["- *>s", "- s>*"]),
    ]
}
