//! Define the lease: what a healthy agent leaves for the time of its restart.
//!
//! The agent writes it next to its socket while it is well. The shim trusts it when no agent listens
//! there: `STATUS` is answered as the agent has answered it, and other commands wait for the next agent.
//!
//! The end of a lease is a reading of `CLOCK_BOOTTIME` (clock_gettime(2)) in one boot, so that neither
//! a change of the node's date nor a file of an earlier boot makes it longer. Its text ends in a sum: a
//! text that is cut or mixed from two is no lease.

use std::fmt::{self, Write as _};
use std::time::Duration;

/// File with the lease, in the directory of the agent's socket.
pub const LEASE: &str = "lease";

/// Longest time for which a lease counts, from when the agent wrote it (CNI-ST-05).
pub const LEASE_MAX: Duration = Duration::from_secs(30);

/// Longest text of a lease, bytes; a longer file is none.
pub const LEASE_BYTES: usize = 4096;

/// Most `STATUS` configurations that a lease answers.
pub const LEASE_ANSWERS: usize = 64;

/// First line: the kind of the file and the version of its layout.
const HEAD: &str = "podnet-lease 1";

/// Configuration of a `STATUS`, as a number to compare it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Question(u64);

impl Question {
    /// The number of a network configuration, value for value as on stdin.
    #[must_use]
    pub fn of(config: &str) -> Self {
        Self(fnv_1a(config.as_bytes()))
    }
}

/// Time until which an absent agent restarts, and its answers until then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The kernel's `boot_id`.
    boot: String,
    /// Reading of `CLOCK_BOOTTIME` at which it ends, whole milliseconds.
    until: Duration,
    /// Configurations whose last `STATUS` was answered with success.
    ready: Vec<Question>,
}

impl Lease {
    /// A lease of `length` from `now`, a reading of `CLOCK_BOOTTIME` in this boot.
    ///
    /// It is cut to [`LEASE_MAX`], and to the last [`LEASE_ANSWERS`] configurations.
    #[must_use]
    pub fn new(boot: &str, now: Duration, length: Duration, ready: &[Question]) -> Self {
        let until = now.saturating_add(length.min(LEASE_MAX));
        Self::ending(boot, until, ready)
    }

    /// A lease that ends at a reading of `CLOCK_BOOTTIME` in this boot.
    ///
    /// It keeps the last [`LEASE_ANSWERS`] configurations.
    #[must_use]
    pub fn ending(boot: &str, until: Duration, ready: &[Question]) -> Self {
        let surplus = ready.len().saturating_sub(LEASE_ANSWERS);
        let ready = ready.get(surplus..).unwrap_or_default();
        Self {
            boot: boot.trim().to_owned(),
            until: Duration::from_millis(millis(until)),
            ready: ready.to_vec(),
        }
    }

    /// Reads the text of a lease; none when it is not exactly one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let body = text.strip_suffix('\n')?;
        let (body, sum) = body.rsplit_once("\nsum ")?;
        if text.len() > LEASE_BYTES || hex(sum)? != fnv_1a(body.as_bytes()) {
            return None;
        }
        let mut lines = body.split('\n');
        if lines.next()? != HEAD {
            return None;
        }
        let boot = lines.next()?.strip_prefix("boot ")?.to_owned();
        let until = lines.next()?.strip_prefix("until-ms ")?.parse().ok()?;
        let ready = lines
            .map(|line| line.strip_prefix("ready ").and_then(hex).map(Question))
            .collect::<Option<Vec<_>>>()?;
        Some(Self {
            boot,
            until: Duration::from_millis(until),
            ready,
        })
    }

    /// Time left at `now` in this boot; none when it has ended or cannot be true.
    ///
    /// One of another boot has ended. One that would count longer than [`LEASE_MAX`] was written by
    /// another clock, and has never begun.
    #[must_use]
    pub fn left(&self, boot: &str, now: Duration) -> Option<Duration> {
        let left = self.until.checked_sub(now)?;
        let counts = self.boot == boot.trim() && !left.is_zero() && left <= LEASE_MAX;
        counts.then_some(left)
    }

    /// Reading of `CLOCK_BOOTTIME` at which it ends.
    #[must_use]
    pub const fn until(&self) -> Duration {
        self.until
    }

    /// Configurations whose last `STATUS` was answered with success, oldest first.
    #[must_use]
    pub fn ready(&self) -> &[Question] {
        &self.ready
    }

    /// True when the last `STATUS` with this configuration was answered with success.
    #[must_use]
    pub fn answers(&self, question: Question) -> bool {
        self.ready.contains(&question)
    }
}

/// Writes the text that [`Lease::parse`] reads.
impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut body = format!(
            "{HEAD}\nboot {}\nuntil-ms {}",
            self.boot,
            millis(self.until)
        );
        for Question(question) in &self.ready {
            write!(body, "\nready {question:016x}")?;
        }
        writeln!(f, "{body}\nsum {:016x}", fnv_1a(body.as_bytes()))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Reads a number as [`Lease`] writes it, and in no other way.
