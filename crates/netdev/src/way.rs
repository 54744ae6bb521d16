//! Finds ways to other nodes: the link and next hop of the kernel, and IPsec.
//!
//! Changes of any of these are watched.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAttribute, RouteMessage};
use netlink_sys::protocols::{NETLINK_ROUTE, NETLINK_XFRM};
use netlink_sys::{AsyncSocket, AsyncSocketExt, Socket, SocketAddr, TokioSocket};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use tokio::net::UdpSocket;

use crate::connection::{self, Connection, Request};
use crate::error::Error;
use crate::reach::{RouteKind, RouteMatch, family, full_length};
use crate::wire;

/// `RTMGRP_*` of linux/rtnetlink.h: links, addresses, routes and rules.
///
/// They are of both families, as far as they have a bit; and `RTNLGRP_IPV6_RULE`, `RTNLGRP_NEXTHOP`,
/// which have only numbers.
const GROUPS: u32 = 1 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | 1 << 18 | 1 << 31;
/// `XFRMNLGRP_POLICY` (linux/xfrm.h) as a bit.
const POLICY_GROUP: u32 = 1 << 3;
/// `XFRM_MSG_GETSPDINFO`, `XFRM_MSG_NEWSPDINFO`: how many policies there are.
const GETSPDINFO: u16 = 0x25;
const NEWSPDINFO: u16 = 0x24;
/// `XFRMA_SPD_INFO`: struct xfrmu_spdinfo, six counts of policies.
///
/// The first three are of packets in, out and forwarded.
const SPD_INFO: u16 = 1;
/// `NLM_F_REQUEST`.
const NLM_F_REQUEST: u16 = 1;
/// ICMPv6 type, RFC 4443 section 3.2.
const PACKET_TOO_BIG: u8 = 2;
/// Time in which the kernel takes note of a router's message.
///
/// A raw socket hears the message before that.
const NOTED: Duration = Duration::from_millis(5);
const RECEIVE_BUFFER: usize = 32 * 1024;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How the kernel would send to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The link.
    pub ifindex: u32,
    /// The router, or the address itself when it is on the link.
    pub next_hop: IpAddr,
    /// Largest packet, bytes, as the route or a router has told it.
    pub mtu: Option<u32>,
}

impl Connection {
    /// Returns the kernel's way to this address, from one of its own.
    ///
    /// `None` when it would not send, or not by one link.
    ///
    /// # Errors
    /// [`Error::FindRoute`].
    pub fn way_to(&mut self, address: IpAddr, from: IpAddr) -> Result<Option<Way>, Error> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(address);
        message.header.destination_prefix_length = full_length(address);
        message.header.source_prefix_length = full_length(from);
        message.attributes = vec![
            RouteAttribute::Destination(address.into()),
            RouteAttribute::Source(from.into()),
        ];
        match self.ask(Request::new(RouteNetlinkMessage::GetRoute(message), 0))? {
            Ok(answer) => {
                let found = answer.iter().find(|m| m.kind == wire::RTM_NEWROUTE);
                Ok(found.and_then(|found| parse(&found.body, address)))
            }
            Err(refusal)
                if matches!(
                    refusal.errno(),
                    Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::INVAL | Errno::ACCESS
                ) =>
            {
                Ok(None)
            }
            Err(source) => Err(Error::FindRoute { address, source }),
        }
    }
}

fn parse(body: &[u8], address: IpAddr) -> Option<Way> {
    let found = RouteMatch::parse(body)?;
    let is_one = found.kind == RouteKind::Unicast && found.ifindex != 0;
    is_one.then(|| Way {
        ifindex: found.ifindex,
        next_hop: found.gateway.unwrap_or(address),
        mtu: found.mtu,
    })
}

