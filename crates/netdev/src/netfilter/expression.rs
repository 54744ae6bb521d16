//! Expressions of rules, byte by byte (linux/netfilter/nf_tables.h).

use std::net::IpAddr;

use self::port::{is_port, is_to_port, with_ports};
use super::Cidr;
use super::guard::{Guard, LinkName, Packets};
use super::limit::{Limit, Whose};
use super::ports::{PortAt, PortForward};
use crate::wire::{self, attribute, nested};

mod mark;
mod port;

// linux/netfilter.h
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;
const NFTA_LIST_ELEM: u16 = 1;
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_META_DREG: u16 = 1;
const NFTA_META_KEY: u16 = 2;
const NFT_META_IIFNAME: u32 = 6;
const NFT_META_OIFNAME: u32 = 7;
const NFT_META_NFPROTO: u32 = 15;
const NFT_META_L4PROTO: u32 = 16;
const NFTA_CT_DREG: u16 = 1;
const NFTA_CT_KEY: u16 = 2;
const NFT_CT_STATE: u32 = 0;
const NFT_CT_DIRECTION: u32 = 1;
const NFT_CT_STATUS: u32 = 2;
/// `IP_CT_DIR_ORIGINAL` and `IP_CT_DIR_REPLY`.
const ORIGINAL: u8 = 0;
const REPLY: u8 = 1;
/// `NF_CT_STATE_BIT` of established and of related.
///
/// linux/netfilter/nf_conntrack_common.h.
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
const NFT_PAYLOAD_TRANSPORT_HEADER: u32 = 2;
const NFTA_EXTHDR_DREG: u16 = 1;
const NFTA_EXTHDR_TYPE: u16 = 2;
const NFTA_EXTHDR_OFFSET: u16 = 3;
const NFTA_EXTHDR_LEN: u16 = 4;
const NFT_META_IIF: u32 = 4;
const NFT_META_OIF: u32 = 5;
/// `NFTA_CT_DIRECTION`; 0 is that of the first packet.
const NFTA_CT_DIRECTION: u16 = 3;
const NFT_CT_PROTO_SRC: u32 = 11;
const NFT_CT_PROTO_DST: u32 = 12;
/// `IPS_CONFIRMED` of linux/netfilter/nf_conntrack_common.h.
const CONFIRMED: u32 = 1 << 3;
const NFTA_HASH_SREG: u16 = 1;
const NFTA_HASH_DREG: u16 = 2;
const NFTA_HASH_LEN: u16 = 3;
const NFTA_HASH_MODULUS: u16 = 4;
const NFTA_HASH_TYPE: u16 = 7;
const NFT_HASH_JENKINS: u32 = 0;
const NFTA_CONNLIMIT_COUNT: u16 = 1;
const NFTA_CONNLIMIT_FLAGS: u16 = 2;
const NFT_CONNLIMIT_F_INV: u32 = 1;
const NFTA_DYNSET_SET_NAME: u16 = 1;
const NFTA_DYNSET_OP: u16 = 3;
const NFTA_DYNSET_SREG_KEY: u16 = 4;
const NFTA_DYNSET_EXPR: u16 = 7;
const NFT_DYNSET_OP_ADD: u32 = 0;
/// The first of the registers of four bytes.
const NFT_REG32_00: u32 = 8;
const NFTA_COUNTER_BYTES: u16 = 1;
const NFTA_COUNTER_PACKETS: u16 = 2;
const NFTA_FIB_DREG: u16 = 1;
const NFTA_FIB_RESULT: u16 = 2;
const NFTA_FIB_FLAGS: u16 = 3;
const NFT_FIB_RESULT_OIF: u32 = 1;
const NFT_FIB_RESULT_ADDRTYPE: u32 = 3;
/// `NFTA_FIB_F_SADDR`, `NFTA_FIB_F_DADDR` and `NFTA_FIB_F_IIF`.
const BY_SOURCE: u32 = 1;
const BY_DESTINATION: u32 = 1 << 1;
const BY_LINK: u32 = 1 << 3;
/// `RTN_LOCAL` of linux/rtnetlink.h.
const LOCAL: u32 = 2;
const NFTA_NAT_TYPE: u16 = 1;
const NFTA_NAT_FAMILY: u16 = 2;
const NFTA_NAT_REG_ADDR_MIN: u16 = 3;
const NFTA_NAT_REG_PROTO_MIN: u16 = 5;
const NFT_NAT_SNAT: u32 = 0;
const NFT_NAT_DNAT: u32 = 1;
const NFT_REG_2: u32 = 2;
/// Protocol numbers of IANA.
const IPPROTO_UDP: u8 = 17;
const IPPROTO_FRAGMENT: u8 = 44;
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
const NFTA_MASQ_FLAGS: u16 = 1;
/// `NF_NAT_RANGE_PROTO_RANDOM_FULLY` of linux/netfilter/nf_nat.h.
///
/// Two flows that start at once do not choose the same port.
const RANDOM_FULLY: u32 = 1 << 4;

