//! Connections that policies let pass, as a table: the newest ones.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::IpAddr;
use std::sync::Arc;

use agent_common::addr::Ip16;
use agent_common::guard::{
    FLOW_ANSWERED, FLOW_DENIED, FLOW_FIN_HIGH, FLOW_FIN_LOW, FLOW_HIGH_OPENED, FLOW_RESET, FlowKey,
    TICK_SHIFT, ticks_since,
};
use agent_common::packet::{IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_TCP, IPPROTO_UDP};
use book::record::Attachment;
use cni_spec::GetRequest;
use datapath::DatapathError;
use datapath::connections::{self, Connections};
use serde_json::{Value, json};

use super::look::{joined, network_name};
use crate::error::{AgentError, ExplainError};
use crate::node::Node;

/// SCTP, RFC 9260.
const IPPROTO_SCTP: u8 = 132;

/// Ends that a person asks for; all where nothing is named.
#[derive(Debug, Default)]
struct Wanted {
    network: Option<u32>,
    ends: Option<BTreeSet<(u32, IpAddr)>>,
}

impl Wanted {
    fn has(&self, key: &FlowKey) -> bool {
        let is_end = |ends: &BTreeSet<(u32, IpAddr)>| {
            let mut both = [key.low, key.high].into_iter();
            both.any(|ip| ends.contains(&(key.network, ip.into())))
        };
        self.network.is_none_or(|network| network == key.network)
            && self.ends.as_ref().is_none_or(is_end)
    }
}

/// Rows of `get flows`.
///
/// # Errors
/// When nobody is meant, or the kernel does not tell.
pub(super) async fn rows(node: &Arc<Node>, request: &GetRequest) -> Result<Value, AgentError> {
    let records = node.book.records();
    let wanted = Wanted {
        network: request
            .network
            .as_deref()
            .map(|name| network(&records, name))
            .transpose()?,
        ends: request
            .pod
            .as_deref()
            .map(|pod| ends(&records, pod))
            .transpose()?,
    };
    let most = usize::from(request.limit.unwrap_or(GetRequest::LIMIT));
    let connections = node.tables.guards().connections();
    let now = connections::now();
    // The whole map is read: two calls of the kernel an entry.
    let work = tokio::task::spawn_blocking(move || newest(&connections, &wanted, most, now));
    let found = joined(work.await)?;
    let mut holders = BTreeMap::new();
    for record in &records {
        for ip in addresses(record) {
            holders.entry((record.network.id, ip)).or_insert(record);
        }
    }
    let ledger = node.book.ledger();
    let rows = found.into_iter().map(|(age, key, flags)| {
        let end = |ip: Ip16, port: u16| {
            let ip = IpAddr::from(ip);
            let holder = holders.get(&(key.network, ip));
            json!({
                "address": ip,
                "port": has_ports(key.protocol).then_some(port),
                "pod": holder.and_then(|it| it.pod.as_ref()),
                "container": holder.map(|it| &it.key.container),
            })
        };
        let mut ends = [end(key.low, key.low_port), end(key.high, key.high_port)];
        if flags & FLOW_HIGH_OPENED != 0 {
            ends.reverse();
        }
        let [opener, other] = ends;
        json!({
            "network": network_name(ledger.name_of(key.network), key.network),
            "networkID": key.network,
            "protocol": protocol(key.protocol),
            "opener": opener,
            "other": other,
            "state": state(key.protocol, flags),
            "ageSeconds": seconds(age),
        })
    });
    Ok(rows.collect())
}

/// Finds the newest connections, each with its age in ticks and its flags.
fn newest(
    connections: &Connections,
    wanted: &Wanted,
    most: usize,
    now: u32,
) -> Result<Vec<(u32, FlowKey, u32)>, DatapathError> {
    let mut newest = Newest::new(most);
    connections.each(|key, words| {
        if words.is_alive(key.protocol, now) && wanted.has(&key) {
            let age = ticks_since(words.seen, now).max(0).cast_unsigned();
            newest.add((age, key, words.flags));
        }
    })?;
    Ok(newest.end())
}

/// The youngest of many entries, of which no more than these are kept.
#[derive(Debug)]
struct Newest {
    most: usize,
    oldest_first: BinaryHeap<(u32, FlowKey, u32)>,
}

impl Newest {
    fn new(most: usize) -> Self {
        Self {
            most,
            oldest_first: BinaryHeap::with_capacity(most.saturating_add(1)),
        }
    }

    fn add(&mut self, entry: (u32, FlowKey, u32)) {
        self.oldest_first.push(entry);
        if self.oldest_first.len() > self.most {
            self.oldest_first.pop();
        }
    }

    /// Youngest first, each connection once.
    fn end(self) -> Vec<(u32, FlowKey, u32)> {
        let mut shown = BTreeSet::new();
        let mut all = self.oldest_first.into_sorted_vec();
        all.retain(|(_, key, _)| shown.insert(*key));
        all
    }
}

