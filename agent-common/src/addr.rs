//! Addresses as the maps hold them: bytes in wire order.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An Ethernet address, 6 bytes in wire order.
///
/// Aligned so that BPF, which has no unaligned stack access, need not handle it byte by byte.
#[repr(C, align(2))]
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct MacAddr(pub [u8; 6]);

/// MAC address of the virtual gateway of every L3 network, the same on all nodes.
pub const GATEWAY_MAC: MacAddr = MacAddr([0x02, 0x70, 0x6e, 0x00, 0x00, 0x01]);

/// Next hop of an IPv4 L3 network without a gateway address of its own (RFC 3927).
pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

/// The link-local address of the virtual gateway of every L3 network.
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

impl MacAddr {
    /// `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// True for an address one station may own: not a group address and not all zero.
    #[inline(always)]
    pub const fn is_unicast(self) -> bool {
        let [a, b, c, d, e, f] = self.0;
        a & 1 == 0 && (a | b | c | d | e | f) != 0
    }

    /// True for broadcast and multicast addresses (I/G bit set, IEEE 802).
    #[inline(always)]
    pub const fn is_group(self) -> bool {
        let [a, ..] = self.0;
        a & 1 != 0
    }

    /// True for `01:80:c2:00:00:0x`, which no bridge forwards (IEEE 802.1D table 7-10).
    #[inline(always)]
    pub const fn is_link_control(self) -> bool {
        let [a, b, c, d, e, f] = self.0;
        a == 0x01 && b == 0x80 && c == 0xc2 && d == 0 && e == 0 && f & 0xf0 == 0
    }

    /// The link-local address made of this MAC (RFC 4291 appendix A, modified EUI-64).
    pub const fn link_local(self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.0;
        Ipv6Addr::from_octets([
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
}

impl fmt::Display for MacAddr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// The text is not six hexadecimal octets separated by `:`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MacAddrParseError;

impl fmt::Display for MacAddrParseError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a MAC address is six hexadecimal octets, as in 02:00:00:00:00:2a")
    }
}

impl core::error::Error for MacAddrParseError {}

impl FromStr for MacAddr {
    type Err = MacAddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0_u8; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().ok_or(MacAddrParseError)?;
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(MacAddrParseError);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| MacAddrParseError)?;
        }
        if parts.next().is_some() {
            Err(MacAddrParseError)
        } else {
            Ok(Self(bytes))
        }
    }
}

/// An IPv6 address, or an IPv4 address mapped into one, in wire order.
///
/// An IPv4 address is `::ffff:a.b.c.d`. Aligned for the reason given at [`MacAddr`].
#[repr(C, align(4))]
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Ip16(pub [u8; 16]);

impl Ip16 {
    /// The unspecified address, also "none" in map values.
    pub const NONE: Self = Self([0; 16]);

    /// The two addresses of an IPv6 header, source first.
    #[inline(always)]
    pub fn pair(bytes: [u8; 32]) -> (Self, Self) {
        let (mut source, mut destination) = ([0; 16], [0; 16]);
        let (first, second) = bytes.split_at(16);
        source.copy_from_slice(first);
        destination.copy_from_slice(second);
        (Self(source), Self(destination))
    }

    /// Maps an IPv4 address.
    #[inline(always)]
    pub const fn from_v4(ip: [u8; 4]) -> Self {
        Self((0xffff_0000_0000_u128 | u32::from_be_bytes(ip) as u128).to_be_bytes())
    }

    /// The IPv4 address that it stands for.
    #[inline(always)]
    pub const fn v4(&self) -> Option<[u8; 4]> {
        let [.., a, b, c, d] = self.0;
        if self.is_mapped_v4() {
            Some([a, b, c, d])
        } else {
            None
        }
    }

    /// The address as four words in wire order, as the kernel has it.
    #[inline(always)]
    pub const fn words(&self) -> [u32; 4] {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = self.0;
        [
            u32::from_ne_bytes([a, b, c, d]),
            u32::from_ne_bytes([e, f, g, h]),
            u32::from_ne_bytes([i, j, k, l]),
            u32::from_ne_bytes([m, n, o, p]),
        ]
    }

    /// The address of four words in wire order.
    #[inline(always)]
    pub const fn from_words([a, b, c, d]: [u32; 4]) -> Self {
        let ([i, j, k, l], [m, n, o, p]) = (c.to_ne_bytes(), d.to_ne_bytes());
        let ([a, b, c, d], [e, f, g, h]) = (a.to_ne_bytes(), b.to_ne_bytes());
        Self([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p])
    }

    /// Sets it to another one, word by word.
    ///
    /// Compilers make a call of an assignment, which copies single bytes in a program.
    #[inline(always)]
    pub const fn set(&mut self, other: &Self) {
        *self = Self::from_words(other.words());
    }

    /// The first address of the prefix of this length, bits, that the address is in.
    #[inline(always)]
    pub const fn first_of(&self, length: u8) -> Self {
        let length = length as u32;
        let [a, b, c, d] = self.words();
        Self::from_words([
            a & mask(length, 0),
            b & mask(length, 32),
            c & mask(length, 64),
            d & mask(length, 96),
        ])
    }

    /// True for `ff00::/8`.
    #[inline(always)]
    pub const fn is_multicast_v6(&self) -> bool {
        let [a, ..] = self.0;
        a == 0xff
    }

    /// True for `fe80::/10`.
    #[inline(always)]
    pub const fn is_link_local_v6(&self) -> bool {
        let [a, b, ..] = self.0;
        a == 0xfe && b & 0xc0 == 0x80
    }

