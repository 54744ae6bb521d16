//! Compare the engine with the shared table of packets and with the whole policy.

use std::net::{IpAddr, Ipv4Addr};

use agent_common::addr::MacAddr;
use agent_common::cases::build::{Ipv4, Ipv6};
use agent_common::cases::{self, BLUE_A, BLUE_B, Case, GREEN_A, PODS, Pod, RED_B, World};
use agent_common::policy::{self, Decision};
use agent_common::port::PORT_OUTSIDE;
use proptest::prelude::*;

use super::{Identity, Last, Network, Slot};
use frames::header::Header;

fn identity(pod: &Pod) -> Identity {
    let first = [IpAddr::V4(pod.ip4), IpAddr::V6(pod.ip6)];
    let first = first.into_iter().filter(|ip| !ip.is_unspecified());
    let ips: Vec<IpAddr> = first.chain(pod.further.iter().copied()).collect();
    Identity::new(&pod.port(), &ips, false)
}

/// The ports of a switch that are on the network of this one.
fn network<'a>(of: &Pod, ports: impl IntoIterator<Item = &'a &'static Pod>) -> Network {
    let mut network = Network::default();
    for pod in ports {
        if pod.network == of.network && pod.flags & PORT_OUTSIDE == 0 {
            network.insert(pod.ifindex, &identity(pod));
        }
    }
    network
}

/// Where the switch carries a frame to, and what arrives.
fn carried(network: &Network, sender: &Pod, frame: &[u8]) -> Option<(Slot, Vec<u8>)> {
    let sender = identity(sender);
    let mut header = Header::of(frame);
    let mut way = network.judge(&header, &sender, None);
    if way.is_err() && header.deepen_from(frame) {
        way = network.judge(&header, &sender, None);
    }
    let slot = way.ok()?.take(&mut header);
    let mut sent = header.bytes().to_vec();
    sent.extend(&frame[sent.len()..]);
    Some((slot, sent))
}

/// Cases that can come out of a client's memory, and do not come from outside.
fn cases() -> impl Iterator<Item = Case> {
    let all = cases::all().into_iter();
    all.filter(|case| {
        case.sender.flags & PORT_OUTSIDE == 0 && !case.vlan_tag && case.segment.is_none()
    })
}

fn destination(case: &Case) -> Option<Slot> {
    let slot = match case.decision {
        Decision::Switch(endpoint) | Decision::Route(endpoint, _) => endpoint.ifindex,
        _ => return None,
    };
    // What is for another network is routed by the kernel program.
    let there = PODS.iter().find(|pod| pod.ifindex == slot)?;
    (there.network == case.sender.network).then_some(slot)
}

#[test]
fn a_port_is_to_the_switch_what_it_is_to_the_kernel() {
    for pod in PODS {
        if pod.flags & PORT_OUTSIDE != 0 {
            continue;
        }
        let mut port = pod.port();
        // Where it is differs, and what leaves its network is not the switch's.
        (port.home, port.tunnel_port) = (0, 0);
        assert_eq!(identity(pod).port, port, "{}", pod.name);
    }
}

/// All deliveries of the table are carried with every port here, and no others.
///
/// The frames arrive as the table has them.
#[test]
fn what_the_table_of_packets_delivers_is_carried_and_nothing_else() {
    let mut delivered = 0;
    for case in cases() {
        let network = network(case.sender, &PODS);
        let expected = destination(&case).map(|slot| (slot, case.output.clone().unwrap()));
        delivered += usize::from(expected.is_some());
        let carried = carried(&network, case.sender, &case.frame);
        // Whom a solicitation asks for may be somebody whom only the kernel knows.
        let asks = case.frame.get(20) == Some(&58) && case.frame.get(54) == Some(&135);
        // And headers that go on behind the bytes that are copied are for the kernel program.
        let is_deep = case.frame.get(20) == Some(&60) && case.frame.len() > 128;
        let left = carried.is_none() && (asks || is_deep);
        assert!(carried == expected || left, "{}: {carried:?}", case.name);
    }
    assert!(delivered > 20, "{delivered} cases deliver to a pod");
}

/// A port that only the kernel knows changes no decision.
#[test]
fn what_the_switch_does_not_know_is_left_to_the_kernel() {
    let mut left = 0;
    for missing in PODS {
        let rest: Vec<&'static Pod> = PODS.into_iter().filter(|pod| pod != &missing).collect();
        for case in cases() {
            let network = network(case.sender, &rest);
            if let Some((slot, sent)) = carried(&network, case.sender, &case.frame) {
                assert_eq!(Some(slot), destination(&case), "{}", case.name);
                assert_eq!(Some(sent), case.output, "{}", case.name);
            } else if destination(&case) == Some(missing.ifindex) {
                left += 1;
            }
        }
    }
    assert!(left > 20, "{left} cases were left");
}

