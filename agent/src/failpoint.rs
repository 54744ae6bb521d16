//! Named points at which a test can make the agent die, to prove what survives.

use std::sync::OnceLock;

/// The points there are, in the order an attachment meets them.
pub const POINTS: [&str; 24] = [
    "add.reserved",
    "add.placed",
    "add.recorded",
    "add.live",
    "add.saved",
    "add.committed",
    "add.replied",
    "pod.recorded",
    "pod.delegated",
    "pod.member",
    "pod.committed",
    "pod.deleting",
    "pod.member-gone",
    "pod.forgotten",
    "del.recorded",
    "del.torn-down",
    "del.forgotten",
    "gc.one",
    "egress.namespace",
    "egress.port",
    "egress.made",
    "limit.recorded",
    "limit.queued",
    "limit.drained",
];

static CRASH_AT: OnceLock<String> = OnceLock::new();

/// Arms a point; the first call counts.
pub fn arm(point: String) {
    CRASH_AT.get_or_init(|| point);
}

/// Dies here if this point is armed, as `kill -9` would have it: no destructor runs.
pub fn reached(point: &'static str) {
    if CRASH_AT.get().is_some_and(|armed| armed == point) {
        std::process::abort();
    }
}
