use super::*;
use crate::{
    AttachmentParametersSpec, Egress, GatewaySpec, Mode, NodeAccess, PodNetworkParametersSpec,
    RouteSpec, Routing, Transport, TransportSpec,
};

mod beyond;
mod interface;
mod scheduling;
mod services;

fn l2(subnets: &[&str]) -> PodNetworkParametersSpec {
    PodNetworkParametersSpec {
        mode: Mode::L2,
        routing: Routing::Isolated,
        masquerade: None,
        transport: None,
        subnets: subnets.iter().map(ToString::to_string).collect(),
        gateway: GatewaySpec::None,
        exclude: Vec::new(),
        routes: Vec::new(),
        service_cidrs: Vec::new(),
        node_access: NodeAccess::None,
        cluster_services: Vec::new(),
        egress: Egress::None,
        mtu: None,
        interface: None,
        scheduling: None,
        network_id: None,
        ingress_rate: None,
        egress_rate: None,
        ingress_burst: None,
        egress_burst: None,
        vpc: None,
    }
}

fn gateway(addresses: &[&str]) -> GatewaySpec {
    GatewaySpec::Addresses(addresses.iter().map(ToString::to_string).collect())
}

fn refusal(spec: &PodNetworkParametersSpec) -> String {
    network("blue", spec).unwrap_err().to_string()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn host_bits_are_refused_with_the_prefix_to_write() {
    assert_eq!(
        refusal(&l2(&["10.1.0.0/16", "10.0.0.1/24"])),
        "spec.subnets[1]: 10.0.0.1/24 has host bits set; write 10.0.0.0/24"
    );
    assert_eq!(
        refusal(&l2(&["fd00::1/64"])),
        "spec.subnets[0]: fd00::1/64 has host bits set; write fd00::/64"
    );
}

#[test]
fn every_error_of_an_object_is_reported_at_once() {
    let spec = PodNetworkParametersSpec {
        mtu: Some(9),
        network_id: Some(1 << 24),
        ingress_rate: Some(-1),
        ..l2(&["x", "10.0.0.0/8", "10.1.0.0/16"])
    };
    let errors = network("blue", &spec).unwrap_err();
    let paths: Vec<_> = errors.0.iter().map(|error| error.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "spec.subnets[0]",
            "spec.subnets[2]",
            "spec.mtu",
            "spec.networkID",
            "spec.ingressRate"
        ]
    );
}

#[test]
fn subnets_of_one_network_do_not_overlap() {
    for pair in [
        ["10.0.0.0/8", "10.0.0.0/8"],
        ["10.0.0.0/8", "10.9.0.0/16"],
        ["fd00::/64", "fd00::/48"],
    ] {
        assert!(
            refusal(&l2(&pair)).starts_with("spec.subnets[1]:"),
            "{pair:?}"
        );
    }
    assert!(network("blue", &l2(&["10.0.0.0/24", "10.0.1.0/24", "fd00::/64"])).is_ok());
}

#[test]
fn prefixes_no_pod_can_use_are_refused() {
    for prefix in [
        "127.0.0.0/16",
        "224.0.0.0/24",
        "0.0.0.0/0",
        "::/0",
        "::1/128",
        "fe80::/64",
        "ff02::/16",
        "::ffff:0:0/96",
        "255.255.255.255/32",
    ] {
        assert!(
            network("blue", &l2(&[prefix])).is_err(),
            "{prefix} was taken"
        );
    }
    for prefix in [
        "0.0.0.0/33",
        "10.0.0.0",
        "10.0.0.0/",
        "fd00::/129",
        "",
        "10.0.0/24",
    ] {
        assert!(
            refusal(&l2(&[prefix])).contains("is not a prefix"),
            "{prefix}"
        );
    }
}

