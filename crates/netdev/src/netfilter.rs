//! Writes tables of nf_tables: masquerading, mapped ports, limits and guards.
//!
//! Masquerading gives packets to the outside an address of the node; mapped ports lead to another address;
//! guards stop packets that must not pass.
//!
//! They are of ours alone, each replaced as a whole in one transaction. Each rule says in
//! its comment what it is, so that a look at the comments tells whether the table is as it should be.

mod expression;
mod guard;
mod limit;
mod message;
mod monitor;
mod ports;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use netlink_sys::{Socket, protocols::NETLINK_NETFILTER};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::connection::{self, DUMP_ATTEMPTS};
use crate::error::Error;
use crate::wire;
pub use guard::{Bound, Guard, LinkName, Packets};
pub use limit::{Limit, Whose};
use message::{Batch, Listed};
pub use monitor::RulesetMonitor;
pub use ports::{Gate, PortAt, PortForward, PortProtocol, Ports};

/// Name of the table that [`Netfilter::masquerade`] writes, of family `inet`.
pub const TABLE: &str = "podnet";
/// Where packets leave the node.
const POSTROUTING: &str = "postrouting";
/// Chain with the rules of packets from a masqueraded source.
const LEAVING: &str = "leaving";
/// Where packets arrive, before they are routed.
const PREROUTING: &str = "prerouting";
/// Where packets of the namespace itself start.
const OUTPUT: &str = "output";
/// Chain with the ports that lead elsewhere.
const PORTS: &str = "ports";
/// Where packets reach the namespace itself.
const INPUT: &str = "input";
/// Where packets pass it.
const FORWARD: &str = "forward";
/// Where packets leave it, with their translated destinations.
const LEAVE: &str = "leave";
/// Longest wait for an answer.
///
/// The kernel answers before `send` returns; loading its modules for the first time takes longer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// A listing comes in datagrams of at most this size (`netlink_dump`).
const RECEIVE_BUFFER: usize = 32 * 1024;

/// Groups, which are never masqueraded (RFC 5771, RFC 4291 section 2.7).
const GROUPS: [Cidr; 2] = [
    Cidr(IpAddr::V4(std::net::Ipv4Addr::new(224, 0, 0, 0)), 4),
    Cidr(
        IpAddr::V6(std::net::Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)),
        8,
    ),
];

/// Loopback addresses, of which no port leads elsewhere.
///
/// From RFC 1122 section 3.2.1.3 and RFC 4291 section 2.5.3.
const LOOPBACK: [Cidr; 2] = [
    Cidr(IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 0)), 8),
    Cidr(IpAddr::V6(std::net::Ipv6Addr::LOCALHOST), 128),
];

/// An address and how many of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cidr(IpAddr, u8);

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0, self.1)
    }
}

/// Sources that are masqueraded, and destinations that are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Masquerade {
    /// Packets from these prefixes (address, bits) get an address of the node,
    pub from: Vec<(IpAddr, u8)>,
    /// unless they go to one of these, or to a group;
    pub inside: Vec<(IpAddr, u8)>,
    /// packets to one of these ports get this address.
    pub fixed: Vec<(PortAt, IpAddr)>,
}

/// All that a table says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruleset {
    /// Its name, of family `inet`.
    pub table: &'static str,
    /// Its masquerading, if any.
    pub masquerade: Option<Masquerade>,
    /// Its ports that lead elsewhere, if any; not with masquerading in one table.
    pub ports: Option<Ports>,
    /// Which connections it does not let begin; before guards.
    pub limits: Vec<Limit>,
    /// Packets that it stops; in this order.
    pub guards: Vec<Guard>,
    /// Guards look at packets before any other filter does.
    pub early: bool,
}

/// One rule of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    /// From there: on to [`LEAVING`].
    From(Cidr),
    /// To there: as it is.
    To(Cidr),
    /// To there: with this address.
    As(PortAt, IpAddr),
    /// With an address of the node.
    Out,
    /// To an address of the namespace itself: on to [`PORTS`], from this chain.
    ToOwn(&'static str),
    /// In by this link: on to [`PORTS`].
    ToPorts(LinkName),
    /// To a loopback address: as it is.
    NotLoopback(Cidr),
    /// Leads elsewhere.
    Forward(PortForward),
    /// Of the namespace itself, out by these links: with this source.
    FromOwn(LinkName, IpAddr),
    /// Begins no connection more.
    Limit(Limit),
    /// Stops, or not.
    Guard(Guard),
}

