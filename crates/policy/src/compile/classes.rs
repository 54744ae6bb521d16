//! Classes of ports: ranges that no rule tells apart.

use std::collections::BTreeSet;

use super::CompileError;
use super::row::Row;
use crate::model::{Ports, Protocol};
use crate::world::Workload;

/// Classes of one protocol that a network can have.
pub const MAX_CLASSES: usize = 256;

/// Where the classes of each protocol begin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Classes {
    /// First ports, ascending, the first of them 0, for each of [`Protocol::ALL`].
    starts: [Vec<u16>; 3],
}

impl Classes {
    /// Finds the classes that rules and the named ports of workloads need.
    ///
    /// # Errors
    /// There are more than [`MAX_CLASSES`] of a protocol.
    pub(super) fn of<'a>(
        asked: impl Iterator<Item = &'a Ports>,
        workloads: &[&Workload],
    ) -> Result<Self, CompileError> {
        let mut starts = [(); 3].map(|()| BTreeSet::from([0]));
        let mut add = |protocol: Protocol, first: u16, last: u16| {
            if let Some(starts) = starts.get_mut(protocol.index()) {
                starts.insert(first);
                starts.extend(last.checked_add(1));
            }
        };
        let mut names = BTreeSet::new();
        for ports in asked {
            match ports {
                Ports::Range(protocol, first, last) => add(*protocol, *first, *last),
                Ports::Named(protocol, name) => {
                    names.insert((*protocol, name.as_str()));
                }
            }
        }
        for (protocol, name) in names {
            for (protocol, port) in workloads.iter().flat_map(|it| it.numbers(protocol, name)) {
                add(protocol, port, port);
            }
        }
        for (protocol, starts) in Protocol::ALL.into_iter().zip(&starts) {
            let found = starts.len();
            if found > MAX_CLASSES {
                return Err(CompileError::TooManyPorts { protocol, found });
            }
        }
        Ok(Self {
            starts: starts.map(|starts| starts.into_iter().collect()),
        })
    }

    /// Returns the number of the class of a port.
    pub fn class(&self, protocol: Protocol, port: u16) -> usize {
        let starts = self.starts.get(protocol.index());
        starts.map_or(0, |starts| {
            starts.partition_point(|first| *first <= port) - 1
        })
    }

    /// Returns the first ports of the classes of a protocol, by number.
    pub fn starts(&self, protocol: Protocol) -> &[u16] {
        self.starts.get(protocol.index()).map_or(&[], Vec::as_slice)
    }

    /// The classes of a range of ports, which begins and ends with a class.
    pub(super) fn row(&self, protocol: Protocol, first: u16, last: u16) -> Row {
        let mut row = Row::NOTHING;
        for class in self.class(protocol, first)..=self.class(protocol, last) {
            row.set(protocol.index(), class);
        }
        row
    }
}