#[test]
fn a_routed_network_needs_a_subnet_and_a_switched_one_does_not() {
    assert!(network("blue", &l2(&[])).unwrap().subnets.is_empty());
    let l3 = PodNetworkParametersSpec {
        mode: Mode::L3,
        ..l2(&[])
    };
    assert!(refusal(&l3).starts_with("spec.subnets: mode L3"));
}

#[test]
fn first_is_the_first_address_a_host_may_have() {
    for (prefix, want) in [
        ("10.0.0.0/24", "10.0.0.1"),
        ("10.0.0.4/30", "10.0.0.5"),
        ("10.0.0.0/31", "10.0.0.0"),
        ("fd00::/64", "fd00::1"),
        ("fd00::2/127", "fd00::2"),
    ] {
        let spec = PodNetworkParametersSpec {
            gateway: GatewaySpec::First,
            ..l2(&[prefix])
        };
        assert_eq!(
            network("blue", &spec).unwrap().subnets[0].gateway,
            Some(ip(want)),
            "{prefix}"
        );
    }
    for prefix in ["10.0.0.0/32", "fd00::/128"] {
        let spec = PodNetworkParametersSpec {
            gateway: GatewaySpec::First,
            ..l2(&[prefix])
        };
        assert!(refusal(&spec).starts_with("spec.gateway:"), "{prefix}");
    }
}

#[test]
fn explicit_gateways_are_host_addresses_one_in_a_subnet() {
    let subnets = ["10.0.0.0/24", "fd00::/64"];
    let spec = PodNetworkParametersSpec {
        gateway: gateway(&["fd00::9", "10.0.0.254"]),
        ..l2(&subnets)
    };
    let both = network("blue", &spec).unwrap();
    assert_eq!(both.subnets[0].gateway, Some(ip("10.0.0.254")));
    assert_eq!(both.subnets[1].gateway, Some(ip("fd00::9")));
    for (bad, index) in [
        (vec!["10.0.1.1"], 0),
        (vec!["10.0.0.0"], 0),
        (vec!["10.0.0.255"], 0),
        (vec!["fd00::"], 0),
        (vec!["Second"], 0),
        (vec!["10.0.0.1", "10.0.0.2"], 1),
    ] {
        let spec = PodNetworkParametersSpec {
            gateway: gateway(&bad),
            ..l2(&subnets)
        };
        assert!(
            refusal(&spec).starts_with(&format!("spec.gateway[{index}]:")),
            "{bad:?}"
        );
    }
}

#[test]
fn excludes_are_prefixes_or_addresses_inside_a_subnet() {
    let exclude = |text: &str| PodNetworkParametersSpec {
        exclude: vec![text.to_owned()],
        ..l2(&["10.0.0.0/24", "fd00::/64"])
    };
    for (text, subnet, want) in [
        ("10.0.0.200/29", 0, "10.0.0.200/29"),
        ("10.0.0.7", 0, "10.0.0.7/32"),
        ("fd00::8000:0:0:0/65", 1, "fd00::8000:0:0:0/65"),
    ] {
        let network = network("blue", &exclude(text)).unwrap();
        assert_eq!(
            network.subnets[subnet].exclude,
            [want.parse().unwrap()],
            "{text}"
        );
    }
    for text in [
        "10.0.1.0/24",
        "10.0.0.0/23",
        "10.0.0.201/29",
        "x",
        "fd01::1",
    ] {
        assert!(
            refusal(&exclude(text)).starts_with("spec.exclude[0]:"),
            "{text}"
        );
    }
}

#[test]
fn gateway_and_exclude_need_subnets() {
    let spec = PodNetworkParametersSpec {
        gateway: GatewaySpec::First,
        exclude: vec!["10.0.0.1".into()],
        ..l2(&[])
    };
    assert_eq!(
        refusal(&spec),
        "spec.gateway: the field needs spec.subnets; list a subnet or remove this field; \
         spec.exclude: the field needs spec.subnets; list a subnet or remove this field"
    );
}

