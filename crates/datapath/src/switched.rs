//! Write the sets of ports, and show their stamps to programs and to the switch.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd as _, OwnedFd};

use agent_common::guard::{GUARD_SWITCHED, Guard, SECRET_SLOTS, Slot, Stamp};
use agent_common::map as size;
use agent_common::seal::SealedGuard;
use aya::maps::{Array, Map, MapData, MapError};
use zerocopy::{FromZeros as _, IntoBytes as _};

use crate::connections::draw;
use crate::error::DatapathError;
use crate::pod::Abi;
use crate::table::Table;

/// Bytes of the secret.
const SECRET: usize = SECRET_SLOTS as usize * size_of::<Slot>();

type Stamps = Array<MapData, Abi<Stamp>>;

/// `GUARDS`, with `STAMPS` and `SWITCH_STAMPS`: sets of ports, by port id.
pub struct Sets {
    table: Table<u32, Guard, SealedGuard>,
    stamps: Stamps,
    /// For the switch, which could write it: no program believes it.
    shown: Stamps,
    files: [OwnedFd; 2],
}

/// Maps that the switch has in its memory.
#[derive(Debug)]
pub struct SwitchFiles {
    /// Connections: `SWITCH_FLOWS`.
    pub flows: OwnedFd,
    /// Stamps of ports: `SWITCH_STAMPS`.
    pub stamps: OwnedFd,
    /// Ports that the stamps are of, from 0.
    pub ports: u32,
}

impl fmt::Debug for Sets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Sets").finish_non_exhaustive()
    }
}

impl Sets {
    const NAME: &'static str = "GUARDS";
    /// The stamps for programs; it is as large as `--max-ports`.
    pub(crate) const STAMPS: &'static str = "STAMPS";
    /// The stamps for the switch, as large.
    pub(crate) const SHOWN: &'static str = "SWITCH_STAMPS";
    const FLOWS: &'static str = "SWITCH_FLOWS";

    pub(crate) fn new(
        take: &mut impl FnMut(&'static str) -> Result<Map, DatapathError>,
    ) -> Result<Self, DatapathError> {
        let (flows, shown) = (take(Self::FLOWS)?, take(Self::SHOWN)?);
        let files = [file(Self::FLOWS, &flows)?, file(Self::SHOWN, &shown)?];
        let flows = Array::try_from(flows).map_err(DatapathError::map("open", Self::FLOWS))?;
        make_secret(flows)?;
        let stamps = take(Self::STAMPS)?;
        let stamps = Array::try_from(stamps).map_err(DatapathError::map("open", Self::STAMPS))?;
        Ok(Self {
            table: Table::new(Self::NAME, size::MAX_GUARDS, take(Self::NAME)?)?,
            stamps,
            shown: Array::try_from(shown).map_err(DatapathError::map("open", Self::SHOWN))?,
            files,
        })
    }

    /// Sets the sets of a port.
    ///
    /// The switch judges nothing of it meanwhile, and the programs look at the sets themselves.
    ///
    /// # Errors
    /// [`DatapathError::MapFull`] when there is no room.
    pub fn insert(&mut self, port: u32, guard: Guard) -> Result<(), DatapathError> {
        self.stamp(port, [Stamp::CHANGING; 2])?;
        self.table.insert(port, guard)?;
        self.confirm(port, &guard)
    }

    /// Shows the stamp of sets of a port that are in force.
    ///
    /// An agent that ended in the middle of [`Self::insert`] has not.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn confirm(&mut self, port: u32, guard: &Guard) -> Result<(), DatapathError> {
        let stamp = Stamp::of(guard);
        let shown = match guard.flags & GUARD_SWITCHED {
            0 => Stamp::default(),
            _ => stamp,
        };
        self.stamp(port, [stamp, shown])
    }