#[test]
fn a_port_that_is_gone_is_not_reached_and_the_others_are() {
    let mut network = network(&BLUE_A, &PODS);
    let to = |pod: &Pod| Ipv4::new(BLUE_A.ip4, pod.ip4).udp(pod.mac, BLUE_A.mac, (1, 2));
    let carried_to =
        |network: &Network, pod: &Pod| carried(network, &BLUE_A, &to(pod)).map(|(slot, _)| slot);
    assert_eq!(carried_to(&network, &BLUE_B), Some(BLUE_B.ifindex));
    network.remove(BLUE_B.ifindex);
    assert_eq!(carried_to(&network, &BLUE_B), None);
    let blue_c = &cases::BLUE_C;
    assert_eq!(carried_to(&network, blue_c), Some(blue_c.ifindex));
}

fn any_pod() -> impl Strategy<Value = &'static Pod> {
    proptest::sample::select(PODS.to_vec())
        .prop_filter("it speaks for others", |pod| pod.flags & PORT_OUTSIDE == 0)
}

/// Frames that are nearly right: of the world's addresses, with some bytes changed.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let well_formed = (
        any_pod(),
        any_pod(),
        any_pod(),
        any::<bool>(),
        any::<bool>(),
    );
    let well_formed = well_formed.prop_map(|(from, ip_of, to, six, by_gateway)| {
        let to_mac = if by_gateway {
            agent_common::addr::GATEWAY_MAC
        } else {
            to.mac
        };
        if six {
            Ipv6::new(ip_of.ip6, to.ip6).udp(to_mac, from.mac, (1000, 2000))
        } else {
            Ipv4::new(ip_of.ip4, to.ip4).udp(to_mac, from.mac, (1000, 2000))
        }
    });
    let changes = proptest::collection::vec((0_usize..80, any::<u8>()), 0..3);
    (well_formed, changes, 14_usize..200).prop_map(|(mut frame, changes, len)| {
        for (at, byte) in changes {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        frame.resize(frame.len().max(len), 0);
        frame
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// A carried frame is one that the policy delivers on the sender's network.
    ///
    /// The policy has all tables of the node here.
    #[test]
    fn no_frame_is_carried_that_the_policy_would_not_deliver(
        sender in any_pod(),
        frame in any_frame(),
        held in 0_u16..512,
    ) {
        let world = World::new();
        let tables = world.seen_by(sender.ifindex);
        let decision = policy::decide(frame.as_slice(), &sender.port(), &tables);
        let ports: Vec<&'static Pod> = (0..)
            .zip(PODS)
            .filter_map(|(nth, pod)| (held >> (nth % 16) & 1 == 1).then_some(pod))
            .collect();
        let network = network(sender, &ports);
        if let Some((slot, _)) = carried(&network, sender, &frame) {
            let to = match decision {
                Decision::Switch(endpoint) | Decision::Route(endpoint, _) => endpoint.ifindex,
                other => panic!("carried in spite of {other:?}"),
            };
            prop_assert_eq!(slot, to);
            let pod = PODS.into_iter().find(|pod| pod.ifindex == slot).unwrap();
            prop_assert_eq!(pod.network, sender.network);
        }
    }

    /// A hop less, in any header that there can be.
    #[test]
    fn a_routed_packet_has_a_right_checksum(id: u16, ttl in 2_u8.., tos: u8) {
        let to = PODS.into_iter().find(|pod| pod.network == GREEN_A.network && **pod != GREEN_A);
        let to = to.unwrap();
        let mut frame = Ipv4::new(GREEN_A.ip4, to.ip4).udp(
            agent_common::addr::GATEWAY_MAC,
            GREEN_A.mac,
            (1, 2),
        );
        frame[15] = tos;
        frame[18..20].copy_from_slice(&id.to_be_bytes());
        frame[22] = ttl;
        frame[24..26].fill(0);
        let sum = cases::build::checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        let (slot, sent) = carried(&network(&GREEN_A, &PODS), &GREEN_A, &frame).unwrap();
        prop_assert_eq!(slot, to.ifindex);
        let mut expected = frame;
        expected[..6].copy_from_slice(&to.mac.0);
        expected[6..12].copy_from_slice(&agent_common::addr::GATEWAY_MAC.0);
        expected[22] = ttl - 1;
        expected[24..26].fill(0);
        let sum = cases::build::checksum(&expected[14..34]);
        expected[24..26].copy_from_slice(&sum.to_be_bytes());
        prop_assert_eq!(sent, expected);
    }
}

/// Behind a packet that differs from it in one byte, whichever that is.
#[test]
fn a_packet_goes_its_own_way_whatever_came_before_it() {
    let gateway = agent_common::addr::GATEWAY_MAC;
    let green_b = PODS
        .iter()
        .find(|pod| pod.network == GREEN_A.network && ***pod != GREEN_A);
    let trains = [
        (&BLUE_A, &BLUE_B, BLUE_B.mac),
        (&GREEN_A, *green_b.unwrap(), gateway),
    ];
    let mut ways = 0;
    for (from, to, to_mac) in trains {
        let network = network(from, &PODS);
        let sender = identity(from);
        let v4 = Ipv4::new(from.ip4, to.ip4).udp(to_mac, from.mac, (1, 2));
        let v6 = Ipv6::new(from.ip6, to.ip6).udp(to_mac, from.mac, (1, 2));
        for first in [v4, v6] {
            let other = |at: usize, byte: u8| {
                let mut other = first.clone();
                other[at] = byte;
                Header::of(&other)
            };
            let mut last = Last::default();
            for (at, byte) in
                (0..first.len().min(64)).flat_map(|at| (0..=255).map(move |byte| (at, byte)))
            {
                let before = Header::of(&first);
                assert!(last.judge(&network, &before, &sender, None).is_ok());
                let alone = network.judge(&other(at, byte), &sender, None);
                let behind = last.judge(&network, &other(at, byte), &sender, None);
                assert_eq!(behind, alone, "byte {at} is {byte}");
                ways += usize::from(alone.is_ok());
            }
        }
    }
    assert!(
        ways > 0 && ways < 4 * 64 * 256,
        "some have a way and some have not"
    );
}

/// The places of a header in which packets of one flow may differ.
#[test]
fn packets_of_a_connection_are_of_one_flow() {
    let (from, to) = (&BLUE_A, &BLUE_B);
    let v4 = Ipv4::new(from.ip4, to.ip4).udp(to.mac, from.mac, (1, 2));
    let v6 = Ipv6::new(from.ip6, to.ip6).udp(to.mac, from.mac, (1, 2));
    let left_out = |frame: &[u8]| -> Vec<usize> {
        let flow = Header::of(frame).flow().unwrap();
        let mut places = 0..frame.len().min(64);
        let same = |at: &usize| {
            let mut other = frame.to_vec();
            other[*at] ^= 0x10;
            Header::of(&other).is_of(&flow)
        };
        places.by_ref().filter(same).collect()
    };
    let ids_and_ports = [18, 19, 24, 25, 34, 35];
    let behind = |from: usize, frame: &[u8]| (from..frame.len().min(64)).collect::<Vec<_>>();
    assert_eq!(
        left_out(&v4),
        [&ids_and_ports[..], &behind(38, &v4)].concat()
    );
    assert_eq!(left_out(&v6), [&[54, 55][..], &behind(58, &v6)].concat());
    let arp = [&[0xff; 6][..], &from.mac.0, &[8, 6], &[0; 46]].concat();
    assert!(Header::of(&arp).flow().is_none());
}

#[test]
fn another_networks_port_with_the_same_addresses_is_not_meant() {
    // RED_B has the addresses of BLUE_B.
    assert_eq!((RED_B.mac, RED_B.ip4), (BLUE_B.mac, BLUE_B.ip4));
    let only_red = network(&RED_B, &PODS);
    let blue = network(&BLUE_A, &[&BLUE_A]);
    let frame = Ipv4::new(BLUE_A.ip4, BLUE_B.ip4).udp(BLUE_B.mac, BLUE_A.mac, (1, 2));
    assert_eq!(carried(&blue, &BLUE_A, &frame), None);
    assert!(carried(&only_red, &BLUE_A, &frame).is_some(), "it is there");
}

#[test]
fn a_port_without_addresses_of_ours_sends_what_it_likes_by_its_own_mac() {
    let grey = cases::GREY_A.network;
    assert_eq!(grey, cases::GREY_B.network);
    let network = network(&cases::GREY_A, &PODS);
    let spoofed = Ipv4::new(Ipv4Addr::new(1, 2, 3, 4), Ipv4Addr::new(5, 6, 7, 8));
    let frame = spoofed.udp(cases::GREY_B.mac, cases::GREY_A.mac, (1, 2));
    let expected = Some((cases::GREY_B.ifindex, frame.clone()));
    assert_eq!(carried(&network, &cases::GREY_A, &frame), expected);
    let other_mac = spoofed.udp(cases::GREY_B.mac, MacAddr([2, 9, 9, 9, 9, 9]), (1, 2));
    assert_eq!(carried(&network, &cases::GREY_A, &other_mac), None);
}
