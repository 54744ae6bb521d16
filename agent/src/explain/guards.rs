//! Judges a frame by the maps of policies in the kernel, as the programs do.
//!
//! No connection is kept, and nothing of a budget is taken.

use std::cell::OnceCell;

use agent_common::addr::{Ip16, MacAddr};
use agent_common::drop::DropReason;
use agent_common::endpoint::{
    ENDPOINT_GATEWAY, ENDPOINT_GUARD, ENDPOINT_OUTSIDE, ENDPOINT_REMOTE, ENDPOINT_WIRE, Endpoint,
};
use agent_common::guard::{
    self, AtomKey, End, FLOW_HIGH_OPENED, FlowKey, FlowWords, Fragment, FragmentKey,
    FragmentTables, Guard, GuardTables, Passage, RowKey, SetKey, To, Tuple,
};
use agent_common::packet::{ETH_P_ARP, ETH_P_IP, ETH_P_IPV6};
use agent_common::policy::{self, Act, Packet, Scratch, Tables};
use agent_common::port::{PORT_GUARD, PORT_OUTSIDE, Port};
use agent_common::route::Route;
use datapath::{DatapathError, connections};
use tables::Reconciler;

use super::tables::Live;

/// Connections that are looked up for one packet.
///
/// One may be that of an error's quote.
const CONNECTIONS: usize = 2;
/// TCP, UDP and SCTP.
const HAVE_PORTS: [u8; 3] = [6, 17, 132];
/// Stamp that no port has: a connection with it is judged again.
const NO_STAMP: u32 = u32::MAX;

/// The maps of policies, of which this keeps the connections that were looked up.
struct LiveGuards<'a> {
    live: Live<'a>,
    now: u32,
    found: [OnceCell<(FlowKey, FlowWords)>; CONNECTIONS],
    /// Each connection is judged, whatever has judged it.
    anew: bool,
}

impl<'a> LiveGuards<'a> {
    fn new(tables: &'a Reconciler, home: u32, anew: bool) -> Self {
        Self {
            live: Live::new(tables, home),
            now: connections::now(),
            found: Default::default(),
            anew,
        }
    }
}

impl Tables for LiveGuards<'_> {
    fn is_further_address(&self, ip: &Ip16) -> bool {
        self.live.is_further_address(ip)
    }

    fn endpoint(&self, network: u32, ip: &Ip16) -> Option<Endpoint> {
        self.live.endpoint(network, ip)
    }

    fn route(&self, network: u32, ip: &Ip16) -> Option<Route> {
        self.live.route(network, ip)
    }

    fn station(&self, network: u32, mac: MacAddr) -> Option<Endpoint> {
        self.live.station(network, mac)
    }

    fn has_vlan(&self, network: u32, id: u16) -> bool {
        self.live.has_vlan(network, id)
    }

    fn has_subnet(&self, network: u32, first: &Ip16, length: u8) -> bool {
        self.live.has_subnet(network, first, length)
    }

    fn has_ether_type(&self, network: u32, ether_type: u16) -> bool {
        self.live.has_ether_type(network, ether_type)
    }
}

impl FragmentTables for LiveGuards<'_> {
    /// Of no packet: none that is asked about comes in parts.
    fn fragment(&self, _: &FragmentKey) -> Option<Fragment> {
        None
    }

    fn keep_fragment(&self, _: &FragmentKey, _: &Fragment) {}

    fn now(&self) -> u32 {
        self.now
    }
}

