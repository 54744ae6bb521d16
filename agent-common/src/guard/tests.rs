//! Packets against tables in memory.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::addr::MacAddr;
use crate::drop::DropReason;
use crate::endpoint::{ENDPOINT_ROUTES, Endpoint};
use crate::policy::{self, Act, Scratch, Tables};
use crate::port::{PORT_L3, Port};
use crate::route::Route;

mod across;
mod again;
mod allowed;
mod bucket;
mod flows;
mod groups;
mod icmp;
mod node;
mod parts;

const NETWORK: u32 = 7;
/// A network that is routed to [`NETWORK`].
const ROUTED: u32 = 5;
const GENERATION: u32 = 3;

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];
/// A member whose labels are not known.
const C: [u8; 4] = [10, 0, 0, 3];

/// A member of [`ROUTED`].
const D: [u8; 4] = [10, 1, 0, 4];

const CLIENT: ([u8; 4], u16) = (A, 40_000);
const SERVER: ([u8; 4], u16) = (B, 80);
/// Verdict of a receiver's set.
const REFUSED: Result<(), DropReason> = Err(DropReason::PolicyIngress);

const ATOM_A: u32 = 1;
const ATOM_B: u32 = 2;
const ATOM_REST: u32 = 9;

/// A set that lets TCP and UDP port 80 pass with A and B, and nothing else.
const WEB: u32 = 1;
/// A set that lets nothing pass.
const NOTHING: u32 = 2;
/// A set that lets all pass.
const ALL: u32 = 3;
/// A set that lets what has no ports pass with all.
const PINGS: u32 = 4;

struct World {
    guards: HashMap<u16, Guard>,
    flows: RefCell<HashMap<FlowKey, FlowWords>>,
    /// The connection that was sought last.
    sought: Cell<Option<FlowKey>>,
    opened: RefCell<HashMap<FlowKey, FlowWords>>,
    fragments: RefCell<HashMap<FragmentKey, Fragment>>,
    stamp: u32,
    now: Cell<u32>,
    budget: Cell<u32>,
    /// That of the last packet, as programs have it.
    passage: Cell<Passage>,
    /// Look-ups of connections.
    looked: Cell<usize>,
    /// The atom of A.
    atom_of_a: Cell<u32>,
    /// Look-ups of rows of sets.
    rows: Cell<usize>,
    /// There is no room for another connection.
    full: Cell<bool>,
    /// Ticks of the kernel's timer.
    jiffies: Cell<u64>,
    /// The last packet sent needed no judging.
    repeated: Cell<bool>,
}

impl World {
    fn new() -> Self {
        Self {
            guards: HashMap::new(),
            flows: RefCell::default(),
            sought: Cell::new(None),
            opened: RefCell::default(),
            fragments: RefCell::default(),
            stamp: 0,
            now: Cell::new(1000),
            budget: Cell::new(100),
            passage: Cell::new(Passage::EMPTY),
            looked: Cell::new(0),
            atom_of_a: Cell::new(ATOM_A),
            rows: Cell::new(0),
            full: Cell::new(false),
            jiffies: Cell::new(1),
            repeated: Cell::new(false),
        }
    }

    fn with(mut self, ip: [u8; 4], egress: u32, ingress: u32) -> Self {
        self.set(ip, egress, ingress);
        self
    }

    fn set(&mut self, ip: [u8; 4], egress: u32, ingress: u32) {
        self.stamp += 1;
        let guard = Guard {
            generation: GENERATION,
            egress,
            ingress,
            stamp: self.stamp,
            flags: 0,
        };
        self.guards.insert(port_id(ip), guard);
    }

    fn adopt(&mut self, ip: [u8; 4]) {
        self.guards.get_mut(&port_id(ip)).unwrap().flags = GUARD_ADOPT;
    }

