//! Packets of Services against tables in memory.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use super::*;
use crate::drop::DropReason;
use crate::guard::{
    FlowKey, FlowPlace, FlowWords, Fragment, FragmentKey, FragmentTables, Secret, Tuple,
};
use crate::packet::{IPPROTO_ICMP, IPPROTO_TCP, IPPROTO_UDP};
use crate::policy::{self, Scratch};

mod affinity;
mod entries;
mod errors;
mod parts;

const NETWORK: u32 = 7;
const PORT_ID: u16 = 3;
const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVICE: [u8; 4] = [10, 96, 0, 10];
const OTHER_SERVICE: [u8; 4] = [10, 96, 0, 11];
const BACKENDS: [[u8; 4]; 4] = [
    [10, 0, 0, 11],
    [10, 0, 0, 12],
    [10, 0, 0, 13],
    [10, 0, 0, 14],
];

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const FIN: u8 = 0x11;
const RST: u8 = 0x04;

/// An end: address and port.
type End = ([u8; 4], u16);

struct World {
    services: HashMap<ServiceKey, Service>,
    backends: HashMap<BackendKey, Backend>,
    members: Vec<MemberKey>,
    kept: RefCell<HashMap<ClientKey, Kept>>,
    entries: RefCell<Vec<(FlowKey, FlowWords, Target)>>,
    fragments: RefCell<HashMap<FragmentKey, Fragment>>,
    now: Cell<u32>,
    budget: Cell<u32>,
    sets: u32,
    /// Clients were there before the network had Services.
    elder: bool,
    /// Entries that were noted or opened.
    written: Cell<u32>,
}

impl World {
    fn new() -> Self {
        Self {
            services: HashMap::new(),
            backends: HashMap::new(),
            members: Vec::new(),
            kept: RefCell::default(),
            entries: RefCell::default(),
            fragments: RefCell::default(),
            now: Cell::new(1000),
            budget: Cell::new(100_000),
            sets: 0,
            elder: false,
            written: Cell::new(0),
        }
    }

    /// A Service at port 80, of TCP and UDP, with these backends at port 8080.
    fn with(mut self, ip: [u8; 4], backends: &[[u8; 4]]) -> Self {
        self.set(ip, backends, |_| {});
        self
    }

    fn set(&mut self, ip: [u8; 4], backends: &[[u8; 4]], change: impl Fn(&mut Service)) {
        for protocol in [IPPROTO_TCP, IPPROTO_UDP] {
            self.sets += 1;
            let key = key(ip, protocol);
            let mut service = Service {
                set: self.sets,
                count: u32::try_from(backends.len()).unwrap(),
                affinity_s: 0,
                flags: 0,
            };
            change(&mut service);
            self.services.insert(key, service);
            self.members
                .retain(|it| (it.service, it.protocol) != (key.ip, protocol));
            for (index, backend) in (0..).zip(backends) {
                let place = BackendKey {
                    set: self.sets,
                    index,
                };
                let backend = Ip16::from_v4(*backend);
                self.backends.insert(place, Backend::new(backend, 8080));
                self.members.push(MemberKey {
                    network: NETWORK,
                    service: key.ip,
                    backend,
                    service_port: 80,
                    backend_port: 8080,
                    protocol,
                    reserved: [0; 3],
                });
            }
        }
    }

    /// Sends a packet to a Service; returns both ends of it as it leaves.
    fn send(&self, frame: &[u8]) -> Result<(End, End), DropReason> {
        self.send_on(NETWORK, frame)
    }

    fn send_on(&self, network: u32, frame: &[u8]) -> Result<(End, End), DropReason> {
        let (mut scratch, mut work) = (Scratch::EMPTY, Work::EMPTY);
        policy::read(frame, &mut scratch).unwrap();
        let client = Client {
            network,
            port_id: PORT_ID,
            elder: self.elder,
        };
        request(frame, client, &scratch, self, &mut work)?;
        let (source, destination) = ends(&work.leaves);
        let to_self = Ip16::from_v4(destination.0) == work.came.source;
        assert_eq!(work.is_to_self(), to_self);
        Ok((source, destination))
    }

    /// Delivers a packet; returns both ends of it if it was translated.
    fn deliver(&self, frame: &[u8]) -> Option<(End, End)> {
        let (mut scratch, mut work) = (Scratch::EMPTY, Work::EMPTY);
        policy::read(frame, &mut scratch).unwrap();
        reply(frame, NETWORK, &scratch, self, &mut work).then(|| ends(&work.leaves))
    }

    /// The backend that a client's port gets.
    fn backend_of(&self, port: u16, protocol: u8) -> [u8; 4] {
        let frame = packet((CLIENT, port), (SERVICE, 80), protocol, SYN);
        let (source, (ip, to)) = self.send(&frame).unwrap();
        assert_eq!((source, to), ((CLIENT, port), 8080));
        ip
    }

    fn later(&self, ticks: u32) {
        self.now.set(self.now.get() + ticks);
    }
}

