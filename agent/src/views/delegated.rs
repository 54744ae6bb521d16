//! Attachments that other plugins have made, next to podnet's own in the tables.

use api::{DEFAULT_NETWORK, ResolveError};
use book::pods::AttachedNetwork;
use book::pods::record::{Maker, Member, PodRecord};
use book::record::{Decision, State};
use cni_spec::{ContainerId, IfName};
use delegate::Delegation;
use serde_json::{Value, json};
use telemetry::chain;
use world::{DefaultNetwork, World};

use super::begins;
use crate::node::Node;
use crate::pods::ATTEMPTS;

/// Rows of `get attachments`.
pub(super) fn attachments(node: &Node) -> Vec<Value> {
    each(node, |pod, member, delegation| {
        let made = node.made_by_others(pod, member, delegation);
        json!({
            "container": pod.key.container,
            "ifname": member.ifname,
            "network": delegation.network,
            "target": member.target.to_string(),
            "plugins": plugins(delegation),
            "left": left(pod, delegation),
            "attempts": pod.attempts,
            "cniNetwork": pod.cni_network,
            "state": pod.state,
            "live": pod.state == State::Added,
            "pod": pod.pod,
            "mac": made.mac,
            "ips": addresses(&made),
            "mtu": made.mtu,
            "netns": pod.sandbox.path,
        })
    })
}

/// State of a network in the table of networks.
#[derive(Debug)]
pub(super) struct NetworkState {
    pub(super) ready: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// State of PodNetwork `default` where podnet makes no default network.
///
/// The object then has no parameters, and needs none: other plugins make the attachments, or there are
/// none. `None` where it is an object as any other.
pub(super) fn default_network(node: &Node, world: &World) -> Option<NetworkState> {
    let refused = world.resolved.network(DEFAULT_NETWORK).err()?;
    if !matches!(refused, ResolveError::ParametersMissing { .. }) {
        return None;
    }
    let state = match &node.rules.lists.default_network {
        DefaultNetwork::PodNetwork(_) => return None,
        DefaultNetwork::None => NetworkState {
            ready: false,
            reason: "NoDefaultNetwork",
            message: "this node has --default-network=none: a pod must list its first network"
                .to_owned(),
        },
        DefaultNetwork::Delegate => match node.default_chain() {
            Ok(chain) => NetworkState {
                ready: true,
                reason: "Delegated",
                message: format!(
                    "pods have it from another plugin: network {} of {}",
                    chain.name,
                    node.rules.conf_dir.display()
                ),
            },
            Err(error) => NetworkState {
                ready: false,
                reason: "NoDefaultNetwork",
                message: chain(&error),
            },
        },
    };
    Some(state)
}

/// Rows of `explain`.
pub(super) fn explanations(
    node: &Node,
    container: &ContainerId,
    ifname: Option<&IfName>,
) -> Vec<Value> {
    let rows = each(node, |pod, member, delegation| {
        let wanted = begins(&pod.key.container, container)
            && ifname.is_none_or(|ifname| member.ifname == *ifname);
        if !wanted {
            return Value::Null;
        }
        let made = node.made_by_others(pod, member, delegation);
        json!({
            "container": pod.key.container,
            "ifname": member.ifname,
            "network": delegation.network,
            "pod": pod.pod,
            "state": pod.state,
            "decisions": decisions(pod, member, delegation, &made),
        })
    });
    rows.into_iter().filter(|row| !row.is_null()).collect()
}

/// Rows of the members of which plugins may have something.
///
/// A member that was never made, or is removed, is in no table.
fn each(node: &Node, row: impl Fn(&PodRecord, &Member, &Delegation) -> Value) -> Vec<Value> {
    let mut rows = Vec::new();
    for pod in node.book.pods().records() {
        for member in &pod.members {
            let delegation = match &member.maker {
                Maker::Plugins(delegation) => Some(delegation),
                // When our own part is gone, the host ports of the pod may not be.
                Maker::Podnet if member.ifname == pod.key.ifname && !holds(node, &pod) => {
                    pod.host_ports.as_ref()
                }
                Maker::Podnet => None,
            };
            if let Some(delegation) = delegation.filter(|it| !it.is_settled()) {
                rows.push(row(&pod, member, delegation));
            }
        }
    }
    rows
}

/// True while the pod's first interface is made by us.
fn holds(node: &Node, pod: &PodRecord) -> bool {
    node.book.ledger().get(&pod.key).is_some()
}

/// Plugins that are still to succeed in `DEL`, of a pod that is being removed.
fn left(pod: &PodRecord, delegation: &Delegation) -> Vec<String> {
    let is_removed = pod.state == State::Deleting;
    let left = delegation.unsettled().filter(|_| is_removed);
    left.map(ToOwned::to_owned).collect()
}

fn decisions(
    pod: &PodRecord,
    member: &Member,
    delegation: &Delegation,
    made: &AttachedNetwork,
) -> Vec<Decision> {
    let target = member.target.to_string();
    let mut decisions = vec![
        Decision::new("network", &delegation.network, &target),
        Decision::new(
            "plugins",
            &plugins(delegation).join(", "),
            "the configuration is not of type podnet",
        ),
        Decision::new(
            "CNI version",
            delegation.version.as_str(),
            "the newest of the configuration that is spoken here",
        ),
    ];
    if pod.state == State::Deleting {
        let left = left(pod, delegation).join(", ");
        let attempts = pod.attempts;
        let because = if pod.sandbox.is_gone() {
            format!(
                "the pod's namespace is gone, and {attempts} of {ATTEMPTS} attempts have failed"
            )
        } else {
            "the pod's namespace is there: the runtime repeats DEL".to_owned()
        };
        decisions.push(Decision::new("plugins still to do DEL", &left, &because));
        return decisions;
    }
    let because = "result of the plugins";
    decisions.extend(
        addresses(made)
            .iter()
            .map(|address| Decision::new("address", address, because)),
    );
    for gateway in &made.gateways {
        decisions.push(Decision::new(
            "default route",
            gateway,
            &default_because(member),
        ));
    }
    if made.gateways.is_empty() {
        let because = "another attachment of the pod has them";
        decisions.push(Decision::new("default route", "none", because));
    }
    decisions
}

fn default_because(member: &Member) -> String {
    match &member.asked_default_route {
        Some(_) => "default-route in the pod's list".to_owned(),
        None => "no other attachment of the pod asks for it".to_owned(),
    }
}

fn plugins(delegation: &Delegation) -> Vec<String> {
    let plugins = delegation.plugins.iter();
    plugins.map(|plugin| plugin.plugin.clone()).collect()
}

fn addresses(made: &AttachedNetwork) -> Vec<String> {
    made.addresses.iter().map(ToString::to_string).collect()
}
