use std::collections::BTreeSet;

use agent_common::addr::MacAddr;
use agent_common::endpoint::ENDPOINT_ROUTES;
use agent_common::port::PORT_ROUTES;
use api::Mode;
use book::bandwidth::{Limit, Source};
use book::ledger::{Ledger, Wanted};
use book::record::{HostEnd, Shaper};
use book::samples::{network, wanted};
use ipam::Request;
use proptest::prelude::*;

use super::*;

pub(super) const NETWORK: u32 = 0x0080_0000;

/// Attaches to one network, once for each further wish, at ifindexes 10, 11, …
pub(super) fn attached(network: &api::Network, wishes: &[fn(&mut Wanted)]) -> Vec<Attachment> {
    let mut ledger = Ledger::new(u16::MAX);
    (10_u32..)
        .zip(wishes)
        .map(|(ifindex, wish)| {
            let mut wanted = wanted(&format!("c{ifindex}"));
            wish(&mut wanted);
            let host = HostEnd {
                name: format!("pn{ifindex}"),
                ifindex,
            };
            ledger.reserve(wanted, network, host).unwrap()
        })
        .collect()
}

pub(super) fn of(attachments: &[Attachment]) -> Entries {
    with(attachments, &Others::default())
}

fn with(attachments: &[Attachment], others: &Others) -> Entries {
    own(NETWORK, attachments.iter(), others).0
}

pub(super) fn ip(text: &str) -> Ip16 {
    text.parse::<IpAddr>().unwrap().into()
}

pub(super) fn at(text: &str) -> EndpointKey {
    EndpointKey {
        network: NETWORK,
        ip: ip(text),
    }
}

#[test]
fn no_attachments_need_no_entries() {
    assert_eq!(of(&[]), Entries::default());
}

#[test]
fn a_switched_port_is_found_by_mac_by_each_address_and_by_its_link_local_one() {
    let blue = network(
        "blue",
        Mode::L2,
        &[("10.10.0.0/24", "10.10.0.1"), ("fd10::/64", "")],
    );
    let all = attached(&blue, &[|_| {}]);
    let entries = of(&all);
    let mac = all[0].mac;
    let port = entries.ports[&10];
    assert_eq!(
        (port.network, port.flags, port.mac, port.mtu),
        (NETWORK, 0, mac, 1500)
    );
    assert_eq!(port.ip4, [10, 10, 0, 2]);
    assert_eq!(port.ip6, ip("fd10::1"));
    assert_eq!(port.link_local, Ip16::from(IpAddr::V6(mac.link_local())));
    let expected = Endpoint {
        ifindex: 10,
        flags: 0,
        mac,
        port_id: all[0].port_id,
    };
    assert_eq!(entries.fdb.get(&FdbKey::new(NETWORK, mac)), Some(&expected));
    for address in [
        "10.10.0.2".to_owned(),
        "fd10::1".to_owned(),
        mac.link_local().to_string(),
    ] {
        assert_eq!(
            entries.endpoints.get(&at(&address)),
            Some(&expected),
            "{address}"
        );
    }
    // The gateway of a switched network is a host like others, and not ours to answer for.
    assert_eq!(entries.endpoints.len(), 3);
    assert!(entries.port_addresses.is_empty());
}

#[test]
fn a_routed_port_has_no_station_and_no_broadcast_but_a_gateway() {
    let green = network(
        "green",
        Mode::L3,
        &[("10.20.0.0/24", "10.20.0.1"), ("fd20::/64", "")],
    );
    let all = attached(&green, &[|_| {}, |_| {}]);
    let entries = of(&all);
    assert!(entries.fdb.is_empty() && entries.flood.is_empty());
    assert!(entries.ports.values().all(|port| port.flags == PORT_L3));
    let gateway = Endpoint {
        ifindex: 0,
        flags: ENDPOINT_GATEWAY,
        mac: GATEWAY_MAC,
        port_id: u16::MAX,
    };
    for address in ["169.254.1.1", "fe80::1", "10.20.0.1"] {
        assert_eq!(
            entries.endpoints.get(&at(address)),
            Some(&gateway),
            "{address}"
        );
    }
    // Two pods with two addresses each, three of the gateway, and no link-local ones.
    assert_eq!(entries.endpoints.len(), 7);
}

