//! Decide the way of a frame, by the stations of a network on this switch.

use std::cell::Cell;
use std::net::IpAddr;

use agent_common::addr::{Ip16, MacAddr};
use agent_common::checksum;
use agent_common::endpoint::{ENDPOINT_GUARD, Endpoint};
use agent_common::policy::{self, Act, Family, Scratch, Tables};
use agent_common::port::{PORT_L3, PORT_MORE_IPS, Port};

use crate::flat::Flat;
use crate::published::{Judging, Published};
use frames::header::{Flow, Header};

/// A port's place among those of its worker.
pub type Slot = u32;

/// Port and addresses of a sender, as the policy reads them.
#[derive(Clone, Debug)]
pub struct Identity {
    pub(crate) port: Port,
    /// Policies judge what it sends and gets.
    pub(crate) judged: bool,
    /// Addresses beyond the first of its family.
    further: Vec<Ip16>,
}

impl Identity {
    /// A port with these addresses; policies judge what it sends and gets, or do not.
    pub fn new(port: &Port, ips: &[IpAddr], judged: bool) -> Self {
        let mut port = Port {
            flags: port.flags & !PORT_MORE_IPS,
            ip4: [0; 4],
            tunnel_port: 0,
            ip6: Ip16::NONE,
            link_local: Ip16::from(IpAddr::from(port.mac.link_local())),
            home: 0,
            shaper: 0,
            ..*port
        };
        let mut further = Vec::new();
        for ip in ips {
            let ip = Ip16::from(*ip);
            match ip.v4() {
                Some(v4) if port.ip4 == [0; 4] => port.ip4 = v4,
                None if port.ip6 == Ip16::NONE => port.ip6 = ip,
                Some(_) | None => further.push(ip),
            }
        }
        if !further.is_empty() {
            port.flags |= PORT_MORE_IPS;
        }
        Self {
            port,
            judged,
            further,
        }
    }

    /// The network.
    pub const fn network(&self) -> u32 {
        self.port.network
    }

    /// Largest L3 packet, bytes.
    pub const fn mtu(&self) -> u16 {
        self.port.mtu
    }

    /// Whether policies judge what it sends and gets.
    pub const fn is_judged(&self) -> bool {
        self.judged
    }

    fn addresses(&self) -> impl Iterator<Item = Ip16> {
        let first = (self.port.ip4 != [0; 4]).then(|| Ip16::from_v4(self.port.ip4));
        let second = (self.port.ip6 != Ip16::NONE).then_some(self.port.ip6);
        first
            .into_iter()
            .chain(second)
            .chain(self.further.iter().copied())
    }
}

/// Ports of one network that are reached without the kernel.
///
/// Lookups never leave it, so neither do frames.
#[derive(Debug, Default)]
pub struct Network {
    stations: Flat<u64, Option<Endpoint>>,
    addresses: Flat<u128, Option<Endpoint>>,
}

impl Network {
    /// A port is reached in this slot.
    pub fn insert(&mut self, slot: Slot, identity: &Identity) {
        let endpoint = Some(Endpoint {
            ifindex: slot,
            flags: if identity.judged { ENDPOINT_GUARD } else { 0 },
            mac: identity.port.mac,
            port_id: identity.port.port_id,
        });
        if identity.port.flags & PORT_L3 == 0 {
            self.stations.insert(mac_key(identity.port.mac), endpoint);
        }
        for ip in identity.addresses() {
            self.addresses.insert(ip_key(&ip), endpoint);
        }
    }

    /// Removes the entries of a slot.
    pub fn remove(&mut self, slot: Slot) {
        let is_other =
            |found: &Option<Endpoint>| found.is_some_and(|endpoint| endpoint.ifindex != slot);
        self.stations.retain(is_other);
        self.addresses.retain(is_other);
    }

