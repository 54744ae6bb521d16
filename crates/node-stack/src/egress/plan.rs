//! Plans gateways: names, addresses, guards. Pure.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use agent_common::addr::MacAddr;
use api::Prefix;
use book::record::NetworkFacts;
use netdev::{Bound, Guard, Limit, LinkName, Masquerade, Packets, PortAt, Ruleset, Whose};

/// Prefix of the names of gateways' ports; the number of the network follows.
///
/// The ports are in the node's namespace.
pub(crate) const PORT_PREFIX: &str = "podnet-g";
/// Prefix of the names of links from the node to gateways; the place follows.
///
/// The links are in the node's namespace.
pub(crate) const LINK_PREFIX: &str = "podnet-e";
/// The gateway's side of its port.
pub(super) const PODS: &str = "pods";
/// The gateway's side of its link to the node.
pub(super) const UPLINK: &str = "uplink";
/// The table of nf_tables in the node's namespace.
pub const OUTSIDE: &str = "podnet-egress";
/// The table of nf_tables in a gateway.
pub const INSIDE: &str = "podnet";

/// MAC addresses of a gateway's ends, and of the node's end of its link.
///
/// They are the same for all gateways: each is on a link of two.
pub(super) const PODS_MAC: MacAddr = MacAddr([0x02, 0x70, 0x6e, 0x00, 0x00, 0x02]);
pub(super) const UPLINK_MAC: MacAddr = MacAddr([0x02, 0x70, 0x6e, 0x00, 0x00, 0x03]);
pub(super) const NODE_MAC: MacAddr = MacAddr([0x02, 0x70, 0x6e, 0x00, 0x00, 0x04]);

/// Transit addresses, two of each family a place: of the node, of the gateway.
///
/// They are link-local (RFC 3927) and unique local (RFC 4193): no router outside has a route to these,
/// and no subnet of a pod is link-local.
const TRANSIT_V4: (Ipv4Addr, u8) = (Ipv4Addr::new(169, 254, 64, 0), 18);
const TRANSIT_V6: (Ipv6Addr, u8) = (
    Ipv6Addr::new(0xfd70, 0x6f64, 0x6e65, 0x7400, 0, 0, 0, 0),
    64,
);
/// Further transit addresses of gateways, one of each family a place.
///
/// Clouds have services for nodes at other link-local addresses, which must not be among these: metadata at 169.254.169.254 and
/// 169.254.170.2, for example.
///
/// A gateway gives them to packets to Services of the cluster's network, if its network reaches these. By them the node
/// knows what may go to a Service.
const TO_SERVICES_V4: (Ipv4Addr, u8) = (Ipv4Addr::new(169, 254, 128, 0), 19);
const TO_SERVICES_V6: (Ipv6Addr, u8) = (
    Ipv6Addr::new(0xfd70, 0x6f64, 0x6e65, 0x7401, 0, 0, 0, 0),
    64,
);
/// How many places there are.
pub(super) const PLACES: u16 = 1 << 13;

/// Next hop of a gateway towards pods: the datapath, which answers no ARP.
pub(super) const TO_PODS_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 2);

/// The directory of gateways' namespaces, next to the socket.
pub fn directory(socket: &Path) -> PathBuf {
    socket.parent().unwrap_or(Path::new("/")).join("egress")
}

/// The gateway of a network as it shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayPlan {
    /// Number of the network.
    pub network: u32,
    /// MTU of the network, bytes.
    pub(super) mtu: u16,
    /// Where pods are.
    pub(super) subnets: Vec<Prefix>,
    /// How many connections a pod may have of each family.
    pub(super) connections: Option<u32>,
    /// Addresses of the gateway in the network, as pods see it.
    ///
    /// The gateway sends ICMP errors from these when a packet has had too many hops.
    pub(super) own: Vec<IpAddr>,
    /// Pods leave for everything that is outside; one that may not closes it for all.
    pub(super) is_open: bool,
    /// Prefixes of addresses of Services, where pods reach some of the cluster's.
    pub(super) service_cidrs: BTreeSet<Prefix>,
    /// Ports of Services of the cluster's network that pods reach.
    ///
    /// `None` while they are not known.
    pub(super) services: Option<BTreeSet<PortAt>>,
}

