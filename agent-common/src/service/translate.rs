//! Choose a backend for each connection, and keep it.

use super::entry::{BACK, BACK_TO_SELF, Found, TO_BACKEND, TO_SELF, Target};
use super::quoted::Outer;
use super::tables::ServiceTables;
use super::{Backend, BackendKey, ClientKey, Kept, MemberKey, SERVICE_ELSEWHERE, Service};
use crate::addr::Ip16;
use crate::drop::DropReason;
use crate::guard::{
    FlowKey, FlowPlace, FlowWords, FragmentKey, TICK_SHIFT, Tuple, fragment, opened, ticks_since,
};
use crate::packet::{Frame, IPPROTO_TCP, IPPROTO_UDP};
use crate::policy::Scratch;
use crate::port::{PORT_ELDER, Port};

/// Backends that are asked for one connection.
const TRIES: u32 = 4;
/// A first round of [`settle`] with the backend that the client had.
const KEPT: u32 = TRIES + 1;
/// Nanoseconds in a second.
const SECOND_NS: u64 = 1_000_000_000;

/// Memory of a translation, which an engine keeps where it has room.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// The packet as it came.
    pub came: Tuple,
    /// The packet as it leaves.
    pub leaves: Tuple,
    /// The key of the packet as it came.
    pub key: FlowKey,
    /// The key of the packet as it leaves.
    pub other_key: FlowKey,
    /// The entry of the packet as it came.
    pub found: Found,
    /// The entry of its answers.
    pub other: Found,
    /// The other end of its answers.
    pub back: Target,
    /// The packet that it is a fragment of.
    pub fragment: FragmentKey,
    /// The Service.
    pub service: Service,
    /// The endpoint that is asked about.
    pub member: MemberKey,
    /// The client.
    pub client: ClientKey,
    /// The backend that it had.
    pub kept: Kept,
    /// The backend that it gets.
    pub backend: Backend,
    /// The error that quotes the packet.
    pub outer: Outer,
    /// [`KEPT`] for a client that keeps its backend, else 0.
    pub first: u32,
}

impl Work {
    /// Of no packet.
    pub const EMPTY: Self = Self {
        came: Tuple::EMPTY,
        leaves: Tuple::EMPTY,
        key: FlowKey::EMPTY,
        other_key: FlowKey::EMPTY,
        found: Found::NONE,
        other: Found::NONE,
        back: Target::NONE,
        fragment: FragmentKey::EMPTY,
        service: Service {
            set: 0,
            count: 0,
            affinity_s: 0,
            flags: 0,
        },
        member: MemberKey::EMPTY,
        client: ClientKey::EMPTY,
        kept: Kept::NONE,
        backend: Backend::new(Ip16::NONE, 0),
        outer: Outer::EMPTY,
        first: 0,
    };

    /// Reports whether the packet goes back to its sender.
    #[inline(always)]
    pub const fn is_to_self(&self) -> bool {
        matches!(self.found.target.kind, TO_SELF | BACK_TO_SELF)
    }

    /// Makes the backend the target of the connection.
    ///
    /// What a pod sends to itself names no other address than the Service's.
    #[inline(always)]
    fn aim(&mut self) {
        let port = self.backend.port;
        if self.backend.ip.same(&self.came.source) {
            let ip = &self.came.destination;
            self.found.target.set(ip, port, TO_SELF);
        } else {
            self.found.target.set(&self.backend.ip, port, TO_BACKEND);
        }
    }
}

/// The sender of a packet to a Service.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// Its network.
    pub network: u32,
    /// Its port.
    pub port_id: u16,
    /// It was there before its network had Services.
    ///
    /// Something else may have translated its packets.
    pub elder: bool,
}

impl Client {
    /// The client that sends by this port.
    #[inline(always)]
    pub const fn of(port: &Port) -> Self {
        Self {
            network: port.network,
            port_id: port.port_id,
            elder: port.flags & PORT_ELDER != 0,
        }
    }
}

