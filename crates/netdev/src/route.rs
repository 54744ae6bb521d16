//! Routes out of links.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteProtocol,
    RouteScope as WireScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;

use crate::connection::{Connection, Request};
use crate::error::{Error, LinkId, Refusal};
use crate::wire;

/// `sizeof(struct rtmsg)`.
const RTMSG: usize = 12;
/// `sizeof(struct rtnexthop)`.
const RTNEXTHOP: usize = 8;
// linux/rtnetlink.h
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTAX_MTU: u16 = 2;
const RTAX_ADVMSS: u16 = 8;
const RTNH_F_ONLINK: u32 = 4;
const RTN_UNICAST: u8 = 1;
const RT_TABLE_MAIN: u32 = 254;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// How far a route's destination is (`rtm_scope`); IPv6 has no use for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteScope {
    /// Anywhere (`global`).
    Universe,
    /// On this link.
    Link,
    /// On this host.
    Host,
}

/// A unicast route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination; all bits beyond `prefix_len` zero.
    pub dst: IpAddr,
    /// Length of the destination's prefix, bits; 0 is the default route.
    pub prefix_len: u8,
    /// Next hop; `None`: destinations are neighbours on the link.
    ///
    /// An IPv6 next hop for an IPv4 destination needs Linux 5.2.
    pub gateway: Option<IpAddr>,
    /// The link. Not looked at in [`PodEnd::routes`](crate::PodEnd::routes).
    pub ifindex: u32,
    /// Take the gateway for a neighbour without an address that covers it (`onlink`).
    pub onlink: bool,
    /// `None`: link without a gateway, universe with one, as `ip route` does.
    pub scope: Option<RouteScope>,
    /// Preference, lower wins (`RTA_PRIORITY`); `None`: 0 for IPv4, 1024 for IPv6.
    pub metric: Option<u32>,
    /// Path MTU, bytes.
    pub mtu: Option<u32>,
    /// TCP maximum segment size to advertise, bytes.
    pub advmss: Option<u32>,
    /// Source address that the host prefers (`RTA_PREFSRC`); one of its own.
    pub source: Option<IpAddr>,
    /// Routing table; `None`: main.
    pub table: Option<u32>,
    /// Its maker (`rtm_protocol`); `None`: static, as with `ip route`.
    pub protocol: Option<u8>,
}

impl Route {
    /// A route in the main table, all options at the kernel's defaults.
    pub fn new(dst: IpAddr, prefix_len: u8, gateway: Option<IpAddr>, ifindex: u32) -> Self {
        Self {
            dst,
            prefix_len,
            gateway,
            ifindex,
            onlink: false,
            scope: None,
            metric: None,
            mtu: None,
            advmss: None,
            source: None,
            table: None,
            protocol: None,
        }
    }

