use api::Mode;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::bandwidth::{Limit, Source};
use crate::samples::{network, record};

fn routes(record: &Attachment) -> Vec<String> {
    record
        .routes()
        .iter()
        .map(|route| match route.via {
            Some(via) => format!("{} via {via}", route.to),
            None => route.to.to_string(),
        })
        .collect()
}

fn lengths(record: &Attachment) -> Vec<u8> {
    record
        .leases
        .iter()
        .map(|lease| record.prefix_len(lease))
        .collect()
}

#[test]
fn a_switched_pod_needs_no_routes_but_those_of_its_addresses() {
    let blue = network(
        "blue",
        Mode::L2,
        &[("10.10.0.0/24", "10.10.0.1"), ("fd10::/64", "")],
    );
    let record = record(&blue, |_| {});
    assert_eq!(routes(&record), [""; 0]);
    assert_eq!(lengths(&record), [24, 64]);
}

#[test]
fn a_pod_of_a_vpc_reaches_its_prefixes_through_the_gateway_each_by_one_route() {
    let green = api::Network {
        vpc_cidrs: ["10.0.0.0/8", "10.20.0.0/24", "fd00::/8"]
            .map(|it| it.parse().unwrap())
            .into(),
        ..network("green", Mode::L3, &[("10.20.0.0/24", "")])
    };
    let record = record(&green, |_| {});
    assert_eq!(
        routes(&record),
        [
            "169.254.1.1/32",
            "10.20.0.0/24 via 169.254.1.1",
            "10.0.0.0/8 via 169.254.1.1",
        ]
    );
}

#[test]
fn a_switched_pod_of_a_vpc_reaches_its_prefixes_through_the_gateway_of_its_subnet() {
    let blue = api::Network {
        vpc_cidrs: ["10.0.0.0/8", "fd00::/8"]
            .map(|it| it.parse().unwrap())
            .into(),
        ..network("blue", Mode::L2, &[("10.10.0.0/24", "10.10.0.1")])
    };
    let record = record(&blue, |_| {});
    assert_eq!(routes(&record), ["10.0.0.0/8 via 10.10.0.1"]);
}

#[test]
fn is_default_gateway_adds_a_default_route_for_each_family_with_a_gateway() {
    let blue = network(
        "blue",
        Mode::L2,
        &[("10.10.0.0/24", "10.10.0.1"), ("fd10::/64", "")],
    );
    let record = record(&blue, |wanted| wanted.default_gateway = true.into());
    assert_eq!(routes(&record), ["0.0.0.0/0 via 10.10.0.1"]);
}

#[test]
fn a_routed_pod_reaches_every_subnet_through_the_gateway() {
    let green = network(
        "green",
        Mode::L3,
        &[
            ("10.20.0.0/24", ""),
            ("10.21.0.0/24", ""),
            ("fd20::/64", ""),
        ],
    );
    let record = record(&green, |_| {});
    assert_eq!(
        routes(&record),
        [
            // An IPv4 next hop outside every subnet has to be put on the link first.
            "169.254.1.1/32",
            "10.20.0.0/24 via 169.254.1.1",
            "10.21.0.0/24 via 169.254.1.1",
            // A link-local one is on it already.
            "fd20::/64 via fe80::1",
        ]
    );
    assert_eq!(
        lengths(&record),
        [32, 128],
        "nothing but the gateway is on the link"
    );
}

#[test]
fn a_routed_network_uses_the_gateway_it_was_given() {
    let green = network(
        "green",
        Mode::L3,
        &[("10.20.0.0/24", "10.20.0.1"), ("fd20::/64", "fd20::1")],
    );
    let record = record(&green, |wanted| wanted.default_gateway = true.into());
    assert_eq!(
        routes(&record),
        [
            "10.20.0.1/32",
            "10.20.0.0/24 via 10.20.0.1",
            "0.0.0.0/0 via 10.20.0.1",
            "fd20::1/128",
            "fd20::/64 via fe80::1",
            "::/0 via fe80::1",
        ]
    );
}

