use proptest::prelude::*;

use super::*;

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

fn frame(ether_type: u16, packet: &[u8]) -> Vec<u8> {
    [&MACS[..], &ether_type.to_be_bytes(), packet].concat()
}

/// A packet of IPv4 with this fragment word.
fn v4(protocol: u8, fragment: u16, segment: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0];
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend(segment);
    packet
}

fn v6(next: u8, rest: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, next, 64];
    let address = |last: u16| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last).octets();
    packet.extend(address(1));
    packet.extend(address(2));
    packet.extend(rest);
    packet
}

fn addresses(key: &FlowKey) -> [String; 2] {
    [key.source.to_string(), key.destination.to_string()]
}

#[test]
fn the_ports_of_a_datagram_are_in_its_key_and_not_in_that_of_a_later_fragment() {
    let segment = [0x12, 0x34, 0, 53, 0, 8, 0, 0];
    let key = FlowKey::of(&frame(IPV4, &v4(UDP, 0x2000, &segment)));
    assert_eq!(addresses(&key), ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(
        (key.protocol_name().as_str(), key.ports),
        ("udp", Some((0x1234, 53)))
    );
    let later = FlowKey::of(&frame(IPV4, &v4(UDP, 0x2001, &segment)));
    assert_eq!((later.protocol, later.ports), (Some(UDP), None));
}

#[test]
fn a_message_of_icmp_has_its_type_and_code() {
    let key = FlowKey::of(&frame(IPV4, &v4(ICMP, 0, &[3, 4, 0, 0])));
    assert_eq!(
        (key.protocol_name().as_str(), key.icmp),
        ("icmp", Some((3, 4)))
    );
    assert_eq!(key.ports, None);
    let key = FlowKey::of(&frame(IPV6, &v6(ICMPV6, &[135, 0, 0, 0])));
    assert_eq!(
        (key.protocol_name().as_str(), key.icmp),
        ("icmpv6", Some((135, 0)))
    );
}

#[test]
fn extension_headers_are_passed_until_the_transport_and_not_behind_a_later_fragment() {
    let tcp = [0, 80, 0x9c, 0x40, 0, 0, 0, 0];
    let options = [60, 0, 0, 0, 0, 0, 0, 0];
    let first = [TCP, 0, 0, 1, 0, 0, 0, 9];
    let of = |fragment: [u8; 8]| {
        let mut fragment_after_options = options;
        fragment_after_options[0] = FRAGMENT;
        let rest = [&fragment_after_options[..], &fragment, &tcp].concat();
        FlowKey::of(&frame(IPV6, &v6(0, &rest)))
    };
    let key = of(first);
    assert_eq!(addresses(&key), ["fd00::1", "fd00::2"]);
    assert_eq!((key.protocol, key.ports), (Some(TCP), Some((80, 40_000))));
    let later = of([TCP, 0, 0, 8, 0, 0, 0, 9]);
    assert_eq!((later.protocol, later.ports), (Some(TCP), None));
}

#[test]
fn a_tag_is_the_vlan_of_a_flow_and_what_is_behind_it_is_read() {
    let packet = v4(SCTP, 0, &[0, 7, 0, 8]);
    let tagged = [&[0x20, 0x64, 0x08, 0x00], &packet[..]].concat();
    let key = FlowKey::of(&frame(0x8100, &tagged));
    assert_eq!((key.vlan, key.ether_type), (Some(0x064), IPV4));
    assert_eq!(key.ports, Some((7, 8)));
}

#[test]
fn a_question_of_arp_has_the_addresses_that_it_is_about() {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 1];
    packet.extend([2, 0, 0, 0, 0, 2, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 9]);
    let key = FlowKey::of(&frame(ARP, &packet));
    assert_eq!(addresses(&key), ["10.0.0.1", "10.0.0.9"]);
    assert_eq!(key.protocol_name(), "arp");
}

#[test]
fn a_frame_of_another_kind_has_its_mac_addresses_and_its_ether_type() {
    let key = FlowKey::of(&frame(0x88b5, &[1, 2, 3]));
    assert_eq!(addresses(&key), ["02:00:00:00:00:02", "02:00:00:00:00:01"]);
    assert_eq!(key.protocol_name(), "ether:0x88b5");
    assert_eq!(FlowKey::of(&[]).protocol_name(), "ether:0x0000");
}

proptest! {
    /// A shorter part of any bytes has no port that they have not.
    #[test]
    fn any_bytes_have_a_key_that_a_longer_frame_agrees_with(
        kind in prop::sample::select(vec![IPV4, IPV6, ARP, 0x8100, 0x1234]),
        packet in prop::collection::vec(any::<u8>(), 0..120),
        cut in 0_usize..120,
    ) {
        let whole = frame(kind, &packet);
        let short = whole.get(..cut).unwrap_or(&whole);
        let (key, of_short) = (FlowKey::of(&whole), FlowKey::of(short));
        if of_short.ports.is_some() {
            prop_assert_eq!(of_short, key);
        }
    }
}
