//! Entries of a network, in two layers: this node's attachments, and other members.
//!
//! The entries of this node come first, also where others claim the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datapath::Entries;

use super::beyond::{Beyond, is_far};
use super::delta::{Basis, Keys};

/// The entries of one network.
#[derive(Debug, Default)]
pub(super) struct Layers {
    pub(super) own: Entries,
    pub(super) beyond: Arc<Beyond>,
    /// None when `own` was read from the maps, or when ports are not apart in it.
    pub(super) basis: Option<Basis>,
}

/// Differences between two sets of entries, before and after.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) old: Entries,
    pub(super) new: Entries,
}

impl Layers {
    pub(super) fn is_empty(&self) -> bool {
        let nothing = Entries::default();
        self.own == nothing && self.beyond.entries == nothing
    }

    /// Counts the entries of each table, in the order of [`datapath::Tables::limits`].
    pub(super) fn counts(&self) -> [usize; 10] {
        let (own, beyond) = (&self.own, &self.beyond.entries);
        macro_rules! each {
            ($($table:ident),+) => {
                [$({
                    let hidden = own.$table.keys().filter(|key| beyond.$table.contains_key(*key));
                    own.$table.len() + beyond.$table.len() - hidden.count()
                }),+]
            };
        }
        each!(
            ports,
            port_addresses,
            fdb,
            endpoints,
            flood,
            networks,
            flood_vteps,
            wires,
            next_hops,
            routes
        )
    }

    /// Computes the change of the tables to `new`.
    ///
    /// Of members beyond this node that are the same in both, only those are looked at that attachments of
    /// this node hide, or hid.
    pub(super) fn to(&self, new: &Self) -> Change {
        let same = Arc::ptr_eq(&self.beyond, &new.beyond);
        let (mut old_part, mut new_part) = (Entries::default(), Entries::default());
        macro_rules! each {
            ($($table:ident),+) => {$(
                changed(
                    Two { own: &self.own.$table, beyond: &self.beyond.entries.$table },
                    Two { own: &new.own.$table, beyond: &new.beyond.entries.$table },
                    same,
                    (&mut old_part.$table, &mut new_part.$table),
                );
            )+};
        }
        each!(
            ports,
            port_addresses,
            fdb,
            endpoints,
            flood,
            networks,
            flood_vteps,
            wires,
            next_hops,
            routes
        );
        Change {
            old: old_part,
            new: new_part,
        }
    }
}

impl Layers {
    /// Replaces this node's entries with these keys; computes the change.
    ///
    /// No other entry is looked at.
    pub(super) fn replace(&mut self, old: &Keys, new: Entries) -> Change {
        let mut change = Change::default();
        macro_rules! each {
            ($($table:ident),+) => {$(
                replaced(
                    (&mut self.own.$table, &self.beyond.entries.$table),
                    (&old.$table, new.$table),
                    (&mut change.old.$table, &mut change.new.$table),
                );
            )+};
        }
        each!(ports, port_addresses, fdb, endpoints, wires, flood);
        change
    }
}

/// One table in two layers.
#[derive(Clone, Copy)]
struct Two<'a, K, V> {
    own: &'a BTreeMap<K, V>,
    beyond: &'a BTreeMap<K, V>,
}

impl<K: Ord, V: Copy> Two<'_, K, V> {
    fn get(&self, key: &K) -> Option<V> {
        self.own.get(key).or_else(|| self.beyond.get(key)).copied()
    }
}

fn changed<K: Ord + Copy, V: Copy + PartialEq>(
    old: Two<'_, K, V>,
    new: Two<'_, K, V>,
    same_beyond: bool,
    (old_part, new_part): (&mut BTreeMap<K, V>, &mut BTreeMap<K, V>),
) {
    let mut keys: BTreeSet<K> = differing(old.own, new.own).into_iter().collect();
    if !same_beyond {
        keys.extend(differing(old.beyond, new.beyond));
    }
    for key in keys {
        let (before, after) = (old.get(&key), new.get(&key));
        if before != after {
            old_part.extend(before.map(|value| (key, value)));
            new_part.extend(after.map(|value| (key, value)));
        }
    }
}