impl GuardTables for LiveGuards<'_> {
    fn guard(&self, port_id: u16) -> Guard {
        let found = self
            .live
            .look_at_guards(|maps| maps.guards.found(u32::from(port_id)));
        found.unwrap_or_default()
    }

    fn sets(&self, port_id: u16) -> Guard {
        let found = self
            .live
            .look_at_guards(|maps| maps.guards.get(&u32::from(port_id)));
        found.unwrap_or_default()
    }

    fn atom_of_member(&self, generation: u32, ip: &Ip16) -> Option<u32> {
        let key = AtomKey {
            generation,
            ip: *ip,
        };
        self.live.look_at_guards(|maps| maps.atoms.get(&key))
    }

    fn atom_of_block(&self, generation: u32, ip: &Ip16) -> Option<u32> {
        self.live
            .look_at_guards(|maps| maps.blocks.lookup(generation, *ip))
    }

    fn class(&self, generation: u32, protocol: u32, port: u16) -> Option<u32> {
        let classes = self
            .live
            .look_at_guards(|maps| maps.classes.get(&generation));
        classes?.class(protocol, port)
    }

    fn row(&self, generation: u32, set: u32, atom: u32) -> Option<u32> {
        let key = SetKey {
            generation,
            set,
            atom,
        };
        self.live.look_at_guards(|maps| maps.sets.get(&key))
    }

    fn word(&self, generation: u32, row: u32, word: u32) -> u32 {
        let key = RowKey { generation, row };
        let row = self.live.look_at_guards(|maps| maps.rows.get(&key));
        let place = usize::try_from(word).unwrap_or(usize::MAX);
        let word = row.and_then(|row| row.words.get(place).copied());
        word.unwrap_or(0)
    }

    fn seek(&self, _: &FlowKey) {}

    fn flow(&self, key: &FlowKey, words: &mut FlowWords) -> bool {
        let found = self.live.look_at_guards(|maps| maps.connections.get(key));
        let Some(found) = found else {
            return false;
        };
        *words = found;
        if self.anew {
            (words.egress, words.ingress) = (NO_STAMP, NO_STAMP);
        }
        let free = self.found.iter().find(|cell| cell.get().is_none());
        free.is_some_and(|free| free.set((*key, found)).is_ok())
    }

    fn note(&self, _: &FlowWords, _: &FlowWords) {}

    fn tell(&self, _: &FlowKey, _: u32) -> bool {
        false
    }

    fn open(&self, _: &FlowKey, _: &FlowWords) -> bool {
        true
    }

    fn pay(&self, _: u32) -> bool {
        true
    }
}

/// Direction in which an end is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// By what it sends: it opens the connection.
    Egress,
    /// By what it receives.
    Ingress,
}

/// An end of this node.
#[derive(Debug, Clone, Copy)]
pub(super) struct JudgedEnd {
    /// Id of its port.
    pub(super) port: u16,
    /// Direction.
    pub(super) direction: Direction,
    /// Generation and number of its set in the kernel; 0 for none.
    pub(super) set: (u32, u32),
    /// Atom of the other end there.
    pub(super) atom: u32,
    /// Address of the other end.
    pub(super) other: Ip16,
    /// Verdict of the kernel's tables, for a packet that opens the connection.
    pub(super) verdict: Result<(), DropReason>,
}

/// How a packet came to its verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// By the policies of its ends.
    Judged,
    /// ARP or neighbour discovery, which always pass.
    Exempt,
    /// Neither IP nor ARP as hosts send it: no policy can name it.
    Other,
}

/// A frame as policies judge it.
#[derive(Debug)]
pub(super) struct Judged {
    /// How.
    pub(super) kind: Kind,
    /// Verdict of all.
    pub(super) verdict: Result<(), DropReason>,
    /// Ends and ports of the packet.
    pub(super) tuple: Tuple,
    /// The entry of its connection, and the ticks since its last packet.
    pub(super) connection: Option<(FlowKey, FlowWords, u32)>,
    /// For one receiver.
    pub(super) for_one: bool,
    /// The opener's end, then the other one, as far as they are on this node.
    pub(super) ends: Vec<JudgedEnd>,
    /// Port of the connection's other end, by which rules go.
    pub(super) number: Option<u16>,
}

impl Judged {
    /// True where any end has a set.
    pub(super) fn has_sets(&self) -> bool {
        self.ends.iter().any(|end| end.set.1 != 0)
    }
}

/// A frame on its way through this node.
struct Way<'a> {
    tables: &'a Reconciler,
    frame: &'a [u8],
    /// Network in the connection's key, and the one of both ends.
    networks: (u32, u32),
    from: End,
    to: To,
    sender: Option<u16>,
    receiver: Option<u16>,
}

