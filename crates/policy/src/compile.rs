//! Compile policies to tables: two look-ups for a packet.
//!
//! That is so whatever the number of policies.
//!
//! An *atom* is all ends that the rules of a network cannot tell apart; each address has the number of its atom.
//! A *class* is all ports of a protocol that no rule tells apart. A *row* is what one end may exchange with an
//! atom: a bit for each class of each protocol, and one for all other traffic. A *set* has the row of each
//! atom. A port has a set for each direction in which any policy has something to say.
//!
//! So the question is `rows[sets[set][atom]]` at the bit of the class, and has as many steps with a thousand policies
//! as with one.

mod atoms;
mod bits;
mod classes;
mod compiler;
mod numbers;
mod prefixes;
mod row;
mod sets;
mod shape;
mod stages;
mod workloads;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

pub use self::classes::{Classes, MAX_CLASSES};
pub use self::compiler::Compiler;
pub use self::row::Row;
use crate::judge::Traffic;
use crate::model::{Policy, Protocol};
use crate::world::World;

/// Number of an atom.
pub type Atom = u32;

/// Number of a row.
pub type RowId = u32;

/// Number of a set.
pub type SetId = u32;

/// The atom of ends of which nothing is known.
///
/// No rule accepts it that asks for a peer.
pub const UNKNOWN: Atom = 0;

/// Atoms that a network can have.
pub const MAX_ATOMS: usize = 65_536;

/// A network whose policies cannot be compiled.
///
/// Nothing may pass its guarded ports then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// Rules tell apart too many ports.
    #[error(
        "the rules of the network tell apart {found} ranges of {protocol:?} ports, and {MAX_CLASSES} can be: \
         use fewer different ports in its policies"
    )]
    TooManyPorts {
        /// The protocol.
        protocol: Protocol,
        /// The number of ranges.
        found: usize,
    },
    /// Rules tell apart too many ends.
    #[error(
        "the rules of the network tell apart {found} groups of addresses, and {MAX_ATOMS} can be: \
         use fewer different selectors and blocks in its policies"
    )]
    TooManyAtoms {
        /// The number of groups.
        found: usize,
    },
}

/// Rows by atom; the default one lets nothing pass.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Set {
    /// The row of each atom that has another one than most, ascending.
    pub rows: Vec<(Atom, RowId)>,
    /// The row of [`UNKNOWN`].
    pub unknown: RowId,
    /// The row of all other atoms.
    pub others: RowId,
}

impl Set {
    /// Returns the number of an atom's row.
    pub fn row(&self, atom: Atom) -> RowId {
        if atom == UNKNOWN {
            return self.unknown;
        }
        let place = self.rows.binary_search_by_key(&atom, |(it, _)| *it).ok();
        let row = place.and_then(|index| self.rows.get(index));
        row.map_or(self.others, |(_, row)| *row)
    }

    /// The numbers of all rows that it has, some of them more than once.
    fn all_rows(&self) -> impl Iterator<Item = RowId> {
        let listed = self.rows.iter().map(|(_, row)| *row);
        listed.chain([self.unknown, self.others])
    }
}

/// Sets of a member; `None`: no policy says anything in this direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Guard {
    /// For what it receives.
    pub ingress: Option<SetId>,
    /// For what it sends.
    pub egress: Option<SetId>,
}

/// The tables of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// Atoms of the addresses of members and nodes.
    pub identities: BTreeMap<IpAddr, Atom>,
    /// Atoms of all other addresses, by longest prefix; both families are whole.
    pub blocks: Vec<(IpNet, Atom)>,
    /// Classes of ports.
    pub classes: Classes,
    /// Rows, by number; the first lets nothing pass, as one whose number no set has.
    pub rows: Vec<Row>,
    /// Sets, by number; one whose number no guard has lets nothing pass.
    pub sets: Vec<Arc<Set>>,
    /// Guards of the members that are judged here, by their index in the world.
    pub guards: BTreeMap<usize, Guard>,
    /// The same in answers of one [`Compiler`] whose numbers can be compared.
    pub numbering: u64,
}

impl Network {
    /// Returns the atom of an address.
    pub fn atom(&self, address: IpAddr) -> Atom {
        let known = self.identities.get(&address).copied();
        known.unwrap_or_else(|| longest(&self.blocks, address))
    }

    /// Returns the atom that an address has if no member and no node has it.
    ///
    /// Two addresses for which it is the same are in the same blocks.
    pub fn atom_beyond(&self, address: IpAddr) -> Atom {
        longest(&self.blocks, address)
    }

    /// Reports what a program finds: whether a set lets traffic with an atom pass.
    pub fn allows(&self, set: Option<SetId>, atom: Atom, traffic: Traffic) -> bool {
        let Some(set) = set else {
            return true;
        };
        let set = self.sets.get(set as usize);
        let row = set.and_then(|set| self.rows.get(set.row(atom) as usize));
        row.is_some_and(|row| row.has(&self.classes, traffic))
    }
}

/// Compiles the policies of a network once, for the members that are judged here.
///
/// Others are peers only. `judged` has their indexes in the world. [`Compiler`] does so again and again.
///
/// # Errors
/// The network has more of something than its tables hold.
pub fn compile(
    world: &World,
    policies: &[Policy],
    judged: impl IntoIterator<Item = usize>,
) -> Result<Network, CompileError> {
    Compiler::default().compile(world, policies, judged)
}

/// Returns the number of the longest prefix that has an address.
///
/// Prefixes of both families are whole: each address has one.
fn longest(prefixes: &[(IpNet, u32)], address: IpAddr) -> u32 {
    let found = prefixes.iter().filter(|(net, _)| net.contains(&address));
    let longest = found.max_by_key(|(net, _)| net.prefix_len());
    longest.map_or(0, |(_, number)| *number)
}
