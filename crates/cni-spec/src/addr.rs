//! Parse and write addresses of CNI: `address/prefix`, a requested address, a MAC.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::SpecError;

/// An address with the prefix length of its subnet, host bits kept: `10.1.2.3/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IpPrefix {
    addr: IpAddr,
    prefix: u8,
}

impl IpPrefix {
    /// Puts address and prefix length (bits) together.
    ///
    /// # Errors
    /// [`SpecError::Address`] when the prefix is longer than the family has bits.
    pub fn new(addr: IpAddr, prefix: u8) -> Result<Self, SpecError> {
        if prefix > family_bits(addr) {
            return Err(SpecError::Address {
                value: format!("{addr}/{prefix}"),
                rule: "the prefix is longer than the address",
            });
        }
        Ok(Self { addr, prefix })
    }

    /// The address alone, as a prefix of full length.
    #[must_use]
    pub fn host(addr: IpAddr) -> Self {
        Self {
            addr,
            prefix: family_bits(addr),
        }
    }

    /// The address, host bits included.
    #[must_use]
    pub fn addr(self) -> IpAddr {
        self.addr
    }

    /// Prefix length in bits.
    #[must_use]
    pub fn prefix(self) -> u8 {
        self.prefix
    }

    /// Whether the address is IPv4.
    #[must_use]
    pub fn is_ipv4(self) -> bool {
        self.addr.is_ipv4()
    }
}

fn family_bits(addr: IpAddr) -> u8 {
    if addr.is_ipv4() { 32 } else { 128 }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.prefix)
    }
}

impl FromStr for IpPrefix {
    type Err = SpecError;

    /// Reads `address/prefix`; without a prefix the full length is meant (CNI-RES-04).
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let asked = IpRequest::from_str(text)?;
        match asked.prefix {
            Some(prefix) => Self::new(asked.addr, prefix),
            None => Ok(Self::host(asked.addr)),
        }
    }
}

impl TryFrom<String> for IpPrefix {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<IpPrefix> for String {
    fn from(prefix: IpPrefix) -> Self {
        prefix.to_string()
    }
}

/// A requested address, with or without a prefix length (capability `ips`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpRequest {
    /// The address wanted.
    pub addr: IpAddr,
    /// Prefix length in bits, when the caller gave one.
    pub prefix: Option<u8>,
}

impl fmt::Display for IpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix {
            Some(prefix) => write!(f, "{}/{prefix}", self.addr),
            None => self.addr.fmt(f),
        }
    }
}

impl FromStr for IpRequest {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let refuse = |rule| SpecError::Address {
            value: text.to_owned(),
            rule,
        };
        let (addr, prefix) = match text.split_once('/') {
            Some((addr, prefix)) => (addr, Some(prefix)),
            None => (text, None),
        };
        let addr: IpAddr = addr
            .parse()
            .map_err(|_| refuse("it is not an IPv4 or IPv6 address, like 10.1.2.3/24"))?;
        // Two spellings of one address would be two leases.
        if matches!(addr, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
            return Err(refuse(
                "write an IPv4 address without the `::ffff:` in front",
            ));
        }
        let prefix = match prefix {
            None => None,
            Some(digits) if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) => {
                return Err(refuse("the prefix is not a number"));
            }
            Some(digits) => Some(
                digits
                    .parse::<u8>()
                    .ok()
                    .filter(|bits| *bits <= family_bits(addr))
                    .ok_or_else(|| refuse("the prefix is longer than the address"))?,
            ),
        };
        Ok(Self { addr, prefix })
    }
}

/// A 48-bit MAC address; displayed in lower case with colons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// Tells whether a single interface may own the address.
    ///
    /// It may not when it is a group address (IEEE 802, I/G bit) or zero.
    #[must_use]
    pub fn is_usable(self) -> bool {
        let [first, ..] = self.0;
        first & 1 == 0 && self.0 != [0; 6]
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for MacAddr {
    type Err = SpecError;

    /// Reads the three spellings of Go's `net.ParseMAC`.
    ///
    /// They are `02:00:…`, `02-00-…` and `0200.0000.002a`.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let group_digits = if text.contains('.') { 4 } else { 2 };
        let separator = text.chars().find(|c| matches!(c, ':' | '-' | '.'));
        let mut octets = [0_u8; 6];
        let mut filled = octets.iter_mut();
        let complete = separator.is_some_and(|separator| {
            text.split(separator).all(|group| {
                group.len() == group_digits
                    && group.bytes().all(|b| b.is_ascii_hexdigit())
                    && group.as_bytes().chunks(2).all(|pair| {
                        let octet = str::from_utf8(pair)
                            .ok()
                            .and_then(|pair| u8::from_str_radix(pair, 16).ok());
                        match (filled.next(), octet) {
                            (Some(slot), Some(octet)) => {
                                *slot = octet;
                                true
                            }
                            _ => false,
                        }
                    })
            })
        });
        if complete && filled.next().is_none() {
            Ok(Self(octets))
        } else {
            Err(SpecError::Mac {
                value: text.to_owned(),
                rule: "it is not six octets, like 02:00:00:00:00:2a",
            })
        }
    }
}

