//! Maps the agent writes: what a network needs, as ordinary values.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use agent_common::addr::Ip16;
use agent_common::endpoint::{Endpoint, EndpointKey, FdbKey};
use agent_common::flood::{FloodKey, FloodPorts};
use agent_common::network::Network;
use agent_common::port::{Port, PortAddressKey};
use agent_common::route::{Route, RouteKey};
use agent_common::seal::{SealedEndpoint, SealedNetwork, SealedPort, SealedWire, Stored};
use agent_common::uplink::Uplink;
use agent_common::vtep::{FloodVteps, NOBODY, Vtep};
use agent_common::wire::{NextHop, WireKey};
use aya::maps::{Array, HashMap, Map, MapData, MapError};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::DatapathError;
use crate::pin::PinDir;
use crate::pod::Abi;
use crate::storm::Storm;

/// A type that can be a key or a value.
pub trait Bytes: FromBytes + IntoBytes + Immutable + KnownLayout + Copy + 'static {}
impl<T: FromBytes + IntoBytes + Immutable + KnownLayout + Copy + 'static> Bytes for T {}

/// One hash map, or one trie of prefixes.
pub struct Table<K: Bytes, V, S: Bytes = V> {
    name: &'static str,
    max_entries: u32,
    map: HashMap<MapData, Abi<K>, Abi<S>>,
    values: PhantomData<V>,
}

impl<K: Bytes, V, S: Bytes> fmt::Debug for Table<K, V, S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Table")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl<K: Bytes + Ord, V: Bytes, S: Bytes + Stored<K, V>> Table<K, V, S> {
    pub(crate) fn new(
        name: &'static str,
        max_entries: u32,
        map: Map,
    ) -> Result<Self, DatapathError> {
        // The system calls for a trie of prefixes are the same, with the length in front of the key.
        let map = match map {
            Map::LpmTrie(data) => Map::HashMap(data),
            map => map,
        };
        let map = HashMap::try_from(map).map_err(DatapathError::map("open", name))?;
        Ok(Self {
            name,
            max_entries,
            map,
            values: PhantomData,
        })
    }

    /// Returns the name, and the entries that it can have.
    const fn limit(&self) -> (&'static str, u32) {
        (self.name, self.max_entries)
    }

    /// Sets an entry; the kernel replaces it as a whole.
    ///
    /// # Errors
    /// [`DatapathError::MapFull`] when there is no room.
    pub fn insert(&mut self, key: K, value: V) -> Result<(), DatapathError> {
        match self.map.insert(Abi(key), Abi(S::store(&key, value)), 0) {
            Err(MapError::SyscallError(error))
                if matches!(
                    error.io_error.raw_os_error(),
                    Some(libc_errno::E2BIG | libc_errno::ENOSPC)
                ) =>
            {
                Err(DatapathError::MapFull {
                    name: self.name,
                    max_entries: self.max_entries,
                })
            }
            other => other.map_err(DatapathError::map("write", self.name)),
        }
    }

    /// Removes an entry; one that is not there is removed already.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove(&mut self, key: &K) -> Result<(), DatapathError> {
        match self.map.remove(&Abi(*key)) {
            Err(MapError::KeyNotFound) => Ok(()),
            Err(MapError::SyscallError(error))
                if error.io_error.kind() == std::io::ErrorKind::NotFound =>
            {
                Ok(())
            }
            other => other.map_err(DatapathError::map("write", self.name)),
        }
    }

    /// The entry with this key, as programs find it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn get(&self, key: &K) -> Result<Option<V>, DatapathError> {
        match self.map.get(&Abi(*key), 0) {
            Ok(stored) => Ok(stored.0.value(key)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(DatapathError::map("read", self.name)(error)),
        }
    }

    /// Reports whether there is no entry.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn is_empty(&self) -> Result<bool, DatapathError> {
        let first = self.map.keys().next().transpose();
        let first = first.map_err(DatapathError::map("read", self.name))?;
        Ok(first.is_none())
    }

    /// Every key.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn keys(&self) -> Result<Vec<K>, DatapathError> {
        let keys: Result<_, _> = self.map.keys().map(|key| key.map(|key| key.0)).collect();
        keys.map_err(DatapathError::map("read", self.name))
    }

    /// Removes all entries with such keys.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove_where(&mut self, is_one: impl Fn(&K) -> bool) -> Result<(), DatapathError> {
        let keys = self.keys()?.into_iter();
        keys.filter(is_one).try_for_each(|key| self.remove(&key))
    }

    /// Every entry that programs find.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn dump(&self) -> Result<BTreeMap<K, V>, DatapathError> {
        let found = |(key, stored): (Abi<K>, Abi<S>)| Some((key.0, stored.0.value(&key.0)?));
        let all = self.map.iter().map(|entry| entry.map(found).transpose());
        let all: Result<_, _> = all.flatten().collect();
        all.map_err(DatapathError::map("read", self.name))
    }

    /// Makes `new` of `old`: inserts, then nothing; removals are the other half.
    fn add(&mut self, old: &BTreeMap<K, V>, new: &BTreeMap<K, V>) -> Result<(), DatapathError>
    where
        V: PartialEq,
    {
        for (key, value) in new {
            if old.get(key) != Some(value) {
                self.insert(*key, *value)?;
            }
        }
        Ok(())
    }

    fn subtract(
        &mut self,
        old: &BTreeMap<K, V>,
        new: &BTreeMap<K, V>,
    ) -> Result<(), DatapathError> {
        for key in old.keys() {
            if !new.contains_key(key) {
                self.remove(key)?;
            }
        }
        Ok(())
    }
}