/// An address of each family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Both {
    pub(super) v4: Ipv4Addr,
    pub(super) v6: Ipv6Addr,
}

impl GatewayPlan {
    /// Plans a gateway of a network, without addresses yet.
    pub const fn of(network: u32) -> Self {
        Self {
            network,
            mtu: 0,
            subnets: Vec::new(),
            connections: None,
            own: Vec::new(),
            is_open: true,
            service_cidrs: BTreeSet::new(),
            services: None,
        }
    }

    /// Adds an attachment to the plan; its network may differ from earlier ones.
    pub fn serve(&mut self, facts: &NetworkFacts) {
        self.mtu = self.mtu.max(facts.mtu);
        self.is_open &= facts.egress;
        if facts.to_services {
            self.service_cidrs.extend(&facts.service_cidrs);
        }
        for subnet in &facts.subnets {
            if self.subnets.contains(&subnet.prefix) {
                continue;
            }
            self.subnets.push(subnet.prefix);
            let v4 = subnet.prefix.addr().is_ipv4();
            let own = facts.next_hop(v4);
            // A link-local one is no source for others.
            let speaks = !matches!(own, IpAddr::V6(ip) if ip.is_unicast_link_local());
            if speaks && !self.own.contains(&own) {
                self.own.push(own);
            }
        }
        self.subnets.sort_unstable();
        self.own.sort_unstable();
    }

    /// True when pods have addresses of this family.
    pub(crate) fn has(&self, v4: bool) -> bool {
        self.subnets.iter().any(|it| it.addr().is_ipv4() == v4)
    }

    /// Name of the gateway's port.
    pub(super) fn port(&self) -> String {
        format!("{PORT_PREFIX}{:06x}", self.network)
    }

    /// Name of the file of its namespace.
    pub(super) fn file(&self) -> String {
        file(self.network)
    }

    /// Rules in the namespace of the gateway.
    ///
    /// A packet towards the node has the transit address as its source, and is dropped when it cannot
    /// be translated. A packet from the node passes only as part of a connection that a pod has begun, or
    /// that a mapped port leads to a pod.
    /// The gateway itself accepts no packet. What pods send to Services of the cluster that their network reaches has an
    /// address of its own; where the network reaches these only, everything else is dropped.
    pub(super) fn rules(&self, place: u16) -> Ruleset {
        let subnets = self.subnets.iter();
        let subnets: Vec<_> = subnets.map(|it| (it.addr(), it.prefix_len())).collect();
        let from_node = Packets::InBy(LinkName::Is(UPLINK.to_owned()));
        let from_pods = Packets::InBy(LinkName::Is(PODS.to_owned()));
        let source = to_services(place);
        let services = self.services.iter().flatten();
        let services = services.filter(|it| self.has(it.ip.is_ipv4()));
        let mut guards = vec![
            Guard::pass(
                Bound::Elsewhere,
                &[from_node.clone(), Packets::ToTranslated],
            ),
            Guard::stop(Bound::Elsewhere, &[from_node, Packets::OfNoConnection]),
            Guard::stop(Bound::Elsewhere, &[Packets::Untracked]),
        ];
        guards.extend(services.clone().map(|port| {
            let to_service = [from_pods.clone(), Packets::ToPort(*port)];
            Guard::pass(Bound::Elsewhere, &to_service)
        }));
        // What was a Service of these is none for connections that go on, either.
        let cidrs = self.service_cidrs.iter();
        guards.extend(cidrs.map(|it| {
            let to_other = Packets::To((it.addr(), it.prefix_len()));
            Guard::stop(Bound::Elsewhere, &[from_pods.clone(), to_other])
        }));
        if !self.is_open {
            guards.push(Guard::stop(Bound::Elsewhere, &[from_pods]));
        }
        guards.push(Guard::stop(Bound::Here, &[]));
        Ruleset {
            table: INSIDE,
            ports: None,
            masquerade: Some(Masquerade {
                from: subnets.clone(),
                inside: subnets,
                fixed: services
                    .map(|port| (*port, source.of(port.ip.is_ipv4())))
                    .collect(),
            }),
            early: false,
            limits: self.connections.map_or_else(Vec::new, |connections| {
                let families = [true, false].into_iter().filter(|v4| self.has(*v4));
                let limit = |v4| Limit {
                    link: LinkName::Is(PODS.to_owned()),
                    whose: Whose::Source { v4 },
                    connections,
                    bound: Bound::Elsewhere,
                };
                families.map(limit).collect()
            }),
            guards,
        }
    }
}