impl TryFrom<String> for MacAddr {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<MacAddr> for String {
    fn from(mac: MacAddr) -> Self {
        mac.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_keep_host_bits_and_the_full_length_is_the_default() {
        assert_eq!(
            "10.1.2.3/24".parse::<IpPrefix>().unwrap().to_string(),
            "10.1.2.3/24"
        );
        assert_eq!(
            "10.1.2.3".parse::<IpPrefix>().unwrap().to_string(),
            "10.1.2.3/32"
        );
        assert_eq!(
            "fd10::1".parse::<IpPrefix>().unwrap().to_string(),
            "fd10::1/128"
        );
        assert_eq!("10.0.0.42".parse::<IpRequest>().unwrap().prefix, None);
    }

    #[test]
    fn bad_addresses_are_refused_with_the_rule() {
        let table = [
            ("", "not an IPv4"),
            ("10.0.0", "not an IPv4"),
            ("010.0.0.1", "not an IPv4"),
            ("fe80::1%eth0", "not an IPv4"),
            (" 10.0.0.1", "not an IPv4"),
            ("10.0.0.1/33", "longer than the address"),
            ("fd::1/129", "longer than the address"),
            ("fd::1/300", "longer than the address"),
            ("10.0.0.1/", "not a number"),
            ("10.0.0.1/+8", "not a number"),
            ("10.0.0.1/8/8", "not a number"),
            ("::ffff:10.0.0.1/96", "::ffff:"),
        ];
        for (text, rule) in table {
            let error = text.parse::<IpPrefix>().unwrap_err().to_string();
            assert!(error.contains(rule), "{text:?}: {error}");
        }
        assert!(IpPrefix::new("10.0.0.1".parse().unwrap(), 33).is_err());
    }

    #[test]
    fn mac_reads_three_spellings_and_writes_one() {
        for text in ["02:00:00:00:00:2A", "02-00-00-00-00-2a", "0200.0000.002a"] {
            assert_eq!(
                text.parse::<MacAddr>().unwrap().to_string(),
                "02:00:00:00:00:2a"
            );
        }
        let bad = [
            "",
            "02",
            "02:00:00:00:00",
            "02:00:00:00:00:2a:00",
            "02:00:00:00:00:2g",
            "2:0:0:0:0:2a",
            "02:00-00:00:00:2a",
            "0200.0000",
            "02:00:00:00:00:+a",
            "020000000a2a",
            "02:00:00:00:fe:80:00:00",
        ];
        for text in bad {
            assert!(text.parse::<MacAddr>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn group_and_zero_macs_belong_to_no_interface() {
        assert!(!MacAddr([0; 6]).is_usable());
        assert!(!MacAddr([0xff; 6]).is_usable());
        assert!(!MacAddr([1, 0, 0x5e, 0, 0, 1]).is_usable());
        assert!(MacAddr([2, 0, 0, 0, 0, 0x2a]).is_usable());
    }

    proptest! {
        #[test]
        fn any_mac_reads_back(octets: [u8; 6]) {
            let mac = MacAddr(octets);
            prop_assert_eq!(mac.to_string().parse::<MacAddr>().unwrap(), mac);
        }

        #[test]
        fn any_prefix_reads_back(bits: u32, prefix in 0_u8..=32) {
            let prefix = IpPrefix::new(std::net::Ipv4Addr::from_bits(bits).into(), prefix).unwrap();
            prop_assert_eq!(prefix.to_string().parse::<IpPrefix>().unwrap(), prefix);
        }

        #[test]
        fn no_text_makes_the_address_parsers_panic(text in ".*") {
            let _ = text.parse::<IpPrefix>();
            let _ = text.parse::<MacAddr>();
        }
    }
}
