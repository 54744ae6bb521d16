//! The client's side: it owns the memory, and tells the server where everything is.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{Datagram, Step};
use crate::error::{Closed, Violation};
use crate::wire::{
    AddRegion, AddRing, Hello, Init, MODE_ETHERNET, Message, Name, ReasonText, Secret, VERSION,
};

/// Wishes of a client; the server may give it less.
#[derive(Clone, Copy, Debug)]
pub struct ClientConfig {
    /// The name of this application, which the server is told.
    pub app: Name,
    /// The name of this interface, which the server is told.
    pub name: Name,
    /// The interface, of those behind the socket.
    pub id: u32,
    /// The secret that the server asks for; empty for none.
    pub secret: Secret,
    /// Rings to the server, 1 to 256.
    pub c2s_rings: u16,
    /// Rings from the server, 1 to 256.
    pub s2c_rings: u16,
    /// Slots of each ring, as a power of two, 1 to 14.
    pub log2_ring_size: u8,
    /// Bytes of the buffer of each slot, 64 to 65535: the longest packet, either way.
    pub buffer_size: u32,
    /// The time the server has to let us in.
    pub patience: Duration,
}

impl ClientConfig {
    /// Returns the defaults: interface 0, no secret, one ring in each direction.
    ///
    /// A ring has 1024 buffers of 2048 bytes.
    pub fn new(app: Name) -> Self {
        Self {
            app,
            name: app,
            id: 0,
            secret: Secret::default(),
            c2s_rings: 1,
            s2c_rings: 1,
            log2_ring_size: 10,
            buffer_size: 2048,
            patience: Duration::from_secs(10),
        }
    }
}

/// The values that both sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The server's application.
    pub app: Name,
    /// Rings to the server.
    pub c2s_rings: u16,
    /// Rings from the server.
    pub s2c_rings: u16,
    /// Slots of each ring, as a power of two.
    pub log2_ring_size: u8,
}

/// The memory a client has made, with the descriptors to send.
#[derive(Debug)]
pub struct Offer<F> {
    /// Each region's size and file, in order.
    pub regions: Vec<(u64, F)>,
    /// Each ring and its eventfd; in order for each direction.
    pub rings: Vec<(AddRing, F)>,
}

/// An effect of the client's side for its caller.
#[derive(Debug)]
pub enum ClientEvent {
    /// The server lets us in: make memory, and [`ClientHandshake::offer`] it.
    Allocate(Agreed),
    /// Packets may flow; the name of the server's interface.
    Connected(Name),
    /// The end.
    Closed(Closed),
}

impl From<Closed> for ClientEvent {
    fn from(why: Closed) -> Self {
        Self::Closed(why)
    }
}

#[derive(Debug)]
enum State<F> {
    /// Waiting for HELLO.
    Started,
    /// INIT is sent.
    Knocking(Agreed),
    /// The caller makes memory.
    Allocating,
    /// Messages still to be sent; each is sent when the one before is acknowledged.
    Telling(VecDeque<Datagram<F>>),
    Connected,
    Closed,
}

/// A client's handshake with its server.
#[derive(Debug)]
pub struct ClientHandshake<F> {
    config: ClientConfig,
    state: State<F>,
    deadline: Instant,
}

type Out<F> = Step<F, ClientEvent>;

impl<F> ClientHandshake<F> {
    /// For a socket that was connected at `now`. The server speaks first.
    pub fn new(config: ClientConfig, now: Instant) -> Self {
        Self {
            config,
            state: State::Started,
            deadline: now.checked_add(config.patience).unwrap_or(now),
        }
    }