/// The numbers the kernel answers with when a hash map has no room.
mod libc_errno {
    /// `Argument list too long`: a preallocated or counted map is at its size.
    pub(super) const E2BIG: i32 = 7;
    /// `No space left on device`: an LPM trie is.
    pub(super) const ENOSPC: i32 = 28;
}

/// A set of entries, of one network or of all.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Entries {
    /// `PORTS`, by host-side ifindex.
    pub ports: BTreeMap<u32, Port>,
    /// `PORT_ADDRESSES`.
    pub port_addresses: BTreeMap<PortAddressKey, u32>,
    /// `FDB`.
    pub fdb: BTreeMap<FdbKey, Endpoint>,
    /// `ENDPOINTS`.
    pub endpoints: BTreeMap<EndpointKey, Endpoint>,
    /// `FLOOD`.
    pub flood: BTreeMap<FloodKey, FloodPorts>,
    /// `NETWORKS`, by number.
    pub networks: BTreeMap<u32, Network>,
    /// `FLOOD_VTEPS`.
    pub flood_vteps: BTreeMap<FloodKey, FloodVteps>,
    /// `WIRES`.
    pub wires: BTreeMap<WireKey, u32>,
    /// `NEXT_HOPS`.
    pub next_hops: BTreeMap<EndpointKey, NextHop>,
    /// `ROUTES`.
    pub routes: BTreeMap<RouteKey, Route>,
}

/// The maps that say who is where. The reconciler is their only writer.
#[derive(Debug)]
pub struct Tables {
    /// The port of an interface.
    pub ports: Table<u32, Port, SealedPort>,
    /// Further addresses of ports.
    pub port_addresses: Table<PortAddressKey, u32>,
    /// Where a MAC address is.
    pub fdb: Table<FdbKey, Endpoint, SealedEndpoint>,
    /// Where an IP address is.
    pub endpoints: Table<EndpointKey, Endpoint, SealedEndpoint>,
    /// The ports of a network.
    pub flood: Table<FloodKey, FloodPorts>,
    /// The networks with members on other nodes.
    pub networks: Table<u32, Network, SealedNetwork>,
    /// The other nodes of a network.
    pub flood_vteps: Table<FloodKey, FloodVteps>,
    /// Networks at uplinks.
    pub wires: Table<WireKey, u32, SealedWire>,
    /// Routers that lead to members on other nodes.
    pub next_hops: Table<EndpointKey, NextHop>,
    /// Prefixes to which virtual gateways route, in other networks.
    pub routes: Table<RouteKey, Route>,
    /// The other nodes.
    pub vteps: Vteps,
    /// Packets that are taken from interfaces of the node, by ifindex.
    pub uplinks: Table<u32, Uplink>,
    /// The interfaces by which networks with egress leave the node, by ifindex.
    pub outlets: Table<u32, u32>,
    /// Budgets of storm control that ports have left.
    pub storm: Storm,
}

impl Tables {
    /// Returns the names of the hash maps, and the entries that each can have.
    pub fn limits(&self) -> [(&'static str, u32); 10] {
        [
            self.ports.limit(),
            self.port_addresses.limit(),
            self.fdb.limit(),
            self.endpoints.limit(),
            self.flood.limit(),
            self.networks.limit(),
            self.flood_vteps.limit(),
            self.wires.limit(),
            self.next_hops.limit(),
            self.routes.limit(),
        ]
    }

    /// Everything that is in the maps.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn dump(&self) -> Result<Entries, DatapathError> {
        Ok(Entries {
            ports: self.ports.dump()?,
            port_addresses: self.port_addresses.dump()?,
            fdb: self.fdb.dump()?,
            endpoints: self.endpoints.dump()?,
            flood: self.flood.dump()?,
            networks: self.networks.dump()?,
            flood_vteps: self.flood_vteps.dump()?,
            wires: self.wires.dump()?,
            next_hops: self.next_hops.dump()?,
            routes: self.routes.dump()?,
        })
    }

