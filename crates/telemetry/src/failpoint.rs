//! Named points at which a test can kill a process, or make it wait.
//!
//! A kill proves what survives, a wait what goes on.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// The points at which it can die, in the order an attachment meets them.
pub const POINTS: [&str; 28] = [
    "add.reserved",
    "add.placed",
    "add.recorded",
    "add.judged",
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
    "guards.written",
    "guards.flipped",
    "guards.marked",
];

static CRASH_AT: OnceLock<String> = OnceLock::new();
/// A directory with points at which to wait, see [`pause`].
static PAUSE_IN: OnceLock<PathBuf> = OnceLock::new();

/// Arms a point; the first call counts.
pub fn arm(point: String) {
    CRASH_AT.get_or_init(|| point);
}

/// Makes threads wait at the points that have a file in this directory.
///
/// See [`pause`]; the first call counts.
pub fn pause_in(directory: PathBuf) {
    PAUSE_IN.get_or_init(|| directory);
}

/// Kills the process if this point is armed, as `kill -9` would.
///
/// No destructor runs.
pub fn reached(point: &'static str) {
    if CRASH_AT.get().is_some_and(|armed| armed == point) {
        std::process::abort();
    }
}

/// A point at which to wait, and the file that says for how long.
static HOLD_AT: OnceLock<(String, PathBuf)> = OnceLock::new();

/// Time between two looks for the file of [`held`], and that of [`pause`].
const LOOK: Duration = Duration::from_millis(20);

/// Arms a point written as `name=/path/of/a/file`; the first call counts.
pub fn hold(point: &str) {
    if let Some((name, file)) = point.split_once('=') {
        HOLD_AT.get_or_init(|| (name.to_owned(), file.into()));
    }
}

/// Blocks this thread while the file exists, if this point is armed.
///
/// Writes `held` into the file, so that the test knows.
pub fn held(point: &'static str) {
    let armed = HOLD_AT.get().filter(|(name, _)| name == point);
    let Some((_, file)) = armed else { return };
    if Path::exists(file) {
        // A file that is gone by now holds nothing.
        let _ = std::fs::OpenOptions::new()
            .write(true)
            .open(file)
            .and_then(|mut file| std::io::Write::write_all(&mut file, b"held"));
    }
    while Path::exists(file) {
        std::thread::sleep(LOOK);
    }
}

/// Waits here if the directory has a file of this name.
///
/// The first thread to come renames it to `POINT.held` and goes on when that is removed.
pub fn pause(point: &'static str) {
    let Some(directory) = PAUSE_IN.get() else {
        return;
    };
    let held = directory.join(format!("{point}.held"));
    if std::fs::rename(directory.join(point), &held).is_ok() {
        while held.exists() {
            std::thread::sleep(LOOK);
        }
    }
}

/// Makes the file `POINT.passed`: a thread was here while another was held.
pub fn passed(point: &'static str) {
    if let Some(directory) = PAUSE_IN.get() {
        let file = directory.join(format!("{point}.passed"));
        if let Err(error) = std::fs::write(&file, "") {
            tracing::error!(file = %file.display(), %error, "the file of a failpoint cannot be written");
        }
    }
}
