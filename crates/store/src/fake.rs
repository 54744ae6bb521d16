//! A disk that fails and crashes on demand, for tests.
//!
//! It keeps what is on the platter apart from what is in the cache. A crash keeps everything up to
//! the last completed flush, and of the writes after it any part at all, sector by sector and in
//! any order: more than a real disk does, so what survives it survives a real one.

use std::{
    collections::BTreeSet,
    io,
    ops::Range,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use redb::{Builder, Database, StorageBackend};

use crate::{
    databases::{CommitFailed, Databases},
    error::StoreError,
    file,
    place::{Opened, Place},
    store::Store,
};

/// The unit a disk writes whole, bytes.
const SECTOR: usize = 512;
/// The unit in which room is given out, bytes.
const BLOCK: usize = 4096;

/// A disk in memory; clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct Disk(Arc<Mutex<State>>);

/// A disk, and a file system in memory; clones are the same ones.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Has the records that outlive a reboot.
    pub disk: Disk,
    /// Has the others; a crash of the process alone loses nothing of it.
    pub memory: Disk,
}

impl Machine {
    /// An empty store on a new disk and in memory.
    ///
    /// # Errors
    /// As for [`Disk::with_store`].
    pub fn with_store() -> Result<Self, StoreError> {
        Ok(Self {
            disk: Disk::with_store()?,
            memory: Disk::with_store()?,
        })
    }

    /// Opens the store of this machine.
    ///
    /// # Errors
    /// As for [`Disk::open`].
    pub fn open(&self) -> Result<Store, StoreError> {
        Store::at(self.clone())
    }
}

#[derive(Debug, Default)]
struct State {
    /// Bytes that survive a crash.
    platter: Vec<u8>,
    /// Bytes as reads see them, flushed or not.
    cache: Vec<u8>,
    /// Since the last flush.
    unflushed: Vec<Write>,
    /// Blocks that have something in them.
    room: BTreeSet<usize>,
    /// Writes, resizes and flushes so far.
    steps: u64,
    fault: Fault,
    dead: bool,
}

#[derive(Clone, Debug)]
enum Write {
    Data { offset: usize, data: Vec<u8> },
    Resize { len: usize },
}

/// Fault of the disk, and the step at which it happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// The machine stops in the middle of this step, counted from 0.
    CrashAt(u64),
    /// This step fails, and the next ones succeed.
    FailAt(u64),
    /// This step fails, and so does every one after it, as on a full or dying disk.
    FailFrom(u64),
    /// Steps from the first to before the second fail: a disk full for a while.
    FailBetween(u64, u64),
    /// From this step on no new block can be written: the disk is full.
    ///
    /// Writes to blocks that have something in them succeed, as on a file system that writes in place.
    FullFrom(u64),
    /// This step fails, the next ones succeed, and unflushed writes are forgotten.
    ///
    /// They can be read, and are not on the platter whatever is flushed later (fsync(2), errors).
    ForgetAt(u64),
}

/// Which of the unflushed sectors reached the platter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survivors {
    /// None of them.
    None,
    /// All of them, the step in which the machine stopped included.
    All,
    /// A part chosen by this seed.
    Some(u64),
}

impl Disk {
    /// An empty store on a new disk.
    ///
    /// # Errors
    /// None that a new disk without faults can have.
    pub fn with_store() -> Result<Self, StoreError> {
        let disk = Self::default();
        let database = Builder::new()
            .create_with_backend(disk.clone())
            .map_err(|error| open_error(error.into()))?;
        file::initialise(&database).map_err(open_error)?;
        drop(database);
        Ok(disk)
    }

    /// Opens the store on this disk.
    ///
    /// # Errors
    /// The disk fails or crashes, or holds no readable store.
    pub fn open(&self) -> Result<Store, StoreError> {
        Store::at(self.clone())
    }

    fn database(&self) -> Result<(Database, bool), StoreError> {
        let mut database = Builder::new()
            .create_with_backend(self.clone())
            .map_err(|error| open_error(error.into()))?;
        let clean = database
            .check_integrity()
            .map_err(|error| open_error(error.into()))?;
        file::check_format(Path::new("fake"), &database)?;
        Ok((database, clean))
    }

    /// Sets what goes wrong from now on.
    pub fn set_fault(&self, fault: Fault) {
        self.lock().fault = fault;
    }