#[test]
fn a_network_without_subnets_checks_macs_only() {
    let all = attached(&network("raw", Mode::L2, &[]), &[|_| {}]);
    let entries = of(&all);
    assert_eq!(entries.ports[&10].flags, PORT_ANY_IP);
    assert!(
        entries.endpoints.is_empty(),
        "podnet does not know who has which address"
    );
    assert_eq!(entries.fdb.len(), 1);
    assert_eq!(entries.flood.len(), 1);
}

#[test]
fn addresses_beyond_the_first_of_a_family_go_to_a_table_of_their_own() {
    let blue = network("blue", Mode::L2, &[("10.10.0.0/24", ""), ("fd10::/64", "")]);
    let all = attached(
        &blue,
        &[|wanted| {
            wanted.ips.0 = ["10.10.0.9", "10.10.0.5", "fd10::9", "fd10::5"]
                .map(|ip| Request::from(ip.parse::<IpAddr>().unwrap()))
                .to_vec();
        }],
    );
    let entries = of(&all);
    let port = entries.ports[&10];
    assert_eq!(port.flags, PORT_MORE_IPS);
    assert_eq!((port.ip4, port.ip6), ([10, 10, 0, 9], ip("fd10::9")));
    let further: BTreeSet<_> = entries.port_addresses.keys().copied().collect();
    let expected = ["10.10.0.5", "fd10::5"].map(|text| PortAddressKey {
        ifindex: 10,
        ip: ip(text),
    });
    assert_eq!(further, BTreeSet::from(expected));
    for address in ["10.10.0.9", "10.10.0.5", "fd10::9", "fd10::5"] {
        assert!(entries.endpoints.contains_key(&at(address)), "{address}");
    }
}

fn many(count: usize) -> Vec<Attachment> {
    attached(
        &network("blue", Mode::L2, &[("10.0.0.0/16", "")]),
        &vec![(|_| {}) as fn(&mut Wanted); count],
    )
}

fn members(entries: &Entries) -> Vec<u32> {
    entries
        .flood
        .values()
        .flat_map(|ports| {
            let count = usize::from(ports.count);
            assert!(
                ports.ifindexes[count..].iter().all(|rest| *rest == 0),
                "unused slots are zero"
            );
            ports.ifindexes[..count].to_vec()
        })
        .collect()
}

#[test]
fn broadcast_reaches_each_port_once_whatever_their_number() {
    for count in [
        1,
        FLOOD_CHUNK - 1,
        FLOOD_CHUNK,
        FLOOD_CHUNK + 1,
        2 * FLOOD_CHUNK + 3,
    ] {
        let entries = of(&many(count));
        assert_eq!(entries.flood.len(), count.div_ceil(FLOOD_CHUNK));
        // A missing chunk ends the list, so they are numbered from 0 without a gap.
        let chunks: Vec<u32> = entries.flood.keys().map(|key| key.chunk).collect();
        let expected: Vec<u32> = (0..).take(chunks.len()).collect();
        assert_eq!(chunks, expected);
        let reached = members(&entries);
        assert_eq!(reached, entries.ports.keys().copied().collect::<Vec<_>>());
    }
}

#[test]
fn a_newcomer_changes_the_last_chunk_and_the_total_in_the_first() {
    let all = many(2 * FLOOD_CHUNK + 1);
    let before = of(&all[..2 * FLOOD_CHUNK]);
    let after = of(&all);
    for (key, ports) in &before.flood {
        let mut expected = *ports;
        if key.chunk == 0 {
            expected.total += 1;
        }
        assert_eq!(after.flood.get(key), Some(&expected));
    }
    assert_eq!(after.flood.len(), before.flood.len() + 1);
}

fn limit() -> Option<Limit> {
    Some(Limit {
        rate: 1000,
        burst: None,
        source: Source::Network,
    })
}

fn blue_and_green() -> [api::Network; 2] {
    let subnets = [("10.10.0.0/24", "10.10.0.1"), ("fd10::/64", "")];
    [Mode::L2, Mode::L3].map(|mode| network("n", mode, &subnets))
}

