//! Ports of packets.

use super::{
    Cidr, NFT_META_L4PROTO, NFT_PAYLOAD_TRANSPORT_HEADER, NFT_REG_1, NFTA_PAYLOAD_BASE,
    NFTA_PAYLOAD_DREG, NFTA_PAYLOAD_LEN, NFTA_PAYLOAD_OFFSET, bitwise, equals, expression, is_in,
    meta, number,
};
use crate::netfilter::ports::PortAt;

/// Goes on when the destination is this port.
pub(super) fn is_to_port(port: &PortAt) -> Vec<u8> {
    let bits = if port.ip.is_ipv4() { 32 } else { 128 };
    [
        is_in(Cidr(port.ip, bits), false),
        is_port(port.protocol as u8, port.port),
    ]
    .concat()
}

/// Matches packets of a protocol to this port.
///
/// A fragment that is not the first does not match: it has no ports.
pub(super) fn is_port(protocol: u8, port: u16) -> Vec<u8> {
    [
        expression("meta", &meta(NFT_META_L4PROTO)),
        expression("cmp", &equals(&[protocol])),
        destination_port(),
        expression("cmp", &equals(&port.to_be_bytes())),
    ]
    .concat()
}

/// Goes on when there is a transport header as far as its ports.
pub(super) fn with_ports() -> Vec<u8> {
    let cut = bitwise(&[0; 2]);
    [destination_port(), cut, expression("cmp", &equals(&[0; 2]))].concat()
}

/// Loads the bytes where UDP and TCP have the destination port.
fn destination_port() -> Vec<u8> {
    let load = [
        number(NFTA_PAYLOAD_DREG, NFT_REG_1),
        number(NFTA_PAYLOAD_BASE, NFT_PAYLOAD_TRANSPORT_HEADER),
        number(NFTA_PAYLOAD_OFFSET, 2),
        number(NFTA_PAYLOAD_LEN, 2),
    ];
    expression("payload", &load.concat())
}
