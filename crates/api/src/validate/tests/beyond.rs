//! Routes, egress and uplinks: what leads out of a network.

use super::*;

fn route(dst: &str, gw: Option<&str>) -> RouteSpec {
    RouteSpec {
        dst: dst.to_owned(),
        gw: gw.map(str::to_owned),
    }
}

#[test]
fn a_route_goes_by_the_gateway_of_its_family_or_by_the_next_hop_that_it_names() {
    let subnets = ["10.1.0.0/24", "10.2.0.0/24", "fd00::/64"];
    let spec = PodNetworkParametersSpec {
        gateway: gateway(&["10.2.0.1", "fd00::1"]),
        routes: vec![
            route("192.0.2.0/24", None),
            route("10.0.0.0/8", Some("10.1.0.9")),
            route("2001:db8::/32", None),
        ],
        ..l2(&subnets)
    };
    let routes = network("blue", &spec).unwrap().routes;
    let hops: Vec<_> = routes.iter().map(|route| route.gw.unwrap()).collect();
    assert_eq!(hops, ["10.2.0.1", "10.1.0.9", "fd00::1"].map(ip));
    // By what is virtual there is one way, with or without a configured address.
    let routed = PodNetworkParametersSpec {
        mode: Mode::L3,
        routes: vec![
            route("192.0.2.0/24", None),
            route("198.51.100.0/24", Some("10.2.0.1")),
        ],
        ..spec
    };
    let routes = network("green", &routed).unwrap().routes;
    assert!(routes.iter().all(|route| route.gw.is_none()), "{routes:?}");
}

#[test]
fn a_route_that_cannot_work_is_refused_by_its_field_with_what_to_do() {
    let with = |mode, routes: Vec<RouteSpec>, gateway| PodNetworkParametersSpec {
        mode,
        gateway,
        routes,
        ..l2(&["10.1.0.0/24"])
    };
    let own = || gateway(&["10.1.0.1"]);
    for (mode, one, gateway, expected) in [
        (
            Mode::L2,
            route("192.0.2.1/24", None),
            own(),
            "spec.routes[0].dst: 192.0.2.1/24 has host bits set; write 192.0.2.0/24",
        ),
        (
            Mode::L2,
            route("x", None),
            own(),
            "spec.routes[0].dst: \"x\" is not a prefix",
        ),
        (
            Mode::L2,
            route("192.0.2.0/24", Some("x")),
            own(),
            "spec.routes[0].gw: \"x\" is not an IP address",
        ),
        (
            Mode::L2,
            route("0.0.0.0/0", None),
            own(),
            "spec.routes[0].dst: 0.0.0.0/0 is a default route",
        ),
        (
            Mode::L2,
            route("10.1.0.128/25", None),
            own(),
            "spec.routes[0].dst: 10.1.0.128/25 is inside subnet 10.1.0.0/24",
        ),
        (
            Mode::L2,
            route("239.0.0.0/8", None),
            own(),
            "spec.routes[0].dst: 239.0.0.0/8 overlaps 224.0.0.0/4 (multicast)",
        ),
        (
            Mode::L2,
            route("192.0.2.0/24", None),
            GatewaySpec::None,
            "spec.routes[0].gw: the network has no gateway for 192.0.2.0/24",
        ),
        (
            Mode::L2,
            route("192.0.2.0/24", Some("10.2.0.1")),
            own(),
            "spec.routes[0].gw: 10.2.0.1 is in none of the subnets (10.1.0.0/24)",
        ),
        (
            Mode::L2,
            route("fd00::/64", None),
            own(),
            "spec.routes[0].gw: pods have no address of the family of fd00::/64",
        ),
        (
            Mode::L2,
            route("192.0.2.0/24", Some("fd00::1")),
            own(),
            "spec.routes[0].gw: fd00::1 is in none of the subnets",
        ),
        (
            Mode::L3,
            route("192.0.2.0/24", Some("10.1.0.7")),
            own(),
            "spec.routes[0].gw: 10.1.0.7 is not the gateway",
        ),
    ] {
        let said = refusal(&with(mode, vec![one], gateway));
        assert!(said.starts_with(expected), "{said}");
    }
    let twice = vec![route("192.0.2.0/24", None); 2];
    let said = refusal(&with(Mode::L2, twice, own()));
    assert!(
        said.starts_with("spec.routes[1].dst: another route leads"),
        "{said}"
    );
    let many = (0..17).map(|n| route(&format!("192.0.{n}.0/24"), None));
    let said = refusal(&with(Mode::L2, many.collect(), own()));
    assert!(
        said.starts_with("spec.routes: the list has 17 items; write 0 to 16"),
        "{said}"
    );
}

