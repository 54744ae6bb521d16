//! Ports of a namespace that lead to another address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::guard::LinkName;

/// A protocol whose ports can be mapped, by its IANA number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PortProtocol {
    /// RFC 9293.
    Tcp = 6,
    /// RFC 768.
    Udp = 17,
}

impl fmt::Display for PortProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

/// A port of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortAt {
    /// The address.
    pub ip: IpAddr,
    /// Protocol of the port.
    pub protocol: PortProtocol,
    /// The port.
    pub port: u16,
}

impl fmt::Display for PortAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = std::net::SocketAddr::new(self.ip, self.port);
        write!(f, "{} {at}", self.protocol)
    }
}

/// A port that leads to another address of the same family.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortForward {
    /// Protocol of the port.
    pub protocol: PortProtocol,
    /// Address that connections are made to; none for each that passes the gate.
    pub at: Option<IpAddr>,
    /// Port that connections are made to.
    pub port: u16,
    /// Where they lead,
    pub to: IpAddr,
    /// and to which port; none for the same.
    pub to_port: Option<u16>,
    /// Mark that connections get, by which guards know these.
    pub mark: Option<u32>,
}

/// The comment of the rule.
impl fmt::Display for PortForward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} port {}", self.protocol, self.port)?;
        if let Some(at) = self.at {
            write!(f, " of {at}")?;
        }
        match (self.to_port, self.to) {
            (None, to) => write!(f, " to {to}")?,
            (Some(port), to) => write!(f, " to {}", std::net::SocketAddr::new(to, port))?,
        }
        match self.mark {
            Some(mark) => write!(f, " marked {mark:08x}"),
            None => Ok(()),
        }
    }
}

/// Connections whose destination is looked up among the ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Connections to the namespace's own addresses, without loopback ones.
    Own {
        /// Its own connections that leave by these links get a source that is not its own,
        links: LinkName,
        /// of IPv4,
        v4: Ipv4Addr,
        /// and of IPv6.
        v6: Ipv6Addr,
    },
    /// Connections that come in by this link.
    Link(LinkName),
}

/// Ports of a namespace and the connections that are looked up among these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Which connections.
    pub gate: Gate,
    /// Where ports lead.
    pub forwards: Vec<PortForward>,
}
