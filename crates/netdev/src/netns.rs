//! Network namespaces: naming them by descriptor, entering and making them.

mod named;
mod of_socket;

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use nix::sched::{CloneFlags, unshare};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::sync::oneshot;

pub use self::named::NamedNetns;
use crate::connection::{Connection, Request};
use crate::error::Error;

/// The calling thread's own namespace. `self` would be that of the main thread.
const OWN: &str = "/proc/thread-self/ns/net";
/// `NSFS_MAGIC` (linux/magic.h).
const NSFS_MAGIC: u64 = 0x6e73_6673;
const THREAD_NAME: &str = "netns";

/// Identity of a namespace, as `stat(2)` has it (namespaces(7)).
///
/// The inode number is used again once a namespace is gone; hold a [`Netns`] to be sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetnsId {
    /// Device of the namespace file system.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
}

impl NetnsId {
    fn of(fd: impl AsFd) -> io::Result<Self> {
        let stat = rustix::fs::fstat(fd)?;
        Ok(Self {
            dev: stat.st_dev,
            ino: stat.st_ino,
        })
    }
}

/// As `readlink /proc/PID/ns/net` shows it.
impl fmt::Display for NetnsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "net:[{}]", self.ino)
    }
}

/// An open network namespace; it lives at least as long as this value.
///
/// Clones share the descriptor.
#[derive(Clone, Debug)]
pub struct Netns {
    fd: Arc<OwnedFd>,
    id: NetnsId,
}

impl Netns {
    /// Takes over a descriptor, and checks that it is a network namespace's.
    ///
    /// # Errors
    /// [`Error::NotNetns`].
    pub fn from_fd(fd: OwnedFd) -> Result<Self, Error> {
        Self::checked(fd, &mut Connection::open()?)
    }

    /// The same, on a connection that is there.
    pub(crate) fn checked(fd: OwnedFd, connection: &mut Connection) -> Result<Self, Error> {
        let inspect = |source: Errno| Error::InspectNetns {
            source: source.into(),
        };
        let fs = rustix::fs::fstatfs(&fd).map_err(inspect)?;
        if u64::try_from(fs.f_type) != Ok(NSFS_MAGIC) {
            return Err(Error::NotNetns {
                what: "it is not a namespace at all",
            });
        }
        // The file system says "a namespace", not of which type; rtnetlink accepts only network
        // ones (`get_net_ns_by_fd`). The ioctl for it, NS_GET_NSTYPE, has no safe wrapper.
        let number =
            u32::try_from(fd.as_raw_fd()).map_err(|_| Error::NotNetns { what: "closed" })?;
        let mut message = NsidMessage::default();
        message.attributes.push(NsidAttribute::Fd(number));
        let request = Request::new(RouteNetlinkMessage::GetNsId(message), 0);
        if connection.ask(request)?.is_err() {
            return Err(Error::NotNetns {
                what: "it is a namespace of another type",
            });
        }
        Self::trusted(fd).map_err(|source| Error::InspectNetns { source })
    }

    fn trusted(fd: OwnedFd) -> io::Result<Self> {
        let id = NetnsId::of(&fd)?;
        Ok(Self {
            fd: Arc::new(fd),
            id,
        })
    }