fn hex(digits: &str) -> Option<u64> {
    let number = u64::from_str_radix(digits, 16).ok()?;
    (format!("{number:016x}") == digits).then_some(number)
}

/// FNV-1a, 64 bits: to compare, not to protect. Only root writes here.
fn fnv_1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOOT: &str = "6c1e2d35-7f0a-4a5e-9c0e-0c9d4a5b6e7f";
    const NOW: Duration = Duration::from_secs(1000);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn lease() -> Lease {
        let ready = [Question::of("{}"), Question::of(r#"{"name":"blue"}"#)];
        Lease::new(BOOT, NOW, seconds(30), &ready)
    }

    /// CNI-ST-05: at most 30 s, counted from when the agent was well.
    #[test]
    fn a_lease_counts_until_its_end_and_no_longer_than_the_maximum() {
        let lease = lease();
        assert_eq!(lease.left(BOOT, NOW), Some(seconds(30)));
        assert_eq!(lease.left(BOOT, NOW + seconds(29)), Some(seconds(1)));
        assert_eq!(lease.left(BOOT, NOW + seconds(30)), None);
        assert_eq!(lease.left(BOOT, NOW + seconds(3000)), None);
        let longest = Lease::new(BOOT, NOW, seconds(3600), &[]);
        assert_eq!(longest.left(BOOT, NOW), Some(LEASE_MAX));
        let shortest = Lease::new(BOOT, NOW, Duration::ZERO, &[]);
        assert_eq!(shortest.left(BOOT, NOW), None);
        proof::of!("CNI-ST-05");
    }

    #[test]
    fn a_lease_of_another_boot_or_of_another_clock_never_counts() {
        let lease = lease();
        assert_eq!(lease.left("another", NOW), None);
        // As /proc has it, with the end of a line.
        assert_eq!(lease.left(&format!("{BOOT}\n"), NOW), Some(seconds(30)));
        // Further away than any agent writes it.
        assert_eq!(lease.left(BOOT, NOW - seconds(1)), None);
        assert_eq!(lease.left(BOOT, Duration::ZERO), None);
    }

    #[test]
    fn a_lease_answers_the_questions_that_were_answered_and_no_others() {
        let lease = lease();
        assert!(lease.answers(Question::of("{}")));
        assert!(!lease.answers(Question::of("{} ")));
        let many: Vec<_> = (0..=LEASE_ANSWERS)
            .map(|n| Question::of(&n.to_string()))
            .collect();
        let lease = Lease::new(BOOT, NOW, seconds(30), &many);
        assert_eq!(lease.ready(), many.get(1..).unwrap());
        assert!(lease.to_string().len() <= LEASE_BYTES);
        assert_eq!(Lease::parse(&lease.to_string()), Some(lease));
    }

    #[test]
    fn a_written_lease_reads_back() {
        let text = lease().to_string();
        assert_eq!(Lease::parse(&text), Some(lease()));
        let layout = format!(
            "podnet-lease 1\nboot {BOOT}\nuntil-ms 1030000\nready 08f44b07b5901a25\nready "
        );
        assert!(text.starts_with(&layout), "{text}");
    }

    /// Whatever is cut off, changed or put together from two leases is none.
    #[test]
    fn a_torn_text_is_no_lease() {
        let text = lease().to_string();
        for end in 0..text.len() {
            assert_eq!(Lease::parse(text.get(..end).unwrap()), None, "{end}");
        }
        let later = Lease::new(BOOT, NOW + seconds(60), seconds(30), &[]).to_string();
        for at in 0..later.len() {
            let mixed = format!("{}{}", &later[..at], &text[at..]);
            assert_eq!(Lease::parse(&mixed).filter(|_| mixed != text), None, "{at}");
        }
        for other in [
            text.replace("until-ms 1030000", "until-ms 9030000"),
            text.replace("podnet-lease 1", "podnet-lease 2"),
            format!("{text}\n"),
            format!("{text}{text}"),
            text.to_uppercase(),
            "a".repeat(LEASE_BYTES),
            String::new(),
        ] {
            assert_eq!(Lease::parse(&other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn one_changed_byte_is_no_lease(at in 0_usize..200, byte in 0_u8..128) {
            let text = lease().to_string();
            let mut bytes = text.clone().into_bytes();
            let at = at % bytes.len();
            bytes[at] = byte;
            let changed = String::from_utf8(bytes).unwrap();
            prop_assert_eq!(Lease::parse(&changed).is_some(), changed == text);
        }

        #[test]
        fn no_text_makes_parse_panic(text in ".{0,300}") {
            let _ = Lease::parse(&text);
        }
    }
}
