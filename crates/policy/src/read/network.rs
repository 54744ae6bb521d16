//! Read NetworkPolicy and MultiNetworkPolicy, whose specs are the same.

use serde::Deserialize;
use serde_json::Value;

use super::ports::PortSpec;
use super::{Problem, Problems, Read, net, parse};
use crate::labels::{Selector, SelectorSpec};
use crate::model::{Action, Block, Kind, Namespaces, Peer, Pods, Policy, PolicyId, Rule, Tier};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    pod_selector: SelectorSpec,
    policy_types: Option<Vec<String>>,
    ingress: Option<Vec<RuleSpec>>,
    egress: Option<Vec<RuleSpec>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RuleSpec {
    #[serde(alias = "from", alias = "to")]
    peers: Option<Vec<PeerSpec>>,
    ports: Option<Vec<PortSpec>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PeerSpec {
    pod_selector: Option<SelectorSpec>,
    namespace_selector: Option<SelectorSpec>,
    ip_block: Option<BlockSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BlockSpec {
    cidr: String,
    except: Option<Vec<String>>,
}

/// Reads the `spec` of a NetworkPolicy or a MultiNetworkPolicy.
///
/// Whatever is wrong in it allows nothing. One whose pods cannot be told isolates all pods of its namespace.
///
/// # Errors
/// A field has a value of another type, so that nothing is known of the policy.
pub fn read(kind: Kind, namespace: &str, name: &str, spec: &Value) -> Result<Read, Problem> {
    let spec: Spec = parse(spec)?;
    let mut problems = Problems::default();
    let selector = problems.selector("spec.podSelector", &spec.pod_selector);
    let is_told = selector.is_some();
    let (isolates_ingress, isolates_egress) = match is_told {
        true => types(&spec, &mut problems),
        false => (true, true),
    };
    let mut rules = |side: &str, list: &Option<Vec<RuleSpec>>| -> Vec<Rule> {
        let rules = list.iter().flatten().enumerate();
        rules
            .map(|(index, rule)| {
                let field = format!("spec.{side}[{index}]");
                rule.read(namespace, (side, &field), &mut problems)
            })
            .collect()
    };
    let (ingress, egress) = (
        rules("ingress", &spec.ingress),
        rules("egress", &spec.egress),
    );
    // A-NP-07: rules of a direction that the policy is not for do nothing.
    let kept = |isolates: bool, rules: Vec<Rule>| match isolates && is_told {
        true => rules,
        false => Vec::new(),
    };
    Ok(Read {
        policy: Policy {
            id: PolicyId {
                kind,
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            },
            tier: Tier::Network,
            priority: 0,
            subject: Pods {
                namespaces: Namespaces::Named(namespace.to_owned()),
                pods: selector.unwrap_or_default(),
            },
            isolates_ingress,
            isolates_egress,
            ingress: kept(isolates_ingress, ingress),
            egress: kept(isolates_egress, egress),
        },
        problems: problems.0,
    })
}

/// The directions of a policy (A-NP-06): those of `policyTypes`, else by its rules.
fn types(spec: &Spec, problems: &mut Problems) -> (bool, bool) {
    let types = spec.policy_types.as_deref().unwrap_or_default();
    if types.is_empty() {
        return (
            true,
            spec.egress.as_ref().is_some_and(|rules| !rules.is_empty()),
        );
    }
    let (mut ingress, mut egress) = (false, false);
    for (index, one) in types.iter().enumerate() {
        match one.as_str() {
            "Ingress" => ingress = true,
            "Egress" => egress = true,
            other => {
                problems.add(
                    format!("spec.policyTypes[{index}]"),
                    format!("there is no type `{other}`: write Ingress or Egress; the policy is taken for both"),
                );
                (ingress, egress) = (true, true);
            }
        }
    }
    (ingress, egress)
}

impl RuleSpec {
    fn read(&self, namespace: &str, (side, field): (&str, &str), problems: &mut Problems) -> Rule {
        let list = if side == "ingress" { "from" } else { "to" };
        // A-NP-12: an empty list is any peer, and any traffic.
        let peers = self.peers.as_ref().filter(|peers| !peers.is_empty());
        let peers = peers.map(|peers| {
            let peers = peers.iter().enumerate();
            let read = peers.filter_map(|(index, peer)| {
                peer.read(namespace, &format!("{field}.{list}[{index}]"), problems)
            });
            read.collect()
        });
        let ports = self.ports.as_ref().filter(|ports| !ports.is_empty());
        let ports = ports.map(|ports| {
            let ports = ports.iter().enumerate();
            let read = ports.filter_map(|(index, port)| {
                port.read(&format!("{field}.ports[{index}]"), problems)
            });
            read.collect()
        });
        Rule {
            action: Action::Accept,
            peers,
            ports,
        }
    }
}

impl PeerSpec {
    /// Reads a peer; a wrong one is a problem, and nobody (A-NP-13, -14, -30).
    fn read(&self, namespace: &str, field: &str, problems: &mut Problems) -> Option<Peer> {
        let selects = self.pod_selector.is_some() || self.namespace_selector.is_some();
        match &self.ip_block {
            Some(_) if selects => {
                problems.add(
                    field,
                    "the peer has an ipBlock and selectors: write two items; this one allows nothing",
                );
                None
            }
            Some(block) => block
                .read()
                .map_err(|text| {
                    problems.add(
                        format!("{field}.ipBlock"),
                        format!("{text}; the peer allows nothing"),
                    );
                })
                .ok()
                .map(Peer::Block),
            None if !selects => {
                problems.add(
                    field,
                    "the peer has no podSelector, namespaceSelector or ipBlock: write one; it allows nothing",
                );
                None
            }
            None => {
                let of = |spec: &Option<SelectorSpec>, name: &str, problems: &mut Problems| {
                    spec.as_ref().map_or(Some(None), |spec| {
                        let field = format!("{field}.{name}");
                        problems.selector(&field, spec).map(Some)
                    })
                };
                let pods = of(&self.pod_selector, "podSelector", problems);
                let namespaces = of(&self.namespace_selector, "namespaceSelector", problems);
                let (pods, namespaces) = pods.zip(namespaces)?;
                let own = || Namespaces::Named(namespace.to_owned());
                Some(Peer::Pods(Pods {
                    namespaces: namespaces.map_or_else(own, Namespaces::Matching),
                    pods: pods.unwrap_or_else(Selector::default),
                }))
            }
        }
    }
}

impl BlockSpec {
    fn read(&self) -> Result<Block, String> {
        let cidr = net(&self.cidr)?;
        let except = self.except.iter().flatten();
        let except = except
            .map(|text| {
                let except = net(text)?;
                match cidr.contains(&except) {
                    true => Ok(except),
                    false => Err(format!(
                        "the exception {except} is no part of {cidr}: write one that is"
                    )),
                }
            })
            .collect::<Result<Vec<_>, String>>()?;
        Ok(Block { cidr, except })
    }
}