#[test]
fn mtu_is_what_the_families_need() {
    let with = |subnet: &str, mtu| PodNetworkParametersSpec {
        mtu: Some(mtu),
        ..l2(&[subnet])
    };
    for (subnet, mtu, ok) in [
        ("10.0.0.0/8", 67, false),
        ("10.0.0.0/8", 68, true),
        ("10.0.0.0/8", 65521, true),
        ("10.0.0.0/8", 65522, false),
        ("10.0.0.0/8", 1 << 40, false),
        ("10.0.0.0/8", -1, false),
        ("fd00::/64", 1279, false),
        ("fd00::/64", 1280, true),
    ] {
        let got = network("blue", &with(subnet, mtu));
        assert_eq!(got.is_ok(), ok, "{subnet} {mtu}");
        if let Ok(network) = got {
            assert_eq!(i64::from(network.mtu), mtu);
        }
    }
    assert_eq!(network("blue", &l2(&["fd00::/64"])).unwrap().mtu, 1500);
}

#[test]
fn network_id_is_24_bits_and_not_zero() {
    let with = |id| PodNetworkParametersSpec {
        network_id: Some(id),
        ..l2(&[])
    };
    for bad in [0, -1, 16_777_216, i64::MAX] {
        assert!(refusal(&with(bad)).starts_with("spec.networkID:"), "{bad}");
    }
    for good in [1, 16_777_215] {
        let id = network("blue", &with(good)).unwrap().id.unwrap();
        assert_eq!(i64::from(id.get()), good);
    }
}

#[test]
fn a_request_is_unicast_and_each_address_once() {
    let spec = |mac: Option<&str>, ips: &[&str]| AttachmentParametersSpec {
        mac_request: mac.map(str::to_owned),
        ip_requests: ips.iter().map(ToString::to_string).collect(),
        ..AttachmentParametersSpec::default()
    };
    let good = spec(Some("02-00-00-00-00-2A"), &["10.0.0.42", "fd00::42/64"]);
    let request = attachment_request(&good).unwrap();
    assert_eq!(request.mac.unwrap().to_string(), "02:00:00:00:00:2a");
    assert_eq!(request.ips[1].to_string(), "fd00::42/64");
    assert_eq!(request.ips[0].prefix_len, None);
    for mac in [
        "ff:ff:ff:ff:ff:ff",
        "01:00:5e:00:00:01",
        "00:00:00:00:00:00",
        "x",
    ] {
        let errors = attachment_request(&spec(Some(mac), &[])).unwrap_err();
        assert_eq!(errors.0[0].path, "spec.macRequest", "{mac}");
    }
    for ips in [
        vec!["10.0.0.1", "10.0.0.1/24"],
        vec!["10.0.0.9", "224.0.0.1"],
        vec!["10.0.0.9", "::1"],
        vec!["10.0.0.9", "10.0.0.1/33"],
        vec!["10.0.0.9", "fe80::1"],
        vec!["10.0.0.9", ""],
    ] {
        let errors = attachment_request(&spec(None, &ips)).unwrap_err();
        assert_eq!(errors.0[0].path, "spec.ipRequests[1]", "{ips:?}");
    }
}

