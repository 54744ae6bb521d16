//! Rules that lead the host's own packets to a routing table.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;

use crate::connection::{Connection, Request};
use crate::error::Error;
use crate::wire;

/// Families that rules are of.
const FAMILIES: [AddressFamily; 2] = [AddressFamily::Inet, AddressFamily::Inet6];
/// `sizeof(struct fib_rule_hdr)`, linux/fib_rules.h.
const FIB_RULE_HDR: usize = 12;
// linux/fib_rules.h
const FRA_PRIORITY: u16 = 6;
const FRA_TABLE: u16 = 15;
/// `RTM_NEWRULE`, linux/rtnetlink.h.
const RTM_NEWRULE: u16 = 32;
/// The link that packets begin by which begin at the host (ip-rule(8)).
const LOOPBACK: &str = "lo";

/// A routing table for packets that begin at the host, of both families.
///
/// What the host forwards is not routed by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnTable {
    /// Its number.
    pub table: u32,
    /// Priority of the rule, lower first; that of the main table is 32766.
    pub priority: u32,
    /// Maker of the rule (`FRA_PROTOCOL`).
    pub protocol: u8,
}

impl OwnTable {
    /// Reports whether an `RTM_NEWRULE` is this one's.
    fn is(&self, body: &[u8]) -> bool {
        let attributes = body.get(FIB_RULE_HDR..).unwrap_or_default();
        let number = |wanted: u16| {
            let mut found = wire::attributes(attributes);
            let found = found.find(|(kind, _)| *kind == wanted);
            found.and_then(|(_, value)| wire::u32_at(value, 0))
        };
        number(FRA_TABLE) == Some(self.table) && number(FRA_PRIORITY) == Some(self.priority)
    }

    fn message(&self, family: AddressFamily) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = family;
        message.header.action = RuleAction::ToTable;
        message.attributes = vec![
            RuleAttribute::Iifname(LOOPBACK.to_owned()),
            RuleAttribute::Table(self.table),
            RuleAttribute::Priority(self.priority),
            RuleAttribute::Protocol(RouteProtocol::from(self.protocol)),
        ];
        message
    }
}

impl Connection {
    /// Leads packets that begin at this host to a table, if no rule does yet.
    ///
    /// # Errors
    /// [`Error::Rule`].
    pub fn lead_own_packets(&mut self, to: &OwnTable) -> Result<(), Error> {
        for family in FAMILIES {
            let message = RouteNetlinkMessage::NewRule(to.message(family));
            let request = Request::new(message, NLM_F_CREATE | NLM_F_EXCL);
            self.change_rule(to.table, request, Errno::EXIST)?;
        }
        Ok(())
    }

    /// Reports whether a rule leads them to a table.
    ///
    /// # Errors
    /// [`Error::List`], [`Error::DumpInterrupted`].
    pub fn leads_own_packets(&mut self, to: &OwnTable) -> Result<bool, Error> {
        let mut any = false;
        for family in FAMILIES {
            let mut message = RuleMessage::default();
            message.header.family = family;
            let answer = match self.dump("rules", &RouteNetlinkMessage::GetRule(message)) {
                Ok(answer) => answer,
                // A kernel without that family.
                Err(error) if error.errno() == Some(Errno::AFNOSUPPORT) => continue,
                Err(error) => return Err(error),
            };
            let mut rules = answer.iter().filter(|listed| listed.kind == RTM_NEWRULE);
            any |= rules.any(|listed| to.is(&listed.body));
        }
        Ok(any)
    }

    /// Leads them there no more; returns whether a rule did.
    ///
    /// # Errors
    /// [`Error::Rule`].
    pub fn release_own_packets(&mut self, from: &OwnTable) -> Result<bool, Error> {
        let mut any = false;
        for family in FAMILIES {
            let message = RouteNetlinkMessage::DelRule(from.message(family));
            any |= self.change_rule(from.table, Request::new(message, 0), Errno::NOENT)?;
        }
        Ok(any)
    }

    /// Changes the rule for a table; `done` is the answer where it is so already.
    ///
    /// A kernel without the family has no rule of it. Returns whether something changed.
    fn change_rule(&mut self, table: u32, change: Request, done: Errno) -> Result<bool, Error> {
        match self.ask(change)? {
            Ok(_) => Ok(true),
            Err(refusal) if [done, Errno::AFNOSUPPORT].contains(&refusal.errno()) => Ok(false),
            Err(source) => Err(Error::Rule { table, source }),
        }
    }
}
