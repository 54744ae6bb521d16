//! Networks, definitions of them, and configurations for ports.

use std::fmt::Write as _;

use serde_json::{Value, json};
use testbed::manifest::attachment;
use testbed::{Network, Node, Setup};

/// Where the policies of a step are.
pub(super) const FILE: &str = "policies.yaml";
/// Namespaces that have a definition `own` of the network `lan`.
pub(super) const OWN: [&str; 3] = ["red", "blue", "green"];

/// Kinds of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A device of the kernel.
    Veth,
    /// Rings of a program.
    Memif,
    /// Sockets of a program.
    AfXdp,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Veth => "Veth",
            Self::Memif => "Memif",
            Self::AfXdp => "AFXDP",
        }
    }
}

/// Definitions of networks, and attachments with ports of each kind.
///
/// They are there before all policies, and stay.
pub(super) fn definitions() -> String {
    let mut text = String::new();
    let mut define = |namespace: &str, name: &str, config: &Value| {
        let _ = write!(
            text,
            "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\n\
             metadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  config: '{config}'\n---\n"
        );
    };
    let ours = |network: &str| json!({"cniVersion": "1.0.0", "name": "any", "type": "podnet", "podNetwork": network});
    define("default", "wan", &ours("wan"));
    define(
        "default",
        "bridge",
        &json!({"cniVersion": "1.0.0", "name": "lan", "type": "bridge"}),
    );
    for namespace in OWN {
        define(namespace, "own", &ours("lan"));
    }
    for namespace in ["default", "red"] {
        // The network has the name of the definition.
        let _ = write!(
            text,
            "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\n\
             metadata: {{name: lan, namespace: {namespace}}}\nspec: {{}}\n---\n"
        );
    }
    for kind in [Kind::Memif, Kind::AfXdp] {
        let kind = kind.as_str();
        let spec = format!("{{interface: {{type: {kind}}}}}");
        text.push_str(&attachment(&kind.to_lowercase(), "lan", &spec));
        text.push_str("---\n");
    }
    text
}

/// A node with the networks `lan` and `wan`, of this mode.
pub(super) fn setup(mode: &'static str) -> Setup {
    let network = |name: &str, subnets: [&str; 2]| Network::new(name, mode).subnets(&subnets);
    Setup::empty()
        .network(&network("lan", SUBNETS[0]))
        .network(&network("wan", SUBNETS[1]))
        .file("definitions.yaml", &definitions())
        .file(FILE, &fence(&[]))
}

/// The policy of the fences: which ports are open.
///
/// It is there before the first step, or nobody could tell when that is in force.
pub(super) fn fence(open: &[u16]) -> String {
    let ports = open
        .iter()
        .map(|number| format!("{{ports: [{{protocol: UDP, port: {number}}}]}}"));
    let rules: Vec<_> = ports.collect();
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
         metadata: {{name: fence, namespace: fence, annotations: {{podnet.dev/networks: 'lan,wan'}}}}\n\
         spec: {{podSelector: {{matchLabels: {{fence: q}}}}, ingress: [{}]}}\n",
        rules.join(", ")
    )
}

/// Subnets of `lan` and `wan`.
pub(super) const SUBNETS: [[&str; 2]; 2] =
    [["10.61.0.0/24", "fd61::/64"], ["10.63.0.0/24", "fd63::/64"]];

/// Configuration for a port of a kind, with labels as flow YAML without braces.
pub(super) fn conf(node: &Node, network: &str, kind: Kind, labels: &str) -> Value {
    let mut conf = match kind {
        Kind::Veth => node.conf(network),
        Kind::Memif | Kind::AfXdp => {
            // The attachments are in a namespace of their own.
            node.attachment_conf(
                network,
                &format!("default/{}", kind.as_str().to_lowercase()),
            )
        }
    };
    let labels = labels.split(", ").map(|label| {
        let (key, value) = label.split_once(": ").expect("a label");
        (key.to_owned(), Value::from(value))
    });
    conf["labels"] = Value::Object(labels.collect());
    conf
}
