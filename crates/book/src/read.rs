//! The records that a start finds in the store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use host::host_name;
use store::{Batch, Row, Store, Table};

use super::aside::{self, Kind, SetAside};
use super::{BookError, boot};
use crate::ledger::Ledger;
use crate::pods::Pods;
use crate::pods::record::PodRecord;
use crate::record::{Attachment, State};

/// State with which a start begins.
#[derive(Debug)]
pub struct Records {
    /// Pods that list their networks.
    pub pods: Pods,
    /// Attachments, and the numbers of networks.
    pub ledger: Ledger,
    /// Numbers of networks that are in the store.
    pub(crate) numbered: BTreeMap<String, u32>,
    /// Ports that have another number than before, by that.
    pub(crate) renumbered: BTreeMap<u16, u16>,
    /// Records that cannot be used, of this start and of earlier ones.
    pub set_aside: Vec<SetAside>,
}

/// Reads everything from the store.
///
/// After a reboot the namespaces of pods are gone. What podnet had in the kernel is gone too, and its
/// records go; the numbers of networks stay. What plugins of others keep on disk is not gone: those are
/// still to be told `DEL`.
///
/// A record that cannot be used is set aside. No link is its own then, and the start removes what it has
/// left in the kernel before an address of it can be another's.
///
/// # Errors
/// When the store cannot be read, or not be written where that is needed; when too many records cannot be
/// used; and when there are more attachments than ports.
pub async fn read(store: &Store, state_dir: &Path, max_ports: u16) -> Result<Records, BookError> {
    let rebooted = boot::is_another(state_dir);
    let mut reading = Reading::default();
    let pods = read_pods(store, rebooted, &mut reading)?;
    let (ledger, numbered) = read_ledger(store, rebooted, max_ports, &mut reading)?;
    aside::check(&reading.bad, reading.all)?;
    for it in &reading.bad {
        tracing::error!(
            record = it.key, kind = ?it.kind, reason = it.reason,
            "a record cannot be used and is set aside: what it had on this node is removed, and `get attachments -o json` shows it",
        );
    }
    let mut set_aside = aside::earlier(&store.rows(Table::SetAside)?);
    set_aside.sort_by_key(|it| it.since);
    let moved = aside::moved(&reading.bad, &reading.bad_rows, &mut set_aside);
    let changes = reading.changes.and(moved);
    if rebooted {
        tracing::info!("the node was rebooted: records of pods before that are removed");
    }
    if !changes.is_empty() {
        store.submit(changes).await?;
    }
    boot::remember(state_dir)?;
    Ok(Records {
        pods,
        ledger,
        numbered,
        renumbered: reading.renumbered,
        set_aside,
    })
}

/// Findings of a reading of the records.
#[derive(Debug, Default)]
struct Reading {
    all: usize,
    renumbered: BTreeMap<u16, u16>,
    bad: Vec<SetAside>,
    bad_rows: Vec<Row>,
    changes: Batch,
}

impl Reading {
    fn set_aside(&mut self, kind: Kind, row: Row, reason: String) {
        self.bad.push(SetAside::new(kind, &row, reason));
        self.bad_rows.push(row);
    }

    fn change(&mut self, change: impl FnOnce(Batch) -> Batch) {
        self.changes = change(std::mem::take(&mut self.changes));
    }
}

fn read_pods(store: &Store, rebooted: bool, reading: &mut Reading) -> Result<Pods, BookError> {
    let pods = Pods::default();
    let lasting = store.rows(Table::Pods)?;
    let keys: BTreeSet<Vec<u8>> = lasting.iter().map(|(key, _)| key.clone()).collect();
    let mut rows = lasting;
    for row in store.rows(Table::PodsOfBoot)? {
        // The older record of a pod that got a plugin of another.
        if rebooted || keys.contains(&row.0) {
            reading.change(|changes| changes.delete(Table::PodsOfBoot, &row.0));
        } else {
            rows.push(row);
        }
    }
    for row in rows {
        reading.all += 1;
        let read = serde_json::from_slice::<PodRecord>(&row.1).map_err(|error| error.to_string());
        let read = read.and_then(|record| is_of(&row, &record.key.to_string()).map(|()| record));
        let mut record = match read {
            Ok(record) => record,
            Err(reason) => {
                reading.set_aside(Kind::Pod, row, reason);
                continue;
            }
        };
        if rebooted {
            let (key, _) = row;
            if record.members.iter().all(|m| m.delegation().is_none()) {
                reading.change(|changes| changes.delete(Table::Pods, &key));
                continue;
            }
            record.state = State::Deleting;
            let value = serde_json::to_vec(&record).map_err(|source| BookError::Record {
                key: record.key.to_string(),
                source,
            })?;
            reading.change(|changes| changes.put(Table::Pods, &key, &value));
        }
        pods.insert(record);
    }
    Ok(pods)
}

fn read_ledger(
    store: &Store,
    rebooted: bool,
    max_ports: u16,
    reading: &mut Reading,
) -> Result<(Ledger, BTreeMap<String, u32>), BookError> {
    let mut ledger = Ledger::new(max_ports);
    let mut numbered = BTreeMap::new();
    for (name, id) in store.rows(Table::Networks)? {
        if let (Ok(name), Ok(id)) = (String::from_utf8(name), <[u8; 4]>::try_from(id.as_slice())) {
            let id = u32::from_le_bytes(id);
            numbered.insert(name.clone(), id);
            ledger.restore_id(name, id);
        }
    }
    let mut beyond = Vec::new();
    for row in store.rows(Table::Attachments)? {
        if rebooted {
            reading.change(|changes| changes.delete(Table::Attachments, &row.0));
            continue;
        }
        reading.all += 1;
        let read = serde_json::from_slice::<Attachment>(&row.1).map_err(|error| error.to_string());
        let read = read.and_then(|record| is_possible(&row, &record, &ledger).map(|()| record));
        match read {
            Ok(record) if record.port_id >= max_ports => beyond.push((row, record)),
            Ok(record) => ledger.restore(record),
            Err(reason) => reading.set_aside(Kind::Attachment, row, reason),
        }
    }
    // They had more room before: their counters and their storm control would be beyond the maps.
    for (row, mut record) in beyond {
        // Attachments that are there are not given up for a number that somebody has written.
        let port = ledger
            .free_port()
            .ok_or(BookError::NoPort { max: max_ports })?;
        if let Err(reason) = ledger.admits(&record) {
            reading.set_aside(Kind::Attachment, row, reason);
            continue;
        }
        tracing::warn!(attachment = %record.key, before = record.port_id, now = port, "the port of the attachment has another number now: --max-ports is smaller than before");
        reading.renumbered.insert(record.port_id, port);
        record.port_id = port;
        let value = serde_json::to_vec(&record).map_err(|source| BookError::Record {
            key: record.key.to_string(),
            source,
        })?;
        reading.change(|changes| changes.put(Table::Attachments, &row.0, &value));
        ledger.restore(record);
    }
    Ok((ledger, numbered))
}

fn is_of((key, _): &Row, named: &str) -> Result<(), String> {
    if key == named.as_bytes() {
        return Ok(());
    }
    Err(format!("it is the record of {named}"))
}

fn is_possible(row: &Row, record: &Attachment, ledger: &Ledger) -> Result<(), String> {
    is_of(row, &record.key.to_string())?;
    let (host, own) = (&record.host.name, host_name(&record.key));
    if *host != own {
        // By this name its link would be removed, which is another's.
        return Err(format!(
            "its host interface is {host}, and can only be {own}"
        ));
    }
    ledger.admits(record)
}
