//! Read and write the maps of guarded ports: compiled policies, and connections.
//!
//! Policies say what may pass; the connections are those that they let pass.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use agent_common::addr::Ip16;
use agent_common::guard::{AtomKey, Classes, Row, RowKey, SetKey};
use agent_common::map as size;
use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Map, MapData, MapError};

use crate::connections::Connections;
use crate::error::DatapathError;
use crate::pod::Abi;
use crate::switched::Sets;
use crate::table::{Bytes, Table};

/// The maps of guarded ports.
#[derive(Debug)]
pub struct GuardMaps {
    /// Sets of ports.
    pub guards: Sets,
    /// Atoms of members and nodes.
    pub atoms: Table<AtomKey, u32>,
    /// Atoms of all other addresses.
    pub blocks: Blocks,
    /// Classes of ports, by generation.
    pub classes: Table<u32, Classes>,
    /// Rows of atoms in sets.
    pub sets: Table<SetKey, u32>,
    /// Rows.
    pub rows: Table<RowKey, Row>,
    /// Connections.
    pub connections: Arc<Connections>,
}

impl GuardMaps {
    pub(crate) fn new(
        mut take: impl FnMut(&'static str) -> Result<Map, DatapathError>,
    ) -> Result<Self, DatapathError> {
        fn table<K: Bytes + Ord, V: Bytes>(
            name: &'static str,
            most: u32,
            take: &mut impl FnMut(&'static str) -> Result<Map, DatapathError>,
        ) -> Result<Table<K, V>, DatapathError> {
            Table::new(name, most, take(name)?)
        }
        Ok(Self {
            connections: Arc::new(Connections::new(&mut take)?),
            guards: Sets::new(&mut take)?,
            atoms: table("ATOMS", size::MAX_ATOMS, &mut take)?,
            blocks: Blocks::new(take(Blocks::NAME)?)?,
            classes: table("CLASSES", size::MAX_GENERATIONS, &mut take)?,
            sets: table("SETS", size::MAX_SET_ROWS, &mut take)?,
            rows: table("ROWS", size::MAX_ROWS, &mut take)?,
        })
    }
}

/// `BLOCKS`: atoms by longest prefix.
pub struct Blocks {
    map: LpmTrie<MapData, Abi<AtomKey>, u32>,
}

/// A block: its generation, its first address, and its length.
///
/// The length is in bits of the mapped address.
pub type BlockKey = (u32, Ip16, u8);

impl fmt::Debug for Blocks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Blocks").finish_non_exhaustive()
    }
}

impl Blocks {
    const NAME: &'static str = "BLOCKS";
    /// Bits of the generation, in front of the address.
    const GENERATION: u32 = 32;

    fn new(map: Map) -> Result<Self, DatapathError> {
        let map = LpmTrie::try_from(map).map_err(DatapathError::map("open", Self::NAME))?;
        Ok(Self { map })
    }

    fn key((generation, ip, length): BlockKey) -> Key<Abi<AtomKey>> {
        Key::new(
            Self::GENERATION + u32::from(length),
            Abi(AtomKey { generation, ip }),
        )
    }

    /// Sets the atom of a block.
    ///
    /// # Errors
    /// [`DatapathError::MapFull`] when there is no room.
    pub fn insert(&mut self, key: BlockKey, atom: u32) -> Result<(), DatapathError> {
        match self.map.insert(&Self::key(key), atom, 0) {
            Err(MapError::SyscallError(error)) if error.io_error.raw_os_error() == Some(28) => {
                Err(DatapathError::MapFull {
                    name: Self::NAME,
                    max_entries: size::MAX_BLOCKS,
                })
            }
            other => other.map_err(DatapathError::map("write", Self::NAME)),
        }
    }

    /// Removes a block; one that is not there is removed already.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove(&mut self, key: BlockKey) -> Result<(), DatapathError> {
        match self.map.remove(&Self::key(key)) {
            Err(MapError::KeyNotFound) => Ok(()),
            Err(MapError::SyscallError(error))
                if error.io_error.kind() == std::io::ErrorKind::NotFound =>
            {
                Ok(())
            }
            other => other.map_err(DatapathError::map("write", Self::NAME)),
        }
    }

    /// The atom of an address, by the longest block that has it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn lookup(&self, generation: u32, ip: Ip16) -> Result<Option<u32>, DatapathError> {
        match self.map.get(&Self::key((generation, ip, 128)), 0) {
            Ok(atom) => Ok(Some(atom)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(DatapathError::map("read", Self::NAME)(error)),
        }
    }

    /// Lists all blocks.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn dump(&self) -> Result<BTreeMap<BlockKey, u32>, DatapathError> {
        let entry = |entry: Result<(Key<Abi<AtomKey>>, u32), MapError>| {
            let (key, atom) = entry.map_err(DatapathError::map("read", Self::NAME))?;
            let Abi(AtomKey { generation, ip }) = key.data();
            let length = key.prefix_len().saturating_sub(Self::GENERATION);
            let length = u8::try_from(length).unwrap_or(u8::MAX);
            Ok(((generation, ip, length), atom))
        };
        self.map.iter().map(entry).collect()
    }
}