/// The number of a network that ports of this node are on.
fn network(records: &[Attachment], name: &str) -> Result<u32, ExplainError> {
    let mut all = records.iter().map(|record| &record.network);
    let found = all.find(|network| network.name == name);
    found.map(|network| network.id).ok_or_else(|| {
        let known: BTreeSet<_> = records.iter().map(|it| it.network.name.clone()).collect();
        ExplainError::Unknown {
            argument: "--network",
            value: name.to_owned(),
            why: "no port of this node is on a network of this name",
            known: known.into_iter().collect(),
        }
    })
}

/// Finds the ends of a pod, by its name or the start of its container's ID.
fn ends(records: &[Attachment], named: &str) -> Result<BTreeSet<(u32, IpAddr)>, ExplainError> {
    let is_meant = |record: &&Attachment| match (named.split_once('/'), &record.pod) {
        (Some((namespace, name)), Some(pod)) => pod.namespace == namespace && pod.name == name,
        (Some(_), None) => false,
        (None, _) => !named.is_empty() && record.key.container.as_str().starts_with(named),
    };
    let found: Vec<&Attachment> = records.iter().filter(is_meant).collect();
    if found.is_empty() {
        let known = records.iter().map(|record| match &record.pod {
            Some(pod) => format!("{}/{}", pod.namespace, pod.name),
            None => record.key.container.to_string(),
        });
        return Err(ExplainError::Unknown {
            argument: "--pod",
            value: named.to_owned(),
            why: "no pod of this node is meant; write NAMESPACE/NAME, or the beginning of a container's ID",
            known: known.collect::<BTreeSet<_>>().into_iter().collect(),
        });
    }
    let each = found.into_iter().flat_map(|record| {
        let network = record.network.id;
        addresses(record).map(move |ip| (network, ip))
    });
    Ok(each.collect())
}

/// Addresses of a port, with that of its link.
fn addresses(record: &Attachment) -> impl Iterator<Item = IpAddr> {
    let own = record.leases.iter().map(|lease| lease.address);
    own.chain([record.mac.link_local().into()])
}

/// The word for how far a connection is.
const fn state(protocol: u8, flags: u32) -> &'static str {
    if flags & FLOW_DENIED != 0 {
        return "denied";
    }
    if protocol == IPPROTO_TCP {
        if flags & FLOW_RESET != 0 {
            return "reset";
        }
        if flags & (FLOW_FIN_LOW | FLOW_FIN_HIGH) != 0 {
            return "closing";
        }
    }
    if flags & FLOW_ANSWERED != 0 {
        "open"
    } else {
        "opening"
    }
}

fn protocol(number: u8) -> String {
    match number {
        IPPROTO_TCP => "tcp".to_owned(),
        IPPROTO_UDP => "udp".to_owned(),
        IPPROTO_SCTP => "sctp".to_owned(),
        IPPROTO_ICMP => "icmp".to_owned(),
        IPPROTO_ICMPV6 => "icmp6".to_owned(),
        number => format!("ip:{number}"),
    }
}

const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, IPPROTO_TCP | IPPROTO_UDP | IPPROTO_SCTP)
}

/// Whole seconds of so many ticks.
fn seconds(ticks: u32) -> u64 {
    (u64::from(ticks) << TICK_SHIFT) / 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> FlowKey {
        FlowKey {
            low: Ip16::from_v4([10, 0, 0, number]),
            ..FlowKey::EMPTY
        }
    }

    #[test]
    fn the_youngest_are_kept_once_each_and_no_more_of_them() {
        let mut newest = Newest::new(3);
        for (age, number) in [(9, 1), (2, 2), (7, 3), (1, 4), (8, 5), (2, 2)] {
            newest.add((age, key(number), 0));
        }
        let ages: Vec<u32> = newest.end().iter().map(|(age, ..)| *age).collect();
        assert_eq!(ages, [1, 2]);
        let mut none = Newest::new(0);
        none.add((1, key(1), 0));
        assert!(none.end().is_empty());
    }

    #[test]
    fn states_are_told_in_words() {
        for (protocol, flags, word) in [
            (6, 0, "opening"),
            (6, FLOW_ANSWERED, "open"),
            (6, FLOW_ANSWERED | FLOW_FIN_LOW, "closing"),
            (6, FLOW_ANSWERED | FLOW_FIN_HIGH | FLOW_RESET, "reset"),
            (17, FLOW_ANSWERED | FLOW_DENIED, "denied"),
            (17, FLOW_ANSWERED | FLOW_HIGH_OPENED, "open"),
            (1, FLOW_RESET, "opening"),
        ] {
            assert_eq!(state(protocol, flags), word, "{protocol} {flags}");
        }
        assert_eq!(protocol(132), "sctp");
        assert_eq!(protocol(47), "ip:47");
        assert_eq!((seconds(0), seconds(1), seconds(100)), (0, 1, 107));
    }

    #[test]
    fn ends_are_compared_on_their_network_only() {
        let ip = IpAddr::from([10, 0, 0, 1]);
        let wanted = Wanted {
            ends: Some(BTreeSet::from([(7, ip)])),
            ..Wanted::default()
        };
        let on = |network| FlowKey { network, ..key(1) };
        assert!(wanted.has(&on(7)) && !wanted.has(&on(8)));
        assert!(Wanted::default().has(&on(8)));
    }
}
