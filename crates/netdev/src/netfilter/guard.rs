//! Guards of a namespace that forwards: packets that pass, and packets that do not.

use std::fmt;
use std::net::IpAddr;

use super::Cidr;
use super::ports::PortAt;

/// A link, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkName {
    /// This one.
    Is(String),
    /// All whose names start so.
    Starts(String),
}

/// In the notation of nft.
impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(name) => f.write_str(name),
            Self::Starts(prefix) => write!(f, "{prefix}*"),
        }
    }
}

/// Which packets meet a guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packets {
    /// Packets that come in by this link,
    InBy(LinkName),
    /// that come in by any other link,
    NotInBy(LinkName),
    /// that go out by this one,
    OutBy(LinkName),
    /// that belong to no connection and to no error about one,
    OfNoConnection,
    /// that connection tracking ignores, so that none of their addresses is translated,
    Untracked,
    /// whose destination was translated, as those to a Service are,
    ToTranslated,
    /// in the direction of the connection's first packet,
    Asking,
    /// in the other direction,
    Answering,
    /// of connections with this mark, and errors about these,
    Marked(u32),
    /// to this port of this address; of fragments the first one,
    ToPort(PortAt),
    /// to this prefix (address, bits),
    To((IpAddr, u8)),
    /// from this prefix (address, bits),
    From((IpAddr, u8)),
    /// of this family, from anywhere else than this prefix (address, bits),
    NotFrom((IpAddr, u8)),
    /// of UDP to this port; of fragments the first one, as others have no port,
    UdpTo(u16),
    /// with a transport header as far as its ports,
    WithPorts,
    /// that are the first fragment of an IPv6 packet,
    Beginning,
    /// with a source that the node would answer by the link they came in by.
    ByReversePath,
}

impl fmt::Display for Packets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cidr = |(ip, length): &(IpAddr, u8)| Cidr(*ip, *length);
        match self {
            Self::InBy(link) => write!(f, "in by {link}"),
            Self::NotInBy(link) => write!(f, "not in by {link}"),
            Self::OutBy(link) => write!(f, "out by {link}"),
            Self::OfNoConnection => f.write_str("of no connection"),
            Self::Untracked => f.write_str("untracked"),
            Self::ToTranslated => f.write_str("to a translated address"),
            Self::Asking => f.write_str("asking"),
            Self::Answering => f.write_str("answering"),
            Self::Marked(mark) => write!(f, "marked {mark:08x}"),
            Self::ToPort(port) => write!(f, "to {port}"),
            Self::To(prefix) => write!(f, "to {}", cidr(prefix)),
            Self::From(prefix) => write!(f, "from {}", cidr(prefix)),
            Self::NotFrom(prefix) => write!(f, "not from {}", cidr(prefix)),
            Self::UdpTo(port) => write!(f, "to UDP port {port}"),
            Self::WithPorts => f.write_str("with ports"),
            Self::Beginning => f.write_str("of first fragments"),
            Self::ByReversePath => f.write_str("by the reverse path"),
        }
    }
}

/// Destination of packets that meet a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// For the namespace itself.
    Here,
    /// For others: the namespace forwards them.
    Elsewhere,
    /// For others: forwarded ones, and those of the namespace itself.
    ///
    /// They have the link by which they leave. Early guards do not meet these.
    Leaving,
}

/// Packets that end, or pass the guards after this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// Which guards they meet at all.
    pub bound: Bound,
    /// All of this is true of them.
    pub packets: Vec<Packets>,
    /// They pass.
    pub pass: bool,
}

impl Guard {
    /// Packets that end.
    pub fn stop(bound: Bound, packets: &[Packets]) -> Self {
        Self {
            bound,
            packets: packets.to_vec(),
            pass: false,
        }
    }

    /// Packets that pass.
    pub fn pass(bound: Bound, packets: &[Packets]) -> Self {
        Self {
            pass: true,
            ..Self::stop(bound, packets)
        }
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.pass { "pass" } else { "stop" })?;
        for packets in &self.packets {
            write!(f, " {packets}")?;
        }
        Ok(())
    }
}
