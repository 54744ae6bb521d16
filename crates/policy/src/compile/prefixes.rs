//! Prefixes of blocks, and which blocks an address is in.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::bits::Bits;
use super::numbers::Numbers;
use crate::model::Block;

/// The number of the blocks that an address is in, by its range.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    /// Prefixes of all blocks and their exceptions, and of all addresses, ascending.
    pub(super) list: Vec<(IpNet, u32)>,
    /// First addresses of ranges, ascending; of several equal ones the last is meant.
    v4: Vec<(u128, u32)>,
    v6: Vec<(u128, u32)>,
}

impl Prefixes {
    /// Finds the prefixes of blocks, which are peers of these numbers, each of its own.
    ///
    /// The exceptions of a block are parts of it.
    pub(super) fn of(blocks: &[(Block, u32)], within: &mut Numbers<Arc<Bits>>) -> Self {
        let list: Vec<(IpNet, u32)> = prefixes(blocks)
            .into_iter()
            .map(|(net, bits)| (net, within.number(Arc::new(bits))))
            .collect();
        let of = |is_v4: bool| {
            let family = list.iter().filter(|(net, _)| net.addr().is_ipv4() == is_v4);
            ranges(family.map(|(net, number)| (bits(net.network()), last(*net), *number)))
        };
        Self {
            v4: of(true),
            v6: of(false),
            list,
        }
    }

    /// Returns the number of the blocks that an address is in.
    pub(super) fn of_address(&self, address: IpAddr) -> u32 {
        let ranges = match address {
            IpAddr::V4(_) => &self.v4,
            IpAddr::V6(_) => &self.v6,
        };
        let address = bits(address);
        let after = ranges.partition_point(|(first, _)| *first <= address);
        let found = after.checked_sub(1).and_then(|index| ranges.get(index));
        found.map_or(0, |(_, number)| *number)
    }
}

/// Cuts prefixes, the longer ones inside of the others, into ranges.
fn ranges(mut prefixes: impl Iterator<Item = (u128, u128, u32)>) -> Vec<(u128, u32)> {
    let mut ranges = Vec::new();
    let mut open: Vec<(u128, u32)> = Vec::new();
    loop {
        let next = prefixes.next();
        let first = next.map(|(first, _, _)| first);
        // Behind the end of one, the one around it goes on.
        while let Some((end, _)) = open.pop_if(|(end, _)| first.is_none_or(|it| *end < it)) {
            if let (Some((_, around)), Some(after)) = (open.last(), end.checked_add(1)) {
                ranges.push((after, *around));
            }
        }
        let Some((first, last, number)) = next else {
            return ranges;
        };
        ranges.push((first, number));
        open.push((last, number));
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn last(net: IpNet) -> u128 {
    bits(net.broadcast())
}

/// Returns all prefixes with the blocks that they are in.
///
/// All addresses of a prefix are in them that no longer one has. The time is that of sorting, whatever the
/// number of blocks.
fn prefixes(blocks: &[(Block, u32)]) -> Vec<(IpNet, Bits)> {
    // Blocks that begin at a prefix, and those that end there.
    let mut changes: BTreeMap<IpNet, [Vec<u32>; 2]> = BTreeMap::new();
    let whole = [
        Ipv4Net::new(Ipv4Addr::UNSPECIFIED, 0).ok().map(IpNet::V4),
        Ipv6Net::new(Ipv6Addr::UNSPECIFIED, 0).ok().map(IpNet::V6),
    ];
    for net in whole.into_iter().flatten() {
        changes.entry(net).or_default();
    }
    for (block, number) in blocks {
        let [begin, _] = changes.entry(block.cidr.trunc()).or_default();
        begin.push(*number);
        for except in &block.except {
            let [_, end] = changes.entry(except.trunc()).or_default();
            end.push(*number);
        }
    }
    // Those around a prefix, the longest last: they come before it.
    let mut around: Vec<(IpNet, Bits)> = Vec::new();
    let mut found = Vec::with_capacity(changes.len());
    for (net, [begin, end]) in changes {
        while around.pop_if(|(outer, _)| !outer.contains(&net)).is_some() {}
        let mut bits = around
            .last()
            .map_or_else(Bits::default, |(_, bits)| bits.clone());
        begin.into_iter().for_each(|number| bits.add(number));
        end.into_iter().for_each(|number| bits.remove(number));
        around.push((net, bits.clone()));
        found.push((net, bits));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_the_blocks_of_its_longest_prefix() {
        let block = |cidr: &str, except: &[&str]| Block {
            cidr: cidr.parse().unwrap(),
            except: except.iter().map(|it| it.parse().unwrap()).collect(),
        };
        let blocks = [
            (block("10.0.0.0/8", &["10.1.0.0/16"]), 0),
            (block("10.1.2.0/24", &["10.1.2.255/32"]), 1),
            (block("10.1.2.0/25", &[]), 2),
            (block("255.255.255.0/24", &[]), 3),
            (block("::/0", &["8000::/1"]), 4),
            (block("ffff::/16", &[]), 5),
        ];
        let mut within = Numbers::default();
        let prefixes = Prefixes::of(&blocks, &mut within);
        let asked = [
            "0.0.0.0",
            "9.255.255.255",
            "10.0.0.0",
            "10.1.0.0",
            "10.1.2.0",
            "10.1.2.127",
            "10.1.2.128",
            "10.1.2.254",
            "10.1.2.255",
            "10.1.3.0",
            "10.2.0.0",
            "10.255.255.255",
            "11.0.0.0",
            "255.255.254.255",
            "255.255.255.255",
            "::",
            "7fff::",
            "8000::",
            "ffff::",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        ];
        for text in asked {
            let address: IpAddr = text.parse().unwrap();
            let is: Bits = blocks
                .iter()
                .filter(|(block, _)| block.has(address))
                .map(|(_, number)| *number)
                .collect();
            let found = within.get(prefixes.of_address(address)).unwrap();
            assert_eq!(**found, is, "{text}");
        }
    }
}