#[test]
fn routes_of_an_attachment_come_before_those_of_the_network_to_the_same_prefix() {
    let route = |dst: &str, gw: Option<&str>| RouteSpec {
        dst: dst.to_owned(),
        gw: gw.map(str::to_owned),
    };
    let spec = PodNetworkParametersSpec {
        gateway: gateway(&["10.1.0.1"]),
        routes: vec![route("192.0.2.0/24", None), route("198.51.100.0/24", None)],
        ..l2(&["10.1.0.0/24"])
    };
    let blue = network("blue", &spec).unwrap();
    let asks = |routes| {
        let spec = AttachmentParametersSpec {
            routes,
            ..AttachmentParametersSpec::default()
        };
        attachment_request(&spec)
    };
    let own = [
        route("192.0.2.0/24", Some("10.1.0.9")),
        route("10.0.0.0/8", None),
    ];
    let request = asks(own.to_vec()).unwrap();
    let routed = blue.clone().with_routes(&request.routes).unwrap();
    let ways: Vec<_> = routed
        .routes
        .iter()
        .map(|it| (it.dst.to_string(), it.gw.unwrap().to_string()))
        .collect();
    let expected = [
        ("192.0.2.0/24", "10.1.0.9"),
        ("10.0.0.0/8", "10.1.0.1"),
        ("198.51.100.0/24", "10.1.0.1"),
    ];
    assert!(
        ways.iter().map(|(dst, gw)| (&**dst, &**gw)).eq(expected),
        "{ways:?}"
    );
    assert_eq!(blue.clone().with_routes(&[]).unwrap(), blue);
    // By themselves they are good, and not on every network.
    for (dst, gw, expected) in [
        (
            "10.1.0.128/25",
            None,
            "spec.routes[1].dst: 10.1.0.128/25 is inside",
        ),
        (
            "fd00::/64",
            None,
            "spec.routes[1].gw: pods have no address of the family",
        ),
        (
            "203.0.113.0/24",
            Some("10.2.0.1"),
            "spec.routes[1].gw: 10.2.0.1 is in none",
        ),
    ] {
        let request = asks(vec![route("10.0.0.0/8", None), route(dst, gw)]).unwrap();
        let refused = blue.clone().with_routes(&request.routes).unwrap_err();
        assert!(refused.to_string().starts_with(expected), "{refused}");
    }
    let twice = asks(vec![route("10.0.0.0/8", None), route("10.0.0.0/8", None)]);
    assert_eq!(twice.unwrap_err().0[0].path, "spec.routes[1].dst");
}

/// MEAS-01: a rate of 0 means unlimited, which is not the same as saying nothing.
#[test]
fn a_rate_of_zero_is_no_limit_whatever_the_default() {
    let spec = AttachmentParametersSpec {
        ingress_rate: Some(0),
        egress_rate: Some(8000),
        ..AttachmentParametersSpec::default()
    };
    let own = attachment_request(&spec).unwrap().bandwidth;
    assert_eq!((own.ingress.rate, own.egress.rate), (Some(0), Some(8000)));
    let default = limit(Some(5000), None);
    assert_eq!(own.ingress.or(default).rate, Some(0));
    assert_eq!(Limit::default().or(default), default);
}

fn limit(rate: Option<u64>, burst: Option<u64>) -> Limit {
    Limit { rate, burst }
}

#[test]
fn own_limits_come_before_the_defaults_direction_by_direction() {
    let own = Bandwidth {
        ingress: limit(Some(1000), None),
        egress: limit(None, Some(9)),
    };
    let defaults = Bandwidth {
        ingress: limit(Some(5000), Some(3)),
        egress: limit(Some(6000), None),
    };
    let merged = own.or(defaults);
    // A rate brings its own burst, or none.
    assert_eq!(merged.ingress, limit(Some(1000), None));
    assert_eq!(merged.egress, limit(Some(6000), Some(9)));
    assert_eq!(merged.check_bursts(), Ok(()));
    assert!(own.check_bursts().is_err());
    let unlimited = Bandwidth {
        egress: limit(Some(0), Some(9)),
        ..Bandwidth::default()
    };
    assert!(unlimited.or(defaults).check_bursts().is_err());
}

