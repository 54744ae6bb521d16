//! Ends removals that cannot succeed.
//!
//! Plugins of others may fail `DEL` of a pod whose namespace is gone.
//!
//! A NetworkAttachmentDefinition can name a plugin that fails for ever, and each attempt of the kubelet
//! to start the pod leaves a record. The attempts are counted in the record, pauses between them grow,
//! and after the last one the record is erased. [`LEFT_MAX`] bounds how many such records there are.

use std::collections::BTreeMap;

use book::pods::PodChange;
use book::pods::record::PodRecord;
use book::record::State;
use cni_spec::AttachmentKey;
use telemetry::chain;

use crate::error::AgentError;
use crate::node::Node;

/// Attempts of the agent to remove a pod whose namespace is gone.
///
/// With pauses of 1, 2, 4, 8, 16, 16 and 16 audits between them they take half an hour.
pub(crate) const ATTEMPTS: u32 = 8;
/// Most pods whose namespace is gone and that could not be removed.
const LEFT_MAX: usize = 256;

impl Node {
    /// Counts a failed attempt, and gives up after the last one.
    ///
    /// The caller holds the container's lock.
    ///
    /// # Errors
    /// The failure, unless it was the last.
    pub(super) async fn postpone(
        &self,
        key: &AttachmentKey,
        error: AgentError,
    ) -> Result<(), AgentError> {
        self.book.pods().postpone(key);
        let Some(mut record) = self.book.pods().get(key) else {
            return Err(error);
        };
        // With the namespace there, the runtime is still to say `DEL`.
        if !record.sandbox.is_gone() || self.has_own_members(&record) {
            return Err(error);
        }
        record.attempts = record.attempts.saturating_add(1);
        if record.attempts >= ATTEMPTS {
            return self.give_up(&record, &chain(&error)).await;
        }
        self.book.save_pod(&record).await?;
        self.book.pods().update(&record);
        Err(error)
    }

    /// Gives up pods beyond [`LEFT_MAX`], of the namespace that has the most of them.
    pub(super) async fn give_up_surplus(&self) {
        for key in surplus(&self.book.pods().records(), LEFT_MAX) {
            let _guard = self.book.turn(&key.container).await;
            let Some(record) = self.book.pods().get(&key) else {
                continue;
            };
            // It may have been removed and made anew since.
            if record.state != State::Deleting || self.has_own_members(&record) {
                continue;
            }
            let why = format!("more than {LEFT_MAX} pods are left");
            if let Err(error) = self.give_up(&record, &why).await {
                tracing::warn!(pod = %record.key, %error, "the attachments of a pod that is gone could not be given up; the audit tries again");
            }
        }
    }

    /// Erases the record of a pod, and logs the plugins that may have something left.
    async fn give_up(&self, record: &PodRecord, why: &str) -> Result<(), AgentError> {
        self.book.erase_pod(&record.key).await?;
        self.book.pods().remove(&record.key);
        for left in left(record) {
            tracing::error!(
                pod = %record.key,
                network = left.network,
                interface = left.ifname,
                plugins = left.plugins.join(", "),
                attempts = record.attempts,
                error = why,
                "the removal is given up: the pod's namespace is gone and these plugins do not succeed in DEL; \
                 correct or install them, and remove what they keep for this container by hand"
            );
        }
        if let Some(pod) = &record.pod {
            self.book.pods().tell(PodChange::Detached {
                key: record.key.clone(),
                pod: pod.clone(),
            });
        }
        Ok(())
    }

    /// True while something of our own is left, which is never given up.
    fn has_own_members(&self, record: &PodRecord) -> bool {
        let ledger = self.book.ledger();
        record.members.iter().any(|member| {
            member.delegation().is_none() && ledger.get(&record.key_of(member)).is_some()
        })
    }
}

/// Plugins of a chain that may have something left.
struct Left<'a> {
    network: &'a str,
    ifname: String,
    plugins: Vec<&'a str>,
}

fn left(record: &PodRecord) -> Vec<Left<'_>> {
    let members = record.members.iter();
    let members = members.filter_map(|it| Some((&it.ifname, it.delegation()?)));
    let ports = record.host_ports.iter().map(|it| (&record.key.ifname, it));
    members
        .chain(ports)
        .filter(|(_, delegation)| !delegation.is_settled())
        .map(|(ifname, delegation)| Left {
            network: &delegation.network,
            ifname: ifname.to_string(),
            plugins: delegation.unsettled().collect(),
        })
        .collect()
}

/// Pods beyond `most` of those with a failed attempt.
///
/// Each is the one with the most attempts of the namespace that has the most pods left at that point.
fn surplus(records: &[PodRecord], most: usize) -> Vec<AttachmentKey> {
    let mut by_namespace: BTreeMap<&str, Vec<&PodRecord>> = BTreeMap::new();
    for record in records.iter().filter(|record| record.attempts > 0) {
        let namespace = record.pod.as_ref().map_or("", |pod| &pod.namespace);
        by_namespace.entry(namespace).or_default().push(record);
    }
    for all in by_namespace.values_mut() {
        all.sort_by_key(|record| record.attempts);
    }
    let count: usize = by_namespace.values().map(Vec::len).sum();
    let mut given_up = Vec::new();
    for _ in most..count {
        let fullest = by_namespace.values_mut().max_by_key(|all| all.len());
        let record = fullest.and_then(Vec::pop);
        given_up.extend(record.map(|record| record.key.clone()));
    }
    given_up
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(namespace: &str, container: &str, attempts: u32) -> PodRecord {
        serde_json::from_value(json!({
            "key": {"containerID": container, "ifname": "eth0"},
            "state": "Deleting", "cniNetwork": "podnet", "requestDigest": "",
            "pod": {"namespace": namespace, "name": container, "uid": null},
            "sandbox": {"path": "", "dev": 0, "ino": 0},
            "members": [], "attempts": attempts,
        }))
        .unwrap()
    }

    /// ATT-17: one namespace that fills the list does not end the attempts of another.
    #[test]
    fn surplus_pods_are_of_the_namespace_that_has_the_most() {
        let mut records: Vec<PodRecord> = (1..=6)
            .map(|number| record("noisy", &format!("n{number}"), number))
            .collect();
        records.push(record("quiet", "q1", 7));
        records.push(record("quiet", "q2", 0));
        let names = |most| -> Vec<String> {
            let keys = surplus(&records, most).into_iter();
            keys.map(|key| key.container.to_string()).collect()
        };
        assert_eq!(names(7), Vec::<String>::new());
        assert_eq!(names(5), ["n6", "n5"]);
        assert_eq!(names(0).len(), 7, "without an attempt nothing is given up");
        proof::of!("ATT-17");
    }
}
