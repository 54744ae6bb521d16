//! Test which frames other nodes may send.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

mod agreed;

use super::*;
use crate::addr::Ip16;
use crate::cases::build::{Arp, Ipv4, Ipv6, ethernet};
use crate::endpoint::{ENDPOINT_NO_PEER, EndpointKey, FdbKey};
use crate::route::Route;

const BLUE: u32 = 7;
const RED: u32 = 8;
/// A network that is routed to BLUE.
const JADE: u32 = 9;
const PORTS: (u16, u16) = (4000, 5000);
const NEAR: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const FAR: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const FARTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 3]);
const NEAR_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const FAR_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const FARTHER_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const JADE_V4: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const NEAR_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const FAR_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

const L2: Network = Network::new(0, 1430);
const ROUTED: Network = Network::new(NETWORK_L3, 1430);
/// The node that `FAR` is on.
const THERE: Origin = Origin {
    network: BLUE,
    vtep: 1,
};

/// A pod here, one on node 1 and one on node 2, on a network of either mode.
struct Three {
    fdb: BTreeMap<FdbKey, Endpoint>,
    endpoints: BTreeMap<EndpointKey, Endpoint>,
}

impl Three {
    fn new() -> Self {
        let mut three = Self {
            fdb: BTreeMap::new(),
            endpoints: BTreeMap::new(),
        };
        let remote = |ifindex, mac| Endpoint {
            ifindex,
            flags: ENDPOINT_REMOTE,
            mac,
            port_id: u16::MAX,
        };
        three.add(near(), &[NEAR_V4.into(), NEAR_V6.into()]);
        three.add(remote(1, FAR), &[FAR_V4.into(), FAR_V6.into()]);
        three.add(remote(2, FARTHER), &[FARTHER_V4.into()]);
        let gateway = Endpoint {
            ifindex: 0,
            flags: ENDPOINT_GATEWAY,
            mac: GATEWAY_MAC,
            port_id: u16::MAX,
        };
        three.add(gateway, &[GATEWAY_V4.into()]);
        let key = EndpointKey {
            network: JADE,
            ip: Ip16::from_v4(JADE_V4.octets()),
        };
        three.endpoints.insert(key, remote(1, FAR));
        let key = EndpointKey {
            network: JADE,
            ip: Ip16(JADE_V6.octets()),
        };
        three.endpoints.insert(key, remote(1, FAR));
        let key = EndpointKey {
            network: BLUE,
            ip: Ip16(NEAR.link_local().octets()),
        };
        three.endpoints.insert(key, near());
        three
    }

    fn add(&mut self, endpoint: Endpoint, addresses: &[std::net::IpAddr]) {
        // No port has the gateway's.
        if endpoint.mac != GATEWAY_MAC {
            self.fdb.insert(FdbKey::new(BLUE, endpoint.mac), endpoint);
        }
        for ip in addresses {
            let key = EndpointKey {
                network: BLUE,
                ip: (*ip).into(),
            };
            self.endpoints.insert(key, endpoint);
        }
    }
}

const JADE_V6: Ipv6Addr = Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 2);

#[test]
fn what_is_routed_to_a_segment_is_checked_as_what_is_switched() {
    use crate::cases::build::{advertisement, link_address};
    let expect = |what: &str, frame: Vec<u8>| {
        let arrival = l2(&frame);
        assert!(matches!(arrival, Arrival::Drop(_)), "{what}: {arrival:?}");
    };
    let sound = Ipv6::new(JADE_V6, NEAR_V6).udp(NEAR, GATEWAY_MAC, PORTS);
    assert_eq!(l2(&sound), Arrival::Deliver(near()));
    // That FARTHER's (node 2's) address is at FAR's MAC address, of node 1.
    let body = advertisement(
        0x20,
        FAR_V6,
        &link_address(2, MacAddr([2, 0, 0, 0, 0, 0x66])),
    );
    let six = Ipv6::neighbour(JADE_V6, NEAR_V6);
    expect("NA for another", six.icmp(NEAR, GATEWAY_MAC, 136, 0, &body));
    expect("RA", six.icmp(NEAR, GATEWAY_MAC, 134, 0, &[0x41; 900]));
    expect("redirect", six.icmp(NEAR, GATEWAY_MAC, 137, 0, &[0; 36]));
    let ll = Ipv6::neighbour(JADE_V6, NEAR.link_local());
    expect(
        "NA to link-local",
        ll.icmp(NEAR, GATEWAY_MAC, 136, 0, &body),
    );
    expect("UDP to link-local", ll.udp(NEAR, GATEWAY_MAC, PORTS));
    let four = Ipv4::new(JADE_V4, NEAR_V4);
    expect("DHCP", four.udp(NEAR, GATEWAY_MAC, (67, 68)));
    expect("RFC 1256", four.icmp(NEAR, GATEWAY_MAC, 9, 0));
    let long = Ipv4 {
        total: Some(9000),
        ..four.clone()
    };
    expect("total", long.udp(NEAR, GATEWAY_MAC, PORTS));
}