/// Reports whether the node has IPsec policies.
///
/// Packets that are sent past the node's stack would not meet them. In the calling thread's network
/// namespace.
///
/// # Errors
/// [`Error::OpenSocket`], and those of a connection.
pub fn has_ipsec_policies() -> Result<bool, Error> {
    let open = || -> io::Result<Socket> {
        let socket = Socket::new(NETLINK_XFRM)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
        Ok(socket)
    };
    let socket = match open() {
        Ok(socket) => socket,
        // A kernel without IPsec.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::PROTONOSUPPORT) => {
            return Ok(false);
        }
        Err(source) => return Err(Error::OpenSocket { source }),
    };
    // struct nlmsghdr, and flags that nobody reads.
    let mut request = Vec::with_capacity(20);
    request.extend(20_u32.to_ne_bytes());
    request.extend(GETSPDINFO.to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    request.extend([0; 12]);
    connection::send(&socket, &request)?;
    let mut buffer = Vec::with_capacity(RECEIVE_BUFFER);
    connection::receive(&socket, &mut buffer)?;
    let count = wire::messages(&buffer).find_map(|message| policies(message.kind, message.body));
    count.map(|count| count > 0).ok_or(Error::Malformed {
        what: "number of IPsec policies",
    })
}

fn policies(kind: u16, body: &[u8]) -> Option<u32> {
    if kind != NEWSPDINFO {
        return None;
    }
    let mut attributes = wire::attributes(body.get(4..)?);
    let (_, counts) = attributes.find(|(kind, _)| *kind == SPD_INFO)?;
    let count = |at| wire::u32_at(counts, at);
    Some(
        count(0)?
            .saturating_add(count(4)?)
            .saturating_add(count(8)?),
    )
}

/// Announces possible changes of ways.
///
/// See [`Netlink::watch_ways`](crate::Netlink::watch_ways).
pub struct WayMonitor {
    routes: TokioSocket,
    /// None where the kernel has no IPsec.
    policies: Option<TokioSocket>,
    /// Sockets for errors of routers: the kernel announces no smaller MTU.
    errors: [Option<UdpSocket>; 2],
    buffer: Vec<u8>,
}

impl WayMonitor {
    pub(crate) fn open() -> Result<Self, Error> {
        let open = |protocol, groups| -> io::Result<TokioSocket> {
            let mut socket = TokioSocket::new(protocol)?;
            socket.socket_mut().bind(&SocketAddr::new(0, groups))?;
            Ok(socket)
        };
        let raw = |family, protocol| -> io::Result<Option<UdpSocket>> {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match socket_with(family, SocketType::RAW, flags, Some(protocol)) {
                // A node without IPv6.
                Err(Errno::AFNOSUPPORT) => Ok(None),
                // Read as tokio reads any socket of datagrams.
                socket => Ok(Some(UdpSocket::from_std(socket?.into())?)),
            }
        };
        let failed = |source| Error::OpenSocket { source };
        let policies = match open(NETLINK_XFRM, POLICY_GROUP) {
            Ok(socket) => Some(socket),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::PROTONOSUPPORT) => None,
            Err(source) => return Err(failed(source)),
        };
        Ok(Self {
            routes: open(NETLINK_ROUTE, GROUPS).map_err(failed)?,
            policies,
            errors: [
                raw(AddressFamily::INET, ipproto::ICMP).map_err(failed)?,
                raw(AddressFamily::INET6, ipproto::ICMPV6).map_err(failed)?,
            ],
            buffer: Vec::with_capacity(RECEIVE_BUFFER),
        })
    }

    /// Waits for a change of routes, rules, addresses, links, IPsec policies or MTU.
    ///
    /// The last is a router's "too big". May be dropped and called again. Changes between two calls are
    /// one change.
    ///
    /// # Errors
    /// [`Error::Receive`]; the monitor should be replaced then.
    pub async fn changed(&mut self) -> Result<(), Error> {
        let Self {
            routes,
            policies,
            errors: [v4, v6],
            buffer,
        } = self;
        buffer.clear();
        let mut other = Vec::with_capacity(RECEIVE_BUFFER);
        let policy = async {
            match policies {
                Some(policies) => policies.recv_from(&mut other).await.map(|_| ()),
                None => std::future::pending().await,
            }
        };
        let received = tokio::select! {
            received = routes.recv_from(buffer) => received.map(|_| ()),
            received = policy => received,
            received = too_big(v4.as_ref(), is_too_big_v4) => received,
            received = too_big(v6.as_ref(), is_too_big_v6) => received,
        };
        let outcome = match received {
            Ok(()) => Ok(()),
            // Some were lost: a change all the more.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOBUFS) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(source) => Err(Error::Receive { source }),
        };
        self.drain();
        outcome
    }

    fn drain(&mut self) {
        let sockets = [Some(&self.routes), self.policies.as_ref()];
        for socket in sockets.into_iter().flatten() {
            loop {
                self.buffer.clear();
                match socket.socket_ref().recv_from(&mut self.buffer, 0) {
                    Ok(_) => {}
                    Err(error) if Errno::from_io_error(&error) == Some(Errno::NOBUFS) => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
        }
    }
}

/// Waits for such a message, and until the kernel has taken note of it.
///
/// It comes here first.
async fn too_big(socket: Option<&UdpSocket>, is_it: fn(&[u8]) -> bool) -> io::Result<()> {
    let Some(socket) = socket else {
        return std::future::pending().await;
    };
    let mut buffer = [0; 128];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if is_it(buffer.get(..length).unwrap_or_default()) {
            break;
        }
    }
    tokio::time::sleep(NOTED).await;
    Ok(())
}

