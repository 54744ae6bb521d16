//! Metrics of ports and networks, read when they are asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use agent_common::counter::Count;
use book::bandwidth::Direction;
use book::record::Attachment;
use capture::flows::Counted;
use ipam::Family;
use metrics::{FlowLogNumbers, MemifPort, PolicyNumbers, PortTraffic, Rate, Traffic};
use ports::shaping::{Queues, queue_of};

use crate::error::AgentError;
use crate::node::Node;

/// Namespace, pod and interface of an attachment.
pub(super) fn place(record: &Attachment) -> [String; 3] {
    let pod = record.pod.as_ref();
    [
        pod.map_or_else(String::new, |pod| pod.namespace.clone()),
        // Runtimes need not say whose container it is.
        pod.map_or_else(|| record.key.container.to_string(), |pod| pod.name.clone()),
        record.key.ifname.to_string(),
    ]
}

/// Reads the numbers of the flow log.
pub(super) fn flow_log(counted: &Counted) -> FlowLogNumbers {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    FlowLogNumbers {
        ports: read(&counted.ports),
        logged: read(&counted.logged),
        overflow: read(&counted.overflow),
        lost: read(&counted.lost),
        lines: read(&counted.lines),
        failed_lines: read(&counted.failed_lines),
    }
}

/// Counters of these ports, with those of the switch's own way.
///
/// # Errors
/// When the kernel does not tell.
pub(super) fn ports(
    node: &Node,
    records: &[Attachment],
    queues: &Queues,
    switched: &[MemifPort],
) -> Result<Vec<PortTraffic>, AgentError> {
    let switched: BTreeMap<_, _> = switched.iter().map(|port| (&port.place, port)).collect();
    let mut taken = BTreeSet::new();
    let mut ports = Vec::new();
    for record in records {
        let place = place(record);
        // Two attachments that a runtime has given one name would be one series.
        if !taken.insert(place.clone()) {
            continue;
        }
        let counters = node.tables.port_counters(record.port_id)?;
        let (mut ingress, mut egress) = (traffic(counters.to_pod), traffic(counters.from_pod));
        if let Some(port) = switched.get(&place) {
            add(&mut ingress, port.counters.fast_to);
            add(&mut egress, port.counters.fast_from);
        }
        let mut reasons = Vec::new();
        // Most ports have dropped nothing, and need one question only.
        if counters.dropped.packets > 0 {
            let found = node.tables.port_drops(record.port_id)?.into_iter();
            reasons.extend(found.map(|(reason, packets)| (reason.label(), packets)));
        }
        let rate = |direction| {
            let (_, ifindex) = queue_of(record, direction)?;
            let state = queues.get(&ifindex)?;
            let rate = Rate {
                waits: state.overlimits,
                dropped: state.dropped_packets,
            };
            Some((direction, rate))
        };
        let [namespace, pod, interface] = place;
        ports.push(PortTraffic {
            place: [namespace, pod, interface, record.network.name.clone()],
            ingress,
            egress,
            flooded: traffic(counters.flooded),
            dropped: traffic(counters.dropped),
            reasons,
            rates: Direction::ALL.into_iter().filter_map(rate).collect(),
        });
    }
    Ok(ports)
}

/// Addresses left of each network with attachments, by family.
pub(super) fn free(node: &Node, records: &[Attachment]) -> Vec<(String, &'static str, u128)> {
    let names: BTreeSet<&str> = records
        .iter()
        .map(|record| record.network.name.as_str())
        .collect();
    let world = node.world.get();
    let ledger = node.book.ledger();
    names
        .into_iter()
        .filter_map(|name| world.resolved.definition(name))
        .flat_map(|network| {
            let free = ledger.free(network).into_iter();
            free.map(|(family, count)| {
                let family = match family {
                    Family::V4 => "IPv4",
                    Family::V6 => "IPv6",
                };
                (network.name.clone(), family, count)
            })
        })
        .collect()
}

/// Numbers of network policies; none while they are not known.
pub(super) fn policies(node: &Node) -> Option<PolicyNumbers> {
    let known = node.policies.get();
    if !known.unread.is_empty() {
        return None;
    }
    let mut kinds: BTreeMap<&'static str, usize> = BTreeMap::new();
    for policy in &known.policies {
        *kinds.entry(policy.kind.as_str()).or_default() += 1;
    }
    Some(PolicyNumbers {
        kinds,
        problems: node.guards.problems(),
    })
}

const fn traffic(count: Count) -> Traffic {
    Traffic {
        packets: count.packets,
        bytes: count.bytes,
    }
}

const fn add(traffic: &mut Traffic, fast: uswitch::Count) {
    traffic.packets = traffic.packets.wrapping_add(fast.packets);
    traffic.bytes = traffic.bytes.wrapping_add(fast.bytes);
}