impl Tables for Three {
    fn is_further_address(&self, _: &Ip16) -> bool {
        false
    }

    fn endpoint(&self, network: u32, ip: &Ip16) -> Option<Endpoint> {
        let key = EndpointKey { network, ip: *ip };
        self.endpoints.get(&key).copied()
    }

    fn route(&self, network: u32, ip: &Ip16) -> Option<Route> {
        let is_jade = network == BLUE
            && (matches!(ip.v4(), Some([10, 1, 0, _])) || ip.same(&Ip16(JADE_V6.octets())));
        is_jade.then_some(Route {
            network: JADE,
            mtu: 0,
        })
    }

    fn station(&self, network: u32, mac: MacAddr) -> Option<Endpoint> {
        self.fdb.get(&FdbKey::new(network, mac)).copied()
    }
}

fn near() -> Endpoint {
    Endpoint {
        ifindex: 11,
        flags: ENDPOINT_NO_PEER,
        mac: NEAR,
        port_id: 3,
    }
}

fn decided(network: &Network, origin: Origin, frame: &[u8]) -> Arrival {
    arrive(frame, network, origin, &Three::new())
}

fn l2(frame: &[u8]) -> Arrival {
    decided(&L2, THERE, frame)
}

fn l3(frame: &[u8]) -> Arrival {
    decided(&ROUTED, THERE, frame)
}

fn v4(to: MacAddr, from: MacAddr) -> Vec<u8> {
    Ipv4::new(FAR_V4, NEAR_V4).udp(to, from, PORTS)
}

#[test]
fn a_frame_of_a_pod_of_that_node_is_delivered_to_one_of_this() {
    assert_eq!(l2(&v4(NEAR, FAR)), Arrival::Deliver(near()));
    let arp = Arp::request((FAR, FAR_V4), NEAR_V4).frame(NEAR, FAR);
    assert_eq!(l2(&arp), Arrival::Deliver(near()));
}

#[test]
fn a_routed_packet_is_delivered_by_its_destination_address() {
    assert_eq!(l3(&v4(NEAR, GATEWAY_MAC)), Arrival::Deliver(near()));
    let six = Ipv6::new(FAR_V6, NEAR_V6).udp(NEAR, GATEWAY_MAC, PORTS);
    assert_eq!(l3(&six), Arrival::Deliver(near()));
}

#[test]
fn what_is_for_all_goes_to_the_ports_of_this_node() {
    assert_eq!(l2(&v4(MacAddr::BROADCAST, FAR)), Arrival::Flood);
    let group = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
    assert_eq!(l2(&v4(group, FAR)), Arrival::Flood);
}

#[test]
fn a_node_speaks_for_its_own_pods_only() {
    for stranger in [NEAR, FARTHER, MacAddr([2, 0, 0, 0, 0, 9])] {
        for to in [NEAR, MacAddr::BROADCAST] {
            let arrival = l2(&v4(to, stranger));
            assert_eq!(arrival, Arrival::Drop(DropReason::SpoofedMac), "{stranger}");
        }
    }
    for stranger in [NEAR_V4, FARTHER_V4, GATEWAY_V4, Ipv4Addr::new(10, 9, 9, 9)] {
        let frame = Ipv4::new(stranger, NEAR_V4).udp(NEAR, GATEWAY_MAC, PORTS);
        assert_eq!(
            l3(&frame),
            Arrival::Drop(DropReason::SpoofedIp),
            "{stranger}"
        );
    }
    let unrouted = v4(NEAR, FAR);
    assert_eq!(l3(&unrouted), Arrival::Drop(DropReason::SpoofedMac));
}