/// Rules in the node's namespace, for packets from and to gateways.
///
/// A gateway's packets leave by these uplinks with an address of the node as their source, and do not
/// reach the node's own addresses, these prefixes and Services. No connection begins towards a gateway but
/// from these uplinks and the node itself to a mapped port.
pub(super) fn fence(
    uplinks: &[String],
    inside: &[(IpAddr, u8)],
    connections: Option<u32>,
) -> Ruleset {
    let ours = LinkName::Starts(LINK_PREFIX.to_owned());
    let from = Packets::InBy(ours.clone());
    let transit = transit_prefixes();
    let [services_v4, services_v6] = services_prefixes();
    // An answer of a gateway comes from its link: connection tracking would take one from elsewhere for it.
    let forged = |it| [Packets::From(it), Packets::NotInBy(ours.clone())];
    let stop = |what: Packets| Guard::stop(Bound::Elsewhere, &[from.clone(), what]);
    // Answers of a mapped port are of such a connection, too.
    let to_service = [from.clone(), Packets::Asking, Packets::ToTranslated];
    let own = |of: [(IpAddr, u8); 2]| {
        let strange = [
            from.clone(),
            Packets::NotFrom(of[0]),
            Packets::NotFrom(of[1]),
        ];
        Guard::stop(Bound::Elsewhere, &strange)
    };
    let [v4, v6, ..] = transit;
    let mut guards = vec![own([v4, services_v4]), own([v6, services_v6])];
    for bound in [Bound::Elsewhere, Bound::Here] {
        guards.extend(transit.map(|it| Guard::stop(bound, &forged(it))));
    }
    // The gateway has judged which Services; here it is one at all, wherever its endpoint is.
    for bound in [Bound::Elsewhere, Bound::Here] {
        for prefix in services_prefixes() {
            let to_service = [from.clone(), Packets::From(prefix), Packets::ToTranslated];
            guards.push(Guard::pass(bound, &to_service));
            guards.push(Guard::stop(bound, &[from.clone(), Packets::From(prefix)]));
        }
    }
    guards.push(Guard::stop(Bound::Elsewhere, &to_service));
    guards.extend(inside.iter().map(|prefix| stop(Packets::To(*prefix))));
    for uplink in uplinks {
        let by = Packets::OutBy(LinkName::Is(uplink.clone()));
        guards.push(Guard::pass(Bound::Elsewhere, &[from.clone(), by]));
    }
    guards.push(Guard::stop(Bound::Elsewhere, std::slice::from_ref(&from)));
    for uplink in uplinks {
        let from_outside = Packets::InBy(LinkName::Is(uplink.clone()));
        let to_port = [
            from_outside,
            Packets::OutBy(ours.clone()),
            Packets::ToTranslated,
        ];
        guards.push(Guard::pass(Bound::Elsewhere, &to_port));
    }
    let begun_outside = [Packets::OutBy(ours.clone()), Packets::OfNoConnection];
    guards.push(Guard::stop(Bound::Elsewhere, &begun_outside));
    let answers = [from.clone(), Packets::Answering];
    guards.push(Guard::pass(Bound::Here, &answers));
    guards.push(Guard::stop(Bound::Here, &[from]));
    Ruleset {
        table: OUTSIDE,
        ports: None,
        masquerade: Some(Masquerade {
            from: transit.to_vec(),
            inside: transit.to_vec(),
            fixed: Vec::new(),
        }),
        early: false,
        limits: connections.map_or_else(Vec::new, |connections| {
            let limit = |v4| Limit {
                link: LinkName::Starts(LINK_PREFIX.to_owned()),
                whose: Whose::Link { v4 },
                connections,
                bound: Bound::Elsewhere,
            };
            let towards = |v4| Limit {
                whose: Whose::Towards { v4 },
                ..limit(v4)
            };
            // An endpoint of a Service may be the node itself.
            let here = |v4| Limit {
                bound: Bound::Here,
                ..limit(v4)
            };
            let both = [true, false].into_iter();
            both.flat_map(|v4| [limit(v4), towards(v4), here(v4)])
                .collect()
        }),
        guards,
    }
}

