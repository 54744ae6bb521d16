//! IP addresses of links.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressScope,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::connection::{Connection, Request};
use crate::error::{Error, LinkId};
use crate::link::Mac;
use crate::wire;

/// `sizeof(struct ifaddrmsg)`.
const IFADDRMSG: usize = 8;
// linux/if_addr.h
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
const IFA_F_DADFAILED: u32 = 0x08;
const IFA_F_TENTATIVE: u32 = 0x40;

/// An address to be added to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Length of the on-link prefix, bits.
    pub prefix_len: u8,
    /// IPv6 only: usable at once, without duplicate address detection (RFC 4862 §5.4,
    /// `IFA_F_NODAD`). Right where the allocator already guarantees that it is unique.
    pub nodad: bool,
    /// IPv4 only: valid on this host alone (`RT_SCOPE_HOST`), no source for others.
    pub host_only: bool,
}

impl Address {
    /// An address without duplicate address detection.
    pub fn new(ip: IpAddr, prefix_len: u8) -> Self {
        Self {
            ip,
            prefix_len,
            nodad: true,
            host_only: false,
        }
    }

    pub(crate) fn request(&self, ifindex: u32) -> Request {
        let message = RouteNetlinkMessage::NewAddress(self.message(ifindex));
        Request::new(message, NLM_F_CREATE | NLM_F_EXCL)
    }

    fn message(&self, ifindex: u32) -> AddressMessage {
        let mut message = AddressMessage::default();
        message.header.prefix_len = self.prefix_len;
        message.header.index = ifindex;
        let attributes = &mut message.attributes;
        attributes.push(AddressAttribute::Local(self.ip));
        attributes.push(AddressAttribute::Address(self.ip));
        match self.ip {
            IpAddr::V4(ip) => {
                message.header.family = AddressFamily::Inet;
                if ip.is_loopback() || self.host_only {
                    message.header.scope = AddressScope::Host;
                }
                let broadcast = broadcast(ip, self.prefix_len);
                attributes.extend(broadcast.map(AddressAttribute::Broadcast));
            }
            IpAddr::V6(_) => {
                message.header.family = AddressFamily::Inet6;
                if self.nodad {
                    message.header.flags = AddressHeaderFlags::Nodad;
                    attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
                }
            }
        }
        message
    }

    pub(crate) fn refused(&self, link: LinkId, source: crate::Refusal) -> Error {
        Error::AddAddress {
            address: self.to_string(),
            link,
            source,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix_len)
    }
}

/// The directed broadcast address of a prefix; none for /31 (RFC 3021) and /32.
fn broadcast(ip: Ipv4Addr, prefix_len: u8) -> Option<Ipv4Addr> {
    (prefix_len < 31).then(|| {
        let host_bits = u32::MAX.checked_shr(u32::from(prefix_len)).unwrap_or(0);
        Ipv4Addr::from_bits(ip.to_bits() | host_bits)
    })
}

/// Returns the link-local address of a MAC: `fe80::/64` and the modified EUI-64.
///
/// RFC 4291 §2.5.6 and appendix A, RFC 2464 §5.
pub fn link_local(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac;
    Ipv6Addr::from([
        0xfe,
        0x80,
        0,
        0,
        0,
        0,
        0,
        0,
        a ^ 2,
        b,
        c,
        0xff,
        0xfe,
        d,
        e,
        f,
    ])
}

/// An address a link has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressState {
    /// The address.
    pub ip: IpAddr,
    /// Length of the on-link prefix, bits.
    pub prefix_len: u8,
    /// Duplicate address detection is not over, the address not usable yet.
    pub tentative: bool,
    /// Duplicate address detection found another owner.
    pub dad_failed: bool,
}

impl AddressState {
    /// Reads the body of an `RTM_NEWADDR`: the link's index and the address.
    fn parse(body: &[u8]) -> Option<(u32, Self)> {
        // struct ifaddrmsg: family, prefixlen, flags, scope, index (u32).
        let prefix_len = *body.get(1)?;
        let mut flags = u32::from(*body.get(2)?);
        let ifindex = wire::u32_at(body, 4)?;
        let (mut local, mut address) = (None, None);
        for (kind, value) in wire::attributes(body.get(IFADDRMSG..)?) {
            match kind {
                IFA_ADDRESS => address = wire::ip(value),
                IFA_LOCAL => local = wire::ip(value),
                IFA_FLAGS => flags = wire::u32_at(value, 0)?,
                _ => {}
            }
        }
        // On a point-to-point link IFA_ADDRESS is the peer's; IPv6 may leave IFA_LOCAL out.
        let ip = local.or(address)?;
        let state = Self {
            ip,
            prefix_len,
            tentative: flags & IFA_F_TENTATIVE != 0,
            dad_failed: flags & IFA_F_DADFAILED != 0,
        };
        Some((ifindex, state))
    }
}

impl Connection {
    /// Adds an address; IPv4 with the broadcast address of its prefix.
    ///
    /// # Errors
    /// [`Error::AddAddress`], [`Error::is_exists`] if the link has it.
    pub fn add_address(&mut self, ifindex: u32, address: Address) -> Result<(), Error> {
        match self.ask(address.request(ifindex))? {
            Ok(_) => Ok(()),
            Err(source) => Err(address.refused(ifindex.into(), source)),
        }
    }

