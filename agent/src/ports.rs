//! Links that wait for a pod: a veth pair with the dispatcher attached to its host end, both ends
//! down in the node's namespace.
//!
//! Attaching a TC program waits for a grace period of the kernel, about ten milliseconds with the
//! netlink lock held. Nobody who adds a pod should wait for that, so it is done beforehand.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use datapath::Hook;
use netdev::{Link, Netlink, VethSpec};
use tokio::sync::Notify;

use crate::error::AgentError;

/// Host ends start with this; the kernel's names have at most 15 bytes.
pub const HOST_PREFIX: &str = "pn";
/// Other ends, while they wait.
const PEER_PREFIX: &str = "pp";
/// `ifalias` of a link that belongs to podnet and to no pod.
pub const WARM_ALIAS: &str = "podnet: warm port";
/// `ifalias` of a link in use starts so, and goes on with the attachment.
pub const USED_ALIAS: &str = "podnet: ";

/// How long no attachment must have been made before ports are made for the next ones.
const QUIET: Duration = Duration::from_millis(20);

/// A link ready for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmPort {
    /// Host end.
    pub host_name: String,
    /// Host end.
    pub host_ifindex: u32,
    /// The end for the pod, still in the node's namespace.
    pub peer_ifindex: u32,
}

/// The links at hand.
#[derive(Debug)]
pub struct Ports {
    ready: Mutex<VecDeque<WarmPort>>,
    target: usize,
    next_name: AtomicU32,
    busy: AtomicUsize,
    wake: Notify,
    netlink: Netlink,
    hook: Hook,
}

/// Says that an attachment is being made; ports are not refilled meanwhile.
#[derive(Debug)]
pub struct Busy {
    ports: Arc<Ports>,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.ports.busy.fetch_sub(1, Ordering::Relaxed);
        self.ports.wake.notify_one();
    }
}

impl Ports {
    /// An empty stock that wants to be `target` links.
    pub fn new(target: usize, netlink: Netlink, hook: Hook) -> Arc<Self> {
        // Names of a run do not meet those of the run before, except by chance, which is handled.
        let start = std::process::id().rotate_left(16);
        Arc::new(Self {
            ready: Mutex::default(),
            target,
            next_name: AtomicU32::new(start),
            busy: AtomicUsize::new(0),
            wake: Notify::new(),
            netlink,
            hook,
        })
    }

    /// Keeps the refilling away while the value lives.
    pub fn busy(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy { ports: Arc::clone(self) }
    }

    /// A link: one that waits, or one made now.
    ///
    /// # Errors
    /// When none waits and none can be made.
    pub async fn take(&self) -> Result<WarmPort, AgentError> {
        let ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        match ready {
            Some(port) => Ok(port),
            None => self.make().await,
        }
    }

    /// Gives back a link that was taken and not touched.
    pub fn put_back(&self, port: WarmPort) {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).push_back(port);
    }

    /// How many links wait.
    pub fn waiting(&self) -> usize {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Takes over a link that an agent before us left, if it is as one of ours must be.
    pub fn adopt(&self, link: &Link, peer: &Link) -> bool {
        let fits = link.alias.as_deref() == Some(WARM_ALIAS)
            && !link.up
            && !peer.up
            && link.peer_ifindex == Some(peer.ifindex)
            && link.link_netnsid.is_none()
            && peer.name.starts_with(PEER_PREFIX)
            && self.waiting() < self.target.max(1);
        if fits {
            self.put_back(WarmPort {
                host_name: link.name.clone(),
                host_ifindex: link.ifindex,
                peer_ifindex: peer.ifindex,
            });
        }
        fits
    }

    /// A link in the stock was removed behind our back.
    pub fn forget(&self, ifindex: u32) {
        self.ready
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|port| port.host_ifindex != ifindex && port.peer_ifindex != ifindex);
        self.wake.notify_one();
    }

    /// Refills the stock, one link at a time, whenever nothing else goes on. For ever.
    pub async fn keep_full(self: Arc<Self>) {
        loop {
            while self.waiting() < self.target {
                if self.busy.load(Ordering::Relaxed) > 0 {
                    break;
                }
                match self.make().await {
                    Ok(port) => self.put_back(port),
                    Err(error) => {
                        tracing::warn!(%error, "cannot prepare a link; ADD will make its own");
                        tokio::time::sleep(Duration::from_secs(5)).await;
                    }
                }
            }
            self.wake.notified().await;
            tokio::time::sleep(QUIET).await;
        }
    }

    async fn make(&self) -> Result<WarmPort, AgentError> {
        let (name, pair) = loop {
            let number = self.next_name.fetch_add(1, Ordering::Relaxed);
            let name = format!("{HOST_PREFIX}{number:08x}");
            let mut spec = VethSpec::new(&name, &format!("{PEER_PREFIX}{number:08x}"));
            spec.alias = Some(WARM_ALIAS.to_owned());
            spec.queues = Some(1);
            match self.netlink.create_veth(spec).await {
                Ok(pair) => break (name, pair),
                Err(error) if error.is_exists() => {}
                Err(error) => return Err(error.into()),
            }
        };
        let (hook, interface) = (self.hook.clone(), name.clone());
        let ifindex = pair.host_ifindex;
        let attached = tokio::task::spawn_blocking(move || hook.attach(&interface, ifindex))
            .await
            .map_err(|_| AgentError::Internal { what: "attaching a program" });
        match attached {
            Ok(Ok(())) => Ok(WarmPort {
                host_name: name,
                host_ifindex: pair.host_ifindex,
                peer_ifindex: pair.peer_ifindex,
            }),
            Ok(Err(error)) => {
                self.netlink.delete(pair.host_ifindex).await?;
                Err(error.into())
            }
            Err(error) => {
                self.netlink.delete(pair.host_ifindex).await?;
                Err(error)
            }
        }
    }
}
