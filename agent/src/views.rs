//! Views of the agent's state: tables as JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_common::addr::{GATEWAY_MAC, GATEWAY_V4, GATEWAY_V6};
use agent_common::counter::Count;
use api::DEFAULT_NETWORK;
use book::aside::SetAside;
use book::bandwidth::{Direction, mechanism};
use book::ledger::Ledger;
use book::pods::PodNetworks;
use book::record::{Attachment, Decision};
use cni_spec::{ContainerId, ExplainRequest, GetRequest, GetWhat};
use ipam::Pool;
use metrics::{MemifPort, Shaped, Snapshot};
use remotes::Refusal;
use serde_json::{Value, json};
use telemetry::chain;
use uswitch::PortStatus;

use self::look::network_name;
use crate::error::AgentError;
use crate::kube::report;
use crate::node::Node;

mod delegated;
mod flows;
mod look;
mod policies;
mod series;
mod services;
mod vpcs;

/// One of the tables.
///
/// # Errors
/// When the kernel does not tell, or nobody is meant.
pub async fn get(node: &Arc<Node>, request: &GetRequest) -> Result<Value, AgentError> {
    match request.what {
        GetWhat::Networks => networks(node).await,
        GetWhat::Attachments => attachments(node).await,
        GetWhat::Endpoints => Ok(endpoints(node)),
        GetWhat::Drops => drops(node),
        GetWhat::Uplinks => Ok(uplinks(node)),
        GetWhat::Services => Ok(services::rows(node)),
        GetWhat::Vpcs => Ok(vpcs::rows(node)),
        GetWhat::Policies => Ok(policies::rows(node).await),
        GetWhat::Flows => flows::rows(node, request).await,
    }
}

async fn networks(node: &Node) -> Result<Value, AgentError> {
    let tracked = node.reach.tracked_connections().await?;
    let most = node.reach.most_connections();
    let world = node.world.get();
    let mut default_network = delegated::default_network(node, &world);
    let without_access = node.without_access();
    let ledger = node.book.ledger();
    let mut rows: Vec<Value> = world
        .resolved
        .statuses()
        .map(|mut status| {
            if status.name == DEFAULT_NETWORK && let Some(state) = default_network.take() {
                (status.ready, status.reason, status.message) = (state.ready, state.reason, state.message);
            }
            let definition = world.resolved.definition(&status.name);
            let wanted = definition.and_then(|network| network.id).map(api::NetworkId::get);
            // The number it had before means nothing once nothing uses it.
            let id = ledger.id_of(&status.name).filter(|id| wanted.is_none() || ledger.usage_of(*id).0 > 0);
            let id = id.or(wanted);
            let (attachments, held) = id.map_or((0, 0), |id| ledger.usage_of(id));
            let tracked = tracked.iter().find(|it| Some(it.network) == id);
            json!({
                "name": status.name,
                "id": id,
                "mode": definition.map(|network| network.mode.as_str()),
                "transport": definition.map(|network| network.transport.as_str()),
                "uplink": definition.and_then(|network| network.wire.as_ref().map(ToString::to_string)),
                "subnets": definition.map(|network| network.subnets.iter().map(|subnet| subnet.prefix.to_string()).collect::<Vec<_>>()),
                "gateways": definition.map(|network| network.subnets.iter().filter_map(|subnet| subnet.gateway).collect::<Vec<_>>()),
                "mtu": definition.map(|network| network.mtu),
                "vpc": definition.and_then(|network| network.vpc.as_deref()),
                "egress": definition.map(|network| network.egress.as_str()),
                "nodeAccess": definition.map(|network| network.node_access.as_str()),
                "nodeAccessProblem": without_access.get(&status.name),
                "connections": tracked.map(|it| it.connections),
                "connectionsMost": tracked.and(most),
                "connectionsRefused": tracked.map(|it| it.refused),
                "ready": status.ready,
                "reason": status.reason,
                "message": status.message,
                "attachments": attachments,
                "addressesHeld": held,
                "addressesTotal": definition.map(capacity),
            })
        })
        .collect();
    for problem in &world.broken {
        rows.push(json!({
            "name": Value::Null, "ready": false, "reason": "ManifestUnreadable", "message": problem,
        }));
    }
    Ok(Value::Array(rows))
}

