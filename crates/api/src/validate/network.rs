//! Validates `PodNetworkParameters`.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::Serialize;

use super::{
    Bandwidth, Faults, FieldErrors, FieldProblem,
    bandwidth::{EGRESS, INGRESS, limit, note_idle_bursts},
    first_usable,
    interface::{interface, note_unreachable},
    parse_address, parse_prefix, reserved_as,
    routes::{self, PushedRoute},
    services,
    wire::{Wire, wire},
};
use crate::{
    gateway::GatewaySpec,
    interface::Interface,
    meta::check_subdomain,
    outside::{Egress, NodeAccess},
    parameters::{Mode, PodNetworkParametersSpec, Routing, Transport},
    scheduling::{ADDRESSES_DOMAIN, BANDWIDTH_DOMAIN, SchedulingSpec, scheduling_key},
};

/// The largest MTU of a network, bytes: the kernel's 65535 less an Ethernet header.
pub const MTU_MAX: u16 = 65521;
/// The smallest MTU of IPv4 (RFC 791 §3.2), bytes.
const MTU_MIN_V4: u16 = 68;
/// The smallest MTU of IPv6 (RFC 8200 §5), bytes.
const MTU_MIN_V6: u16 = 1280;
/// The MTU of a network without tunnels that does not say, bytes.
const MTU_DEFAULT: u16 = 1500;
/// Overhead of VXLAN over IPv6, bytes (RFC 7348 §5).
///
/// It has headers of IPv6, UDP and VXLAN, and the inner Ethernet header.
const VXLAN_OVERHEAD: u16 = 40 + 8 + 8 + 14;

/// A network with nothing left to doubt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// Name of the `PodNetwork`.
    pub name: String,
    /// How packets find their way.
    pub mode: Mode,
    /// Router between it and everything else; the node only in mode L3.
    pub routing: Routing,
    /// Masquerade of packets that leave the subnets; only with routing by the node.
    ///
    /// They get an address of the node.
    pub masquerade: bool,
    /// Transport of packets between nodes; only `Local` with routing by the node.
    ///
    /// `Local` where none is written and none was decided on, see [`Written::transport`].
    pub transport: Transport,
    /// Its uplink, with transport `VLAN` and `Native`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<Wire>,
    /// Disjoint subnets in the order of the manifest; empty only in mode L2.
    pub subnets: Vec<Subnet>,
    /// Routes that pods get besides those to the subnets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<PushedRoute>,
    /// Prefixes of the addresses of its Services, disjoint and outside of the subnets.
    #[serde(rename = "serviceCIDRs", skip_serializing_if = "Vec::is_empty")]
    pub service_cidrs: Vec<IpNet>,
    /// Services of the cluster's network that pods reach: namespace and name, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster_services: Vec<(String, String)>,
    /// How pods reach the outside; only in mode L3 with routing Isolated.
    pub egress: Egress,
    /// Nodes that have a port on it; only with subnets and routing Isolated.
    pub node_access: NodeAccess,
    /// Largest IP packet, bytes; at least 1280 when a subnet is IPv6.
    pub mtu: u16,
    /// The id the manifest asks for; none means the agent allocates one.
    #[serde(rename = "networkID", skip_serializing_if = "Option::is_none")]
    pub id: Option<NetworkId>,
    /// Kind of a pod's port that asks for none; a `Veth` with routing by the node.
    pub interface: Interface,
    /// The VPC that it is a subnet of.
    ///
    /// Only with subnets, routing Isolated and no uplink; in mode L2 each subnet has a gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpc: Option<String>,
    /// Prefixes of the VPC and its peers, to which the virtual gateway routes.
    ///
    /// Pods get routes there. Set when references are followed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vpc_cidrs: Vec<IpNet>,
    /// Rates of attachments that ask for none of their own.
    pub bandwidth: Bandwidth,
    /// The scheduler's view of it.
    #[serde(skip_serializing_if = "is_untold")]
    pub scheduling: SchedulingSpec,
    /// Which of the fields that a cluster decides on the manifest has.
    #[serde(skip)]
    pub written: Written,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_untold(scheduling: &SchedulingSpec) -> bool {
    !scheduling.is_any()
}

/// The fields of a manifest that a cluster decides on when they are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The transport; with routing by the node it is never open.
    pub transport: bool,
    /// The MTU, which is that of the transport otherwise.
    pub mtu: bool,
}

impl Network {
    /// Sets the transport of a network whose manifest has none, and the MTU with it.
    pub(crate) fn carry_by(&mut self, transport: Transport) {
        self.transport = transport;
        if !self.written.mtu {
            self.mtu = default_mtu(transport);
        }
    }
}

