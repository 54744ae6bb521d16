//! Keep the records of a boot apart from those that outlive it.
//!
//! What a reboot ends needs no disk: a file in memory outlives the process, which is all that such a record has
//! to do, and no request waits for a flush.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition, TableError};

use crate::{
    batch::{Batch, Table},
    error::StoreError,
    file,
    place::Opened,
    store::{Row, rows},
    writer,
};

/// Table of the lasting file with the path of the other one.
const PLACES: TableDefinition<'static, &'static str, &'static str> = TableDefinition::new("places");
const OF_BOOT: &str = "of_boot";

/// The open files of a store.
#[derive(Debug)]
pub(crate) struct Databases {
    lasting: Database,
    /// None where all records are in one file.
    of_boot: Option<Database>,
}

/// A commit that failed, and in which file.
#[derive(Debug)]
pub(crate) struct CommitFailed {
    pub(crate) of_boot: bool,
    pub(crate) source: redb::Error,
}

impl Databases {
    /// Takes the file that has all records.
    pub(crate) const fn one(lasting: Database) -> Self {
        Self {
            lasting,
            of_boot: None,
        }
    }

    /// Takes two files, and moves records of this boot out of the lasting one.
    ///
    /// They are there after an upgrade from an agent that had one file. A record that is in both is newer in the
    /// other file.
    pub(crate) fn two(lasting: Database, of_boot: Database) -> Result<Self, redb::Error> {
        move_rows(&lasting, &of_boot)?;
        Ok(Self {
            lasting,
            of_boot: Some(of_boot),
        })
    }

    /// The file that a table is in.
    pub(crate) fn of(&self, table: Table) -> &Database {
        match &self.of_boot {
            Some(of_boot) if table.ends_with_boot() => of_boot,
            _ => &self.lasting,
        }
    }

    /// Every record of a table, in the order of the keys.
    pub(crate) fn rows(&self, table: Table) -> Result<Vec<Row>, StoreError> {
        rows(self.of(table), table)
    }

    /// Makes changes durable, those of the lasting file first.
    ///
    /// A record of this boot may lean on a lasting one, as an attachment on the number of its network, and not the
    /// other way round.
    pub(crate) fn write<'a>(
        &self,
        batches: impl Iterator<Item = &'a Batch> + Clone,
    ) -> Result<(), CommitFailed> {
        let changes = batches.flat_map(|batch| &batch.changes);
        self.each(|database, of_boot| {
            let changes = changes.clone().filter(|change| match self.of_boot {
                Some(_) => change.table.ends_with_boot() == of_boot,
                None => true,
            });
            writer::write(database, changes)
        })
    }

    /// Checks that there is room for records in each file.
    pub(crate) fn probe(&self) -> Result<(), CommitFailed> {
        self.each(|database, _| file::probe(database))
    }

    fn each(
        &self,
        work: impl Fn(&Database, bool) -> Result<(), redb::Error>,
    ) -> Result<(), CommitFailed> {
        let of_boot = self.of_boot.iter().map(|database| (database, true));
        let mut all = [(&self.lasting, false)].into_iter().chain(of_boot);
        all.try_for_each(|(database, of_boot)| {
            work(database, of_boot).map_err(|source| CommitFailed { of_boot, source })
        })
    }
}

/// Opens the files at two paths.
///
/// The path of the second one is remembered in the first: where it was another before, the records come along.
///
/// # Errors
/// One of them cannot be opened, or the records cannot be moved.
pub(crate) fn open(lasting: &Path, of_boot: &Path) -> Result<Opened, StoreError> {
    let failed = |path: &Path, source: redb::Error| StoreError::Open {
        path: path.to_owned(),
        source: Arc::new(source),
    };
    let first = file::open(lasting)?;
    let second = file::open(of_boot)?;
    let mut repaired = first.repaired || second.repaired;
    let before = place(&first.database).map_err(|error| failed(lasting, error))?;
    if let Some(before) = before.as_deref().filter(|it| *it != of_boot) {
        if before.exists() {
            let last = file::open(before)?;
            repaired |= last.repaired;
            let moved = move_rows(&last.database, &second.database);
            moved.map_err(|error| failed(before, error))?;
        }
        // Empty by now; where it cannot be removed it does no harm.
        drop(fs::remove_file(before));
    }
    if before.as_deref() != Some(of_boot) {
        remember(&first.database, of_boot).map_err(|error| failed(lasting, error))?;
    }
    let databases = Databases::two(first.database, second.database);
    let databases = databases.map_err(|error| failed(of_boot, error))?;
    Ok(Opened {
        databases,
        repaired,
    })
}

/// Moves the records of this boot from one file to another, which is the newer one.
fn move_rows(from: &Database, to: &Database) -> Result<(), redb::Error> {
    for table in Table::ALL.into_iter().filter(|it| it.ends_with_boot()) {
        let reading = from.begin_read()?;
        let found = reading.open_table(table.definition())?;
        let mut keys = Vec::new();
        let writing = to.begin_write()?;
        {
            let mut newer = writing.open_table(table.definition())?;
            for row in found.iter()? {
                let (key, value) = row?;
                if newer.get(key.value())?.is_none() {
                    newer.insert(key.value(), value.value())?;
                }
                keys.push(key.value().to_vec());
            }
        }
        if keys.is_empty() {
            writing.abort()?;
            continue;
        }
        writing.commit()?;
        let writing = from.begin_write()?;
        {
            let mut older = writing.open_table(table.definition())?;
            for key in keys {
                older.remove(key.as_slice())?;
            }
        }
        writing.commit()?;
    }
    Ok(())
}

fn place(lasting: &Database) -> Result<Option<PathBuf>, redb::Error> {
    let reading = lasting.begin_read()?;
    let places = match reading.open_table(PLACES) {
        Ok(places) => places,
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let place = places.get(OF_BOOT)?;
    Ok(place.map(|path| PathBuf::from(path.value())))
}

fn remember(lasting: &Database, of_boot: &Path) -> Result<(), redb::Error> {
    let writing = lasting.begin_write()?;
    {
        let mut places = writing.open_table(PLACES)?;
        match of_boot.to_str() {
            Some(path) => drop(places.insert(OF_BOOT, path)?),
            // Records do not follow from such a path to another.
            None => drop(places.remove(OF_BOOT)?),
        }
    }
    Ok(writing.commit()?)
}
