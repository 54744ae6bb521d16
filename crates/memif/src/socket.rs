//! The control socket: its addresses, and one datagram with its descriptors.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, openat, statat, unlinkat};
use rustix::io::{Errno, IoSlice, IoSliceMut, ioctl_fionbio};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, listen, recvmsg, sendmsg, socket_with,
};

use crate::descriptor::PeerFd;
use crate::error::{Error, Violation};
use crate::handshake::Datagram;
use crate::wire::MESSAGE_LEN;

/// Clients that may wait to be accepted.
const BACKLOG: i32 = 16;
/// Bytes of an abstract name.
const NAME_MAX: usize = 107;
/// Room for a datagram that is too long, to be seen as such.
const ROOM: usize = MESSAGE_LEN * 2;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A file, whose path may be longer than a socket's address.
    ///
    /// The directory is opened first.
    Path(PathBuf),
    /// A name in the network namespace, without a file: DPDK's default.
    ///
    /// `@NAME` of libmemif. It is of the namespace of the thread that binds or connects.
    Abstract(Vec<u8>),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Abstract(name) => write!(f, "@{}", name.escape_ascii()),
        }
    }
}

impl Address {
    /// Makes a socket that listens there; replaces a socket file without a listener.
    ///
    /// # Errors
    /// Somebody listens there already, or the kernel refuses.
    pub fn listen(&self) -> Result<OwnedFd, Error> {
        let place = self.place()?;
        let failed = |operation| move |errno: Errno| self.failed(operation, errno);
        let socket = socket().map_err(failed("socket"))?;
        match bind(&socket, &place.address) {
            Err(Errno::ADDRINUSE) if place.is_stale() => {
                place.remove().map_err(failed("removing the old socket"))?;
                bind(&socket, &place.address)
            }
            other => other,
        }
        .map_err(failed("bind"))?;
        listen(&socket, BACKLOG).map_err(failed("listen"))?;
        Ok(socket)
    }

    /// Makes a socket that is connected to a server there.
    ///
    /// # Errors
    /// Nobody listens, or too many wait already.
    pub fn connect(&self) -> Result<OwnedFd, Error> {
        let place = self.place()?;
        let failed = |operation| move |errno: Errno| self.failed(operation, errno);
        let socket = socket().map_err(failed("socket"))?;
        connect(&socket, &place.address).map_err(failed("connect"))?;
        Ok(socket)
    }

    fn failed(&self, operation: &'static str, errno: Errno) -> Error {
        Error::Socket {
            operation,
            address: self.to_string(),
            source: io::Error::from(errno),
        }
    }

    fn place(&self) -> Result<Place, Error> {
        match self {
            Self::Abstract(name) => {
                let is_legal = (1..=NAME_MAX).contains(&name.len()) && !name.contains(&0);
                let address = SocketAddrUnix::new_abstract_name(name);
                match address {
                    Ok(address) if is_legal => Ok(Place {
                        address,
                        file: None,
                    }),
                    _ => Err(self.illegal(name.len())),
                }
            }
            Self::Path(path) => {
                let Some(name) = path.file_name() else {
                    return Err(self.illegal(0));
                };
                let parent = path.parent().filter(|parent| *parent != Path::new(""));
                let parent = parent.unwrap_or(Path::new("."));
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let directory = openat(CWD, parent, flags, Mode::empty())
                    .map_err(|errno| self.failed("opening the directory", errno))?;
                let short = Path::new("/proc/self/fd")
                    .join(directory.as_raw_fd().to_string())
                    .join(name);
                let address = SocketAddrUnix::new(&short).map_err(|_| self.illegal(name.len()))?;
                Ok(Place {
                    address,
                    file: Some((directory, name.to_owned().into())),
                })
            }
        }
    }

    fn illegal(&self, len: usize) -> Error {
        Error::Address {
            address: self.to_string(),
            len,
            max: match self {
                Self::Abstract(_) => NAME_MAX,
                // What is left of an address beside `/proc/self/fd/2147483647/`.
                Self::Path(_) => NAME_MAX.saturating_sub("/proc/self/fd/2147483647/".len()),
            },
        }
    }
}

