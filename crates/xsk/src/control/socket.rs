//! Sockets of both ends: datagrams with at most one descriptor.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, recvmsg, sendmsg, socket_with,
};

use crate::error::Error;

/// Longest datagram that is read, bytes.
///
/// The longest request is shorter, and a longer one is none.
const ROOM: usize = 256;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 16;

/// Where a control socket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A file.
    Path(PathBuf),
    /// A name without a file, in the network namespace of the thread that uses it.
    ///
    /// That is the thread that binds or connects.
    Abstract(String),
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(out, "{}", path.display()),
            Self::Abstract(name) => write!(out, "@{name}"),
        }
    }
}

/// Builds the abstract name of an interface's control socket, in a pod's namespace.
///
/// By it a pod finds the socket without a mount.
pub fn abstract_name(ifname: &str) -> Address {
    Address::Abstract(format!("podnet/afxdp/{ifname}"))
}

impl Address {
    fn failed(&self, operation: &'static str) -> impl FnOnce(Errno) -> Error {
        let address = self.to_string();
        move |source| Error::Control {
            operation,
            address,
            source: io::Error::from(source),
        }
    }

    fn place(&self) -> Result<SocketAddrUnix, Errno> {
        match self {
            Self::Path(path) => SocketAddrUnix::new(path.as_path()),
            Self::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
        }
    }

    pub(super) fn connect(&self) -> Result<OwnedFd, Error> {
        let connected = || {
            let address = self.place()?;
            let socket = seqpacket(SocketFlags::CLOEXEC)?;
            connect(&socket, &address)?;
            Ok(socket)
        };
        connected().map_err(self.failed("connect to"))
    }
}

fn seqpacket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Listens there; the file must not be there yet. The socket never blocks.
///
/// # Errors
/// The address is taken, too long, or not ours to make.
pub fn listen(address: &Address) -> Result<OwnedFd, Error> {
    let made = || {
        let place = address.place()?;
        let socket = seqpacket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        bind(&socket, &place)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(socket)
    };
    made().map_err(address.failed("listen on"))
}

/// The next who wants to talk, if one waits.
///
/// # Errors
/// The kernel refuses.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(socket) => Ok(Some(socket)),
        // Gone again before it was its turn.
        Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// A datagram of the control protocol, and the descriptor that came with it.
#[derive(Debug)]
pub struct Datagram {
    /// Its bytes; cut off at 256, which no request is long.
    pub bytes: Vec<u8>,
    /// The first descriptor. Further ones are closed.
    pub descriptor: Option<OwnedFd>,
}

/// Outcome of one read from a connection.
#[derive(Debug)]
pub enum Received {
    /// A datagram.
    Datagram(Datagram),
    /// Nothing yet.
    Nothing,
    /// The end.
    Hangup,
}

/// Takes a datagram from a socket; waits if the socket does.
///
/// # Errors
/// The kernel refuses.
pub fn receive(socket: impl AsFd) -> io::Result<Received> {
    let mut bytes = [0; ROOM];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut buffers = [IoSliceMut::new(&mut bytes)];
    let message = match recvmsg(
        socket,
        &mut buffers,
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    ) {
        Ok(message) => message,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(Received::Nothing),
        Err(Errno::CONNRESET) => return Ok(Received::Hangup),
        Err(errno) => return Err(errno.into()),
    };
    let mut descriptor = None;
    for control in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = control {
            for fd in rights {
                descriptor.get_or_insert(fd);
            }
        }
    }
    // A datagram without a byte cannot be told from the end, and is no request either.
    if message.bytes == 0 && !message.flags.contains(ReturnFlags::CTRUNC) {
        return Ok(Received::Hangup);
    }
    Ok(Received::Datagram(Datagram {
        bytes: bytes.into_iter().take(message.bytes).collect(),
        descriptor,
    }))
}

/// Sends a datagram, without waiting.
///
/// # Errors
/// There is no room, or nobody who listens.
pub fn send(socket: impl AsFd, text: &str, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let rights = descriptor.map(|fd| [fd]);
    if let Some(rights) = &rights {
        // There is room for one.
        let _ = ancillary.push(SendAncillaryMessage::ScmRights(rights));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(
        socket,
        &[IoSlice::new(text.as_bytes())],
        &mut ancillary,
        flags,
    )?;
    Ok(())
}
