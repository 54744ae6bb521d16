//! Fill the file system on which a node's agent keeps its records.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::e2e::chaos::ready_agent;
use crate::e2e::commands::{SYSTEM, kubectl, on_node};
use crate::e2e::objects::{Objects, until};

/// How large it is: a few times what the records of the test need.
const SIZE: &str = "32m";
/// How long it is full, and how long it has room, each time.
const FULL: Duration = Duration::from_secs(20);
const ROOM: Duration = Duration::from_secs(40);

/// The small file system below the agent's records; it goes when the test is over.
pub(super) struct Small {
    node: &'static str,
}

/// Ends the agent of a node and waits for the next one.
fn replace_agent(objects: &Objects, node: &str) {
    let (name, uid) = until("the agent", || ready_agent(objects, node));
    let deleted = kubectl(&["delete", "pod", "--namespace", SYSTEM, &name]);
    assert!(deleted.is_ok(), "{deleted:?}");
    until("the next agent", || {
        ready_agent(objects, node).filter(|(_, other)| *other != uid)
    });
}

impl Small {
    /// Puts the records of a node's agent on a small file system, and restarts it.
    pub(super) fn make(objects: &Objects, node: &'static str) -> Self {
        let script = format!(
            "mkdir -p /run/small && mount -t tmpfs -o size={SIZE},mode=0700 tmpfs /run/small && \
             cp -a /var/lib/podnet/. /run/small/ && mount --bind /run/small /var/lib/podnet"
        );
        on_node(node, &script);
        replace_agent(objects, node);
        Self { node }
    }

    /// Fills it and makes room, until it is told to stop. How often it was full.
    pub(super) fn fill_again_and_again(&self, stop: &AtomicBool) -> usize {
        let mut fills = 0;
        while !stop.load(Ordering::Relaxed) {
            // `dd` fails when nothing fits any more, which is what it is for.
            on_node(
                self.node,
                "dd if=/dev/zero of=/run/small/hog bs=4096 2>/dev/null; true",
            );
            fills += 1;
            pause(FULL, stop);
            on_node(self.node, "rm -f /run/small/hog");
            pause(ROOM, stop);
        }
        fills
    }

    /// Takes it away; the records go back to where they were.
    pub(super) fn remove(self, objects: &Objects) {
        on_node(
            self.node,
            "umount /var/lib/podnet && rm -rf /var/lib/podnet/* && \
             cp -a /run/small/. /var/lib/podnet/ && umount /run/small",
        );
        replace_agent(objects, self.node);
    }
}

/// An attack takes its time; nothing waits for this.
fn pause(how_long: Duration, stop: &AtomicBool) {
    let step = Duration::from_millis(200);
    let mut left = how_long;
    while !left.is_zero() && !stop.load(Ordering::Relaxed) {
        thread::sleep(step);
        left = left.saturating_sub(step);
    }
}
