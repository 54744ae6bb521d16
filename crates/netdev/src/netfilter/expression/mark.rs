//! Expressions about the mark of a connection, which all of its packets have.

use super::{NFT_REG_1, NFTA_CT_DREG, NFTA_CT_KEY, equals, expression, immediate, number};

// linux/netfilter/nf_tables.h
const NFT_CT_MARK: u32 = 3;
const NFTA_CT_SREG: u16 = 4;

/// Goes on when the connection has this mark.
///
/// A register has a number in the order of the host.
pub(super) fn is(mark: u32) -> Vec<u8> {
    let load = [
        number(NFTA_CT_DREG, NFT_REG_1),
        number(NFTA_CT_KEY, NFT_CT_MARK),
    ];
    [
        expression("ct", &load.concat()),
        expression("cmp", &equals(&mark.to_ne_bytes())),
    ]
    .concat()
}

/// Gives the connection this mark.
pub(super) fn set(mark: u32) -> Vec<u8> {
    let store = [
        number(NFTA_CT_SREG, NFT_REG_1),
        number(NFTA_CT_KEY, NFT_CT_MARK),
    ];
    [
        immediate(NFT_REG_1, &mark.to_ne_bytes()),
        expression("ct", &store.concat()),
    ]
    .concat()
}