#[test]
fn a_route_comes_after_the_one_its_gateway_needs() {
    let subnets = [("10.20.0.0/24", "10.20.0.1"), ("fd20::/64", "fd20::1")];
    let record = record(&network("green", Mode::L3, &subnets), |wanted| {
        wanted.default_gateway = true.into();
    });
    let routes = record.routes();
    for (index, route) in routes.iter().enumerate() {
        let Some(via) = route.via else { continue };
        if matches!(via, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
            continue;
        }
        let on_link = |earlier: &PodRoute| earlier.via.is_none() && earlier.to.contains(&via);
        assert!(
            routes[..index].iter().any(on_link),
            "{route:?} comes too early"
        );
    }
}

/// CNI-RES-06: the interface in the container comes first, with the addresses.
#[test]
fn the_result_names_the_pods_interface_first_and_the_host_end_without_sandbox() {
    let blue = network("blue", Mode::L2, &[("10.10.0.0/24", "10.10.0.1")]);
    let record = record(&blue, |wanted| {
        wanted.nameservers = vec!["10.10.0.53".to_owned()];
    });
    let result = record.result().unwrap();
    let names: Vec<&str> = result
        .interfaces
        .iter()
        .map(|found| found.name.as_str())
        .collect();
    assert_eq!(names, ["net1", record.host.name.as_str()]);
    assert_eq!(
        result.interfaces[0].sandbox.as_deref(),
        Some("/run/netns/c1")
    );
    assert_eq!(result.interfaces[0].mac, Some(record.mac.to_string()));
    assert_eq!(result.interfaces[1].sandbox, None);
    assert_eq!(result.ips.len(), 1);
    assert_eq!(result.ips[0].address.to_string(), "10.10.0.2/24");
    assert_eq!(result.ips[0].gateway, Some("10.10.0.1".parse().unwrap()));
    assert_eq!(result.ips[0].interface, Some(0));
    assert_eq!(result.dns.nameservers, ["10.10.0.53"]);
    proof::of!("CNI-RES-06");
}

#[test]
fn a_network_without_subnets_gives_a_result_without_addresses() {
    let record = record(&network("raw", Mode::L2, &[]), |wanted| {
        wanted.default_gateway = true.into();
    });
    assert!(record.network.addressless());
    let result = record.result().unwrap();
    assert!(result.ips.is_empty() && result.routes.is_empty());
    assert_eq!(result.interfaces.len(), 2);
}

/// The record of [`web`] as an agent that knew no rates wrote it.
fn first_version(record: &Attachment) -> serde_json::Value {
    json!({
        "key": {"containerID": "c1", "ifname": "net1"},
        "state": "Adding",
        "cniNetwork": "conf",
        "requestDigest": "0",
        "network": {
            "name": "green",
            "id": 8_388_608,
            "routed": true,
            "mtu": 1500,
            "subnets": [{"prefix": "10.20.0.0/24", "gateway": "10.20.0.1"}],
        },
        "pod": {"namespace": "default", "name": "web", "uid": null},
        "mac": record.mac.to_string(),
        "leases": [{"address": "10.20.0.2", "prefix": "10.20.0.0/24", "gateway": "10.20.0.1"}],
        "sandbox": {"path": "/run/netns/c1", "dev": 4, "ino": 4_026_532_000_u64},
        "host": {"name": record.host.name, "ifindex": 7},
        "portId": 0,
        "defaultGateway": false,
        "nameservers": [],
        "decisions": [{
            "about": "network id",
            "value": "8388608",
            "because": "allocated, and kept for this name",
        }],
    })
}

fn web() -> Attachment {
    let green = network("green", Mode::L3, &[("10.20.0.0/24", "10.20.0.1")]);
    let mut record = record(&green, |wanted| {
        wanted.pod = Some(PodIdentity {
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            uid: None,
        });
    });
    record.decisions.truncate(1);
    record
}

