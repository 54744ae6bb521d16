use core::net::IpAddr;

use super::*;
use crate::vtep::{Straight, Vtep};

const PORT: u16 = 4789;

fn ip(text: &str) -> Ip16 {
    text.parse::<IpAddr>().unwrap().into()
}

fn uplink() -> Uplink {
    Uplink {
        port: PORT.to_be_bytes(),
        v4: ip("192.0.2.1"),
        v6: ip("2001:db8::1"),
        ..Uplink::NOTHING
    }
}

/// The outer headers as `from_pod` writes them for `payload` bytes of inner frame.
fn sent(remote: &str, local: &str, payload: usize) -> Vec<u8> {
    let (local, remote) = (ip(local), ip(remote));
    let way = Straight {
        uplink: 2,
        next_hop: remote,
        local,
        port: PORT,
        says_ethernet: true,
    };
    let vtep = Vtep::new(&remote, 9).straight(&way);
    let mut bytes: Vec<u8> = vtep.head.iter().flat_map(|it| it.to_ne_bytes()).collect();
    let udp = u16::try_from(payload + 16).unwrap().to_be_bytes();
    if vtep.is_v6() {
        bytes.truncate(ADDED_V6);
        bytes[18..20].copy_from_slice(&udp);
        bytes[58..60].copy_from_slice(&udp);
        bytes[66..69].copy_from_slice(&[0x12, 0x34, 0x56]);
    } else {
        bytes.truncate(ADDED_V4);
        let total = u16::try_from(payload + 36).unwrap().to_be_bytes();
        bytes[16..18].copy_from_slice(&total);
        let mut sum = vtep.sum + u32::from(u16::from_ne_bytes(total));
        sum = (sum & 0xffff) + (sum >> 16);
        let check = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
        bytes[24..26].copy_from_slice(&check.to_ne_bytes());
        bytes[38..40].copy_from_slice(&udp);
        bytes[46..49].copy_from_slice(&[0x12, 0x34, 0x56]);
    }
    bytes
}

fn over_v4() -> [u8; ADDED_V4] {
    sent("192.0.2.1", "192.0.2.7", 64).try_into().unwrap()
}

fn over_v6() -> [u8; ADDED_V6] {
    sent("2001:db8::1", "2001:db8::7", 64).try_into().unwrap()
}

#[test]
fn what_a_node_sends_is_read_by_the_other() {
    let read = v4(&over_v4(), ADDED_V4 + 64, &uplink()).unwrap();
    let mut expected = Outer {
        source: ip("192.0.2.7"),
        network: 0x12_3456,
        congested: false,
        flaw: None,
    };
    assert_eq!(read, expected);
    let read = v6(&over_v6(), ADDED_V6 + 64, &uplink()).unwrap();
    expected.source = ip("2001:db8::7");
    assert_eq!(read, expected);
}

/// Each byte that is not the source's, the packet's number or its hops decides.
#[test]
fn any_other_header_is_left_to_the_node() {
    let free = |at: usize, header: usize| {
        // Ethernet, ports of the sender, checksum, all of VXLAN.
        at < L3 || (header..header + 2).contains(&at) || (header + 6..header + 16).contains(&at)
    };
    for at in (0..ADDED_V4).filter(|at| !free(*at, 34)) {
        for bit in 0..8 {
            let mut bytes = over_v4();
            bytes[at] ^= 1 << bit;
            let read = v4(&bytes, ADDED_V4 + 64, &uplink());
            assert_eq!(read, None, "byte {at}, bit {bit}");
        }
    }
    // IPv6 has no checksum: traffic class, flow label, hops and the source may differ.
    let own = |at: usize| matches!(at, 14..=17 | 21..=37);
    for at in (0..ADDED_V6).filter(|at| !free(*at, 54) && !own(*at)) {
        for bit in 0..8 {
            let mut bytes = over_v6();
            bytes[at] ^= 1 << bit;
            let read = v6(&bytes, ADDED_V6 + 64, &uplink());
            assert_eq!(read, None, "byte {at}, bit {bit}");
        }
    }
}

#[test]
fn a_frame_of_another_length_than_its_headers_say_is_left_to_the_node() {
    for length in [ADDED_V4 + 63, ADDED_V4 + 65, ADDED_V4] {
        assert_eq!(v4(&over_v4(), length, &uplink()), None, "{length}");
    }
    for length in [ADDED_V6 + 63, ADDED_V6 + 65, ADDED_V6] {
        assert_eq!(v6(&over_v6(), length, &uplink()), None, "{length}");
    }
}

#[test]
fn a_node_without_an_address_of_the_family_hears_nothing() {
    let mut uplink = uplink();
    (uplink.v4, uplink.v6) = (Ip16::NONE, Ip16::NONE);
    assert_eq!(v4(&over_v4(), ADDED_V4 + 64, &uplink), None);
    assert_eq!(v6(&over_v6(), ADDED_V6 + 64, &uplink), None);
}

/// RFC 4291 section 2.5.5.2: such an address means an IPv4 one, and is on no wire.
#[test]
fn an_ipv6_source_that_stands_for_an_ipv4_node_is_left_to_the_node() {
    let mut bytes = over_v6();
    bytes[22..38].copy_from_slice(&ip("192.0.2.7").0);
    assert_eq!(v6(&bytes, ADDED_V6 + 64, &uplink()), None);
}

#[test]
fn congestion_on_the_way_is_seen_rfc_6040() {
    let mut bytes = over_v6();
    bytes[15] |= 0x30;
    assert!(v6(&bytes, ADDED_V6 + 64, &uplink()).unwrap().congested);
    let mut bytes = over_v4();
    bytes[15] |= 3;
    // The checksum, by what one word gained (RFC 1624).
    let old = u16::from_be_bytes([bytes[24], bytes[25]]);
    bytes[24..26].copy_from_slice(&(old - 3).to_be_bytes());
    assert!(v4(&bytes, ADDED_V4 + 64, &uplink()).unwrap().congested);
}

/// RFC 7348 section 5, as strictly as the kernel's device (`vxlan_rcv`).
#[test]
fn flags_and_reserved_bits_that_no_node_sends_are_told_and_so_is_a_checksum() {
    let expect = |at: usize| match at {
        40 | 41 => Some(Flaw::Checksum),
        42..=45 | 49 => Some(Flaw::Header),
        _ => None,
    };
    for at in 40..ADDED_V4 {
        for bit in 0..8 {
            let mut bytes = over_v4();
            bytes[at] ^= 1 << bit;
            let read = v4(&bytes, ADDED_V4 + 64, &uplink()).unwrap();
            assert_eq!(read.flaw, expect(at), "byte {at}, bit {bit}");
            let mut bytes = over_v6();
            bytes[at + 20] ^= 1 << bit;
            let read = v6(&bytes, ADDED_V6 + 64, &uplink()).unwrap();
            assert_eq!(read.flaw, expect(at), "byte {} bit {bit}", at + 20);
        }
    }
    // The worse of the two.
    let mut bytes = over_v4();
    (bytes[40], bytes[42]) = (1, 0);
    let read = v4(&bytes, ADDED_V4 + 64, &uplink()).unwrap();
    assert_eq!(read.flaw, Some(Flaw::Header));
}