    /// Returns the way of a frame without the kernel.
    ///
    /// The error is that the kernel program has to judge it, and the slot that it then goes to, as far as that is known.
    ///
    /// The tables here are a part of the kernel's. An entry found there is found in the kernel's as
    /// well, but a missing one may be there all the same: so a decision after any missed look-up is
    /// left to the kernel. Of the others the switch takes only those that deliver to one of its ports, and that
    /// policies let pass by what the kernel has published.
    pub fn judge(
        &self,
        header: &Header,
        sender: &Identity,
        published: Option<(&Published, u32)>,
    ) -> Result<Way, Option<Slot>> {
        // The kernel program drops and counts it.
        if !checksum::of_ipv4_is_right(header) {
            return Err(None);
        }
        let asked = Asked {
            network: self,
            further: &sender.further,
            in_vain: Cell::new(false),
        };
        let mut scratch = Scratch::EMPTY;
        let act = policy::decide_in(header, &sender.port, &asked, &mut scratch);
        if asked.in_vain.get() {
            return Err(None);
        }
        let to = scratch.to;
        let routed = match act {
            Act::Switch => None,
            Act::Route => Some((to.mac, scratch.packet.family)),
            Act::Drop(_)
            | Act::Ignore
            | Act::Moved
            | Act::Leave
            | Act::Node
            | Act::Service
            | Act::Wire
            | Act::WireRoute
            | Act::Flood
            | Act::ArpReply
            | Act::NdReply
            | Act::EchoReply => return Err(None),
        };
        // The agent says whether policies select a port, later than the map does.
        let judged = sender.judged
            || to.flags & ENDPOINT_GUARD != 0
            || published.is_some_and(|(published, _)| {
                published.is_guarded(sender.port.port_id) || published.is_guarded(to.port_id)
            });
        if judged {
            let (published, now) = published.ok_or(None)?;
            let judging = Judging {
                tables: &asked,
                published,
                sender,
                now,
            };
            if !judging.passes(header, act, &scratch) {
                return Err(Some(to.ifindex));
            }
        }
        Ok(Way {
            slot: to.ifindex,
            routed,
            judged,
        })
    }
}

/// Where a frame goes without the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    slot: Slot,
    /// To this address, by the virtual gateway.
    routed: Option<(MacAddr, Family)>,
    /// Policies have let it pass, as a packet of its connection.
    judged: bool,
}

impl Way {
    /// The port that it leads to.
    #[inline]
    pub const fn slot(&self) -> Slot {
        self.slot
    }

    /// Whether policies have let the frame pass.
    #[inline]
    pub const fn is_judged(&self) -> bool {
        self.judged
    }

    /// The header becomes what it has to be there. Returns where that is.
    #[inline]
    pub fn take(&self, header: &mut Header) -> Slot {
        if let Some((to, family)) = self.routed {
            header.route(to, family);
        }
        self.slot
    }
}

/// Last flow of a sender, and its way.
///
/// Packets come in trains, and the fields that the policy reads are the same in all of one. It is valid
/// only while neither tables nor sender can change.
#[derive(Debug, Default)]
pub struct Last(Option<(Flow, Way)>);

impl Last {
    /// As [`Network::judge`], or as for the last one.
    #[inline]
    pub fn judge(
        &mut self,
        network: &Network,
        header: &Header,
        sender: &Identity,
        published: Option<(&Published, u32)>,
    ) -> Result<Way, Option<Slot>> {
        if let Some((flow, way)) = &self.0
            && header.is_of(flow)
            && (!way.judged || header.goes_on(flow))
            && checksum::of_ipv4_is_right(header)
        {
            return Ok(*way);
        }
        let way = network.judge(header, sender, published);
        self.0 = header.flow().zip(way.ok());
        way
    }
}

/// The tables, and whether they knew all that they were asked.
struct Asked<'n> {
    network: &'n Network,
    further: &'n [Ip16],
    in_vain: Cell<bool>,
}

impl Asked<'_> {
    #[inline(always)]
    fn note(&self, found: Option<&Option<Endpoint>>) -> Option<Endpoint> {
        let found = found.copied().flatten();
        if found.is_none() {
            self.in_vain.set(true);
        }
        found
    }
}

impl Tables for Asked<'_> {
    /// The port's own addresses are all here.
    #[inline(always)]
    fn is_further_address(&self, ip: &Ip16) -> bool {
        self.further.iter().any(|further| further.same(ip))
    }

    #[inline(always)]
    fn endpoint(&self, _network: u32, ip: &Ip16) -> Option<Endpoint> {
        self.note(self.network.addresses.get(ip_key(ip)))
    }

    #[inline(always)]
    fn station(&self, _network: u32, mac: MacAddr) -> Option<Endpoint> {
        self.note(self.network.stations.get(mac_key(mac)))
    }
}

#[inline(always)]
fn mac_key(mac: MacAddr) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_ne_bytes([a, b, c, d, e, f, 0, 0])
}

#[inline(always)]
fn ip_key(ip: &Ip16) -> u128 {
    u128::from_ne_bytes(ip.0)
}

#[cfg(test)]
mod tests;