    /// True for 169.254.0.0/16 (RFC 3927) and `fe80::/10`.
    #[inline(always)]
    pub const fn is_link_local(&self) -> bool {
        let [.., a, b, _, _] = self.0;
        if self.is_mapped_v4() {
            a == 169 && b == 254
        } else {
            self.is_link_local_v6()
        }
    }

    /// True for `::ffff:0:0/96`, an IPv4 address in the maps (RFC 4291 2.5.5.2).
    #[inline(always)]
    pub const fn is_mapped_v4(&self) -> bool {
        u128::from_be_bytes(self.0) >> 32 == 0xffff
    }

    /// True for addresses of more than one host, and for those above them.
    ///
    /// 224.0.0.0/3 (RFC 1112 section 4, RFC 919 section 7) and `ff00::/8`. No host has one from 240.0.0.0 on.
    #[inline(always)]
    pub const fn is_group(&self) -> bool {
        let [.., a, _, _, _] = self.0;
        if self.is_mapped_v4() {
            a >= 0xe0
        } else {
            self.is_multicast_v6()
        }
    }

    /// True for addresses by which a host means itself.
    ///
    /// 0.0.0.0/8, 127.0.0.0/8 (RFC 1122 section 3.2.1.3), `::` and `::1` (RFC 4291 section 2.5).
    #[inline(always)]
    pub const fn is_of_this_host(&self) -> bool {
        let [.., a, _, _, _] = self.0;
        if self.is_mapped_v4() {
            a == 0 || a == 127
        } else {
            u128::from_be_bytes(self.0) >> 1 == 0
        }
    }

    /// Equality by two 64-bit words: what the verifier and the processor like best.
    #[inline(always)]
    pub fn same(&self, other: &Self) -> bool {
        u128::from_ne_bytes(self.0) == u128::from_ne_bytes(other.0)
    }
}

/// Returns the mask of one word for a prefix of `length` bits, in wire order.
///
/// The word has 32 bits and begins at bit `from` of the address.
#[inline(always)]
const fn mask(length: u32, from: u32) -> u32 {
    let bits = length.saturating_sub(from);
    let mask = if bits == 0 {
        0
    } else if bits >= 32 {
        u32::MAX
    } else {
        u32::MAX << (32 - bits)
    };
    mask.to_be()
}

impl From<IpAddr> for Ip16 {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => Self::from_v4(v4.octets()),
            IpAddr::V6(v6) => Self(v6.octets()),
        }
    }
}

impl From<Ip16> for IpAddr {
    fn from(ip: Ip16) -> Self {
        let v6 = Ipv6Addr::from_octets(ip.0);
        v6.to_ipv4_mapped().map_or(Self::V6(v6), Self::V4)
    }
}

impl fmt::Display for Ip16 {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&IpAddr::from(*self), out)
    }
}

impl fmt::Debug for Ip16 {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_prints_as_it_parses() {
        let mac: MacAddr = "02:00:5E:10:00:ff".parse().unwrap();
        assert_eq!(mac.to_string(), "02:00:5e:10:00:ff");
        for bad in [
            "",
            "02:00:5e:10:00",
            "02:00:5e:10:00:ff:00",
            "2:0:5e:10:0:ff",
            "0+:00:5e:10:00:ff",
        ] {
            assert!(bad.parse::<MacAddr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn link_local_follows_rfc_4291_appendix_a() {
        let mac: MacAddr = "34:56:78:9a:bc:de".parse().unwrap();
        assert_eq!(mac.link_local().to_string(), "fe80::3656:78ff:fe9a:bcde");
    }

    #[test]
    fn only_bridge_reserved_groups_are_link_control() {
        assert!(MacAddr([1, 0x80, 0xc2, 0, 0, 0x0e]).is_link_control());
        assert!(!MacAddr([1, 0x80, 0xc2, 0, 0, 0x10]).is_link_control());
        assert!(!MacAddr::BROADCAST.is_link_control());
    }

    #[test]
    fn groups_and_addresses_of_the_host_itself_are_known_in_both_families() {
        let of = |text: &str| {
            let ip = Ip16::from(text.parse::<IpAddr>().unwrap());
            (ip.is_group(), ip.is_of_this_host())
        };
        for group in [
            "224.0.0.0",
            "239.1.2.3",
            "255.255.255.255",
            "240.0.0.1",
            "ff02::1",
        ] {
            assert_eq!(of(group), (true, false), "{group}");
        }
        for own in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "127.255.0.9",
            "::",
            "::1",
        ] {
            assert_eq!(of(own), (false, true), "{own}");
        }
        for other in [
            "1.0.0.0",
            "128.0.0.1",
            "169.254.20.10",
            "223.9.9.9",
            "::2",
            "fe80::1",
        ] {
            assert_eq!(of(other), (false, false), "{other}");
        }
    }

    #[test]
    fn link_local_addresses_are_known_in_both_families() {
        let of = |text: &str| Ip16::from(text.parse::<IpAddr>().unwrap()).is_link_local();
        for yes in ["169.254.0.0", "169.254.169.254", "fe80::1", "febf::1"] {
            assert!(of(yes), "{yes}");
        }
        for no in [
            "169.253.0.1",
            "168.254.0.1",
            "fec0::1",
            "fd00::a9fe:1",
            "::",
        ] {
            assert!(!of(no), "{no}");
        }
    }

    #[test]
    fn both_families_survive_the_mapped_form() {
        for text in ["10.1.2.3", "fd10::1", "::"] {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(IpAddr::from(Ip16::from(ip)), ip);
        }
    }
}
