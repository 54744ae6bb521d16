//! Makes the node's stack reach addresses behind one of its links.
//!
//! Each has a route to that address alone, and a MAC address that needs no question.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{RouteAttribute, RouteFlags, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;

use crate::connection::{Connection, Request};
use crate::error::Error;
use crate::link::Mac;
use crate::route::Route;
use crate::wire;

/// `sizeof(struct ndmsg)`.
const NDMSG: usize = 12;
/// `sizeof(struct rtmsg)`.
const RTMSG: usize = 12;
// linux/neighbour.h
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_PERMANENT: u16 = 0x80;
// linux/rtnetlink.h
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_METRICS: u16 = 8;
/// `RTAX_MTU`, an attribute in `RTA_METRICS`.
const RTAX_MTU: u16 = 2;
const RTA_VIA: u16 = 18;
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
/// `RTM_NEWNEIGH`.
const RTM_NEWNEIGH: u16 = 28;

/// An address and where it is on its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The address.
    pub address: IpAddr,
    /// The MAC address that has it.
    pub mac: Mac,
}

impl Neighbour {
    fn request(&self, ifindex: u32) -> Request {
        let mut message = NeighbourMessage::default();
        message.header.family = family(self.address);
        message.header.ifindex = ifindex;
        message.header.state = NeighbourState::Permanent;
        let attributes = &mut message.attributes;
        attributes.push(NeighbourAttribute::Destination(self.address.into()));
        attributes.push(NeighbourAttribute::LinkLayerAddress(self.mac.to_vec()));
        Request::new(
            RouteNetlinkMessage::NewNeighbour(message),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
    }

    /// The route to this address alone.
    fn route(&self, ifindex: u32, protocol: u8) -> Route {
        Route {
            protocol: Some(protocol),
            ..Route::new(self.address, full_length(self.address), None, ifindex)
        }
    }

    /// Reads a permanent `RTM_NEWNEIGH` and its link; `None` for anything else.
    fn parse(body: &[u8]) -> Option<(u32, Self)> {
        // struct ndmsg: family, padding, ifindex, state (u16), flags, type.
        if wire::u16_at(body, 8)? & NUD_PERMANENT == 0 {
            return None;
        }
        let ifindex = wire::u32_at(body, 4)?;
        let (mut address, mut mac) = (None, None);
        for (kind, value) in wire::attributes(body.get(NDMSG..)?) {
            match kind {
                NDA_DST => address = wire::ip(value),
                NDA_LLADDR => mac = value.try_into().ok(),
                _ => {}
            }
        }
        let address = address?;
        Some((ifindex, Self { address, mac: mac? }))
    }
}

/// Addresses behind links of the node, as [`Connection::reach`] makes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// Destinations of routes to one address, by link.
    routes: BTreeSet<(u32, IpAddr)>,
    /// Permanent neighbours, by link.
    neighbours: BTreeSet<(u32, IpAddr, Mac)>,
}

impl Reached {
    /// True when a neighbour is reached behind this link.
    pub fn has(&self, ifindex: u32, one: &Neighbour) -> bool {
        self.routes.contains(&(ifindex, one.address))
            && self.neighbours.contains(&(ifindex, one.address, one.mac))
    }
}

/// The kernel's treatment of packets along a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// Sends them out of a link.
    Unicast,
    /// Takes them: the address is the node's own.
    Local,
    /// Anything else: broadcast, blackhole and the like (`rtm_type`).
    Other(u8),
}

/// The route by which the kernel would send to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteMatch {
    /// Treatment of packets.
    pub kind: RouteKind,
    /// Length of the destination's prefix, bits.
    pub prefix_len: u8,
    /// Next hop; `None` when the address is on the link itself.
    pub gateway: Option<IpAddr>,
    /// The link; 0 for none.
    pub ifindex: u32,
    /// Largest packet in bytes, if the route says one (`RTAX_MTU`).
    pub mtu: Option<u32>,
}

