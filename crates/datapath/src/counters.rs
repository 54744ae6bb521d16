//! Reading and carrying over what the programs count.

use std::fmt;

use agent_common::counter::{Count, NetworkDropKey, PortCounters, port_reason};
use agent_common::drop::DropReason;
use agent_common::map::MAX_DROP_REASONS;
use aya::maps::{Map, MapData, MapError, PerCpuArray, PerCpuHashMap, PerCpuValues};
use aya::util::nr_cpus;

use crate::error::DatapathError;
use crate::pod::Abi;

/// Packets dropped for one reason on one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DropCount {
    /// Network; 0 for interfaces that are no port.
    pub network: u32,
    /// Why.
    pub reason: DropReason,
    /// How many.
    pub count: Count,
}

/// `PORT_COUNTERS`.
type Ports = PerCpuArray<MapData, Abi<PortCounters>>;
/// `PORT_REASONS`.
type PortReasons = PerCpuHashMap<MapData, Abi<u32>, Abi<u64>>;
/// `DROPS`.
type Drops = PerCpuArray<MapData, Abi<Count>>;
/// `NETWORK_DROPS`.
type NetworkDrops = PerCpuHashMap<MapData, Abi<NetworkDropKey>, Abi<Count>>;

/// The counters of the node.
pub struct Counters {
    ports: Ports,
    port_reasons: PortReasons,
    network_drops: NetworkDrops,
    drops: Drops,
    root_misses: PerCpuArray<MapData, Abi<u64>>,
}