/// An address as the kernel wants it, and the file that it names.
struct Place {
    address: SocketAddrUnix,
    file: Option<(OwnedFd, PathBuf)>,
}

impl Place {
    /// A socket file is there, without a listener.
    fn is_stale(&self) -> bool {
        let Some((directory, name)) = &self.file else {
            return false;
        };
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_socket =
            stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket);
        // A socket of another type is told that somebody listens, and does not disturb him.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let probe = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
        is_socket
            && probe.is_ok_and(|probe| connect(&probe, &self.address) == Err(Errno::CONNREFUSED))
    }

    fn remove(&self) -> Result<(), Errno> {
        match &self.file {
            Some((directory, name)) => unlinkat(directory, name, AtFlags::empty()),
            None => Ok(()),
        }
    }
}

/// Removes the file of a listening socket.
///
/// Dropping the socket does not remove it, because a successor may listen there already.
///
/// # Errors
/// It cannot be removed, or is not a socket's.
pub fn remove(path: &Path) -> io::Result<()> {
    let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        return Err(io::Error::other("not a socket"));
    }
    unlinkat(CWD, OsStr::new(path), AtFlags::empty()).map_err(io::Error::from)
}

fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// The next client, if one waits.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> Result<Option<OwnedFd>, Errno> {
    match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(socket) => Ok(Some(socket)),
        // Gone again before it was its turn.
        Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Makes a socket that somebody else made non-blocking.
pub(crate) fn set_nonblocking(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    ioctl_fionbio(socket, true)
}

/// Result of a receive.
pub(crate) enum Received {
    Datagram {
        bytes: Vec<u8>,
        descriptors: Vec<PeerFd>,
    },
    /// More ancillary data than any message has.
    Cut,
    Nothing,
    Hangup,
}

/// Takes a datagram with all its descriptors from a socket, without waiting.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> Result<Received, Errno> {
    let mut bytes = [0; ROOM];
    // Credentials come too if somebody has set SO_PASSCRED on the listening socket.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2), ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let mut buffers = [IoSliceMut::new(&mut bytes)];
    let message = match recvmsg(socket, &mut buffers, &mut ancillary, flags) {
        Ok(message) => message,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(Received::Nothing),
        Err(Errno::CONNRESET) => return Ok(Received::Hangup),
        Err(errno) => return Err(errno),
    };
    let mut descriptors = Vec::new();
    for control in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = control {
            descriptors.extend(rights.map(PeerFd::new));
        }
    }
    if message.flags.contains(ReturnFlags::CTRUNC) {
        return Ok(Received::Cut);
    }
    if message.bytes == 0 {
        return Ok(Received::Hangup);
    }
    Ok(Received::Datagram {
        bytes: bytes.into_iter().take(message.bytes).collect(),
        descriptors,
    })
}

/// Sends a message, without waiting.
///
/// At most one is ever on its way, so there is room for it.
///
/// # Errors
/// There is none, or the peer is gone.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> Result<(), SendError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let rights = descriptor.map(|fd| [fd]);
    if let Some(rights) = &rights {
        // There is room for one.
        let _ = ancillary.push(SendAncillaryMessage::ScmRights(rights));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags) {
        Ok(_) => Ok(()),
        Err(Errno::AGAIN) => Err(SendError::Full),
        Err(Errno::PIPE | Errno::CONNRESET) => Err(SendError::Hangup),
        Err(errno) => Err(SendError::Other(errno)),
    }
}

/// Why a message was not sent.
pub(crate) enum SendError {
    Full,
    Hangup,
    Other(Errno),
}

impl From<SendError> for crate::error::Closed {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Full => Self::Violation(Violation::NotReading),
            SendError::Hangup => Self::Hangup,
            SendError::Other(errno) => Self::Socket(errno),
        }
    }
}

/// Sends what a state machine wants to be sent.
pub(crate) fn send_step<F: std::os::fd::AsFd>(
    socket: BorrowedFd<'_>,
    datagram: &Datagram<F>,
) -> Result<(), SendError> {
    let descriptor = datagram.descriptor.as_ref().map(|fd| fd.as_fd());
    send(socket, &datagram.bytes, descriptor)
}