impl RouteMatch {
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let mut found = Self {
            kind: match *body.get(7)? {
                RTN_UNICAST => RouteKind::Unicast,
                RTN_LOCAL => RouteKind::Local,
                other => RouteKind::Other(other),
            },
            prefix_len: *body.get(1)?,
            gateway: None,
            ifindex: 0,
            mtu: None,
        };
        for (kind, value) in wire::attributes(body.get(RTMSG..)?) {
            match kind {
                RTA_OIF => found.ifindex = wire::u32_at(value, 0)?,
                RTA_GATEWAY => found.gateway = wire::ip(value),
                RTA_METRICS => {
                    let mut metrics = wire::attributes(value);
                    let mtu = metrics.find(|(kind, _)| *kind == RTAX_MTU);
                    found.mtu = mtu.and_then(|(_, value)| wire::u32_at(value, 0));
                }
                // struct rtvia: family (u16), address.
                RTA_VIA => found.gateway = wire::ip(value.get(2..)?),
                _ => {}
            }
        }
        Some(found)
    }

    /// True when packets go to the address itself, by no router.
    pub fn is_on_link(&self) -> bool {
        // Several next hops are listed apart, without a link here.
        self.kind == RouteKind::Unicast && self.gateway.is_none() && self.ifindex != 0
    }
}

impl fmt::Display for RouteMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            RouteKind::Unicast => write!(f, "out of link {}", self.ifindex)?,
            RouteKind::Local => f.write_str("as an address of its own")?,
            RouteKind::Other(kind) => write!(f, "of type {kind}")?,
        }
        match self.gateway {
            Some(gateway) => write!(f, " via {gateway}"),
            None => Ok(()),
        }
    }
}

impl Connection {
    /// Makes the node reach these addresses behind a link, which is up.
    ///
    /// Routes bear `protocol`.
    ///
    /// # Errors
    /// [`Error::Routed`] when the node has a route to one of them already, before anything is
    /// changed; else [`Error::AddRoute`], [`Error::AddNeighbour`] for the first that was refused.
    /// Removing the link removes what was made.
    pub fn reach(
        &mut self,
        ifindex: u32,
        neighbours: &[Neighbour],
        protocol: u8,
    ) -> Result<(), Error> {
        for Neighbour { address, .. } in neighbours {
            let found = self.route_to(*address)?;
            let taken = found.filter(|found| {
                found.prefix_len == full_length(*address) && found.ifindex != ifindex
            });
            if let Some(found) = taken {
                return Err(Error::Routed {
                    address: *address,
                    found,
                });
            }
        }
        let routes = neighbours.iter().map(|one| one.route(ifindex, protocol));
        let mut requests: Vec<Request> = routes.map(|route| route.request()).collect();
        requests.extend(neighbours.iter().map(|one| one.request(ifindex)));
        let mut answers = self.ask_all(requests)?.into_iter();
        for one in neighbours {
            match answers.next() {
                Some(Err(source)) if source.errno() != Errno::EXIST => {
                    let route = one.route(ifindex, protocol);
                    return Err(route.refused(ifindex.into(), source));
                }
                _ => {}
            }
        }
        for one in neighbours {
            if let Some(Err(source)) = answers.next() {
                return Err(Error::AddNeighbour {
                    address: one.address,
                    link: ifindex.into(),
                    source,
                });
            }
        }
        Ok(())
    }

    /// Lists the addresses that the node does not reach behind a link.
    ///
    /// Those it reaches are as [`Self::reach`] makes them.
    ///
    /// # Errors
    /// [`Error::List`], [`Error::is_gone`] if there is no such link; [`Error::DumpInterrupted`].
    pub fn unreached(
        &mut self,
        ifindex: u32,
        neighbours: &[Neighbour],
    ) -> Result<Vec<Neighbour>, Error> {
        let routes = self.routes(ifindex)?;
        let known = self.permanent_neighbours(ifindex)?;
        let is_routed = |one: &Neighbour| {
            let length = full_length(one.address);
            routes.iter().any(|route| {
                (route.dst, route.prefix_len, route.gateway) == (one.address, length, None)
            })
        };
        let missing = neighbours.iter().copied();
        Ok(missing
            .filter(|one| !is_routed(one) || !known.contains(one))
            .collect())
    }

