//! `CHECK`: is the attachment still as it was made?

use book::record::{Attachment, State};
use cni_spec::{AttachmentKey, CniResult};
use netdev::Netns;
use telemetry::chain;

use super::Attachments;
use super::doors::{Authority, Ports, Reach, Tables};
use crate::error::AgentError;

impl<P: Ports, R: Reach, T: Tables, A: Authority> Attachments<P, R, T, A> {
    /// Compares an attachment with its record, the kernel and the runtime's memory.
    ///
    /// What can be made again at the node's end is made again first: a runtime takes what it is told here for
    /// the end of the pod (CNI-CHK-05).
    ///
    /// # Errors
    /// [`AgentError::NotAttached`], or [`AgentError::Damaged`] with everything that is still wrong.
    pub async fn check(
        &self,
        key: &AttachmentKey,
        netns: &Netns,
        previous: &CniResult,
    ) -> Result<(), AgentError> {
        let known = self.book.record(key);
        let record = known.ok_or_else(|| AgentError::NotAttached { key: key.clone() })?;
        if record.state != State::Added {
            // Something of it is left, so the runtime must not take it for unknown (CNI-ERR-04).
            let faults = vec!["it is being removed".to_owned()];
            return Err(AgentError::Damaged {
                key: key.clone(),
                faults,
            });
        }
        let mut faults = against_result(&record, previous);
        if !record.sandbox.is(netns) {
            faults.push("CNI_NETNS is another namespace than at ADD".to_owned());
        } else {
            faults.extend(self.ports.pod_faults(&record, netns).await?);
        }
        let found = self.faults(&record).await?;
        let left = match found.is_empty() || !self.ports.has_link(&record.host).await? {
            true => found,
            false => self.mended(&record, found).await,
        };
        faults.extend(left);
        if faults.is_empty() {
            Ok(())
        } else {
            Err(AgentError::Damaged {
                key: key.clone(),
                faults,
            })
        }
    }

    /// Mends the node's end of an attachment; returns the faults that are left.
    async fn mended(&self, record: &Attachment, found: Vec<String>) -> Vec<String> {
        let mended = async {
            let record = self.mend(record).await?;
            if !self.tables.faults(&record)?.is_empty() {
                // What is known of the tables is wrong, so it is read again.
                self.tables.reconcile_everything()?;
            }
            self.faults(&record).await
        };
        match mended.await {
            Ok(left) => {
                tracing::warn!(attachment = %record.key, ?found, ?left, "CHECK has mended a port");
                left
            }
            Err(error) => {
                tracing::warn!(attachment = %record.key, error = %chain(&error), "CHECK cannot mend a port");
                found
            }
        }
    }

    /// Lists the faults at the node's end of an attachment.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub async fn faults(&self, record: &Attachment) -> Result<Vec<String>, AgentError> {
        let found = self.ports.faults(record).await?;
        let mut faults = found.faults;
        if !found.is_linked {
            return Ok(faults);
        }
        faults.extend(self.reach.faults(record).await?);
        faults.extend(self.tables.faults(record)?);
        Ok(faults)
    }
}

/// The runtime's memory must name our interface and our addresses.
fn against_result(record: &Attachment, previous: &CniResult) -> Vec<String> {
    let mut faults = Vec::new();
    // Results before 0.3.0 name no interfaces.
    let named = previous.interfaces.is_empty()
        || previous
            .interfaces
            .iter()
            .any(|found| found.name == record.key.ifname.as_str());
    if !named {
        faults.push(format!(
            "prevResult does not name interface {}",
            record.key.ifname
        ));
    }
    for lease in &record.leases {
        let listed = previous
            .ips
            .iter()
            .any(|ip| ip.address.addr() == lease.address);
        let of_family = previous
            .ips
            .iter()
            .any(|ip| ip.address.is_ipv4() == lease.address.is_ipv4());
        // Results before 0.3.0 have one address a family.
        let as_good = listed || (previous.interfaces.is_empty() && of_family);
        if !as_good {
            faults.push(format!(
                "prevResult does not list address {}",
                lease.address
            ));
        }
    }
    faults
}
