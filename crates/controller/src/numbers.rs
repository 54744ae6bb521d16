//! The numbers of networks, one for the whole cluster: `status.networkID`.
//!
//! - A number a user asks for is the network's, unless pods use another network that has it.
//! - A network that asks for none keeps what it has, for as long as it exists.
//! - New numbers come from the upper half, where they meet none that people choose. The place to
//!   begin at is made of the network's UID: a number is not given again soon, and a status that is
//!   lost comes back the same.
//! - No two networks have one number, whoever wrote the statuses: of two that do, one keeps it.
//! - The number of a network that pods use never changes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use api::NetworkId;

/// The first number that is given without being asked for.
const FIRST: u32 = 0x0080_0000;

/// A network, as far as its number is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// When it was made, seconds since 1970.
    pub created: i64,
    /// The number its parameters ask for.
    pub asked: Option<NetworkId>,
    /// The number its status says.
    pub held: Option<NetworkId>,
    /// It is to have one: its parameters are valid.
    pub wanted: bool,
    /// Pods use it.
    pub used: bool,
}

/// The number of a network, and why it is not the one that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assigned {
    /// The number, if it has one.
    pub number: Option<NetworkId>,
    /// Why not the one that was asked for.
    pub conflict: Option<NumberConflict>,
}

/// Why a network has not the number its parameters ask for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberConflict {
    /// Pods use a network that has the number.
    #[error(
        "networkID {asked} was allocated to PodNetwork {holder}, which pods use; ask for another, \
         or remove networkID to have one allocated"
    )]
    Taken {
        /// The number.
        asked: NetworkId,
        /// The network that has it.
        holder: String,
    },
    /// Pods use the network under another number.
    #[error(
        "networkID {asked} is asked for while pods use the network as number {held}; ask for \
         {held}, or delete these pods"
    )]
    InUse {
        /// The number.
        asked: NetworkId,
        /// The number it has.
        held: NetworkId,
    },
}

/// The number of every network, by name.
pub fn assign(networks: &[Numbered]) -> BTreeMap<String, Assigned> {
    let mut book = Book::of(networks);
    let mut conflicts = BTreeMap::new();
    for network in networks {
        let Some(asked) = network.asked.filter(|_| network.wanted) else {
            continue;
        };
        if let Err(conflict) = book.take(network, asked) {
            conflicts.insert(network.name.clone(), conflict);
        }
    }
    let Book { owners, held, .. } = book;
    let mut taken: BTreeSet<NetworkId> = owners.keys().copied().collect();
    // Somebody may get it as soon as a conflict is solved.
    taken.extend(networks.iter().filter_map(|network| network.asked));
    let assigned = networks.iter().map(|network| {
        let conflict = conflicts.remove(&network.name);
        let mut number = held.get(network.name.as_str()).copied();
        if number.is_none() && network.wanted && network.asked.is_none() {
            number = free(&network.uid, &taken);
            taken.extend(number);
        }
        (network.name.clone(), Assigned { number, conflict })
    });
    assigned.collect()
}

/// Returns the network that keeps each number, of those whose statuses name it.
fn owners(networks: &[Numbered]) -> BTreeMap<NetworkId, &Numbered> {
    let mut owners: BTreeMap<NetworkId, &Numbered> = BTreeMap::new();
    for network in networks {
        let Some(number) = network.held else {
            continue;
        };
        owners
            .entry(number)
            .and_modify(|owner| {
                if claim(network, number) > claim(owner, number) {
                    *owner = network;
                }
            })
            .or_insert(network);
    }
    owners
}

/// How good the claim of a network to a number in its status is.
fn claim(network: &Numbered, number: NetworkId) -> impl Ord {
    (
        network.used,
        network.asked == Some(number),
        Reverse((network.created, network.name.clone())),
    )
}

/// Index of numbers by network and of networks by number.
///
/// A look-up in either takes a time that does not grow with the cluster.
struct Book<'a> {
    owners: BTreeMap<NetworkId, &'a Numbered>,
    held: BTreeMap<&'a str, NetworkId>,
    /// How many networks ask for each number.
    asking: BTreeMap<NetworkId, usize>,
}

impl<'a> Book<'a> {
    fn of(networks: &'a [Numbered]) -> Self {
        let owners = owners(networks);
        let held = owners.iter();
        let held = held.map(|(number, owner)| (owner.name.as_str(), *number));
        let mut asking = BTreeMap::new();
        for asked in networks.iter().filter_map(|network| network.asked) {
            *asking.entry(asked).or_default() += 1;
        }
        Self {
            held: held.collect(),
            owners,
            asking,
        }
    }

    /// Makes `network` the owner of the number it asks for, when that harms nobody.
    fn take(&mut self, network: &'a Numbered, asked: NetworkId) -> Result<(), NumberConflict> {
        if self.asking.get(&asked).is_some_and(|asking| *asking > 1) {
            // That is refused where the parameters are checked, and nobody gains by it.
            return Ok(());
        }
        let before = self.held.get(network.name.as_str()).copied();
        if before == Some(asked) {
            return Ok(());
        }
        if let Some(held) = before.filter(|_| network.used) {
            return Err(NumberConflict::InUse { asked, held });
        }
        if let Some(holder) = self.owners.get(&asked).filter(|holder| holder.used) {
            return Err(NumberConflict::Taken {
                asked,
                holder: holder.name.clone(),
            });
        }
        if let Some(before) = before {
            self.owners.remove(&before);
        }
        if let Some(robbed) = self.owners.insert(asked, network) {
            self.held.remove(robbed.name.as_str());
        }
        self.held.insert(&network.name, asked);
        Ok(())
    }
}

/// A number nobody has, the same for the same UID where that is possible.
fn free(uid: &str, taken: &BTreeSet<NetworkId>) -> Option<NetworkId> {
    let span = NetworkId::MAX - FIRST + 1;
    let start = hash(uid) % span;
    (0..span)
        .filter_map(|step| NetworkId::new(FIRST + (start + step) % span))
        .find(|number| !taken.contains(number))
}

/// FNV-1a, 32 bits: stable over versions, which the standard library's is not.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests;
