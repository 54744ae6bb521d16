//! Problems of a field, in words that say what to write instead.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;

use crate::{
    interface::{InterfaceKind, QUEUES_MAX},
    listed::Listed,
    mac::ParseMacError,
    meta::NameError,
    parameters::Transport,
};

/// A field and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct FieldError {
    /// Path of the field, as `spec.subnets[1]`.
    pub path: String,
    /// The problem of its value.
    pub problem: FieldProblem,
}

/// Every error of one object, at least one, in the order of its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldErrors(pub Vec<FieldError>);

impl fmt::Display for FieldErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Listed::new(&self.0).fmt(f)
    }
}

impl std::error::Error for FieldErrors {}

/// A problem of a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldProblem {
    /// Not a prefix.
    #[error("\"{found}\" is not a prefix; write one as 10.10.0.0/24 or fd10:10::/64")]
    BadPrefix {
        /// The value as written.
        found: String,
    },
    /// Not a prefix, and not an address either.
    #[error("\"{found}\" is neither a prefix nor an address; write 10.10.0.200/29 or 10.10.0.7")]
    BadPrefixOrAddress {
        /// The value as written.
        found: String,
    },
    /// An address with a length where a prefix belongs.
    #[error("{found} has host bits set; write {network}")]
    HostBits {
        /// The value as written.
        found: String,
        /// The prefix that was probably meant.
        network: IpNet,
    },
    /// A prefix that holds addresses no pod can have.
    #[error("{prefix} overlaps {special} ({what}); choose a unicast prefix")]
    SpecialPrefix {
        /// The value.
        prefix: IpNet,
        /// The range it overlaps.
        special: IpNet,
        /// The purpose of that range.
        what: &'static str,
    },
    /// Two subnets of one network share addresses.
    #[error("{prefix} overlaps spec.subnets[{other_index}] {other}; remove one of them")]
    SubnetOverlap {
        /// The later subnet.
        prefix: IpNet,
        /// Place of the earlier one.
        other_index: usize,
        /// The earlier one.
        other: IpNet,
    },
    /// A routed network without addresses.
    #[error("mode L3 routes by address; list at least one subnet, or use mode L2")]
    SubnetsRequired,
    /// The node routes by address.
    #[error("the node routes by address; write mode L3, or routing Isolated")]
    RoutingNeedsL3,
    /// Nothing leaves an isolated network, under whatever address.
    #[error("the field belongs to routing Node; write that, or remove this field")]
    MasqueradeNeedsRouting,
    /// The node's own routes lead to other nodes.
    #[error(
        "{found} is for networks that the nodes do not route for; write type Local, or routing \
         Isolated"
    )]
    TransportNeedsIsolation {
        /// The transport as written.
        found: Transport,
    },
    /// Something else leads out of the network, or there are no addresses to go by.
    #[error(
        "the field is for networks of mode L3 that the nodes do not route for; write mode L3 and routing Isolated, or egress None"
    )]
    EgressNeedsIsolatedL3,
    /// Nothing outside leads to its pods.
    #[error(
        "Uplink is for transport Native, where routers lead to pods, and this is {found}; write transport Native, or egress Masquerade; on a VLAN, mode L2 with a router as spec.gateway does it too"
    )]
    EgressNeedsNative {
        /// The transport as written.
        found: Transport,
    },
    /// Queues of an interface that has one.
    #[error("a Veth interface has one queue; write type AFXDP or Memif, or remove this field")]
    QueuesOfVeth,
    /// No such number of queues.
    #[error("{found} is not a number of queues; write 1 to {QUEUES_MAX}")]
    QueuesRange {
        /// The value.
        found: i64,
    },
    /// The node's own stack reaches no socket.
    #[error(
        "{found} is for networks that the nodes do not route for; write type Veth, or routing Isolated"
    )]
    InterfaceNeedsIsolation {
        /// The type as written.
        found: InterfaceKind,
    },
    /// A default route among the pushed ones.
    #[error(
        "{dst} is a default route, which a pod asks for itself (isDefaultGateway, default-route); write a longer prefix"
    )]
    RouteIsDefault {
        /// The destination.
        dst: IpNet,
    },
    /// A route to what is on the network already.
    #[error("{dst} is inside subnet {subnet}, which pods reach without it; remove the route")]
    RouteInSubnet {
        /// The destination.
        dst: IpNet,
        /// The subnet.
        subnet: IpNet,
    },
    /// Services of a network that has no addresses.
    #[error("the field is for networks with subnets; write these, or remove this field")]
    ServicesNeedSubnets,
    /// Services of the cluster's network for a network without a way there.
    #[error(
        "the field is for mode L3 and routing Isolated with serviceCIDRs, and egress None or Masquerade; write these, or remove this field"
    )]
    ClusterServicesNeedGateway,
    /// Ports of nodes on a network where they have no address, or none to reach.
    #[error(
        "the field is for networks with subnets and routing Isolated; write these, or nodeAccess None"
    )]
    NodeAccessNeedsSubnets,
    /// No namespace and name of a Service.
    #[error("{found} is no namespace and name of a Service; write them as kube-system/kube-dns")]
    ServiceName {
        /// The beginning of what is written.
        found: String,
    },
    /// A network of a VPC that no virtual gateway routes for.
    #[error(
        "networks of a VPC have subnets, routing Isolated, and transport Local or VXLAN; write these, or remove this field"
    )]
    VpcNeedsGateway,
    /// A subnet of a VPC of which pods know no gateway.
    #[error(
        "{subnet} has none, and pods of a VPC reach its other networks by it; write First, or an address of it"
    )]
    VpcSubnetNeedsGateway {
        /// The subnet.
        subnet: IpNet,
    },
    /// A VPC as a peer of itself.
    #[error("the VPC itself is no peer; name another VPC, or remove the entry")]
    OwnPeer,
    /// A peer twice.
    #[error("{name} is a peer already; remove one of them")]
    PeerTwice {
        /// The peer.
        name: String,
    },
    /// Two prefixes of a VPC share addresses.
    #[error("{prefix} overlaps {other}; remove one of them")]
    CidrOverlap {
        /// The later prefix.
        prefix: IpNet,
        /// The earlier one.
        other: IpNet,
    },
    /// Services of a segment beyond podnet.
    #[error(
        "an L2 network with an uplink has no Services; write mode L3 or transport VXLAN, or remove this field"
    )]
    ServicesOnSegment,
    /// The prefix of Services has addresses of pods or of other Services.
    #[error(
        "{prefix} overlaps {other}; choose a prefix that neither a subnet nor another entry has"
    )]
    ServicesOverlap {
        /// The prefix.
        prefix: IpNet,
        /// The one that it overlaps.
        other: IpNet,
    },
    /// Pods have no address of the family of Services.
    #[error(
        "pods have no address of the family of {prefix}; add a subnet of it, or remove the prefix"
    )]
    ServicesWithoutFamily {
        /// The prefix.
        prefix: IpNet,
    },
    /// Two routes to one prefix.
    #[error("another route leads to {dst} already; remove one of them")]
    RouteTwice {
        /// The destination.
        dst: IpNet,
    },
    /// Pods have no address of the family of a route.
    #[error("pods have no address of the family of {dst}; add a subnet of it, or remove the route")]
    RouteWithoutFamily {
        /// The destination.
        dst: IpNet,
    },
    /// A route without a next hop on a network without a gateway.
    #[error("the network has no gateway for {dst}; write the next hop here, or set spec.gateway")]
    RouteWithoutGateway {
        /// The destination.
        dst: IpNet,
    },
    /// On a routed network everything goes to the virtual gateway.
    #[error("{gw} is not the gateway, which is the only next hop in mode L3; remove this field")]
    RoutePastGateway {
        /// The next hop.
        gw: IpAddr,
    },
    /// A network of an uplink without one.
    #[error("{kind} needs the name of an interface of the nodes, as eth1")]
    UplinkRequired {
        /// The transport as written.
        kind: Transport,
    },
    /// An uplink that would not be used.
    #[error("{kind} has none; remove this field, or write type VLAN or Native")]
    NoUplink {
        /// The transport as written.
        kind: Transport,
    },
    /// No interface can be called so.
    #[error("\"{found}\" is not the name of an interface; write 1 to 15 letters, as eth1")]
    BadUplink {
        /// The value as written.
        found: String,
    },
    /// Either one VLAN or several.
    #[error("VLAN needs either id, as 100, or trunk, as \"100,200,300-310\"")]
    IdOrTrunk,
    /// Not a VLAN id.
    #[error("{found} is not a VLAN id; write 1 to 4094")]
    VlanRange {
        /// The value as written.
        found: i64,
    },
    /// Not VLAN ids.
    #[error(
        "\"{found}\" is not a list of VLAN ids; write each id from 1 to 4094 once, as \"100,200,300-310\""
    )]
    BadTrunk {
        /// The value as written.
        found: String,
    },
    /// Podnet cannot check addresses behind tags that pods put on.
    #[error("pods of a trunk have addresses of their own; write mode L2 without subnets, or id")]
    TrunkHasNoAddresses,
    /// VLAN ids that would not be used.
    #[error("{kind} has no VLAN; remove this field, or write type VLAN")]
    NoVlan {
        /// The transport as written.
        kind: Transport,
    },
    /// EtherTypes where pods are on no segment of an uplink.
    #[error(
        "the field is for networks of mode L2 with an uplink; write mode L2 and type VLAN or Native, or remove this field"
    )]
    EtherTypesOfNoSegment,
    /// More EtherTypes than a network can have.
    #[error("{found} are too many; write at most 16")]
    ManyEtherTypes {
        /// How many are written.
        found: usize,
    },
    /// Not an EtherType, or one that never passes.
    #[error(
        "\"{found}\" is not an EtherType that can pass; write 0x and four hexadecimal digits as 0x88f7, at least 0x0600, and neither MAC control (0x8808) nor a VLAN tag"
    )]
    BadEtherType {
        /// The value as written.
        found: String,
    },
    /// Gateway or exclude on a network without subnets.
    #[error("the field needs spec.subnets; list a subnet or remove this field")]
    WithoutSubnets,
    /// Not an address.
    #[error("\"{found}\" is not an IP address; write one as 10.10.0.1 or fd10:10::1")]
    BadAddress {
        /// The value as written.
        found: String,
    },
    /// Not a gateway.
    #[error("\"{found}\" is not a gateway; write None, First, or addresses inside spec.subnets")]
    BadGateway {
        /// The value as written.
        found: String,
    },
    /// An address in none of the subnets.
    #[error(
        "{address} is in none of the subnets ({}); choose one inside",
        list(subnets)
    )]
    OutsideSubnets {
        /// The address.
        address: IpAddr,
        /// The subnets there are.
        subnets: Vec<IpNet>,
    },
    /// A gateway on an address no host may have.
    #[error("{address} is the {what} of {subnet}; choose another address")]
    ReservedAddress {
        /// The address.
        address: IpAddr,
        /// The reserved meaning of the address.
        what: &'static str,
        /// The subnet it belongs to.
        subnet: IpNet,
    },
    /// Two gateways for one subnet.
    #[error("{address} is a second gateway of {subnet}, which has {first}; remove one of them")]
    SecondGateway {
        /// The later gateway.
        address: IpAddr,
        /// The subnet.
        subnet: IpNet,
        /// The earlier gateway.
        first: IpAddr,
    },
    /// `First` on a subnet with one address.
    #[error("{subnet} has one address, the gateway would leave none; use a larger subnet")]
    NoRoomForGateway {
        /// The subnet.
        subnet: IpNet,
    },
    /// An exclude that is not inside one subnet.
    #[error(
        "{prefix} is not inside one of the subnets ({}); narrow or remove it",
        list(subnets)
    )]
    ExcludeOutside {
        /// The exclude.
        prefix: IpNet,
        /// The subnets there are.
        subnets: Vec<IpNet>,
    },
    /// An MTU the protocol or the kernel does not allow.
    #[error("{found} is out of range; write {min} to {max}{}", if *ipv6 {
        " (IPv6 needs at least 1280, RFC 8200 §5)"
    } else {
        ""
    })]
    MtuRange {
        /// The value as written.
        found: i64,
        /// The least allowed here.
        min: u16,
        /// The most allowed.
        max: u16,
        /// Whether IPv6 sets the minimum.
        ipv6: bool,
    },
    /// A network id that does not fit 24 bits.
    #[error("{found} is out of range; write 1 to 16777215, or remove it to have one allocated")]
    NetworkIdRange {
        /// The value as written.
        found: i64,
    },
    /// A negative rate or burst.
    #[error("{found} is negative; write bits (per second), or 0 for no limit")]
    Negative {
        /// The value as written.
        found: i64,
    },
    /// A rate that cannot be meant.
    #[error(
        "{found} bit/s is out of range; write 1000 (1 kbit/s) to 1000000000000000 (1 Pbit/s), or \
         0 for no limit"
    )]
    RateRange {
        /// The value as written.
        found: i64,
    },
    /// Addresses are to be counted where there are none.
    #[error("addresses needs spec.subnets; list a subnet or remove it")]
    AddressesNeedSubnets,
    /// A rate is to be counted at an uplink where there is none.
    #[error("bandwidth is of an uplink; write transport VLAN or Native, or remove it")]
    BandwidthNeedsUplink,
    /// A name that labels and resources of nodes cannot have.
    #[error(
        "\"{name}\" is no name that a label of a node can have; remove spec.scheduling, or choose a name of at \
         most 63 letters, digits, '-', '_' and '.'"
    )]
    NoLabel {
        /// The name of the network or of its uplink.
        name: String,
    },
    /// A burst that limits nothing.
    #[error("a burst without a rate limits nothing; set spec.{rate} too, or remove it")]
    BurstWithoutRate {
        /// The field of the rate.
        rate: &'static str,
    },
    /// Not a MAC address.
    #[error("{0}")]
    BadMac(ParseMacError),
    /// A MAC address an interface cannot own.
    #[error("{found} is a group address or zero; choose a unicast one, as 02:00:00:00:00:2a")]
    MacNotUnicast {
        /// The address.
        found: crate::MacAddr,
    },
    /// An address a pod cannot own.
    #[error("{found} is not a unicast address a pod can have")]
    AddressNotUnicast {
        /// The address.
        found: IpAddr,
    },
    /// A prefix length longer than the family has.
    #[error(
        "\"{found}\" is not an address with an optional length; write 10.10.0.42 or 10.10.0.42/24"
    )]
    BadIpRequest {
        /// The value as written.
        found: String,
    },
    /// Not a name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Fewer or more items than may be.
    #[error("the list has {found} items; write {min} to {max}")]
    Count {
        /// The least allowed.
        min: usize,
        /// The most allowed.
        max: usize,
        /// How many there are.
        found: usize,
    },
    /// A second address of one family where one is enough.
    #[error("{found} is a second address of its family; remove one of them")]
    SecondOfFamily {
        /// The later address.
        found: IpAddr,
    },
    /// One MAC address for two endpoints.
    #[error("{found} is another endpoint's too; remove one of them")]
    SecondMac {
        /// The address.
        found: crate::MacAddr,
    },
    /// The same address asked for twice.
    #[error("{found} is requested twice; remove one")]
    AddressTwice {
        /// The address.
        found: IpAddr,
    },
}

fn list(subnets: &[IpNet]) -> String {
    subnets
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}
