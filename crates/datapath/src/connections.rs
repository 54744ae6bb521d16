//! Read, count and remove connections that policies let pass.
//!
//! The programs make them.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::AsFd as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_common::guard::{FlowKey, FlowWords, tick};
use agent_common::map::MAX_FLOWS;
use aya::maps::{HashMap, Map, MapData, MapError};
use rustix::time::{ClockId, clock_gettime};

use crate::error::DatapathError;
use crate::pod::Abi;

/// The most entries that one look passes.
///
/// The kernel begins at the first one again where the entry that it stands at goes.
const MOST_STEPS: usize = 2 * MAX_FLOWS as usize;

type Flows = HashMap<MapData, Abi<FlowKey>, Abi<FlowWords>>;

/// `FLOWS`, by a handle of its own: a look at all of them holds nobody up.
pub struct Connections {
    map: Mutex<Flows>,
}

/// Connections that a sweep has found.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Swept {
    /// Connections by network.
    pub alive: BTreeMap<u32, usize>,
    /// Entries that were removed.
    pub removed: usize,
}

impl fmt::Debug for Connections {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Connections").finish_non_exhaustive()
    }
}

/// The time as programs note it in connections, ticks.
pub fn now() -> u32 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
    tick(seconds.saturating_mul(1_000_000_000).saturating_add(rest))
}

impl Connections {
    pub(crate) const NAME: &'static str = "FLOWS";

    /// Opens the map a second time.
    pub(crate) fn beside(map: &Map) -> Result<Self, DatapathError> {
        let error = DatapathError::map("open", Self::NAME);
        let Map::LruHashMap(data) = map else {
            return Err(error(MapError::InvalidMapType { map_type: 0 }));
        };
        let again = data.fd().as_fd().try_clone_to_owned();
        let opened = again.map_err(MapError::from).and_then(MapData::from_fd);
        let opened = opened.and_then(|data| HashMap::try_from(Map::LruHashMap(data)));
        let map = opened.map(Mutex::new).map_err(error)?;
        Ok(Self { map })
    }

    fn lock(&self) -> MutexGuard<'_, Flows> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows each entry, those that are over, too.
    ///
    /// One may come twice while others come and go.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn each(&self, show: impl FnMut(FlowKey, FlowWords)) -> Result<(), DatapathError> {
        each(&self.lock(), show)
    }

    /// Counts connections, and removes at most `most` entries that are none any more.
    ///
    /// Each is looked at again before its removal. A packet that comes in between loses its entry, and the next one is
    /// judged.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn sweep(&self, now: u32, most: usize) -> Result<Swept, DatapathError> {
        let mut map = self.lock();
        let (mut swept, mut expired) = (Swept::default(), Vec::new());
        each(&map, |key, words| {
            if words.is_alive(key.protocol, now) {
                *swept.alive.entry(key.network).or_default() += 1;
            } else if expired.len() < most {
                expired.push(key);
            }
        })?;
        for key in expired {
            swept.removed += usize::from(remove_expired(&mut map, &key, now)?);
        }
        Ok(swept)
    }
}

fn each(map: &Flows, mut show: impl FnMut(FlowKey, FlowWords)) -> Result<(), DatapathError> {
    for entry in map.iter().take(MOST_STEPS) {
        let (key, words) = entry.map_err(DatapathError::map("read", Connections::NAME))?;
        show(key.0, words.0);
    }
    Ok(())
}

fn remove_expired(map: &mut Flows, key: &FlowKey, now: u32) -> Result<bool, DatapathError> {
    let words = match map.get(&Abi(*key), 0) {
        Ok(words) => words.0,
        Err(MapError::KeyNotFound) => return Ok(false),
        Err(error) => return Err(DatapathError::map("read", Connections::NAME)(error)),
    };
    if words.is_alive(key.protocol, now) {
        return Ok(false);
    }
    match map.remove(&Abi(*key)) {
        Ok(()) => Ok(true),
        Err(MapError::KeyNotFound) => Ok(false),
        Err(MapError::SyscallError(error))
            if error.io_error.kind() == std::io::ErrorKind::NotFound =>
        {
            Ok(false)
        }
        Err(error) => Err(DatapathError::map("write", Connections::NAME)(error)),
    }
}
