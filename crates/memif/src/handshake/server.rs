//! The server's side of the handshake, which trusts no message.
//!
//! It binds nothing before it has checked the version, the interface, the mode and the secret.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::door::{Claim, Door};
use super::place;
use super::{Datagram, Descriptor, Kind, Limits, RingPlace, Step};
use crate::budget::{self, Budget};
use crate::error::{Closed, Violation};
use crate::wire::{
    AddRegion, AddRing, Hello, Init, MAX_LOG2_RING_SIZE, MODE_ETHERNET, Message, Name, ReasonText,
    VERSION,
};

/// The offer of a listening socket.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The name of this application, which clients are told.
    pub app: Name,
    /// The interfaces behind the socket.
    pub doors: Vec<Arc<Door>>,
    /// Limits of a client's requests.
    pub limits: Limits,
    /// Budget of its clients' memory, besides [`Limits::bytes`].
    pub budget: Option<Arc<Budget>>,
    /// The time a client has to connect.
    ///
    /// Not too short: a DPDK client that was slow, because its container got no processor, does not try
    /// again.
    pub patience: Duration,
}

impl ServerConfig {
    /// One interface with number 0, usual limits, ten seconds for a handshake.
    pub fn new(app: Name, door: Door) -> Self {
        Self {
            app,
            doors: vec![Arc::new(door)],
            limits: Limits::default(),
            budget: None,
            patience: Duration::from_secs(10),
        }
    }

    fn hello(&self) -> Hello {
        Hello {
            name: self.app,
            min_version: VERSION,
            max_version: VERSION,
            max_region: self.limits.regions.saturating_sub(1),
            max_s2c_ring: self.limits.s2c_rings.saturating_sub(1),
            max_c2s_ring: self.limits.c2s_rings.saturating_sub(1),
            // Always the largest: VPP lays its memory out by what is said here, and then asks for
            // the size it was configured with. What is too large for us is refused at ADD_RING.
            max_log2_ring_size: MAX_LOG2_RING_SIZE,
        }
    }
}

/// A ring as a client offers it; its size and place are checked.
#[derive(Debug)]
pub struct RingOffer<F> {
    /// Where it is.
    pub place: RingPlace,
    /// Its doorbell.
    pub event: F,
}

/// All that a client offers.
#[derive(Debug)]
pub struct Setup<F> {
    /// The client's application.
    pub app: Name,
    /// The client's interface.
    pub peer: Name,
    /// Files and their sizes, as the client says.
    pub regions: Vec<(F, u64)>,
    /// Rings from the client.
    pub c2s: Vec<RingOffer<F>>,
    /// Rings to the client.
    pub s2c: Vec<RingOffer<F>>,
}

/// An effect of the server's side for its caller.
#[derive(Debug)]
pub enum ServerEvent<F> {
    /// All was said. The caller maps the regions and then accepts or refuses.
    Connect(Setup<F>),
    /// The end.
    Closed(Closed),
}

impl<F> From<Closed> for ServerEvent<F> {
    fn from(why: Closed) -> Self {
        Self::Closed(why)
    }
}

#[derive(Debug)]
enum State<F> {
    /// HELLO is sent.
    Greeted,
    /// ACK for INIT is sent.
    Collecting(Claim, Setup<F>),
    /// The caller looks at the setup.
    Judging(Claim),
    Connected(Claim),
    /// The claim of a connected client, which keeps the interface until it is dropped.
    ///
    /// The client's memory is still mapped.
    Closed(Option<Claim>),
}

/// A server's handshake with one client.
#[derive(Debug)]
pub struct ServerHandshake<F> {
    config: Arc<ServerConfig>,
    state: State<F>,
    deadline: Instant,
}

type Out<F> = Step<F, ServerEvent<F>>;

impl<F: Descriptor> ServerHandshake<F> {
    /// For a client that connected at `now`, and the HELLO to greet it with.
    pub fn new(config: Arc<ServerConfig>, now: Instant) -> (Self, Datagram<F>) {
        let hello = Message::Hello(config.hello()).encode();
        let deadline = now.checked_add(config.patience).unwrap_or(now);
        let handshake = Self {
            config,
            state: State::Greeted,
            deadline,
        };
        (handshake, Datagram::plain(hello))
    }

    /// Resumes a client of another process, with regions of these sizes in bytes.
    ///
    /// Its interface is free here. The regions count also where they pass a limit: no client is cut off
    /// because its server was replaced.
    ///
    /// # Errors
    /// It is not, or is not there.
    pub fn resume(
        config: Arc<ServerConfig>,
        id: u32,
        regions: &[u64],
        now: Instant,
    ) -> Result<Self, Violation> {
        let door = config.doors.iter().find(|door| door.id() == id);
        let claim = Claim::take(door.ok_or(Violation::Id(id))?, config.budget.as_ref())?;
        claim.reserve_anyway(config.limits.counted(regions));
        claim.connect()?;
        Ok(Self {
            config,
            state: State::Connected(claim),
            deadline: now,
        })
    }