/// Translates a packet that a client sends to a Service: [`Work::leaves`].
///
/// The middle of a connection of TCP that is not known goes to the endpoint that its ports lead to, unless something
/// else may have translated its beginning.
///
/// # Errors
/// `NoService`, `NoBackend`, `NoLocalBackend`, `ServiceClash`, `FlowLimit`, `PolicyFragment`, `Truncated`.
#[inline(always)]
pub fn request<F: Frame + ?Sized, T: ServiceTables>(
    frame: &F,
    client: Client,
    scratch: &Scratch,
    tables: &T,
    work: &mut Work,
) -> Result<(), DropReason> {
    let network = client.network;
    let packet = &scratch.packet;
    work.came.start(packet);
    if !is_served(packet.protocol) {
        return Err(DropReason::NoService);
    }
    let (came, fragment) = (&mut work.came, &mut work.fragment);
    fragment::ports(frame, network, scratch, tables, came, fragment)?;
    let work = tables.again(work);
    let now = tables.now();
    let from_high = work.came.is_from_high();
    work.key.write(network, &work.came, from_high);
    let work = tables.again(work);
    let place = tables.place(&work.key);
    let goes_on = tables.find(place, &work.key, &mut work.found)
        && work.found.words.is_alive(packet.protocol, now)
        && goes_on(network, now, tables, work);
    if !goes_on {
        if client.elder && packet.protocol == IPPROTO_TCP && !work.came.is_opening() {
            return Err(DropReason::NoService);
        }
        look_up(network, tables, work)?;
        let is_kept = work.service.affinity_s != 0 && is_kept(network, now, tables, work);
        work.first = if is_kept { KEPT } else { 0 };
    }
    let work = tables.again(work);
    let answered = settle(network, (place, from_high, !goes_on), now, tables, work)?;
    let work = tables.again(work);
    if !goes_on {
        if !tables.pay(client.port_id) {
            return Err(DropReason::FlowLimit);
        }
        work.found.words = FlowWords {
            seen: now,
            flags: opened(&work.came, from_high, from_high),
            ..FlowWords::NONE
        };
        let work = tables.again(work);
        tables.open(place, &work.key, &work.found.words, &work.found.target);
        if work.service.affinity_s != 0 {
            work.kept.ip.set(&work.backend.ip);
            work.kept.port = work.backend.port;
            work.kept.seen = now;
            tables.keep(&work.client, &work.kept);
        }
    }
    fragment::keep(packet, tables, &work.came, &work.fragment);
    tell_answers(answered, now, tables, work);
    Ok(())
}

/// Translates a packet to a port if it is an answer of a Service.
///
/// False for one that is none.
///
/// A fragment of which the ports are not known is none.
#[inline(always)]
pub fn reply<F: Frame + ?Sized, T: ServiceTables>(
    frame: &F,
    network: u32,
    scratch: &Scratch,
    tables: &T,
    work: &mut Work,
) -> bool {
    let packet = &scratch.packet;
    work.came.start(packet);
    if !is_served(packet.protocol) {
        return false;
    }
    let (came, fragment) = (&mut work.came, &mut work.fragment);
    if fragment::ports(frame, network, scratch, tables, came, fragment).is_err() {
        return false;
    }
    let work = tables.again(work);
    let from_high = work.came.is_from_high();
    work.key.write(network, &work.came, from_high);
    let work = tables.again(work);
    let place = tables.place(&work.key);
    let now = tables.now();
    // What the client sends to its backend has the same key.
    if !tables.find(place, &work.key, &mut work.found)
        || work.found.target.kind != BACK
        || work.found.words.is_onward(from_high)
        || !work.found.words.is_alive(packet.protocol, now)
        // The client has opened another one from the same port, and not by the Service.
        || work.found.words.has_ended() && work.came.accepts()
    {
        return false;
    }
    let work = tables.again(work);
    let Ok(answers) = settle(network, (place, from_high, false), now, tables, work) else {
        return false;
    };
    let work = tables.again(work);
    fragment::keep(packet, tables, &work.came, &work.fragment);
    tell_answers(answers, now, tables, work);
    true
}

/// True for protocols that Services have.
#[inline(always)]
pub(super) const fn is_served(protocol: u8) -> bool {
    matches!(protocol, IPPROTO_TCP | IPPROTO_UDP)
}

/// Reports whether a packet belongs to the connection of the entry that was found.
///
/// A SYN opens the next one where the last has ended. A SYN and a datagram do where their backend is one no more.
#[inline(always)]
fn goes_on<T: ServiceTables>(network: u32, now: u32, tables: &T, work: &mut Work) -> bool {
    let (came, Found { words, target, .. }) = (&work.came, &work.found);
    if target.kind == BACK {
        return false;
    }
    if came.protocol == IPPROTO_TCP && !came.is_opening() {
        return true;
    }
    if came.protocol == IPPROTO_TCP && words.has_ended() {
        return false;
    }
    if words.seen == now || target.kind == BACK_TO_SELF {
        return true;
    }
    let ip = if target.kind == TO_SELF {
        &came.source
    } else {
        &target.ip
    };
    work.member.write(network, came, ip, target.port);
    tables.is_member(&work.member)
}

/// Finds the Service that a packet is for: [`Work::service`].
///
/// # Errors
/// `NoService`, `NoBackend`, `NoLocalBackend`.
#[inline(always)]
fn look_up<T: ServiceTables>(network: u32, tables: &T, work: &mut Work) -> Result<(), DropReason> {
    work.client.write(network, &work.came);
    if !tables.service(&work.client.service, &mut work.service) {
        return Err(DropReason::NoService);
    }
    if work.service.count != 0 {
        return Ok(());
    }
    Err(if work.service.flags & SERVICE_ELSEWHERE != 0 {
        DropReason::NoLocalBackend
    } else {
        DropReason::NoBackend
    })
}

/// The entry of a packet's answers, as [`settle`] has left it in [`Work::other`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answers {
    /// It has nothing to tell them.
    Quiet,
    /// There is none.
    New(FlowPlace, bool),
    /// It is there.
    There(FlowPlace, bool),
}