fn key(ip: [u8; 4], protocol: u8) -> ServiceKey {
    ServiceKey {
        network: NETWORK,
        ip: Ip16::from_v4(ip),
        port: 80,
        protocol,
        reserved: 0,
    }
}

fn ends(tuple: &Tuple) -> (End, End) {
    let v4 = |ip: &Ip16| ip.v4().expect("an IPv4 address");
    (
        (v4(&tuple.source), tuple.source_port),
        (v4(&tuple.destination), tuple.destination_port),
    )
}

/// An IPv4 frame with the start of a segment or datagram.
fn packet((from, source): End, (to, destination): End, protocol: u8, flags: u8) -> Vec<u8> {
    let ports = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    let rest = [0, 0, 0, 0, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0];
    part(from, to, protocol, (0, 0), &[&ports[..], &rest].concat())
}

/// A packet of which flags and offset are these, with its identification.
fn part(from: [u8; 4], to: [u8; 4], protocol: u8, at: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend(u16::try_from(20 + payload.len()).unwrap().to_be_bytes());
    frame.extend(at.0.to_be_bytes());
    frame.extend(at.1.to_be_bytes());
    frame.extend([64, protocol, 0, 0]);
    frame.extend(from);
    frame.extend(to);
    frame.extend(payload);
    frame
}

impl FragmentTables for World {
    fn fragment(&self, key: &FragmentKey) -> Option<Fragment> {
        self.fragments.borrow().get(key).copied()
    }

    fn keep_fragment(&self, key: &FragmentKey, first: &Fragment) {
        self.fragments.borrow_mut().insert(*key, *first);
    }

    fn now(&self) -> u32 {
        self.now.get()
    }
}

impl ServiceTables for World {
    fn service(&self, key: &ServiceKey, to: &mut Service) -> bool {
        let found = self.services.get(key);
        found.inspect(|found| *to = **found).is_some()
    }

    fn backend(&self, key: &BackendKey, to: &mut Backend) -> bool {
        let found = self.backends.get(key);
        found.inspect(|found| *to = **found).is_some()
    }

    fn is_member(&self, key: &MemberKey) -> bool {
        self.members.contains(key)
    }

    fn kept(&self, key: &ClientKey, to: &mut Kept) -> bool {
        let kept = self.kept.borrow();
        kept.get(key).inspect(|found| *to = **found).is_some()
    }

    fn keep(&self, key: &ClientKey, kept: &Kept) {
        self.kept.borrow_mut().insert(*key, *kept);
    }

    fn place(&self, key: &FlowKey) -> FlowPlace {
        let half = |at: u64| {
            std::array::from_fn(|place| {
                0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(at + 2 * place as u64 + 1)
            })
        };
        FlowPlace::of(
            &Secret {
                low: &half(1),
                high: &half(20),
            },
            key,
        )
    }

    fn find(&self, _: FlowPlace, key: &FlowKey, to: &mut Found) -> bool {
        let entries = self.entries.borrow();
        let place = entries.iter().position(|(of, ..)| of == key);
        let Some(place) = place else {
            return false;
        };
        let (_, words, target) = entries[place];
        *to = Found {
            way: place as u64,
            words,
            target,
        };
        true
    }

    fn note(&self, _: FlowPlace, way: u64, words: &FlowWords) {
        self.written.set(self.written.get() + 1);
        self.entries.borrow_mut()[usize::try_from(way).unwrap()].1 = *words;
    }

    fn open(&self, _: FlowPlace, key: &FlowKey, words: &FlowWords, target: &Target) {
        self.written.set(self.written.get() + 1);
        let mut entries = self.entries.borrow_mut();
        entries.retain(|(of, ..)| of != key);
        entries.push((*key, *words, *target));
    }

    fn zero(&self) -> u32 {
        0
    }

    fn again<'a>(&self, work: &'a mut Work) -> &'a mut Work {
        work
    }

    fn pay(&self, port_id: u16) -> bool {
        assert_eq!(port_id, PORT_ID);
        let left = self.budget.get();
        self.budget.set(left.saturating_sub(1));
        left > 0
    }
}

#[test]
fn a_connection_goes_to_a_backend_and_its_answers_come_from_the_service() {
    let world = World::new().with(SERVICE, &BACKENDS);
    for protocol in [IPPROTO_TCP, IPPROTO_UDP] {
        let backend = world.backend_of(40_000, protocol);
        assert!(BACKENDS.contains(&backend));
        let answer = packet((backend, 8080), (CLIENT, 40_000), protocol, SYN | ACK);
        let expected = Some(((SERVICE, 80), (CLIENT, 40_000)));
        assert_eq!(world.deliver(&answer), expected);
        // Not the request on its way to the backend.
        let request = packet((CLIENT, 40_000), (backend, 8080), protocol, ACK);
        assert_eq!(world.deliver(&request), None);
        // Nor what another port, another backend or another client has.
        for (from, to) in [
            ((backend, 8081), (CLIENT, 40_000)),
            ((backend, 8080), (CLIENT, 40_001)),
            (([10, 0, 0, 99], 8080), (CLIENT, 40_000)),
            ((backend, 8080), ([10, 0, 0, 2], 40_000)),
        ] {
            assert_eq!(world.deliver(&packet(from, to, protocol, ACK)), None);
        }
    }
}

