//! `STORM`, to be looked at: the programs alone write it.

use std::fmt;

use agent_common::storm::StormBucket;
use aya::maps::{Array, Map, MapData};
use rustix::time::{ClockId, clock_gettime};

use crate::error::DatapathError;
use crate::pod::Abi;

/// What ports have left of their storm control.
pub struct Storm {
    map: Array<MapData, Abi<StormBucket>>,
}

impl fmt::Debug for Storm {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Storm").finish_non_exhaustive()
    }
}

impl Storm {
    pub(crate) fn new(map: Map) -> Result<Self, DatapathError> {
        let map = Array::try_from(map).map_err(DatapathError::map("open", "STORM"))?;
        Ok(Self { map })
    }

    /// Whether a port could have a frame replicated now; takes nothing. A port beyond the table could
    /// not.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn has_room(&self, port_id: u16) -> Result<bool, DatapathError> {
        let index = u32::from(port_id);
        if index >= self.map.len() {
            return Ok(false);
        }
        let bucket = self.map.get(&index, 0);
        let bucket = bucket.map_err(DatapathError::map("read", "STORM"))?.0;
        // The clock of `bpf_ktime_get_ns`.
        let now = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or(0);
        let now = seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(nanoseconds);
        Ok(bucket.take(now).is_some())
    }
}