/// Judges what a port of this node sends.
///
/// `unserved`: to an address of a Service, and left to the node's stack.
///
/// # Errors
/// When the kernel does not tell what is in a map.
pub(super) fn depart(
    tables: &Reconciler,
    frame: &[u8],
    port: &Port,
    unserved: bool,
) -> Result<Option<Judged>, DatapathError> {
    let guards = LiveGuards::new(tables, port.home, false);
    let (mut scratch, mut passage) = (Scratch::EMPTY, Passage::EMPTY);
    let act = match policy::decide_in(frame, port, &guards, &mut scratch) {
        // Of a Service that it does not have, `service` says so.
        Act::Service if unserved => Act::Node,
        act => act,
    };
    if act.pack().is_none() || port.shaper != 0 {
        return guards.live.end(()).map(|_| None);
    }
    let to_member = matches!(act, Act::Switch | Act::Moved | Act::Route);
    let is_asked =
        port.flags & PORT_GUARD != 0 || to_member && scratch.to.flags & ENDPOINT_GUARD != 0;
    passage.port = *port;
    let verdict = if is_asked {
        guard::depart(frame, act, &scratch, &guards, &mut passage)
    } else {
        Ok(())
    };
    let is_outside = port.flags & PORT_OUTSIDE != 0;
    let way = Way {
        tables,
        frame,
        networks: guard::between(port.network, guard::receiver_network(port, act, &scratch)),
        from: if is_outside {
            End::Outside
        } else {
            End::Port(port.port_id)
        },
        to: if act == Act::Flood {
            To::Group
        } else {
            To::One
        },
        sender: (!is_outside).then_some(port.port_id),
        receiver: (to_member && is_here(&scratch.to)).then_some(scratch.to.port_id),
    };
    way.end(guards, &scratch, passage, (is_asked, verdict))
        .map(Some)
}

/// Judges what comes for a port of this node from elsewhere.
///
/// # Errors
/// When the kernel does not tell what is in a map.
pub(super) fn arrive(
    tables: &Reconciler,
    frame: &[u8],
    (network, from): (u32, End),
    to: &Endpoint,
) -> Result<Judged, DatapathError> {
    let guards = LiveGuards::new(tables, 0, false);
    let (mut scratch, mut passage) = (Scratch::EMPTY, Passage::EMPTY);
    let is_asked = to.flags & ENDPOINT_GUARD != 0;
    let verdict = if is_asked {
        guard::arrive(
            frame,
            (network, from),
            to,
            &mut scratch,
            &guards,
            &mut passage,
        )
    } else {
        // Nobody has read it, which it stands: it has passed the look at who sends it.
        policy::read(frame, &mut scratch).map(|_| ())
    };
    let source = &scratch.packet.source;
    let sender = guard::sender_network(&guards, network, to, source);
    let way = Way {
        tables,
        frame,
        networks: guard::between(network, sender),
        from,
        to: To::One,
        sender: None,
        receiver: is_here(to).then_some(to.port_id),
    };
    way.end(guards, &scratch, passage, (is_asked, verdict))
}

/// True for a port of this node.
const fn is_here(to: &Endpoint) -> bool {
    to.flags & (ENDPOINT_REMOTE | ENDPOINT_GATEWAY | ENDPOINT_OUTSIDE | ENDPOINT_WIRE) == 0
}

