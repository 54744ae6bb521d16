//! Create and open the store's file: made whole or not at all, by one process.
//!
//! A file that is not ours is refused.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use redb::{
    Builder, Database, DatabaseError, ReadableDatabase as _, StorageError, TableDefinition,
    TableError,
};

use crate::{batch::Table, error::StoreError, place};

/// The format of the tables, not of the records in them.
///
/// In format 1 all records were in one file. An agent that knows no other would take ports for strays whose records
/// are in the file of the boot.
pub(crate) const FORMAT: u64 = 2;
/// Formats that are made into this one.
const OLDER: [u64; 1] = [1];

/// Table of the store's own data, as its format.
const META: TableDefinition<'static, &'static str, u64> = TableDefinition::new("meta");
const FORMAT_KEY: &str = "format";
/// Table of probes, written to find out whether there is room; empty otherwise.
const PROBES: TableDefinition<'static, &'static str, &'static [u8]> =
    TableDefinition::new("probes");
const PROBE_KEY: &str = "probe";
/// Bytes of a probe: some ten records with all that a commit of them takes.
const PROBE: usize = 64 << 10;

/// Page cache, bytes.
///
/// A node's records are a few hundred kilobytes; redb's own default is 1 GiB.
const CACHE: usize = 4 << 20;

/// A database that passed every check.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) database: Database,
    /// Damage was found and mended; the last commits may be gone.
    pub(crate) repaired: bool,
}

/// Opens the store at `path`, made new when there is none.
pub(crate) fn open(path: &Path) -> Result<Opened, StoreError> {
    let opened = match fs::metadata(path) {
        Ok(_) => open_existing(path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => match create(path)? {
            Some(created) => created,
            // Another process was faster.
            None => open_existing(path)?,
        },
        Err(error) => return Err(file_error("open", path)(error)),
    };
    sweep(path);
    Ok(opened)
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE);
    builder
}

fn open_existing(path: &Path) -> Result<Opened, StoreError> {
    let mut database = builder()
        .open(path)
        .map_err(|error| open_error(path, error))?;
    // Opening verifies pages only after a crash; this finds what rotted on the disk since, before
    // a commit builds on it.
    let clean = database
        .check_integrity()
        .map_err(|error| open_error(path, error))?;
    if check_format(path, &database)? == Tables::Older {
        initialise(&database).map_err(|error| commit_error(path, error))?;
    }
    Ok(Opened {
        database,
        repaired: !clean,
    })
}

/// Creates an empty store in a temporary file and moves it to `path` whole.
///
/// redb writes its header in steps, and a machine that stops between two of them would leave a file
/// that cannot be opened. None when `path` exists by now.
fn create(path: &Path) -> Result<Option<Opened>, StoreError> {
    let directory = directory(path);
    // Created with mode 0600.
    let temporary = tempfile::Builder::new()
        .prefix(&temporary_prefix(path))
        .tempfile_in(directory)
        .map_err(file_error("create a file in", directory))?;
    let file = temporary
        .as_file()
        .try_clone()
        .map_err(file_error("create", path))?;
    let database = builder()
        .create_file(file)
        .map_err(|error| open_error(path, error))?;
    initialise(&database).map_err(|error| commit_error(path, error))?;
    match temporary.persist_noclobber(path) {
        Ok(_) => {}
        // Taken, or ours swept away by the one who took it.
        Err(error)
            if matches!(
                error.error.kind(),
                io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(file_error("create", path)(error.error)),
    }
    // The name is durable only when the directory is.
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(file_error("sync the directory", directory))?;
    Ok(Some(Opened {
        database,
        repaired: false,
    }))
}

/// Makes every table, so that no reader has to ask whether there is one.
pub(crate) fn initialise(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut meta = transaction.open_table(META)?;
        meta.insert(FORMAT_KEY, FORMAT)?;
        for table in Table::ALL {
            transaction.open_table(table.definition())?;
        }
    }
    Ok(transaction.commit()?)
}

/// Checks that there is room for records: writes and removes [`PROBE`] bytes.
///
/// What was written is free room in the file then, which the next records can use.
pub(crate) fn probe(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    // Not zeros, which some file systems keep without room.
    transaction
        .open_table(PROBES)?
        .insert(PROBE_KEY, [0x5a].repeat(PROBE).as_slice())?;
    transaction.commit()?;
    let transaction = database.begin_write()?;
    transaction.open_table(PROBES)?.remove(PROBE_KEY)?;
    Ok(transaction.commit()?)
}

/// Whether a store of this format has every table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tables {
    /// It has.
    All,
    /// It was made by an agent that knew fewer of them.
    Older,
}

pub(crate) fn check_format(path: &Path, database: &Database) -> Result<Tables, StoreError> {
    let corrupt = |error: redb::Error| StoreError::Corrupt {
        path: path.to_owned(),
        source: Arc::new(error),
    };
    let transaction = database.begin_read().map_err(StoreError::read)?;
    // Some other redb database: it has no such table, or one of other types.
    let meta = transaction
        .open_table(META)
        .map_err(|error| corrupt(error.into()))?;
    let found = meta
        .get(FORMAT_KEY)
        .map_err(StoreError::read)?
        .map_or(0, |found| found.value());
    if found != FORMAT && !OLDER.contains(&found) {
        return Err(StoreError::Format {
            path: path.to_owned(),
            found,
        });
    }
    let mut tables = if found == FORMAT {
        Tables::All
    } else {
        Tables::Older
    };
    for table in Table::ALL {
        match transaction.open_table(table.definition()) {
            Ok(_) => {}
            Err(TableError::TableDoesNotExist(_)) if table.came_later() => tables = Tables::Older,
            Err(error) => return Err(corrupt(error.into())),
        }
    }
    Ok(tables)
}

fn commit_error(path: &Path, error: redb::Error) -> StoreError {
    place::commit_failed(path, error)
}

fn open_error(path: &Path, error: DatabaseError) -> StoreError {
    let path = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen => StoreError::InUse { path },
        error if is_corruption(&error) => StoreError::Corrupt {
            path,
            source: Arc::new(error.into()),
        },
        error => StoreError::Open {
            path,
            source: Arc::new(error.into()),
        },
    }
}

fn is_corruption(error: &DatabaseError) -> bool {
    match error {
        DatabaseError::Storage(StorageError::Corrupted(_)) | DatabaseError::UpgradeRequired(_) => {
            true
        }
        // A wrong magic number, an empty file, and a file shorter than its header says.
        DatabaseError::Storage(StorageError::Io(error)) => {
            matches!(
                error.kind(),
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
            )
        }
        _ => false,
    }
}

/// Removes temporary files of creations that did not finish.
///
/// This is the only process here now.
fn sweep(path: &Path) {
    let Ok(entries) = fs::read_dir(directory(path)) else {
        return;
    };
    let prefix = temporary_prefix(path);
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            // One that cannot be removed does no harm, and the next start tries again.
            drop(fs::remove_file(entry.path()));
        }
    }
}

fn temporary_prefix(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    format!(".{name}.new-")
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn file_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path: PathBuf = path.to_owned();
    move |error| StoreError::File {
        operation,
        path,
        source: Arc::new(error),
    }
}