#[test]
fn connections_are_spread_evenly() {
    let world = World::new().with(SERVICE, &BACKENDS);
    let mut count = HashMap::<_, u32>::new();
    for port in 0..4000 {
        let backend = world.backend_of(20_000 + port, IPPROTO_TCP);
        *count.entry(backend).or_default() += 1;
    }
    // Six times the standard deviation of a fair choice is 164.
    assert_eq!(count.len(), 4);
    assert!(
        count.values().all(|of| of.abs_diff(1000) < 164),
        "{count:?}"
    );
}

#[test]
fn what_no_service_has_is_refused_and_so_is_one_without_endpoints() {
    let mut world = World::new().with(SERVICE, &BACKENDS);
    world.set(OTHER_SERVICE, &[], |_| {});
    let to = |ip, port, protocol| packet((CLIENT, 4000), (ip, port), protocol, SYN);
    for protocol in [IPPROTO_TCP, IPPROTO_UDP] {
        let refused = |frame: &[u8]| world.send(frame).unwrap_err();
        assert_eq!(refused(&to(SERVICE, 81, protocol)), DropReason::NoService);
        let empty = to(OTHER_SERVICE, 80, protocol);
        assert_eq!(refused(&empty), DropReason::NoBackend);
        // The same address is another network's too.
        let elsewhere = world.send_on(NETWORK + 1, &to(SERVICE, 80, protocol));
        assert_eq!(elsewhere, Err(DropReason::NoService));
    }
    let ping = to(SERVICE, 80, IPPROTO_ICMP);
    assert_eq!(world.send(&ping), Err(DropReason::NoService));
    world.set(OTHER_SERVICE, &[], |service| {
        service.flags = SERVICE_ELSEWHERE;
    });
    let local = world.send(&to(OTHER_SERVICE, 80, IPPROTO_TCP));
    assert_eq!(local, Err(DropReason::NoLocalBackend));
    assert!(world.entries.borrow().is_empty());
}

#[test]
fn a_pod_reaches_itself_through_its_service() {
    let world = World::new().with(SERVICE, &[CLIENT]);
    for protocol in [IPPROTO_TCP, IPPROTO_UDP] {
        let question = packet((CLIENT, 4000), (SERVICE, 80), protocol, SYN);
        let answer = packet((CLIENT, 8080), (SERVICE, 4000), protocol, SYN | ACK);
        for _ in 0..3 {
            let there = world.send(&question).unwrap();
            assert_eq!(there, ((SERVICE, 4000), (CLIENT, 8080)));
            let back = world.send(&answer).unwrap();
            assert_eq!(back, ((SERVICE, 80), (CLIENT, 4000)));
            world.later(5);
        }
    }
    assert_eq!(world.entries.borrow().len(), 4);
}

#[test]
fn one_port_opens_no_more_connections_than_its_budget_has() {
    let world = World::new().with(SERVICE, &BACKENDS);
    world.budget.set(2);
    world.backend_of(1, IPPROTO_TCP);
    world.backend_of(2, IPPROTO_TCP);
    let third = packet((CLIENT, 3), (SERVICE, 80), IPPROTO_TCP, SYN);
    assert_eq!(world.send(&third), Err(DropReason::FlowLimit));
    assert_eq!(world.entries.borrow().len(), 4);
    // Those that are open cost nothing.
    world.backend_of(1, IPPROTO_TCP);
}

#[test]
fn a_client_s_port_has_one_connection_with_a_backend() {
    let two = [BACKENDS[0], BACKENDS[1]];
    let world = World::new().with(SERVICE, &two).with(OTHER_SERVICE, &two);
    let first = world.backend_of(40_000, IPPROTO_TCP);
    let other = packet((CLIENT, 40_000), (OTHER_SERVICE, 80), IPPROTO_TCP, SYN);
    let (_, (second, _)) = world.send(&other).unwrap();
    assert_ne!(first, second);
    let answer = packet((second, 8080), (CLIENT, 40_000), IPPROTO_TCP, ACK);
    let expected = Some(((OTHER_SERVICE, 80), (CLIENT, 40_000)));
    assert_eq!(world.deliver(&answer), expected);
    let world = World::new()
        .with(SERVICE, &two[..1])
        .with(OTHER_SERVICE, &two[..1]);
    world.backend_of(40_000, IPPROTO_TCP);
    assert_eq!(world.send(&other), Err(DropReason::ServiceClash));
    // The first one has ended.
    let end = packet((CLIENT, 40_000), (SERVICE, 80), IPPROTO_TCP, FIN);
    assert!(world.send(&end).is_ok());
    let end = packet((BACKENDS[0], 8080), (CLIENT, 40_000), IPPROTO_TCP, FIN);
    assert!(world.deliver(&end).is_some());
    assert!(world.send(&other).is_ok());
}