impl Way<'_> {
    /// Adds what each end says, to the verdict of all.
    fn end(
        &self,
        guards: LiveGuards<'_>,
        scratch: &Scratch,
        passage: Passage,
        (is_asked, verdict): (bool, Result<(), DropReason>),
    ) -> Result<Judged, DatapathError> {
        let packet = &scratch.packet;
        let kind = self.kind(packet);
        let tuple = if passage.tuple == Tuple::EMPTY {
            // No port was asked for.
            self.tuple(packet)
        } else {
            passage.tuple
        };
        let (key, from_high) = FlowKey::of(self.networks.0, &tuple);
        let mut found = guards.found.iter().filter_map(OnceCell::get);
        let connection =
            found.find(|(of, words)| *of == key && words.is_alive(of.protocol, guards.now));
        let age = |words: &FlowWords| guard::ticks_since(words.seen, guards.now).max(0);
        let connection = connection.map(|(key, words)| (*key, *words, age(words).cast_unsigned()));
        let onward = connection
            .is_none_or(|(_, words, _)| (words.flags & FLOW_HIGH_OPENED != 0) == from_high);
        let mut ends = [
            (self.sender, tuple.destination),
            (self.receiver, tuple.source),
        ];
        if !onward {
            ends.reverse();
        }
        let number = if onward {
            tuple.destination_port
        } else {
            tuple.source_port
        };
        guards.live.end(())?;
        let directions = [Direction::Egress, Direction::Ingress];
        let mut judged = Vec::new();
        for ((port, other), direction) in ends.into_iter().zip(directions) {
            if let Some(port) = port {
                judged.push(self.judge(
                    scratch,
                    (port, other),
                    direction,
                    is_asked && kind == Kind::Judged,
                )?);
            }
        }
        Ok(Judged {
            kind,
            verdict,
            connection,
            for_one: self.to == To::One,
            ends: judged,
            number: tuple.has_ports.then_some(number),
            tuple,
        })
    }

    /// Addresses and ports of a packet.
    fn tuple(&self, packet: &Packet) -> Tuple {
        let at = usize::from(packet.payload);
        let ports = self.frame.get(at..).and_then(|rest| rest.first_chunk());
        let mut tuple = Tuple {
            source: packet.source,
            destination: packet.destination,
            protocol: packet.protocol,
            ..Tuple::EMPTY
        };
        if let Some([a, b, c, d]) = ports.filter(|_| HAVE_PORTS.contains(&packet.protocol)) {
            tuple.has_ports = true;
            tuple.source_port = u16::from_be_bytes([*a, *b]);
            tuple.destination_port = u16::from_be_bytes([*c, *d]);
        }
        tuple
    }

    fn kind(&self, packet: &Packet) -> Kind {
        let ether_type = self.frame.get(12..14);
        let is = |number: u16| ether_type == Some(&number.to_be_bytes());
        if is(ETH_P_ARP) && self.frame.len() <= guard::ARP_MAX {
            return Kind::Exempt;
        }
        if !is(ETH_P_IP) && !is(ETH_P_IPV6) {
            return Kind::Other;
        }
        if guard::is_exempt(self.frame, packet) {
            return Kind::Exempt;
        }
        Kind::Judged
    }

    /// Judges one end by itself.
    fn judge(
        &self,
        scratch: &Scratch,
        (port, other): (u16, Ip16),
        direction: Direction,
        by_rules: bool,
    ) -> Result<JudgedEnd, DatapathError> {
        let guards = LiveGuards::new(self.tables, 0, true);
        let guard = guards.sets(port);
        let mut passage = Passage::EMPTY;
        passage.shared = self.networks.1;
        let mut only = guard;
        let set = match direction {
            Direction::Egress => {
                only.ingress = 0;
                guard.egress
            }
            Direction::Ingress => {
                only.egress = 0;
                guard.ingress
            }
        };
        if self.sender == Some(port) {
            passage.sender = only;
        } else {
            passage.receiver = only;
        }
        let is_judged = by_rules && set != 0;
        let verdict = if is_judged {
            let way = (self.from, self.to);
            guard::pass(
                self.frame,
                self.networks.0,
                way,
                scratch,
                &guards,
                &mut passage,
            )
        } else {
            Ok(())
        };
        let atom = if is_judged {
            guards.atom(guard.generation, self.networks.1, &other)
        } else {
            guard::UNKNOWN_ATOM
        };
        let end = JudgedEnd {
            port,
            direction,
            set: (guard.generation, set),
            atom,
            other,
            verdict,
        };
        guards.live.end(end).map(|(end, _)| end)
    }
}