/// Addresses that the network has for pods, as text.
///
/// The number can exceed any number of JSON.
fn capacity(network: &api::Network) -> String {
    network
        .subnets
        .iter()
        .filter_map(|subnet| {
            let gateways: Vec<_> = subnet.gateway.into_iter().collect();
            Pool::new(subnet.prefix, &gateways, &subnet.exclude).ok()
        })
        .fold(0_u128, |sum, pool| sum.saturating_add(pool.capacity()))
        .to_string()
}

async fn attachments(node: &Node) -> Result<Value, AgentError> {
    let records: Vec<(Attachment, bool)> = node
        .book
        .ledger()
        .entries()
        .map(|entry| (entry.record.clone(), entry.live))
        .collect();
    let queues = node
        .ports
        .shaping()
        .queues(records.iter().map(|(record, _)| record))
        .await?;
    let switched = node.ports.switched().await?;
    let mut rows: Vec<Value> = records
        .iter()
        .map(|(record, live)| {
            let mut traffic = node.tables.port_counters(record.port_id)?;
            let socket = switched.get(&record.key.to_string());
            if let Some(port) = socket {
                add(&mut traffic.from_pod, port.counters.fast_from);
                add(&mut traffic.to_pod, port.counters.fast_to);
            }
            Ok(json!({
                "type": record.interface.kind,
                "socket": record.socket_path,
                "client": socket.map(client),
                "container": record.key.container,
                "ifname": record.key.ifname,
                "network": record.network.name,
                "networkID": record.network.id,
                "cniNetwork": record.cni_network,
                "state": record.state,
                "live": live,
                "pod": record.pod,
                "mac": record.mac.to_string(),
                "ips": record.leases.iter().map(|lease| format!("{}/{}", lease.address, record.prefix_len(lease))).collect::<Vec<_>>(),
                "mtu": record.network.mtu,
                "netns": record.sandbox.path,
                "hostInterface": record.host.name,
                "hostIfindex": record.host.ifindex,
                "portID": record.port_id,
                "hook": node.host.hook.kind(record.host.ifindex).label(),
                "bandwidth": ports::shaping::bandwidth(record, &queues),
                "foreignQueue": record.queued,
                "fromPod": count(traffic.from_pod),
                "toPod": count(traffic.to_pod),
                "flooded": count(traffic.flooded),
                "dropped": count(traffic.dropped),
            }))
        })
        .collect::<Result<_, AgentError>>()?;
    rows.extend(delegated::attachments(node));
    rows.extend(node.book.set_aside().iter().map(SetAside::row));
    Ok(Value::Array(rows))
}

/// Adds packets of the switch's fast path, which pass no table of the kernel.
fn add(count: &mut Count, fast: uswitch::Count) {
    count.packets = count.packets.wrapping_add(fast.packets);
    count.bytes = count.bytes.wrapping_add(fast.bytes);
}

/// Client of a socket, and its losses.
fn client(port: &PortStatus) -> Value {
    json!({
        "connected": port.connected,
        "peer": port.peer,
        "lastClosed": port.last_closed,
        "drops": port.counters.drops,
    })
}

fn count(count: Count) -> Value {
    json!({"packets": count.packets, "bytes": count.bytes})
}

