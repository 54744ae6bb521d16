use agent_common::addr::GATEWAY_MAC;
use agent_common::packet::ARP_FRAME;

use super::*;

const MACS: Macs = Macs {
    to: MacAddr([2, 0, 0, 0, 0, 2]),
    from: MacAddr([2, 0, 0, 0, 0, 1]),
};
const PORTS: Ports = Ports {
    source: 40_000,
    destination: 443,
};

fn pair(v4: bool) -> (IpAddr, IpAddr) {
    let [a, b] = if v4 {
        ["10.10.0.2", "10.10.0.3"]
    } else {
        ["fd10::2", "fd10::3"]
    };
    (a.parse().unwrap(), b.parse().unwrap())
}

/// The parts of a frame whose checksums must come out as zero.
fn sums(frame: &[u8], v4: bool, protocol: u8) -> Vec<[u8; 2]> {
    let (source, destination) = pair(v4);
    let at = ETH_HLEN + if v4 { IPV4_HLEN } else { IPV6_HLEN };
    let inner = &frame[at..];
    let pseudo = pseudo_header(source, destination, protocol, inner.len());
    let pseudo = if protocol == IPPROTO_ICMP {
        vec![]
    } else {
        pseudo
    };
    let mut sums = vec![checksum(&[&pseudo, inner])];
    if v4 {
        sums.push(checksum(&[&frame[ETH_HLEN..at]]));
    }
    sums
}

#[test]
fn every_packet_is_as_long_as_asked_and_its_checksums_are_right() {
    for v4 in [true, false] {
        let icmp = if v4 { IPPROTO_ICMP } else { IPPROTO_ICMPV6 };
        for (proto, protocol) in [
            (Proto::Tcp(PORTS), IPPROTO_TCP),
            (Proto::Udp(PORTS), IPPROTO_UDP),
            (Proto::Icmp, icmp),
        ] {
            for size in [None, Some(99), Some(1500), Some(65_535)] {
                let frame = packet(MACS, pair(v4), proto, size).unwrap();
                if let Some(size) = size {
                    assert_eq!(frame.len(), size + ETH_HLEN);
                }
                let header = ETH_HLEN + if v4 { 2 } else { 4 };
                let said = u16::from_be_bytes([frame[header], frame[header + 1]]);
                let fixed = if v4 { ETH_HLEN } else { ETH_HLEN + IPV6_HLEN };
                assert_eq!(usize::from(said), frame.len() - fixed);
                for sum in sums(&frame, v4, protocol) {
                    assert_eq!(sum, [0, 0], "{proto:?} {size:?}");
                }
                // What a router makes of it is right as well.
                let by = Macs {
                    to: MACS.to,
                    from: GATEWAY_MAC,
                };
                let next = routed(&frame, by);
                let hops = ETH_HLEN + if v4 { 8 } else { 7 };
                assert_eq!(next[hops], HOPS - 1);
                assert_eq!(next[6..12], GATEWAY_MAC.0);
                for sum in sums(&next, v4, protocol) {
                    assert_eq!(sum, [0, 0], "routed {proto:?} {size:?}");
                }
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    for (proto, size) in [
        (Proto::Icmp, 27),
        (Proto::Tcp(PORTS), 39),
        (Proto::Ip(47), 19),
    ] {
        let error = packet(MACS, pair(true), proto, Some(size)).unwrap_err();
        assert!(error.to_string().contains("--size"), "{error}");
    }
    let mixed = (pair(true).0, pair(false).1);
    let error = packet(MACS, mixed, Proto::Icmp, None).unwrap_err();
    assert!(error.to_string().contains("IPv4"), "{error}");
}

#[test]
fn questions_about_neighbours_are_those_of_a_kernel() {
    let [a, b] = ["10.10.0.2", "10.10.0.3"].map(|text| text.parse().unwrap());
    let frame = arp(MACS.from, a, b);
    assert_eq!(frame.len(), ARP_FRAME);
    assert_eq!(frame[..6], [0xff; 6]);
    assert_eq!(frame[38..], [10, 10, 0, 3]);
    let [a, b] = ["fd10::2", "fd10::1:2:3"].map(|text| text.parse::<Ipv6Addr>().unwrap());
    let frame = solicitation(MACS.from, a, b);
    assert_eq!(frame[..6], [0x33, 0x33, 0xff, 2, 0, 3]);
    let group = "ff02::1:ff02:3".parse::<Ipv6Addr>().unwrap();
    let inner = &frame[ETH_HLEN + IPV6_HLEN..];
    let pseudo = pseudo_header(a.into(), group.into(), IPPROTO_ICMPV6, inner.len());
    assert_eq!(checksum(&[&pseudo, inner]), [0, 0]);
}
