//! Encode the messages of nf_tables (linux/netfilter/nf_tables.h, nfnetlink.h).
//!
//! Numbers inside attributes are big-endian, lengths and types of attributes are in host order.

use super::expression::{self, masquerade, number, text, verdict};
use super::guard::Bound;
use super::limit::Limit;
use super::{LEAVING, PORTS, Rule};
use crate::wire::{self, attribute, nested};

// linux/netlink.h
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_CREATE: u16 = 0x400;
const NLM_F_APPEND: u16 = 0x800;
/// `sizeof(struct nlmsghdr)`.
const HEADER: usize = 16;
/// `sizeof(struct nfgenmsg)`.
const NFGENMSG: usize = 4;
// linux/netfilter/nfnetlink.h
const NFNL_SUBSYS_NFTABLES: u8 = 10;
const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
const NFNL_MSG_BATCH_END: u16 = 0x11;
// linux/netfilter.h
const NFPROTO_UNSPEC: u8 = 0;
const NFPROTO_INET: u8 = 1;
const NF_INET_PRE_ROUTING: u32 = 0;
const NF_INET_LOCAL_IN: u32 = 1;
const NF_INET_FORWARD: u32 = 2;
const NF_INET_LOCAL_OUT: u32 = 3;
const NF_INET_POST_ROUTING: u32 = 4;
/// `NF_IP_PRI_NAT_SRC` of linux/netfilter_ipv4.h.
const PRIORITY: i32 = 100;
/// One behind `NF_IP_PRI_NAT_DST`.
///
/// There other programs of a node translate destinations. The first that translates a connection is the only one. A port that one of theirs leads elsewhere, as a
/// NodePort is, stays theirs, in whatever order tables were made.
const DESTINATION: i32 = -99;
/// `NF_IP_PRI_FILTER`.
const FILTER: i32 = 0;
/// `NF_IP_PRI_RAW`.
const RAW: i32 = -300;
// linux/netfilter/nf_tables.h
const NFT_MSG_NEWTABLE: u8 = 0;
const NFT_MSG_DELTABLE: u8 = 2;
const NFT_MSG_NEWCHAIN: u8 = 3;
const NFT_MSG_NEWRULE: u8 = 6;
const NFT_MSG_GETRULE: u8 = 7;
const NFT_MSG_DELRULE: u8 = 8;
const NFT_MSG_NEWSET: u8 = 9;
const NFTA_SET_TABLE: u16 = 1;
const NFTA_SET_NAME: u16 = 2;
const NFTA_SET_FLAGS: u16 = 3;
const NFTA_SET_KEY_TYPE: u16 = 4;
const NFTA_SET_KEY_LEN: u16 = 5;
const NFTA_SET_DESC: u16 = 9;
const NFTA_SET_ID: u16 = 10;
const NFTA_SET_DESC_SIZE: u16 = 1;
/// Rules put into it what they meet.
const NFT_SET_EVAL: u32 = 0x20;
/// Lists that a set may have; the kernel makes room for as many pointers at once.
const MAX_LISTS: u32 = 65_536;
const NFTA_TABLE_NAME: u16 = 1;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;
const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_RULE_USERDATA: u16 = 7;
// linux/netfilter/nf_tables.h
const NFT_GOTO: i32 = -4;
const NFT_RETURN: i32 = -5;
/// Comment of a rule, as the library of nf_tables has it: type, length, text.
const UDATA_COMMENT: u8 = 0;

/// Messages that are carried out in their order, together or not at all.
#[derive(Debug)]
pub(super) struct Batch {
    table: &'static str,
    bytes: Vec<u8>,
    sequence: u32,
    /// Where the last message starts.
    last: usize,
}

impl Batch {
    /// None about this table yet; their numbers follow `sequence`.
    pub(super) const fn new(sequence: u32, table: &'static str) -> Self {
        Self {
            table,
            bytes: Vec::new(),
            sequence,
            last: 0,
        }
    }