fn endpoints(node: &Node) -> Value {
    let ledger = node.book.ledger();
    let mut rows = Vec::new();
    let mut gateways = std::collections::BTreeSet::new();
    for entry in ledger.entries().filter(|entry| entry.live) {
        let record = &entry.record;
        rows.push(json!({
            "network": record.network.name,
            "mac": record.mac.to_string(),
            "ips": record.leases.iter().map(|lease| lease.address).collect::<Vec<_>>(),
            "place": "local",
            "node": node.name,
            "hostInterface": record.host.name,
            "container": record.key.container,
            "pod": record.pod,
            "ifname": record.key.ifname,
        }));
        if record.network.routed && gateways.insert(record.network.id) {
            let mut ips: Vec<std::net::IpAddr> = record
                .network
                .subnets
                .iter()
                .filter_map(|subnet| subnet.gateway)
                .collect();
            ips.extend([
                std::net::IpAddr::V4(GATEWAY_V4),
                std::net::IpAddr::V6(GATEWAY_V6),
            ]);
            rows.push(json!({
                "network": record.network.name,
                "mac": GATEWAY_MAC.to_string(),
                "ips": ips,
                "place": "gateway",
            }));
        }
    }
    rows.extend(remote_endpoints(node, &ledger));
    drop(ledger);
    rows.extend(refused_endpoints(node));
    Value::Array(rows)
}

/// Members on other nodes, of networks that this one has members of or a route to.
fn remote_endpoints(node: &Node, ledger: &Ledger) -> Vec<Value> {
    let mut rows = Vec::new();
    for (network, name) in node.remotes.networks() {
        // What this node has itself comes before what others claim.
        let own: Vec<_> = ledger.live_on(network).map(|record| record.mac).collect();
        let remote = node.remotes.endpoints(network).into_iter();
        rows.extend(remote.filter(|it| !own.contains(&it.mac)).map(|endpoint| {
            json!({
                "network": name,
                "mac": endpoint.mac.to_string(),
                "ips": endpoint.ips,
                "place": "remote",
                "node": endpoint.peer.node,
                "vteps": endpoint.peer.vteps,
            })
        }));
    }
    rows
}

/// Refused claims of other nodes about members, a row for each node and reason.
fn refused_endpoints(node: &Node) -> impl Iterator<Item = Value> {
    node.remotes.refused().into_iter().map(|claims| {
        let vteps = claims.ip.filter(|_| claims.why == Refusal::Vtep);
        let ips = claims.ip.filter(|_| claims.why != Refusal::Vtep);
        json!({
            "network": claims.network,
            "mac": claims.mac.map(|mac| mac.to_string()),
            "ips": ips.into_iter().collect::<Vec<_>>(),
            "place": "refused",
            "node": claims.node,
            "vteps": vteps.into_iter().collect::<Vec<_>>(),
            "count": claims.count,
            "because": claims.why.sentence(),
        })
    })
}

/// How many that are, by reason.
fn untaken(node: &Node) -> BTreeMap<&'static str, usize> {
    let mut counts: BTreeMap<&'static str, usize> =
        Refusal::ALL.iter().map(|why| (why.word(), 0)).collect();
    for claims in node.remotes.refused() {
        *counts.entry(claims.why.word()).or_default() += claims.count;
    }
    counts
}

fn drops(node: &Node) -> Result<Value, AgentError> {
    let counted = node.tables.drops()?;
    let ledger = node.book.ledger();
    Ok(counted
        .into_iter()
        .map(|drop| {
            json!({
                "network": network_name(ledger.name_of(drop.network), drop.network),
                "networkID": drop.network,
                "reason": drop.reason.label(),
                "meaning": drop.reason.meaning().trim(),
                "packets": drop.count.packets,
                "bytes": drop.count.bytes,
            })
        })
        .collect())
}

fn uplinks(node: &Node) -> Value {
    let places = node.reach.places();
    places.values().map(|place| json!(place)).collect()
}

/// Interfaces of all pods: namespace, pod, interface, network.
///
/// The network has its name in the pod's status.
fn interfaces(pods: &[PodNetworks], ledger: &Ledger) -> Vec<[String; 4]> {
    let mut named = BTreeMap::new();
    for record in ledger.entries().map(|entry| &entry.record) {
        if let Some(pod) = &record.pod {
            let key = (
                pod.namespace.clone(),
                pod.name.clone(),
                record.key.ifname.to_string(),
            );
            named.insert(key, record.network.name.clone());
        }
    }
    for PodNetworks {
        pod, attachments, ..
    } in pods
    {
        for attached in attachments {
            let key = (
                pod.namespace.clone(),
                pod.name.clone(),
                attached.interface.clone(),
            );
            named.insert(key, report::status_name(attached));
        }
    }
    let rows = named.into_iter();
    rows.map(|((namespace, pod, interface), network)| [namespace, pod, interface, network])
        .collect()
}