impl Rule {
    const fn chain(&self) -> &'static str {
        match self {
            Self::From(_) | Self::FromOwn(..) => POSTROUTING,
            Self::To(_) | Self::As(..) | Self::Out => LEAVING,
            Self::ToOwn(chain) => chain,
            Self::ToPorts(_) => PREROUTING,
            Self::NotLoopback(_) | Self::Forward(_) => PORTS,
            Self::Limit(limit) => chain_of(limit.bound),
            Self::Guard(guard) => chain_of(guard.bound),
        }
    }
}

const fn chain_of(bound: Bound) -> &'static str {
    match bound {
        Bound::Here => INPUT,
        Bound::Elsewhere => FORWARD,
        Bound::Leaving => LEAVE,
    }
}

/// Outcome of a write of a table, the lesser change first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableWrite {
    /// The table said it already.
    Unneeded,
    /// The table said something else.
    Replaced,
    /// There was no table.
    Made,
}

impl TableWrite {
    /// True when the table was written.
    pub fn is_change(self) -> bool {
        self != Self::Unneeded
    }
}

/// The comment of the rule.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::From(prefix) => write!(f, "pods {prefix}"),
            Self::To(prefix) | Self::NotLoopback(prefix) => write!(f, "not to {prefix}"),
            Self::As(port, source) => write!(f, "to {port} from {source}"),
            Self::Out => f.write_str("with an address of the node"),
            Self::ToOwn(_) => f.write_str("to addresses of the node"),
            Self::ToPorts(link) => write!(f, "in by {link}"),
            Self::Forward(forward) => forward.fmt(f),
            Self::FromOwn(links, source) => write!(f, "of the node out by {links} from {source}"),
            Self::Limit(limit) => limit.fmt(f),
            Self::Guard(guard) => guard.fmt(f),
        }
    }
}

impl Masquerade {
    fn rules(&self) -> Vec<Rule> {
        let inside = self.inside.iter().map(|(ip, length)| Cidr(*ip, *length));
        let from = self.from.iter().map(|(ip, length)| Cidr(*ip, *length));
        let fixed = self.fixed.iter();
        let fixed = fixed.map(|(port, source)| Rule::As(*port, *source));
        let inside = inside.chain(GROUPS).map(Rule::To);
        let leaving = fixed.chain(inside).chain([Rule::Out]);
        leaving.chain(from.map(Rule::From)).collect()
    }
}

impl Ports {
    fn rules(&self) -> Vec<Rule> {
        let mut rules = match &self.gate {
            Gate::Own { links, v4, v6 } => {
                let own = [PREROUTING, OUTPUT].map(Rule::ToOwn).into_iter();
                let sources = [IpAddr::V4(*v4), IpAddr::V6(*v6)].into_iter();
                let sources = sources.map(|source| Rule::FromOwn(links.clone(), source));
                let loopback = LOOPBACK.into_iter().map(Rule::NotLoopback);
                own.chain(sources).chain(loopback).collect()
            }
            Gate::Link(link) => vec![Rule::ToPorts(link.clone())],
        };
        rules.extend(self.forwards.iter().cloned().map(Rule::Forward));
        rules
    }
}

impl Ruleset {
    fn rules(&self) -> Vec<Rule> {
        let masquerade = self.masquerade.as_ref();
        let mut rules = masquerade.map_or_else(Vec::new, Masquerade::rules);
        rules.extend(self.ports.iter().flat_map(Ports::rules));
        rules.extend(self.limits.iter().cloned().map(Rule::Limit));
        rules.extend(self.guards.iter().cloned().map(Rule::Guard));
        rules
    }
}

impl From<&Masquerade> for Ruleset {
    fn from(masquerade: &Masquerade) -> Self {
        Self {
            table: TABLE,
            masquerade: Some(masquerade.clone()),
            ports: None,
            limits: Vec::new(),
            guards: Vec::new(),
            early: false,
        }
    }
}

/// Comments of rules in their order, by chain.
///
/// The order in which chains are listed is the kernel's business.
type Listing = BTreeMap<String, Vec<String>>;