pub(super) fn text(kind: u16, text: &str) -> Vec<u8> {
    attribute(kind, &[text.as_bytes(), &[0]].concat())
}

pub(super) fn number(kind: u16, number: u32) -> Vec<u8> {
    attribute(kind, &number.to_be_bytes())
}

fn expression(name: &str, data: &[u8]) -> Vec<u8> {
    let parts = [text(NFTA_EXPR_NAME, name), nested(NFTA_EXPR_DATA, data)];
    nested(NFTA_LIST_ELEM, &parts.concat())
}

/// Returns a guard's comparisons, and its verdict.
pub(super) fn of_guard(guard: &Guard) -> Vec<u8> {
    let mut expressions = Vec::new();
    for packets in &guard.packets {
        expressions.extend(match packets {
            Packets::InBy(link) => is_link(NFT_META_IIFNAME, link),
            Packets::NotInBy(link) => compare_link(NFT_META_IIFNAME, link, NFT_CMP_NEQ),
            Packets::OutBy(link) => is_link(NFT_META_OIFNAME, link),
            Packets::OfNoConnection => has_bits(NFT_CT_STATE, KNOWN, NFT_CMP_EQ),
            Packets::Untracked => has_bits(NFT_CT_STATE, TRACKED, NFT_CMP_EQ),
            Packets::ToTranslated => has_bits(NFT_CT_STATUS, TRANSLATED, NFT_CMP_NEQ),
            Packets::Asking => is_direction(ORIGINAL),
            Packets::Answering => is_direction(REPLY),
            Packets::Marked(mark) => mark::is(*mark),
            Packets::ToPort(port) => is_to_port(port),
            Packets::To((ip, length)) => is_in(Cidr(*ip, *length), false),
            Packets::From((ip, length)) => is_in(Cidr(*ip, *length), true),
            Packets::NotFrom((ip, length)) => compare_prefix(Cidr(*ip, *length), true, NFT_CMP_NEQ),
            Packets::UdpTo(port) => is_port(IPPROTO_UDP, *port),
            Packets::WithPorts => with_ports(),
            Packets::Beginning => beginning(),
            Packets::ByReversePath => by_reverse_path(),
        });
    }
    if guard.pass {
        expressions.extend(verdict(NF_ACCEPT, None));
    } else {
        expressions.extend(counter());
        expressions.extend(verdict(NF_DROP, None));
    }
    expressions
}

/// Goes on when the link is one of this name.
fn is_link(key: u32, link: &LinkName) -> Vec<u8> {
    compare_link(key, link, NFT_CMP_EQ)
}

fn compare_link(key: u32, link: &LinkName, how: u32) -> Vec<u8> {
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
        expression("meta", &meta(key)),
        expression("cmp", &compared(how, &name)),
    ]
    .concat()
}

/// Matches when a field of connection tracking has none of these bits, or any.
///
/// `how` is equal for none, not equal for any.
fn has_bits(key: u32, bits: u32, how: u32) -> Vec<u8> {
    let load = [number(NFTA_CT_DREG, NFT_REG_1), number(NFTA_CT_KEY, key)];
    [
        expression("ct", &load.concat()),
        // A register has a number in the order of the host.
        bitwise(&bits.to_ne_bytes()),
        expression("cmp", &compared(how, &[0; 4])),
    ]
    .concat()
}