    /// Removes the sets of a port; one that has none is no error.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove(&mut self, port: &u32) -> Result<(), DatapathError> {
        self.stamp(*port, [Stamp::CHANGING; 2])?;
        self.table.remove(port)?;
        self.stamp(*port, [Stamp::default(); 2])
    }

    /// Has no stamp of ports without sets.
    ///
    /// An agent that ended in the middle of [`Self::remove`] leaves one.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn sweep(&mut self) -> Result<(), DatapathError> {
        let guards = self.table.dump()?;
        for port in (0..self.stamps.len()).filter(|port| !guards.contains_key(port)) {
            let stamps = [(Self::STAMPS, &self.stamps), (Self::SHOWN, &self.shown)];
            let mut is_any = false;
            for (name, map) in stamps {
                let found = map
                    .get(&port, 0)
                    .map_err(DatapathError::map("read", name))?;
                is_any |= found.0.is_any();
            }
            if is_any {
                self.stamp(port, [Stamp::default(); 2])?;
            }
        }
        Ok(())
    }

    /// The sets of a port.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn get(&self, port: &u32) -> Result<Option<Guard>, DatapathError> {
        self.table.get(port)
    }

    /// The sets of a port, as programs find them: by its stamp where that is whole.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn found(&self, port: u32) -> Result<Option<Guard>, DatapathError> {
        if port < self.stamps.len() {
            let found = self.stamps.get(&port, 0);
            let Abi(stamp) = found.map_err(DatapathError::map("read", Self::STAMPS))?;
            if let Some(guard) = stamp.guard() {
                return Ok(Some(guard));
            }
        }
        self.table.get(&port)
    }

    /// The sets of all ports.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn dump(&self) -> Result<BTreeMap<u32, Guard>, DatapathError> {
        self.table.dump()
    }

    /// Reports whether no port has sets.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn is_empty(&self) -> Result<bool, DatapathError> {
        self.table.is_empty()
    }

    /// Returns descriptors of the maps, for the switch.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub fn files(&self) -> Result<SwitchFiles, DatapathError> {
        let again = |name, file: &OwnedFd| {
            let again = file.try_clone().map_err(MapError::from);
            again.map_err(DatapathError::map("open", name))
        };
        let [flows, stamps] = &self.files;
        Ok(SwitchFiles {
            flows: again(Self::FLOWS, flows)?,
            stamps: again(Self::STAMPS, stamps)?,
            ports: self.stamps.len(),
        })
    }

    fn stamp(&mut self, port: u32, [stamp, shown]: [Stamp; 2]) -> Result<(), DatapathError> {
        // A port beyond the maps has none: its frames are judged by the sets.
        if port >= self.stamps.len() {
            return Ok(());
        }
        let written = self.stamps.set(port, Abi(stamp), 0);
        written.map_err(DatapathError::map("write", Self::STAMPS))?;
        let written = self.shown.set(port, Abi(shown), 0);
        written.map_err(DatapathError::map("write", Self::SHOWN))
    }
}

/// Has the switch judge nothing by the stamps of a layout that is out of use.
///
/// It has them in its memory until the next agent gives it others.
///
/// # Errors
/// When there are none, or the kernel refuses.
pub(crate) fn retire(stamps: Map) -> Result<(), DatapathError> {
    let stamps = Array::<_, Abi<Stamp>>::try_from(stamps);
    let mut stamps = stamps.map_err(DatapathError::map("open", Sets::SHOWN))?;
    for port in 0..stamps.len() {
        let written = stamps.set(port, Abi(Stamp::CHANGING), 0);
        written.map_err(DatapathError::map("write", Sets::SHOWN))?;
    }
    Ok(())
}

/// Opens a map again.
fn file(name: &'static str, map: &Map) -> Result<OwnedFd, DatapathError> {
    let again = match map {
        Map::Array(data) => data
            .fd()
            .as_fd()
            .try_clone_to_owned()
            .map_err(MapError::from),
        _ => Err(MapError::InvalidMapType { map_type: 0 }),
    };
    again.map_err(DatapathError::map("open", name))
}

/// Writes the secret of the connections' slots, where it is not there in full.
fn make_secret(mut flows: Array<MapData, Abi<Slot>>) -> Result<(), DatapathError> {
    let mut is_there = true;
    for slot in 0..SECRET_SLOTS {
        let found = flows.get(&slot, 0);
        let Abi(found) = found.map_err(DatapathError::map("read", Sets::FLOWS))?;
        is_there &= found != Slot::new_zeroed();
    }
    if is_there {
        return Ok(());
    }
    let mut bytes = [0; SECRET];
    draw(Sets::FLOWS, &mut bytes)?;
    for (slot, bytes) in (0..).zip(bytes.chunks_exact(size_of::<Slot>())) {
        let mut secret = Slot::new_zeroed();
        secret.as_mut_bytes().copy_from_slice(bytes);
        let written = flows.set(slot, Abi(secret), 0);
        written.map_err(DatapathError::map("write", Sets::FLOWS))?;
    }
    Ok(())
}
