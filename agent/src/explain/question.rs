//! A packet as a person describes it. Pure.

use std::net::IpAddr;

use agent_common::addr::MacAddr;
use cni_spec::FollowRequest;

use crate::error::ExplainError;

/// Where packets with no ports of their own come from.
const SOURCE_PORT: u16 = 40_000;

/// The whole question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    /// Sender.
    pub(super) from: Party,
    /// Receiver.
    pub(super) to: Party,
    /// Payload; chosen by the facts about both ends when absent.
    pub(super) proto: Option<Proto>,
    /// Bytes without the Ethernet header.
    pub(super) size: Option<usize>,
    /// The source address in it, if not the sender's own.
    pub(super) source: Option<Address>,
    /// The node whose tunnel brings it: name or address.
    pub(super) arrive_from: Option<String>,
}

/// Sender or receiver as a person names it; the directory finds it later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Party {
    /// The option.
    pub(super) argument: &'static str,
    /// As it was written.
    pub(super) text: String,
    /// Object that the text names.
    pub(super) named: Named,
}

/// The forms in which somebody can be named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Named {
    /// An address by itself.
    Address(Address),
    /// `NETWORK/ADDRESS`.
    OnNetwork(String, Address),
    /// `CONTAINER`.
    Container(String),
    /// `CONTAINER/IFNAME`, or `NAMESPACE/POD` with perhaps `:IFNAME`.
    Pair(String, String),
}

/// An address of either layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Address {
    /// IPv4 or IPv6.
    Ip(IpAddr),
    /// Ethernet.
    Mac(MacAddr),
}

impl Address {
    /// The address that this text is, if it is one.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mac = || text.parse().ok().map(Self::Mac);
        text.parse().ok().map(Self::Ip).or_else(mac)
    }
}

/// Payload of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proto {
    /// The first segment of a connection.
    Tcp(Ports),
    /// A datagram.
    Udp(Ports),
    /// An echo request of the family.
    Icmp,
    /// The question who has an IPv4 address.
    Arp,
    /// The question who has an IPv6 address.
    Nd,
    /// Another IP protocol, with nothing we know inside.
    Ip(u8),
    /// Another EtherType, with nothing we know inside.
    Ether(u16),
}

/// Port numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ports {
    /// Of the sender.
    pub(super) source: u16,
    /// Of the receiver.
    pub(super) destination: u16,
}

impl Question {
    /// Reads a request.
    ///
    /// # Errors
    /// [`ExplainError::Invalid`] naming the option.
    pub(super) fn read(request: &FollowRequest) -> Result<Self, ExplainError> {
        let source = request.source.as_deref().map(|text| {
            Address::read(text).ok_or_else(|| ExplainError::Invalid {
                argument: "--source",
                value: text.to_owned(),
                fix: "write an IP address, or a MAC address as in 02:00:00:00:00:2a",
            })
        });
        let size = request.size.map(|size| {
            usize::try_from(size)
                .ok()
                .filter(|size| *size <= usize::from(u16::MAX))
                .ok_or_else(|| ExplainError::Invalid {
                    argument: "--size",
                    value: size.to_string(),
                    fix: "an IP packet has at most 65535 bytes",
                })
        });
        Ok(Self {
            from: Party::read("--from", &request.from)?,
            to: Party::read("--to", &request.to)?,
            proto: request.proto.as_deref().map(Proto::read).transpose()?,
            size: size.transpose()?,
            source: source.transpose()?,
            arrive_from: request.arrive_from.clone(),
        })
    }
}

impl Party {
    fn read(argument: &'static str, text: &str) -> Result<Self, ExplainError> {
        let named = match (Address::read(text), text.split_once('/')) {
            (Some(address), _) => Some(Named::Address(address)),
            (None, None) if text.is_empty() => None,
            (None, None) => Some(Named::Container(text.to_owned())),
            (None, Some((left, right))) if left.is_empty() || right.is_empty() => None,
            (None, Some((left, right))) => Some(match Address::read(right) {
                Some(address) => Named::OnNetwork(left.to_owned(), address),
                None => Named::Pair(left.to_owned(), right.to_owned()),
            }),
        };
        let named = named.ok_or_else(|| ExplainError::Invalid {
            argument,
            value: text.to_owned(),
            fix: "write CONTAINER[/IFNAME], NAMESPACE/POD[:IFNAME] or NETWORK/ADDRESS",
        })?;
        Ok(Self {
            argument,
            text: text.to_owned(),
            named,
        })
    }
}