/// A socket of nf_tables in the namespace of the thread that opened it.
#[derive(Debug)]
pub struct Netfilter {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netfilter {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Error::OpenSocket`], also where the kernel has no netfilter.
    pub fn open() -> Result<Self, Error> {
        let open = || -> io::Result<Socket> {
            let socket = Socket::new(NETLINK_NETFILTER)?;
            socket.set_ext_ack(true)?;
            socket.set_cap_ack(true)?;
            set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
            Ok(socket)
        };
        Ok(Self {
            socket: open().map_err(|source| Error::OpenSocket { source })?,
            sequence: 0,
            buffer: Vec::with_capacity(RECEIVE_BUFFER),
        })
    }

    /// Replaces the table's content in one step: no packet sees a part of it.
    ///
    /// # Errors
    /// [`Error::Netfilter`]; nothing was changed.
    pub fn masquerade(&mut self, wanted: &Masquerade) -> Result<TableWrite, Error> {
        self.write(&wanted.into())
    }

    /// Writes a table unless it says this already.
    ///
    /// # Errors
    /// [`Error::Netfilter`], [`Error::DumpInterrupted`]; nothing was changed.
    pub fn ensure(&mut self, wanted: &Ruleset) -> Result<TableWrite, Error> {
        if self.says(wanted)? {
            return Ok(TableWrite::Unneeded);
        }
        self.write(wanted)
    }

    /// Replaces a table's content in one step: no packet sees a part of it.
    ///
    /// # Errors
    /// [`Error::Netfilter`]; nothing was changed.
    pub fn write(&mut self, wanted: &Ruleset) -> Result<TableWrite, Error> {
        // The kernel tells whether there was a table; a look before the write would be stale.
        match self.write_over(true, wanted) {
            Ok(()) => Ok(TableWrite::Replaced),
            Err(Error::Netfilter { source, .. }) if source.errno() == Errno::NOENT => {
                self.write_over(false, wanted)?;
                Ok(TableWrite::Made)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes a table, in place of the present one where there `is_one`.
    ///
    /// # Errors
    /// [`Error::Netfilter`], of `ENOENT` when there is none.
    fn write_over(&mut self, is_one: bool, wanted: &Ruleset) -> Result<(), Error> {
        let mut batch = Batch::new(self.sequence, wanted.table);
        if is_one {
            batch.remove_table();
        }
        batch.add_table();
        if wanted.masquerade.is_some() {
            batch.add_chain(LEAVING);
            batch.add_postrouting_chain(POSTROUTING);
        }
        if let Some(ports) = &wanted.ports {
            batch.add_chain(PORTS);
            batch.add_prerouting_chain(PREROUTING);
            if let Gate::Own { .. } = ports.gate {
                batch.add_output_chain(OUTPUT);
                batch.add_postrouting_chain(POSTROUTING);
            }
        }
        let mut sets = BTreeSet::new();
        for limit in &wanted.limits {
            // Limits of both directions have one.
            if sets.insert(limit.set()) {
                batch.add_set(limit);
            }
        }
        let is_leaving = |guard: &Guard| guard.bound == Bound::Leaving;
        if !wanted.guards.iter().all(is_leaving) {
            batch.add_filter_chain(INPUT, Bound::Here, wanted.early);
            batch.add_filter_chain(FORWARD, Bound::Elsewhere, wanted.early);
        }
        if wanted.guards.iter().any(is_leaving) {
            batch.add_filter_chain(LEAVE, Bound::Leaving, false);
        }
        for rule in wanted.rules() {
            batch.add_rule(&rule);
        }
        self.commit(batch, "write")
    }

    /// True when the table says this and nothing else.
    ///
    /// # Errors
    /// [`Error::Netfilter`], [`Error::DumpInterrupted`].
    pub fn is_masquerading(&mut self, wanted: &Masquerade) -> Result<bool, Error> {
        self.says(&wanted.into())
    }

    /// True when the table says this and nothing else.
    ///
    /// # Errors
    /// [`Error::Netfilter`], [`Error::DumpInterrupted`].
    pub fn says(&mut self, wanted: &Ruleset) -> Result<bool, Error> {
        let mut rules = Listing::new();
        for rule in wanted.rules() {
            let chain = rules.entry(rule.chain().to_owned()).or_default();
            chain.push(rule.to_string());
        }
        let mut there = Listing::new();
        for rule in self.list(wanted.table)? {
            there.entry(rule.chain).or_default().push(rule.comment);
        }
        Ok(there == rules)
    }

    /// Removes the table; false when there was none.
    ///
    /// # Errors
    /// [`Error::Netfilter`].
    pub fn remove(&mut self) -> Result<bool, Error> {
        self.remove_table(TABLE)
    }

    /// Removes a table of this name; false when there was none.
    ///
    /// # Errors
    /// [`Error::Netfilter`].
    pub fn remove_table(&mut self, table: &'static str) -> Result<bool, Error> {
        let mut batch = Batch::new(self.sequence, table);
        batch.remove_table();
        match self.commit(batch, "remove") {
            Ok(()) => Ok(true),
            Err(Error::Netfilter { source, .. }) if source.errno() == Errno::NOENT => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// True when there is a table with a rule in it.
    ///
    /// # Errors
    /// [`Error::Netfilter`], [`Error::DumpInterrupted`].
    pub fn is_there(&mut self) -> Result<bool, Error> {
        self.has(TABLE)
    }

    /// True when there is a table of this name with a rule in it.
    ///
    /// # Errors
    /// [`Error::Netfilter`], [`Error::DumpInterrupted`].
    pub fn has(&mut self, table: &'static str) -> Result<bool, Error> {
        Ok(!self.list(table)?.is_empty())
    }

    /// Returns the rules of a table that stop packets, and the packets of each.
    ///
    /// They are counted since the table was written.
    ///
    /// # Errors
    /// [`Error::Netfilter`], [`Error::DumpInterrupted`].
    pub fn stopped(&mut self, table: &'static str) -> Result<Vec<(String, u64)>, Error> {
        let rules = self.list(table)?.into_iter();
        let counted = rules.filter_map(|rule| Some((rule.comment, rule.packets?)));
        Ok(counted.collect())
    }

    fn list(&mut self, table: &'static str) -> Result<Vec<Listed>, Error> {
        for _ in 0..DUMP_ATTEMPTS {
            if let Some(rules) = self.list_once(table)? {
                return Ok(rules);
            }
        }
        Err(Error::DumpInterrupted {
            what: "rules",
            attempts: DUMP_ATTEMPTS,
        })
    }

    /// Lists the rules of a table; `None` when a program wrote to nf_tables meanwhile.
    fn list_once(&mut self, table: &'static str) -> Result<Option<Vec<Listed>>, Error> {
        let mut batch = Batch::new(self.sequence, table);
        let sequence = batch.list_rules();
        self.sequence = sequence;
        connection::send(&self.socket, &batch.into_bytes())?;
        let mut rules = Vec::new();
        let mut interrupted = false;
        loop {
            connection::receive(&self.socket, &mut self.buffer)?;
            for raw in wire::messages(&self.buffer).filter(|raw| raw.sequence == sequence) {
                interrupted |= raw.flags & wire::NLM_F_DUMP_INTR != 0;
                match raw.kind {
                    wire::NLMSG_DONE | wire::NLMSG_ERROR => {
                        let outcome = wire::outcome(raw).ok_or(Error::Malformed {
                            what: "end of dump",
                        })?;
                        let answer = outcome.map(|()| (!interrupted).then_some(rules));
                        return answer.map_err(|source| Error::Netfilter {
                            step: "list",
                            table,
                            source,
                        });
                    }
                    _ => {
                        rules.extend(message::parse_rule(raw.body, table));
                    }
                }
            }
        }
    }

    fn commit(&mut self, mut batch: Batch, step: &'static str) -> Result<(), Error> {
        let table = batch.table();
        let before = self.sequence;
        let last = batch.close();
        self.sequence = last.wrapping_add(1);
        connection::send(&self.socket, &batch.into_bytes())?;
        // A batch that is refused has a refusal for each of its messages, of which the first ends this: the
        // others are still in the socket when the next batch is sent.
        let numbers = 1..=self.sequence.wrapping_sub(before);
        let is_ours = |sequence: u32| numbers.contains(&sequence.wrapping_sub(before));
        loop {
            connection::receive(&self.socket, &mut self.buffer)?;
            // Refusals come before the acknowledgement, and nothing is carried out then.
            let answers = wire::messages(&self.buffer)
                .filter(|raw| raw.kind == wire::NLMSG_ERROR && is_ours(raw.sequence));
            for raw in answers {
                match wire::outcome(raw) {
                    Some(Ok(())) if raw.sequence == last => return Ok(()),
                    Some(Ok(())) => {}
                    Some(Err(source)) => {
                        return Err(Error::Netfilter {
                            step,
                            table,
                            source,
                        });
                    }
                    None => {
                        return Err(Error::Malformed {
                            what: "acknowledgement",
                        });
                    }
                }
            }
        }
    }
}
