//! One attachment: its host end as a link of the node's own stack.

use std::collections::BTreeSet;

use book::record::Attachment;
use host::{Ear, HostError, PROTOCOL, far_name, listen, listens};
use netdev::Connection;

use super::NodeRouting;

/// The links of an attachment that the node's stack listens at.
fn ears(record: &Attachment) -> Vec<(String, u32, Ear)> {
    let mut ears = vec![(record.host.name.clone(), record.host.ifindex, Ear::Host)];
    if let Some(shaper) = record.shaper {
        ears.push((far_name(&record.host.name), shaper.far, Ear::Far));
    }
    ears
}

impl NodeRouting {
    /// Restores the node's routes and neighbours of an attachment.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn mend(&self, record: &Attachment) -> Result<(), HostError> {
        let neighbours = record.neighbours();
        if neighbours.is_empty() {
            return Ok(());
        }
        let (ears, v6) = (ears(record), record.has_v6());
        let ifindex = record.host.ifindex;
        let mend = move |connection: &mut Connection| -> Result<_, netdev::Error> {
            for (link, index, ear) in ears {
                match listen(connection, (&link, index), ear, v6) {
                    // A shaper that is lost is made anew by those who look after rates.
                    Err(error) if error.is_gone() && ear == Ear::Far => {}
                    other => other?,
                }
            }
            let missing = connection.unreached(ifindex, &neighbours)?;
            connection.reach(ifindex, &missing, PROTOCOL)?;
            Ok(missing)
        };
        let mended = self.host.netlink.with(mend).await?;
        if !mended.is_empty() {
            let addresses: Vec<_> = mended.iter().map(|one| one.address).collect();
            tracing::warn!(attachment = %record.key, ?addresses, "the node's routes or neighbours of the attachment were gone, and are made again");
        }
        Ok(())
    }

    /// Finds attachments that the node's stack may not reach, by their places.
    ///
    /// The places are those in the list. All are looked at together: by one dump of neighbours, and one of
    /// routes for each family. Blocks.
    ///
    /// # Errors
    /// When the kernel does not tell: nothing is known of any.
    pub fn suspects(&self, records: &[Attachment]) -> Result<BTreeSet<usize>, HostError> {
        let numbered = records.iter().enumerate();
        let routed = numbered.filter(|(_, record)| !record.neighbours().is_empty());
        let routed: Vec<(usize, &Attachment)> = routed.collect();
        if routed.is_empty() {
            return Ok(BTreeSet::new());
        }
        self.host.netlink.blocking(|connection| {
            let reached = connection.reached(PROTOCOL)?;
            let suspects = routed.into_iter().filter(|(_, record)| {
                let mut neighbours = record.neighbours().into_iter();
                let is_reached = neighbours.all(|one| reached.has(record.host.ifindex, &one));
                let mut ears = ears(record).into_iter();
                let v6 = record.has_v6();
                let mut hears = |link: &str, index, ear| {
                    // What cannot be seen at a glance is looked at by itself, and told then.
                    listens(connection, (link, index), ear, v6).unwrap_or(false)
                };
                !is_reached || !ears.all(|(link, index, ear)| hears(&link, index, ear))
            });
            Ok(suspects.map(|(place, _)| place).collect())
        })
    }

    /// Faults of the node's routes and neighbours of an attachment.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub async fn faults(&self, record: &Attachment) -> Result<Vec<String>, HostError> {
        let neighbours = record.neighbours();
        if neighbours.is_empty() {
            return Ok(Vec::new());
        }
        let ifindex = record.host.ifindex;
        let missing = self
            .host
            .netlink
            .with(move |connection| connection.unreached(ifindex, &neighbours))
            .await?;
        Ok(missing
            .iter()
            .map(|one| {
                format!(
                    "the node's route or neighbour entry of {} is gone",
                    one.address
                )
            })
            .collect())
    }
}