/// Ports of the switch; empty while the switch does not answer.
///
/// The page has the rest then.
async fn memif_ports(node: &Node, records: &[Attachment]) -> Vec<MemifPort> {
    let mut ports = match node.ports.switched().await {
        Ok(ports) => ports,
        Err(error) => {
            tracing::warn!(error = %chain(&error), "the switch does not answer, metrics of memif ports are missing");
            return Vec::new();
        }
    };
    let found = records.iter().filter_map(|record| {
        let port = ports.remove(&record.key.to_string())?;
        Some(MemifPort {
            place: series::place(record),
            connected: port.connected,
            counters: port.counters,
        })
    });
    found.collect()
}

/// Every decision taken for a container's attachments.
///
/// # Errors
/// When there is none.
pub fn explain(node: &Node, request: &ExplainRequest) -> Result<Value, AgentError> {
    let ledger = node.book.ledger();
    let mut rows: Vec<Value> = ledger
        .entries()
        .filter(|entry| begins(&entry.record.key.container, &request.container))
        .filter(|entry| {
            request
                .ifname
                .as_ref()
                .is_none_or(|ifname| entry.record.key.ifname == *ifname)
        })
        .map(|entry| {
            let record = &entry.record;
            let mut decisions = record.decisions.clone();
            let kind = node.host.hook.kind(record.host.ifindex);
            let because = match kind {
                datapath::HookKind::Tcx => "a pinned TCX link, with a TC filter behind it",
                datapath::HookKind::Filter => {
                    "a TC filter; the kernel has no TCX, or no quiet moment came yet"
                }
            };
            decisions.push(Decision::new("hook", kind.label(), because));
            decisions.extend(explain_limits(record));
            json!({
                "container": record.key.container,
                "ifname": record.key.ifname,
                "network": record.network.name,
                "pod": record.pod,
                "state": record.state,
                "decisions": decisions,
            })
        })
        .collect();
    drop(ledger);
    let others = delegated::explanations(node, &request.container, request.ifname.as_ref());
    rows.extend(others);
    if rows.is_empty() {
        let ifname = match &request.ifname {
            Some(ifname) => ifname.clone(),
            None => cni_spec::IfName::new("any").map_err(AgentError::Request)?,
        };
        let key = cni_spec::AttachmentKey {
            container: request.container.clone(),
            ifname,
        };
        return Err(AgentError::NotAttached { key });
    }
    Ok(Value::Array(rows))
}

/// Where each rate came from, and how packets to the pod travel.
/// True when an ID begins with what a person typed of it.
fn begins(container: &ContainerId, typed: &ContainerId) -> bool {
    container.as_str().starts_with(typed.as_str())
}

fn explain_limits(record: &Attachment) -> Vec<Decision> {
    let mut decisions: Vec<Decision> = Direction::ALL
        .into_iter()
        .map(|direction| {
            let about = match direction {
                Direction::Ingress => "rate to the pod (ingress)",
                Direction::Egress => "rate from the pod (egress)",
            };
            match record.limits.of(direction) {
                Some(limit) => Decision::new(about, &limit, limit.source.key(direction)),
                None => Decision::new(about, "no limit", "no object sets one, or one says 0"),
            }
        })
        .collect();
    let because = match (record.limits.ingress, record.queued) {
        (Some(_), _) => Some("the host end limits the rate to the pod"),
        (None, true) => Some("the host end has a queue that is not podnet's"),
        (None, false) => None,
    };
    decisions.push(match because {
        Some(because) => Decision::new("delivery on this node", "bpf_redirect", because),
        None => Decision::new(
            "delivery on this node",
            "bpf_redirect_peer",
            "nothing at the host end needs to see packets to the pod",
        ),
    });
    decisions
}

