//! List the reasons for a drop.

use core::fmt;

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal, $label:literal;)+) => {
        /// Why a packet was dropped. Numbers are stable: dashboards and events carry them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum DropReason {
            $($(#[doc = $doc])+ $name = $number,)+
        }

        impl DropReason {
            /// Every reason, in order of its number.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The word metrics and commands use.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)+ }
            }

            /// Returns the meaning, for documentation and `explain`.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc,)+),)+ }
            }
        }
    };
}

drop_reasons! {
    /// No program was installed behind the dispatcher.
    NoProgram = 1, "no_program";
    /// The interface is not a port of any network.
    NoPort = 2, "no_port";
    /// The frame ends before its headers do.
    Truncated = 3, "truncated";
    /// A header contradicts itself or the length of the frame.
    Malformed = 4, "malformed";
    /// The source MAC address is not the port's.
    SpoofedMac = 5, "spoofed_mac";
    /// The source IP address is not the port's.
    SpoofedIp = 6, "spoofed_ip";
    /// The sender of an ARP packet is not the port.
    SpoofedArp = 7, "spoofed_arp";
    /// A neighbour discovery message speaks for somebody else.
    SpoofedNd = 8, "spoofed_nd";
    /// The frame carries a VLAN tag.
    VlanTag = 9, "vlan_tag";
    /// The destination is a group of link control (STP, LLDP, pause).
    ///
    /// Such a frame never leaves its link.
    LinkControl = 10, "link_control";
    /// The network does not carry this EtherType.
    ///
    /// A network with an uplink carries those that it lists.
    EtherType = 11, "ether_type";
    /// No member of the network has the destination address.
    NoEndpoint = 12, "no_endpoint";
    /// The destination is the sender.
    Hairpin = 13, "hairpin";
    /// An L3 network carries no multicast and no broadcast.
    Multicast = 14, "multicast";
    /// The port has more copies made of its frames than storm control allows.
    Storm = 15, "storm";
    /// TTL or hop limit ended here.
    Ttl = 16, "ttl";
    /// The packet is larger than the network's MTU.
    TooBig = 17, "too_big";
    /// DHCP is not served on podnet networks, and no pod may serve it.
    Dhcp = 18, "dhcp";
    /// A pod sent a router advertisement or a redirect.
    RouterAdvertisement = 19, "router_advertisement";
    /// The IPv6 header chain is too long, or is not complete in the first fragment.
    Ipv6Headers = 20, "ipv6_headers";
    /// Neighbour discovery must not be fragmented (RFC 6980).
    FragmentedNd = 21, "fragmented_nd";
    /// The kernel refused to deliver.
    Undeliverable = 22, "undeliverable";
    /// The destination is link-local and cannot be routed.
    LinkLocal = 23, "link_local";
    /// The packet is for the virtual gateway, which answers ARP, ND and ping only.
    Gateway = 24, "gateway";
    /// A tunnel brought it from an address that no node of ours has.
    UnknownNode = 25, "unknown_node";
    /// A tunnel brought it for a network with no port here, or no member elsewhere.
    UnknownNetwork = 26, "unknown_network";
    /// The node it should go to is not known any more.
    NoTunnel = 27, "no_tunnel";
    /// The way to the other node carries no packet of this size; the sender is told.
    PathMtu = 28, "path_mtu";
    /// The frame has no VLAN tag of those that the network carries.
    VlanId = 29, "vlan_id";
    /// The uplink is missing, or no way leads from it to the member's node.
    ///
    /// A packet by a way out is dropped too that would not leave by the link of a default route.
    NoUplink = 30, "no_uplink";
    /// A pod sent it to the UDP port of the nodes' tunnels.
    ///
    /// The packet would leave its network, or go onto a segment without a tag.
    TunnelPort = 31, "tunnel_port";
    /// An ICMPv6 or IGMP message of a router, or one that asks hosts who they are.
    ControlMessage = 32, "control_message";
    /// The packet would become more than 128 segments of less than 88 bytes.
    ///
    /// Software would have to cut it.
    SmallSegments = 33, "small_segments";
    /// The network's ports have more copies made than storm control allows.
    ///
    /// The port has had its share.
    StormNetwork = 34, "storm_network";
    /// The node's networks have more copies made than storm control allows.
    ///
    /// The network has had its share.
    StormNode = 35, "storm_node";
    /// A network policy of the sender does not allow it.
    PolicyEgress = 36, "policy_egress";
    /// A network policy of the receiver does not allow it.
    PolicyIngress = 37, "policy_ingress";
    /// A fragment of which network policies and Services cannot see the ports.
    ///
    /// The first one is too short, was dropped, or has not come yet.
    PolicyFragment = 38, "policy_fragment";
    /// The sender opens more connections than it may.
    ///
    /// Through network policies, or to Services.
    FlowLimit = 39, "flow_limit";
    /// No Service of the network has this address, protocol and port.
    ///
    /// The sender is told.
    NoService = 40, "no_service";
    /// The Service has no endpoint; the sender is told.
    NoBackend = 41, "no_backend";
    /// The Service has no endpoint on this node, and leads to those only.
    NoLocalBackend = 42, "no_local_backend";
    /// Each endpoint asked has another connection with the same client's port.
    ///
    /// That one is of another Service, and answers of both could not be told apart.
    ServiceClash = 43, "service_clash";
}

impl DropReason {
    /// The reason with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|reason| *reason as u32 == number)
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.label())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_dense_and_fit_the_map() {
        for (index, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index + 1);
            assert!((*reason as u32) < crate::map::MAX_DROP_REASONS);
            assert_eq!(DropReason::from_number(*reason as u32), Some(*reason));
        }
        assert_eq!(DropReason::from_number(0), None);
    }
}
