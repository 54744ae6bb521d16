//! Numbers of other nodes in the tables: given once, read again after a restart.
//!
//! A number goes to another node only when no entry mentions it any more.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use agent_common::addr::Ip16;
use agent_common::vtep::Vtep;
use datapath::{DatapathError, Vteps};

use super::mapped;
use super::surroundings::{UnderlayPath, UnderlayPaths};
use remotes::Peer;

/// Numbers of nodes, by address.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    by_address: BTreeMap<Ip16, (u32, Vtep)>,
}

impl Numbers {
    /// Reads the numbers in the tables.
    pub(super) fn read(vteps: &mut Vteps) -> Result<Self, DatapathError> {
        let mut numbers = Self::default();
        for (number, vtep) in vteps.dump()? {
            numbers.by_address.insert(vtep.address(), (number, vtep));
        }
        // One that was being forgotten or given when an agent died.
        for (address, number) in vteps.sources()? {
            if numbers.number(&address) != Some(number) {
                vteps.refuse(&address)?;
            }
        }
        for (address, (number, _)) in &numbers.by_address {
            vteps.admit(*address, *number)?;
        }
        Ok(numbers)
    }

    fn number(&self, address: &Ip16) -> Option<u32> {
        self.by_address.get(address).map(|(number, _)| *number)
    }

    /// Gives a number to each node without one that tunnels of this node reach.
    ///
    /// Writes the paths there, and returns the numbers by the names of the nodes.
    pub(super) fn give<'a>(
        &mut self,
        nodes: &'a [Arc<Peer>],
        (device, own, paths): (u32, &[IpAddr], &UnderlayPaths),
        vteps: &mut Vteps,
    ) -> Result<BTreeMap<&'a str, u32>, DatapathError> {
        let mut numbers = BTreeMap::new();
        for node in nodes {
            if let Some(address) = node.address_for(own) {
                let path = paths.get(&address);
                let number = self.give_one(address, (device, path), vteps)?;
                numbers.insert(node.node.as_str(), number);
            }
        }
        Ok(numbers)
    }

    fn give_one(
        &mut self,
        node: IpAddr,
        (device, path): (u32, Option<&UnderlayPath>),
        vteps: &mut Vteps,
    ) -> Result<u32, DatapathError> {
        let address = mapped(node);
        let wanted = reached(&address, device, path);
        let number = match self.by_address.get(&address) {
            Some((number, vtep)) if *vtep == wanted => return Ok(*number),
            Some((number, _)) => *number,
            None => self.free(vteps.capacity())?,
        };
        vteps.set(number, wanted)?;
        vteps.admit(address, number)?;
        self.by_address.insert(address, (number, wanted));
        Ok(number)
    }

    /// Lists the addresses that have a number.
    pub(super) fn addresses(&self) -> BTreeSet<IpAddr> {
        self.by_address.keys().map(|it| IpAddr::from(*it)).collect()
    }

    /// Writes again how the nodes are reached.
    pub(super) fn set_underlay(
        &mut self,
        paths: &UnderlayPaths,
        vteps: &mut Vteps,
    ) -> Result<(), DatapathError> {
        for (address, (number, vtep)) in &mut self.by_address {
            let path = paths.get(&IpAddr::from(*address));
            let wanted = reached(address, vtep.device, path);
            if *vtep != wanted {
                vteps.set(*number, wanted)?;
                *vtep = wanted;
            }
        }
        Ok(())
    }

    /// The lowest number that nobody has.
    fn free(&self, capacity: u32) -> Result<u32, DatapathError> {
        let taken: BTreeSet<u32> = self
            .by_address
            .values()
            .map(|(number, _)| *number)
            .collect();
        let free = (1..capacity).find(|number| !taken.contains(number));
        free.ok_or(DatapathError::MapFull {
            name: "VTEPS",
            max_entries: capacity,
        })
    }

    /// Forgets the others.
    pub(super) fn retain(
        &mut self,
        mentioned: &BTreeSet<u32>,
        vteps: &mut Vteps,
    ) -> Result<(), DatapathError> {
        let forgotten: Vec<(Ip16, u32)> = self
            .by_address
            .iter()
            .filter(|(_, (number, _))| !mentioned.contains(number))
            .map(|(address, (number, _))| (*address, *number))
            .collect();
        for (address, number) in forgotten {
            vteps.refuse(&address)?;
            vteps.clear(number)?;
            self.by_address.remove(&address);
        }
        Ok(())
    }
}

fn reached(address: &Ip16, device: u32, path: Option<&UnderlayPath>) -> Vtep {
    let vtep = Vtep::new(address, device);
    let Some(path) = path else {
        return vtep;
    };
    let vtep = vtep.carries(path.mtu);
    path.straight
        .map_or(vtep, |straight| vtep.straight(&straight))
}
