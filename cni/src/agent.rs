//! The way to the agent: one connection, one request, one reply.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use cni_spec::{ACK, Reply, SpecError, read_frame};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, sendmsg, socket_with,
};

use crate::patience::Patience;

/// Between two attempts to reach the agent.
const RETRY: Duration = Duration::from_millis(20);

/// Waits between two attempts to reach the agent.
pub(crate) fn pause() {
    thread::sleep(RETRY);
}

/// How the exchange with the agent failed.
#[derive(Debug)]
pub(crate) enum TransportError {
    /// The agent's socket refuses connections: the request was not sent.
    Connect { source: io::Error },
    /// The request may have been sent in part.
    Send { source: io::Error },
    /// The request was sent, and no reply that we understand came back.
    Reply { source: SpecError },
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect { source } => write!(f, "connect: {source}"),
            Self::Send { source } => write!(f, "send: {source}"),
            Self::Reply { source } => {
                write!(f, "reply: {source}")?;
                match std::error::Error::source(source) {
                    Some(cause) => write!(f, ": {cause}"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl TransportError {
    /// True when no agent listens at the socket.
    ///
    /// An agent that is there and cannot keep up is not away.
    pub(crate) fn is_absence(&self) -> bool {
        let Self::Connect { source } = self else {
            return false;
        };
        let errno = Errno::from_io_error(source);
        matches!(errno, Some(Errno::NOENT | Errno::CONNREFUSED))
    }

    /// True when the other side ended the connection before its answer.
    pub(crate) fn is_loss(&self) -> bool {
        let source = match self {
            Self::Connect { .. } => return false,
            Self::Send { source }
            | Self::Reply {
                source: SpecError::FrameIo { source },
            } => source,
            Self::Reply { source } => return matches!(source, SpecError::FrameCut { .. }),
        };
        matches!(
            source.kind(),
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
        )
    }
}

/// A connection on which everything ends at a deadline.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    deadline: Instant,
}

impl Connection {
    /// Connects; while `patience` lasts an agent that is not there is awaited.
    pub(crate) fn open(
        socket: &Path,
        patience: &mut Patience<'_>,
        deadline: Instant,
    ) -> Result<Self, TransportError> {
        let fail = |source: Errno| TransportError::Connect {
            source: source.into(),
        };
        let address = SocketAddrUnix::new(socket).map_err(fail)?;
        loop {
            match Self::connect_once(&address, deadline) {
                Ok(stream) => return Ok(Self { stream, deadline }),
                Err(Errno::NOENT | Errno::CONNREFUSED | Errno::AGAIN)
                    if patience.lasts() && Instant::now() < deadline =>
                {
                    pause();
                }
                Err(errno) => return Err(fail(errno)),
            }
        }
    }

    fn connect_once(address: &SocketAddrUnix, deadline: Instant) -> Result<UnixStream, Errno> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // A connect waits while the backlog is full; this ends the wait, and later the sends.
        set_socket_timeout(&socket, Timeout::Send, Some(left(deadline)))?;
        retry_on_intr(|| connect(&socket, address))?;
        Ok(socket.into())
    }

    /// Sends the frame; the descriptor goes with its first bytes (SCM_RIGHTS, unix(7)).
    pub(crate) fn send(
        &mut self,
        frame: &[u8],
        fd: Option<&OwnedFd>,
    ) -> Result<(), TransportError> {
        let fail = |source| TransportError::Send { source };
        let fds = fd.map(AsFd::as_fd);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(fds.as_slice())) {
            return Err(fail(Errno::NOBUFS.into()));
        }
        if fd.is_none() {
            ancillary.clear();
        }
        let data = [IoSlice::new(frame)];
        let sent =
            retry_on_intr(|| sendmsg(&self.stream, &data, &mut ancillary, SendFlags::NOSIGNAL));
        let sent = sent.map_err(|errno| fail(errno.into()))?;
        let rest = frame.get(sent..).unwrap_or_default();
        self.stream.write_all(rest).map_err(fail)
    }

    /// Waits for the reply.
    pub(crate) fn reply(&mut self) -> Result<Reply, TransportError> {
        read_frame(&mut Timed(self))
            .and_then(|body| Reply::from_body(&body))
            .map_err(|source| TransportError::Reply { source })
    }

    /// Tells the agent that the runtime has the result.
    pub(crate) fn acknowledge(mut self) -> io::Result<()> {
        self.stream.write_all(&[ACK])
    }
}

/// Zero would mean "without limit" to the kernel.
fn left(deadline: Instant) -> Duration {
    let left = deadline.saturating_duration_since(Instant::now());
    left.max(Duration::from_millis(1))
}

/// Reads until the deadline, however the bytes trickle in.
struct Timed<'a>(&'a Connection);

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Connection { stream, deadline } = self.0;
        if Instant::now() >= *deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left(*deadline)))?;
        (&*stream).read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => error,
        })
    }
}
