//! Chooses the addresses of a packet. Pure.
//!
//! They are those of the description, and else those that a pod's kernel would choose.

use std::net::IpAddr;

use agent_common::addr::MacAddr;
use book::record::Attachment;

use super::directory::{Found, Member};
use super::frame;
use super::question::{Address, Proto, Question};
use crate::error::ExplainError;

/// EtherType for experiments (IEEE 802, table of local experimental types).
const EXPERIMENT: u16 = 0x88b5;

/// Both ends of a packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    /// Payload of the packet.
    pub(super) proto: Proto,
    /// Source and destination, unless it is no IP packet.
    pub(super) addresses: Option<(IpAddr, IpAddr)>,
    /// Source MAC address.
    pub(super) mac: MacAddr,
    /// Destination MAC address, when it was written.
    pub(super) to_mac: Option<MacAddr>,
    /// Which of the two has no address of use, to name it.
    lacking: &'static str,
}

impl Ends {
    /// Error that names the option to add.
    pub(super) fn needs_address(&self) -> ExplainError {
        ExplainError::Invalid {
            argument: self.lacking,
            value: words(self.proto, None),
            fix: "the protocol needs IP addresses of one family at both ends: write an IP address as --to, and as --source one for a sender that has none",
        }
    }
}

/// The addresses of a packet from one to the other.
///
/// # Errors
/// When an IP packet is asked for and there are no addresses for it.
pub(super) fn ends(question: &Question, from: &Found, to: &Found) -> Result<Ends, ExplainError> {
    let sources = sources(from, question.source);
    let destinations = match to.address {
        Some(Address::Ip(ip)) => vec![ip],
        Some(Address::Mac(mac)) if mac == MacAddr::BROADCAST => {
            vec![std::net::Ipv4Addr::BROADCAST.into()]
        }
        Some(Address::Mac(_)) | None => to.member.as_ref().map_or_else(Vec::new, Member::ips),
    };
    let written = match (from.address, to.address) {
        (Some(Address::Ip(ip)), None | Some(Address::Mac(_))) => Some(ip.is_ipv4()),
        (_, _) => None,
    };
    let family = question.proto.and_then(Proto::family).or(written);
    let addresses = pair(&sources, &destinations, family);
    let addresses =
        addresses.map(|(source, to)| (link_local_for(from, to, source, question.source), to));
    let to_mac = match to.address {
        Some(Address::Mac(mac)) => Some(mac),
        Some(Address::Ip(_)) | None => None,
    };
    let proto = question.proto.unwrap_or(match addresses {
        Some(_) => Proto::Icmp,
        None => Proto::Ether(EXPERIMENT),
    });
    let mac = match (question.source, &from.member, from.address) {
        (Some(Address::Mac(mac)), ..) | (_, None, Some(Address::Mac(mac))) => Some(mac),
        (_, Some(member), _) => Some(member.mac()),
        (_, None, Some(Address::Ip(_)) | None) => None,
    };
    let ends = Ends {
        proto,
        addresses,
        mac: mac.ok_or(ExplainError::Invalid {
            argument: "--from",
            value: from.address.map_or_else(String::new, text),
            fix: "no member is known to have this address: write NETWORK/MAC, and the IP address as --source",
        })?,
        to_mac,
        lacking: if destinations.is_empty() {
            "--to"
        } else {
            "--from"
        },
    };
    match (proto, addresses) {
        // To somebody without an address of the sender's families there is nothing to send.
        (Proto::Ether(_), _) if question.proto.is_none() && to_mac.is_none() => {
            Err(ends.needs_address())
        }
        (Proto::Ether(_), _) | (_, Some(_)) => Ok(ends),
        (_, None) => Err(ends.needs_address()),
    }
}

fn text(address: Address) -> String {
    match address {
        Address::Ip(ip) => ip.to_string(),
        Address::Mac(mac) => mac.to_string(),
    }
}