/// Opens the counters of ports in the map that `map` finds by name.
pub(crate) fn ports(
    map: impl FnOnce(&'static str) -> Result<Map, DatapathError>,
) -> Result<Ports, DatapathError> {
    let name = "PORT_COUNTERS";
    PerCpuArray::try_from(map(name)?).map_err(DatapathError::map("open", name))
}

/// Opens the counters of ports by reason in the map that `map` finds by name.
pub(crate) fn port_reasons(
    map: impl FnOnce(&'static str) -> Result<Map, DatapathError>,
) -> Result<PortReasons, DatapathError> {
    let name = "PORT_REASONS";
    PerCpuHashMap::try_from(map(name)?).map_err(DatapathError::map("open", name))
}

/// Opens the counters of drops, in all and by network, in maps found by name.
pub(crate) fn drops(
    mut map: impl FnMut(&'static str) -> Result<Map, DatapathError>,
) -> Result<(Drops, NetworkDrops), DatapathError> {
    let open = DatapathError::map;
    let drops = PerCpuArray::try_from(map("DROPS")?).map_err(open("open", "DROPS"))?;
    let by_network =
        PerCpuHashMap::try_from(map("NETWORK_DROPS")?).map_err(open("open", "NETWORK_DROPS"))?;
    Ok((drops, by_network))
}

impl fmt::Debug for Counters {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Counters").finish_non_exhaustive()
    }
}

impl Counters {
    /// Opens all counters in the maps that `map` finds by name.
    pub(crate) fn new(
        mut map: impl FnMut(&'static str) -> Result<Map, DatapathError>,
    ) -> Result<Self, DatapathError> {
        let (drops, network_drops) = drops(&mut map)?;
        Ok(Self {
            ports: ports(&mut map)?,
            port_reasons: port_reasons(&mut map)?,
            drops,
            network_drops,
            root_misses: PerCpuArray::try_from(map("ROOT_MISSES")?)
                .map_err(DatapathError::map("open", "ROOT_MISSES"))?,
        })
    }

    /// One port's traffic, all CPUs together.
    ///
    /// # Errors
    /// When the kernel refuses, or the id is beyond the node's ports.
    pub fn port(&self, port_id: u16) -> Result<PortCounters, DatapathError> {
        let values = self
            .ports
            .get(&u32::from(port_id), 0)
            .map_err(DatapathError::map("read", "PORT_COUNTERS"))?;
        Ok(values.iter().fold(PortCounters::default(), |sum, value| {
            add_ports(sum, value.0)
        }))
    }

    /// Lists packets of a port that were dropped, by reason, without zeroes.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn port_drops(&self, port_id: u16) -> Result<Vec<(DropReason, u64)>, DatapathError> {
        let mut found = Vec::new();
        for reason in DropReason::ALL {
            let key = Abi(port_reason(port_id, *reason));
            let values = match self.port_reasons.get(&key, 0) {
                Ok(values) => values,
                Err(error) if is_absent(&error) => continue,
                Err(error) => return Err(DatapathError::map("read", "PORT_REASONS")(error)),
            };
            found.push((*reason, values.iter().map(|value| value.0).sum()));
        }
        Ok(found)
    }

    /// Zeroes a port's counters, before its id is handed out again.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn reset_port(&mut self, port_id: u16) -> Result<(), DatapathError> {
        // Reasons first: as long as drops are counted, the next reset looks for reasons.
        if self.port(port_id)?.dropped.packets > 0 {
            for reason in DropReason::ALL {
                let key = Abi(port_reason(port_id, *reason));
                let removed = gone(self.port_reasons.remove(&key));
                removed.map_err(DatapathError::map("write", "PORT_REASONS"))?;
            }
        }
        let zero = per_cpu(Abi(PortCounters::default()), "PORT_COUNTERS")?;
        self.ports
            .set(u32::from(port_id), zero, 0)
            .map_err(DatapathError::map("write", "PORT_COUNTERS"))
    }

    /// Lists drops by network and reason, without zeroes.
    ///
    /// Drops that the split by network lost for want of room follow as network 0.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn drops(&self) -> Result<Vec<DropCount>, DatapathError> {
        let mut found = Vec::new();
        for entry in self.network_drops.iter() {
            let (key, values) = entry.map_err(DatapathError::map("read", "NETWORK_DROPS"))?;
            let Some(reason) = DropReason::from_number(key.0.reason) else {
                continue;
            };
            let count = values
                .iter()
                .fold(Count::default(), |sum, value| add(sum, value.0));
            found.push(DropCount {
                network: key.0.network,
                reason,
                count,
            });
        }
        let mut misses = 0;
        let per_cpu = self.root_misses.get(&0, 0);
        for value in per_cpu
            .map_err(DatapathError::map("read", "ROOT_MISSES"))?
            .iter()
        {
            misses += value.0;
        }
        if misses > 0 {
            let count = Count {
                packets: misses,
                bytes: 0,
            };
            found.push(DropCount {
                network: 0,
                reason: DropReason::NoProgram,
                count,
            });
        }
        found.sort_by_key(|drop| (drop.network, drop.reason));
        Ok(found)
    }

    /// Drops by reason on all networks together; exact whatever else is full.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn total_drops(&self, reason: DropReason) -> Result<Count, DatapathError> {
        let values = self
            .drops
            .get(&(reason as u32), 0)
            .map_err(DatapathError::map("read", "DROPS"))?;
        Ok(values
            .iter()
            .fold(Count::default(), |sum, value| add(sum, value.0)))
    }

    /// Forgets the drops of a network that is gone.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn forget_network(&mut self, network: u32) -> Result<(), DatapathError> {
        for reason in DropReason::ALL {
            let key = Abi(NetworkDropKey {
                network,
                reason: *reason as u32,
            });
            let removed = gone(self.network_drops.remove(&key));
            removed.map_err(DatapathError::map("write", "NETWORK_DROPS"))?;
        }
        Ok(())
    }

    /// Forgets the drops of all networks.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn forget_drops(&mut self) -> Result<(), DatapathError> {
        let keys = self.network_drops.keys().collect::<Result<Vec<_>, _>>();
        for key in keys.map_err(DatapathError::map("read", "NETWORK_DROPS"))? {
            self.network_drops
                .remove(&key)
                .map_err(DatapathError::map("write", "NETWORK_DROPS"))?;
        }
        Ok(())
    }

    /// Takes over what an older map has counted of ports.
    pub(crate) fn inherit_ports(&mut self, older: &Ports) -> Result<(), DatapathError> {
        for index in 0..older.len().min(self.ports.len()) {
            let read = older.get(&index, 0);
            let values = read.map_err(DatapathError::map("read", "PORT_COUNTERS"))?;
            let own = self.ports.get(&index, 0);
            let own = own.map_err(DatapathError::map("read", "PORT_COUNTERS"))?;
            if values.iter().ne(own.iter()) {
                let write = self.ports.set(index, values, 0);
                write.map_err(DatapathError::map("write", "PORT_COUNTERS"))?;
            }
        }
        Ok(())
    }

    /// Copies reasons of the layout before, if it has counted them.
    pub(crate) fn inherit_port_reasons(
        &mut self,
        older: Option<&PortReasons>,
    ) -> Result<(), DatapathError> {
        let read = |error| DatapathError::map("read", "PORT_REASONS")(error);
        let write = |error| DatapathError::map("write", "PORT_REASONS")(error);
        // What an agent copied that died then may be gone since.
        let own = self.port_reasons.keys().collect::<Result<Vec<_>, _>>();
        for key in own.map_err(read)? {
            self.port_reasons.remove(&key).map_err(write)?;
        }
        let end = self.ports.len().saturating_mul(MAX_DROP_REASONS);
        for entry in older.into_iter().flat_map(PortReasons::iter) {
            let (key, values) = entry.map_err(read)?;
            if key.0 < end {
                self.port_reasons.insert(key, values, 0).map_err(write)?;
            }
        }
        Ok(())
    }

    /// Takes over what older maps have counted of drops.
    pub(crate) fn inherit_drops(
        &mut self,
        drops: &Drops,
        by_network: &NetworkDrops,
    ) -> Result<(), DatapathError> {
        for index in 0..drops.len().min(self.drops.len()) {
            let read = drops.get(&index, 0);
            let values = read.map_err(DatapathError::map("read", "DROPS"))?;
            self.drops
                .set(index, values, 0)
                .map_err(DatapathError::map("write", "DROPS"))?;
        }
        for entry in by_network.iter() {
            let (key, values) = entry.map_err(DatapathError::map("read", "NETWORK_DROPS"))?;
            let write = self.network_drops.insert(key, values, 0);
            write.map_err(DatapathError::map("write", "NETWORK_DROPS"))?;
        }
        Ok(())
    }
}

/// Takes a removal of a key that was not in the map for done.
fn gone(removed: Result<(), MapError>) -> Result<(), MapError> {
    removed.or_else(|error| is_absent(&error).then_some(()).ok_or(error))
}

/// True when a key was not in the map.
fn is_absent(error: &MapError) -> bool {
    match error {
        MapError::KeyNotFound => true,
        MapError::SyscallError(error) => error.io_error.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

fn per_cpu<T: aya::Pod>(value: T, name: &'static str) -> Result<PerCpuValues<T>, DatapathError> {
    let cpus = nr_cpus().map_err(|(_, error)| DatapathError::pin("count CPUs for", name)(error))?;
    PerCpuValues::try_from(vec![value; cpus]).map_err(DatapathError::pin("size values of", name))
}

fn add(sum: Count, other: Count) -> Count {
    Count {
        packets: sum.packets + other.packets,
        bytes: sum.bytes + other.bytes,
    }
}

fn add_ports(sum: PortCounters, other: PortCounters) -> PortCounters {
    PortCounters {
        from_pod: add(sum.from_pod, other.from_pod),
        to_pod: add(sum.to_pod, other.to_pod),
        dropped: add(sum.dropped, other.dropped),
        flooded: add(sum.flooded, other.flooded),
    }
}
