use proptest::prelude::*;
use zerocopy::FromBytes as _;

use super::*;
use crate::addr::{Ip16, MacAddr};

fn port(bytes: &[u8; 64]) -> Port {
    Port::read_from_bytes(bytes).unwrap()
}

/// Mixes two values at a seam: the words before it are of one of them.
fn mixture<const M: usize>(
    one: [u64; M],
    other: [u64; M],
    (seam, turned): (usize, bool),
) -> [u64; M] {
    let mut mixed = one;
    for (place, word) in mixed.iter_mut().enumerate() {
        if (place < seam) == turned {
            *word = other[place];
        }
    }
    mixed
}

/// Ports as networks have them: they differ in few bits.
fn ports() -> impl Strategy<Value = Port> {
    (0..3_u32, 0..4_u32, any::<u8>(), 0..4_u16).prop_map(|(network, flags, host, port_id)| {
        let mut port = port(&[0; 64]);
        port.network = 1000 + network;
        port.flags = flags << 11;
        port.mac = MacAddr([2, 0, 10, 10, 0, host]);
        port.mtu = 1450;
        port.ip4 = [10, 10, 0, host];
        port.port_id = port_id;
        let ip6 = |first| {
            Ip16([
                first, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x0a, 0x0a, 0xff, 0xfe, 0, 0, host,
            ])
        };
        (port.ip6, port.link_local) = (ip6(0xfd), ip6(0xfe));
        port.home = 7 + u32::from(port_id);
        port
    })
}

proptest! {
    #[test]
    fn a_value_is_that_of_its_key_and_of_no_other(bytes: [u8; 64], key: u32, other: u32) {
        let value = port(&bytes);
        let stored = SealedPort::store(&key, value);
        prop_assert_eq!(Stored::<u32, Port>::value(&stored, &key), Some(value));
        prop_assert_eq!(Stored::<u32, Port>::value(&stored, &other), (key == other).then_some(value));
    }

    #[test]
    fn a_mixture_of_two_ports_is_none(one in ports(), other in ports(), seam in (0..10_usize, any::<bool>()), keys in (0..9_u32, 0..9_u32)) {
        let (here, there) = (SealedPort::store(&keys.0, one), SealedPort::store(&keys.1, other));
        let mixed = mixture(here, there, seam);
        let found = Stored::<u32, Port>::value(&mixed, &keys.0);
        prop_assert_eq!(found, if mixed == here { Some(one) } else { (keys.0 == keys.1 && mixed == there).then_some(other) });
    }

    #[test]
    fn a_share_of_an_uplink_is_of_its_key_alone(owners in (1..4_u32, 1..4_u32), uplinks in (1..3_u32, 1..3_u32), vlans in (0..3_u16, 0..3_u16), hosts in (0..3_u8, 0..3_u8), turned: bool) {
        let key = |uplink, vlan, host| WireKey { ip: Ip16::from_v4([10, 10, 0, host]), ..WireKey::segment(uplink, vlan) };
        let (here, there) = (key(uplinks.0, vlans.0, hosts.0), key(uplinks.1, vlans.1, hosts.1));
        let (one, other) = (SealedWire::store(&here, owners.0), SealedWire::store(&there, owners.1));
        let mixed = mixture(one, other, (1, turned));
        let found = Stored::<WireKey, u32>::value(&mixed, &here);
        prop_assert_eq!(found, if mixed == one { Some(owners.0) } else { (here == there && mixed == other).then_some(owners.1) });
        let found = Stored::<WireKey, u32>::value(&other, &here);
        prop_assert_eq!(found, (here == there).then_some(owners.1));
    }

    #[test]
    fn a_mixture_of_two_endpoints_is_none(seam in (0..4_usize, any::<bool>()), hosts in (0..4_u8, 0..4_u8), networks in (1..3_u32, 1..3_u32)) {
        let end = |host: u8, network: u32| {
            let endpoint = Endpoint { ifindex: 7 + u32::from(host), flags: 0, mac: MacAddr([2, 0, 0, 0, 0, host]), port_id: host.into() };
            let by_ip = EndpointKey { network, ip: Ip16::from_v4([10, 10, 0, host]) };
            (endpoint, by_ip, FdbKey::new(network, endpoint.mac))
        };
        let ((one, ip, mac), (other, other_ip, other_mac)) = (end(hosts.0, networks.0), end(hosts.1, networks.1));
        let same = (ip == other_ip).then_some(other);
        let mixed = mixture(SealedEndpoint::store(&ip, one), SealedEndpoint::store(&other_ip, other), seam);
        let expected = if mixed == SealedEndpoint::store(&ip, one) { Some(one) } else { same };
        prop_assert_eq!(Stored::<_, Endpoint>::value(&mixed, &ip), expected);
        let mixed = mixture(SealedEndpoint::store(&mac, one), SealedEndpoint::store(&other_mac, other), seam);
        let expected = if mixed == SealedEndpoint::store(&mac, one) { Some(one) } else { same };
        prop_assert_eq!(Stored::<_, Endpoint>::value(&mixed, &mac), expected);
    }
}

#[test]
fn memory_that_was_never_written_is_no_value() {
    assert_eq!(Stored::<u32, Port>::value(&[0; 9], &0), None);
    assert_eq!(Stored::<u32, Network>::value(&[0; 5], &0), None);
    assert_eq!(Stored::<u32, Guard>::value(&[0; 4], &0), None);
}
