//! Host ends of links that get their TCX links when nobody waits for it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use book::record::HostEnd;
use datapath::{Dispatcher, Hook};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

/// How long no attachment must have been made or removed before TCX links are made.
const QUIET: Duration = Duration::from_secs(1);

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

    /// Queues a host end for promotion at a quiet moment, when it is old enough.
    ///
    /// One that waits already keeps its age.
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
            Ok(Ok(true)) => tracing::debug!(interface = name, "the port has its TCX link"),
            // The filter does the same work.
            Ok(Ok(false)) | Err(_) => {}
            Ok(Err(error)) => {
                tracing::debug!(interface = name, %error, "the port gets no TCX link, and its filter stays");
            }
        }
    }
}
