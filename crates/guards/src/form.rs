//! Compiled policies in the form of the tables.

use std::collections::BTreeMap;
use std::net::IpAddr;

use agent_common::addr::Ip16;
use agent_common::guard::{CLASSES, Classes, ROW_WORDS, Row};
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
    let sets = guards.filter_map(|(member, guard)| {
        let sets = PortSets {
            egress: guard.egress.map(|set| set as usize),
            ingress: guard.ingress.map(|set| set as usize),
        };
        let speaks = sets != PortSets::default();
        ports
            .get(*member)
            .filter(|_| speaks)
            .map(|port| (*port, sets))
    });
    Guarded {
        atoms: atoms.map(|(ip, atom)| (Ip16::from(*ip), *atom)).collect(),
        blocks: blocks.map(|(net, atom)| (block(net), *atom)).collect(),
        classes: Box::new(classes(&network.classes)),
        rows: network.rows.iter().map(row).collect(),
        sets: network
            .sets
            .iter()
            .map(|set| SetRows {
                rows: set
                    .rows
                    .iter()
                    .map(|(atom, row)| (*atom, *row as usize))
                    .collect(),
                unknown: set.unknown as usize,
                others: set.others as usize,
            })
            .collect(),
        ports: sets.collect(),
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
        atoms: BTreeMap::new(),
        blocks: BTreeMap::new(),
        classes: Box::new(Classes {
            counts: [1, 1, 1, 0],
            starts: [0; 3 * CLASSES],
        }),
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
        starts: [0; 3 * CLASSES],
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
