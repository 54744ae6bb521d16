//! Drive the server: sockets that are never waited for.
//!
//! The caller waits, by epoll or as it likes, until a socket is readable or a deadline has come.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::bell::Bells;
use crate::descriptor::PeerFd;
use crate::error::{Closed, Error, Violation};
use crate::handshake::{Door, ServerConfig, ServerEvent, ServerHandshake, Setup, Step};
use crate::memory;
use crate::port::{self, Connected, Doorbells, Kept, Port};
use crate::socket::{self, Address, Received};
use crate::wire::ReasonText;

/// Most messages that are handled in one call.
///
/// The rest waits for the next, after other connections had theirs.
const MESSAGES_AT_ONCE: usize = 16;
/// Clients that may be in their handshakes at a time.
const HALF_OPEN_MAX: usize = 16;

/// A change of a connection.
#[derive(Debug)]
#[must_use]
pub enum Event {
    /// Nothing to know.
    Nothing,
    /// Packets may flow through this.
    Connected(Port),
    /// The connection is over: drop its port, and then the connection.
    Closed(Closed),
}

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    config: Arc<ServerConfig>,
    doorbells: Doorbells,
    half_open: Arc<AtomicUsize>,
}

impl Listener {
    /// Listens at an address.
    ///
    /// # Errors
    /// Somebody listens there already, the kernel refuses, or `vm.overcommit_memory` is 2.
    pub fn bind(address: &Address, config: ServerConfig) -> Result<Self, Error> {
        Self::new(address.listen()?, config)
    }

    /// Makes a listener of a socket that listens already, in any network namespace.
    ///
    /// It must be of `SOCK_SEQPACKET`, and SO_PASSCRED is better left off.
    ///
    /// # Errors
    /// The socket cannot be made non-blocking, or `vm.overcommit_memory` is 2.
    pub fn new(socket: OwnedFd, config: ServerConfig) -> Result<Self, Error> {
        memory::check_overcommit()?;
        socket::set_nonblocking(socket.as_fd()).map_err(|errno| Error::Socket {
            operation: "making it non-blocking",
            address: "given by the caller".to_owned(),
            source: errno.into(),
        })?;
        Ok(Self {
            socket,
            config: Arc::new(config),
            doorbells: Doorbells::default(),
            half_open: Arc::default(),
        })
    }

    /// The same, with doorbells that are rung in another way.
    #[must_use]
    pub fn with_doorbells(mut self, doorbells: Doorbells) -> Self {
        self.doorbells = doorbells;
        self
    }

    /// Returns the settings for clients of this listener.
    pub(crate) fn settings(&self) -> (&Arc<ServerConfig>, Doorbells) {
        (&self.config, self.doorbells)
    }

    /// Readable when a client waits.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The interfaces behind the socket.
    pub fn doors(&self) -> &[Arc<Door>] {
        &self.config.doors
    }

    /// Accepts and greets the next client; `None` if none waits, or it was sent away.
    ///
    /// It is sent away if too many are in their handshakes already, or if it is gone.
    ///
    /// # Errors
    /// The kernel refuses, for example because the process has no descriptor left.
    pub fn accept(&self, now: Instant) -> Result<Option<ServerConnection>, Error> {
        let accepted = socket::accept(self.fd()).map_err(|errno| Error::Socket {
            operation: "accept",
            address: "of the listener".to_owned(),
            source: errno.into(),
        })?;
        let Some(socket) = accepted else {
            return Ok(None);
        };
        let Some(seat) = Seat::take(&self.half_open) else {
            return Ok(None);
        };
        let (handshake, hello) = ServerHandshake::new(Arc::clone(&self.config), now);
        let connection = ServerConnection {
            socket,
            handshake,
            seat: Some(seat),
            bells: None,
            doorbells: self.doorbells,
            max_frame: self.config.limits.max_frame,
            kept: None,
        };
        let greeted = socket::send_step(connection.socket.as_fd(), &hello);
        Ok(greeted.is_ok().then_some(connection))
    }
}

/// A place among those in their handshakes.
#[derive(Debug)]
struct Seat(Arc<AtomicUsize>);

