//! Tests of the rules of gateways and of their node.

use api::{Egress, Mode, Network};
use book::samples;

use super::*;

fn network(subnets: &[(&str, &str)]) -> Network {
    Network {
        egress: Egress::Masquerade,
        ..samples::network("green", Mode::L3, subnets)
    }
}

fn plan(networks: &[Network]) -> GatewayPlan {
    let mut plan = GatewayPlan::of(7);
    for network in networks {
        plan.serve(&NetworkFacts::of(network, 7));
    }
    plan
}

#[test]
fn each_place_has_addresses_of_its_own_inside_the_transit_prefixes() {
    let mut seen = BTreeSet::new();
    let prefixes: [Prefix; 2] = [
        Prefix::new(TRANSIT_V4.0.into(), TRANSIT_V4.1).unwrap(),
        Prefix::new(TRANSIT_V6.0.into(), TRANSIT_V6.1).unwrap(),
    ];
    for place in 0..PLACES {
        for side in [of_node(place), of_gateway(place)] {
            assert!(prefixes[0].contains(&IpAddr::V4(side.v4)), "{side:?}");
            assert!(prefixes[1].contains(&IpAddr::V6(side.v6)), "{side:?}");
            assert!(seen.insert(side.v4.to_bits()), "{side:?}");
        }
        assert_eq!(place_of(&link(place)), Some(place));
    }
    assert_eq!(place_of("podnet-exyz"), None);
    assert!(link(PLACES).len() < 15 && plan(&[]).port().len() < 15);
}

#[test]
fn a_place_is_used_again_when_all_others_were() {
    let taken = |all: &[u16]| all.iter().copied().collect::<BTreeSet<u16>>();
    assert_eq!(next_place(None, &taken(&[])), Some(0));
    assert_eq!(next_place(Some(0), &taken(&[])), Some(1));
    assert_eq!(next_place(Some(0), &taken(&[0, 1, 2])), Some(3));
    assert_eq!(next_place(Some(PLACES - 1), &taken(&[0])), Some(1));
    // The note is lost: what was given up a moment ago may be used, what is there is not.
    assert_eq!(next_place(None, &taken(&[4, 7])), Some(8));
    let all: BTreeSet<u16> = (0..PLACES).collect();
    assert_eq!(next_place(Some(3), &all), None);
}

#[test]
fn a_gateway_speaks_by_the_address_that_pods_call_it_by() {
    let named = plan(&[network(&[
        ("10.0.0.0/24", "10.0.0.1"),
        ("fd10::/64", "fd10::1"),
    ])]);
    let own: Vec<String> = named.own.iter().map(ToString::to_string).collect();
    assert_eq!(own, ["10.0.0.1", "fd10::1"]);
    let nameless = plan(&[network(&[("10.0.0.0/24", ""), ("fd10::/64", "")])]);
    let own: Vec<String> = nameless.own.iter().map(ToString::to_string).collect();
    assert_eq!(own, ["169.254.1.1"]);
    assert!(nameless.has(true) && nameless.has(false));
}

#[test]
fn a_network_that_has_changed_is_served_as_it_was_and_as_it_is() {
    let old = network(&[("10.0.0.0/24", "10.0.0.1")]);
    let new = Network {
        mtu: 9000,
        ..network(&[("10.1.0.0/24", "10.1.0.1")])
    };
    let both = plan(&[old.clone(), new.clone()]);
    assert_eq!((both.mtu, both.subnets.len(), both.own.len()), (9000, 2, 2));
    assert_eq!(both, plan(&[new, old]), "in whatever order");
}

#[test]
fn what_leaves_by_no_uplink_ends_and_so_does_what_is_for_the_node() {
    let inside = [("10.244.0.0".parse().unwrap(), 16)];
    let rules = fence(&["eth0".to_owned()], &inside, None);
    let said: Vec<String> = rules.guards.iter().map(ToString::to_string).collect();
    let expected = [
        "stop in by podnet-e* not from 169.254.64.0/18 not from 169.254.128.0/19",
        "stop in by podnet-e* not from fd70:6f64:6e65:7400::/64 not from fd70:6f64:6e65:7401::/64",
        "stop from 169.254.64.0/18 not in by podnet-e*",
        "stop from fd70:6f64:6e65:7400::/64 not in by podnet-e*",
        "stop from 169.254.128.0/19 not in by podnet-e*",
        "stop from fd70:6f64:6e65:7401::/64 not in by podnet-e*",
        "stop from 169.254.64.0/18 not in by podnet-e*",
        "stop from fd70:6f64:6e65:7400::/64 not in by podnet-e*",
        "stop from 169.254.128.0/19 not in by podnet-e*",
        "stop from fd70:6f64:6e65:7401::/64 not in by podnet-e*",
        "pass in by podnet-e* from 169.254.128.0/19 to a translated address",
        "stop in by podnet-e* from 169.254.128.0/19",
        "pass in by podnet-e* from fd70:6f64:6e65:7401::/64 to a translated address",
        "stop in by podnet-e* from fd70:6f64:6e65:7401::/64",
        "pass in by podnet-e* from 169.254.128.0/19 to a translated address",
        "stop in by podnet-e* from 169.254.128.0/19",
        "pass in by podnet-e* from fd70:6f64:6e65:7401::/64 to a translated address",
        "stop in by podnet-e* from fd70:6f64:6e65:7401::/64",
        "stop in by podnet-e* asking to a translated address",
        "stop in by podnet-e* to 10.244.0.0/16",
        "pass in by podnet-e* out by eth0",
        "stop in by podnet-e*",
        "pass in by eth0 out by podnet-e* to a translated address",
        "stop out by podnet-e* of no connection",
        "pass in by podnet-e* answering",
        "stop in by podnet-e*",
    ];
    assert_eq!(said, expected);
    assert_eq!(rules.guards.last().unwrap().bound, Bound::Here);
    let none = fence(&[], &[], None);
    let passes = none.guards.iter().filter(|guard| guard.pass);
    let passes: Vec<String> = passes.map(ToString::to_string).collect();
    let outside = passes
        .iter()
        .filter(|it| !it.ends_with("to a translated address"));
    assert_eq!(
        outside.collect::<Vec<_>>(),
        ["pass in by podnet-e* answering"]
    );
}

