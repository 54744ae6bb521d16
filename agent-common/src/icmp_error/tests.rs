use core::net::{Ipv4Addr, Ipv6Addr};

use super::*;
use crate::addr::MacAddr;
use crate::cases::build;

const A4: Ipv4Addr = Ipv4Addr::new(10, 20, 0, 7);
const B4: Ipv4Addr = Ipv4Addr::new(10, 20, 1, 9);
const A6: Ipv6Addr = Ipv6Addr::new(0xfd10, 0x20, 0, 0, 0, 0, 0, 7);
const B6: Ipv6Addr = Ipv6Addr::new(0xfd10, 0x20, 0, 0, 0, 0, 1, 9);
const NONE: MacAddr = MacAddr([0; 6]);

fn split<const N: usize>(frame: &[u8]) -> ([u8; N], [u8; QUOTED]) {
    let packet = &frame[ETH_HLEN..];
    (
        packet[..N].try_into().unwrap(),
        packet[N..N + QUOTED].try_into().unwrap(),
    )
}

#[test]
fn what_is_told_has_the_form_of_rfc_792_and_its_checksums() {
    let frame = build::Ipv4::new(A4, B4).udp(NONE, NONE, (5000, 9));
    let (header, data) = split::<IPV4_HLEN>(&frame);
    for (error, start) in [
        (IcmpError::HopsSpent, [11, 0]),
        (IcmpError::TooBig(1400), [3, 4]),
    ] {
        let (ip, icmp) = v4(error, [169, 254, 1, 1], &header, &data);
        assert_eq!(build::checksum(&ip), 0);
        assert_eq!(ip[12..16], [169, 254, 1, 1]);
        assert_eq!(ip[16..20], A4.octets());
        let message = [&icmp[..], &header, &data].concat();
        assert_eq!(build::checksum(&message), 0);
        assert_eq!(usize::from(ip[3]), ip.len() + message.len());
        assert_eq!(icmp[..2], start);
        let mtu = if let IcmpError::TooBig(mtu) = error {
            mtu
        } else {
            0
        };
        assert_eq!(icmp[4..], mtu.to_be_bytes());
    }
}

#[test]
fn what_is_told_has_the_form_of_rfc_4443_and_its_checksum() {
    let frame = build::Ipv6::new(A6, B6).udp(NONE, NONE, (5000, 9));
    let (header, data) = split::<IPV6_HLEN>(&frame);
    let (from, to) = (Ip16([0xfe; 16]), Ip16(A6.octets()));
    for (error, start) in [
        (IcmpError::HopsSpent, [3, 0]),
        (IcmpError::TooBig(70_000), [2, 0]),
    ] {
        let (ip, icmp) = v6(error, &from, &to, &header, &data);
        let message = [&icmp[..], &header, &data].concat();
        let [l0, l1] = build::length16(message.len());
        assert_eq!(ip[4..6], [l0, l1]);
        let pseudo = [&from.0[..], &to.0, &[0, 0, l0, l1, 0, 0, 0, 58]];
        assert_eq!(
            build::checksum(&[&pseudo.concat()[..], &message].concat()),
            0
        );
        assert_eq!(icmp[..2], start);
        let mtu = if let IcmpError::TooBig(mtu) = error {
            mtu
        } else {
            0
        };
        assert_eq!(icmp[4..], mtu.to_be_bytes());
    }
}

#[test]
fn nobody_is_told_about_errors_groups_and_later_fragments() {
    let tells = |packet: &build::Ipv4, protocol, start| {
        let frame = packet.frame(NONE, NONE, protocol, &[start, 0, 0, 0, 0, 0, 0, 0]);
        let (header, data) = split::<IPV4_HLEN>(&frame);
        may_answer_v4(&header, &data)
    };
    let plain = build::Ipv4::new(A4, B4);
    assert!(tells(&plain, 17, 0) && tells(&plain, 6, 3));
    assert!(tells(&plain, 1, 8) && tells(&plain, 1, 0));
    assert!(!tells(&plain, 1, 3) && !tells(&plain, 1, 11));
    let group = build::Ipv4::new(A4, Ipv4Addr::new(239, 1, 1, 1));
    assert!(!tells(&group, 17, 0));
    for (fragment, answered) in [(0x4000, true), (0x2000, true), (1, false), (0x1f00, false)] {
        let packet = build::Ipv4 {
            fragment,
            ..plain.clone()
        };
        assert_eq!(tells(&packet, 17, 0), answered, "{fragment:#x}");
    }

    let tells = |to, protocol, start| {
        let packet = build::Ipv6::new(A6, to);
        let frame = packet.frame(NONE, NONE, protocol, &[start, 0, 0, 0, 0, 0, 0, 0]);
        let (header, data) = split::<IPV6_HLEN>(&frame);
        may_answer_v6(&header, &data)
    };
    assert!(tells(B6, 6, 0) && tells(B6, 17, 0) && tells(B6, 58, 128));
    assert!(!tells(B6, 58, 1) && !tells(B6, 58, 2) && !tells(B6, 44, 0));
    assert!(!tells("ff0e::1".parse().unwrap(), 17, 0));
}

#[test]
fn what_is_told_survives_two_words() {
    for error in [
        IcmpError::HopsSpent,
        IcmpError::TooBig(0),
        IcmpError::TooBig(1430),
    ] {
        assert_eq!(IcmpError::unpack(error.pack()), error);
    }
}