/// `bpf_redirect_peer` goes past the queues of a link, whoever made them.
#[test]
fn packets_to_a_port_with_a_queue_go_through_it_and_others_go_the_fast_way() {
    for network in blue_and_green() {
        for foreign in [false, true] {
            let mut all = attached(&network, &[|_| {}, |_| {}]);
            if foreign {
                all[0].queued = true;
            } else {
                all[0].limits.ingress = limit();
            }
            let entries = of(&all);
            let endpoints = entries.fdb.values().chain(entries.endpoints.values());
            let mut seen = 0;
            for endpoint in endpoints.filter(|found| found.flags & ENDPOINT_GATEWAY == 0) {
                let through = endpoint.flags & ENDPOINT_NO_PEER != 0;
                assert_eq!(through, endpoint.ifindex == 10, "{endpoint:?}");
                assert_eq!(endpoint.flags & ENDPOINT_SOCKET, 0, "{endpoint:?}");
                seen += 1;
            }
            assert!(seen >= 4, "both ports are found by something");
        }
    }
}

/// And what has a queue is never given to it past that.
#[test]
fn a_port_that_is_a_socket_is_said_to_be_one_as_long_as_it_has_no_queue() {
    for network in blue_and_green() {
        for kind in [api::InterfaceKind::AfXdp, api::InterfaceKind::Memif] {
            let mut all = attached(&network, &[|_| {}, |_| {}]);
            for attachment in &mut all {
                attachment.interface.kind = kind;
            }
            all[0].limits.ingress = limit();
            let entries = of(&all);
            let endpoints = entries.fdb.values().chain(entries.endpoints.values());
            for endpoint in endpoints.filter(|found| found.flags & ENDPOINT_GATEWAY == 0) {
                assert_ne!(endpoint.flags & ENDPOINT_NO_PEER, 0, "{endpoint:?}");
                let is_socket = endpoint.flags & ENDPOINT_SOCKET != 0;
                assert_eq!(is_socket, endpoint.ifindex != 10, "{endpoint:?}");
            }
        }
    }
}

#[test]
fn what_a_limited_port_sends_goes_to_its_shaper_and_is_the_ports_own_at_the_far_end() {
    for network in blue_and_green() {
        let mut all = attached(
            &network,
            &[
                |wanted| {
                    wanted.ips.0 = ["10.10.0.9", "10.10.0.5"]
                        .map(|ip| Request::from(ip.parse::<IpAddr>().unwrap()))
                        .to_vec();
                },
                |_| {},
            ],
        );
        let free = of(&all);
        all[0].limits.egress = limit();
        all[0].shaper = Some(Shaper {
            near: 50,
            far: 51,
            used: true,
        });
        let entries = of(&all);
        let (own, far) = (entries.ports[&10], entries.ports[&51]);
        assert_eq!((own.home, own.shaper), (10, 50));
        // What comes out is not sent in again, and is broadcast to all but its sender.
        assert_eq!(far, Port { shaper: 0, ..own });
        assert_eq!(free.ports[&10], far);
        assert_eq!(entries.ports[&11], free.ports[&11], "the neighbour's");
        assert_eq!(entries.ports.len(), 3);
        // Nothing else knows of the shaper.
        let without_ports = |entries: Entries| Entries {
            ports: BTreeMap::new(),
            ..entries
        };
        assert_eq!(without_ports(entries), without_ports(free));
    }
}

/// While it is made and while it runs empty.
#[test]
fn the_far_end_of_a_shaper_forwards_before_it_is_used_and_after() {
    let [blue, _] = blue_and_green();
    let mut all = attached(&blue, &[|_| {}]);
    all[0].shaper = Some(Shaper {
        near: 50,
        far: 51,
        used: false,
    });
    let entries = of(&all);
    assert_eq!(entries.ports[&10].shaper, 0);
    assert_eq!(entries.ports[&51], entries.ports[&10]);
}

#[test]
fn a_limited_port_that_has_lost_its_shaper_sends_nothing() {
    let [blue, _] = blue_and_green();
    let mut all = attached(&blue, &[|_| {}]);
    all[0].limits.egress = limit();
    let entries = of(&all);
    assert_eq!(entries.ports[&10].shaper, NO_DEVICE);
    assert_eq!(entries.ports.len(), 1);
}

