//! Ports of the node that the operator keeps from pods.

use std::fmt;
use std::str::FromStr;

use book::host_ports::{HostPort, HostProtocol};

use crate::error::AgentError;

/// Ranges at most, so that a look at them is short.
const RANGES_MAX: usize = 64;

/// Ports of one range, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    first: u16,
    last: u16,
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

/// Ports of the node that lead to no pod, of every protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReservedPorts {
    ranges: Vec<Range>,
    /// UDP port of tunnels.
    ///
    /// The device with its socket is made for the first network that needs it. A port that leads to a pod by then
    /// would take the packets of all such networks there, before the device sees them.
    tunnels: Option<u16>,
}

impl ReservedPorts {
    /// Reserves no port.
    pub const fn none() -> Self {
        Self {
            ranges: Vec::new(),
            tunnels: None,
        }
    }

    /// Reserves the UDP port of tunnels, too, whatever the operator reserves.
    #[must_use]
    pub fn with_tunnels(self, port: u16) -> Self {
        Self {
            tunnels: Some(port),
            ..self
        }
    }

    /// Refuses ports in one of the ranges.
    ///
    /// # Errors
    /// The first of such ports.
    pub(super) fn refuse(&self, ports: &[HostPort]) -> Result<(), AgentError> {
        let reserved = ports.iter().find_map(|port| {
            let is_udp = port.protocol == HostProtocol::Udp;
            if is_udp && self.tunnels == Some(port.host_port) {
                return Some(AgentError::HostPortReserved {
                    port: *port,
                    range: format!("{} of --vxlan-port", port.host_port),
                });
            }
            let mut ranges = self.ranges.iter();
            let range = ranges.find(|it| (it.first..=it.last).contains(&port.host_port))?;
            Some(AgentError::HostPortReserved {
                port: *port,
                range: format!("{range} of --reserved-host-ports"),
            })
        });
        reserved.map_or(Ok(()), Err)
    }
}

impl FromStr for ReservedPorts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim);
        let ranges: Result<Vec<Range>, String> = match text.trim() {
            "" => return Ok(Self::none()),
            _ => parts.map(range).collect(),
        };
        let ranges = ranges?;
        if ranges.len() > RANGES_MAX {
            let count = ranges.len();
            return Err(format!(
                "{count} ranges are more than {RANGES_MAX}: write fewer and longer ones"
            ));
        }
        Ok(Self {
            ranges,
            tunnels: None,
        })
    }
}

fn range(text: &str) -> Result<Range, String> {
    let wrong =
        || format!("{text:?} is no range of ports: write one as 30000-32767, or one port as 8080");
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| text.trim().parse::<u16>().map_err(|_| wrong());
    let (first, last) = (port(first)?, port(last)?);
    if first == 0 || last < first {
        return Err(wrong());
    }
    Ok(Range { first, last })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(reserved: &str, host_port: u16) -> Option<String> {
        let port = HostPort {
            protocol: HostProtocol::Udp,
            host_ip: None,
            host_port,
            container_port: 80,
        };
        let reserved: ReservedPorts = reserved.parse().unwrap();
        let outcome = reserved.refuse(&[port]);
        outcome.err().map(|error| error.to_string())
    }

    #[test]
    fn a_port_in_a_reserved_range_is_refused_with_the_range() {
        for port in [30000, 31000, 32767] {
            let said = refused("30000-32767", port).unwrap();
            assert!(said.contains(&format!("{port}/udp")), "{said}");
            assert!(
                said.contains("30000-32767 of --reserved-host-ports"),
                "{said}"
            );
        }
        for port in [29999, 32768, 80] {
            assert_eq!(refused("30000-32767", port), None);
        }
        assert!(refused("80, 30000-32767", 80).is_some());
        assert_eq!(refused("", 30000), None);
        proof::of!("ATT-18d");
    }

    /// Of UDP: a pod may have the port of TCP with that number.
    #[test]
    fn the_port_of_tunnels_is_refused_though_no_range_has_it() {
        let reserved = ReservedPorts::none().with_tunnels(4789);
        let port = |protocol, host_port| HostPort {
            protocol,
            host_ip: Some("192.0.2.1".parse().unwrap()),
            host_port,
            container_port: 80,
        };
        let refused = reserved.refuse(&[port(HostProtocol::Udp, 4789)]);
        let said = refused.unwrap_err().to_string();
        assert!(said.contains("4789 of --vxlan-port"), "{said}");
        let others = [port(HostProtocol::Tcp, 4789), port(HostProtocol::Udp, 4790)];
        reserved.refuse(&others).unwrap();
        proof::of!("ATT-18d");
    }

    #[test]
    fn ranges_that_reserve_nothing_are_refused() {
        for text in ["a", "80-", "-80", "90-80", "0", "0-80", "65536", "80,,90"] {
            let refused = text.parse::<ReservedPorts>().unwrap_err();
            assert!(refused.contains("30000-32767"), "{text}: {refused}");
        }
        let many = vec!["80"; RANGES_MAX + 1].join(",");
        assert!(many.parse::<ReservedPorts>().is_err());
    }
}
