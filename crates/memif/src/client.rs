//! Drive the client: connects, hands its memory over, and connects again.

use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::bell::Bells;
use crate::descriptor::PeerFd;
use crate::error::{Closed, Error, Violation};
use crate::handshake::{ClientConfig, ClientEvent, ClientHandshake, Step};
use crate::memory;
use crate::port::{Doorbells, Prepared};
use crate::server::Event;
use crate::socket::{self, Address, Received};
use crate::wire::ReasonText;

/// Messages that are looked at in one call.
const MESSAGES_AT_ONCE: usize = 16;
/// Between two attempts, as VPP has it.
const RETRY: Duration = Duration::from_secs(3);

/// How the client gets a connected socket.
type Connect = Box<dyn FnMut() -> Result<OwnedFd, Error> + Send>;

/// A client of one interface of a server.
pub struct Client {
    config: ClientConfig,
    doorbells: Doorbells,
    connect: Connect,
    retry: Duration,
    session: Option<Session>,
    /// When to try again.
    due: Option<Instant>,
}

/// One connection.
struct Session {
    socket: OwnedFd,
    handshake: ClientHandshake<Arc<PeerFd>>,
    prepared: Option<Prepared>,
    bells: Option<Bells>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("config", &self.config)
            .field("due", &self.due)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client of the server at `address`. It connects at the first [`Self::poll`].
    ///
    /// # Errors
    /// `vm.overcommit_memory` is 2.
    pub fn new(address: Address, config: ClientConfig, now: Instant) -> Result<Self, Error> {
        Self::connecting_by(Box::new(move || address.connect()), config, now)
    }

    /// Makes a client with a socket that the caller connects, each time again.
    ///
    /// It is a `SOCK_SEQPACKET` one, for example in another network namespace.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn connecting_by(
        connect: Connect,
        config: ClientConfig,
        now: Instant,
    ) -> Result<Self, Error> {
        memory::check_overcommit()?;
        Ok(Self {
            config,
            doorbells: Doorbells::default(),
            connect,
            retry: RETRY,
            session: None,
            due: Some(now),
        })
    }

    /// The same, with another time between attempts.
    #[must_use]
    pub fn with_retry(mut self, retry: Duration) -> Self {
        self.retry = retry;
        self
    }

    /// The same, with doorbells that are rung in another way.
    #[must_use]
    pub fn with_doorbells(mut self, doorbells: Doorbells) -> Self {
        self.doorbells = doorbells;
        self
    }

    /// Returns the descriptor that is readable when [`Self::poll`] has work.
    ///
    /// None while there is no connection. It is another one after each attempt.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.session.as_ref().map(|session| session.socket.as_fd())
    }

    /// Returns the latest time of the next [`Self::poll`].
    ///
    /// With a connection, it must be called about once a second too.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.session {
            Some(session) => session.handshake.deadline(),
            None => self.due,
        }
    }

    /// Connects if it is time, reads the server's messages, and checks the clock.
    ///
    /// After [`Event::Closed`] the client tries again by itself.
    ///
    /// # Errors
    /// What this side could not do, for example connect. The client tries again by itself.
    pub fn poll(&mut self, now: Instant) -> Result<Event, Error> {
        if self.session.is_none() {
            if self.due.is_none_or(|due| now < due) {
                return Ok(Event::Nothing);
            }
            self.due = now.checked_add(self.retry);
            let socket = (self.connect)()?;
            socket::set_nonblocking(socket.as_fd()).map_err(|errno| Error::Socket {
                operation: "making it non-blocking",
                address: "of the client".to_owned(),
                source: errno.into(),
            })?;
            self.session = Some(Session {
                socket,
                handshake: ClientHandshake::new(self.config, now),
                prepared: None,
                bells: None,
            });
        }
        let Some(session) = &mut self.session else {
            return Ok(Event::Nothing);
        };
        let outcome = session.ready(&self.config, self.doorbells, now);
        if matches!(outcome, Ok(Event::Closed(_)) | Err(_)) {
            self.session = None;
            self.due = now.checked_add(self.retry);
        }
        outcome
    }

    /// Ends the connection after a violation that the port found.
    ///
    /// The client tries again later.
    pub fn violated(&mut self, violation: Violation, now: Instant) -> Closed {
        if let Some(mut session) = self.session.take() {
            let step = session.handshake.violated(violation.clone());
            session.say_goodbye(&step);
        }
        self.due = now.checked_add(self.retry);
        Closed::Violation(violation)
    }

    /// Ends the connection for good.
    pub fn disconnect(&mut self, reason: &str) -> Closed {
        let reason = ReasonText::cut(reason);
        if let Some(mut session) = self.session.take() {
            let step = session.handshake.disconnect(reason);
            session.say_goodbye(&step);
        }
        self.due = None;
        Closed::Local(reason)
    }
}