#[test]
fn egress_is_of_routed_networks_that_nobody_routes_for() {
    let with = |mode, routing| PodNetworkParametersSpec {
        mode,
        routing,
        egress: Egress::Masquerade,
        ..l2(&["10.1.0.0/24"])
    };
    let made = network("green", &with(Mode::L3, Routing::Isolated)).unwrap();
    assert_eq!(made.egress, Egress::Masquerade);
    for (mode, routing) in [(Mode::L2, Routing::Isolated), (Mode::L3, Routing::Node)] {
        let said = refusal(&with(mode, routing));
        assert!(
            said.starts_with("spec.egress: the field is for networks of mode L3"),
            "{said}"
        );
    }
}

#[test]
fn egress_by_the_uplink_is_of_networks_that_routers_lead_to() {
    let with = |mode, kind: Transport, id| PodNetworkParametersSpec {
        mode,
        egress: Egress::Uplink,
        transport: Some(TransportSpec {
            uplink: kind.has_uplink().then(|| "eth1".to_owned()),
            id,
            ..TransportSpec::of(kind)
        }),
        ..l2(&["10.1.0.0/24"])
    };
    let made = network("olive", &with(Mode::L3, Transport::Native, None)).unwrap();
    assert_eq!(made.egress, Egress::Uplink);
    for (kind, id, words) in [
        (Transport::Local, None, "this is Local"),
        (Transport::Vxlan, None, "this is VXLAN"),
        (Transport::Vlan, Some(5), "this is VLAN"),
    ] {
        let said = refusal(&with(Mode::L3, kind, id));
        let start = "spec.egress: Uplink is for transport Native";
        assert!(said.starts_with(start) && said.contains(words), "{said}");
    }
    let said = refusal(&with(Mode::L2, Transport::Native, None));
    assert!(
        said.starts_with("spec.egress: the field is for networks of mode L3"),
        "{said}"
    );
}

