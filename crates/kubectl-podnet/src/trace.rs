//! Follow a packet from pod to pod, on the nodes of both.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::agents::{self, Agent};
use crate::cli::{Output, TraceOptions};
use crate::error::PluginError;
use crate::explain::{Attachment, attachments, chosen};
use crate::kubectl::Kubectl;
use crate::pod::Place;
use crate::print;

/// Verdicts of a node after which another node has to be asked.
const BEYOND: [&str; 3] = ["tunnelled", "wired", "replicated"];
/// Verdict of a packet that has arrived.
const ARRIVED: &str = "delivered";

/// One end of the way.
#[derive(Debug)]
struct End {
    place: Place,
    agent: Agent,
    attachments: Vec<Attachment>,
}

/// Prints the way; the answer is whether the packet arrives.
///
/// # Errors
/// A pod is not there, the two have no network in common, or kubectl or an agent fails.
pub(crate) fn run(kubectl: &Kubectl, options: &TraceOptions) -> Result<bool, PluginError> {
    let network = options.network.as_deref();
    let end = |pod| -> Result<End, PluginError> {
        let place = agents::place(kubectl, pod)?;
        let agent = agents::at(kubectl, &place)?;
        let all = attachments(kubectl, &agent, &place)?;
        Ok(End {
            attachments: chosen(&place, pod, &all, network)?,
            place,
            agent,
        })
    };
    let (from, to) = (end(&options.from)?, end(&options.to)?);
    let (sender, receiver) = common(&from, &to)?;
    let (source, target) = addresses(&sender, &receiver).ok_or_else(|| PluginError::Families {
        from: from.place.to_string(),
        to: to.place.to_string(),
        network: sender.network.clone(),
    })?;

    let mut stages = Vec::new();
    let packet = options.packet.arguments();
    let port = |place: &Place, it: &Attachment| format!("{place}:{}", it.interface);
    let mut ask = |agent: &Agent, from: &str, to: &str| -> Result<String, PluginError> {
        let mut words = vec![
            "explain".to_owned(),
            format!("--from={from}"),
            format!("--to={to}"),
        ];
        words.extend(packet.iter().cloned());
        if options.output == Output::Table {
            let text = agent.text(kubectl, &agents::borrow(&words))?;
            print(&format!("== on {} ==\n{}\n\n", agent.node, text.trim_end()))?;
        }
        words.push("--output=json".to_owned());
        let report = agent.json(kubectl, &agents::borrow(&words))?;
        let verdict = report["outcome"]["verdict"].as_str().map(str::to_owned);
        let verdict = verdict.ok_or_else(|| {
            let words = agent.exec(kubectl, &agents::borrow(&words));
            kubectl.form(&agents::borrow(&words), "no outcome.verdict")
        })?;
        stages.push(json!({"node": agent.node, "report": report}));
        Ok(verdict)
    };
    let mut verdict = ask(&from.agent, &port(&from.place, &sender), &target)?;
    let is_elsewhere = from.place.node != to.place.node;
    if is_elsewhere && BEYOND.contains(&verdict.as_str()) {
        let member = format!("{}/{source}", sender.network);
        verdict = ask(&to.agent, &member, &port(&to.place, &receiver))?;
    }
    // A copy for each port of the node, this one among them.
    let arrives = verdict == ARRIVED || (verdict == "replicated" && !is_elsewhere);
    let node = stages.last().map_or(Value::Null, |it| it["node"].clone());
    if options.output == Output::Json {
        let answer =
            json!({"arrives": arrives, "verdict": verdict, "node": node, "stages": stages});
        print(&format!("{answer:#}\n"))?;
    } else {
        let node = node.as_str().unwrap_or_default();
        let arrives = if arrives {
            "arrives"
        } else {
            "does not arrive"
        };
        print(&format!("The packet {arrives}: {verdict} on {node}.\n"))?;
    }
    Ok(arrives)
}