/// "Fragmentation needed" (RFC 792), behind an IPv4 header.
fn is_too_big_v4(packet: &[u8]) -> bool {
    let header = packet.first().map(|first| usize::from(first & 0x0f) * 4);
    let message = header.and_then(|header| packet.get(header..));
    message.is_some_and(|message| message.starts_with(&[3, 4]))
}

/// Reports whether the message is "Packet too big" of ICMPv6.
///
/// The kernel gives no IPv6 header to such a socket (RFC 3542 section 3).
fn is_too_big_v6(message: &[u8]) -> bool {
    message.first() == Some(&PACKET_TOO_BIG)
}

impl fmt::Debug for WayMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WayMonitor").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_of_packets_count_and_those_of_sockets_do_not() {
        let answer = |counts: [u32; 6]| {
            let mut body = vec![0, 0, 0, 0, 28, 0, 1, 0];
            body.extend(counts.iter().flat_map(|count| count.to_ne_bytes()));
            body
        };
        assert_eq!(policies(NEWSPDINFO, &answer([0, 0, 0, 2, 2, 2])), Some(0));
        for at in 0..3 {
            let mut counts = [0; 6];
            counts[at] = 1;
            assert_eq!(policies(NEWSPDINFO, &answer(counts)), Some(1));
        }
        assert_eq!(policies(NEWSPDINFO, &[0; 4]), None, "cut short");
        assert_eq!(policies(3, &answer([1; 6])), None, "another message");
    }

    #[test]
    fn a_router_that_says_too_big_is_understood_whatever_options_its_packet_has() {
        let packet = |words: u8, kind, code| {
            let mut packet = vec![0; usize::from(words) * 4];
            packet[0] = 0x40 | words;
            packet.extend([kind, code, 0, 0]);
            packet
        };
        assert!(is_too_big_v4(&packet(5, 3, 4)) && is_too_big_v4(&packet(8, 3, 4)));
        assert!(!is_too_big_v4(&packet(5, 3, 1)) && !is_too_big_v4(&packet(5, 8, 4)));
        assert!(!is_too_big_v4(&[]) && !is_too_big_v4(&[0x4f]));
    }

    #[test]
    fn a_way_needs_one_link() {
        let to: IpAddr = "10.0.0.7".parse().unwrap();
        let route = |kind: u8, link: bool, gateway: bool| {
            let mut body = vec![2, 32, 0, 0, 254, 2, 0, kind, 0, 0, 0, 0];
            if link {
                body.extend([8, 0, 4, 0, 3, 0, 0, 0]);
            }
            if gateway {
                body.extend([8, 0, 5, 0, 10, 0, 0, 1]);
            }
            // RTA_METRICS with RTAX_MTU.
            body.extend([12, 0, 8, 0, 8, 0, 2, 0]);
            body.extend(1400_u32.to_ne_bytes());
            parse(&body, to)
        };
        let expected = Way {
            ifindex: 3,
            next_hop: to,
            mtu: Some(1400),
        };
        assert_eq!(route(1, true, false), Some(expected));
        let next_hop = "10.0.0.1".parse().unwrap();
        let routed = Way {
            next_hop,
            ..expected
        };
        assert_eq!(route(1, true, true), Some(routed));
        assert_eq!(route(1, false, true), None);
        assert_eq!(route(2, true, false), None, "an address of its own");
    }
}