/// Figures that `/metrics` shows.
///
/// # Errors
/// When the kernel does not tell.
pub async fn snapshot(node: &Node) -> Result<Snapshot, AgentError> {
    let records: Vec<Attachment> = node.book.records();
    let queues = node.ports.shaping().queues(&records).await?;
    let mut shaped = BTreeMap::<_, Shaped>::new();
    for record in &records {
        for direction in Direction::ALL {
            if let Some((_, ifindex)) = ports::shaping::queue_of(record, direction) {
                let key = (record.network.name.clone(), direction.label());
                let of_network = shaped.entry(key).or_default();
                of_network.attachments += 1;
                of_network.backlog += queues.get(&ifindex).map_or(0, |state| state.backlog_bytes);
            }
        }
    }
    let memif = memif_ports(node, &records).await;
    let ports = if node.port_metrics {
        series::ports(node, &records, &queues, &memif)?
    } else {
        Vec::new()
    };
    let free = series::free(node, &records);
    let maps = node.tables.fill()?;
    let counted = node.tables.drops()?;
    let tracked = node.reach.tracked_connections().await?;
    let stopped = node.reach.stopped_packets().await;
    let receivers = node.tables.receivers()?;
    let receivers_max = node.tables.receivers_max();
    let set_aside = node.book.set_aside().len();
    let pods = node.pod_networks();
    let ledger = node.book.ledger();
    let mut networks = BTreeMap::new();
    for entry in ledger.entries() {
        networks.insert(entry.record.network.name.clone(), entry.record.network.id);
    }
    Ok(Snapshot {
        networks: networks
            .into_iter()
            .map(|(name, id)| {
                let (attachments, held) = ledger.usage_of(id);
                (name, attachments, held)
            })
            .collect(),
        drops: counted
            .into_iter()
            .map(|drop| {
                let name = network_name(ledger.name_of(drop.network), drop.network);
                (
                    name,
                    drop.reason.label(),
                    drop.count.packets,
                    drop.count.bytes,
                )
            })
            .collect(),
        connections: tracked
            .into_iter()
            .map(|it| {
                let name = network_name(ledger.name_of(it.network), it.network);
                (name, it.connections, it.refused)
            })
            .collect(),
        stopped,
        shaped,
        free,
        ports,
        maps,
        unread: node.world.get().unread.len(),
        interfaces: interfaces(&pods, &ledger),
        memif,
        can_shape: node.host.discipline.is_some(),
        policies: series::policies(node),
        flow_log: node.flows.as_deref().map(series::flow_log),
        uplinks: node
            .reach
            .places()
            .values()
            .map(|place| (place.interface.clone(), place.mode.label()))
            .collect(),
        receivers: receivers
            .into_iter()
            .map(|(id, count)| (network_name(ledger.name_of(id), id), count))
            .collect(),
        receivers_max,
        unrouted: node.reach.unrouted(),
        untaken: untaken(node),
        waiting: node.ports.waiting(),
        impaired: node.attachments.impaired(),
        store_failed: node.book.failure().is_some(),
        store_failures: node.book.failures(),
        spans: {
            let spans = spans::counts();
            [spans.exported, spans.dropped]
        },
        set_aside,
    })
}

/// Everything at once, for a bug report.
///
/// # Errors
/// When the kernel does not tell.
pub async fn state(node: &Node) -> Result<Value, AgentError> {
    let attachments = attachments(node).await?;
    Ok(json!({
        "node": node.name,
        "version": env!("CARGO_PKG_VERSION"),
        "ready": node.is_ready(),
        "nodeDefault": node.world.get().node_default,
        "portsWaitingForTcx": node.ports.waiting(),
        "impairedPorts": node.attachments.impaired(),
        "storeFailure": node.book.failure().map(|failure| chain(&failure.error)),
        "setAside": *node.book.set_aside(),
        "shaping": node.host.discipline.map(mechanism),
        "tables": node.tables.sizes()?,
        "networks": networks(node).await?,
        "attachments": attachments,
        "drops": drops(node)?,
        "uplinks": uplinks(node),
    }))
}