    /// How many writes, resizes and flushes there were.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.lock().steps
    }

    /// Copies the disk as the next boot finds it.
    ///
    /// It has all that was flushed, and of the rest what `survivors` says.
    #[must_use]
    pub fn after_crash(&self, survivors: Survivors) -> Self {
        let state = self.lock();
        let mut platter = state.platter.clone();
        let mut random = match survivors {
            Survivors::Some(seed) => seed | 1,
            Survivors::None | Survivors::All => 0,
        };
        let mut survives = || match survivors {
            Survivors::None => false,
            Survivors::All => true,
            Survivors::Some(_) => {
                // xorshift64 (Marsaglia 2003): repeatable, and good enough to toss coins.
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random.count_ones() % 2 == 0
            }
        };
        for write in &state.unflushed {
            match write {
                Write::Resize { len } => {
                    if survives() {
                        platter.resize(*len, 0);
                    }
                }
                Write::Data { offset, data } => {
                    for (index, sector) in data.chunks(SECTOR).enumerate() {
                        if survives() {
                            put(&mut platter, offset + index * SECTOR, sector);
                        }
                    }
                }
            }
        }
        Self(Arc::new(Mutex::new(State {
            room: (0..platter.len().div_ceil(BLOCK)).collect(),
            cache: platter.clone(),
            platter,
            ..State::default()
        })))
    }

    /// Changes one bit on the platter and in the cache, as a bad sector does.
    pub fn flip(&self, bit: usize) {
        let mut state = self.lock();
        let State { platter, cache, .. } = &mut *state;
        for content in [platter, cache] {
            if let Some(byte) = content.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }

    /// Size of the platter, bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.lock().platter.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A test that panicked elsewhere left the disk as it was.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a step; `write` is what it does, or None for a flush.
    fn step(&self, write: Option<Write>) -> io::Result<()> {
        let mut state = self.lock();
        state.alive()?;
        let step = state.steps;
        state.steps += 1;
        match state.fault {
            Fault::CrashAt(at) if at == step => {
                state.dead = true;
                // Stopped halfway: its sectors are among those that may survive.
                state.unflushed.extend(write);
                return Err(io::Error::other("the machine stopped"));
            }
            Fault::FailAt(at) if at == step => return Err(io::Error::other("injected failure")),
            Fault::FailFrom(from) if from <= step => {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            Fault::FailBetween(from, to) if (from..to).contains(&step) => {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            Fault::FullFrom(from) if from <= step && state.needs_room(write.as_ref()) => {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            Fault::ForgetAt(at) if at == step => {
                state.unflushed.clear();
                return Err(io::Error::other("injected failure"));
            }
            _ => {}
        }
        match write {
            None => {
                for write in std::mem::take(&mut state.unflushed) {
                    write.apply(&mut state.platter);
                }
            }
            Some(write) => {
                let room = write.blocks();
                state.room.extend(room);
                write.apply(&mut state.cache);
                state.unflushed.push(write);
            }
        }
        Ok(())
    }
}

impl Write {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Data { offset, data } => put(content, *offset, data),
            Self::Resize { len } => content.resize(*len, 0),
        }
    }
}

impl Write {
    /// The blocks that it is in.
    fn blocks(&self) -> Range<usize> {
        match self {
            Self::Data { offset, data } => offset / BLOCK..(offset + data.len()).div_ceil(BLOCK),
            // A file that is longer has a hole at its end.
            Self::Resize { .. } => 0..0,
        }
    }
}

impl State {
    fn needs_room(&self, write: Option<&Write>) -> bool {
        let blocks = write.map_or(0..0, Write::blocks);
        blocks.into_iter().any(|block| !self.room.contains(&block))
    }

    fn alive(&self) -> io::Result<()> {
        if self.dead {
            Err(io::Error::other("the machine has stopped"))
        } else {
            Ok(())
        }
    }
}

/// Writes into `content`, made longer when it has to be.
fn put(content: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(data);
}

fn position(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(io::Error::other)
}

fn open_error(error: redb::Error) -> StoreError {
    StoreError::Open {
        path: "fake".into(),
        source: Arc::new(error),
    }
}

impl Place for Disk {
    fn open(&self) -> Result<Opened, StoreError> {
        let (database, clean) = self.database()?;
        Ok(Opened {
            databases: Databases::one(database),
            repaired: !clean,
        })
    }

    fn write_back(&self) -> Result<(), StoreError> {
        let held: Vec<Write> = {
            let state = self.lock();
            let blocks = state.room.iter().map(|block| block * BLOCK);
            let held = blocks.filter_map(|offset| {
                let end = state.cache.len().min(offset + BLOCK);
                let data = state.cache.get(offset..end)?.to_vec();
                Some(Write::Data { offset, data })
            });
            held.collect()
        };
        let mut steps = held.into_iter().map(Some).chain([None]);
        let written = steps.try_for_each(|step| self.step(step));
        written.map_err(|source| open_error(source.into()))
    }

    fn commit_failed(&self, failed: CommitFailed) -> StoreError {
        let name = if failed.of_boot { "fake-boot" } else { "fake" };
        StoreError::Commit {
            path: name.into(),
            disk: String::new(),
            source: Arc::new(failed.source),
        }
    }
}

impl Place for Machine {
    fn open(&self) -> Result<Opened, StoreError> {
        let (lasting, clean) = self.disk.database()?;
        let (of_boot, whole) = self.memory.database()?;
        Ok(Opened {
            databases: Databases::two(lasting, of_boot).map_err(open_error)?,
            repaired: !clean || !whole,
        })
    }

    fn write_back(&self) -> Result<(), StoreError> {
        self.disk.write_back()?;
        self.memory.write_back()
    }

    fn commit_failed(&self, failed: CommitFailed) -> StoreError {
        self.disk.commit_failed(failed)
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        let state = self.lock();
        state.alive()?;
        u64::try_from(state.cache.len()).map_err(io::Error::other)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.lock();
        state.alive()?;
        let start = position(offset)?;
        let content = state.cache.get(start..start + out.len());
        out.copy_from_slice(content.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.step(Some(Write::Resize {
            len: position(len)?,
        }))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.step(None)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.step(Some(Write::Data {
            offset: position(offset)?,
            data: data.to_vec(),
        }))
    }
}
