//! The host ends of links: how they are named, how they are known again, and how they get their TCX
//! links when nobody waits for it.

use std::collections::VecDeque;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cni_spec::AttachmentKey;
use datapath::{Dispatcher, Hook};
use netdev::Connection;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

use crate::digest::digest;
use crate::host::HostError;
use crate::record::HostEnd;

pub mod error;

pub use error::PortError;

/// Host ends start with this; the kernel's names have at most 15 bytes.
pub const HOST_PREFIX: &str = "pn";
/// Near ends of shaper pairs start with this, where what a pod sends waits.
pub const NEAR_PREFIX: &str = "ps";
/// Far ends of shaper pairs start with this, where it is handed back.
const FAR_PREFIX: &str = "pt";
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

/// The name of the near end of the shaper that belongs to this host end.
pub fn near_name(host: &str) -> String {
    sibling(host, NEAR_PREFIX)
}

/// The name of the far end of the shaper that belongs to this host end.
pub fn far_name(host: &str) -> String {
    sibling(host, FAR_PREFIX)
}

fn sibling(host: &str, prefix: &str) -> String {
    format!("{prefix}{}", host.strip_prefix(HOST_PREFIX).unwrap_or(host))
}

/// Has the dispatcher decide about all that comes in by a link, by a clsact filter: a tenth of a
/// millisecond where the kernel needs no grace period for it. Another program in the place of ours,
/// one that a dispatcher whose pins somebody removed has left, is replaced.
///
/// # Errors
/// When the dispatcher is not pinned, and when the kernel refuses.
pub fn attach_dispatcher(
    connection: &mut Connection,
    hook: &Hook,
    ifindex: u32,
) -> Result<(), HostError> {
    let program = hook.program(Dispatcher::Pod)?;
    Ok(connection.set_ingress_program(ifindex, program.as_fd(), Dispatcher::Pod.name())?)
}

/// Host ends that wait for their TCX link.
#[derive(Debug)]
pub struct Promotions {
    /// In the order of their age.
    waiting: Mutex<VecDeque<Waiting>>,
    busy: AtomicUsize,
    wake: Notify,
    hook: Hook,
    age: Duration,
}

#[derive(Debug)]
struct Waiting {
    host: HostEnd,
    since: Instant,
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
    /// None waits; those that come are promoted at this age.
    ///
    /// Removing an interface with a TCX link waits for an RCU grace period more than one with a
    /// filter: pods that end soon are spared it.
    pub fn new(hook: Hook, age: Duration) -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::default(),
            busy: AtomicUsize::new(0),
            wake: Notify::new(),
            hook,
            age,
        })
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps promotion away while the value lives.
    pub fn busy(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy {
            promotions: Arc::clone(self),
        }
    }

    /// Promotes this host end when it is old enough, at some quiet moment. One that waits already
    /// keeps its age.
    pub fn add(&self, host: HostEnd) {
        let mut queue = self.queue();
        if queue.iter().any(|waiting| waiting.host == host) {
            return;
        }
        queue.push_back(Waiting {
            host,
            since: Instant::now(),
        });
        drop(queue);
        self.wake.notify_one();
    }

    /// This host end is gone.
    pub fn forget(&self, ifindex: u32) {
        self.queue()
            .retain(|waiting| waiting.host.ifindex != ifindex);
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.queue().len()
    }

    /// Promotes what waits, one at a time, whenever nothing else goes on. For ever.
    pub async fn work(self: Arc<Self>) {
        loop {
            // Every request starts the wait for a quiet moment anew.
            while timeout(QUIET, self.wake.notified()).await.is_ok() {}
            while self.busy.load(Ordering::Relaxed) == 0 {
                let Some(host) = self.next() else { break };
                self.promote(host).await;
            }
            let oldest = self.queue().front().map(|waiting| waiting.since);
            match oldest {
                Some(since) => {
                    let _ = timeout_at(since + self.age, self.wake.notified()).await;
                }
                None => self.wake.notified().await,
            }
        }
    }

    /// The oldest, if it is old enough.
    fn next(&self) -> Option<HostEnd> {
        let mut queue = self.queue();
        let waiting = queue.pop_front_if(|oldest| oldest.since.elapsed() >= self.age)?;
        Some(waiting.host)
    }

    async fn promote(&self, host: HostEnd) {
        let hook = self.hook.clone();
        let name = host.name.clone();
        let done = tokio::task::spawn_blocking(move || {
            hook.promote(Dispatcher::Pod, &host.name, host.ifindex)
        })
        .await;
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
        let shapers = names
            .iter()
            .flat_map(|name| [near_name(name), far_name(name)]);
        let all: Vec<String> = names.iter().cloned().chain(shapers).collect();
        assert!(all.iter().all(|name| name.len() == 14), "{all:?}");
        let unique: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(unique.len(), all.len());
    }
}
