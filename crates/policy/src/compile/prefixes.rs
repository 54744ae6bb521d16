//! Prefixes of blocks, and which blocks an address is in.

use std::collections::BTreeSet;
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
    /// Finds the prefixes of blocks, which are peers of these numbers.
    pub(super) fn of(blocks: &[(Block, u32)], within: &mut Numbers<Arc<Bits>>) -> Self {
        let list: Vec<(IpNet, u32)> = prefixes(blocks)
            .into_iter()
            .map(|net| (net, within.number(Arc::new(blocks_of(blocks, net)))))
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

/// Returns the blocks that a prefix is in.
///
/// All addresses are in them that no longer one of [`prefixes`] has.
fn blocks_of(blocks: &[(Block, u32)], net: IpNet) -> Bits {
    let around = blocks.iter().filter(|(block, _)| {
        block.cidr.contains(&net) && !block.except.iter().any(|it| it.contains(&net))
    });
    around.map(|(_, number)| *number).collect()
}

fn prefixes(blocks: &[(Block, u32)]) -> BTreeSet<IpNet> {
    let written = blocks
        .iter()
        .flat_map(|(block, _)| block.except.iter().chain([&block.cidr]));
    let whole = [
        Ipv4Net::new(Ipv4Addr::UNSPECIFIED, 0).ok().map(IpNet::V4),
        Ipv6Net::new(Ipv6Addr::UNSPECIFIED, 0).ok().map(IpNet::V6),
    ];
    written
        .map(IpNet::trunc)
        .chain(whole.into_iter().flatten())
        .collect()
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