/// The attachments of both to the one network that they have in common.
fn common(from: &End, to: &End) -> Result<(Attachment, Attachment), PluginError> {
    let names = |end: &End| -> BTreeSet<String> {
        end.attachments
            .iter()
            .map(|it| it.network.clone())
            .collect()
    };
    let list = |names: &BTreeSet<String>| agents::list(names.iter().map(String::as_str));
    let (left, right) = (names(from), names(to));
    let both: BTreeSet<String> = left.intersection(&right).cloned().collect();
    let pods = || (from.place.to_string(), to.place.to_string());
    let mut networks = both.iter();
    let (Some(network), None) = (networks.next(), networks.next()) else {
        let (from, to) = pods();
        return Err(if both.is_empty() {
            PluginError::Apart {
                from,
                to,
                left: list(&left),
                right: list(&right),
            }
        } else {
            PluginError::Several {
                from,
                to,
                networks: list(&both),
            }
        });
    };
    let on = |end: &End| {
        end.attachments
            .iter()
            .find(|it| it.network == *network)
            .cloned()
    };
    match (on(from), on(to)) {
        (Some(sender), Some(receiver)) => Ok((sender, receiver)),
        _ => {
            let (from, to) = pods();
            Err(PluginError::Apart {
                from,
                to,
                left: list(&left),
                right: list(&right),
            })
        }
    }
}

/// Addresses of sender and receiver of one family.
///
/// On a network that gives none they are MAC addresses.
fn addresses(sender: &Attachment, receiver: &Attachment) -> Option<(String, String)> {
    if sender.addresses.is_empty() && receiver.addresses.is_empty() {
        return Some((sender.mac.clone(), receiver.mac.clone()));
    }
    let is_v6 = |address: &str| address.contains(':');
    receiver.addresses.iter().find_map(|to| {
        let from = sender
            .addresses
            .iter()
            .find(|from| is_v6(from) == is_v6(to));
        from.map(|from| (from.clone(), to.clone()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::tests::place;

    fn attachment(network: &str, addresses: &[&str]) -> Attachment {
        Attachment {
            container: "c".to_owned(),
            interface: "net1".to_owned(),
            network: network.to_owned(),
            addresses: addresses.iter().map(|&it| it.to_owned()).collect(),
            mac: format!("02:{network}"),
        }
    }

    fn end(name: &str, networks: &[&str]) -> End {
        End {
            place: place(name, "n1"),
            agent: Agent {
                pod: "agent".to_owned(),
                node: "n1".to_owned(),
            },
            attachments: networks.iter().map(|it| attachment(it, &[])).collect(),
        }
    }

    #[test]
    fn pods_meet_on_the_one_network_that_both_are_on() {
        let (a, b) = (end("a", &["blue", "red"]), end("b", &["green", "red"]));
        let (sender, receiver) = common(&a, &b).unwrap();
        assert_eq!(
            (sender.network, receiver.network),
            ("red".into(), "red".into())
        );
    }

    #[test]
    fn pods_that_meet_nowhere_or_twice_are_told_their_networks() {
        let said = |one: &[&str], other: &[&str]| {
            common(&end("a", one), &end("b", other))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            said(&["blue"], &["red"]),
            "shop/a and shop/b have no network in common: shop/a is on blue, shop/b on red"
        );
        let several = said(&["blue", "red"], &["blue", "red"]);
        assert!(
            several.ends_with("(blue, red): name one by --network"),
            "{several}"
        );
    }

    #[test]
    fn addresses_are_of_one_family_and_mac_addresses_where_there_are_no_others() {
        let (one, other) = (
            attachment("blue", &["10.0.0.1", "fd00::1"]),
            attachment("blue", &["fd00::2"]),
        );
        let wanted = Some(("fd00::1".to_owned(), "fd00::2".to_owned()));
        assert_eq!(addresses(&one, &other), wanted);
        let four = attachment("blue", &["10.0.0.2"]);
        assert_eq!(addresses(&other, &four), None);
        let none = attachment("blue", &[]);
        assert_eq!(addresses(&none, &none).unwrap().0, "02:blue");
    }
}
