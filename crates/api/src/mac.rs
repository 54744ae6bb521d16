//! Ethernet addresses as people write them.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::meta::digest;

/// A 48-bit Ethernet address (IEEE 802-2014 §8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr([u8; 6]);

/// Why a text is not a MAC address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not a MAC address; write six hex pairs, as 02:00:00:00:00:2a")]
pub struct ParseMacError {
    /// The text as given.
    pub text: String,
}

impl MacAddr {
    /// The address with these octets, in transmission order.
    #[must_use]
    pub const fn new(octets: [u8; 6]) -> Self {
        Self(octets)
    }

    /// The octets in transmission order.
    #[must_use]
    pub const fn octets(self) -> [u8; 6] {
        self.0
    }

    /// Derives an address of the local administrator from a text.
    ///
    /// See IEEE 802-2014, 8.4.
    #[must_use]
    pub fn derived(seed: &str) -> Self {
        let [_, _, _, a, b, c, d, e] = digest(seed.as_bytes()).to_be_bytes();
        Self([0x02, a, b, c, d, e])
    }

    /// Reports whether one interface can own the address.
    ///
    /// It is no group address (broadcast included) and not all zeroes, the same rule as the kernel's
    /// `is_valid_ether_addr` (linux/etherdevice.h).
    #[must_use]
    pub const fn is_unicast(self) -> bool {
        let [first, ..] = self.0;
        let [a, b, c, d, e, f] = self.0;
        first & 1 == 0 && (a | b | c | d | e | f) != 0
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for MacAddr {
    type Err = ParseMacError;

    /// Accepts `:` or `-` between the pairs (not both in one address), in either case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut octets = [0; 6];
        let mut pairs = text.split(separator);
        for octet in &mut octets {
            *octet = pairs
                .next()
                .and_then(hex_pair)
                .ok_or_else(|| not_a_mac(text))?;
        }
        match pairs.next() {
            None => Ok(Self(octets)),
            Some(_) => Err(not_a_mac(text)),
        }
    }
}

/// Exactly two hex digits: `u8::from_str_radix` alone would take "+f".
fn hex_pair(pair: &str) -> Option<u8> {
    let two_digits = pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit());
    if two_digits {
        u8::from_str_radix(pair, 16).ok()
    } else {
        None
    }
}

fn not_a_mac(text: &str) -> ParseMacError {
    ParseMacError {
        text: text.to_owned(),
    }
}

impl Serialize for MacAddr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MacAddr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_separators_and_both_cases_are_read() {
        let want = MacAddr::new([0x02, 0xab, 0xcd, 0xef, 0, 0x2a]);
        for text in [
            "02:ab:cd:ef:00:2a",
            "02-AB-CD-EF-00-2A",
            "02:Ab:cD:eF:00:2a",
        ] {
            assert_eq!(text.parse(), Ok(want), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "02",
            "02:00:00:00:00",
            "02:00:00:00:00:2a:00",
            "2:0:0:0:0:1",
            "02:00:00:00:00:2g",
            "02:00-00:00-00:2a",
            "+2:00:00:00:00:2a",
            " 02:00:00:00:00:2a",
            "020000000021",
        ] {
            assert!(text.parse::<MacAddr>().is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn group_broadcast_and_zero_are_not_unicast() {
        for octets in [
            [0; 6],
            [0xff; 6],
            [1, 0, 0x5e, 0, 0, 1],
            [0x33, 0x33, 0, 0, 0, 1],
        ] {
            assert!(!MacAddr::new(octets).is_unicast(), "{octets:?}");
        }
        assert!(MacAddr::new([2, 0, 0, 0, 0, 0x2a]).is_unicast());
        assert!(MacAddr::new([0, 0, 0, 0, 0, 1]).is_unicast());
    }

    proptest! {
        #[test]
        fn what_is_displayed_reads_back(octets: [u8; 6]) {
            let mac = MacAddr::new(octets);
            prop_assert_eq!(mac.to_string().parse(), Ok(mac));
        }
    }
}
