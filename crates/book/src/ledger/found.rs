//! Finds attachments by links of the node and by its mapped ports.
//!
//! An event of a link and an `ADD` ask for these, and neither may look at every attachment.

use std::collections::{BTreeSet, HashMap};

use cni_spec::AttachmentKey;

use crate::record::Attachment;

/// Keys of attachments, by what else they are known by.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// By index of the host end, and of both ends of the shaper.
    ///
    /// Two have an index when the kernel gave that of a link which is gone and not yet missed.
    links: HashMap<u32, BTreeSet<AttachmentKey>>,
    /// Keys of attachments with ports of the node.
    mapped: BTreeSet<AttachmentKey>,
}

impl Found {
    /// Has an attachment found by what its record says.
    pub(super) fn insert(&mut self, record: &Attachment) {
        for ifindex in links(record) {
            let keys = self.links.entry(ifindex).or_default();
            keys.insert(record.key.clone());
        }
        if !record.host_ports.is_empty() {
            self.mapped.insert(record.key.clone());
        }
    }

    /// Forgets an attachment that was inserted with this record.
    pub(super) fn remove(&mut self, record: &Attachment) {
        for ifindex in links(record) {
            if let Some(keys) = self.links.get_mut(&ifindex) {
                keys.remove(&record.key);
                if keys.is_empty() {
                    self.links.remove(&ifindex);
                }
            }
        }
        self.mapped.remove(&record.key);
    }

    /// Lists those with this link.
    pub(super) fn on_link(&self, ifindex: u32) -> impl Iterator<Item = &AttachmentKey> {
        self.links.get(&ifindex).into_iter().flatten()
    }

    /// Counts the links of all.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.links.values().map(BTreeSet::len).sum()
    }

    /// Lists those with ports of the node.
    pub(super) fn with_host_ports(&self) -> impl Iterator<Item = &AttachmentKey> {
        self.mapped.iter()
    }
}

/// Indexes of links that belong to an attachment; 0 is none.
fn links(record: &Attachment) -> impl Iterator<Item = u32> {
    let shaper = record.shaper.map(|shaper| [shaper.near, shaper.far]);
    let all = [record.host.ifindex]
        .into_iter()
        .chain(shaper.into_iter().flatten());
    all.filter(|ifindex| *ifindex != 0)
}