    /// Turns `old`, which is in the maps, into `new`.
    ///
    /// A port may send only when the network knows where it is: `PORTS` is written last and, for
    /// those that go, first. Between the two, what stays keeps forwarding.
    ///
    /// # Errors
    /// On the first refusal; what has been done by then is part of neither set, so call again with
    /// [`Self::dump`] as `old`.
    pub fn apply(&mut self, old: &Entries, new: &Entries) -> Result<(), DatapathError> {
        self.ports.subtract(&old.ports, &new.ports)?;
        self.wires.subtract(&old.wires, &new.wires)?;
        self.networks.subtract(&old.networks, &new.networks)?;
        self.next_hops.add(&old.next_hops, &new.next_hops)?;
        self.routes.add(&old.routes, &new.routes)?;
        self.fdb.add(&old.fdb, &new.fdb)?;
        self.endpoints.add(&old.endpoints, &new.endpoints)?;
        self.port_addresses
            .add(&old.port_addresses, &new.port_addresses)?;
        self.flood.add(&old.flood, &new.flood)?;
        self.flood_vteps.add(&old.flood_vteps, &new.flood_vteps)?;
        self.networks.add(&old.networks, &new.networks)?;
        self.wires.add(&old.wires, &new.wires)?;
        self.ports.add(&old.ports, &new.ports)?;
        self.flood_vteps
            .subtract(&old.flood_vteps, &new.flood_vteps)?;
        self.flood.subtract(&old.flood, &new.flood)?;
        self.fdb.subtract(&old.fdb, &new.fdb)?;
        self.endpoints.subtract(&old.endpoints, &new.endpoints)?;
        self.next_hops.subtract(&old.next_hops, &new.next_hops)?;
        self.routes.subtract(&old.routes, &new.routes)?;
        self.port_addresses
            .subtract(&old.port_addresses, &new.port_addresses)
    }
}

impl PinDir {
    /// Lists the packets taken from interfaces of the node, by any set of maps.
    ///
    /// Unreadable maps are left out.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn uplinks(&self) -> Result<BTreeMap<u32, Uplink>, DatapathError> {
        let mut all = BTreeMap::new();
        for generation in self.generations()? {
            let map = MapData::from_pin(generation.join("UPLINKS")).map(Map::HashMap);
            let table = map.map(|map| Table::<u32, Uplink>::new("UPLINKS", 0, map));
            if let Ok(Ok(table)) = table {
                all.extend(table.dump()?);
            }
        }
        Ok(all)
    }
}

/// `VTEPS` and `VTEP_SOURCES`: numbers of other nodes, and nodes of addresses.
pub struct Vteps {
    map: Array<MapData, Abi<Vtep>>,
    sources: Table<Ip16, u32>,
}

impl fmt::Debug for Vteps {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Vteps").finish_non_exhaustive()
    }
}

impl Vteps {
    pub(crate) fn new(map: Map, sources: Table<Ip16, u32>) -> Result<Self, DatapathError> {
        let map = Array::try_from(map).map_err(DatapathError::map("open", "VTEPS"))?;
        Ok(Self { map, sources })
    }

    /// The numbers that are in use.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn dump(&self) -> Result<BTreeMap<u32, Vtep>, DatapathError> {
        let mut found = BTreeMap::new();
        for (number, vtep) in (0..).zip(self.map.iter()) {
            let vtep = vtep.map_err(DatapathError::map("read", "VTEPS"))?.0;
            if vtep != NOBODY {
                found.insert(number, vtep);
            }
        }
        Ok(found)
    }

    /// The addresses tunnels may come from, with the numbers of their nodes.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn sources(&self) -> Result<BTreeMap<Ip16, u32>, DatapathError> {
        self.sources.dump()
    }

    /// Returns the tunnel end of the node with this number; `None` when it is free.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn get(&self, number: u32) -> Result<Option<Vtep>, DatapathError> {
        if number >= self.capacity() {
            return Ok(None);
        }
        let found = self.map.get(&number, 0);
        let vtep = found.map_err(DatapathError::map("read", "VTEPS"))?.0;
        Ok((vtep != NOBODY).then_some(vtep))
    }

    /// The number of the node that tunnels from this address come from.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn number_of(&self, address: &Ip16) -> Result<Option<u32>, DatapathError> {
        self.sources.get(address)
    }

    /// Numbers there can be; 0 is no node's.
    pub fn capacity(&self) -> u32 {
        self.map.len()
    }

    /// Says how a node is reached. Packets for its pods go there from now on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set(&mut self, number: u32, vtep: Vtep) -> Result<(), DatapathError> {
        self.map
            .set(number, Abi(vtep), 0)
            .map_err(DatapathError::map("write", "VTEPS"))
    }

    /// Forgets a node.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn clear(&mut self, number: u32) -> Result<(), DatapathError> {
        self.set(number, NOBODY)
    }

    /// Says which node has an address: what comes from there is heard.
    ///
    /// # Errors
    /// [`DatapathError::MapFull`].
    pub fn admit(&mut self, address: Ip16, number: u32) -> Result<(), DatapathError> {
        self.sources.insert(address, number)
    }

    /// Hears an address no more.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn refuse(&mut self, address: &Ip16) -> Result<(), DatapathError> {
        self.sources.remove(address)
    }
}
