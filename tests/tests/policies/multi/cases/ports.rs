//! Ports, ranges of them, and protocols.

use super::Case;

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    [ranges(), protocols(), lists()].concat()
}

/// Allows these ports to all, a list of YAML without brackets.
fn open(ports: &str) -> String {
    format!("policyTypes: [Ingress], ingress: [{{ports: [{ports}]}}]")
}

fn ranges() -> Vec<Case> {
    vec![
        Case::new("ranges of ports for what a pod receives and sends")
            .policy(
                "policyTypes: [Egress, Ingress], \
                 egress: [{ports: [{port: 5000, endPort: 5900}]}], \
                 ingress: [{ports: [{port: 6000, endPort: 6900}]}]",
            )
            .ports(&[4999, 5000, 5555, 5900, 5901, 5999, 6000, 6666, 6900, 6901])
            .among("sad")
            .expects(&[
                "- *>s",
                "+ *>s tcp 6000 6666 6900",
                "- s>*",
                "+ s>* tcp 5000 5555 5900",
            ]),
        Case::new("a range of one port")
            .policy(&open("{protocol: UDP, port: 80, endPort: 80}"))
            .ports(&[79, 80, 81])
            .among("sad")
            .expects(&["- *>s", "+ *>s udp 80"]),
        Case::new("a range of all ports is no ICMP")
            .policy(&open(
                "{protocol: UDP, port: 1, endPort: 65535}, {protocol: TCP, port: 1, endPort: 65535}",
            ))
            .ports(&[22, 5555, 65535])
            .among("sad")
            .expects(&["- *>s icmp"]),
        Case::new("ranges that overlap, and a port in one of them")
            .policy(&open(
                "{port: 5000, endPort: 5900}, {port: 5555, endPort: 6000}, {port: 5600}",
            ))
            .ports(&[4999, 5000, 5600, 5900, 6000, 6001])
            .among("sad")
            .expects(&["- *>s", "+ *>s tcp 5000 5600 5900 6000"]),
    ]
}

fn protocols() -> Vec<Case> {
    vec![
        Case::new("a protocol without a port")
            .policy(
                "policyTypes: [Egress, Ingress], egress: [{ports: [{protocol: TCP}]}], \
                 ingress: [{ports: [{protocol: UDP}]}]",
            )
            .expects(&["- *>s", "+ *>s udp", "- s>*", "+ s>* tcp"]),
        Case::new("a port without a protocol is of TCP")
            .policy(&open("{port: 80}"))
            .expects(&["- *>s", "+ *>s tcp 80"]),
        Case::new("an empty item of ports is all of TCP")
            .policy(&open("{}"))
            .expects(&["- *>s", "+ *>s tcp"]),
        Case::new("a port of UDP is none of TCP")
            .policy(&open("{protocol: UDP, port: 80}"))
            .expects(&["- *>s", "+ *>s udp 80"]),
        Case::new("a port of SCTP is none of TCP and UDP")
            .policy(&open("{protocol: SCTP, port: 80}, {protocol: SCTP}"))
            .expects(&["- *>s"]),
        Case::new("a rule without ports allows ICMP, and one with ports does not")
            .policy(
                "policyTypes: [Ingress], \
                 ingress: [{from: [{podSelector: {matchLabels: {name: a}}}]}, \
                 {ports: [{protocol: TCP}, {protocol: UDP}]}]",
            )
            .expects(&["- *>s icmp", "+ a>s"]),
    ]
}

fn lists() -> Vec<Case> {
    vec![
        Case::new("several ports of both protocols for friends")
            .policy(
                "policyTypes: [Ingress], \
                 ingress: [{from: [{podSelector: {matchLabels: {role: friend}}}], \
                 ports: [{port: 80, protocol: TCP}, {port: 443, protocol: TCP}, \
                 {port: 22, protocol: TCP}, {port: 53, protocol: UDP}]}]",
            )
            .policy(
                "policyTypes: [Egress], \
                 egress: [{to: [{podSelector: {matchLabels: {role: friend}}}], \
                 ports: [{port: 80, protocol: TCP}]}]",
            )
            .ports(&[22, 53, 80, 443, 8080])
            .among("sabc")
            .expects(&[
                "- *>s",
                "+ ac>s tcp 22 80 443",
                "+ ac>s udp 53",
                "- s>*",
                "+ s>ac tcp 80",
            ]),
        Case::new("each rule has its own peers and ports")
            .policy(
                "policyTypes: [Ingress], \
                 ingress: [{from: [{podSelector: {matchLabels: {name: a}}}], ports: [{port: 80}]}, \
                 {from: [{podSelector: {matchLabels: {name: b}}}], ports: [{port: 5555}]}, \
                 {from: [{podSelector: {matchLabels: {name: c}}}], ports: [{protocol: UDP}]}]",
            )
            .expects(&["- *>s", "+ a>s tcp 80", "+ b>s tcp 5555", "+ c>s udp"]),
        Case::new("ports of one policy are not those of another one's peers")
            .policy(
                "policyTypes: [Ingress], \
                 ingress: [{from: [{podSelector: {matchLabels: {name: a}}}], ports: [{port: 80}]}]",
            )
            .policy("policyTypes: [Ingress], ingress: [{ports: [{port: 5555}]}]")
            .expects(&["- *>s", "+ a>s tcp 80", "+ *>s tcp 5555"]),
        Case::new("the port is that of the receiver, on both sides")
            .policy(
                "policyTypes: [Ingress, Egress], ingress: [{ports: [{port: 80}]}], \
                 egress: [{ports: [{protocol: UDP, port: 5555}]}]",
            )
            .selecting(
                "matchLabels: {name: a}",
                "policyTypes: [Egress], egress: [{ports: [{port: 80}, {protocol: UDP, port: 80}]}]",
            )
            .expects(&[
                "- *>s",
                "+ *>s tcp 80",
                "- s>*",
                "+ s>* udp 5555",
                "- a>*",
                "+ a>* tcp 80",
                "+ a>* udp 80",
                "- a>s udp",
            ]),
        // Without a cluster nobody knows names of ports.
        Case::new("a named port that no pod has allows nothing, and its neighbour does")
            .policy(
                "ingress: [{ports: [{port: http}, {protocol: UDP, port: 80}]}], \
                 egress: [{ports: [{protocol: UDP, port: http}, {port: 80}]}]",
            )
            .expects(&["- *>s", "+ *>s udp 80", "- s>*", "+ s>* tcp 80"]),
    ]
}
