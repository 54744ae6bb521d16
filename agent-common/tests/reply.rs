//! Compare answers of the datapath with frames that builders of their own made.

use std::net::{Ipv4Addr, Ipv6Addr};

use agent_common::addr::{GATEWAY_MAC, Ip16, MacAddr};
use agent_common::cases::{self, build};
use agent_common::packet::{ARP_FRAME, IPPROTO_ICMPV6};
use agent_common::policy::Decision;
use agent_common::reply::{ArpReply, ND_FRAME, NdReply};
use proptest::prelude::*;

/// The pieces in the order the datapath writes them.
fn assemble(reply: &NdReply) -> Vec<u8> {
    let pieces = reply.pieces();
    [
        &pieces.head[..],
        &pieces.source.0,
        &pieces.destination.0,
        &pieces.message,
        &reply.ip.0,
        &pieces.option,
    ]
    .concat()
}

/// Returns the checksum of an IPv6 packet's message, 0 when it is right.
///
/// It covers the pseudo header and the message.
fn icmp6_sum(frame: &[u8]) -> u16 {
    let message = &frame[54..];
    let pseudo = [
        &frame[22..54],
        &u32::try_from(message.len()).expect("a frame").to_be_bytes(),
        &[0, 0, 0, IPPROTO_ICMPV6],
        message,
    ];
    build::checksum(&pseudo.concat())
}

fn array<const N: usize>(frame: &[u8], at: usize) -> [u8; N] {
    frame[at..at + N].try_into().expect("as many as asked for")
}

#[test]
fn every_arp_answer_of_the_table_is_what_the_datapath_builds() {
    let mut count = 0;
    for case in cases::all() {
        let Decision::ArpReply(mac) = case.decision else {
            continue;
        };
        let frame = &case.frame;
        let reply = ArpReply {
            mac,
            ip: array(frame, 38),
            to_mac: MacAddr(array(frame, 22)),
            to_ip: array(frame, 28),
        };
        // Whatever pads the question pads the answer.
        let mut built = reply.frame().to_vec();
        built.extend_from_slice(&frame[ARP_FRAME..]);
        assert_eq!(Some(built), case.output, "{}", case.name);
        count += 1;
    }
    assert!(count > 5);
}

#[test]
fn every_nd_answer_of_the_table_is_what_the_datapath_builds() {
    let mut count = 0;
    for case in cases::all() {
        let Decision::NdReply(mac) = case.decision else {
            continue;
        };
        let reply = NdReply {
            mac,
            ip: Ip16(array(&case.frame, 62)),
            to_mac: MacAddr(array(&case.frame, 6)),
            to_ip: Ip16(array(&case.frame, 22)),
            router: mac == GATEWAY_MAC,
        };
        assert_eq!(Some(assemble(&reply)), case.output, "{}", case.name);
        count += 1;
    }
    assert!(count > 10);
}

#[test]
fn every_frame_that_leaves_has_right_checksums() {
    for case in cases::all() {
        let Some(frame) = &case.output else { continue };
        if frame[12..14] == [0x08, 0x00] && frame.len() >= 34 {
            let end = 14 + usize::from(frame[14] & 0x0f) * 4;
            assert_eq!(
                build::checksum(&frame[14..end]),
                0,
                "IPv4 header of {}",
                case.name
            );
        }
        if matches!(case.decision, Decision::NdReply(_)) {
            assert_eq!(icmp6_sum(frame), 0, "{}", case.name);
        }
        if matches!(
            case.decision,
            Decision::EchoReply(agent_common::policy::Family::V4, _)
        ) {
            let at = 14 + usize::from(frame[14] & 0x0f) * 4;
            assert_eq!(build::checksum(&frame[at..]), 0, "{}", case.name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn an_arp_answer_says_who_asked_and_who_has_it(
        mac in any::<[u8; 6]>(),
        ip in any::<[u8; 4]>(),
        to_mac in any::<[u8; 6]>(),
        to_ip in any::<[u8; 4]>(),
    ) {
        let (mac, to_mac) = (MacAddr(mac), MacAddr(to_mac));
        let frame = ArpReply { mac, ip, to_mac, to_ip }.frame();
        let sender = (mac, Ipv4Addr::from(ip));
        let expected = build::Arp::reply(sender, (to_mac, Ipv4Addr::from(to_ip)));
        prop_assert_eq!(&frame[..], &expected.frame(to_mac, mac)[..]);
    }

    #[test]
    fn an_nd_answer_is_a_right_advertisement_whatever_the_addresses(
        mac in any::<[u8; 6]>(),
        ip in any::<[u8; 16]>(),
        to_mac in any::<[u8; 6]>(),
        to_ip in prop_oneof![Just([0; 16]), Just([0xff; 16]), any::<[u8; 16]>()],
        router in any::<bool>(),
    ) {
        let reply =
            NdReply { mac: MacAddr(mac), ip: Ip16(ip), to_mac: MacAddr(to_mac), to_ip: Ip16(to_ip), router };
        let frame = assemble(&reply);
        prop_assert_eq!(frame.len(), ND_FRAME);
        prop_assert_eq!(icmp6_sum(&frame), 0);
        // RFC 4861 section 7.2.4: who has no address is told by way of all nodes, unsolicited.
        let probe = to_ip == [0; 16];
        let destination = if probe { build::ALL_NODES } else { Ipv6Addr::from(to_ip) };
        let group = build::group_mac_v6(build::ALL_NODES);
        let flags = 0x20 | if probe { 0 } else { 0x40 } | if router { 0x80 } else { 0 };
        let body =
            build::advertisement(flags, Ipv6Addr::from(ip), &build::link_address(2, MacAddr(mac)));
        let to = if probe { group } else { MacAddr(to_mac) };
        let expected = build::Ipv6::neighbour(Ipv6Addr::from(ip), destination)
            .icmp(to, MacAddr(mac), 136, 0, &body);
        // Both zeros of ones' complement arithmetic are right; the pseudo random addresses may
        // meet either.
        prop_assert_eq!(&frame[..56], &expected[..56]);
        prop_assert_eq!(&frame[58..], &expected[58..]);
    }
}
