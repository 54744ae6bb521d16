//! Members of networks on nodes that are not there, as these would publish them.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use agent_common::addr::MacAddr;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use testbed::Node;

use super::Size;
use crate::case::{self, BEGIN};
use crate::interrupt;

/// Of every network.
pub(super) const SUBNET: &str = "10.10.0.0/16";
/// Part of it that the members have.
pub(super) const RESERVED: &str = "10.10.128.0/17";
/// The nodes that they are on.
const NODES: usize = 100;
/// How long an agent may take to read them.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn network(at: usize) -> String {
    format!("n{at}")
}

pub(super) fn id(at: usize) -> u32 {
    2001 + u32::try_from(at).unwrap_or(0)
}

/// A member of a network: a MAC address, and one IPv4 address.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) mac: MacAddr,
    pub(super) ip: Ipv4Addr,
}

/// Members by node and network.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    nodes: BTreeMap<usize, BTreeMap<usize, Vec<Member>>>,
}

impl Crowd {
    /// As many members in each network, each on another node than the one before.
    pub(super) fn of(size: Size) -> Self {
        let mut crowd = Self::default();
        for number in 0..size.members {
            let at = number % size.networks;
            let place = number / size.networks;
            let [.., a, b, c] = number.to_be_bytes();
            let [.., high, low] = place.to_be_bytes();
            let member = Member {
                mac: MacAddr([2, 1, 0, a, b, c]),
                ip: Ipv4Addr::new(10, 10, 128 + high, low),
            };
            let node = crowd.nodes.entry((at + place) % NODES).or_default();
            node.entry(at).or_default().push(member);
        }
        crowd
    }

    /// Writes the file of each node.
    pub(super) fn write(&self, directory: &Path) -> Result<()> {
        for (node, networks) in &self.nodes {
            let vtep = Ipv4Addr::new(10, 99, 0, 100 + u8::try_from(*node)?);
            let mut text = String::new();
            for (at, members) in networks {
                let said = members.iter().map(|member| (*member, BEGIN));
                text.push_str(&slice(*at, &format!("far-{node}"), vtep, said)?);
            }
            put(directory, &format!("far-{node}"), &text)?;
        }
        Ok(())
    }
}

/// The document of a node about a network: members, and since when they are there.
pub(super) fn slice<'a>(
    at: usize,
    node: &str,
    vtep: Ipv4Addr,
    members: impl Iterator<Item = (Member, &'a str)>,
) -> Result<String> {
    let endpoints: Vec<Value> = members
        .map(|(member, since)| {
            let mac = member.mac.to_string();
            json!({"mac": mac, "ips": [member.ip], "since": since})
        })
        .collect();
    case::slice((&network(at), id(at)), node, vtep, &endpoints)
}

/// A file appears as a whole.
pub(super) fn put(directory: &Path, node: &str, text: &str) -> Result<()> {
    let hidden = directory.join(format!(".{node}.yaml"));
    fs::write(&hidden, text)?;
    fs::rename(&hidden, directory.join(format!("{node}.yaml")))?;
    Ok(())
}

/// Waits until the tables of a node have as many entries as all members need.
pub(super) fn wait_known(node: &Node, size: Size) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        let (_, state) = node.http("/debug/state").context("the agent answers")?;
        let state: Value = serde_json::from_str(&state)?;
        let entries = |table: &str| state["tables"][table].as_u64().unwrap_or(0);
        let wanted = u64::try_from(size.members)?;
        if entries("FDB") >= wanted && entries("ENDPOINTS") >= 2 * wanted {
            return Ok(());
        }
        interrupt::check()?;
        if Instant::now() >= end {
            bail!("not all members are in the tables: {}", state["tables"]);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod unit {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_crowd_has_the_members_it_is_asked_for_and_no_address_twice() {
        for (networks, members) in [(1, 10_000), (1000, 10_000), (1, 1)] {
            let crowd = Crowd::of(Size { networks, members });
            let mut seen = BTreeSet::new();
            for (at, member) in crowd.nodes.values().flatten().flat_map(|(at, list)| {
                assert!(list.len() <= 256, "more than a slice takes");
                list.iter().map(move |member| (*at, member))
            }) {
                assert!(seen.insert((at, member.mac.0)) && seen.insert((at, mapped(member.ip))));
            }
            assert_eq!(seen.len(), 2 * members);
        }
    }

    fn mapped(ip: Ipv4Addr) -> [u8; 6] {
        let [a, b, c, d] = ip.octets();
        [0xff, 0xff, a, b, c, d]
    }
}