impl Seat {
    fn take(taken: &Arc<AtomicUsize>) -> Option<Self> {
        if taken.fetch_add(1, Ordering::AcqRel) >= HALF_OPEN_MAX {
            taken.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        Some(Self(Arc::clone(taken)))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A client.
///
/// Drop its port first. With this the pages that the client had lent are given back, even if it keeps its
/// memory open, and then its interface is free; what was touched between the two would stay charged to
/// this process.
#[derive(Debug)]
pub struct ServerConnection {
    /// The first to be dropped: the interface is free when its memory is.
    kept: Option<Kept>,
    socket: OwnedFd,
    handshake: ServerHandshake<PeerFd>,
    seat: Option<Seat>,
    bells: Option<Bells>,
    doorbells: Doorbells,
    max_frame: u32,
}

impl ServerConnection {
    /// One that is connected already.
    pub(crate) fn resumed(
        listener: &Listener,
        socket: OwnedFd,
        handshake: ServerHandshake<PeerFd>,
        bells: Option<Bells>,
        kept: Kept,
    ) -> Self {
        Self {
            socket,
            handshake,
            seat: None,
            bells,
            doorbells: listener.doorbells,
            max_frame: listener.config.limits.max_frame,
            kept: Some(kept),
        }
    }

    /// Takes the connection apart: socket, hold on the interface, and the kept parts.
    ///
    /// The last only if it is connected.
    pub(crate) fn into_parts(self) -> (OwnedFd, ServerHandshake<PeerFd>, Option<(u32, Kept)>) {
        let id = self.handshake.door().map(Door::id);
        (self.socket, self.handshake, id.zip(self.kept))
    }

    /// Readable when [`Self::ready`] has something to do.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// When [`Self::tick`] must be called at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        self.handshake.deadline()
    }

    /// The interface that the client has, once it has one.
    pub fn door(&self) -> Option<&Door> {
        self.handshake.door()
    }

    /// Looks at what the client has sent.
    ///
    /// # Errors
    /// What this side could not do; the client was told to go.
    pub fn ready(&mut self, now: Instant) -> Result<Event, Error> {
        for _ in 0..MESSAGES_AT_ONCE {
            let step = match socket::receive(self.socket.as_fd()) {
                Ok(Received::Nothing) => break,
                Ok(Received::Hangup) => self.handshake.hangup(),
                Ok(Received::Cut) => self.handshake.violated(Violation::DescriptorsCut),
                Ok(Received::Datagram { bytes, descriptors }) => {
                    self.handshake.receive(&bytes, descriptors)
                }
                Err(errno) => return Ok(Event::Closed(Closed::Socket(errno))),
            };
            match self.act(step)? {
                Event::Nothing => {}
                event => return Ok(event),
            }
        }
        self.tick(now)
    }

    /// Checks the handshake's deadline, and whether the client blocks its doorbells.
    ///
    /// To be called at [`Self::deadline`], and about once a second.
    ///
    /// # Errors
    /// As [`Self::ready`].
    pub fn tick(&mut self, now: Instant) -> Result<Event, Error> {
        let step = match self.bells.as_mut().map(|bells| bells.check(now)) {
            Some(Err(violation)) => self.handshake.violated(violation),
            Some(Ok(())) | None => self.handshake.expire(now),
        };
        self.act(step)
    }

    /// Ends the connection because the port found the client out.
    pub fn violated(&mut self, violation: Violation) -> Closed {
        let step = self.handshake.violated(violation.clone());
        self.say_goodbye(&step);
        Closed::Violation(violation)
    }

    /// Ends the connection.
    pub fn disconnect(&mut self, reason: &str) -> Closed {
        let reason = ReasonText::cut(reason);
        let step = self.handshake.disconnect(reason);
        self.say_goodbye(&step);
        Closed::Local(reason)
    }

    fn say_goodbye(&self, step: &Step<PeerFd, ServerEvent<PeerFd>>) {
        if let Some(datagram) = &step.send {
            // A peer that cannot be told will see that the socket is closed.
            let _ = socket::send_step(self.socket.as_fd(), datagram);
        }
    }

    fn act(&mut self, step: Step<PeerFd, ServerEvent<PeerFd>>) -> Result<Event, Error> {
        match step.event {
            Some(ServerEvent::Closed(_)) => self.say_goodbye(&step),
            Some(ServerEvent::Connect(_)) | None => {
                if let Some(datagram) = &step.send
                    && let Err(error) = socket::send_step(self.socket.as_fd(), datagram)
                {
                    return Ok(Event::Closed(error.into()));
                }
            }
        }
        match step.event {
            None => Ok(Event::Nothing),
            Some(ServerEvent::Closed(why)) => Ok(Event::Closed(why)),
            Some(ServerEvent::Connect(setup)) => self.connect(setup),
        }
    }

    fn connect(&mut self, setup: Setup<PeerFd>) -> Result<Event, Error> {
        let id = self.handshake.door().map_or(0, Door::id);
        let made = port::of_server(setup, self.doorbells, self.max_frame);
        let made = match made {
            Ok(made) => made,
            Err(error) => {
                self.disconnect("out of resources");
                return Err(error);
            }
        };
        let Connected { port, bells, kept } = match made {
            Ok(made) => made,
            Err(violation) => return Ok(Event::Closed(self.violated(violation))),
        };
        // The rings are empty and flagged before the client knows that it may use them.
        let Some(connected) = self.handshake.accept() else {
            // Not in this order the pages would be touched again.
            drop(port);
            drop(kept);
            let violation = Violation::Displaced(id);
            return Ok(Event::Closed(self.violated(violation)));
        };
        self.bells = bells;
        self.kept = Some(kept);
        if let Err(error) = socket::send_step(self.socket.as_fd(), &connected) {
            return Ok(Event::Closed(error.into()));
        }
        self.seat = None;
        Ok(Event::Connected(port))
    }
}
