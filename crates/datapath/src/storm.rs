//! Read and write storm control: budgets that are left, and costs of copies.
//!
//! Budgets are of ports, networks and the node; the programs alone write them.

use std::fmt;

use agent_common::drop::DropReason;
use agent_common::flood::FloodKey;
use agent_common::port::{PORT_REPLICATE, PORT_WIRE, Port};
use agent_common::storm::{self, Buckets, Flood, StormBucket, StormLimits};
use aya::maps::{Array, HashMap, Map, MapData};
use rustix::time::{ClockId, clock_gettime};

use crate::error::DatapathError;
use crate::pod::Abi;
use crate::table::Tables;

/// The buckets, and the limits that they fill by.
pub struct Storm {
    ports: Array<MapData, Abi<StormBucket>>,
    networks: HashMap<MapData, u32, Abi<StormBucket>>,
    node: Array<MapData, Abi<StormBucket>>,
    limits: Array<MapData, Abi<StormLimits>>,
}

impl fmt::Debug for Storm {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Storm").finish_non_exhaustive()
    }
}

impl Storm {
    /// `map` finds one by its name.
    pub(crate) fn new(
        mut map: impl FnMut(&'static str) -> Result<Map, DatapathError>,
    ) -> Result<Self, DatapathError> {
        let open = |name| DatapathError::map("open", name);
        Ok(Self {
            ports: Array::try_from(map("STORM")?).map_err(open("STORM"))?,
            networks: HashMap::try_from(map("STORM_NETWORKS")?).map_err(open("STORM_NETWORKS"))?,
            node: Array::try_from(map("STORM_NODE")?).map_err(open("STORM_NODE"))?,
            limits: Array::try_from(map("STORM_LIMITS")?).map_err(open("STORM_LIMITS"))?,
        })
    }

    /// Returns the costs of copies.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn limits(&self) -> Result<StormLimits, DatapathError> {
        let limits = self.limits.get(&0, 0);
        let limits = limits.map_err(DatapathError::map("read", "STORM_LIMITS"))?;
        Ok(limits.0.or_default())
    }

    /// Says what copies cost.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_limits(&mut self, limits: StormLimits) -> Result<(), DatapathError> {
        let set = self.limits.set(0, Abi(limits), 0);
        set.map_err(DatapathError::map("write", "STORM_LIMITS"))
    }

    /// Why a port could not have a frame replicated now, if so; takes nothing.
    fn refuses(&self, port: &Port, flood: Flood) -> Result<Option<DropReason>, DatapathError> {
        let index = u32::from(port.port_id);
        if index >= self.ports.len() {
            return Ok(Some(DropReason::Storm));
        }
        let read = |name| DatapathError::map("read", name);
        let network = match self.networks.get(&port.network, 0) {
            Ok(bucket) => bucket.0,
            Err(aya::maps::MapError::KeyNotFound) => StormBucket::default(),
            Err(error) => return Err(read("STORM_NETWORKS")(error)),
        };
        let buckets = Buckets {
            port: self.ports.get(&index, 0).map_err(read("STORM"))?.0,
            network,
            node: self.node.get(&0, 0).map_err(read("STORM_NODE"))?.0,
        };
        // The clock of `bpf_ktime_get_ns`.
        let now = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or(0);
        let now = seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(nanoseconds);
        Ok(storm::admit(buckets, flood, true, self.limits()?, now).err())
    }
}

impl Tables {
    /// Why a port could not have a frame replicated now, if so; takes nothing.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn refuses_flood(&self, port: &Port) -> Result<Option<DropReason>, DatapathError> {
        let first = FloodKey {
            network: port.network,
            chunk: 0,
        };
        let ports = self.flood.get(&first)?;
        let ports = ports.map_or(0, |ports| u32::from(ports.total));
        let nodes = match port.flags & (PORT_REPLICATE | PORT_WIRE) {
            0 => 0,
            PORT_REPLICATE => {
                let nodes = self.flood_vteps.get(&first)?;
                nodes.map_or(0, |nodes| u32::from(nodes.total))
            }
            _ => 1,
        };
        let flood = Flood {
            segments: 1,
            receivers: ports.saturating_sub(1) + nodes,
            ports,
        };
        self.storm.refuses(port, flood)
    }
}