impl Session {
    fn ready(
        &mut self,
        config: &ClientConfig,
        doorbells: Doorbells,
        now: Instant,
    ) -> Result<Event, Error> {
        for _ in 0..MESSAGES_AT_ONCE {
            let step = match socket::receive(self.socket.as_fd()) {
                Ok(Received::Nothing) => break,
                Ok(Received::Hangup) => self.handshake.hangup(),
                Ok(Received::Cut) => self.handshake.violated(Violation::DescriptorsCut),
                Ok(Received::Datagram { bytes, descriptors }) => {
                    self.handshake.receive(&bytes, descriptors.len())
                }
                Err(errno) => return Ok(Event::Closed(Closed::Socket(errno))),
            };
            match self.act(step, config, doorbells)? {
                Event::Nothing => {}
                event => return Ok(event),
            }
        }
        let step = match self.bells.as_mut().map(|bells| bells.check(now)) {
            Some(Err(violation)) => self.handshake.violated(violation),
            Some(Ok(())) | None => self.handshake.expire(now),
        };
        self.act(step, config, doorbells)
    }

    fn say_goodbye(&self, step: &Step<Arc<PeerFd>, ClientEvent>) {
        if let Some(datagram) = &step.send {
            // A peer that cannot be told will see that the socket is closed.
            let _ = socket::send_step(self.socket.as_fd(), datagram);
        }
    }

    fn act(
        &mut self,
        step: Step<Arc<PeerFd>, ClientEvent>,
        config: &ClientConfig,
        doorbells: Doorbells,
    ) -> Result<Event, Error> {
        if let Some(ClientEvent::Closed(why)) = step.event {
            let closed = Event::Closed(why);
            let step = Step {
                send: step.send,
                event: None,
            };
            self.say_goodbye(&step);
            return Ok(closed);
        }
        let mut send = step.send;
        let mut outcome = Event::Nothing;
        match step.event {
            Some(ClientEvent::Allocate(agreed)) => {
                let (prepared, offer) = Prepared::new(&agreed, config.buffer_size)?;
                self.prepared = Some(prepared);
                send = self.handshake.offer(offer);
            }
            Some(ClientEvent::Connected(peer)) => {
                let Some(prepared) = self.prepared.take() else {
                    // CONNECTED comes only after the offer, which was made of it.
                    return Ok(Event::Nothing);
                };
                outcome = match prepared.connect(peer, doorbells)? {
                    Ok((port, bells)) => {
                        self.bells = bells;
                        Event::Connected(port)
                    }
                    Err(violation) => {
                        let step = self.handshake.violated(violation.clone());
                        self.say_goodbye(&step);
                        Event::Closed(Closed::Violation(violation))
                    }
                };
            }
            Some(ClientEvent::Closed(_)) | None => {}
        }
        if let Some(datagram) = &send
            && let Err(error) = socket::send_step(self.socket.as_fd(), datagram)
        {
            return Ok(Event::Closed(error.into()));
        }
        Ok(outcome)
    }
}