    /// The default route of the gateway's family.
    pub fn default_via(gateway: IpAddr, ifindex: u32) -> Self {
        let dst = match gateway {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        Self::new(dst, 0, Some(gateway), ifindex)
    }

    pub(crate) fn request(&self) -> Request {
        let mut message = RouteMessage::default();
        message.header = self.header();
        let attributes = &mut message.attributes;
        if self.prefix_len > 0 {
            attributes.push(RouteAttribute::Destination(self.dst.into()));
        }
        match (self.dst, self.gateway) {
            (IpAddr::V4(_), Some(IpAddr::V6(gateway))) => {
                attributes.push(RouteAttribute::Via(gateway.into()));
            }
            (_, Some(gateway)) => attributes.push(RouteAttribute::Gateway(gateway.into())),
            (_, None) => {}
        }
        attributes.push(RouteAttribute::Oif(self.ifindex));
        attributes.push(RouteAttribute::Table(self.table()));
        attributes.extend(self.metric.map(RouteAttribute::Priority));
        let source = self
            .source
            .map(|source| RouteAttribute::PrefSource(source.into()));
        attributes.extend(source);
        let metrics: Vec<_> = self
            .mtu
            .map(RouteMetric::Mtu)
            .into_iter()
            .chain(self.advmss.map(RouteMetric::Advmss))
            .collect();
        if !metrics.is_empty() {
            attributes.push(RouteAttribute::Metrics(metrics));
        }
        Request::new(
            RouteNetlinkMessage::NewRoute(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
    }

    /// Asks to remove a route as [`Connection::routes`] lists it.
    pub(crate) fn removal(&self) -> Request {
        let mut message = RouteMessage::default();
        message.header = self.header();
        let attributes = &mut message.attributes;
        if self.prefix_len > 0 {
            attributes.push(RouteAttribute::Destination(self.dst.into()));
        }
        match (self.dst, self.gateway) {
            (IpAddr::V4(_), Some(IpAddr::V6(gateway))) => {
                attributes.push(RouteAttribute::Via(gateway.into()));
            }
            (_, Some(gateway)) => attributes.push(RouteAttribute::Gateway(gateway.into())),
            (_, None) => {}
        }
        attributes.push(RouteAttribute::Oif(self.ifindex));
        attributes.push(RouteAttribute::Table(self.table()));
        attributes.extend(self.metric.map(RouteAttribute::Priority));
        Request::new(RouteNetlinkMessage::DelRoute(message), 0)
    }

    fn header(&self) -> RouteHeader {
        let scope = match (self.dst, self.scope) {
            (IpAddr::V6(_), _) | (_, Some(RouteScope::Universe)) => WireScope::Universe,
            (_, Some(RouteScope::Link)) => WireScope::Link,
            (_, Some(RouteScope::Host)) => WireScope::Host,
            (_, None) if self.gateway.is_none() => WireScope::Link,
            (_, None) => WireScope::Universe,
        };
        RouteHeader {
            address_family: if self.dst.is_ipv4() {
                AddressFamily::Inet
            } else {
                AddressFamily::Inet6
            },
            destination_prefix_length: self.prefix_len,
            // Too small for larger table numbers; RTA_TABLE overrides it.
            table: u8::try_from(self.table()).unwrap_or(RouteHeader::RT_TABLE_UNSPEC),
            protocol: self
                .protocol
                .map_or(RouteProtocol::Static, RouteProtocol::from),
            scope,
            kind: RouteType::Unicast,
            flags: if self.onlink {
                RouteFlags::Onlink
            } else {
                RouteFlags::empty()
            },
            ..RouteHeader::default()
        }
    }

    fn table(&self) -> u32 {
        self.table.unwrap_or(RT_TABLE_MAIN)
    }

    pub(crate) fn refused(&self, link: LinkId, source: Refusal) -> Error {
        Error::AddRoute {
            route: self.to_string(),
            link,
            source,
        }
    }

    /// Reads an `RTM_NEWROUTE`; `None` for anything but a single-path unicast route.
    fn parse(body: &[u8]) -> Option<Self> {
        // struct rtmsg: family, dst_len, src_len, tos, table, protocol, scope, type, flags (u32).
        let unspecified: IpAddr = match *body.first()? {
            AF_INET => Ipv4Addr::UNSPECIFIED.into(),
            AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
            _ => return None,
        };
        if *body.get(7)? != RTN_UNICAST {
            return None;
        }
        let mut route = Self::new(unspecified, *body.get(1)?, None, 0);
        route.table = Some(u32::from(*body.get(4)?));
        route.protocol = body.get(5).copied();
        route.scope = match *body.get(6)? {
            0 => Some(RouteScope::Universe),
            253 => Some(RouteScope::Link),
            254 => Some(RouteScope::Host),
            _ => None,
        };
        route.onlink = wire::u32_at(body, 8)? & RTNH_F_ONLINK != 0;
        for (kind, value) in wire::attributes(body.get(RTMSG..)?) {
            match kind {
                RTA_DST => route.dst = wire::ip(value)?,
                RTA_OIF => route.ifindex = wire::u32_at(value, 0)?,
                RTA_GATEWAY => route.gateway = wire::ip(value),
                // struct rtvia: family (u16), address.
                RTA_VIA => route.gateway = wire::ip(value.get(2..)?),
                RTA_PRIORITY => route.metric = wire::u32_at(value, 0),
                RTA_TABLE => route.table = wire::u32_at(value, 0),
                RTA_METRICS => {
                    for (metric, value) in wire::attributes(value) {
                        match metric {
                            RTAX_MTU => route.mtu = wire::u32_at(value, 0),
                            RTAX_ADVMSS => route.advmss = wire::u32_at(value, 0),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        (route.ifindex != 0).then_some(route)
    }
}

/// In the words of `ip route`.
impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.dst, self.prefix_len)?;
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        if self.onlink {
            f.write_str(" onlink")?;
        }
        if let Some(metric) = self.metric {
            write!(f, " metric {metric}")?;
        }
        if let Some(table) = self.table {
            write!(f, " table {table}")?;
        }
        Ok(())
    }
}

/// The links of a default route of the main table; none of any other route.
fn default_links(body: &[u8]) -> Vec<u32> {
    let is_default = body.get(1) == Some(&0) && body.get(7) == Some(&RTN_UNICAST);
    let Some(rest) = body.get(RTMSG..).filter(|_| is_default) else {
        return Vec::new();
    };
    let mut links = Vec::new();
    let mut table = body.get(4).copied().map_or(0, u32::from);
    for (kind, value) in wire::attributes(rest) {
        match kind {
            RTA_OIF => links.extend(wire::u32_at(value, 0)),
            RTA_TABLE => table = wire::u32_at(value, 0).unwrap_or(table),
            RTA_MULTIPATH => {
                let mut hops = value;
                // struct rtnexthop: length (u16), flags, hops, link (i32); then attributes.
                while let (Some(length), Some(link)) =
                    (wire::u16_at(hops, 0), wire::u32_at(hops, 4))
                {
                    links.push(link);
                    let length = usize::from(length).next_multiple_of(4).max(RTNEXTHOP);
                    hops = hops.get(length..).unwrap_or_default();
                }
            }
            _ => {}
        }
    }
    if table == RT_TABLE_MAIN {
        links
    } else {
        Vec::new()
    }
}

impl Connection {
    /// Adds a route. The link must be up.
    ///
    /// # Errors
    /// [`Error::AddRoute`], [`Error::is_exists`] if the table has a route to that destination with
    /// that metric.
    pub fn add_route(&mut self, route: &Route) -> Result<(), Error> {
        match self.ask(route.request())? {
            Ok(_) => Ok(()),
            Err(source) => Err(route.refused(route.ifindex.into(), source)),
        }
    }

    /// Removes the default routes of a family out of a link; returns their number.
    ///
    /// They are in the main table, from any maker.
    ///
    /// # Errors
    /// [`Error::RemoveRoute`], [`Error::List`], [`Error::is_gone`] if there is no such link.
    pub fn remove_default_routes(&mut self, ifindex: u32, v4: bool) -> Result<usize, Error> {
        let mut removed = 0;
        for route in self.routes(ifindex)? {
            let is_default = route.prefix_len == 0 && route.dst.is_ipv4() == v4;
            if !is_default || route.table() != RT_TABLE_MAIN {
                continue;
            }
            removed += usize::from(self.remove_route(&route)?);
        }
        Ok(removed)
    }

    /// Removes a route as it was listed; false when it was gone already.
    ///
    /// With a protocol, only a route of that one.
    ///
    /// # Errors
    /// [`Error::RemoveRoute`].
    pub fn remove_route(&mut self, route: &Route) -> Result<bool, Error> {
        match self.ask(route.removal())? {
            Ok(_) => Ok(true),
            Err(refusal) if refusal.errno() == Errno::SRCH => Ok(false),
            Err(source) => Err(Error::RemoveRoute {
                route: route.to_string(),
                link: route.ifindex.into(),
                source,
            }),
        }
    }

    /// Lists the unicast routes of the main table of this protocol, IPv4 first.
    ///
    /// # Errors
    /// [`Error::List`], [`Error::DumpInterrupted`].
    pub fn routes_by(&mut self, protocol: u8) -> Result<Vec<Route>, Error> {
        let mut message = RouteMessage::default();
        message.header.protocol = RouteProtocol::from(protocol);
        self.list_routes(&message, |route| {
            route.protocol == Some(protocol) && route.table() == RT_TABLE_MAIN
        })
    }

    /// Lists the unicast routes of the main table and of another one, IPv4 first.
    ///
    /// # Errors
    /// [`Error::List`], [`Error::DumpInterrupted`].
    pub fn routes_beside(&mut self, table: u32) -> Result<Vec<Route>, Error> {
        self.list_routes(&RouteMessage::default(), |route| {
            [RT_TABLE_MAIN, table].contains(&route.table())
        })
    }

    /// Lists the unicast routes out of a link, all tables, IPv4 first.
    ///
    /// The kernel's own are included.
    ///
    /// # Errors
    /// [`Error::List`], [`Error::is_gone`] if there is no such link; [`Error::DumpInterrupted`].
    pub fn routes(&mut self, ifindex: u32) -> Result<Vec<Route>, Error> {
        let mut message = RouteMessage::default();
        message.attributes.push(RouteAttribute::Oif(ifindex));
        self.list_routes(&message, |route| route.ifindex == ifindex)
    }

    /// Lists the links of default routes in the main table, in order.
    ///
    /// All next hops of a route are included.
    ///
    /// # Errors
    /// [`Error::List`], [`Error::DumpInterrupted`].
    pub fn default_links(&mut self) -> Result<Vec<u32>, Error> {
        let mut links = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            let answer = self.dump("routes", &RouteNetlinkMessage::GetRoute(message))?;
            for listed in answer.iter().filter(|m| m.kind == wire::RTM_NEWROUTE) {
                if listed.body.first() == Some(&u8::from(family)) {
                    links.extend(default_links(&listed.body));
                }
            }
        }
        links.sort_unstable();
        links.dedup();
        Ok(links)
    }

    /// Unicast routes of both families; the kernel does not obey every filter.
    fn list_routes(
        &mut self,
        filter: &RouteMessage,
        keep: impl Fn(&Route) -> bool,
    ) -> Result<Vec<Route>, Error> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = filter.clone();
            message.header.address_family = family;
            let answer = self.dump("routes", &RouteNetlinkMessage::GetRoute(message))?;
            let family = u8::from(family);
            // A kernel without that family answers for another one.
            let listed = answer
                .iter()
                .filter(|m| m.kind == wire::RTM_NEWROUTE && m.body.first() == Some(&family))
                .filter_map(|m| Route::parse(&m.body));
            routes.extend(listed.filter(&keep));
        }
        Ok(routes)
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::Emitable;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn through_the_wire(route: &Route) -> Route {
        let mut message = RouteMessage::default();
        message.header = route.header();
        message
            .attributes
            .push(RouteAttribute::Destination(route.dst.into()));
        message.attributes.push(RouteAttribute::Oif(route.ifindex));
        message
            .attributes
            .extend(route.metric.map(RouteAttribute::Priority));
        let metrics = route.mtu.map(RouteMetric::Mtu).into_iter().collect();
        message.attributes.push(RouteAttribute::Metrics(metrics));
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        Route::parse(&bytes).expect("a route")
    }

    #[test]
    fn a_route_without_gateway_has_link_scope_as_with_ip_route() {
        let route = Route {
            mtu: Some(1400),
            ..Route::new(ip("10.0.0.0"), 8, None, 4)
        };
        let read = through_the_wire(&route);
        assert_eq!(read.scope, Some(RouteScope::Link));
        assert_eq!(
            (read.dst, read.prefix_len, read.mtu),
            (route.dst, 8, Some(1400))
        );
        assert_eq!(read.table, Some(RT_TABLE_MAIN));
    }

    #[test]
    fn an_ipv6_route_has_universe_scope_whatever_is_asked() {
        let route = Route {
            scope: Some(RouteScope::Link),
            metric: Some(7),
            ..Route::new(ip("fd00::"), 8, None, 4)
        };
        let read = through_the_wire(&route);
        assert_eq!(
            (read.scope, read.metric),
            (Some(RouteScope::Universe), Some(7))
        );
    }

    #[test]
    fn a_blackhole_is_not_a_route_out_of_a_link() {
        let mut body = vec![AF_INET, 0, 0, 0, 254, 4, 0, 6, 0, 0, 0, 0];
        body.extend([8, 0, 4, 0, 4, 0, 0, 0]);
        assert_eq!(Route::parse(&body), None);
        body[7] = RTN_UNICAST;
        assert_eq!(Route::parse(&body).map(|route| route.ifindex), Some(4));
    }

    #[test]
    fn the_links_of_a_default_route_are_all_of_its_next_hops_and_those_of_other_routes_none() {
        let head = |length: u8, table: u8| vec![AF_INET, length, 0, 0, table, 4, 0, 1, 0, 0, 0, 0];
        let oif = [8, 0, 4, 0, 4, 0, 0, 0];
        let single = [head(0, 254), oif.to_vec()].concat();
        assert_eq!(default_links(&single), [4]);
        assert_eq!(default_links(&[head(8, 254), oif.to_vec()].concat()), []);
        assert_eq!(default_links(&[head(0, 100), oif.to_vec()].concat()), []);
        let hop = |link: u8| {
            [
                vec![16, 0, 0, 0, link, 0, 0, 0],
                vec![8, 0, 5, 0, 10, 0, 0, 1],
            ]
            .concat()
        };
        let several = [head(0, 254), vec![36, 0, 9, 0], hop(4), hop(6)].concat();
        assert_eq!(default_links(&several), [4, 6]);
    }

    #[test]
    fn a_route_is_shown_in_the_words_of_ip_route() {
        let mut route = Route::default_via(ip("169.254.1.1"), 3);
        route.onlink = true;
        route.table = Some(100);
        assert_eq!(
            route.to_string(),
            "0.0.0.0/0 via 169.254.1.1 onlink table 100"
        );
    }
}
