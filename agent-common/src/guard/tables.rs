//! The look-ups that judging needs.

use super::Guard;
use super::flow::{FlowKey, FlowWords};
use super::fragment::{Fragment, FragmentKey};
use super::judge::UNKNOWN_ATOM;
use crate::addr::Ip16;
use crate::endpoint::{ENDPOINT_GATEWAY, ENDPOINT_OUTSIDE};
use crate::policy::Tables;

/// Buckets of new flows, a power of two.
///
/// The first half is by port, the second by address.
pub const BUDGETS: u32 = 8192;

/// Price of a new flow in a bucket, nanoseconds: 4,000 a second.
const FLOW_NS: u64 = 250_000;
/// How long a bucket fills, nanoseconds.
const BURST_NS: u64 = 2_000_000_000;

/// Takes the price of a new flow from a bucket, and returns the new one.
///
/// A bucket is the time until which its flows are paid for, nanoseconds. `None` when there is less in it.
#[inline(always)]
pub const fn take(paid_until_ns: u64, now_ns: u64) -> Option<u64> {
    let full = now_ns.saturating_sub(BURST_NS);
    let begin = if paid_until_ns < full {
        full
    } else {
        paid_until_ns
    };
    let next = begin + FLOW_NS;
    if next > now_ns { None } else { Some(next) }
}

/// The bucket of a port of this node.
#[inline(always)]
pub(super) const fn budget_of_port(port_id: u16) -> u32 {
    port_id as u32 & (BUDGETS / 2 - 1)
}

/// The bucket of senders elsewhere, by their address.
#[inline(always)]
pub const fn budget_of_address(network: u32, ip: &Ip16) -> u32 {
    let [a, b, c, d] = ip.words();
    let mixed = (a ^ b ^ c ^ d ^ network).wrapping_mul(0x9e37_79b1);
    BUDGETS / 2 + (mixed >> 16 & (BUDGETS / 2 - 1))
}

/// Ports of packets that come in parts, and the time.
pub trait FragmentTables {
    /// Returns the record of a packet's first fragment.
    fn fragment(&self, key: &FragmentKey) -> Option<Fragment>;
    /// Keeps what a first fragment has.
    fn keep_fragment(&self, key: &FragmentKey, first: &Fragment);
    /// The time, ticks.
    fn now(&self) -> u32;
}

/// Tables of guarded networks, in which the engine looks up by its own means.
pub trait GuardTables: Tables + FragmentTables {
    /// The sets of a port; all zeroes for a port without.
    ///
    /// An engine may show their stamp only ([`Guard::is_brief`]), where it finds that sooner.
    fn guard(&self, port_id: u16) -> Guard;
    /// The sets of a port, whole.
    #[inline(always)]
    fn sets(&self, port_id: u16) -> Guard {
        self.guard(port_id)
    }
    /// The atom of a member or node with this address.
    fn atom_of_member(&self, generation: u32, ip: &Ip16) -> Option<u32>;
    /// The atom of an address that no member has, by longest prefix.
    fn atom_of_block(&self, generation: u32, ip: &Ip16) -> Option<u32>;
    /// The class of a port of the protocol at this place of its tables.
    fn class(&self, generation: u32, protocol: u32, port: u16) -> Option<u32>;
    /// The number of the row of an atom in a set, if it has one of its own.
    fn row(&self, generation: u32, set: u32, atom: u32) -> Option<u32>;
    /// A word of a row; 0 of one that is not there.
    fn word(&self, generation: u32, row: u32, word: u32) -> u32;
    /// Finds the place of a connection, which the other four are about.
    fn seek(&self, key: &FlowKey);
    /// Reads the entry of the connection that was sought; false when there is none.
    fn flow(&self, key: &FlowKey, words: &mut FlowWords) -> bool;
    /// Notes a packet in the entry that [`Self::flow`] has found.
    ///
    /// `was`: its words so far. `is`: those with the packet.
    /// An entry that is another connection's by then stays as it is.
    fn note(&self, was: &FlowWords, is: &FlowWords);
    /// Adds flags to the entry of the connection that was noted or opened last.
    ///
    /// False when the entry is another one's by then, or denied, or not of the direction that the flags say.
    fn tell(&self, key: &FlowKey, flags: u32) -> bool;
    /// Keeps the connection that was sought as a new one.
    ///
    /// It takes the place of an entry that is there.
    /// False when there is no room.
    fn open(&self, key: &FlowKey, words: &FlowWords) -> bool;
    /// Takes the price of a new connection from a bucket; false when it has less.
    fn pay(&self, budget: u32) -> bool;

    /// The atom of an address.
    ///
    /// That of a member of which the labels are not known yet is unknown, whatever blocks say of its address.
    #[inline(always)]
    fn atom(&self, generation: u32, network: u32, ip: &Ip16) -> u32 {
        if let Some(atom) = self.atom_of_member(generation, ip) {
            return atom;
        }
        if let Some(endpoint) = self.endpoint(network, ip)
            && endpoint.flags & (ENDPOINT_GATEWAY | ENDPOINT_OUTSIDE) == 0
        {
            return UNKNOWN_ATOM;
        }
        match self.atom_of_block(generation, ip) {
            Some(atom) => atom,
            None => UNKNOWN_ATOM,
        }
    }
}
