//! Send datagrams while something is changed.
//!
//! Datagrams of one kind must all arrive, and none of the other may.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use testbed::frame::marker;
use testbed::stream::Stream;
use testbed::{Port, wait};

use super::scene::{families, socket};

/// Between two datagrams.
const PACE: Duration = Duration::from_micros(300);

/// Datagrams from ever other ports, which a pod may not send to another.
#[derive(Debug)]
pub(crate) struct Refused {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    seen: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Refused {
    /// Begins to send to port 80 of the other pod, by both families.
    pub(crate) fn start(from: &Port, to: &Port) -> Self {
        let mark = marker();
        let stop = Arc::new(AtomicBool::new(false));
        let (sent, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let tap = to.tap();
        let sender = {
            let (from, ends) = (from.clone(), families(from, to));
            let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
            thread::spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    for (here, there) in ends {
                        let socket = socket(&from, (here, 0).into());
                        // One that cannot be sent, as its pod is going, has not arrived either.
                        let _ = socket.send_to(&mark, SocketAddr::from((there, 80)));
                        sent.fetch_add(1, Ordering::Release);
                    }
                    // Pacing, not waiting.
                    thread::sleep(PACE);
                }
            })
        };
        let watcher = {
            let (stop, seen) = (Arc::clone(&stop), Arc::clone(&seen));
            thread::spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    seen.fetch_add(tap.count(&mark) as u64, Ordering::Release);
                    thread::sleep(PACE);
                }
                seen.fetch_add(tap.count(&mark) as u64, Ordering::Release);
            })
        };
        let this = Self {
            stop,
            sent,
            seen,
            threads: vec![sender, watcher],
        };
        this.progress();
        this
    }

    /// Waits until more were sent.
    pub(crate) fn progress(&self) {
        let goal = self.sent.load(Ordering::Acquire) + 20;
        wait::until_true("datagrams to be sent", || {
            self.sent.load(Ordering::Acquire) >= goal
        });
    }

    /// Fails the test if any has arrived.
    #[track_caller]
    pub(crate) fn assert_none_seen(self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads {
            thread.join().expect("the threads do not panic");
        }
        let (sent, seen) = (&self.sent, &self.seen);
        let (sent, seen) = (sent.load(Ordering::Acquire), seen.load(Ordering::Acquire));
        assert_eq!(seen, 0, "{seen} of {sent} denied datagrams have arrived");
    }
}

/// Streams by both families, both ways.
pub(crate) fn streams(a: &Port, b: &Port) -> Vec<Stream> {
    let pairs = families(a, b).into_iter();
    pairs
        .map(|(from, to)| Stream::start(a, from, b, to))
        .collect()
}