/// Decides how a packet leaves, and finds the entry of its answers.
///
/// Their key is that of the packet as it leaves.
///
/// A new connection gets the first backend with which the client's port has no other one. The place of its key says with which
/// to begin, as long as the set is the same: one that has lost its entries goes on.
///
/// # Errors
/// `NoBackend`, `ServiceClash`.
#[inline(always)]
fn settle<T: ServiceTables>(
    network: u32,
    (place, from_high, is_new): (FlowPlace, bool, bool),
    now: u32,
    tables: &T,
    work: &mut Work,
) -> Result<Answers, DropReason> {
    let mut index = place.share(work.service.count);
    // One place for all: the code is large, and a loop that begins with a known number is code for each round.
    let mut round = tables.zero();
    loop {
        if is_new {
            if round + work.first != KEPT {
                let key = BackendKey {
                    set: work.service.set,
                    index,
                };
                if !tables.backend(&key, &mut work.backend) {
                    return Err(DropReason::NoBackend);
                }
                index += 1;
                if index >= work.service.count {
                    index = 0;
                }
            }
            work.aim();
        }
        let work = tables.again(work);
        work.found.target.apply(&work.came, &mut work.leaves);
        let work = tables.again(work);
        if !is_new {
            let flags = work.found.words.after(&work.came, from_high);
            if work.found.words.seen == now && work.found.words.flags == flags {
                return Ok(Answers::Quiet);
            }
            work.found.words = work.found.words.noted(flags, (0, 0), now);
        }
        work.found.target.reverse(&work.came, &mut work.back);
        let is_back = work.leaves.is_from_high();
        work.other_key.write(network, &work.leaves, is_back);
        let work = tables.again(work);
        let there = tables.place(&work.other_key);
        let is_there = tables.find(there, &work.other_key, &mut work.other)
            && work.other.words.is_alive(work.leaves.protocol, now);
        // The client has opened the connection, whichever end this packet is from, and it alone opens the next one.
        let is_of_client = matches!(work.found.target.kind, TO_BACKEND | TO_SELF);
        let words = &work.other.words;
        let is_over = is_of_client && words.has_ended();
        let is_same = is_there
            && work.other.target.same(&work.back)
            && words.is_onward(is_back) == is_of_client
            && !(is_over && work.leaves.is_opening());
        if is_same || !is_there || is_over {
            if !is_new {
                tables.note(place, work.found.way, &work.found.words);
            }
            return Ok(if is_same {
                Answers::There(there, is_back)
            } else {
                Answers::New(there, is_back)
            });
        }
        // Another connection of the same client's port has the same backend. Of what is open already, what comes from the
        // backend is not this one's: it may have got another backend since.
        round += 1;
        if !is_new || round >= TRIES {
            return Err(DropReason::ServiceClash);
        }
    }
}

/// Notes a packet in the entry of its answers, which it makes where there is none.
#[inline(always)]
fn tell_answers<T: ServiceTables>(answers: Answers, now: u32, tables: &T, work: &mut Work) {
    match answers {
        Answers::Quiet => {}
        Answers::There(place, from_high) => {
            let flags = work.other.words.after(&work.leaves, from_high);
            work.other.words = work.other.words.noted(flags, (0, 0), now);
            tables.note(place, work.other.way, &work.other.words);
        }
        Answers::New(place, from_high) => {
            // The client has opened it, whichever end this packet is from.
            let is_of_client = matches!(work.found.target.kind, TO_BACKEND | TO_SELF);
            work.other.words = FlowWords {
                seen: now,
                flags: opened(&work.leaves, from_high, from_high == is_of_client),
                ..FlowWords::NONE
            };
            tables.open(place, &work.other_key, &work.other.words, &work.back);
        }
    }
}

/// Finds the backend that the client had, if it is one still: [`Work::backend`].
#[inline(always)]
fn is_kept<T: ServiceTables>(network: u32, now: u32, tables: &T, work: &mut Work) -> bool {
    if !tables.kept(&work.client, &mut work.kept) {
        return false;
    }
    // Another processor may be a tick ahead.
    let ticks = ticks_since(work.kept.seen, now).max(0).cast_unsigned();
    let age = u64::from(ticks) << TICK_SHIFT;
    if age > u64::from(work.service.affinity_s) * SECOND_NS {
        return false;
    }
    work.backend.ip.set(&work.kept.ip);
    work.backend.port = work.kept.port;
    let member = &mut work.member;
    member.write(network, &work.came, &work.kept.ip, work.kept.port);
    tables.is_member(&work.member)
}

impl MemberKey {
    /// Makes it that of an endpoint of the Service that a packet is for.
    #[inline(always)]
    fn write(&mut self, network: u32, came: &Tuple, backend: &Ip16, port: u16) {
        self.network = network;
        self.service.set(&came.destination);
        self.backend.set(backend);
        self.service_port = came.destination_port;
        self.backend_port = port;
        self.protocol = came.protocol;
    }
}

impl ClientKey {
    /// Makes it that of the sender of a packet to a Service.
    #[inline(always)]
    fn write(&mut self, network: u32, came: &Tuple) {
        self.service.network = network;
        self.service.ip.set(&came.destination);
        self.service.port = came.destination_port;
        self.service.protocol = came.protocol;
        self.client.set(&came.source);
    }
}
