//! The messages of nf_tables, byte by byte (linux/netfilter/nf_tables.h, nfnetlink.h). Numbers inside
//! attributes are big-endian, lengths and types of attributes are in host order.

use std::net::IpAddr;

use super::guard::{Bound, Guard, LinkName, Packets};
use super::{Cidr, LEAVING, Rule};
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
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;
const NF_INET_LOCAL_IN: u32 = 1;
const NF_INET_FORWARD: u32 = 2;
const NF_INET_POST_ROUTING: u32 = 4;
/// `NF_IP_PRI_NAT_SRC` of linux/netfilter_ipv4.h.
const PRIORITY: u32 = 100;
// linux/netfilter/nf_tables.h
const NFT_MSG_NEWTABLE: u8 = 0;
const NFT_MSG_DELTABLE: u8 = 2;
const NFT_MSG_NEWCHAIN: u8 = 3;
const NFT_MSG_NEWRULE: u8 = 6;
const NFT_MSG_GETRULE: u8 = 7;
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
const NFTA_LIST_ELEM: u16 = 1;
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_META_DREG: u16 = 1;
const NFTA_META_KEY: u16 = 2;
const NFT_META_IIFNAME: u32 = 6;
const NFT_META_OIFNAME: u32 = 7;
const NFT_META_NFPROTO: u32 = 15;
const NFTA_CT_DREG: u16 = 1;
const NFTA_CT_KEY: u16 = 2;
const NFT_CT_STATE: u32 = 0;
const NFT_CT_STATUS: u32 = 2;
/// `NF_CT_STATE_BIT` of established and of related (linux/netfilter/nf_conntrack_common.h).
const KNOWN: u32 = 1 << 1 | 1 << 2;
/// And of new.
const TRACKED: u32 = KNOWN | 1 << 3;
/// `IPS_DST_NAT` of linux/netfilter/nf_conntrack_common.h.
const TRANSLATED: u32 = 1 << 5;
const NFTA_PAYLOAD_DREG: u16 = 1;
const NFTA_PAYLOAD_BASE: u16 = 2;
const NFTA_PAYLOAD_OFFSET: u16 = 3;
const NFTA_PAYLOAD_LEN: u16 = 4;
const NFT_PAYLOAD_NETWORK_HEADER: u32 = 1;
const NFTA_BITWISE_SREG: u16 = 1;
const NFTA_BITWISE_DREG: u16 = 2;
const NFTA_BITWISE_LEN: u16 = 3;
const NFTA_BITWISE_MASK: u16 = 4;
const NFTA_BITWISE_XOR: u16 = 5;
const NFTA_CMP_SREG: u16 = 1;
const NFTA_CMP_OP: u16 = 2;
const NFTA_CMP_DATA: u16 = 3;
const NFT_CMP_EQ: u32 = 0;
const NFT_CMP_NEQ: u32 = 1;
const NFTA_DATA_VALUE: u16 = 1;
const NFTA_DATA_VERDICT: u16 = 2;
const NFTA_VERDICT_CODE: u16 = 1;
const NFTA_VERDICT_CHAIN: u16 = 2;
const NFTA_IMMEDIATE_DREG: u16 = 1;
const NFTA_IMMEDIATE_DATA: u16 = 2;
const NFT_REG_VERDICT: u32 = 0;
const NFT_REG_1: u32 = 1;
// linux/netfilter.h
const NF_DROP: i32 = 0;
const NF_ACCEPT: i32 = 1;
const NFT_GOTO: i32 = -4;
const NFT_RETURN: i32 = -5;
const NFTA_MASQ_FLAGS: u16 = 1;
/// `NF_NAT_RANGE_PROTO_RANDOM_FULLY` of linux/netfilter/nf_nat.h: two flows that start at once do not
/// choose the same port.
const RANDOM_FULLY: u32 = 1 << 4;
/// Comment of a rule, in the notation of the library of nf_tables: type, length, text.
const UDATA_COMMENT: u8 = 0;

