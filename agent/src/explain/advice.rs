//! Advice for a person about a dropped packet.

use agent_common::drop::DropReason;

/// Advice about a packet that was dropped for this reason.
// Exhaustive: a new reason does not compile until somebody says what helps.
pub(super) const fn of(reason: DropReason) -> &'static str {
    match reason {
        DropReason::NoProgram => "start podnet-agent run: it puts its programs back",
        DropReason::NoPort => {
            "CHECK the attachment and look at podnet-agent get attachments; a restart of the agent writes the tables again"
        }
        DropReason::Truncated | DropReason::Malformed => {
            "correct the program that makes the packet"
        }
        DropReason::SpoofedMac => {
            "send from the MAC address that the attachment has, or ask for another one with \
             runtimeConfig.mac"
        }
        DropReason::SpoofedIp | DropReason::SpoofedArp | DropReason::SpoofedNd => {
            "send from an address that the attachment has, or ask for more with runtimeConfig.ips"
        }
        DropReason::VlanTag => "send without a VLAN tag; give each VLAN a network of its own",
        DropReason::LinkControl => "no remedy: such frames never leave a link",
        DropReason::EtherType => {
            "use an L2 network for what is not IP, and where it has an uplink list the EtherType in \
             spec.transport.etherTypes of its PodNetworkParameters"
        }
        DropReason::NoEndpoint => {
            "look for the address in podnet-agent get endpoints; where it is missing, its pod is on \
             another network or its node has not said so yet"
        }
        DropReason::Hairpin => "the sender is the receiver: use the loopback address",
        DropReason::Multicast => "use an L2 network for broadcast and multicast",
        DropReason::Storm => "send less broadcast and multicast, or ask each receiver for itself",
        DropReason::Ttl => "raise the TTL of the socket",
        DropReason::TooBig => {
            "send smaller packets; the interface has the network's MTU, see spec.mtu of its \
             PodNetworkParameters"
        }
        DropReason::Dhcp => "take the addresses that the attachment has; podnet serves no DHCP",
        DropReason::RouterAdvertisement => "no remedy: pods are no routers for others",
        DropReason::TunnelPort => "use another UDP port: tunnels end at this one",
        DropReason::SmallSegments => {
            "send segments of 88 bytes and more, or fewer of them at once: see TCP_MAXSEG and \
             UDP_SEGMENT of the socket"
        }
        DropReason::StormNetwork | DropReason::StormNode => {
            "look which ports flood, podnet_drops_total and get attachments; more is allowed with \
             --storm-network and --storm-node of podnet-agent run"
        }
        DropReason::ControlMessage => {
            "no remedy: pods are no routers, and answer no question who they are"
        }
        DropReason::Ipv6Headers => {
            "send fewer extension headers, all of them in the first fragment"
        }
        DropReason::FragmentedNd => "no remedy: neighbour discovery must not be fragmented",
        DropReason::Undeliverable => {
            "look at the link and the queue of the receiver, podnet-agent get attachments shows both"
        }
        DropReason::LinkLocal => {
            "use an address of the network: link-local ones are not routed on an L3 network"
        }
        DropReason::Gateway => "the gateway has no services; only ping tells that it is there",
        DropReason::UnknownNode => {
            "say the node's address with --vtep there, and see that this node hears it: \
             docs/across-nodes.md"
        }
        DropReason::UnknownNetwork => {
            "give the network transport VXLAN and one number on both nodes, and a pod on this one"
        }
        DropReason::VlanId => {
            "send with a VLAN tag of those in spec.transport.trunk of the network"
        }
        DropReason::NoUplink => {
            "see that the uplink is there and up, and for L3 that a route to the other node leads out of it"
        }
        DropReason::PathMtu => {
            "no remedy is needed: the sender was told, and sends smaller packets; to avoid it, raise the underlay's \
             MTU or lower spec.mtu of the network's PodNetworkParameters"
        }
        DropReason::PolicyEgress => {
            "allow it in an egress rule of a policy that selects the sender: podnet-agent get policies lists them"
        }
        DropReason::PolicyIngress => {
            "allow it in an ingress rule of a policy that selects the receiver: podnet-agent get policies lists them"
        }
        DropReason::PolicyFragment => {
            "send packets that need no fragments, or fragments in their order: policies and Services go by ports, which the \
             first one has"
        }
        DropReason::FlowLimit => {
            "open fewer connections: a sender may open 4,000 a second through policies, and as many to Services"
        }
        DropReason::NoService => {
            "look for the address, the port and its protocol in podnet-agent get services; the Service belongs to the \
             network that its label podnet.dev/network names"
        }
        DropReason::NoBackend => {
            "see that pods which the Service selects are on its network and ready: podnet-agent get services"
        }
        DropReason::NoLocalBackend => {
            "give the Service internalTrafficPolicy: Cluster, or run one of its pods on this node"
        }
        DropReason::ServiceClash => {
            "use another source port: the client has a connection with each endpoint from this one, by another Service"
        }
        DropReason::NoTunnel => {
            "the node has gone or has just changed its address: ask again, and look at its agent"
        }
    }
}