proptest! {
    #[test]
    fn entries_never_leave_their_network_and_never_name_a_port_that_is_not_there(
        routed in any::<bool>(),
        count in 0_usize..20,
        shuffle in any::<u64>(),
    ) {
        let mode = if routed { Mode::L3 } else { Mode::L2 };
        let subnets = [("10.10.0.0/24", "10.10.0.1"), ("fd10::/64", "fd10::1")];
        let wish: fn(&mut Wanted) = |_| {};
        let mut all = attached(&network("n", mode, &subnets), &vec![wish; count]);
        let entries = of(&all);
        prop_assert_eq!(entries.ports.len(), count);
        prop_assert!(entries.ports.values().all(|port| port.network == NETWORK));
        prop_assert!(entries.fdb.keys().all(|key| key.network == NETWORK));
        prop_assert!(entries.endpoints.keys().all(|key| key.network == NETWORK));
        prop_assert!(entries.flood.keys().all(|key| key.network == NETWORK));
        for endpoint in entries.fdb.values().chain(entries.endpoints.values()) {
            if endpoint.flags & ENDPOINT_GATEWAY != 0 {
                prop_assert_eq!(endpoint.ifindex, 0);
                continue;
            }
            let port = entries.ports.get(&endpoint.ifindex);
            prop_assert_eq!(port.map(|port| (port.mac, port.port_id)), Some((endpoint.mac, endpoint.port_id)));
        }
        // The order of the book says nothing.
        let length = all.len().max(1);
        all.rotate_left(usize::try_from(shuffle).unwrap_or(0) % length);
        all.reverse();
        prop_assert_eq!(of(&all), entries);
    }

    #[test]
    fn the_address_a_port_may_use_is_the_address_it_is_found_at(count in 1_usize..20) {
        let subnets = [("10.10.0.0/24", ""), ("fd10::/64", "")];
        let wish: fn(&mut Wanted) = |_| {};
        let entries = of(&attached(&network("n", Mode::L2, &subnets), &vec![wish; count]));
        for (ifindex, port) in &entries.ports {
            for ip in [Ip16::from_v4(port.ip4), port.ip6, port.link_local] {
                let endpoint = entries.endpoints.get(&EndpointKey { network: NETWORK, ip });
                prop_assert_eq!(endpoint.map(|found| found.ifindex), Some(*ifindex));
            }
        }
    }
}

fn egress(others: &Others, is_on: bool) -> (Vec<Attachment>, Entries) {
    let amber = api::Network {
        egress: if is_on {
            api::Egress::Masquerade
        } else {
            api::Egress::None
        },
        ..network("amber", Mode::L3, &[("10.40.0.0/24", "10.40.0.1")])
    };
    let all = attached(&amber, &[|_| {}]);
    let entries = with(&all, others);
    (all, entries)
}

#[test]
fn what_nobody_has_leads_to_the_way_out_which_may_speak_for_everybody() {
    let way_out = WayOut {
        ifindex: 90,
        mac: MacAddr([2, 0, 0, 0, 0, 9]),
    };
    let others = Others {
        way_out: Some(way_out),
        ..Others::default()
    };
    let (_, entries) = egress(&others, true);
    let found = entries.endpoints[&at("::")];
    assert_eq!((found.ifindex, found.mac), (90, way_out.mac));
    assert_eq!(found.flags, ENDPOINT_OUTSIDE);
    let port = entries.ports[&90];
    assert_eq!(port.flags, PORT_L3 | PORT_OUTSIDE);
    assert_eq!(
        (port.network, port.mac, port.mtu),
        (NETWORK, way_out.mac, 1500)
    );
    assert_eq!(entries.ports[&10].flags, PORT_L3 | PORT_EGRESS);
    // Those that are attached without it do not get out, whatever is there.
    let (_, without) = egress(&others, false);
    assert_eq!(without.ports.len(), 1);
    assert_eq!(without.ports[&10].flags, PORT_L3);
    assert!(!without.endpoints.contains_key(&at("::")));
    let none = with(&[], &others);
    assert_eq!(none, Entries::default(), "the way out goes with the last");
}

#[test]
fn a_way_out_that_is_missing_leads_nowhere() {
    let (_, entries) = egress(&Others::default(), true);
    assert!(!entries.endpoints.contains_key(&at("::")));
    assert_eq!(entries.ports.len(), 1);
}

