//! Group changes of records that are written together.

use redb::TableDefinition;

use crate::error::StoreError;

/// The longest key, bytes: a container id and an interface name several times over.
pub const KEY_MAX: usize = 1024;
/// The largest value, bytes: above any record, below a value that stalls a commit.
pub const VALUE_MAX: usize = 1 << 20;

/// Where a record is kept. Keys of different tables do not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// One record for each attachment, with its leases.
    Attachments,
    /// One record for each network that was given an id.
    Networks,
    /// One record for each pod with a list of which a reboot leaves something.
    Pods,
    /// One record for each pod with a list of which a reboot leaves nothing.
    PodsOfBoot,
    /// Records of other tables that cannot be used.
    SetAside,
}

impl Table {
    /// Every table.
    pub const ALL: [Self; 5] = [
        Self::Attachments,
        Self::Networks,
        Self::Pods,
        Self::PodsOfBoot,
        Self::SetAside,
    ];

    /// True for records of what a reboot of the machine ends.
    #[must_use]
    pub const fn ends_with_boot(self) -> bool {
        matches!(self, Self::Attachments | Self::PodsOfBoot)
    }

    /// True for one that stores of an older agent may lack.
    pub(crate) const fn came_later(self) -> bool {
        matches!(self, Self::Pods | Self::PodsOfBoot | Self::SetAside)
    }

    pub(crate) const fn definition(self) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
        TableDefinition::new(match self {
            Self::Attachments => "attachments",
            Self::Networks => "networks",
            Self::Pods => "pods",
            Self::PodsOfBoot => "pods_of_boot",
            Self::SetAside => "set_aside",
        })
    }
}

/// Puts and deletes that become durable together or not at all, in order.
///
/// Of a store in two files, those of the lasting one are durable first, and a crash may leave the others undone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a batch does nothing until it is submitted"]
pub struct Batch {
    pub(crate) changes: Vec<Change>,
}

/// One step of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) table: Table,
    pub(crate) key: Vec<u8>,
    /// None deletes.
    pub(crate) value: Option<Vec<u8>>,
}

impl Batch {
    /// A batch of nothing; it completes when everything submitted before it is durable.
    pub const fn new() -> Self {
        Self {
            changes: Vec::new(),
        }
    }

    /// Adds: write `value` under `key`, over any other.
    pub fn put(mut self, table: Table, key: &[u8], value: &[u8]) -> Self {
        self.changes.push(Change {
            table,
            key: key.to_vec(),
            value: Some(value.to_vec()),
        });
        self
    }

    /// Adds: remove `key`; not an error when there is none.
    pub fn delete(mut self, table: Table, key: &[u8]) -> Self {
        self.changes.push(Change {
            table,
            key: key.to_vec(),
            value: None,
        });
        self
    }

    /// Adds everything in `other`.
    pub fn and(mut self, other: Self) -> Self {
        self.changes.extend(other.changes);
        self
    }

    /// True when there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Checked before a batch joins others: what it gets wrong must not fail them.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        for change in &self.changes {
            let size = change.key.len();
            if size > KEY_MAX {
                return Err(StoreError::KeyTooLong { size });
            }
            let size = change.value.as_ref().map_or(0, Vec::len);
            if size > VALUE_MAX {
                return Err(StoreError::ValueTooLarge { size });
            }
        }
        Ok(())
    }
}
