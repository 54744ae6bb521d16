//! Read ClusterNetworkPolicy (`policy.networking.k8s.io/v1alpha2`).

use serde::Deserialize;
use serde_json::Value;

use super::ports::ProtocolSpec;
use super::{Problem, Problems, Read, net, parse};
use crate::labels::{Selector, SelectorSpec};
use crate::model::{Action, Block, Kind, Namespaces, Peer, Pods, Policy, PolicyId, Rule, Tier};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    tier: String,
    priority: u16,
    subject: Subject,
    ingress: Option<Vec<RuleSpec>>,
    egress: Option<Vec<RuleSpec>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Subject {
    namespaces: Option<SelectorSpec>,
    pods: Option<PodsSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodsSpec {
    namespace_selector: SelectorSpec,
    pod_selector: SelectorSpec,
}

#[derive(Debug, Deserialize)]
struct RuleSpec {
    action: String,
    #[serde(alias = "from", alias = "to", default)]
    peers: Vec<PeerSpec>,
    protocols: Option<Vec<ProtocolSpec>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PeerSpec {
    namespaces: Option<SelectorSpec>,
    pods: Option<PodsSpec>,
    nodes: Option<SelectorSpec>,
    networks: Option<Vec<String>>,
    domain_names: Option<Vec<String>>,
}

/// Reads the `spec` of a ClusterNetworkPolicy.
///
/// A rule with a part that is wrong or not known accepts less, or denies all (A-CNP-11).
///
/// # Errors
/// A field has a value of another type or is missing, or tier, priority or subject are none, so that
/// nothing is known of the policy.
pub fn read(name: &str, spec: &Value) -> Result<Read, Problem> {
    let spec: Spec = parse(spec)?;
    let fault = |field: &str, text: String| Problem {
        field: field.to_owned(),
        text,
    };
    let tier = match spec.tier.as_str() {
        "Admin" => Tier::Admin,
        "Baseline" => Tier::Baseline,
        other => {
            let text = format!("there is no tier `{other}`: write Admin or Baseline");
            return Err(fault("spec.tier", text));
        }
    };
    if spec.priority > 1000 {
        let text = format!("{} is no priority: write 0 to 1000", spec.priority);
        return Err(fault("spec.priority", text));
    }
    let subject = spec
        .subject
        .read()
        .map_err(|text| fault("spec.subject", text))?;
    let mut problems = Problems::default();
    let mut rules = |side: &str, list: &Option<Vec<RuleSpec>>| {
        let rules = list.iter().flatten().enumerate();
        rules
            .map(|(index, rule)| rule.read(&format!("spec.{side}[{index}]"), &mut problems))
            .collect()
    };
    let (ingress, egress) = (
        rules("ingress", &spec.ingress),
        rules("egress", &spec.egress),
    );
    Ok(Read {
        policy: Policy {
            id: PolicyId {
                kind: Kind::ClusterNetworkPolicy,
                namespace: String::new(),
                name: name.to_owned(),
            },
            tier,
            priority: spec.priority,
            subject,
            isolates_ingress: false,
            isolates_egress: false,
            ingress,
            egress,
        },
        problems: problems.0,
    })
}

impl Subject {
    fn read(&self) -> Result<Pods, String> {
        match (&self.namespaces, &self.pods) {
            (Some(namespaces), None) => all_of(namespaces),
            (None, Some(pods)) => pods.read(),
            _ => Err("the subject needs one of namespaces and pods".to_owned()),
        }
    }
}

impl PodsSpec {
    fn read(&self) -> Result<Pods, String> {
        Ok(Pods {
            namespaces: Namespaces::Matching(Selector::read(&self.namespace_selector)?),
            pods: Selector::read(&self.pod_selector)?,
        })
    }
}

/// All pods of some namespaces.
fn all_of(namespaces: &SelectorSpec) -> Result<Pods, String> {
    Ok(Pods {
        namespaces: Namespaces::Matching(Selector::read(namespaces)?),
        pods: Selector::default(),
    })
}

impl RuleSpec {
    fn read(&self, field: &str, problems: &mut Problems) -> Rule {
        let action = match self.action.as_str() {
            "Accept" => Action::Accept,
            "Deny" => Action::Deny,
            "Pass" => Action::Pass,
            other => {
                problems.add(
                    format!("{field}.action"),
                    format!("there is no action `{other}`: write Accept, Deny or Pass; the rule denies all"),
                );
                return DENY_ALL;
            }
        };
        let (mut peers, mut ports, mut is_whole) = (Vec::new(), Vec::new(), true);
        let mut wrong = |field: String, text: String| {
            is_whole = false;
            let meaning = match action {
                Action::Accept => "it accepts nothing",
                Action::Deny | Action::Pass => "the rule denies all",
            };
            problems.add(field, format!("{text}; {meaning}"));
        };
        if self.peers.is_empty() {
            wrong(
                field.to_owned(),
                "the rule has no peers: write from or to".to_owned(),
            );
        }
        for (index, peer) in self.peers.iter().enumerate() {
            match peer.read() {
                Ok(found) => peers.extend(found),
                Err(text) => wrong(format!("{field}.peers[{index}]"), text),
            }
        }
        for (index, protocol) in self.protocols.iter().flatten().enumerate() {
            match protocol.ports() {
                Ok(found) => ports.push(found),
                Err(text) => wrong(format!("{field}.protocols[{index}]"), text),
            }
        }
        if !is_whole && action != Action::Accept {
            return DENY_ALL;
        }
        let named = self.protocols.as_ref();
        Rule {
            action,
            peers: Some(peers),
            ports: named.filter(|it| !it.is_empty()).map(|_| ports),
        }
    }
}

const DENY_ALL: Rule = Rule {
    action: Action::Deny,
    peers: None,
    ports: None,
};

impl PeerSpec {
    fn read(&self) -> Result<Vec<Peer>, String> {
        let fields = [
            self.namespaces.is_some(),
            self.pods.is_some(),
            self.nodes.is_some(),
            self.networks.is_some(),
            self.domain_names.is_some(),
        ];
        if fields.into_iter().filter(|there| *there).count() > 1 {
            return Err("the peer has several fields: write an item for each".to_owned());
        }
        if let Some(namespaces) = &self.namespaces {
            return Ok(vec![Peer::Pods(all_of(namespaces)?)]);
        }
        if let Some(pods) = &self.pods {
            return Ok(vec![Peer::Pods(pods.read()?)]);
        }
        if let Some(nodes) = &self.nodes {
            return Ok(vec![Peer::Nodes(Selector::read(nodes)?)]);
        }
        if let Some(networks) = &self.networks {
            let block = |text: &String| {
                let except = Vec::new();
                net(text).map(|cidr| Peer::Block(Block { cidr, except }))
            };
            return networks.iter().map(block).collect();
        }
        match &self.domain_names {
            Some(_) => Err("domain names are not supported: write networks".to_owned()),
            None => Err("the peer has no field that this version of podnet knows".to_owned()),
        }
    }
}
