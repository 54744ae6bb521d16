//! Name and check the pins of one layout, of the dispatcher, and of lasting state.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use aya::maps::MapData;

use crate::error::DatapathError;
use crate::lasting::{self, Kind};
use crate::object::Layout;
use crate::pin::PinDir;

/// The maps that belong to the dispatcher, whatever the layout of the others.
pub(crate) const ROOT_MAPS: [&str; 3] = ["ROOT", "ROOT_XDP", "ROOT_MISSES"];
/// Directory among the maps that packets meet.
///
/// Without it, maps may not have got yet what older ones had counted.
const SERVED: &str = "served";

/// Directories of the pins of one layout.
pub(crate) struct Homes {
    pub(crate) root: PathBuf,
    pub(crate) generation: PathBuf,
    /// One for each of [`lasting::KINDS`], in that order.
    pub(crate) states: Vec<PathBuf>,
}

impl Homes {
    pub(crate) fn of(pins: &PinDir, generation: &Path, layout: &Layout) -> Self {
        Self {
            root: pins.root(),
            generation: generation.to_path_buf(),
            states: lasting::KINDS
                .iter()
                .map(|kind| kind.directory(pins, layout))
                .collect(),
        }
    }

    /// Returns the path of the pin of a map; `JUMP` has one for each set of programs.
    pub(crate) fn of_map(&self, map: &str) -> PathBuf {
        let kinds = lasting::KINDS.iter().zip(&self.states);
        let state = kinds
            .filter(|(kind, _)| kind.maps.contains(&map))
            .map(|(_, directory)| directory)
            .next();
        let directory = match state {
            Some(directory) => directory,
            None if ROOT_MAPS.contains(&map) => &self.root,
            None => &self.generation,
        };
        directory.join(map)
    }

    pub(crate) fn create(&self) -> Result<(), DatapathError> {
        for path in self.states.iter().chain([&self.generation]) {
            fs::create_dir_all(path).map_err(DatapathError::pin("create", path))?;
        }
        Ok(())
    }

    /// Compares pinned maps with a layout.
    ///
    /// # Errors
    /// When one is not what it should be.
    pub(crate) fn check(&self, layout: &Layout) -> Result<(), DatapathError> {
        for (name, expected) in &layout.0 {
            let path = self.of_map(name);
            if !path.exists() {
                continue;
            }
            let foreign = || DatapathError::ForeignMap { path: path.clone() };
            let info = MapData::from_pin(&path)
                .and_then(|map| map.info())
                .map_err(|_| foreign())?;
            let same = info
                .map_type()
                .is_ok_and(|kind| kind as u32 == expected.map_type)
                && info.key_size() == expected.key_size
                && info.value_size() == expected.value_size
                && info.max_entries() == expected.max_entries;
            if !same {
                return Err(foreign());
            }
        }
        Ok(())
    }
}

/// True when packets meet the maps in a directory, or did when their agent died.
pub(crate) fn is_served(directory: &Path) -> bool {
    directory.join(SERVED).exists()
}

/// Leaves the directories whose maps packets meet; all, if none says so.
///
/// Agents before this mark have not made it.
pub(crate) fn served(mut directories: Vec<PathBuf>) -> Vec<PathBuf> {
    if directories.iter().any(|path| is_served(path)) {
        directories.retain(|path| is_served(path));
    }
    directories
}

/// Notes that packets meet the maps in a directory.
pub(crate) fn mark_served(directory: &Path) -> Result<(), DatapathError> {
    let path = directory.join(SERVED);
    match fs::create_dir(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(DatapathError::pin("create", &path)(error))
        }
        _ => Ok(()),
    }
}

/// Notes that packets meet the maps in a directory no more.
pub(crate) fn unmark_served(directory: &Path) -> Result<(), DatapathError> {
    let path = directory.join(SERVED);
    match fs::remove_dir(&path) {
        Ok(()) => Ok(()),
        // What is no directory has no mark, whatever its name.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(())
        }
        Err(error) => Err(DatapathError::pin("remove", &path)(error)),
    }
}

/// Returns the digest of the maps that belong to one layout.
///
/// The dispatcher's, the jump table, and state that outlives layouts are not among them.
pub(crate) fn digest(layout: &Layout) -> String {
    let mut own = layout.clone();
    own.0.retain(|name, _| {
        !ROOT_MAPS.contains(&name.as_str()) && name != "JUMP" && Kind::of(name).is_none()
    });
    own.digest()
}

/// The jump tables of a layout, by number.
pub(crate) fn jumps(generation: &Path) -> Result<Vec<(u64, PathBuf)>, DatapathError> {
    let entries = fs::read_dir(generation).map_err(DatapathError::pin("list", generation))?;
    Ok(entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let number = entry
                .file_name()
                .to_str()?
                .strip_prefix("jump-")?
                .parse()
                .ok()?;
            Some((number, entry.path()))
        })
        .collect())
}

/// Returns a name for a jump table that no program set has had.
///
/// The tables of those that run must stay as they are.
pub(crate) fn next_jump(generation: &Path) -> Result<PathBuf, DatapathError> {
    let last = jumps(generation)?
        .into_iter()
        .map(|(number, _)| number)
        .max()
        .unwrap_or(0);
    Ok(generation.join(format!("jump-{}", last + 1)))
}