/// The next agent reads the records that this one writes.
///
/// When this text changes, so must the format of the store, or the new field needs a default.
#[test]
fn a_record_is_written_as_it_always_was() {
    let record = Attachment {
        object: Some(ObjectRef {
            namespace: "default".to_owned(),
            name: "fast".to_owned(),
        }),
        asked: Limits {
            ingress: Some(limit(5_000_000, Some(1), Source::Runtime)),
            egress: None,
        },
        limits: Limits {
            ingress: Some(limit(5_000_000, Some(1), Source::Runtime)),
            egress: Some(limit(8000, None, Source::Attachment)),
        },
        queued: false,
        shaper: Some(Shaper {
            near: 8,
            far: 9,
            used: true,
        }),
        ..web()
    };
    let mut written = first_version(&record);
    let ingress = json!({"rate": 5_000_000, "burst": 1, "source": "Runtime"});
    written["object"] = json!({"namespace": "default", "name": "fast"});
    written["asked"] = json!({"ingress": ingress, "egress": null});
    written["limits"] = json!({
        "ingress": ingress,
        "egress": {"rate": 8000, "burst": null, "source": "Attachment"},
    });
    written["queued"] = false.into();
    written["shaper"] = json!({"near": 8, "far": 9, "used": true});
    assert_eq!(serde_json::to_value(&record).unwrap(), written);
    assert_eq!(
        serde_json::from_value::<Attachment>(written).unwrap(),
        record
    );
}

#[test]
fn a_record_has_labels_where_the_configuration_gives_some() {
    assert!(!serde_json::to_string(&web()).unwrap().contains("labels"));
    let labels = [("app".to_owned(), "web".to_owned())];
    let green = network("green", Mode::L3, &[("10.20.0.0/24", "")]);
    let record = record(&green, |wanted| wanted.labels = labels.into());
    let written = serde_json::to_value(&record).unwrap();
    assert_eq!(written["labels"], json!({"app": "web"}));
    assert_eq!(
        serde_json::from_value::<Attachment>(written).unwrap(),
        record
    );
}

#[test]
fn a_record_from_before_there_were_rates_is_unlimited() {
    let record = web();
    let read: Attachment = serde_json::from_value(first_version(&record)).unwrap();
    assert_eq!(read, record);
    assert!(read.limits.is_unlimited() && read.shaper.is_none() && !read.queued);
}

fn limit(rate: u64, burst: Option<u64>, source: Source) -> Limit {
    Limit {
        rate,
        burst,
        source,
    }
}

#[test]
fn a_damaged_record_is_an_error_and_never_another_record() {
    let blue = network("blue", Mode::L2, &[("10.10.0.0/24", "")]);
    let record = record(&blue, |_| {});
    let bytes = serde_json::to_vec(&record).unwrap();
    for end in 0..bytes.len() {
        assert!(
            serde_json::from_slice::<Attachment>(&bytes[..end]).is_err(),
            "cut at {end}"
        );
    }
    for (good, bad) in [
        ("\"Adding\"", "\"Gone\""),
        ("10.10.0.1\"", "10.10.0.256\""),
        ("02:", "2:"),
    ] {
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(text.contains(good), "{good} in {text}");
        let text = text.replace(good, bad);
        assert!(
            serde_json::from_str::<Attachment>(&text).is_err(),
            "{bad} was read"
        );
    }
}

fn subnets() -> impl Strategy<Value = Vec<(String, String)>> {
    let v4 = (0_u8..=255, any::<bool>()).prop_map(|(net, gateway)| {
        let with = if gateway {
            format!("10.{net}.0.1")
        } else {
            String::new()
        };
        (format!("10.{net}.0.0/24"), with)
    });
    let v6 = (0_u16..0x1000, any::<bool>()).prop_map(|(net, gateway)| {
        let with = if gateway {
            format!("fd00:{net:x}::1")
        } else {
            String::new()
        };
        (format!("fd00:{net:x}::/64"), with)
    });
    prop::collection::vec(prop_oneof![v4, v6], 1..5).prop_map(|mut all| {
        all.sort();
        all.dedup_by(|a, b| a.0 == b.0);
        all
    })
}