/// Messages that are carried out together or not at all, in the order in which they are added.
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

    /// At the priority of filters, 0.
    pub(super) fn add_filter_chain(&mut self, name: &str, bound: Bound) {
        let hook = match bound {
            Bound::Here => NF_INET_LOCAL_IN,
            Bound::Elsewhere => NF_INET_FORWARD,
        };
        self.add_base_chain(name, "filter", hook, 0);
    }

    fn add_base_chain(&mut self, name: &str, kind: &str, hook: u32, priority: u32) {
        let hook = [
            number(NFTA_HOOK_HOOKNUM, hook),
            number(NFTA_HOOK_PRIORITY, priority),
        ];
        let attributes = [
            text(NFTA_CHAIN_TABLE, self.table),
            text(NFTA_CHAIN_NAME, name),
            nested(NFTA_CHAIN_HOOK, &hook.concat()),
            text(NFTA_CHAIN_TYPE, kind),
        ];
        self.change(NFT_MSG_NEWCHAIN, NLM_F_CREATE, &attributes.concat());
    }

    pub(super) fn add_rule(&mut self, rule: &Rule) {
        let expressions = match rule {
            Rule::From(prefix) => [is_in(*prefix, true), verdict(NFT_GOTO, Some(LEAVING))].concat(),
            Rule::To(prefix) => [is_in(*prefix, false), verdict(NFT_RETURN, None)].concat(),
            Rule::Out => expression("masq", &number(NFTA_MASQ_FLAGS, RANDOM_FULLY)),
            Rule::Guard(guard) => guard_expressions(guard),
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

    /// Asks for all rules of the table; for a batch of nothing else, and without an end. The number
    /// of the answers.
    pub(super) fn list_rules(&mut self) -> u32 {
        let attributes = text(NFTA_RULE_TABLE, self.table);
        let kind = kind(NFT_MSG_GETRULE);
        self.message(kind, NLM_F_DUMP, NFPROTO_INET, 0, &attributes);
        self.sequence
    }

    /// Ends the batch. The number of the message that is acknowledged when all are carried out.
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

fn text(kind: u16, text: &str) -> Vec<u8> {
    attribute(kind, &[text.as_bytes(), &[0]].concat())
}

fn number(kind: u16, number: u32) -> Vec<u8> {
    attribute(kind, &number.to_be_bytes())
}

fn expression(name: &str, data: &[u8]) -> Vec<u8> {
    let parts = [text(NFTA_EXPR_NAME, name), nested(NFTA_EXPR_DATA, data)];
    nested(NFTA_LIST_ELEM, &parts.concat())
}

fn guard_expressions(guard: &Guard) -> Vec<u8> {
    let mut expressions = Vec::new();
    for packets in &guard.packets {
        expressions.extend(match packets {
            Packets::InBy(link) => is_link(NFT_META_IIFNAME, link),
            Packets::OutBy(link) => is_link(NFT_META_OIFNAME, link),
            Packets::OfNoConnection => has_bits(NFT_CT_STATE, KNOWN, NFT_CMP_EQ),
            Packets::Untracked => has_bits(NFT_CT_STATE, TRACKED, NFT_CMP_EQ),
            Packets::ToTranslated => has_bits(NFT_CT_STATUS, TRANSLATED, NFT_CMP_NEQ),
            Packets::To((ip, length)) => is_in(Cidr(*ip, *length), false),
            Packets::NotFrom((ip, length)) => compare_prefix(Cidr(*ip, *length), true, NFT_CMP_NEQ),
        });
    }
    let code = if guard.pass { NF_ACCEPT } else { NF_DROP };
    expressions.extend(verdict(code, None));
    expressions
}

/// Goes on when the link is one of this name.
fn is_link(key: u32, link: &LinkName) -> Vec<u8> {
    let load = [
        number(NFTA_META_DREG, NFT_REG_1),
        number(NFTA_META_KEY, key),
    ];
    let name = match link {
        // Zeros included, as many as the kernel has (IFNAMSIZ).
        LinkName::Is(name) => {
            let mut bytes = name.as_bytes().to_vec();
            bytes.resize(16, 0);
            bytes
        }
        LinkName::Starts(prefix) => prefix.as_bytes().to_vec(),
    };
    [
        expression("meta", &load.concat()),
        expression("cmp", &compared(NFT_CMP_EQ, &name)),
    ]
    .concat()
}

/// Goes on when what connection tracking knows has none of these bits (equal), or any (not equal).
fn has_bits(key: u32, bits: u32, how: u32) -> Vec<u8> {
    let load = [number(NFTA_CT_DREG, NFT_REG_1), number(NFTA_CT_KEY, key)];
    let cut = [
        number(NFTA_BITWISE_SREG, NFT_REG_1),
        number(NFTA_BITWISE_DREG, NFT_REG_1),
        number(NFTA_BITWISE_LEN, 4),
        // A register has a number in the order of the host.
        data(NFTA_BITWISE_MASK, &bits.to_ne_bytes()),
        data(NFTA_BITWISE_XOR, &[0; 4]),
    ];
    [
        expression("ct", &load.concat()),
        expression("bitwise", &cut.concat()),
        expression("cmp", &compared(how, &[0; 4])),
    ]
    .concat()
}

/// Goes on when the source or the destination is in the prefix.
fn is_in(prefix: Cidr, source: bool) -> Vec<u8> {
    compare_prefix(prefix, source, NFT_CMP_EQ)
}

/// Goes on when the family is that of the prefix, and source or destination is in it, or not.
fn compare_prefix(Cidr(ip, length): Cidr, source: bool, how: u32) -> Vec<u8> {
    // Where the address is: RFC 791 section 3.1, RFC 8200 section 3.
    let (family, offset, address) = match (ip, source) {
        (IpAddr::V4(ip), true) => (NFPROTO_IPV4, 12, ip.octets().to_vec()),
        (IpAddr::V4(ip), false) => (NFPROTO_IPV4, 16, ip.octets().to_vec()),
        (IpAddr::V6(ip), true) => (NFPROTO_IPV6, 8, ip.octets().to_vec()),
        (IpAddr::V6(ip), false) => (NFPROTO_IPV6, 24, ip.octets().to_vec()),
    };
    let width = u32::try_from(address.len()).unwrap_or(0);
    let load = [
        number(NFTA_PAYLOAD_DREG, NFT_REG_1),
        number(NFTA_PAYLOAD_BASE, NFT_PAYLOAD_NETWORK_HEADER),
        number(NFTA_PAYLOAD_OFFSET, offset),
        number(NFTA_PAYLOAD_LEN, width),
    ];
    let mask = mask(length, address.len());
    let cut = [
        number(NFTA_BITWISE_SREG, NFT_REG_1),
        number(NFTA_BITWISE_DREG, NFT_REG_1),
        number(NFTA_BITWISE_LEN, width),
        data(NFTA_BITWISE_MASK, &mask),
        data(NFTA_BITWISE_XOR, &vec![0; address.len()]),
    ];
    [
        expression("meta", &meta_nfproto()),
        expression("cmp", &equals(&[family])),
        expression("payload", &load.concat()),
        expression("bitwise", &cut.concat()),
        expression("cmp", &compared(how, &address)),
    ]
    .concat()
}

fn meta_nfproto() -> Vec<u8> {
    [
        number(NFTA_META_DREG, NFT_REG_1),
        number(NFTA_META_KEY, NFT_META_NFPROTO),
    ]
    .concat()
}

fn equals(value: &[u8]) -> Vec<u8> {
    compared(NFT_CMP_EQ, value)
}

fn compared(how: u32, value: &[u8]) -> Vec<u8> {
    [
        number(NFTA_CMP_SREG, NFT_REG_1),
        number(NFTA_CMP_OP, how),
        data(NFTA_CMP_DATA, value),
    ]
    .concat()
}

fn data(kind: u16, value: &[u8]) -> Vec<u8> {
    nested(kind, &attribute(NFTA_DATA_VALUE, value))
}

fn verdict(code: i32, chain: Option<&str>) -> Vec<u8> {
    let mut parts = attribute(NFTA_VERDICT_CODE, &code.to_be_bytes());
    parts.extend(
        chain
            .into_iter()
            .flat_map(|name| text(NFTA_VERDICT_CHAIN, name)),
    );
    let parts = [
        number(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT),
        nested(NFTA_IMMEDIATE_DATA, &nested(NFTA_DATA_VERDICT, &parts)),
    ];
    expression("immediate", &parts.concat())
}

/// The first `length` bits of `bytes` bytes.
fn mask(length: u8, bytes: usize) -> Vec<u8> {
    let all = u128::MAX.checked_shl(128_u32.saturating_sub(u32::from(length)));
    let all = all.unwrap_or(0).to_be_bytes();
    all.into_iter().take(bytes).collect()
}

fn comment(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len() + 1).unwrap_or(u8::MAX);
    [&[UDATA_COMMENT, length], text.as_bytes(), &[0]].concat()
}

/// Chain and comment of a rule in a listing, `None` for anything else.
pub(super) fn parse_rule(body: &[u8], ours: &str) -> Option<(String, String)> {
    let (mut table, mut chain, mut comment) = (None, None, None);
    for (kind, value) in wire::attributes(body.get(NFGENMSG..)?) {
        match kind {
            NFTA_RULE_TABLE => table = wire::string(value),
            NFTA_RULE_CHAIN => chain = wire::string(value),
            NFTA_RULE_USERDATA if value.first() == Some(&UDATA_COMMENT) => {
                comment = value.get(2..).and_then(wire::string);
            }
            _ => {}
        }
    }
    // Somebody else's rule in our table has to show, with or without a comment.
    (table.as_deref() == Some(ours)).then_some((chain?, comment.unwrap_or_default()))
}

#[cfg(test)]
mod tests;
