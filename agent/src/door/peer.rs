//! Admits callers of the agent's socket: root of the node, outside of containers.
//!
//! User 0 alone says little: it is what containers run as, also those without any right. A container that
//! gets hold of the socket, by a mounted directory, could have plugins executed as root of the node.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Bit of `CAP_SYS_ADMIN` (linux/capability.h).
///
/// Runtimes need it to enter a pod's namespaces.
const SYS_ADMIN: u64 = 1 << 21;
/// Between two lines of the log about callers that were refused.
const LINE: Duration = Duration::from_secs(1);

/// The reason why a caller is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Stranger {
    #[error("the caller is user {0}: only root of the node may call")]
    User(u32),
    #[error(
        "the caller is in another {0} namespace than the agent: call from the node, not from a container"
    )]
    Namespace(&'static str),
    #[error(
        "the caller does not have CAP_SYS_ADMIN: call as root with all rights, not from a container"
    )]
    Capability,
    #[error("the caller is gone")]
    Gone,
    #[error(
        "{what} of the caller cannot be read ({kind}): the agent needs the node's /proc and CAP_SYS_PTRACE"
    )]
    Unreadable {
        /// The file.
        what: &'static str,
        /// The kernel's reason.
        kind: io::ErrorKind,
    },
}

/// Facts about a process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Facts {
    /// Its user namespace; none where the kernel has no such namespaces.
    user: Option<PathBuf>,
    /// Its PID namespace.
    pid: Option<PathBuf>,
    /// Its effective capabilities.
    capabilities: u64,
}

/// Whether the process that has connected may call.
///
/// # Errors
/// It may not.
pub(super) fn check(stream: &impl AsFd) -> Result<(), Stranger> {
    let unreadable = |errno: nix::Error| Stranger::Unreadable {
        what: "SO_PEERCRED",
        kind: io::Error::from(errno).kind(),
    };
    let peer = getsockopt(stream, sockopt::PeerCredentials).map_err(unreadable)?;
    if peer.uid() != 0 {
        return Err(Stranger::User(peer.uid()));
    }
    // A process that has no number here is in no namespace below this one.
    let pid = Pid::from_raw(peer.pid()).ok_or(Stranger::Namespace("PID"))?;
    let handle = handle(stream, pid)?;
    let process = Path::new("/proc").join(peer.pid().to_string());
    let caller = facts(&process);
    // As long as the process lives, its number is nobody else's: what was read is about it.
    if has_ended(handle.as_fd()) {
        return Err(Stranger::Gone);
    }
    judge(&facts(Path::new("/proc/self"))?, &caller?)
}

/// Opens a pidfd of the connected process.
///
/// Before Linux 6.5 it is of the process that has the peer's number now.
fn handle(stream: &impl AsFd, pid: Pid) -> Result<OwnedFd, Stranger> {
    match getsockopt(stream, sockopt::PeerPidfd) {
        Ok(handle) => Ok(handle),
        Err(_) => pidfd_open(pid, PidfdFlags::empty()).map_err(|_| Stranger::Gone),
    }
}

fn has_ended(process: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(process, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // What cannot be asked is not trusted.
    poll(&mut polled, Some(&now)) != Ok(0)
}

fn facts(process: &Path) -> Result<Facts, Stranger> {
    let status = fs::read_to_string(process.join("status"));
    let status = status.map_err(|error| unreadable("/proc/PID/status", &error))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    Ok(Facts {
        user: namespace(process, "ns/user", "/proc/PID/ns/user")?,
        pid: namespace(process, "ns/pid", "/proc/PID/ns/pid")?,
        capabilities: line.ok_or(Stranger::Capability)?,
    })
}

fn namespace(process: &Path, file: &str, what: &'static str) -> Result<Option<PathBuf>, Stranger> {
    match fs::read_link(process.join(file)) {
        Ok(link) => Ok(Some(link)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(what, &error)),
    }
}

fn unreadable(what: &'static str, error: &io::Error) -> Stranger {
    match error.kind() {
        io::ErrorKind::NotFound => Stranger::Gone,
        kind => Stranger::Unreadable { what, kind },
    }
}

fn judge(agent: &Facts, caller: &Facts) -> Result<(), Stranger> {
    if caller.user != agent.user {
        return Err(Stranger::Namespace("user"));
    }
    if caller.pid != agent.pid {
        return Err(Stranger::Namespace("PID"));
    }
    if caller.capabilities & SYS_ADMIN == 0 {
        return Err(Stranger::Capability);
    }
    Ok(())
}

/// Says why a caller was refused, at most once a second.
pub(super) fn refused(why: &Stranger) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let now = Instant::now();
    let Ok(mut last) = LAST.lock() else {
        return;
    };
    if last.is_none_or(|last| now.saturating_duration_since(last) >= LINE) {
        *last = Some(now);
        tracing::warn!(%why, "a caller of the agent's socket is refused");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn of_node() -> Facts {
        Facts {
            user: Some("user:[4026531837]".into()),
            pid: Some("pid:[4026531836]".into()),
            capabilities: (1 << 41) - 1,
        }
    }

    /// ATT-08: root of a container lacks the node's user namespace or CAP_SYS_ADMIN.
    #[test]
    fn root_of_a_container_is_not_root_of_the_node() {
        let node = of_node();
        assert_eq!(judge(&node, &of_node()), Ok(()));
        let runtime = Facts {
            capabilities: SYS_ADMIN,
            ..of_node()
        };
        assert_eq!(judge(&node, &runtime), Ok(()));
        let nested = Facts {
            user: Some("user:[4026532999]".into()),
            ..of_node()
        };
        assert_eq!(judge(&node, &nested), Err(Stranger::Namespace("user")));
        let container = Facts {
            pid: Some("pid:[4026532998]".into()),
            ..of_node()
        };
        assert_eq!(judge(&node, &container), Err(Stranger::Namespace("PID")));
        // What runtimes leave to containers if nothing else is said.
        for capabilities in [0, 0xa804_25fb] {
            let plain = Facts {
                capabilities,
                ..of_node()
            };
            assert_eq!(judge(&node, &plain), Err(Stranger::Capability));
        }
        // A kernel without user namespaces.
        let old = Facts {
            user: None,
            ..of_node()
        };
        assert_eq!(judge(&old, &old), Ok(()));
        proof::of!("ATT-08");
    }

    #[test]
    fn the_other_end_of_a_socket_is_found() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let own = facts(Path::new("/proc/self")).unwrap();
        let is_root = rustix::process::geteuid().is_root();
        let expected = match own.capabilities & SYS_ADMIN {
            _ if !is_root => Err(Stranger::User(rustix::process::geteuid().as_raw())),
            0 => Err(Stranger::Capability),
            _ => Ok(()),
        };
        assert_eq!(check(&ours), expected);
    }
}