#[test]
fn ports_of_a_network_with_routes_have_the_mark_and_their_routes_go_with_the_last_one() {
    let green = network("green", Mode::L3, &[("10.20.0.0/24", "10.20.0.1")]);
    let all = attached(&green, &[|_| {}]);
    let route = agent_common::route::Route {
        network: 9,
        mtu: 1400,
    };
    let routes = [("10.21.0.0/24".parse().unwrap(), route)];
    let others = Others {
        routes: std::sync::Arc::new(routes.into_iter().collect()),
        way_out: Some(WayOut {
            ifindex: 5,
            mac: MacAddr([2, 0, 0, 0, 0, 9]),
        }),
        ..Others::default()
    };
    let entries = with(&all, &others);
    let key = agent_common::route::RouteKey::new(NETWORK, ip("10.21.0.0"), 96 + 24);
    assert_eq!(entries.routes, [(key, route)].into());
    assert_eq!(entries.ports[&10].flags, PORT_L3 | PORT_ROUTES);
    let of_pod = entries.endpoints[&at("10.20.0.2")];
    assert_eq!(of_pod.flags, ENDPOINT_ROUTES);
    let gateway = entries.endpoints[&at("10.20.0.1")];
    assert_eq!(gateway.flags, ENDPOINT_GATEWAY);
    assert_eq!(with(&[], &others), Entries::default());
    // What comes from outside is judged by them, too.
    let leaving = api::Network {
        egress: api::Egress::Masquerade,
        ..green
    };
    let entries = with(&attached(&leaving, &[|_| {}]), &others);
    assert_eq!(
        entries.ports[&5].flags,
        PORT_L3 | PORT_OUTSIDE | PORT_ROUTES
    );
}

#[test]
fn the_gateway_of_a_switched_network_is_podnets_where_networks_lead_to_each_other() {
    let blue = network("blue", Mode::L2, &[("10.10.0.0/24", "10.10.0.1")]);
    let all = attached(&blue, &[|_| {}]);
    assert!(!of(&all).endpoints.contains_key(&at("10.10.0.1")));
    let route = agent_common::route::Route::NOWHERE;
    let routes = [("10.0.0.0/8".parse().unwrap(), route)];
    let others = Others {
        routes: std::sync::Arc::new(routes.into_iter().collect()),
        ..Others::default()
    };
    let entries = with(&all, &others);
    let gateway = entries.endpoints[&at("10.10.0.1")];
    assert_eq!(
        (gateway.flags, gateway.mac),
        (ENDPOINT_GATEWAY, GATEWAY_MAC)
    );
    assert!(!entries.endpoints.contains_key(&at("169.254.1.1")));
    assert_eq!(entries.ports[&10].flags, PORT_ROUTES);
    assert_eq!(entries.endpoints[&at("10.10.0.2")].flags, ENDPOINT_ROUTES);
    assert_eq!(entries.fdb[&FdbKey::new(NETWORK, all[0].mac)].flags, 0);
}

#[test]
fn all_gateways_of_attachments_that_disagree_are_answered_for() {
    let routes = [(
        "10.0.0.0/8".parse().unwrap(),
        agent_common::route::Route::NOWHERE,
    )];
    let others = Others {
        routes: std::sync::Arc::new(routes.into_iter().collect()),
        ..Others::default()
    };
    for mode in [Mode::L3, Mode::L2] {
        let old = network("blue", mode, &[("10.10.0.0/24", "10.10.0.1")]);
        let new = network(
            "blue",
            mode,
            &[("10.10.0.0/24", "10.10.0.1"), ("fd10::/64", "fd10::1")],
        );
        let mut all = attached(&new, &[|_| {}]);
        let mut ledger = Ledger::new(u16::MAX);
        let host = HostEnd {
            name: "pn77".to_owned(),
            ifindex: 77,
        };
        // Before all others, and last in order.
        all.push(ledger.reserve(wanted("zz"), &old, host).unwrap());
        let entries = with(&all, &others);
        assert!(entries.endpoints.contains_key(&at("10.10.0.1")), "{mode:?}");
        assert!(
            entries.endpoints.contains_key(&at("fd10::1")),
            "{mode:?}: IPv6 gateway"
        );
    }
}