#[test]
fn a_packet_of_a_network_that_is_routed_here_is_its_members_of_that_node() {
    let from = |source| Ipv4::new(source, NEAR_V4).udp(NEAR, GATEWAY_MAC, PORTS);
    assert_eq!(l3(&from(JADE_V4)), Arrival::Deliver(near()));
    let spoofed = Arrival::Drop(DropReason::SpoofedIp);
    assert_eq!(l3(&from(Ipv4Addr::new(10, 1, 0, 3))), spoofed, "no member");
    let elsewhere = Origin { vtep: 2, ..THERE };
    let arrival = decided(&ROUTED, elsewhere, &from(JADE_V4));
    assert_eq!(arrival, spoofed, "a member of another node");
    let red = Origin {
        network: RED,
        ..THERE
    };
    assert_eq!(decided(&ROUTED, red, &from(JADE_V4)), spoofed);
    // On a segment it comes from the gateway, and no member of the segment does.
    assert_eq!(l2(&from(JADE_V4)), Arrival::Deliver(near()));
    assert_eq!(l2(&from(Ipv4Addr::new(10, 1, 0, 3))), spoofed, "no member");
    let arrival = decided(&L2, elsewhere, &from(JADE_V4));
    assert_eq!(arrival, spoofed, "a member of another node");
    let mac = Arrival::Drop(DropReason::SpoofedMac);
    assert_eq!(l2(&from(FAR_V4)), mac, "a member of the segment");
    let frame = Ipv4::new(JADE_V4, NEAR_V4).udp(NEAR, FAR, PORTS);
    assert_eq!(l2(&frame), spoofed, "by the MAC address of a member");
    let arp = Arp::request((GATEWAY_MAC, JADE_V4), NEAR_V4).frame(NEAR, GATEWAY_MAC);
    assert!(matches!(l2(&arp), Arrival::Drop(_)), "no packet");
    let group = Ipv4::new(JADE_V4, NEAR_V4).udp(MacAddr::BROADCAST, GATEWAY_MAC, PORTS);
    assert_eq!(l2(&group), Arrival::Drop(DropReason::NoEndpoint), "for all");
}

#[test]
fn another_network_does_not_know_the_pods_of_this_one() {
    let origin = Origin {
        network: RED,
        vtep: 1,
    };
    let arrival = decided(&L2, origin, &v4(NEAR, FAR));
    assert_eq!(arrival, Arrival::Drop(DropReason::SpoofedMac));
    let arrival = decided(&ROUTED, origin, &v4(NEAR, GATEWAY_MAC));
    assert_eq!(arrival, Arrival::Drop(DropReason::SpoofedIp));
}

#[test]
fn what_came_from_a_node_goes_to_no_other_one() {
    let hairpin = Arrival::Drop(DropReason::Hairpin);
    assert_eq!(l2(&v4(FARTHER, FAR)), hairpin);
    assert_eq!(l2(&v4(FAR, FAR)), hairpin);
    let frame = Ipv4::new(FAR_V4, FARTHER_V4).udp(FARTHER, GATEWAY_MAC, PORTS);
    assert_eq!(l3(&frame), hairpin);
}

#[test]
fn nobody_answers_for_who_is_not_there() {
    let nobody = MacAddr([2, 0, 0, 0, 0, 9]);
    assert_eq!(l2(&v4(nobody, FAR)), Arrival::Drop(DropReason::NoEndpoint));
    let moved = v4(nobody, GATEWAY_MAC);
    assert_eq!(l3(&moved), Arrival::Drop(DropReason::NoEndpoint));
    let gateway = Ipv4::new(FAR_V4, GATEWAY_V4).udp(NEAR, GATEWAY_MAC, PORTS);
    assert_eq!(l3(&gateway), Arrival::Drop(DropReason::Gateway));
}

#[test]
fn a_routed_network_carries_ip_only() {
    let arp = ethernet(NEAR, GATEWAY_MAC, 0x0806, &[0; 28]);
    assert_eq!(l3(&arp), Arrival::Drop(DropReason::EtherType));
    let mapped = Ipv6::new(FAR_V4.to_ipv6_mapped(), NEAR_V6).udp(NEAR, GATEWAY_MAC, PORTS);
    assert_eq!(l3(&mapped), Arrival::Drop(DropReason::Malformed));
}

#[test]
fn tags_link_control_and_what_is_too_big_or_too_short_are_dropped() {
    let tagged = ethernet(NEAR, FAR, 0x8100, &[0; 46]);
    assert_eq!(l2(&tagged), Arrival::Drop(DropReason::VlanTag));
    let pause = MacAddr([0x01, 0x80, 0xc2, 0, 0, 1]);
    let control = ethernet(pause, FAR, 0x8808, &[0; 46]);
    assert_eq!(l2(&control), Arrival::Drop(DropReason::LinkControl));
    let large = ethernet(NEAR, FAR, 0x0800, &[0; 1431]);
    assert_eq!(l2(&large), Arrival::Drop(DropReason::TooBig));
    assert_eq!(l2(&[0; 13]), Arrival::Drop(DropReason::Truncated));
    let short = ethernet(NEAR, GATEWAY_MAC, 0x0800, &[0; 19]);
    assert_eq!(l3(&short), Arrival::Drop(DropReason::Truncated));
}