/// Goes on when the source or the destination is in the prefix.
pub(super) fn is_in(prefix: Cidr, source: bool) -> Vec<u8> {
    compare_prefix(prefix, source, NFT_CMP_EQ)
}

/// Matches when source or destination is of the prefix's family and in it, or not.
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
    [
        is_family(family),
        expression("payload", &load.concat()),
        bitwise(&mask(length, address.len())),
        expression("cmp", &compared(how, &address)),
    ]
    .concat()
}

fn meta(key: u32) -> Vec<u8> {
    [
        number(NFTA_META_DREG, NFT_REG_1),
        number(NFTA_META_KEY, key),
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

pub(super) fn verdict(code: i32, chain: Option<&str>) -> Vec<u8> {
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

/// Translates the source of packets to this port.
pub(super) fn of_source(port: &PortAt, source: IpAddr) -> Vec<u8> {
    [is_to_port(port), translate(NFT_NAT_SNAT, source, None)].concat()
}

/// Translates the source to an address of the node.
pub(super) fn masquerade() -> Vec<u8> {
    expression("masq", &number(NFTA_MASQ_FLAGS, RANDOM_FULLY))
}

/// Stops the first packet of a connection when its list is full.
pub(super) fn of_limit(limit: &Limit) -> Vec<u8> {
    let (lists, each) = limit.lists();
    let (Whose::Source { v4 } | Whose::Link { v4 } | Whose::Towards { v4 }) = limit.whose;
    let (name, index) = match limit.whose {
        Whose::Towards { .. } => (NFT_META_OIFNAME, NFT_META_OIF),
        Whose::Source { .. } | Whose::Link { .. } => (NFT_META_IIFNAME, NFT_META_IIF),
    };
    let family = if v4 { NFPROTO_IPV4 } else { NFPROTO_IPV6 };
    // Where the source is in the network header, and how long an address is.
    let (source, width) = if v4 { (12, 4) } else { (8, 16) };
    let payload = |register, offset, length| {
        let load = [
            number(NFTA_PAYLOAD_DREG, register),
            number(NFTA_PAYLOAD_BASE, NFT_PAYLOAD_NETWORK_HEADER),
            number(NFTA_PAYLOAD_OFFSET, offset),
            number(NFTA_PAYLOAD_LEN, length),
        ];
        expression("payload", &load.concat())
    };
    let port = |register, key| {
        let load = [
            number(NFTA_CT_DREG, register),
            number(NFTA_CT_KEY, key),
            attribute(NFTA_CT_DIRECTION, &[0]),
        ];
        expression("ct", &load.concat())
    };
    // Registers of four bytes: the key, which ends with the number of the list, and behind it what the
    // number is made of.
    let (key, words) = match limit.whose {
        Whose::Source { .. } => (payload(NFT_REG32_00, source, width), width / 4),
        Whose::Link { .. } | Whose::Towards { .. } => {
            let load = [
                number(NFTA_META_DREG, NFT_REG32_00),
                number(NFTA_META_KEY, index),
            ];
            (expression("meta", &load.concat()), 1)
        }
    };
    let list = NFT_REG32_00 + words;
    let (addresses, ports) = (list + 1, list + 1 + width / 2);
    let hash = [
        number(NFTA_HASH_SREG, addresses),
        number(NFTA_HASH_DREG, list),
        number(NFTA_HASH_LEN, 2 * width + 8),
        number(NFTA_HASH_MODULUS, lists),
        number(NFTA_HASH_TYPE, NFT_HASH_JENKINS),
    ];
    let over = [
        number(NFTA_CONNLIMIT_COUNT, each),
        number(NFTA_CONNLIMIT_FLAGS, NFT_CONNLIMIT_F_INV),
    ];
    let count = [
        text(NFTA_EXPR_NAME, "connlimit"),
        nested(NFTA_EXPR_DATA, &over.concat()),
    ];
    let enter = [
        text(NFTA_DYNSET_SET_NAME, limit.set()),
        number(NFTA_DYNSET_OP, NFT_DYNSET_OP_ADD),
        number(NFTA_DYNSET_SREG_KEY, NFT_REG32_00),
        nested(NFTA_DYNSET_EXPR, &count.concat()),
    ];
    [
        is_link(name, &limit.link),
        is_family(family),
        // One that is tracked already is not counted once more.
        has_bits(NFT_CT_STATUS, CONFIRMED, NFT_CMP_EQ),
        key,
        payload(addresses, source, 2 * width),
        port(ports, NFT_CT_PROTO_SRC),
        port(ports + 1, NFT_CT_PROTO_DST),
        expression("hash", &hash.concat()),
        expression("dynset", &enter.concat()),
        counter(),
        verdict(NF_DROP, None),
    ]
    .concat()
}

/// Returns type and length of the key of a set of lists; length in bytes.
///
/// The type is in the notation of the library of nf_tables.
pub(super) const fn key_of(whose: Whose) -> (u32, u32) {
    const ADDRESS: u32 = 7;
    const ADDRESS6: u32 = 8;
    const MARK: u32 = 19;
    const LINK: u32 = 20;
    let (first, length) = match whose {
        Whose::Source { v4: true } => (ADDRESS, 4),
        Whose::Source { v4: false } => (ADDRESS6, 16),
        Whose::Link { .. } | Whose::Towards { .. } => (LINK, 4),
    };
    (first << 6 | MARK, length + 4)
}

/// Counts packets.
fn counter() -> Vec<u8> {
    let zero = [
        attribute(NFTA_COUNTER_BYTES, &[0; 8]),
        attribute(NFTA_COUNTER_PACKETS, &[0; 8]),
    ];
    expression("counter", &zero.concat())
}

/// How many packets the counter among the expressions of a rule has counted.
pub(super) fn counted(expressions: &[u8]) -> Option<u64> {
    let mut all = wire::attributes(expressions);
    all.find_map(|(_, expression)| {
        let part = |wanted| {
            let mut parts = wire::attributes(expression);
            parts.find_map(|(kind, value)| (kind == wanted).then_some(value))
        };
        let is_counter = part(NFTA_EXPR_NAME).and_then(wire::string)? == "counter";
        let data = part(NFTA_EXPR_DATA).filter(|_| is_counter)?;
        let (_, packets) =
            wire::attributes(data).find(|(kind, _)| *kind == NFTA_COUNTER_PACKETS)?;
        Some(u64::from_be_bytes(packets.try_into().ok()?))
    })
}

/// Matches the first fragment of an IPv6 packet.
///
/// RFC 8200 section 4.5: 13 bits of offset.
fn beginning() -> Vec<u8> {
    let load = [
        number(NFTA_EXTHDR_DREG, NFT_REG_1),
        attribute(NFTA_EXTHDR_TYPE, &[IPPROTO_FRAGMENT]),
        number(NFTA_EXTHDR_OFFSET, 2),
        number(NFTA_EXTHDR_LEN, 2),
    ];
    [
        is_family(NFPROTO_IPV6),
        expression("exthdr", &load.concat()),
        bitwise(&[0xff, 0xf8]),
        expression("cmp", &equals(&[0; 2])),
    ]
    .concat()
}

/// Matches when the node would send to the source by the link of arrival.
fn by_reverse_path() -> Vec<u8> {
    [
        route(NFT_FIB_RESULT_OIF, BY_SOURCE | BY_LINK),
        expression("cmp", &compared(NFT_CMP_NEQ, &[0; 4])),
    ]
    .concat()
}

/// Matches packets of this direction of their connection.
fn is_direction(direction: u8) -> Vec<u8> {
    let load = [
        number(NFTA_CT_DREG, NFT_REG_1),
        number(NFTA_CT_KEY, NFT_CT_DIRECTION),
    ];
    [
        expression("ct", &load.concat()),
        expression("cmp", &equals(&[direction])),
    ]
    .concat()
}

/// Goes on when the link of arrival is one of this name.
pub(super) fn in_by(link: &LinkName) -> Vec<u8> {
    is_link(NFT_META_IIFNAME, link)
}

/// Goes on when the destination is an address of the namespace itself.
pub(super) fn to_own() -> Vec<u8> {
    is_own(BY_DESTINATION)
}

fn is_own(by: u32) -> Vec<u8> {
    [
        route(NFT_FIB_RESULT_ADDRTYPE, by),
        expression("cmp", &equals(&LOCAL.to_ne_bytes())),
    ]
    .concat()
}

/// Looks up a route by parts of the packet, and loads this of it.
fn route(result: u32, by: u32) -> Vec<u8> {
    let look = [
        number(NFTA_FIB_DREG, NFT_REG_1),
        number(NFTA_FIB_RESULT, result),
        number(NFTA_FIB_FLAGS, by),
    ];
    expression("fib", &look.concat())
}

/// Leads connections to a port elsewhere.
pub(super) fn of_forward(forward: &PortForward) -> Vec<u8> {
    let mut expressions = match forward.at {
        Some(at) => is_in(Cidr(at, if at.is_ipv4() { 32 } else { 128 }), false),
        None => is_family(family_of(forward.to).0),
    };
    expressions.extend(is_port(forward.protocol as u8, forward.port));
    expressions.extend(forward.mark.into_iter().flat_map(mark::set));
    expressions.extend(translate(NFT_NAT_DNAT, forward.to, forward.to_port));
    expressions
}

/// Gives the namespace's own connections by these links another source.
pub(super) fn from_own(links: &LinkName, source: IpAddr) -> Vec<u8> {
    [
        is_link(NFT_META_OIFNAME, links),
        is_family(family_of(source).0),
        is_own(BY_SOURCE),
        translate(NFT_NAT_SNAT, source, None),
    ]
    .concat()
}

/// Goes on when the packet is of this family, `NFPROTO_*`.
fn is_family(family: u8) -> Vec<u8> {
    [
        expression("meta", &meta(NFT_META_NFPROTO)),
        expression("cmp", &equals(&[family])),
    ]
    .concat()
}

fn family_of(ip: IpAddr) -> (u8, Vec<u8>) {
    match ip {
        IpAddr::V4(ip) => (NFPROTO_IPV4, ip.octets().to_vec()),
        IpAddr::V6(ip) => (NFPROTO_IPV6, ip.octets().to_vec()),
    }
}

/// Translates source or destination to this address, and port if given.
fn translate(kind: u32, to: IpAddr, port: Option<u16>) -> Vec<u8> {
    let (family, address) = family_of(to);
    let mut nat = [
        number(NFTA_NAT_TYPE, kind),
        number(NFTA_NAT_FAMILY, u32::from(family)),
        number(NFTA_NAT_REG_ADDR_MIN, NFT_REG_1),
    ]
    .concat();
    let mut expressions = immediate(NFT_REG_1, &address);
    if let Some(port) = port {
        expressions.extend(immediate(NFT_REG_2, &port.to_be_bytes()));
        nat.extend(number(NFTA_NAT_REG_PROTO_MIN, NFT_REG_2));
    }
    expressions.extend(expression("nat", &nat));
    expressions
}

fn immediate(register: u32, value: &[u8]) -> Vec<u8> {
    let load = [
        number(NFTA_IMMEDIATE_DREG, register),
        data(NFTA_IMMEDIATE_DATA, value),
    ];
    expression("immediate", &load.concat())
}

/// Keeps these bits of the register.
fn bitwise(mask: &[u8]) -> Vec<u8> {
    let cut = [
        number(NFTA_BITWISE_SREG, NFT_REG_1),
        number(NFTA_BITWISE_DREG, NFT_REG_1),
        number(NFTA_BITWISE_LEN, u32::try_from(mask.len()).unwrap_or(0)),
        data(NFTA_BITWISE_MASK, mask),
        data(NFTA_BITWISE_XOR, &vec![0; mask.len()]),
    ];
    expression("bitwise", &cut.concat())
}

#[cfg(test)]
mod tests;
