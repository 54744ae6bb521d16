//! The eBPF object and the layout of its maps.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use aya_obj::maps::PinningType;
use aya_obj::{Map, Object};

use crate::error::DatapathError;

/// Keeps the bytes aligned as the ELF parser needs them.
static EMBEDDED: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/podnet-ebpf.o"));

/// The object of AF_XDP ports.
static XSK_PORT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/podnet-xsk.o"));

/// The object of captures.
static TAP: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/podnet-tap.o"));

/// The object of captures in this binary.
pub(crate) fn of_tap() -> Result<&'static [u8], DatapathError> {
    if TAP.is_empty() {
        return Err(DatapathError::NoObject);
    }
    Ok(TAP)
}

/// The object of AF_XDP ports in this binary.
pub(crate) fn of_xsk_port() -> Result<&'static [u8], DatapathError> {
    if XSK_PORT.is_empty() {
        return Err(DatapathError::NoObject);
    }
    Ok(XSK_PORT)
}

/// The object to load: a file, or the one in this binary.
pub(crate) fn bytes(file: Option<&PathBuf>) -> Result<Cow<'static, [u8]>, DatapathError> {
    match file {
        Some(path) => fs::read(path)
            .map(Cow::Owned)
            .map_err(|source| DatapathError::ReadObject {
                path: path.clone(),
                source,
            }),
        None if EMBEDDED.is_empty() => Err(DatapathError::NoObject),
        None => Ok(Cow::Borrowed(EMBEDDED)),
    }
}

/// One map's layout, as `bpf(2)` `BPF_MAP_CREATE` takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapLayout {
    /// `BPF_MAP_TYPE_*`.
    pub map_type: u32,
    /// Bytes.
    pub key_size: u32,
    /// Bytes.
    pub value_size: u32,
    /// Entries, or bytes for a ring buffer.
    pub max_entries: u32,
    /// `BPF_F_*`.
    pub flags: u32,
}

/// The layouts of all maps of an object, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout(pub BTreeMap<String, MapLayout>);

impl Layout {
    /// Reads the layout of `object` with some sizes changed.
    ///
    /// # Errors
    /// When the object does not parse.
    pub fn of(object: &[u8], sizes: &[(&'static str, u32)]) -> Result<Self, DatapathError> {
        let object = Object::parse(object).map_err(|source| DatapathError::ParseObject {
            source: Box::new(source),
        })?;
        let mut maps = BTreeMap::new();
        for (name, map) in &object.maps {
            // Global data and maps without a pin are not state: they are made with each load.
            if matches!(map, Map::Legacy(legacy) if legacy.section_kind == aya_obj::EbpfSectionKind::Maps)
                && map.pinning() != PinningType::None
            {
                let changed = sizes
                    .iter()
                    .find(|(other, _)| other == name)
                    .map(|(_, size)| *size);
                maps.insert(
                    name.clone(),
                    MapLayout {
                        map_type: map.map_type(),
                        key_size: map.key_size(),
                        value_size: map.value_size(),
                        max_entries: changed.unwrap_or_else(|| map.max_entries()),
                        flags: map.map_flags(),
                    },
                );
            }
        }
        Ok(Self(maps))
    }

    /// 16 hexadecimal digits that differ when any layout differs (FNV-1a, 64 bits).
    pub fn digest(&self) -> String {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut mix = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for (name, map) in &self.0 {
            mix(name.as_bytes());
            for number in [
                map.map_type,
                map.key_size,
                map.value_size,
                map.max_entries,
                map.flags,
            ] {
                mix(&number.to_le_bytes());
            }
        }
        format!("{hash:016x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_change_of_a_layout_changes_the_digest() {
        let map = MapLayout {
            map_type: 1,
            key_size: 4,
            value_size: 64,
            max_entries: 10,
            flags: 0,
        };
        let layout = |name: &str, map| Layout(BTreeMap::from([(name.to_owned(), map)])).digest();
        let base = layout("PORTS", map);
        for other in [
            layout("PORT", map),
            layout(
                "PORTS",
                MapLayout {
                    value_size: 65,
                    ..map
                },
            ),
            layout(
                "PORTS",
                MapLayout {
                    max_entries: 11,
                    ..map
                },
            ),
            layout("PORTS", MapLayout { flags: 1, ..map }),
        ] {
            assert_ne!(base, other);
        }
    }
}
