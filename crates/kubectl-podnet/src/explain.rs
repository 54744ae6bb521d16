//! Explain a pod's attachments, or a packet that it sends.

use std::process::ExitCode;

use serde_json::Value;

use crate::agents::{self, Agent};
use crate::cli::{ExplainOptions, Output};
use crate::error::PluginError;
use crate::kubectl::Kubectl;
use crate::pod::{Place, PodRef};
use crate::print;

/// An attachment of a pod, as its agent shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attachment {
    /// ID of the container.
    pub(crate) container: String,
    /// Interface in the pod.
    pub(crate) interface: String,
    /// Network.
    pub(crate) network: String,
    /// Addresses without their lengths.
    pub(crate) addresses: Vec<String>,
    /// MAC address.
    pub(crate) mac: String,
}

/// Prints what the agent of the pod's node says.
///
/// # Errors
/// There is no such pod or attachment, or kubectl or the agent fails.
pub(crate) fn run(kubectl: &Kubectl, options: &ExplainOptions) -> Result<ExitCode, PluginError> {
    let place = agents::place(kubectl, &options.pod)?;
    let agent = agents::at(kubectl, &place)?;
    let mut words = vec!["explain".to_owned()];
    match &options.to {
        Some(to) => {
            words.push(format!("--from={}", sender(&place, &options.pod)));
            words.push(format!("--to={to}"));
            words.extend(options.packet.arguments());
            words.extend(options.source.iter().map(|it| format!("--source={it}")));
        }
        None => {
            let all = attachments(kubectl, &agent, &place)?;
            let one = chosen(&place, &options.pod, &all, None)?;
            words.push(format!("--container={}", one[0].container));
            let interface = options.pod.interface.iter();
            words.extend(interface.map(|it| format!("--ifname={it}")));
        }
    }
    words.extend(format(options.output));
    print(&agent.text(kubectl, &agents::borrow(&words))?)?;
    Ok(ExitCode::SUCCESS)
}

/// The option of the agent for an output.
pub(crate) fn format(output: Output) -> Option<String> {
    (output == Output::Json).then(|| "--output=json".to_owned())
}

/// A pod's port, as the agent takes it.
pub(crate) fn sender(place: &Place, pod: &PodRef) -> String {
    match &pod.interface {
        Some(interface) => format!("{place}:{interface}"),
        None => place.to_string(),
    }
}

/// All attachments of a pod that its agent has.
///
/// # Errors
/// The agent does not answer.
pub(crate) fn attachments(
    kubectl: &Kubectl,
    agent: &Agent,
    place: &Place,
) -> Result<Vec<Attachment>, PluginError> {
    let rows = agent.json(kubectl, &["get", "attachments", "--output=json"])?;
    Ok(of_pod(&rows, place))
}

fn of_pod(rows: &Value, place: &Place) -> Vec<Attachment> {
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let rows = rows.as_array().into_iter().flatten();
    rows.filter(|row| {
        let pod = &row["pod"];
        pod["namespace"] == place.namespace.as_str() && pod["name"] == place.name.as_str()
    })
    // A record that cannot be used, or what is left of a removal.
    .filter(|row| row["ifname"].is_string() && row["network"].is_string())
    .map(|row| Attachment {
        container: text(row, "container"),
        interface: text(row, "ifname"),
        network: text(row, "network"),
        addresses: row["ips"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(|ip| ip.split('/').next().unwrap_or(ip).to_owned())
            .collect(),
        mac: text(row, "mac"),
    })
    .collect()
}

/// Attachments of the interface and the network in question, at least one.
///
/// # Errors
/// There is none.
pub(crate) fn chosen(
    place: &Place,
    pod: &PodRef,
    all: &[Attachment],
    network: Option<&str>,
) -> Result<Vec<Attachment>, PluginError> {
    let found: Vec<Attachment> = all
        .iter()
        .filter(|it| {
            pod.interface
                .as_ref()
                .is_none_or(|name| it.interface == *name)
        })
        .filter(|it| network.is_none_or(|name| it.network == name))
        .cloned()
        .collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let interface = pod
        .interface
        .iter()
        .map(|name| format!("of interface {name}"));
    let wanted: Vec<String> = interface
        .chain(network.map(|name| format!("to network {name}")))
        .collect();
    let wanted = match wanted.as_slice() {
        [] => "of podnet".to_owned(),
        some => some.join(" and "),
    };
    let others: Vec<String> = all
        .iter()
        .map(|it| format!("{} on {}", it.interface, it.network))
        .collect();
    Err(PluginError::NoAttachment {
        pod: place.to_string(),
        wanted,
        node: place.node.clone(),
        others: agents::list(others.iter().map(String::as_str)),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A pod on a node.
    pub(crate) fn place(name: &str, node: &str) -> Place {
        Place {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            node: node.to_owned(),
        }
    }

    #[test]
    fn attachments_are_those_of_the_pod_and_records_that_cannot_be_used_are_left_out() {
        let pod = json!({"namespace": "shop", "name": "a", "uid": "1"});
        let rows = json!([
            {"pod": pod, "container": "c", "ifname": "net1", "network": "blue",
             "ips": ["10.0.0.1/24", "fd00::1/64"], "mac": "02:00:00:00:00:01"},
            {"pod": pod, "container": "c", "state": "SetAside"},
            {"pod": {"namespace": "other", "name": "a"}, "ifname": "net1", "network": "blue"},
            {"pod": null, "container": "x", "ifname": "net1", "network": "blue"},
        ]);
        let found = of_pod(&rows, &place("a", "n1"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].addresses, ["10.0.0.1", "fd00::1"]);
    }

    #[test]
    fn an_interface_that_the_pod_does_not_have_is_named_with_those_it_has() {
        let all = [Attachment {
            container: "c".to_owned(),
            interface: "net1".to_owned(),
            network: "blue".to_owned(),
            addresses: Vec::new(),
            mac: String::new(),
        }];
        let pod: PodRef = "a:net2".parse().unwrap();
        let error = chosen(&place("a", "n1"), &pod, &all, Some("red")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "pod shop/a has no attachment of interface net2 and to network red on node n1; it \
             has: net1 on blue"
        );
    }
}
