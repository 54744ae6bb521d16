//! Records that cannot be used: they are kept apart, byte for byte, and shown.
//!
//! One of them must not keep the node from being served, and none of its content may be lost.

use std::time::{SystemTime, UNIX_EPOCH};

use cni_spec::{AttachmentKey, ContainerId, IfName};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{Batch, KEY_MAX, Row, Table};

use super::BookError;

/// Most records that one start sets aside.
///
/// More are not damage: they are of another agent.
const A_START_MAX: usize = 16;
/// The most that are kept; of more the oldest are removed.
const KEPT_MAX: usize = 64;
/// Bytes of a record that are kept, far more than any has.
const RECORD_MAX: usize = 64 << 10;

/// A record that was set aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetAside {
    /// Kind of the record.
    pub kind: Kind,
    /// Its key, `CONTAINER/IFNAME` as a rule.
    pub key: String,
    /// Why it cannot be used.
    pub reason: String,
    /// When that was found out, seconds since 1970.
    pub since: u64,
    /// The record, where it is text.
    pub text: Option<String>,
    /// Its bytes in hexadecimal digits, where it is none.
    pub bytes: Option<String>,
}

/// Kinds of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// An attachment.
    Attachment,
    /// A pod that lists its networks.
    Pod,
}

impl Kind {
    const fn tables(self) -> &'static [Table] {
        match self {
            Self::Attachment => &[Table::Attachments],
            Self::Pod => &[Table::Pods, Table::PodsOfBoot],
        }
    }
}

impl SetAside {
    /// A record as the store has it, and why it cannot be used.
    pub(super) fn new(kind: Kind, (key, value): &Row, reason: String) -> Self {
        let kept = value.get(..RECORD_MAX).unwrap_or(value);
        let text = std::str::from_utf8(kept).ok().map(ToOwned::to_owned);
        let bytes = text.is_none().then(|| {
            let digits = kept.iter().map(|byte| format!("{byte:02x}"));
            digits.collect()
        });
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            kind,
            key: String::from_utf8_lossy(key).into_owned(),
            reason,
            since: now.map_or(0, |now| now.as_secs()),
            text,
            bytes,
        }
    }

    fn row_key(&self) -> Vec<u8> {
        let mut key = format!("{:?}/{}", self.kind, self.key).into_bytes();
        key.truncate(KEY_MAX);
        key
    }

    /// Container and interface, where its key says so.
    fn attachment(&self) -> Option<AttachmentKey> {
        let (container, ifname) = self.key.split_once('/')?;
        Some(AttachmentKey {
            container: ContainerId::new(container).ok()?,
            ifname: IfName::new(ifname).ok()?,
        })
    }

    /// As `get attachments` shows it.
    pub fn row(&self) -> Value {
        let key = self.attachment();
        let container = key.as_ref().map(|key| key.container.to_string());
        json!({
            "container": container.unwrap_or_else(|| self.key.clone()),
            "ifname": key.map(|key| key.ifname.to_string()),
            "state": "SetAside",
            "live": false,
            "setAside": self,
        })
    }
}

/// Lists the records that earlier starts have set aside.
pub(super) fn earlier(rows: &[Row]) -> Vec<SetAside> {
    let rows = rows.iter();
    rows.filter_map(|(_, value)| serde_json::from_slice(value).ok())
        .collect()
}

/// Refuses a store of which too few records can be used.
///
/// It is of an agent that writes other records, and to go on would take their interfaces from its pods.
pub(super) fn check(bad: &[SetAside], all: usize) -> Result<(), BookError> {
    let Some(first) = bad.first() else {
        return Ok(());
    };
    if bad.len() <= A_START_MAX && (bad.len() == 1 || bad.len() * 2 <= all) {
        return Ok(());
    }
    Err(BookError::Unreadable {
        bad: bad.len(),
        all,
        key: first.key.clone(),
        reason: first.reason.clone(),
    })
}

/// Builds the batch that moves the records out of their tables.
///
/// `all` are the records of before and these; the newest are kept.
pub(super) fn moved(bad: &[SetAside], rows: &[Row], all: &mut Vec<SetAside>) -> Batch {
    let mut batch = Batch::new();
    for (aside, (key, _)) in bad.iter().zip(rows) {
        for table in aside.kind.tables() {
            batch = batch.delete(*table, key);
        }
    }
    all.retain(|old| !bad.iter().any(|new| new.row_key() == old.row_key()));
    all.extend_from_slice(bad);
    while all.len() > KEPT_MAX {
        batch = batch.delete(Table::SetAside, &all.remove(0).row_key());
    }
    for aside in bad.iter().filter(|aside| all.contains(aside)) {
        // It is text and numbers.
        let value = serde_json::to_vec(aside).unwrap_or_default();
        batch = batch.put(Table::SetAside, &aside.row_key(), &value);
    }
    batch
}

/// The records that were set aside under a key.
pub(super) fn of_key(all: &[SetAside], key: &AttachmentKey) -> Vec<SetAside> {
    let of_key = all
        .iter()
        .filter(|it| it.attachment().as_ref() == Some(key));
    of_key.cloned().collect()
}

/// The change that removes them from the store.
pub(super) fn erased(all: &[SetAside]) -> Batch {
    let erase = |batch: Batch, it: &SetAside| batch.delete(Table::SetAside, &it.row_key());
    all.iter().fold(Batch::new(), erase)
}