    /// When [`Self::expire`] must be called; none once the handshake is over.
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Connected | State::Closed => None,
            _ => Some(self.deadline),
        }
    }

    /// Whether CONNECTED was received.
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected)
    }

    /// Ends a handshake whose time is over.
    pub fn expire(&mut self, now: Instant) -> Out<F> {
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            self.violated(Violation::Deadline)
        } else {
            Step::nothing()
        }
    }

    /// The next datagram. `descriptors` is how many came with it: a server sends none.
    pub fn receive(&mut self, datagram: &[u8], descriptors: usize) -> Out<F> {
        if matches!(self.state, State::Closed) {
            return Step::nothing();
        }
        match self.advance(datagram, descriptors) {
            Ok(step) => step,
            Err(violation) => self.violated(violation),
        }
    }

    /// The peer has closed its end.
    pub fn hangup(&mut self) -> Out<F> {
        self.state = State::Closed;
        Step::closed(None, Closed::Hangup)
    }

    /// The memory that [`ClientEvent::Allocate`] asked for; what to send first.
    pub fn offer(&mut self, offer: Offer<F>) -> Option<Datagram<F>> {
        if !matches!(self.state, State::Allocating) {
            return None;
        }
        let mut queue = VecDeque::new();
        for ((size, file), index) in offer.regions.into_iter().zip(0..) {
            queue.push_back(Datagram {
                bytes: Message::AddRegion(AddRegion { index, size }).encode(),
                descriptor: Some(file),
            });
        }
        for (ring, event) in offer.rings {
            queue.push_back(Datagram {
                bytes: Message::AddRing(ring).encode(),
                descriptor: Some(event),
            });
        }
        queue.push_back(Datagram::plain(Message::Connect(self.config.name).encode()));
        let first = queue.pop_front();
        self.state = State::Telling(queue);
        first
    }

    /// The server broke the rules, in a way that the caller has seen.
    pub fn violated(&mut self, violation: Violation) -> Out<F> {
        self.state = State::Closed;
        let bytes = Message::Disconnect(violation.disconnect()).encode();
        Step::closed(Some(Datagram::plain(bytes)), Closed::Violation(violation))
    }

    /// Ends the connection: the DISCONNECT to send.
    pub fn disconnect(&mut self, reason: ReasonText) -> Out<F> {
        self.state = State::Closed;
        let bytes = Message::Disconnect(crate::wire::Disconnect { code: 0, reason }).encode();
        Step::closed(Some(Datagram::plain(bytes)), Closed::Local(reason))
    }

    fn advance(&mut self, datagram: &[u8], descriptors: usize) -> Result<Out<F>, Violation> {
        let message = Message::decode(datagram)?;
        let unexpected = Violation::Unexpected(message.name());
        if descriptors > 0 {
            return Err(Violation::DescriptorsExtra {
                message: message.name(),
                count: descriptors,
            });
        }
        match (std::mem::replace(&mut self.state, State::Closed), message) {
            (_, Message::Disconnect(disconnect)) => {
                Ok(Step::closed(None, Closed::Peer(disconnect)))
            }
            (State::Started, Message::Hello(hello)) => {
                let agreed = self.agree(&hello)?;
                self.state = State::Knocking(agreed);
                let init = Message::Init(Init {
                    version: VERSION,
                    id: self.config.id,
                    mode: MODE_ETHERNET,
                    secret: self.config.secret,
                    name: self.config.app,
                });
                Ok(Step::send(Datagram::plain(init.encode())))
            }
            (State::Knocking(agreed), Message::Ack) => {
                self.state = State::Allocating;
                Ok(Step::event(ClientEvent::Allocate(agreed)))
            }
            (State::Telling(mut queue), Message::Ack) => {
                // CONNECT is the last in the queue, and its answer is not an ACK.
                let next = queue.pop_front().ok_or(unexpected)?;
                self.state = State::Telling(queue);
                Ok(Step::send(next))
            }
            (State::Telling(queue), Message::Connected(name)) if queue.is_empty() => {
                self.state = State::Connected;
                Ok(Step::event(ClientEvent::Connected(name)))
            }
            _ => Err(unexpected),
        }
    }

    fn agree(&self, hello: &Hello) -> Result<Agreed, Violation> {
        if !(hello.min_version..=hello.max_version).contains(&VERSION) {
            return Err(Violation::Version {
                min: hello.min_version,
                max: hello.max_version,
            });
        }
        if hello.max_log2_ring_size == 0 {
            return Err(Violation::ServerRingSize(hello.max_log2_ring_size));
        }
        let config = &self.config;
        Ok(Agreed {
            app: hello.name,
            c2s_rings: config.c2s_rings.min(hello.max_c2s_ring.saturating_add(1)),
            s2c_rings: config.s2c_rings.min(hello.max_s2c_ring.saturating_add(1)),
            log2_ring_size: config.log2_ring_size.min(hello.max_log2_ring_size),
        })
    }
}