    /// Opens the namespace a file stands for: `/proc/PID/ns/net` or a bind mount of it.
    ///
    /// # Errors
    /// [`Error::OpenNetns`], [`Error::NotNetns`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(|source| Error::OpenNetns {
            path: path.to_owned(),
            source,
        })?;
        Self::from_fd(file.into())
    }

    /// The calling thread's namespace.
    ///
    /// # Errors
    /// [`Error::OpenNetns`].
    pub fn current() -> Result<Self, Error> {
        File::open(OWN)
            .and_then(|file| Self::trusted(file.into()))
            .map_err(|source| Error::OpenNetns {
                path: OWN.into(),
                source,
            })
    }

    /// Makes a namespace without a name.
    ///
    /// It ends with the last descriptor and process in it.
    ///
    /// # Errors
    /// [`Error::CreateNetns`] (needs `CAP_SYS_ADMIN`), [`Error::SpawnThread`].
    pub fn create() -> Result<Self, Error> {
        on_thread(|| {
            unshare_net()?;
            Self::current()
        })?
    }

    /// Which namespace it is.
    pub fn identity(&self) -> NetnsId {
        self.id
    }

    /// Reports whether it is the calling thread's namespace.
    ///
    /// A pod on the host network hands us this one.
    ///
    /// # Errors
    /// [`Error::OpenNetns`].
    pub fn same_as_current(&self) -> Result<bool, Error> {
        let stat = rustix::fs::stat(OWN).map_err(|source| Error::OpenNetns {
            path: OWN.into(),
            source: source.into(),
        })?;
        Ok(self.id
            == NetnsId {
                dev: stat.st_dev,
                ino: stat.st_ino,
            })
    }

    /// Runs `f` in this namespace on a thread of its own, and waits for its end.
    ///
    /// # Errors
    /// [`Error::EnterNetns`] (needs `CAP_SYS_ADMIN`), [`Error::SpawnThread`]; `f` did not run.
    ///
    /// # Panics
    /// If `f` does.
    pub fn run_in<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, Error> {
        on_thread(|| self.enter_for_good().map(|()| f()))?
    }

    /// Runs `f` as [`Netns::run_in`] does, without blocking the caller.
    ///
    /// If the future is dropped, `f` still runs to its end.
    ///
    /// # Errors
    /// As [`Netns::run_in`].
    ///
    /// # Panics
    /// If `f` does.
    pub async fn enter<T: Send + 'static>(
        &self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        let netns = self.clone();
        on_own_thread(move || netns.enter_for_good().map(|()| f())).await?
    }

    /// Puts the calling thread, which must end afterwards, into this namespace.
    pub(crate) fn enter_for_good(&self) -> Result<(), Error> {
        move_into_link_name_space(self.as_fd(), Some(LinkNameSpaceType::Network)).map_err(
            |source| Error::EnterNetns {
                netns: self.id,
                source: source.into(),
            },
        )
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Netns {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

fn on_thread<T: Send>(f: impl FnOnce() -> T + Send) -> Result<T, Error> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name(THREAD_NAME.to_owned())
            .spawn_scoped(scope, f)
            .map_err(|source| Error::SpawnThread { source })?;
        thread.join().or_else(|panic| resume_unwind(panic))
    })
}

/// Runs `f` on a thread that ends afterwards, without blocking the caller.
///
/// If the future is dropped, `f` still runs to its end.
///
/// # Panics
/// If `f` does.
pub(crate) async fn on_own_thread<T: Send + 'static>(
    f: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let (done, wait) = oneshot::channel();
    let thread = thread::Builder::new()
        .name(THREAD_NAME.to_owned())
        .spawn(move || {
            // The caller may have gone away; the work is done all the same.
            let _ = done.send(f());
        })
        .map_err(|source| Error::SpawnThread { source })?;
    match wait.await {
        Ok(outcome) => Ok(outcome),
        // The sender is only dropped unused by a panic, so the thread is ending.
        Err(_) => match thread.join() {
            Err(panic) => resume_unwind(panic),
            Ok(()) => Err(Error::ShuttingDown),
        },
    }
}

/// Gives the calling thread, which must end afterwards, a new namespace.
fn unshare_net() -> Result<(), Error> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| Error::CreateNetns {
        source: errno.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_file_is_not_a_network_namespace() {
        let file = File::open("/proc/self/status").expect("a file");
        assert!(matches!(
            Netns::from_fd(file.into()),
            Err(Error::NotNetns { .. })
        ));
    }

    #[test]
    fn a_namespace_of_another_type_is_not_a_network_namespace() {
        let file = File::open("/proc/self/ns/mnt").expect("a mount namespace");
        let error = Netns::from_fd(file.into()).expect_err("refused");
        assert!(matches!(error, Error::NotNetns { what } if what.contains("another type")));
    }

    #[test]
    fn the_own_namespace_is_recognised_through_any_descriptor() {
        let file = File::open("/proc/self/ns/net").expect("a network namespace");
        let netns = Netns::from_fd(file.into()).expect("accepted");
        assert!(netns.same_as_current().expect("comparable"));
        assert_eq!(netns.identity(), Netns::current().expect("open").identity());
        let link = std::fs::read_link(OWN).expect("a link");
        assert_eq!(link.to_string_lossy(), netns.identity().to_string());
    }

    #[test]
    fn a_missing_file_is_reported_with_its_path() {
        let error = Netns::open(Path::new("/nonexistent/netns")).expect_err("no such file");
        assert!(error.is_gone());
        assert_eq!(
            error.to_string(),
            "cannot open network namespace /nonexistent/netns"
        );
    }
}