    pub(super) const fn table(&self) -> &'static str {
        self.table
    }

    pub(super) fn add_table(&mut self) {
        let attributes = text(NFTA_TABLE_NAME, self.table);
        self.change(NFT_MSG_NEWTABLE, NLM_F_CREATE, &attributes);
    }

    pub(super) fn remove_table(&mut self) {
        let attributes = text(NFTA_TABLE_NAME, self.table);
        self.change(NFT_MSG_DELTABLE, 0, &attributes);
    }

    pub(super) fn add_chain(&mut self, name: &str) {
        let attributes = [
            text(NFTA_CHAIN_TABLE, self.table),
            text(NFTA_CHAIN_NAME, name),
        ];
        self.change(NFT_MSG_NEWCHAIN, NLM_F_CREATE, &attributes.concat());
    }

    pub(super) fn add_postrouting_chain(&mut self, name: &str) {
        self.add_base_chain(name, "nat", NF_INET_POST_ROUTING, PRIORITY);
    }

    /// Behind translated destinations of others, as packets arrive.
    pub(super) fn add_prerouting_chain(&mut self, name: &str) {
        self.add_base_chain(name, "nat", NF_INET_PRE_ROUTING, DESTINATION);
    }

    /// The same for packets of the namespace itself.
    pub(super) fn add_output_chain(&mut self, name: &str) {
        self.add_base_chain(name, "nat", NF_INET_LOCAL_OUT, DESTINATION);
    }

    /// At the priority of filters, or before connection tracking.
    pub(super) fn add_filter_chain(&mut self, name: &str, bound: Bound, early: bool) {
        let hook = match bound {
            Bound::Here => NF_INET_LOCAL_IN,
            Bound::Elsewhere => NF_INET_FORWARD,
            Bound::Leaving => NF_INET_POST_ROUTING,
        };
        self.add_base_chain(name, "filter", hook, if early { RAW } else { FILTER });
    }

    fn add_base_chain(&mut self, name: &str, kind: &str, hook: u32, priority: i32) {
        let hook = [
            number(NFTA_HOOK_HOOKNUM, hook),
            attribute(NFTA_HOOK_PRIORITY, &priority.to_be_bytes()),
        ];
        let attributes = [
            text(NFTA_CHAIN_TABLE, self.table),
            text(NFTA_CHAIN_NAME, name),
            nested(NFTA_CHAIN_HOOK, &hook.concat()),
            text(NFTA_CHAIN_TYPE, kind),
        ];
        self.change(NFT_MSG_NEWCHAIN, NLM_F_CREATE, &attributes.concat());
    }

    /// The lists of a limit, by whose they are and the hash of the connection.
    pub(super) fn add_set(&mut self, limit: &Limit) {
        let (key_type, key_length) = expression::key_of(limit.whose);
        let description = number(NFTA_SET_DESC_SIZE, MAX_LISTS);
        let attributes = [
            text(NFTA_SET_TABLE, self.table),
            text(NFTA_SET_NAME, limit.set()),
            number(NFTA_SET_FLAGS, NFT_SET_EVAL),
            number(NFTA_SET_KEY_TYPE, key_type),
            number(NFTA_SET_KEY_LEN, key_length),
            nested(NFTA_SET_DESC, &description),
            number(NFTA_SET_ID, self.sequence),
        ];
        self.change(NFT_MSG_NEWSET, NLM_F_CREATE, &attributes.concat());
    }

    pub(super) fn add_rule(&mut self, rule: &Rule) {
        let expressions = match rule {
            Rule::From(prefix) => [
                expression::is_in(*prefix, true),
                verdict(NFT_GOTO, Some(LEAVING)),
            ]
            .concat(),
            Rule::To(prefix) | Rule::NotLoopback(prefix) => {
                [expression::is_in(*prefix, false), verdict(NFT_RETURN, None)].concat()
            }
            Rule::As(port, source) => expression::of_source(port, *source),
            Rule::Out => masquerade(),
            Rule::ToOwn(_) => [expression::to_own(), verdict(NFT_GOTO, Some(PORTS))].concat(),
            Rule::ToPorts(link) => {
                [expression::in_by(link), verdict(NFT_GOTO, Some(PORTS))].concat()
            }
            Rule::Forward(forward) => expression::of_forward(forward),
            Rule::FromOwn(links, source) => expression::from_own(links, *source),
            Rule::Limit(limit) => expression::of_limit(limit),
            Rule::Guard(guard) => expression::of_guard(guard),
        };
        let attributes = [
            text(NFTA_RULE_TABLE, self.table),
            text(NFTA_RULE_CHAIN, rule.chain()),
            nested(NFTA_RULE_EXPRESSIONS, &expressions),
            attribute(NFTA_RULE_USERDATA, &comment(&rule.to_string())),
        ];
        self.change(
            NFT_MSG_NEWRULE,
            NLM_F_CREATE | NLM_F_APPEND,
            &attributes.concat(),
        );
    }

    /// Asks for all rules of the table; returns the number of the answers.
    ///
    /// For a batch of nothing else, and without an end.
    pub(super) fn list_rules(&mut self) -> u32 {
        let attributes = text(NFTA_RULE_TABLE, self.table);
        let kind = kind(NFT_MSG_GETRULE);
        self.message(kind, NLM_F_DUMP, NFPROTO_INET, 0, &attributes);
        self.sequence
    }

    /// Ends the batch; returns the number of the message that is acknowledged.
    ///
    /// That is done when all are carried out.
    pub(super) fn close(&mut self) -> u32 {
        let acknowledged = self.sequence;
        let at = self.last + 6;
        let flags = wire::u16_at(&self.bytes, at).unwrap_or(NLM_F_REQUEST) | NLM_F_ACK;
        if let Some(place) = self.bytes.get_mut(at..at + 2) {
            place.copy_from_slice(&flags.to_ne_bytes());
        }
        self.bracket(NFNL_MSG_BATCH_END);
        acknowledged
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn change(&mut self, message: u8, flags: u16, attributes: &[u8]) {
        if self.bytes.is_empty() {
            self.bracket(NFNL_MSG_BATCH_BEGIN);
        }
        self.message(kind(message), flags, NFPROTO_INET, 0, attributes);
    }

    /// The begin or the end; what is inside is for nf_tables.
    fn bracket(&mut self, kind: u16) {
        let subsystem = u16::from(NFNL_SUBSYS_NFTABLES);
        self.message(kind, 0, NFPROTO_UNSPEC, subsystem, &[]);
    }

    fn message(&mut self, kind: u16, flags: u16, family: u8, resource: u16, attributes: &[u8]) {
        self.sequence = self.sequence.wrapping_add(1);
        self.last = self.bytes.len();
        let length = u32::try_from(HEADER + NFGENMSG + attributes.len()).unwrap_or(u32::MAX);
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend((flags | NLM_F_REQUEST).to_ne_bytes());
        self.bytes.extend(self.sequence.to_ne_bytes());
        self.bytes.extend(0_u32.to_ne_bytes());
        // struct nfgenmsg: family, version, resource id.
        self.bytes.extend([family, 0]);
        self.bytes.extend(resource.to_be_bytes());
        // Attributes are padded, so the next message starts aligned.
        self.bytes.extend(attributes);
    }
}