fn replaced<K: Ord + Copy, V: Copy + PartialEq>(
    (own, beyond): (&mut BTreeMap<K, V>, &BTreeMap<K, V>),
    (old, new): (&BTreeSet<K>, BTreeMap<K, V>),
    (old_part, new_part): (&mut BTreeMap<K, V>, &mut BTreeMap<K, V>),
) {
    let keys: BTreeSet<K> = old.iter().chain(new.keys()).copied().collect();
    let before = keys.iter().map(|key| Two { own: &*own, beyond }.get(key));
    let before: Vec<Option<V>> = before.collect();
    for key in old {
        own.remove(key);
    }
    own.extend(new);
    for (key, before) in keys.into_iter().zip(before) {
        let after = Two { own: &*own, beyond }.get(&key);
        if before != after {
            old_part.extend(before.map(|value| (key, value)));
            new_part.extend(after.map(|value| (key, value)));
        }
    }
}

/// The keys at which they differ, in one walk through both.
fn differing<K: Ord + Copy, V: PartialEq>(one: &BTreeMap<K, V>, two: &BTreeMap<K, V>) -> Vec<K> {
    let mut keys = Vec::new();
    let (mut ones, mut twos) = (one.iter().peekable(), two.iter().peekable());
    loop {
        let first = match (ones.peek(), twos.peek()) {
            (None, None) => return keys,
            (Some((key, _)), None) | (None, Some((key, _))) => **key,
            (Some((one, _)), Some((two, _))) => **one.min(two),
        };
        let left = ones.next_if(|(key, _)| **key == first);
        let right = twos.next_if(|(key, _)| **key == first);
        if left.map(|(_, value)| value) != right.map(|(_, value)| value) {
            keys.push(first);
        }
    }
}

/// Splits the content of the maps by network.
///
/// Returns the addresses of interfaces that are no port by themselves.
pub(super) fn by_network(all: Entries) -> (BTreeMap<u32, Layers>, Entries) {
    let mut strays = Entries::default();
    let mut networks: BTreeMap<u32, [Entries; 2]> = BTreeMap::new();
    let owner: BTreeMap<u32, u32> = all
        .ports
        .iter()
        .map(|(ifindex, port)| (*ifindex, port.network))
        .collect();
    let mut of = |network: u32, far: bool, put: &mut dyn FnMut(&mut Entries)| {
        put(&mut networks.entry(network).or_default()[usize::from(far)]);
    };
    for (ifindex, port) in all.ports {
        of(port.network, false, &mut |it| {
            it.ports.insert(ifindex, port);
        });
    }
    for (key, value) in all.port_addresses {
        let Some(network) = owner.get(&key.ifindex) else {
            strays.port_addresses.insert(key, value);
            continue;
        };
        of(*network, false, &mut |it| {
            it.port_addresses.insert(key, value);
        });
    }
    for (key, value) in all.fdb {
        of(key.network, is_far(&value), &mut |it| {
            it.fdb.insert(key, value);
        });
    }
    for (key, value) in all.endpoints {
        of(key.network, is_far(&value), &mut |it| {
            it.endpoints.insert(key, value);
        });
    }
    for (network, value) in all.networks {
        of(network, false, &mut |it| {
            it.networks.insert(network, value);
        });
    }
    for (key, network) in all.wires {
        of(network, false, &mut |it| {
            it.wires.insert(key, network);
        });
    }
    for (key, value) in all.next_hops {
        of(key.network, true, &mut |it| {
            it.next_hops.insert(key, value);
        });
    }
    for (key, value) in all.flood_vteps {
        of(key.network, true, &mut |it| {
            it.flood_vteps.insert(key, value);
        });
    }
    for (key, value) in all.routes {
        of(key.network, false, &mut |it| {
            it.routes.insert(key, value);
        });
    }
    for (key, value) in all.flood {
        of(key.network, false, &mut |it| {
            it.flood.insert(key, value);
        });
    }
    let layered = networks.into_iter().map(|(network, [own, far])| {
        let beyond = Arc::new(Beyond::new(far, None));
        let layers = Layers {
            own,
            beyond,
            basis: None,
        };
        (network, layers)
    });
    (layered.collect(), strays)
}

#[cfg(test)]
mod tests;
