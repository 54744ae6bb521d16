//! The host ends of links: how they are named, how they are known again, and how they get their TCX
//! links when nobody waits for it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cni_spec::AttachmentKey;
use datapath::Hook;
use tokio::sync::Notify;

use crate::ledger::digest;
use crate::record::HostEnd;

/// Host ends start with this; the kernel's names have at most 15 bytes.
pub const HOST_PREFIX: &str = "pn";
/// `ifalias` of a host end starts so, and goes on with the attachment.
pub const ALIAS_PREFIX: &str = "podnet: ";

/// How long no attachment must have been made or removed before TCX links are made.
const QUIET: Duration = Duration::from_secs(1);

/// The name of the host end of an attachment: always the same one, so that a record can name it
/// before it is there, and a restart finds it.
pub fn host_name(key: &AttachmentKey) -> String {
    let digest = digest(key.to_string().as_bytes());
    // 48 of its 64 bits fit.
    format!("{HOST_PREFIX}{:012x}", digest >> 16)
}

/// Host ends that wait for their TCX link.
#[derive(Debug)]
pub struct Promotions {
    waiting: Mutex<VecDeque<HostEnd>>,
    busy: AtomicUsize,
    wake: Notify,
    hook: Hook,
}

/// Says that an attachment is being made or removed; nothing is promoted meanwhile.
#[derive(Debug)]
pub struct Busy {
    promotions: Arc<Promotions>,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.promotions.busy.fetch_sub(1, Ordering::Relaxed);
        self.promotions.wake.notify_one();
    }
}

impl Promotions {
    /// None waits.
    pub fn new(hook: Hook) -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::default(),
            busy: AtomicUsize::new(0),
            wake: Notify::new(),
            hook,
        })
    }

    /// Keeps promotion away while the value lives.
    pub fn busy(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy {
            promotions: Arc::clone(self),
        }
    }

    /// Promotes this host end at some quiet moment.
    pub fn add(&self, host: HostEnd) {
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(host);
        self.wake.notify_one();
    }

    /// This host end is gone.
    pub fn forget(&self, ifindex: u32) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|host| host.ifindex != ifindex);
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Promotes what waits, one at a time, whenever nothing else goes on. For ever.
    pub async fn work(self: Arc<Self>) {
        loop {
            // Every request starts the wait for a quiet moment anew.
            while tokio::time::timeout(QUIET, self.wake.notified())
                .await
                .is_ok()
            {}
            while self.busy.load(Ordering::Relaxed) == 0 {
                let next = self
                    .waiting
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .pop_front();
                let Some(host) = next else { break };
                self.promote(host).await;
            }
            if self.waiting() == 0 {
                self.wake.notified().await;
            }
        }
    }

    async fn promote(&self, host: HostEnd) {
        let hook = self.hook.clone();
        let name = host.name.clone();
        let done =
            tokio::task::spawn_blocking(move || hook.promote(&host.name, host.ifindex)).await;
        match done {
            Ok(Ok(true)) => tracing::debug!(interface = name, "tcx link attached"),
            // The filter does the same work.
            Ok(Ok(false)) | Err(_) => {}
            Ok(Err(error)) => {
                tracing::debug!(interface = name, %error, "no tcx link, the filter stays");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cni_spec::{ContainerId, IfName};

    use super::*;

    #[test]
    fn a_host_name_fits_the_kernel_and_belongs_to_one_attachment() {
        let key = |container: &str, ifname: &str| AttachmentKey {
            container: ContainerId::new(container).unwrap(),
            ifname: IfName::new(ifname).unwrap(),
        };
        let long = "c".repeat(64);
        let names = [
            key("a", "net1"),
            key("a", "net2"),
            key("b", "net1"),
            key(&long, "net1"),
        ]
        .map(|key| host_name(&key));
        for name in &names {
            assert!(name.len() <= 15 && name.starts_with(HOST_PREFIX), "{name}");
        }
        let unique: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
    }
}