/// The message of nf_tables with this number.
const fn kind(message: u8) -> u16 {
    u16::from_be_bytes([NFNL_SUBSYS_NFTABLES, message])
}

fn comment(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len() + 1).unwrap_or(u8::MAX);
    [&[UDATA_COMMENT, length], text.as_bytes(), &[0]].concat()
}

/// Returns the table of an announcement about it or its chains and rules.
///
/// `None` for anything else.
pub(super) fn table_of(message: wire::Raw<'_>) -> Option<String> {
    let [message_type, subsystem] = message.kind.to_le_bytes();
    let is_ours = subsystem == NFNL_SUBSYS_NFTABLES && message_type <= NFT_MSG_DELRULE;
    let attributes = message.body.get(NFGENMSG..).filter(|_| is_ours)?;
    // `NFTA_TABLE_NAME`, `NFTA_CHAIN_TABLE` and `NFTA_RULE_TABLE` have one number.
    let (_, name) = wire::attributes(attributes).find(|(kind, _)| *kind == NFTA_TABLE_NAME)?;
    wire::string(name)
}

/// A rule of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) chain: String,
    pub(super) comment: String,
    /// How many packets it was carried out for, where it counts them.
    pub(super) packets: Option<u64>,
}

/// A rule of our table in a listing, `None` for anything else.
pub(super) fn parse_rule(body: &[u8], ours: &str) -> Option<Listed> {
    let (mut table, mut chain, mut comment, mut packets) = (None, None, None, None);
    for (kind, value) in wire::attributes(body.get(NFGENMSG..)?) {
        match kind {
            NFTA_RULE_TABLE => table = wire::string(value),
            NFTA_RULE_CHAIN => chain = wire::string(value),
            NFTA_RULE_EXPRESSIONS => packets = expression::counted(value),
            NFTA_RULE_USERDATA if value.first() == Some(&UDATA_COMMENT) => {
                comment = value.get(2..).and_then(wire::string);
            }
            _ => {}
        }
    }
    // Somebody else's rule in our table has to show, with or without a comment.
    (table.as_deref() == Some(ours)).then_some(Listed {
        chain: chain?,
        comment: comment.unwrap_or_default(),
        packets,
    })
}

#[cfg(test)]
mod tests;