    /// Sends a frame from one member to another, as `from_pod` does.
    fn send(&mut self, from: [u8; 4], to: [u8; 4], frame: &[u8]) -> Result<(), DropReason> {
        let mut scratch = Scratch::EMPTY;
        policy::read(frame, &mut scratch).unwrap();
        scratch.to = endpoint(to);
        scratch.route.network = network_of(to);
        let mut passage = self.passage(port(from));
        let act = Act::Route;
        let mut first = passage;
        let before = self.flows.borrow().clone();
        let again = repeats(frame, &port(from), act, &scratch, self, &mut first);
        let told = self.flows.replace(before.clone());
        // The program that judges has what the first one has left.
        if !again {
            passage = first;
        }
        let result = depart(frame, act, &scratch, self, &mut passage);
        if again {
            // The program that judges would do nothing else, and leave the same to the next packet.
            assert_eq!(result, Ok(()));
            assert!(self.opened.borrow().is_empty() && *self.flows.borrow() == told);
            // But for what another processor has told the entry.
            first.last.flags |= passage.last.flags;
            assert_eq!((first.key, first.last), (passage.key, passage.last));
        } else {
            assert_eq!(told, before);
        }
        self.repeated.set(again);
        self.settle(passage);
        result
    }

    /// Takes a frame from another node.
    fn receive(&mut self, from: End, to: [u8; 4], frame: &[u8]) -> Result<(), DropReason> {
        let (mut scratch, mut passage) = (Scratch::EMPTY, self.passage.get());
        let network = network_of(to);
        let to = Endpoint {
            flags: ENDPOINT_ROUTES,
            ..endpoint(to)
        };
        let result = arrive(
            frame,
            (network, from),
            &to,
            &mut scratch,
            self,
            &mut passage,
        );
        self.settle(passage);
        result
    }

    /// Takes a frame from the node's stack for a pod.
    fn deliver(&mut self, origin: Origin, to: [u8; 4], frame: &[u8]) -> Result<(), DropReason> {
        let mut scratch = Scratch::EMPTY;
        let mut passage = self.passage(port(to));
        let result = from_node(frame, origin, &mut scratch, self, &mut passage);
        self.settle(passage);
        result
    }

    /// Sends a frame of a pod to the node's stack.
    fn hand_over(&mut self, from: [u8; 4], frame: &[u8]) -> Result<(), DropReason> {
        let mut scratch = Scratch::EMPTY;
        policy::read(frame, &mut scratch).unwrap();
        let mut passage = self.passage(port(from));
        let result = depart(frame, Act::Node, &scratch, self, &mut passage);
        self.settle(passage);
        result
    }

    /// The passage of this processor, for a packet of a port.
    fn passage(&self, port: Port) -> Passage {
        let mut passage = self.passage.get();
        passage.has_ticked(self.jiffies.get());
        Passage { port, ..passage }
    }

    /// Every connection, with its words.
    fn connections(&self) -> Vec<(FlowKey, FlowWords)> {
        let flows = self.flows.borrow();
        let mut all: Vec<_> = flows.iter().map(|(key, words)| (*key, *words)).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }

    /// Has another processor's passage.
    fn on_cpu<T>(&mut self, passage: &mut Passage, work: impl FnOnce(&mut Self) -> T) -> T {
        let here = (self.passage.replace(*passage), self.sought.get());
        // What is not forgotten was sought there.
        self.sought
            .set((passage.last.seen != 0).then_some(passage.key));
        let done = work(self);
        *passage = self.passage.replace(here.0);
        self.sought.set(here.1);
        done
    }

    fn settle(&mut self, passage: Passage) {
        self.passage.set(passage);
        for (key, words) in self.opened.take() {
            self.flows.borrow_mut().insert(key, words);
        }
    }

    fn later(&self, ticks: u32) {
        self.jiffies
            .set(self.jiffies.get() + 300 * u64::from(ticks));
        self.now.set(self.now.get() + ticks);
    }
}

fn network_of(ip: [u8; 4]) -> u32 {
    if ip == D { ROUTED } else { NETWORK }
}

fn port_id(ip: [u8; 4]) -> u16 {
    u16::from(ip[3])
}