#[test]
fn an_uplink_belongs_to_vlan_and_native_with_what_is_the_networks_there() {
    let over = |transport| PodNetworkParametersSpec {
        transport: Some(transport),
        ..l2(&[])
    };
    let vlan = TransportSpec {
        uplink: Some("eth1".to_owned()),
        ..TransportSpec::of(Transport::Vlan)
    };
    let with_id = |id| TransportSpec {
        id: Some(id),
        ..vlan.clone()
    };
    let trunk = |ids: &str| TransportSpec {
        trunk: Some(ids.to_owned()),
        ..vlan.clone()
    };
    let shown = |transport, mode, subnets: &[&str]| {
        let spec = PodNetworkParametersSpec {
            mode,
            ..PodNetworkParametersSpec {
                transport: Some(transport),
                ..l2(subnets)
            }
        };
        network("blue", &spec).map(|it| it.wire.map(|wire| wire.to_string()))
    };
    let native = TransportSpec {
        kind: Transport::Native,
        ..vlan.clone()
    };
    let net = ["10.0.0.0/24"];
    for (transport, mode, expected) in [
        (with_id(4094), Mode::L2, "eth1, VLAN 4094"),
        (with_id(1), Mode::L3, "eth1, VLAN 1"),
        (native.clone(), Mode::L2, "eth1, untagged"),
        (native.clone(), Mode::L3, "eth1, routed"),
    ] {
        let made = shown(transport, mode, &net).unwrap();
        assert_eq!(made.as_deref(), Some(expected));
    }
    let made = shown(trunk("5,1-3"), Mode::L2, &[]).unwrap();
    assert_eq!(made.as_deref(), Some("eth1, VLANs 1-3,5"));
    assert_eq!(
        shown(TransportSpec::of(Transport::Vxlan), Mode::L2, &net).unwrap(),
        None
    );
    let both = TransportSpec {
        id: Some(5),
        ..trunk("5")
    };
    let tagged_native = TransportSpec {
        id: Some(5),
        ..native
    };
    let local = TransportSpec {
        kind: Transport::Local,
        ..vlan.clone()
    };
    let nameless = TransportSpec {
        uplink: Some("a/b".to_owned()),
        ..with_id(5)
    };
    for (transport, words) in [
        (
            TransportSpec::of(Transport::Native),
            "spec.transport.uplink: Native needs",
        ),
        (vlan.clone(), "spec.transport.id: VLAN needs either id"),
        (both, "spec.transport.id: VLAN needs either id"),
        (with_id(0), "spec.transport.id: 0 is not a VLAN id"),
        (with_id(4095), "spec.transport.id: 4095 is not a VLAN id"),
        (trunk("9-5"), "spec.transport.trunk: \"9-5\" is not a list"),
        (tagged_native, "spec.transport.id: Native has no VLAN"),
        (local, "spec.transport.uplink: Local has none"),
        (nameless, "spec.transport.uplink: \"a/b\" is not the name"),
    ] {
        let found = refusal(&over(transport));
        assert!(found.contains(words), "{found}");
    }
    for (mode, subnets) in [(Mode::L2, &net[..]), (Mode::L3, &net[..])] {
        let refused = shown(trunk("5"), mode, subnets).unwrap_err().to_string();
        assert!(
            refused.contains("spec.transport.trunk: pods of a trunk"),
            "{refused}"
        );
    }
}

#[test]
fn ether_types_are_listed_where_pods_are_on_a_segment_of_an_uplink() {
    let with = |mode, kind: Transport, list: &[&str]| PodNetworkParametersSpec {
        mode,
        transport: Some(TransportSpec {
            uplink: kind.has_uplink().then(|| "eth1".to_owned()),
            id: (kind == Transport::Vlan).then_some(5),
            ether_types: list.iter().map(ToString::to_string).collect(),
            ..TransportSpec::of(kind)
        }),
        ..l2(&["10.1.0.0/24"])
    };
    for kind in [Transport::Vlan, Transport::Native] {
        let made = network(
            "teal",
            &with(Mode::L2, kind, &["0x88f7", "0x88B5", "0x88f7"]),
        );
        let wire = made.unwrap().wire.unwrap();
        assert_eq!(wire.ether_types, [0x88b5, 0x88f7]);
        let said = refusal(&with(Mode::L3, kind, &["0x88f7"]));
        assert!(
            said.contains("spec.transport.etherTypes: the field is for networks of mode L2"),
            "{said}"
        );
    }
    for kind in [Transport::Local, Transport::Vxlan] {
        let said = refusal(&with(Mode::L2, kind, &["0x88f7"]));
        assert!(
            said.contains("spec.transport.etherTypes: the field is for networks of mode L2"),
            "{said}"
        );
    }
    let said = refusal(&with(Mode::L2, Transport::Native, &["0x88f7", "0x8808"]));
    let words = "spec.transport.etherTypes[1]: \"0x8808\" is not an EtherType that can pass";
    assert!(said.contains(words), "{said}");
    let many = vec!["0x88f7"; 17];
    let said = refusal(&with(Mode::L2, Transport::Native, &many));
    assert!(
        said.contains("spec.transport.etherTypes: 17 are too many"),
        "{said}"
    );
}