    /// Returns the kernel's route to this address; `None` when it has none.
    ///
    /// # Errors
    /// [`Error::FindRoute`].
    pub fn route_to(&mut self, address: IpAddr) -> Result<Option<RouteMatch>, Error> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(address);
        message.header.destination_prefix_length = full_length(address);
        message.header.flags = RouteFlags::FibMatch;
        message
            .attributes
            .push(RouteAttribute::Destination(address.into()));
        let request = Request::new(RouteNetlinkMessage::GetRoute(message), 0);
        match self.ask(request)? {
            Ok(answer) => {
                let found = answer.iter().find(|m| m.kind == wire::RTM_NEWROUTE);
                Ok(found.and_then(|message| RouteMatch::parse(&message.body)))
            }
            Err(refusal) if matches!(refusal.errno(), Errno::NETUNREACH | Errno::HOSTUNREACH) => {
                Ok(None)
            }
            Err(source) => Err(Error::FindRoute { address, source }),
        }
    }

    fn permanent_neighbours(&mut self, ifindex: u32) -> Result<Vec<Neighbour>, Error> {
        let mut message = NeighbourMessage::default();
        message
            .attributes
            .push(NeighbourAttribute::IfIndex(ifindex));
        let listed = self.list_neighbours(message)?.into_iter();
        // The kernel does not obey every filter.
        let of_link = listed.filter(|(index, _)| *index == ifindex);
        Ok(of_link.map(|(_, one)| one).collect())
    }

    fn list_neighbours(
        &mut self,
        message: NeighbourMessage,
    ) -> Result<Vec<(u32, Neighbour)>, Error> {
        let answer = self.dump("neighbours", &RouteNetlinkMessage::GetNeighbour(message))?;
        let listed = answer.iter().filter(|m| m.kind == RTM_NEWNEIGH);
        Ok(listed.filter_map(|m| Neighbour::parse(&m.body)).collect())
    }

    /// Lists what the node reaches behind all of its links, by routes of this protocol.
    ///
    /// It is one dump of neighbours and one of routes for each family, however many links there are.
    ///
    /// # Errors
    /// [`Error::List`], [`Error::DumpInterrupted`].
    pub fn reached(&mut self, protocol: u8) -> Result<Reached, Error> {
        let routes = self.routes_by(protocol)?.into_iter();
        let single = routes
            .filter(|route| route.prefix_len == full_length(route.dst) && route.gateway.is_none());
        let neighbours = self.list_neighbours(NeighbourMessage::default())?;
        let neighbours = neighbours.into_iter();
        Ok(Reached {
            routes: single.map(|route| (route.ifindex, route.dst)).collect(),
            neighbours: neighbours
                .map(|(ifindex, one)| (ifindex, one.address, one.mac))
                .collect(),
        })
    }
}

pub(crate) const fn family(ip: IpAddr) -> AddressFamily {
    match ip {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

pub(crate) const fn full_length(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn only_permanent_entries_are_read_with_their_link() {
        let entry = |ifindex: u8, state: u8| {
            let mut body = vec![2, 0, 0, 0, ifindex, 0, 0, 0, state, 0, 0, 0];
            body.extend([8, 0, 1, 0, 10, 0, 0, 7]);
            body.extend([10, 0, 2, 0, 2, 0, 0, 0, 0, 9, 0, 0]);
            body
        };
        let read = Neighbour::parse(&entry(4, 0x80)).expect("an entry");
        let expected = Neighbour {
            address: ip("10.0.0.7"),
            mac: [2, 0, 0, 0, 0, 9],
        };
        assert_eq!(read, (4, expected));
        assert_eq!(Neighbour::parse(&entry(4, 0x04)), None);
    }

    #[test]
    fn a_match_says_whether_the_address_is_on_the_link() {
        let route = |kind: u8, gateway: bool| {
            let mut body = vec![2, 24, 0, 0, 254, 2, 0, kind, 0, 0, 0, 0];
            body.extend([8, 0, 4, 0, 3, 0, 0, 0]);
            if gateway {
                body.extend([8, 0, 5, 0, 10, 0, 0, 1]);
            }
            RouteMatch::parse(&body).expect("a match")
        };
        assert!(route(RTN_UNICAST, false).is_on_link());
        assert!(!route(RTN_UNICAST, true).is_on_link());
        assert!(!route(RTN_LOCAL, false).is_on_link());
        let shown = route(RTN_UNICAST, true).to_string();
        assert_eq!(shown, "out of link 3 via 10.0.0.1");
        assert_eq!(
            route(RTN_LOCAL, false).to_string(),
            "as an address of its own"
        );
    }
}