    /// The IPv4 and IPv6 addresses of a link.
    ///
    /// # Errors
    /// [`Error::List`], [`Error::is_gone`] if there is no such link; [`Error::DumpInterrupted`].
    pub fn addresses(&mut self, ifindex: u32) -> Result<Vec<AddressState>, Error> {
        let mut message = AddressMessage::default();
        message.header.index = ifindex;
        let answer = self.dump("addresses", &RouteNetlinkMessage::GetAddress(message))?;
        Ok(answer
            .iter()
            .filter(|message| message.kind == wire::RTM_NEWADDR)
            .filter_map(|message| AddressState::parse(&message.body))
            .filter(|(index, _)| *index == ifindex)
            .map(|(_, state)| state)
            .collect())
    }
}

impl Connection {
    /// Lists the addresses of all links, except those that hold on one link only.
    ///
    /// # Errors
    /// [`Error::List`]; [`Error::DumpInterrupted`].
    pub fn all_addresses(&mut self) -> Result<Vec<IpAddr>, Error> {
        let message = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answer = self.dump("addresses", &message)?;
        let found = answer
            .iter()
            .filter(|message| message.kind == wire::RTM_NEWADDR)
            .filter_map(|message| AddressState::parse(&message.body));
        let is_wide = |ip: &IpAddr| match ip {
            IpAddr::V4(ip) => !ip.is_link_local(),
            IpAddr::V6(ip) => !ip.is_unicast_link_local(),
        };
        Ok(found.map(|(_, state)| state.ip).filter(is_wide).collect())
    }

    /// The link that has an address, if one has it.
    ///
    /// # Errors
    /// [`Error::List`]; [`Error::DumpInterrupted`].
    pub fn holder_of(&mut self, ip: IpAddr) -> Result<Option<u32>, Error> {
        let message = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answer = self.dump("addresses", &message)?;
        Ok(answer
            .iter()
            .filter(|message| message.kind == wire::RTM_NEWADDR)
            .filter_map(|message| AddressState::parse(&message.body))
            .find(|(_, state)| state.ip == ip)
            .map(|(ifindex, _)| ifindex))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_local_address_follows_rfc_4291_appendix_a() {
        let example = link_local([0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde]);
        assert_eq!(
            example,
            "fe80::3656:78ff:fe9a:bcde"
                .parse::<Ipv6Addr>()
                .expect("an address")
        );
        // The universal/local bit is inverted both ways.
        assert_eq!(
            link_local([2, 0, 0, 0, 0, 0x2a]).to_string(),
            "fe80::ff:fe00:2a"
        );
    }

    #[test]
    fn broadcast_is_the_last_address_of_the_prefix_below_31_bits() {
        let ip: Ipv4Addr = "10.1.2.3".parse().expect("an address");
        let text = |len| broadcast(ip, len).map(|ip| ip.to_string());
        assert_eq!(text(24).as_deref(), Some("10.1.2.255"));
        assert_eq!(text(30).as_deref(), Some("10.1.2.3"));
        assert_eq!(text(8).as_deref(), Some("10.255.255.255"));
        assert_eq!(text(0).as_deref(), Some("255.255.255.255"));
        assert_eq!(text(31), None);
        assert_eq!(text(32), None);
    }

    #[test]
    fn only_an_ipv4_request_carries_a_broadcast_address() {
        use netlink_packet_core::Emitable;

        const IFA_BROADCAST: u16 = 4;
        let kinds = |text: &str, prefix_len| {
            let address = Address::new(text.parse().expect("an address"), prefix_len);
            let message = address.message(3);
            let mut bytes = vec![0; message.buffer_len()];
            message.emit(&mut bytes);
            wire::attributes(&bytes[IFADDRMSG..])
                .map(|(kind, _)| kind)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            kinds("10.1.2.3", 24),
            [IFA_LOCAL, IFA_ADDRESS, IFA_BROADCAST]
        );
        assert_eq!(kinds("10.1.2.3", 32), [IFA_LOCAL, IFA_ADDRESS]);
        assert_eq!(kinds("fd10::3", 64), [IFA_LOCAL, IFA_ADDRESS, IFA_FLAGS]);
    }

    #[test]
    fn extended_flags_replace_the_short_ones() {
        // fe80::1/64 on link 3, ifa_flags 0x80, IFA_FLAGS TENTATIVE|PERMANENT.
        let mut body = vec![10, 64, 0x80, 253, 3, 0, 0, 0, 20, 0, 1, 0];
        body.extend("fe80::1".parse::<Ipv6Addr>().expect("an address").octets());
        body.extend([8, 0, 8, 0, 0xc0, 0, 0, 0]);
        let (ifindex, state) = AddressState::parse(&body).expect("an address");
        assert_eq!(ifindex, 3);
        assert!(state.tentative && !state.dad_failed);
        assert_eq!(
            (state.ip.to_string().as_str(), state.prefix_len),
            ("fe80::1", 64)
        );
    }
}
