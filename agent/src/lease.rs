//! Keep the lease that covers a restart of this agent (CNI-ST-05).
//!
//! While the agent is well it writes a new end into the lease, every few seconds and last when it
//! stops. The CNI plugin goes by the lease while no agent listens on the socket, and the next agent
//! until it can answer itself: `STATUS` gets the answer that it had before.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cni_spec::{LEASE, LEASE_ANSWERS, Lease, Question};
use rustix::time::{ClockId, clock_gettime};
use telemetry::Sparing;
use tokio::sync::Notify;

/// Changes with every boot (random(4)).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Time between two new ends of the lease.
///
/// An agent that is killed leaves most of it.
pub const RENEW: Duration = Duration::from_secs(5);

/// Time between two lines of the log about a lease that cannot be written.
const LINE: Duration = Duration::from_secs(60);

/// File with the lease of the agent that listens on this socket.
fn file(socket: &Path) -> PathBuf {
    socket.parent().unwrap_or(Path::new("/")).join(LEASE)
}

/// File with a lease that is not finished.
fn draft(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// Files of the lease of the agent on this socket.
pub fn files(socket: &Path) -> [PathBuf; 2] {
    let path = file(socket);
    [draft(&path), path]
}

/// Reads `CLOCK_BOOTTIME`, which no change of the date moves.
fn boottime() -> Duration {
    // It has no negative readings.
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

/// Length of a lease that is kept, none when it is switched off, and its boot.
#[derive(Debug)]
struct Term {
    boot: String,
    length: Duration,
}

/// The lease of this agent, and what is left of that of the agent before it.
#[derive(Debug)]
pub struct RestartLease {
    path: PathBuf,
    /// None when no lease is kept.
    term: Option<Term>,
    before: Option<Lease>,
    now: Mutex<Now>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Now {
    /// Configurations whose last `STATUS` had success, that of the latest at the end.
    ready: Vec<Question>,
    /// Reading of `CLOCK_BOOTTIME` at which the written lease ends.
    until: Duration,
}

impl RestartLease {
    /// Reads the lease next to a socket, to keep it for `length`; zero keeps none.
    pub fn open(socket: &Path, length: Duration) -> Self {
        let path = file(socket);
        let boot = fs::read_to_string(BOOT_ID).ok();
        if boot.is_none() && !length.is_zero() {
            tracing::warn!(
                file = BOOT_ID,
                "the kernel does not tell its boot id; STATUS fails while the agent is restarted"
            );
        }
        let term = boot
            .filter(|_| !length.is_zero())
            .map(|boot| Term { boot, length });
        let before = term.as_ref().and_then(|term| {
            let lease = Lease::parse(&fs::read_to_string(&path).ok()?)?;
            lease.left(&term.boot, boottime()).map(|_| lease)
        });
        let now = before.as_ref().map_or_else(Now::default, |lease| Now {
            ready: lease.ready().to_vec(),
            until: lease.until(),
        });
        Self {
            path,
            term,
            before,
            now: Mutex::new(now),
            changed: Notify::new(),
        }
    }

    /// Time that is left of the lease of the agent before this one.
    pub fn inherited(&self) -> Duration {
        let left = self.term.as_ref().zip(self.before.as_ref());
        left.and_then(|(term, lease)| lease.left(&term.boot, boottime()))
            .unwrap_or_default()
    }

    /// True while the agent before this one answers a `STATUS` with this configuration.
    pub fn covers(&self, config: &str) -> bool {
        let answers = |lease: &Lease| lease.answers(Question::of(config));
        self.before.as_ref().is_some_and(answers) && !self.inherited().is_zero()
    }

    /// Takes note of the answer to a `STATUS` with this configuration.
    pub fn note(&self, config: &str, is_ready: bool) {
        let question = Question::of(config);
        let mut now = self.now();
        let known = now.ready.iter().position(|known| *known == question);
        if known.is_some() == is_ready {
            return;
        }
        if let Some(known) = known {
            now.ready.remove(known);
        } else {
            if now.ready.len() >= LEASE_ANSWERS {
                now.ready.remove(0);
            }
            now.ready.push(question);
        }
        drop(now);
        self.changed.notify_one();
    }

    /// Waits until the lease is to be written again, for [`RENEW`] at most.
    pub async fn due(&self) {
        // Either way it is time.
        let _ = tokio::time::timeout(RENEW, self.changed.notified()).await;
    }

    /// Writes the lease, with another end only when the agent is well.
    ///
    /// An agent that is not well lets it end. What fails is logged and tried again.
    pub fn write(&self, is_well: bool) {
        static FAILURES: Sparing = Sparing::new(LINE);
        let Some(term) = &self.term else { return };
        let lease = {
            let mut now = self.now();
            if is_well {
                now.until = boottime().saturating_add(term.length);
            }
            Lease::ending(&term.boot, now.until, &now.ready)
        };
        if lease.left(&term.boot, boottime()).is_none() {
            return;
        }
        if let Err(error) = place(&self.path, &lease.to_string())
            && FAILURES.admit(&error.to_string()).is_some()
        {
            tracing::warn!(
                file = %self.path.display(), %error,
                "the lease for a restart cannot be written; STATUS fails while the agent is restarted"
            );
        }
    }

    /// The lock is not held across an await.
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts a file in its place, whole or not at all.
///
/// It needs not survive a crash of the node: a lease ends with its boot.
fn place(path: &Path, text: &str) -> io::Result<()> {
    let draft = draft(path);
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // What is not finished is not left behind; the first error says why.
        let _ = fs::remove_file(&draft);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use cni_spec::LEASE_MAX;

    use super::*;

    const CONFIG: &str = r#"{"name": "blue"}"#;

    fn boot() -> String {
        fs::read_to_string(BOOT_ID).unwrap()
    }

    fn read(path: &Path) -> Option<Lease> {
        Lease::parse(&fs::read_to_string(path).ok()?)
    }

    struct Place {
        dir: tempfile::TempDir,
    }

    impl Place {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            Self { dir }
        }

        fn open(&self) -> RestartLease {
            RestartLease::open(&self.dir.path().join("agent.sock"), LEASE_MAX)
        }

        fn file(&self) -> PathBuf {
            self.dir.path().join("lease")
        }
    }

    /// CNI-ST-05: what was answered with success last, and no longer than 30 s.
    #[test]
    fn the_next_agent_answers_what_the_last_one_answered() {
        let place = Place::new();
        let first = place.open();
        assert!(!first.covers(CONFIG) && first.inherited().is_zero());
        first.note(CONFIG, true);
        first.note("{}", true);
        first.note("{}", false);
        first.write(true);
        assert!(!first.covers(CONFIG), "it answers for itself");
        let mode = fs::metadata(place.file()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let next = place.open();
        assert!(next.covers(CONFIG) && !next.covers("{}"));
        assert!(!next.inherited().is_zero() && next.inherited() <= LEASE_MAX);
        let names = fs::read_dir(place.dir.path()).unwrap().count();
        assert_eq!(names, 1, "no draft is left");
        proof::of!("CNI-ST-05");
    }

    /// CNI-ST-05: only an agent that is well makes it longer.
    #[test]
    fn an_agent_that_is_not_well_does_not_move_the_end() {
        let place = Place::new();
        let ended = boottime() + Duration::from_millis(20_000);
        let lease = Lease::ending(&boot(), ended, &[Question::of(CONFIG)]);
        fs::write(place.file(), lease.to_string()).unwrap();
        let agent = place.open();
        agent.note(CONFIG, false);
        agent.write(false);
        let after = read(&place.file()).unwrap();
        assert_eq!(
            (after.until(), after.ready()),
            (lease.until(), [].as_slice())
        );
        agent.write(true);
        assert!(read(&place.file()).unwrap().until() > lease.until());
        proof::of!("CNI-ST-05");
    }

    /// An agent that was never well writes no lease, and makes none longer.
    #[test]
    fn what_is_no_lease_is_not_inherited() {
        let place = Place::new();
        let ready = [Question::of(CONFIG)];
        let torn = Lease::new(&boot(), boottime(), LEASE_MAX, &ready).to_string();
        let of_before = Lease::new("6c1e2d35", boottime(), LEASE_MAX, &ready).to_string();
        let ended = Lease::ending(&boot(), boottime(), &ready).to_string();
        for text in [&torn[..torn.len() - 2], &of_before, &ended, ""] {
            fs::write(place.file(), text).unwrap();
            let agent = place.open();
            assert!(
                !agent.covers(CONFIG) && agent.inherited().is_zero(),
                "{text}"
            );
            agent.write(false);
            assert_eq!(fs::read_to_string(place.file()).unwrap(), text);
        }
    }

    #[test]
    fn no_lease_is_kept_where_none_is_wanted() {
        let place = Place::new();
        place.open().write(true);
        let none = RestartLease::open(&place.dir.path().join("agent.sock"), Duration::ZERO);
        assert!(none.inherited().is_zero());
        fs::remove_file(place.file()).unwrap();
        none.write(true);
        assert!(!place.file().exists());
    }

    #[test]
    fn a_lease_that_cannot_be_written_leaves_no_draft_and_no_other_lease() {
        let place = Place::new();
        fs::create_dir(place.file()).unwrap();
        place.open().write(true);
        assert_eq!(fs::read_dir(place.dir.path()).unwrap().count(), 1);
        assert!(place.file().is_dir());
    }

    #[tokio::test]
    async fn a_changed_answer_is_written_at_once_and_the_same_one_is_not() {
        let place = Place::new();
        let agent = place.open();
        agent.note(CONFIG, true);
        agent.changed.notified().await;
        agent.note(CONFIG, true);
        let again = agent.changed.notified();
        assert!(futures_util::FutureExt::now_or_never(again).is_none());
        agent.note(CONFIG, false);
        agent.changed.notified().await;
    }
}