proptest! {
    #[test]
    fn every_record_survives_writing_and_reading(
        subnets in subnets(),
        routed in any::<bool>(),
        default_gateway in any::<bool>(),
        container in "[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}",
        because in ".{0,40}",
    ) {
        let subnets: Vec<_> = subnets.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let mode = if routed { Mode::L3 } else { Mode::L2 };
        let record = record(&network("n", mode, &subnets), |wanted| {
            wanted.key = crate::samples::key(&container, "net1");
            wanted.default_gateway = default_gateway.into();
            wanted.decisions = vec![Decision::new("x", &1, &because)];
        });
        let bytes = serde_json::to_vec(&record).unwrap();
        prop_assert_eq!(serde_json::from_slice::<Attachment>(&bytes).unwrap(), record);
    }

    #[test]
    fn every_next_hop_is_of_its_routes_family_and_reachable(
        subnets in subnets(),
        default_gateway in any::<bool>(),
    ) {
        let subnets: Vec<_> = subnets.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let record = record(&network("n", Mode::L3, &subnets), |wanted| {
            wanted.default_gateway = default_gateway.into();
        });
        let routes = record.routes();
        for route in &routes {
            let Some(via) = route.via else { continue };
            prop_assert_eq!(via.is_ipv4(), route.to.addr().is_ipv4());
            let link_local = matches!(via, IpAddr::V6(v6) if v6.is_unicast_link_local());
            let on_link = |other: &PodRoute| other.via.is_none() && other.to.contains(&via);
            prop_assert!(link_local || routes.iter().any(on_link), "{:?} in {:?}", route, routes);
        }
        for lease in &record.leases {
            let ip = lease.address;
            let reached = |route: &PodRoute| route.via.is_some() && route.to.contains(&ip);
            prop_assert!(routes.iter().any(reached), "no way to the neighbours of {}", ip);
        }
        prop_assert!(record.result().is_ok());
    }
}

#[test]
fn pushed_routes_go_by_their_next_hop_or_the_virtual_gateway_in_the_families_of_the_pod() {
    let route = |dst: &str, gw: Option<&str>| api::PushedRoute {
        dst: dst.parse().unwrap(),
        gw: gw.map(|gw| gw.parse().unwrap()),
    };
    let shown = |network: &api::Network| -> Vec<String> {
        let record = record(network, |_| ());
        let routes = record.routes().into_iter();
        let pushed = routes.filter(|it| network.routes.iter().any(|route| route.dst == it.to));
        pushed
            .map(|it| format!("{} {}", it.to, it.via.unwrap()))
            .collect()
    };
    let subnets = [("10.0.0.0/24", "10.0.0.1")];
    let flat = api::Network {
        routes: vec![
            route("192.0.2.0/24", Some("10.0.0.1")),
            route("2001:db8::/32", Some("fd10::1")),
        ],
        ..network("blue", api::Mode::L2, &subnets)
    };
    assert_eq!(shown(&flat), ["192.0.2.0/24 10.0.0.1"], "no IPv6 here");
    let routed = api::Network {
        routes: vec![route("192.0.2.0/24", None), route("2001:db8::/32", None)],
        ..network(
            "green",
            api::Mode::L3,
            &[("10.0.0.0/24", ""), ("fd10::/64", "")],
        )
    };
    assert_eq!(
        shown(&routed),
        ["192.0.2.0/24 169.254.1.1", "2001:db8::/32 fe80::1"]
    );
}

#[test]
fn a_record_from_before_egress_and_routes_has_neither() {
    let network = network("green", api::Mode::L3, &[("10.0.0.0/24", "")]);
    let record = record(&network, |_| ());
    let text = serde_json::to_string(&record).unwrap();
    assert!(
        !text.contains("egress\":") || !text.contains("routes"),
        "{text}"
    );
    let read: Attachment = serde_json::from_str(&text).unwrap();
    assert!(!read.network.egress && read.network.routes.is_empty());
}