/// Guards of the node against what is translated to a gateway that is gone.
///
/// The node's connections to mapped ports go on to be translated as long as their clients send, and what has no
/// gateway any more would leave by the default route. The links of packets of the node itself are the right ones only
/// where these leave.
pub(super) fn to_no_gateway() -> Vec<Guard> {
    let ours = LinkName::Starts(LINK_PREFIX.to_owned());
    let pass = Guard::pass(Bound::Leaving, &[Packets::OutBy(ours)]);
    let stop = |it| Guard::stop(Bound::Leaving, &[Packets::To(it)]);
    let stops = transit_prefixes().map(stop);
    [vec![pass], stops.to_vec()].concat()
}

/// The transit prefixes of both families, and those of packets to Services.
fn transit_prefixes() -> [(IpAddr, u8); 4] {
    let [services_v4, services_v6] = services_prefixes();
    [
        (TRANSIT_V4.0.into(), TRANSIT_V4.1),
        (TRANSIT_V6.0.into(), TRANSIT_V6.1),
        services_v4,
        services_v6,
    ]
}

/// Prefixes of both families of packets to Services.
fn services_prefixes() -> [(IpAddr, u8); 2] {
    [
        (TO_SERVICES_V4.0.into(), TO_SERVICES_V4.1),
        (TO_SERVICES_V6.0.into(), TO_SERVICES_V6.1),
    ]
}

/// Name of the file of the namespace of a network's gateway.
pub(super) fn file(network: u32) -> String {
    network.to_string()
}

/// Name of the node's side of the link at a place.
pub(super) fn link(place: u16) -> String {
    format!("{LINK_PREFIX}{place:04x}")
}

/// The place of a link of this name.
pub(super) fn place_of(name: &str) -> Option<u16> {
    u16::from_str_radix(name.strip_prefix(LINK_PREFIX)?, 16).ok()
}

/// The file with the place of the gateway that was made last.
///
/// It is next to the directory of gateways.
pub(super) fn newest(directory: &Path) -> PathBuf {
    directory.with_extension("place")
}

/// Chooses the place of the next gateway: a free one after that of the newest.
///
/// The node goes on to translate connections of mapped ports to the place of a gateway that is gone, as long as clients
/// send. The next gateway knows nothing of them, so it has another place, also after a restart of the agent.
/// Where the newest is not known, the last of those that are there stands for it.
pub(super) fn next_place(newest: Option<u16>, taken: &BTreeSet<u16>) -> Option<u16> {
    let newest = newest.or_else(|| taken.last().copied());
    let first = newest.map_or(0, |place| (place + 1) % PLACES);
    let mut places = (first..PLACES).chain(0..first);
    places.find(|place| !taken.contains(place))
}

/// The node's addresses at a place.
pub(super) fn of_node(place: u16) -> Both {
    transit(place, 0)
}

/// The gateway's addresses at a place.
pub(super) fn of_gateway(place: u16) -> Both {
    transit(place, 1)
}

/// Addresses of the gateway at a place for packets to Services.
pub(super) fn to_services(place: u16) -> Both {
    let offset = u32::from(place);
    Both {
        v4: Ipv4Addr::from_bits(TO_SERVICES_V4.0.to_bits() | offset),
        v6: Ipv6Addr::from_bits(TO_SERVICES_V6.0.to_bits() | u128::from(offset)),
    }
}

impl Both {
    /// The one of this family.
    pub(super) fn of(self, v4: bool) -> IpAddr {
        if v4 { self.v4.into() } else { self.v6.into() }
    }
}

fn transit(place: u16, side: u32) -> Both {
    let offset = u32::from(place) * 2 + side;
    Both {
        v4: Ipv4Addr::from_bits(TRANSIT_V4.0.to_bits() | offset),
        v6: Ipv6Addr::from_bits(TRANSIT_V6.0.to_bits() | u128::from(offset)),
    }
}

#[cfg(test)]
mod tests;