/// A subnet of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Subnet {
    /// The prefix, host bits zero.
    pub prefix: IpNet,
    /// The gateway's address, inside the prefix and not reserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Prefixes inside this one no pod gets an address of.
    pub exclude: Vec<IpNet>,
}

/// The 24-bit number of a network in maps and tunnels (as a VNI, RFC 7348 §5).
///
/// It is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct NetworkId(u32);

impl NetworkId {
    /// The smallest id.
    pub const MIN: u32 = 1;
    /// The largest id.
    pub const MAX: u32 = 0x00ff_ffff;

    /// The id of this number, if it is in `MIN..=MAX`.
    #[must_use]
    pub const fn new(id: u32) -> Option<Self> {
        if id >= Self::MIN && id <= Self::MAX {
            Some(Self(id))
        } else {
            None
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for NetworkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Checks the parameters of the network `name`.
///
/// # Errors
/// Every field that is wrong, with what to write instead.
pub fn network(name: &str, spec: &PodNetworkParametersSpec) -> Result<Network, FieldErrors> {
    let mut faults = Faults::default();
    let by_node = spec.routing == Routing::Node;
    if by_node && spec.mode != Mode::L3 {
        faults.push("spec.routing", FieldProblem::RoutingNeedsL3);
    }
    if spec.masquerade.is_some() && !by_node {
        faults.push("spec.masquerade", FieldProblem::MasqueradeNeedsRouting);
    }
    let written = spec.transport.as_ref();
    let transport = written.map_or(Transport::Local, |transport| transport.kind);
    if by_node && transport != Transport::Local {
        faults.push(
            "spec.transport",
            FieldProblem::TransportNeedsIsolation { found: transport },
        );
    }
    if !spec.egress.is_none() && (by_node || spec.mode != Mode::L3) {
        faults.push("spec.egress", FieldProblem::EgressNeedsIsolatedL3);
    } else if spec.egress == Egress::Uplink && transport != Transport::Native {
        let problem = FieldProblem::EgressNeedsNative { found: transport };
        faults.push("spec.egress", problem);
    }
    let has_subnets = !spec.subnets.is_empty();
    if !spec.node_access.is_none() && (by_node || !has_subnets) {
        faults.push("spec.nodeAccess", FieldProblem::NodeAccessNeedsSubnets);
    }
    if let Some(vpc) = &spec.vpc {
        let carried = matches!(transport, Transport::Local | Transport::Vxlan);
        if by_node || spec.subnets.is_empty() || !carried {
            faults.push("spec.vpc", FieldProblem::VpcNeedsGateway);
        }
        let name = check_subdomain(vpc).map_err(FieldProblem::Name);
        faults.take("spec.vpc", name);
    }
    let wire = written.and_then(|written| wire(&mut faults, written, spec.mode, has_subnets));
    let misplaced = faults.0.len();
    let mut subnets = subnets(&mut faults, spec);
    let (mut pushed, mut services) = (Vec::new(), Vec::new());
    // With a subnet refused, "outside the subnets" would only repeat that error.
    if faults.0.len() == misplaced {
        gateways(&mut faults, &spec.gateway, &mut subnets);
        let without = subnets.iter().find(|subnet| subnet.gateway.is_none());
        if let (Some(_), Mode::L2, Some(subnet)) = (&spec.vpc, spec.mode, without) {
            let subnet = subnet.prefix;
            faults.push(
                "spec.gateway",
                FieldProblem::VpcSubnetNeedsGateway { subnet },
            );
        }
        excludes(&mut faults, &spec.exclude, &mut subnets);
        let written = routes::written(&mut faults, &spec.routes);
        pushed = routes::pushed(&mut faults, written, spec.mode, &subnets);
        services = services::prefixes(
            &mut faults,
            &spec.service_cidrs,
            spec.mode == Mode::L2 && wire.is_some(),
            &subnets,
        );
    }
    let is_isolated = spec.mode == Mode::L3 && spec.routing == Routing::Isolated;
    let has_way = is_isolated && spec.egress != Egress::Uplink && !spec.service_cidrs.is_empty();
    let of_cluster = services::of_cluster(&mut faults, &spec.cluster_services, has_way);
    let mtu = mtu(&mut faults, spec.mtu, &subnets, transport);
    let id = spec.network_id.and_then(|found| {
        let id = u32::try_from(found).ok().and_then(NetworkId::new);
        faults.take(
            "spec.networkID",
            id.ok_or(FieldProblem::NetworkIdRange { found }),
        )
    });
    let bandwidth = Bandwidth {
        ingress: limit(&mut faults, INGRESS, spec.ingress_rate, spec.ingress_burst),
        egress: limit(&mut faults, EGRESS, spec.egress_rate, spec.egress_burst),
    };
    note_idle_bursts(&mut faults, &bandwidth);
    let interface = interface(&mut faults, spec.interface.as_ref()).unwrap_or_default();
    note_unreachable(&mut faults, interface, spec.routing);
    let scheduling = spec.scheduling.unwrap_or_default();
    schedulable(&mut faults, name, scheduling, &subnets, wire.as_ref());
    faults.finish(Network {
        name: name.to_owned(),
        mode: spec.mode,
        routing: spec.routing,
        masquerade: spec.masquerade.unwrap_or(by_node),
        transport,
        wire,
        subnets,
        routes: pushed,
        service_cidrs: services,
        cluster_services: of_cluster,
        egress: spec.egress,
        node_access: spec.node_access,
        mtu,
        id,
        interface,
        vpc: spec.vpc.clone(),
        vpc_cidrs: Vec::new(),
        bandwidth,
        scheduling,
        written: Written {
            transport: written.is_some() || by_node,
            mtu: spec.mtu.is_some(),
        },
    })
}

/// Refuses what no label or resource of a node could say.
fn schedulable(
    faults: &mut Faults,
    name: &str,
    scheduling: SchedulingSpec,
    subnets: &[Subnet],
    wire: Option<&Wire>,
) {
    const PLACE: &str = "spec.scheduling";
    if scheduling.addresses && subnets.is_empty() {
        faults.push(PLACE, FieldProblem::AddressesNeedSubnets);
    }
    let named = scheduling.addresses || scheduling.nodes;
    if named && scheduling_key(ADDRESSES_DOMAIN, name).is_none() {
        let name = name.to_owned();
        faults.push(PLACE, FieldProblem::NoLabel { name });
    }
    if !scheduling.bandwidth {
        return;
    }
    match wire.map(|wire| &wire.uplink) {
        None => faults.push(PLACE, FieldProblem::BandwidthNeedsUplink),
        Some(uplink) if scheduling_key(BANDWIDTH_DOMAIN, uplink).is_none() => {
            let name = uplink.clone();
            faults.push(PLACE, FieldProblem::NoLabel { name });
        }
        Some(_) => {}
    }
}

fn subnets(faults: &mut Faults, spec: &PodNetworkParametersSpec) -> Vec<Subnet> {
    if spec.mode == Mode::L3 && spec.subnets.is_empty() {
        faults.push("spec.subnets", FieldProblem::SubnetsRequired);
    }
    let mut good: Vec<(usize, IpNet)> = Vec::new();
    for (index, text) in spec.subnets.iter().enumerate() {
        let path = format!("spec.subnets[{index}]");
        let prefix = parse_prefix(text).and_then(unicast_prefix);
        let Some(prefix) = faults.take(path.as_str(), prefix) else {
            continue;
        };
        match good.iter().find(|(_, other)| overlap(&prefix, other)) {
            Some(&(other_index, other)) => {
                faults.push(
                    path,
                    FieldProblem::SubnetOverlap {
                        prefix,
                        other_index,
                        other,
                    },
                );
            }
            None => good.push((index, prefix)),
        }
    }
    let bare = |(_, prefix)| Subnet {
        prefix,
        gateway: None,
        exclude: Vec::new(),
    };
    good.into_iter().map(bare).collect()
}

/// Prefixes are either nested or disjoint.
pub(crate) fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

/// Ranges with no address a pod could be reached at (RFC 6890, RFC 4291 §2.5).
const SPECIAL: [(IpNet, &str); 8] = [
    (v4(0, 8), "this host"),
    (v4(127, 8), "loopback"),
    (
        IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16)),
        "link-local",
    ),
    (v4(224, 4), "multicast"),
    (
        IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::BROADCAST, 32)),
        "limited broadcast",
    ),
    // Holds ::, ::1 and every address with an IPv4 address inside.
    (v6(0, 8), "unspecified, loopback and mapped"),
    (v6(0xfe80, 10), "link-local"),
    (v6(0xff00, 8), "multicast"),
];