/// The same values in both kinds of parameters.
#[test]
fn rates_are_those_that_kubernetes_allows() {
    let largest = i64::try_from(RATE_MAX).unwrap();
    for (rate, burst, wrong) in [
        (Some(0), None, None),
        (Some(1000), None, None),
        (Some(1000), Some(0), None),
        (Some(1000), Some(1), None),
        (Some(largest), Some(i64::MAX), None),
        (
            Some(1),
            None,
            Some("spec.egressRate: 1 bit/s is out of range"),
        ),
        (Some(999), Some(5), Some("spec.egressRate: 999 bit/s")),
        (Some(largest + 1), None, Some("spec.egressRate")),
        (Some(i64::MAX), None, Some("spec.egressRate")),
        (Some(-1), None, Some("spec.egressRate: -1 is negative")),
        (
            Some(1000),
            Some(-1),
            Some("spec.egressBurst: -1 is negative"),
        ),
    ] {
        let of_network = network(
            "blue",
            &PodNetworkParametersSpec {
                egress_rate: rate,
                egress_burst: burst,
                ..l2(&[])
            },
        );
        let of_attachment = attachment_request(&AttachmentParametersSpec {
            egress_rate: rate,
            egress_burst: burst,
            ..AttachmentParametersSpec::default()
        });
        for refused in [of_network.err(), of_attachment.err()] {
            match (wrong, refused) {
                (None, None) => {}
                (Some(wrong), Some(errors)) => {
                    assert_eq!(errors.0.len(), 1, "{errors}");
                    assert!(errors.to_string().starts_with(wrong), "{errors}");
                }
                (_, refused) => panic!("{rate:?} {burst:?}: {refused:?}"),
            }
        }
    }
}

#[test]
fn a_default_burst_needs_a_default_rate() {
    for rate in [None, Some(0)] {
        let spec = PodNetworkParametersSpec {
            ingress_rate: rate,
            ingress_burst: Some(8000),
            ..l2(&[])
        };
        assert!(refusal(&spec).starts_with("spec.ingressBurst: a burst without a rate"));
    }
}

#[test]
fn the_node_routes_for_a_routed_network_only_and_masquerades_unless_told_not_to() {
    let by_node = |mode, masquerade| PodNetworkParametersSpec {
        mode,
        routing: Routing::Node,
        masquerade,
        ..l2(&["10.0.0.0/24"])
    };
    let masquerades = |said| {
        network("blue", &by_node(Mode::L3, said))
            .unwrap()
            .masquerade
    };
    assert_eq!(
        [None, Some(true), Some(false)].map(masquerades),
        [true, true, false]
    );
    assert_eq!(
        refusal(&by_node(Mode::L2, None)),
        "spec.routing: the node routes by address; write mode L3, or routing Isolated"
    );
    let isolated = network("blue", &l2(&["10.0.0.0/24"])).unwrap();
    assert_eq!(
        (isolated.routing, isolated.masquerade),
        (Routing::Isolated, false)
    );
    for said in [true, false] {
        let spec = PodNetworkParametersSpec {
            masquerade: Some(said),
            ..l2(&["10.0.0.0/24"])
        };
        assert_eq!(
            refusal(&spec),
            "spec.masquerade: the field belongs to routing Node; write that, or remove this field"
        );
    }
}

#[test]
fn a_network_that_spans_nodes_leaves_room_for_its_tunnels_and_is_not_the_nodes_own() {
    let over = |kind, mtu, routing| PodNetworkParametersSpec {
        mode: Mode::L3,
        routing,
        transport: Some(TransportSpec::of(kind)),
        mtu,
        ..l2(&["10.0.0.0/24", "fd00::/64"])
    };
    let made = |kind, mtu| {
        let made = network("blue", &over(kind, mtu, Routing::Isolated)).unwrap();
        (made.transport, made.mtu)
    };
    // 1500 less IPv6 (40), UDP (8), VXLAN (8) and Ethernet (14).
    assert_eq!(made(Transport::Vxlan, None), (Transport::Vxlan, 1430));
    assert_eq!(made(Transport::Vxlan, Some(8950)).1, 8950);
    assert_eq!(made(Transport::Local, None), (Transport::Local, 1500));
    assert_eq!(
        refusal(&over(Transport::Vxlan, None, Routing::Node)),
        "spec.transport: VXLAN is for networks that the nodes do not route for; write type Local, \
         or routing Isolated"
    );
    assert!(network("blue", &over(Transport::Local, None, Routing::Node)).is_ok());
}