fn mac(ip: [u8; 4]) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, ip[3]])
}

fn endpoint(ip: [u8; 4]) -> Endpoint {
    Endpoint {
        ifindex: u32::from(ip[3]),
        flags: 0,
        mac: mac(ip),
        port_id: port_id(ip),
    }
}

fn port(ip: [u8; 4]) -> Port {
    Port {
        network: network_of(ip),
        flags: PORT_L3,
        mac: mac(ip),
        mtu: 1500,
        ip4: ip,
        port_id: port_id(ip),
        tunnel_port: 0,
        ip6: Ip16::NONE,
        link_local: Ip16::NONE,
        home: u32::from(ip[3]),
        shaper: 0,
    }
}

impl Tables for World {
    fn is_further_address(&self, _: &Ip16) -> bool {
        false
    }

    fn endpoint(&self, network: u32, ip: &Ip16) -> Option<Endpoint> {
        let known = [A, B, C, D]
            .into_iter()
            .find(|it| Ip16::from_v4(*it) == *ip);
        known.filter(|it| network == network_of(*it)).map(endpoint)
    }

    fn route(&self, network: u32, ip: &Ip16) -> Option<Route> {
        let other = if network == NETWORK { ROUTED } else { NETWORK };
        let is_there = self.endpoint(other, ip).is_some();
        is_there.then_some(Route {
            network: other,
            mtu: 0,
        })
    }

    fn station(&self, network: u32, of: MacAddr) -> Option<Endpoint> {
        let known = [A, B, C].into_iter().find(|it| mac(*it) == of);
        known.filter(|_| network == NETWORK).map(endpoint)
    }
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

impl GuardTables for World {
    /// As programs find it.
    fn guard(&self, port_id: u16) -> Guard {
        let stamp = self.guards.get(&port_id).map(Stamp::of);
        stamp.and_then(|it| it.guard()).unwrap_or_default()
    }

    fn sets(&self, port_id: u16) -> Guard {
        self.guards.get(&port_id).copied().unwrap_or_default()
    }

    fn atom_of_member(&self, generation: u32, ip: &Ip16) -> Option<u32> {
        assert_eq!(generation, GENERATION);
        match ip.v4() {
            Some(A) => Some(self.atom_of_a.get()),
            Some(B) => Some(ATOM_B),
            _ => None,
        }
    }

    fn atom_of_block(&self, generation: u32, _: &Ip16) -> Option<u32> {
        (generation == GENERATION).then_some(ATOM_REST)
    }

    fn class(&self, generation: u32, protocol: u32, port: u16) -> Option<u32> {
        assert!(generation == GENERATION && protocol < 3);
        let mut starts = [0; STARTS];
        for protocol in 0..3 {
            starts[protocol * CLASSES + 1] = 80;
            starts[protocol * CLASSES + 2] = 81;
        }
        let classes = Classes {
            counts: [3, 3, 3, 0],
            starts,
        };
        classes.class(protocol, port)
    }

    fn row(&self, generation: u32, set: u32, atom: u32) -> Option<u32> {
        assert_eq!(generation, GENERATION);
        self.rows.set(self.rows.get() + 1);
        match (set, atom) {
            (WEB, ATOM_A | ATOM_B) => Some(1),
            (WEB, UNKNOWN_ATOM | OTHERS) | (NOTHING, UNKNOWN_ATOM | OTHERS) => Some(0),
            (ALL, OTHERS) => Some(2),
            (PINGS, OTHERS) => Some(3),
            _ => None,
        }
    }

    fn word(&self, generation: u32, row: u32, word: u32) -> u32 {
        assert_eq!(generation, GENERATION);
        match (row, word) {
            // The class of port 80, of TCP and of UDP.
            (1, 0 | 8) => 1 << 1,
            (2, _) => u32::MAX,
            (3, 24) => 1,
            _ => 0,
        }
    }

    fn seek(&self, key: &FlowKey) {
        self.sought.set(Some(*key));
    }