/// Addresses that the sender can use, best first.
fn sources(from: &Found, asked: Option<Address>) -> Vec<IpAddr> {
    if let Some(Address::Ip(ip)) = asked {
        return vec![ip];
    }
    let mut sources = Vec::new();
    if let Some(Address::Ip(ip)) = from.address {
        sources.push(ip);
    }
    if let Some(member) = &from.member {
        sources.extend(member.ips());
        sources.push(member.mac().link_local().into());
    }
    sources
}

/// The first pair of one family.
fn pair(sources: &[IpAddr], destinations: &[IpAddr], v4: Option<bool>) -> Option<(IpAddr, IpAddr)> {
    let fits = |ip: &IpAddr| v4.is_none_or(|v4| ip.is_ipv4() == v4);
    destinations.iter().filter(|ip| fits(ip)).find_map(|to| {
        let mut sources = sources.iter();
        let source = sources.find(|ip| ip.is_ipv4() == to.is_ipv4());
        source.map(|source| (*source, *to))
    })
}

/// Source address towards a link-local one: the sender's own link-local address.
///
/// An address that the description names is kept.
fn link_local_for(from: &Found, to: IpAddr, source: IpAddr, asked: Option<Address>) -> IpAddr {
    let local = matches!(to, IpAddr::V6(to) if to.is_unicast_link_local());
    match (&from.member, asked, from.address) {
        (Some(member), None | Some(Address::Mac(_)), None | Some(Address::Mac(_))) if local => {
            member.mac().link_local().into()
        }
        _ => source,
    }
}

/// The attachment's own address of a family.
pub(super) fn own(record: &Attachment, like: IpAddr) -> Option<IpAddr> {
    let mut leases = record.leases.iter().map(|lease| lease.address);
    leases.find(|ip| ip.is_ipv4() == like.is_ipv4())
}

/// Whether an address is the broadcast address of one of the attachment's subnets.
pub(super) fn is_broadcast(record: &Attachment, ip: IpAddr) -> bool {
    !record.network.routed
        && ip.is_ipv4()
        && record
            .leases
            .iter()
            .any(|lease| lease.prefix.contains(&ip) && lease.prefix.broadcast() == ip)
}

/// Next hop of the pod's kernel to an address, and why, by the routes of podnet.
pub(super) fn next_hop(record: &Attachment, destination: IpAddr) -> (IpAddr, &'static str) {
    let link_local = matches!(destination, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let on_link = |lease: &book::record::Lease| lease.prefix.contains(&destination);
    if link_local || (!record.network.routed && record.leases.iter().any(on_link)) {
        return (destination, "on the link");
    }
    let routes = record.routes();
    let fitting = routes
        .iter()
        .filter(|route| route.to.contains(&destination));
    match fitting.max_by_key(|route| route.to.prefix_len()) {
        Some(route) => match route.via {
            Some(via) => (via, "by this router"),
            None => (destination, "on the link"),
        },
        None if record.network.routed => {
            let gateway = record.network.next_hop(destination.is_ipv4());
            (
                gateway,
                "no route of podnet's leads there; if the pod has one, by this router",
            )
        }
        None => (
            destination,
            "no route of podnet's leads there; if the pod has one, as to a neighbour",
        ),
    }
}

/// Payload of a packet, in words.
pub(super) fn words(proto: Proto, addresses: Option<(IpAddr, IpAddr)>) -> String {
    match proto {
        Proto::Tcp(ports) => format!("TCP {} to {}", ports.source, ports.destination),
        Proto::Udp(ports) => format!("UDP {} to {}", ports.source, ports.destination),
        Proto::Icmp => match addresses {
            Some((source, _)) if source.is_ipv6() => "ICMPv6 echo request".to_owned(),
            _ => "ICMP echo request".to_owned(),
        },
        Proto::Arp => "ARP request".to_owned(),
        Proto::Nd => "neighbour solicitation".to_owned(),
        Proto::Ip(number) => format!("IP protocol {number}"),
        Proto::Ether(ether_type) => format!("EtherType {ether_type:#06x}"),
    }
}

/// MAC address for a group of hosts; `None` for another address.
pub(super) fn group(destination: IpAddr) -> Option<MacAddr> {
    frame::is_group(destination).then(|| frame::group_mac(destination))
}

#[cfg(test)]
mod tests;
