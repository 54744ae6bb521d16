//! Host ends of links that get their TCX links when nobody waits for it.

use std::collections::BTreeMap;
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
    waiting: Mutex<Queue>,
    busy: AtomicUsize,
    wake: Notify,
    hook: Hook,
    age: Duration,
}

/// Host ends that wait, each found by its index alone.
#[derive(Debug, Default)]
struct Queue {
    /// By a number that grows with each that comes.
    by_age: BTreeMap<u64, Waiting>,
    /// Numbers of those, by the index of the interface.
    numbers: BTreeMap<u32, u64>,
    next: u64,
}

#[derive(Debug)]
struct Waiting {
    host: HostEnd,
    since: Instant,
}

impl Queue {
    /// False when it waits already, and keeps its age.
    fn add(&mut self, host: HostEnd, since: Instant) -> bool {
        let known = self.numbers.get(&host.ifindex);
        let known = known.and_then(|number| self.by_age.get(number));
        if known.is_some_and(|waiting| waiting.host == host) {
            return false;
        }
        // One of another name had the index before, and is gone.
        self.forget(host.ifindex);
        self.next += 1;
        self.numbers.insert(host.ifindex, self.next);
        self.by_age.insert(self.next, Waiting { host, since });
        true
    }

    fn forget(&mut self, ifindex: u32) {
        if let Some(number) = self.numbers.remove(&ifindex) {
            self.by_age.remove(&number);
        }
    }

    /// Since when the oldest waits.
    fn oldest(&self) -> Option<Instant> {
        Some(self.by_age.first_key_value()?.1.since)
    }

    fn pop(&mut self) -> Option<HostEnd> {
        let (_, waiting) = self.by_age.pop_first()?;
        self.numbers.remove(&waiting.host.ifindex);
        Some(waiting.host)
    }
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

    fn queue(&self) -> MutexGuard<'_, Queue> {
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
    /// One that waits already keeps its age. None waits for what the kernel does not have.
    pub fn add(&self, host: HostEnd) {
        if !self.hook.lacks_tcx() && self.queue().add(host, Instant::now()) {
            self.wake.notify_one();
        }
    }

    /// This host end is gone.
    pub fn forget(&self, ifindex: u32) {
        self.queue().forget(ifindex);
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.queue().by_age.len()
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
            let oldest = self.queue().oldest();
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
        let is_old = queue.oldest()?.elapsed() >= self.age;
        is_old.then(|| queue.pop())?
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

#[cfg(test)]
mod tests {
    use super::*;

    fn end(name: &str, ifindex: u32) -> HostEnd {
        HostEnd {
            name: name.to_owned(),
            ifindex,
        }
    }

    #[test]
    fn host_ends_wait_in_the_order_in_which_they_came_first() {
        let now = Instant::now();
        let mut queue = Queue::default();
        for (name, ifindex) in [("a", 7), ("b", 5), ("c", 6)] {
            assert!(queue.add(end(name, ifindex), now));
        }
        assert!(!queue.add(end("a", 7), now + QUIET), "it waits already");
        assert_eq!(queue.oldest(), Some(now));
        queue.forget(5);
        // The index is another's by now, who came last.
        assert!(queue.add(end("d", 7), now + QUIET));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [end("c", 6), end("d", 7)]);
        assert!(queue.by_age.is_empty() && queue.numbers.is_empty());
    }
}
