//! Counts the addresses that a network has left on this node.

use std::net::IpAddr;

use api::Network;
use ipam::Family;

use super::{Ledger, share};

impl Ledger {
    /// Counts the addresses that new pods of a network can get here, by family.
    ///
    /// In a cluster they are those of this node's blocks that are neither given nor reserved. A family in which
    /// the network has no subnet is not there.
    pub fn free(&self, network: &Network) -> Vec<(Family, u128)> {
        let share = share::of(self.own.as_ref(), self.shares.as_ref(), &network.name);
        let usage = self.id_of(&network.name).and_then(|id| self.usage.get(&id));
        let held = usage.map(|usage| &usage.ips);
        let Ok(pools) = world::blocks::pools(network) else {
            return Vec::new();
        };
        let of_family = |family: Family| {
            let pools: Vec<_> = pools.iter().filter(|it| it.family() == family).collect();
            if pools.is_empty() {
                return None;
            }
            let is_family = |ip: &&IpAddr| match family {
                Family::V4 => ip.is_ipv4(),
                Family::V6 => ip.is_ipv6(),
            };
            let (capacity, taken) = match share {
                None => {
                    let capacity = pools.iter().map(|pool| pool.capacity()).sum::<u128>();
                    let held = held.into_iter().flatten().filter(is_family);
                    (capacity, held.count())
                }
                Some(share) => {
                    let blocks = share.blocks.iter();
                    let parts = blocks.flat_map(|block| {
                        let parts = pools.iter().map(|pool| pool.capacity_in(block));
                        parts.collect::<Vec<_>>()
                    });
                    let is_here = |ip: &&IpAddr| share.has(**ip);
                    let given = held.into_iter().flatten().filter(is_family);
                    let is_given = |ip: &&IpAddr| held.is_some_and(|held| held.contains(*ip));
                    let reserved = share.reserved.keys().filter(is_family);
                    let apart = reserved.filter(is_here).filter(|ip| !is_given(ip));
                    (parts.sum(), given.filter(is_here).count() + apart.count())
                }
            };
            Some((family, capacity.saturating_sub(taken as u128)))
        };
        [Family::V4, Family::V6]
            .into_iter()
            .filter_map(of_family)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use api::{Holder, Mode};

    use super::super::Reserved;
    use super::super::Share;
    use super::*;
    use crate::samples;

    fn ledger_with(network: &Network, containers: &[&str]) -> Ledger {
        let mut ledger = Ledger::new(16);
        for container in containers {
            let wanted = samples::wanted(container);
            let host = samples::host(&wanted, 7);
            ledger.reserve(wanted, network, host).unwrap();
        }
        ledger
    }

    #[test]
    fn addresses_left_are_those_that_are_not_given_by_family() {
        let subnets = [("10.1.0.0/29", "10.1.0.1"), ("fd00::/125", "")];
        let network = samples::network("blue", Mode::L2, &subnets);
        let before = ledger_with(&network, &[]).free(&network);
        let after = ledger_with(&network, &["one", "two"]).free(&network);
        assert_eq!(before.len(), 2);
        // The network, its gateway and broadcast are never given.
        assert_eq!(before[0], (Family::V4, 5));
        for ((family, before), (_, after)) in before.iter().zip(&after) {
            assert_eq!(before - 2, *after, "{family:?}");
        }
        let addressless = samples::network("bare", Mode::L2, &[]);
        assert_eq!(ledger_with(&addressless, &[]).free(&addressless), []);
    }

    #[test]
    fn in_a_cluster_addresses_left_are_those_of_this_nodes_blocks() {
        let network = samples::network("blue", Mode::L2, &[("10.1.0.0/24", "")]);
        let mut ledger = Ledger::new(16);
        ledger.set_shares(HashMap::new());
        assert_eq!(ledger.free(&network), [(Family::V4, 0)], "it has no block");
        let mut share = Share {
            blocks: vec!["10.1.0.16/28".parse().unwrap()],
            ..Share::default()
        };
        ledger.set_shares(HashMap::from([("blue".to_owned(), share.clone())]));
        assert_eq!(ledger.free(&network), [(Family::V4, 16)]);
        let holder = Holder::Claim(api::ClaimHolder {
            namespace: "shop".to_owned(),
            name: "vm".to_owned(),
            uid: "1".to_owned(),
        });
        for ip in ["10.1.0.20", "10.1.0.99"] {
            let reserved = Reserved {
                holder: holder.clone(),
                granted: true,
            };
            share.reserved.insert(ip.parse().unwrap(), reserved);
        }
        ledger.set_shares(HashMap::from([("blue".to_owned(), share)]));
        assert_eq!(
            ledger.free(&network),
            [(Family::V4, 15)],
            "a reserved one is not free"
        );
        let wanted = samples::wanted("one");
        let host = samples::host(&wanted, 7);
        ledger.reserve(wanted, &network, host).unwrap();
        assert_eq!(ledger.free(&network), [(Family::V4, 14)]);
    }
}