fn said(rules: &Ruleset) -> (Vec<String>, Vec<String>) {
    let guards = rules.guards.iter().map(ToString::to_string);
    let fixed = rules.masquerade.iter().flat_map(|it| &it.fixed);
    let fixed = fixed.map(|(port, source)| format!("{port} from {source}"));
    (guards.collect(), fixed.collect())
}

#[test]
fn a_gateway_to_services_alone_passes_nothing_else() {
    let network = Network {
        egress: Egress::None,
        cluster_services: vec![("kube-system".to_owned(), "kube-dns".to_owned())],
        service_cidrs: vec!["10.96.0.0/12".parse().unwrap()],
        ..network(&[("10.0.0.0/24", "10.0.0.1")])
    };
    let facts = NetworkFacts::of(&network, 7);
    assert!(facts.has_gateway() && facts.to_services && !facts.egress);
    let port = |ip: &str| PortAt {
        ip: ip.parse().unwrap(),
        protocol: netdev::PortProtocol::Udp,
        port: 53,
    };
    let mut plan = GatewayPlan::of(7);
    plan.serve(&facts);
    let unknown = said(&plan.rules(1));
    plan.services = Some([port("10.96.0.10"), port("fd96::a")].into());
    let expected = [
        "pass in by uplink to a translated address",
        "stop in by uplink of no connection",
        "stop untracked",
        "pass in by pods to UDP 10.96.0.10:53",
        "stop in by pods to 10.96.0.0/12",
        "stop in by pods",
        "stop",
    ];
    // Of a family that pods do not have there is no way.
    let fixed = vec!["UDP 10.96.0.10:53 from 169.254.128.1".to_owned()];
    assert_eq!(
        said(&plan.rules(1)),
        (expected.map(str::to_owned).into(), fixed.clone())
    );
    assert_eq!(
        unknown.0.len(),
        expected.len() - 1,
        "closed until they are known"
    );
    // With egress besides, all but Services is open, for networks whose pods all have it.
    let open = Network {
        egress: Egress::Masquerade,
        ..network
    };
    let facts = NetworkFacts::of(&open, 7);
    plan.serve(&facts);
    assert_eq!(said(&plan.rules(1)).0.len(), expected.len());
    let mut plan = GatewayPlan {
        services: plan.services,
        ..GatewayPlan::of(7)
    };
    plan.serve(&facts);
    let (guards, open_fixed) = said(&plan.rules(1));
    let without = expected.iter().filter(|it| **it != "stop in by pods");
    assert_eq!(guards, without.copied().collect::<Vec<_>>());
    assert_eq!(open_fixed, fixed);
}

#[test]
fn packets_to_services_have_addresses_that_no_link_between_has() {
    let mut seen = BTreeSet::new();
    for place in [0, 1, PLACES - 1] {
        for both in [of_node(place), of_gateway(place), to_services(place)] {
            assert!(seen.insert(both.v4) && both.v4.is_link_local());
        }
        let own = Prefix::new(TO_SERVICES_V4.0.into(), TO_SERVICES_V4.1).unwrap();
        assert!(own.contains(&IpAddr::V4(to_services(place).v4)));
    }
    // Metadata, names and time of clouds, NodeLocal DNSCache.
    for cloud in [
        "169.254.169.254",
        "169.254.169.253",
        "169.254.169.123",
        "169.254.170.2",
        "169.254.170.23",
        "169.254.20.10",
    ] {
        let cloud: IpAddr = cloud.parse().unwrap();
        for (ip, length) in transit_prefixes() {
            assert!(
                !Prefix::new(ip, length).unwrap().contains(&cloud),
                "{cloud} in {ip}/{length}"
            );
        }
    }
}