impl Proto {
    fn read(text: &str) -> Result<Self, ExplainError> {
        let (kind, rest) = match text.split_once(':') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (text, None),
        };
        let found = match (kind, rest) {
            ("tcp", ports) => Ports::read(ports, 80).map(Self::Tcp),
            ("udp", ports) => Ports::read(ports, 53).map(Self::Udp),
            ("icmp", None) => Some(Self::Icmp),
            ("arp", None) => Some(Self::Arp),
            ("nd", None) => Some(Self::Nd),
            ("ip", Some(number)) => number.parse().ok().map(Self::Ip),
            ("ether", Some(number)) => {
                let digits = number.strip_prefix("0x").unwrap_or(number);
                u16::from_str_radix(digits, 16).ok().map(Self::Ether)
            }
            _ => None,
        };
        found.ok_or_else(|| ExplainError::Invalid {
            argument: "--proto",
            value: text.to_owned(),
            fix: "write tcp[:[SOURCE:]PORT], udp[:[SOURCE:]PORT], icmp, arp, nd, ip:NUMBER or \
                  ether:0xTYPE",
        })
    }

    /// True for IPv4, false for IPv6, when only one of them carries it.
    pub(super) const fn family(self) -> Option<bool> {
        match self {
            Self::Arp => Some(true),
            Self::Nd => Some(false),
            Self::Tcp(_) | Self::Udp(_) | Self::Icmp | Self::Ip(_) | Self::Ether(_) => None,
        }
    }
}

impl Ports {
    fn read(text: Option<&str>, usual: u16) -> Option<Self> {
        let Some(text) = text else {
            return Some(Self {
                source: SOURCE_PORT,
                destination: usual,
            });
        };
        let (source, destination) = match text.split_once(':') {
            Some((source, destination)) => (source.parse().ok()?, destination),
            None => (SOURCE_PORT, text),
        };
        Some(Self {
            source,
            destination: destination.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Named {
        Party::read("--from", text).unwrap().named
    }

    #[test]
    fn everybody_can_be_named_in_every_form() {
        let ip = |text: &str| Address::Ip(text.parse().unwrap());
        let mac = Address::Mac("02:00:00:00:00:2a".parse().unwrap());
        let pair = |a: &str, b: &str| Named::Pair(a.to_owned(), b.to_owned());
        for (text, expected) in [
            ("10.10.0.3", Named::Address(ip("10.10.0.3"))),
            ("fd10::3", Named::Address(ip("fd10::3"))),
            ("02:00:00:00:00:2a", Named::Address(mac)),
            ("c1", Named::Container("c1".to_owned())),
            ("c1/net1", pair("c1", "net1")),
            ("shop/web-0:net1", pair("shop", "web-0:net1")),
            (
                "blue/fd10::3",
                Named::OnNetwork("blue".to_owned(), ip("fd10::3")),
            ),
            (
                "blue/02:00:00:00:00:2a",
                Named::OnNetwork("blue".to_owned(), mac),
            ),
        ] {
            assert_eq!(named(text), expected, "{text}");
        }
        for bad in ["", "/", "blue/", "/net1"] {
            let error = Party::read("--to", bad).unwrap_err().to_string();
            assert!(
                error.contains("--to") && error.contains("NETWORK/ADDRESS"),
                "{error}"
            );
        }
    }

    #[test]
    fn protocols_have_ports_where_they_have_any() {
        let ports = |source, destination| Ports {
            source,
            destination,
        };
        for (text, expected) in [
            ("tcp", Proto::Tcp(ports(SOURCE_PORT, 80))),
            ("tcp:443", Proto::Tcp(ports(SOURCE_PORT, 443))),
            ("udp:68:67", Proto::Udp(ports(68, 67))),
            ("icmp", Proto::Icmp),
            ("arp", Proto::Arp),
            ("nd", Proto::Nd),
            ("ip:47", Proto::Ip(47)),
            ("ether:0x88b5", Proto::Ether(0x88b5)),
        ] {
            assert_eq!(Proto::read(text), Ok(expected), "{text}");
        }
        for bad in [
            "",
            "tcp:",
            "tcp:70000",
            "tcp:1:2:3",
            "icmp:8",
            "ip",
            "ip:256",
            "ether:10000",
            "sctp",
        ] {
            let error = Proto::read(bad).unwrap_err().to_string();
            assert!(
                error.contains("--proto") && error.contains("tcp["),
                "{error}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_option() {
        let plain = FollowRequest {
            from: "a".to_owned(),
            to: "b".to_owned(),
            ..FollowRequest::default()
        };
        assert!(Question::read(&plain).is_ok());
        let source = FollowRequest {
            source: Some("me".to_owned()),
            ..plain.clone()
        };
        let size = FollowRequest {
            size: Some(65_536),
            ..plain
        };
        for (request, option) in [(source, "--source me"), (size, "--size 65536")] {
            let error = Question::read(&request).unwrap_err().to_string();
            assert!(error.contains(option), "{error}");
        }
    }
}
