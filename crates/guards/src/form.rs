//! Compiled policies in the form of the tables.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use agent_common::addr::Ip16;
use agent_common::guard::{CLASSES, Classes, ROW_WORDS, Row, STARTS};
use agent_common::map as size;
use ipnet::IpNet;
use policy::Protocol;
use tables::guards::{Guarded, PortSets, SetRows};

/// Bits of a mapped IPv4 address in front of the address.
const MAPPED: u8 = 96;

/// Returns the tables of a network whose first members are these ports.
pub(crate) fn of(network: &policy::Network, ports: &[u16]) -> Guarded {
    let atoms = network.identities.iter();
    let blocks = network.blocks.iter();
    let guards = network.guards.iter();
    let judged = guards.filter_map(|(member, guard)| {
        let sets = sets(guard);
        let speaks = sets != PortSets::default();
        ports
            .get(*member)
            .filter(|_| speaks)
            .map(|port| (*port, sets))
    });
    Guarded {
        numbering: Some(network.numbering),
        atoms: atoms.map(|(ip, atom)| (Ip16::from(*ip), *atom)).collect(),
        blocks: blocks.map(|(net, atom)| (block(net), *atom)).collect(),
        classes: Box::new(classes(&network.classes)),
        rows: network.rows.iter().map(row).collect(),
        sets: network
            .sets
            .iter()
            .map(|set| {
                Arc::new(SetRows {
                    rows: set.rows.clone(),
                    unknown: set.unknown,
                    others: set.others,
                })
            })
            .collect(),
        ports: judged.collect(),
    }
}

/// Part of each table that the policies of one network may have: one by this.
///
/// So no tenant's policies keep those of others out, and a change has room beside what is in force.
const SHARE: u32 = 4;

/// Says of which table a network's policies need more than their share, if of any.
pub(crate) fn beyond_share(tables: &Guarded) -> Option<String> {
    let entries = tables.sets.iter().map(|set| set.rows.len() + 2).sum();
    let needs = [
        (tables.blocks.len(), size::MAX_BLOCKS, "blocks of addresses"),
        (tables.atoms.len(), size::MAX_ATOMS, "addresses of members"),
        (tables.rows.len(), size::MAX_ROWS, "rows of ports"),
        (entries, size::MAX_SET_ROWS, "groups of addresses in sets"),
    ];
    needs.into_iter().find_map(|(needed, most, what)| {
        let share = most / SHARE;
        (needed > share as usize).then(|| {
            format!(
                "they need {needed} {what}, and those of one network may have {share}: use fewer blocks, selectors and \
                 ports in policies"
            )
        })
    })
}

/// Returns the sets of a port.
pub(crate) fn sets(guard: &policy::Guard) -> PortSets {
    PortSets {
        egress: guard.egress.map(|set| set as usize),
        ingress: guard.ingress.map(|set| set as usize),
    }
}

/// Returns tables that let nothing pass at these ports, in their directions.
///
/// They are empty, so that there is room for them: a set that is not there lets nothing pass.
pub(crate) fn closed(ports: &[(u16, bool, bool)]) -> Guarded {
    let sets = |(port, ingress, egress): &(u16, bool, bool)| {
        let sets = PortSets {
            egress: egress.then_some(0),
            ingress: ingress.then_some(0),
        };
        (*port, sets)
    };
    Guarded {
        numbering: None,
        atoms: BTreeMap::new(),
        blocks: BTreeMap::new(),
        classes: Box::new(Classes {
            counts: [1, 1, 1, 0],
            starts: [0; STARTS],
        }),
        // Sets that are not there let nothing pass, and need no room.
        rows: Vec::new(),
        sets: Vec::new(),
        ports: ports.iter().map(sets).collect(),
    }
}

fn block(net: &IpNet) -> (Ip16, u8) {
    match net {
        IpNet::V4(net) => (
            Ip16::from(IpAddr::V4(net.network())),
            net.prefix_len() + MAPPED,
        ),
        IpNet::V6(net) => (Ip16::from(IpAddr::V6(net.network())), net.prefix_len()),
    }
}

fn classes(of: &policy::Classes) -> Classes {
    let mut classes = Classes {
        counts: [0; 4],
        starts: [0; STARTS],
    };
    for (place, protocol) in Protocol::ALL.into_iter().enumerate() {
        let starts = of.starts(protocol);
        classes.counts[place] = u16::try_from(starts.len()).unwrap_or(0);
        let slots = classes
            .starts
            .iter_mut()
            .skip(place * CLASSES)
            .take(CLASSES);
        for (slot, start) in slots.zip(starts) {
            *slot = *start;
        }
    }
    classes
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the halves of a word of 64 bits"
)]
fn row(of: &policy::Row) -> Row {
    let mut words = [0; ROW_WORDS];
    let halves = of.ports.iter().flatten();
    let halves = halves.flat_map(|word| [*word as u32, (*word >> 32) as u32]);
    for (slot, half) in words.iter_mut().zip(halves.chain([u32::from(of.other)])) {
        *slot = half;
    }
    Row { words }
}