    fn flow(&self, key: &FlowKey, words: &mut FlowWords) -> bool {
        self.looked.set(self.looked.get() + 1);
        assert_eq!(self.sought.get(), Some(*key));
        let flows = self.flows.borrow();
        let found = flows.get(key).inspect(|found| *words = **found);
        found.is_some()
    }

    fn note(&self, was: &FlowWords, is: &FlowWords) {
        let key = self.sought.get().expect("a connection was sought");
        let before = self.flows.borrow_mut().insert(key, *is);
        assert_eq!(before, Some(*was));
    }

    fn tell(&self, key: &FlowKey, flags: u32) -> bool {
        // Programs find the entry by what was sought, not by the key.
        assert_eq!(self.sought.get(), Some(*key));
        let mut flows = self.flows.borrow_mut();
        let opened = self.opened.borrow();
        let Some(words) = flows.get_mut(key).filter(|_| opened.is_empty()) else {
            return false;
        };
        if words.flags & FLOW_DENIED | (words.flags ^ flags) & FLOW_HIGH_OPENED != 0 {
            return false;
        }
        words.flags |= flags;
        true
    }

    fn open(&self, key: &FlowKey, words: &FlowWords) -> bool {
        assert_eq!(self.sought.get(), Some(*key));
        if !self.full.get() {
            self.opened.borrow_mut().insert(*key, *words);
        }
        !self.full.get()
    }

    fn pay(&self, _: u32) -> bool {
        let left = self.budget.get();
        self.budget.set(left.saturating_sub(1));
        left > 0
    }
}

fn address(ip: [u8; 4]) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(ip))
}

/// An IPv4 frame with this payload.
///
/// `part` is the identification, and the field of flags and offset.
fn ipv4(from: [u8; 4], to: [u8; 4], protocol: u8, part: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut frame = [mac(to).0, mac(from).0].concat();
    frame.extend([8, 0, 0x45, 0]);
    frame.extend(u16::try_from(20 + payload.len()).unwrap().to_be_bytes());
    frame.extend(part.0.to_be_bytes());
    frame.extend(part.1.to_be_bytes());
    frame.extend([64, protocol, 0, 0]);
    frame.extend(from);
    frame.extend(to);
    frame.extend(payload);
    frame
}

fn ports(source: u16, destination: u16) -> Vec<u8> {
    [source.to_be_bytes(), destination.to_be_bytes()].concat()
}

fn udp(from: ([u8; 4], u16), to: ([u8; 4], u16)) -> Vec<u8> {
    let mut payload = ports(from.1, to.1);
    payload.extend([0, 12, 0, 0, 1, 2, 3, 4]);
    ipv4(from.0, to.0, 17, (1, 0), &payload)
}

/// A segment of TCP with these flags.
fn tcp(from: ([u8; 4], u16), to: ([u8; 4], u16), flags: u8) -> Vec<u8> {
    let mut payload = ports(from.1, to.1);
    payload.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 0, 100, 0, 0, 0, 0]);
    ipv4(from.0, to.0, 6, (1, 0), &payload)
}

const SYN: u8 = 2;
const SYN_ACK: u8 = 0x12;
const ACK: u8 = 0x10;
const FIN_ACK: u8 = 0x11;
const RST: u8 = 4;

#[test]
fn a_class_is_found_for_each_port() {
    let mut starts = [0; STARTS];
    for (at, start) in starts[CLASSES..2 * CLASSES].iter_mut().enumerate() {
        *start = u16::try_from(at * 257).unwrap();
    }
    starts[2 * CLASSES + 1] = 65_535;
    let classes = Classes {
        counts: [1, 256, 2, 0],
        starts,
    };
    for port in 0..=u16::MAX {
        assert_eq!(classes.class(0, port), Some(0));
        assert_eq!(classes.class(1, port), Some(u32::from(port) / 257));
        assert_eq!(classes.class(2, port), Some(u32::from(port == u16::MAX)));
    }
    assert_eq!(classes.class(3, 1), None);
    assert_eq!(address(A), IpAddr::from(A));
}