    /// When [`Self::expire`] must be called; none once the handshake is over.
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Greeted | State::Collecting(..) | State::Judging(_) => Some(self.deadline),
            State::Connected(_) | State::Closed(_) => None,
        }
    }

    /// Whether CONNECTED was sent.
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected(_))
    }

    /// The interface that the client has, once it has one.
    pub fn door(&self) -> Option<&Door> {
        match &self.state {
            State::Collecting(claim, _) | State::Judging(claim) | State::Connected(claim) => {
                Some(claim.door())
            }
            State::Greeted | State::Closed(_) => None,
        }
    }

    /// Ends a handshake whose time is over.
    pub fn expire(&mut self, now: Instant) -> Out<F> {
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            self.violated(Violation::Deadline)
        } else {
            Step::nothing()
        }
    }

    /// The next datagram, with all descriptors that came with it.
    pub fn receive(&mut self, datagram: &[u8], descriptors: Vec<F>) -> Out<F> {
        if matches!(self.state, State::Closed(_)) {
            return Step::nothing();
        }
        match self.advance(datagram, descriptors) {
            Ok(step) => step,
            Err(violation) => self.violated(violation),
        }
    }

    /// The peer has closed its end.
    pub fn hangup(&mut self) -> Out<F> {
        self.close();
        Step::closed(None, Closed::Hangup)
    }

    /// Accepts the setup; returns the CONNECTED to send.
    ///
    /// `None` if no client asked, or if another client has the interface by now.
    pub fn accept(&mut self) -> Option<Datagram<F>> {
        match std::mem::replace(&mut self.state, State::Closed(None)) {
            State::Judging(claim) => {
                claim.connect().ok()?;
                let connected = Message::Connected(claim.door().name()).encode();
                self.state = State::Connected(claim);
                Some(Datagram::plain(connected))
            }
            other => {
                self.state = other;
                None
            }
        }
    }

    /// The peer broke the rules, in a way that the caller has seen.
    pub fn violated(&mut self, violation: Violation) -> Out<F> {
        self.close();
        let bytes = Message::Disconnect(violation.disconnect()).encode();
        Step::closed(Some(Datagram::plain(bytes)), Closed::Violation(violation))
    }

    /// Ends the connection: the DISCONNECT to send.
    pub fn disconnect(&mut self, reason: ReasonText) -> Out<F> {
        self.close();
        let bytes = Message::Disconnect(crate::wire::Disconnect { code: 0, reason }).encode();
        Step::closed(Some(Datagram::plain(bytes)), Closed::Local(reason))
    }

    /// The end, also of a handshake that goes on.
    fn close(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Closed(None)) {
            State::Connected(claim) => State::Closed(Some(claim)),
            State::Closed(claim) => State::Closed(claim),
            State::Greeted | State::Collecting(..) | State::Judging(_) => State::Closed(None),
        };
    }

    fn advance(&mut self, datagram: &[u8], descriptors: Vec<F>) -> Result<Out<F>, Violation> {
        let message = Message::decode(datagram)?;
        let unexpected = Violation::Unexpected(message.name());
        if self.is_connected() {
            self.close();
        }
        if let State::Collecting(claim, _) = &self.state {
            claim.check()?;
        }
        let state = match &mut self.state {
            State::Closed(_) => State::Closed(None),
            state => std::mem::replace(state, State::Closed(None)),
        };
        match (state, message) {
            (_, Message::Disconnect(disconnect)) => {
                Ok(Step::closed(None, Closed::Peer(disconnect)))
            }
            (State::Greeted, Message::Init(init)) => {
                none("INIT", &descriptors)?;
                let claim = self.admit(&init)?;
                let setup = Setup {
                    app: init.name,
                    peer: Name::default(),
                    regions: Vec::new(),
                    c2s: Vec::new(),
                    s2c: Vec::new(),
                };
                Ok(self.acknowledge(claim, setup))
            }
            (State::Collecting(claim, mut setup), Message::AddRegion(region)) => {
                let memory = one("ADD_REGION", descriptors)?;
                self.add_region(&claim, &mut setup, region, memory)?;
                Ok(self.acknowledge(claim, setup))
            }
            (State::Collecting(claim, mut setup), Message::AddRing(ring)) => {
                let event = one("ADD_RING", descriptors)?;
                self.add_ring(&mut setup, ring, event)?;
                Ok(self.acknowledge(claim, setup))
            }
            (State::Collecting(claim, mut setup), Message::Connect(peer)) => {
                none("CONNECT", &descriptors)?;
                let sizes: Vec<u64> = setup.regions.iter().map(|(_, size)| *size).collect();
                let rings = setup.c2s.iter().chain(&setup.s2c);
                let places: Vec<RingPlace> = rings.map(|ring| ring.place).collect();
                place::check(&sizes, &places)?;
                setup.peer = peer;
                self.state = State::Judging(claim);
                Ok(Step::event(ServerEvent::Connect(setup)))
            }
            _ => Err(unexpected),
        }
    }

    /// All that INIT can be wrong in, before anything is bound.
    fn admit(&self, init: &Init) -> Result<Claim, Violation> {
        if init.version != VERSION {
            return Err(Violation::Version {
                min: init.version,
                max: init.version,
            });
        }
        let door = self.config.doors.iter().find(|door| door.id() == init.id);
        let door = door.ok_or(Violation::Id(init.id))?;
        if init.mode != MODE_ETHERNET {
            return Err(Violation::Mode(init.mode));
        }
        door.check(&init.secret)?;
        Claim::take(door, self.config.budget.as_ref())
    }

    fn acknowledge(&mut self, claim: Claim, setup: Setup<F>) -> Out<F> {
        self.state = State::Collecting(claim, setup);
        Step::send(Datagram::plain(Message::Ack.encode()))
    }

    fn add_region(
        &self,
        claim: &Claim,
        setup: &mut Setup<F>,
        region: AddRegion,
        memory: F,
    ) -> Result<(), Violation> {
        let limits = &self.config.limits;
        let AddRegion { index, size } = region;
        next_index(setup.regions.len(), index, |expected, actual| {
            Violation::RegionIndex { expected, actual }
        })?;
        if index >= limits.regions {
            return Err(Violation::Regions(limits.regions));
        }
        if memory.kind() != Kind::Memory {
            return Err(Violation::NotMemory(index));
        }
        if size == 0 {
            return Err(Violation::RegionEmpty(index));
        }
        let mut sizes: Vec<u64> = setup.regions.iter().map(|(_, size)| *size).collect();
        sizes.push(size);
        let bytes = budget::counted(sizes.iter().copied());
        if bytes > limits.bytes {
            return Err(Violation::Memory {
                of: "port",
                bytes,
                max: limits.bytes,
            });
        }
        claim.reserve(limits.counted(&sizes))?;
        setup.regions.push((memory, size));
        Ok(())
    }

    fn add_ring(&self, setup: &mut Setup<F>, ring: AddRing, event: F) -> Result<(), Violation> {
        let limits = &self.config.limits;
        let (rings, most) = if ring.from_client {
            (&mut setup.c2s, limits.c2s_rings)
        } else {
            (&mut setup.s2c, limits.s2c_rings)
        };
        next_index(rings.len(), ring.index, |expected, actual| {
            Violation::RingIndex { expected, actual }
        })?;
        if ring.index >= most {
            return Err(Violation::Rings(most));
        }
        if event.kind() != Kind::Event {
            return Err(Violation::NotEvent(ring.index));
        }
        if ring.private_hdr_size != 0 {
            return Err(Violation::PrivateHeader(ring.private_hdr_size));
        }
        let max = limits.log2_ring_size.min(MAX_LOG2_RING_SIZE);
        if ring.log2_ring_size == 0 || ring.log2_ring_size > max {
            return Err(Violation::RingSize {
                log2: ring.log2_ring_size,
                max,
            });
        }
        rings.push(RingOffer {
            place: RingPlace {
                region: ring.region,
                offset: ring.offset,
                log2_size: ring.log2_ring_size,
            },
            event,
        });
        Ok(())
    }
}

fn next_index(
    so_far: usize,
    index: u16,
    wrong: impl Fn(u16, u16) -> Violation,
) -> Result<(), Violation> {
    // No limit is above 256.
    let expected = u16::try_from(so_far).unwrap_or(u16::MAX);
    if index == expected {
        Ok(())
    } else {
        Err(wrong(expected, index))
    }
}

fn one<F>(message: &'static str, descriptors: Vec<F>) -> Result<F, Violation> {
    let count = descriptors.len();
    let mut descriptors = descriptors.into_iter();
    match (descriptors.next(), descriptors.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(Violation::DescriptorMissing(message)),
        (Some(_), Some(_)) => Err(Violation::DescriptorsExtra { message, count }),
    }
}

fn none<F>(message: &'static str, descriptors: &[F]) -> Result<(), Violation> {
    if descriptors.is_empty() {
        Ok(())
    } else {
        Err(Violation::DescriptorsExtra {
            message,
            count: descriptors.len(),
        })
    }
}