const fn v4(first: u8, len: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(first, 0, 0, 0), len))
}

const fn v6(first: u16, len: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 0),
        len,
    ))
}

pub(super) fn unicast_prefix(prefix: IpNet) -> Result<IpNet, FieldProblem> {
    match SPECIAL
        .iter()
        .find(|(special, _)| overlap(special, &prefix))
    {
        Some(&(special, what)) => Err(FieldProblem::SpecialPrefix {
            prefix,
            special,
            what,
        }),
        None => Ok(prefix),
    }
}

/// Reports whether a pod can have the address: unicast, in no special range.
#[must_use]
pub fn is_pod_address(address: IpAddr) -> bool {
    unicast_address(address).is_ok()
}

/// An address outside every special range.
pub(super) fn unicast_address(address: IpAddr) -> Result<IpAddr, FieldProblem> {
    match unicast_prefix(address.into()) {
        Ok(_) => Ok(address),
        Err(_) => Err(FieldProblem::AddressNotUnicast { found: address }),
    }
}

fn prefixes(subnets: &[Subnet]) -> Vec<IpNet> {
    subnets.iter().map(|subnet| subnet.prefix).collect()
}

fn gateways(faults: &mut Faults, spec: &GatewaySpec, subnets: &mut [Subnet]) {
    if *spec != GatewaySpec::None && subnets.is_empty() {
        return faults.push("spec.gateway", FieldProblem::WithoutSubnets);
    }
    match spec {
        GatewaySpec::None => {}
        GatewaySpec::First => {
            for subnet in subnets {
                if subnet.prefix.prefix_len() == subnet.prefix.max_prefix_len() {
                    let problem = FieldProblem::NoRoomForGateway {
                        subnet: subnet.prefix,
                    };
                    faults.push("spec.gateway", problem);
                }
                subnet.gateway = Some(first_usable(&subnet.prefix));
            }
        }
        GatewaySpec::Addresses(addresses) => {
            for (index, text) in addresses.iter().enumerate() {
                let gateway = explicit_gateway(text, subnets);
                faults.take(format!("spec.gateway[{index}]"), gateway);
            }
        }
    }
}

fn explicit_gateway(text: &str, subnets: &mut [Subnet]) -> Result<(), FieldProblem> {
    let address = parse_address(text).map_err(|_| FieldProblem::BadGateway {
        found: text.to_owned(),
    })?;
    let all = prefixes(subnets);
    let Some(subnet) = subnets
        .iter_mut()
        .find(|subnet| subnet.prefix.contains(&address))
    else {
        return Err(FieldProblem::OutsideSubnets {
            address,
            subnets: all,
        });
    };
    if let Some(what) = reserved_as(&subnet.prefix, address) {
        return Err(FieldProblem::ReservedAddress {
            address,
            what,
            subnet: subnet.prefix,
        });
    }
    match subnet.gateway {
        Some(first) => Err(FieldProblem::SecondGateway {
            address,
            subnet: subnet.prefix,
            first,
        }),
        None => {
            subnet.gateway = Some(address);
            Ok(())
        }
    }
}

fn excludes(faults: &mut Faults, spec: &[String], subnets: &mut [Subnet]) {
    if !spec.is_empty() && subnets.is_empty() {
        return faults.push("spec.exclude", FieldProblem::WithoutSubnets);
    }
    for (index, text) in spec.iter().enumerate() {
        let path = format!("spec.exclude[{index}]");
        let Some(prefix) = faults.take(path.as_str(), parse_exclude(text)) else {
            continue;
        };
        let all = prefixes(subnets);
        match subnets
            .iter_mut()
            .find(|subnet| subnet.prefix.contains(&prefix))
        {
            Some(subnet) => subnet.exclude.push(prefix),
            None => faults.push(
                path,
                FieldProblem::ExcludeOutside {
                    prefix,
                    subnets: all,
                },
            ),
        }
    }
}

fn parse_exclude(text: &str) -> Result<IpNet, FieldProblem> {
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(address.into()),
        Err(_) => parse_prefix(text).map_err(|problem| match problem {
            FieldProblem::BadPrefix { found } => FieldProblem::BadPrefixOrAddress { found },
            other => other,
        }),
    }
}

/// The MTU of a network that does not say, bytes.
const fn default_mtu(transport: Transport) -> u16 {
    match transport {
        Transport::Local | Transport::Vlan | Transport::Native => MTU_DEFAULT,
        // Of either family of the nodes: one network has one MTU.
        Transport::Vxlan => MTU_DEFAULT - VXLAN_OVERHEAD,
    }
}

fn mtu(faults: &mut Faults, written: Option<i64>, subnets: &[Subnet], transport: Transport) -> u16 {
    let default = default_mtu(transport);
    let Some(found) = written else {
        return default;
    };
    let ipv6 = subnets
        .iter()
        .any(|subnet| matches!(subnet.prefix, IpNet::V6(_)));
    let min = if ipv6 { MTU_MIN_V6 } else { MTU_MIN_V4 };
    match u16::try_from(found) {
        Ok(mtu) if (min..=MTU_MAX).contains(&mtu) => mtu,
        _ => {
            faults.push(
                "spec.mtu",
                FieldProblem::MtuRange {
                    found,
                    min,
                    max: MTU_MAX,
                    ipv6,
                },
            );
            default
        }
    }
}
