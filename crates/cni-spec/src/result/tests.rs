use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::error::{ErrorCode, SpecError};
use crate::version::CniVersion;

/// A dual-stack attachment that uses every field there is.
fn full() -> CniResult {
    CniResult {
        interfaces: vec![
            Interface {
                name: "net1".to_owned(),
                mac: Some("02:00:00:00:00:2a".to_owned()),
                mtu: Some(1500),
                sandbox: Some("/run/netns/x".to_owned()),
                socket_path: Some("/run/memif.sock".to_owned()),
                pci_id: Some("0000:04:00.5".to_owned()),
            },
            Interface {
                name: "pn0a1b".to_owned(),
                ..Interface::default()
            },
        ],
        ips: vec![
            IpConfig {
                address: "10.10.0.5/24".parse().unwrap(),
                gateway: Some("10.10.0.1".parse().unwrap()),
                interface: Some(0),
            },
            IpConfig {
                address: "fd10:10::5/64".parse().unwrap(),
                gateway: None,
                interface: Some(0),
            },
        ],
        routes: vec![
            Route {
                mtu: Some(1400),
                advmss: Some(1360),
                priority: Some(100),
                table: Some(50),
                scope: Some(253),
                ..Route::new(
                    "0.0.0.0/0".parse().unwrap(),
                    Some("10.10.0.1".parse().unwrap()),
                )
            },
            Route::new("fd99::/64".parse().unwrap(), None),
        ],
        dns: Dns {
            nameservers: vec!["10.10.0.53".to_owned()],
            domain: Some("blue.local".to_owned()),
            search: vec!["a.local".to_owned()],
            options: vec!["ndots:2".to_owned()],
        },
    }
}

fn golden(version: CniVersion) -> Value {
    let dns = json!({"nameservers": ["10.10.0.53"], "domain": "blue.local",
        "search": ["a.local"], "options": ["ndots:2"]});
    let old_interfaces = json!([
        {"name": "net1", "mac": "02:00:00:00:00:2a", "sandbox": "/run/netns/x"},
        {"name": "pn0a1b"},
    ]);
    let old_routes = json!([{"dst": "0.0.0.0/0", "gw": "10.10.0.1"}, {"dst": "fd99::/64"}]);
    let mut expected = match version {
        CniVersion::V0_1_0 | CniVersion::V0_2_0 => json!({
            "ip4": {"ip": "10.10.0.5/24", "gateway": "10.10.0.1",
                "routes": [{"dst": "0.0.0.0/0", "gw": "10.10.0.1"}]},
            "ip6": {"ip": "fd10:10::5/64", "routes": [{"dst": "fd99::/64"}]},
        }),
        CniVersion::V0_3_0 | CniVersion::V0_3_1 | CniVersion::V0_4_0 => json!({
            "interfaces": old_interfaces,
            "ips": [
                {"version": "4", "interface": 0, "address": "10.10.0.5/24", "gateway": "10.10.0.1"},
                {"version": "6", "interface": 0, "address": "fd10:10::5/64"},
            ],
            "routes": old_routes,
        }),
        CniVersion::V1_0_0 => json!({
            "interfaces": old_interfaces,
            "ips": [
                {"interface": 0, "address": "10.10.0.5/24", "gateway": "10.10.0.1"},
                {"interface": 0, "address": "fd10:10::5/64"},
            ],
            "routes": old_routes,
        }),
        CniVersion::V1_1_0 => json!({
            "interfaces": [
                {"name": "net1", "mac": "02:00:00:00:00:2a", "mtu": 1500,
                    "sandbox": "/run/netns/x", "socketPath": "/run/memif.sock",
                    "pciID": "0000:04:00.5"},
                {"name": "pn0a1b"},
            ],
            "ips": [
                {"interface": 0, "address": "10.10.0.5/24", "gateway": "10.10.0.1"},
                {"interface": 0, "address": "fd10:10::5/64"},
            ],
            "routes": [
                {"dst": "0.0.0.0/0", "gw": "10.10.0.1", "mtu": 1400, "advmss": 1360,
                    "priority": 100, "table": 50, "scope": 253},
                {"dst": "fd99::/64"},
            ],
        }),
    };
    expected["cniVersion"] = version.as_str().into();
    expected["dns"] = dns;
    expected
}

/// Reduces a result to the fields that a version has.
fn as_known_by(version: CniVersion, mut result: CniResult) -> CniResult {
    if version < CniVersion::V1_1_0 {
        for interface in &mut result.interfaces {
            interface.mtu = None;
            interface.socket_path = None;
            interface.pci_id = None;
        }
        for route in &mut result.routes {
            *route = Route::new(route.dst, route.gw);
        }
    }
    if version < CniVersion::V0_3_0 {
        result.interfaces.clear();
        result.ips.iter_mut().for_each(|ip| ip.interface = None);
    }
    result
}

#[test]
fn one_result_has_a_golden_form_per_version_and_reads_back_cni_res_01() {
    for version in CniVersion::ALL {
        let written = full().to_version(version).unwrap();
        assert_eq!(written, golden(version), "{version}");
        let read = CniResult::parse(&written, CniVersion::LATEST).unwrap();
        assert_eq!(read, as_known_by(version, full()), "{version}");
    }
    proof::of!("CNI-RES-01");
}

#[test]
fn dns_is_an_empty_object_before_1_0_0_and_absent_after() {
    let mut result = full();
    result.dns = Dns::default();
    for version in CniVersion::ALL {
        let written = result.to_version(version).unwrap();
        let expected = (version < CniVersion::V1_0_0).then(|| json!({}));
        assert_eq!(written.get("dns"), expected.as_ref(), "{version}");
    }
}

#[test]
fn a_result_without_addresses_needs_0_3_0() {
    let result = CniResult {
        interfaces: full().interfaces,
        ..CniResult::default()
    };
    for version in CniVersion::ALL {
        match result.to_version(version) {
            Ok(written) => {
                assert!(version >= CniVersion::V0_3_0, "{version}");
                assert_eq!(written.get("ips"), None);
            }
            Err(error) => {
                assert!(version < CniVersion::V0_3_0, "{version}");
                assert_eq!(error.code(), ErrorCode::INVALID_CONFIG);
            }
        }
    }
}

#[test]
fn only_the_first_address_of_a_family_is_left_before_0_3_0() {
    let mut result = full();
    result.ips.insert(
        1,
        IpConfig {
            address: "10.10.0.6/24".parse().unwrap(),
            gateway: None,
            interface: Some(0),
        },
    );
    let written = result.to_version(CniVersion::V0_2_0).unwrap();
    assert_eq!(written["ip4"]["ip"], "10.10.0.5/24");
}

#[test]
fn no_index_outside_the_interfaces_is_written_or_read_cni_res_05() {
    let mut result = full();
    result.ips[1].interface = Some(2);
    for version in CniVersion::ALL {
        let error = result.to_version(version).unwrap_err();
        assert!(matches!(
            error,
            SpecError::InterfaceIndex {
                ip: 1,
                index: 2,
                interfaces: 2
            }
        ));
    }
    let foreign =
        json!({"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.1/8", "interface": 0}]});
    assert!(CniResult::parse(&foreign, CniVersion::LATEST).is_err());
    proof::of!("CNI-RES-05");
}

#[test]
fn a_result_without_version_has_the_one_of_the_configuration_cni_res_03() {
    let mut new = golden(CniVersion::V0_4_0);
    new.as_object_mut().unwrap().remove("cniVersion");
    let read = CniResult::parse(&new, CniVersion::V1_0_0).unwrap();
    assert_eq!(read, as_known_by(CniVersion::V1_0_0, full()));
    let mut old = golden(CniVersion::V0_2_0);
    old.as_object_mut().unwrap().remove("cniVersion");
    for config in [CniVersion::V0_1_0, CniVersion::V1_1_0] {
        let read = CniResult::parse(&old, config).unwrap();
        assert_eq!(read, as_known_by(CniVersion::V0_2_0, full()), "{config}");
    }
    proof::of!("CNI-RES-03");
}

#[test]
fn a_result_of_an_unknown_version_is_code_1() {
    let error = CniResult::parse(&json!({"cniVersion": "2.0.0"}), CniVersion::LATEST).unwrap_err();
    assert_eq!(error.code(), ErrorCode::INCOMPATIBLE_VERSION);
}

#[test]
fn odd_results_are_tolerated_cni_res_04() {
    for empty in [json!(null), json!({}), json!({"cniVersion": "1.0.0"})] {
        let read = CniResult::parse(&empty, CniVersion::V1_1_0).unwrap();
        assert_eq!(read, CniResult::default(), "{empty}");
    }
    let odd = json!({
        "CNIVersion": "0.3.1",
        "IPs": [
            {"Version": "4", "Address": "10.0.0.1/24", "Interface": -1},
            {"address": "10.0.0.2", "interface": null, "gateway": ""},
        ],
        "routes": null,
        "dns": {},
    });
    let read = CniResult::parse(&odd, CniVersion::V1_1_0).unwrap();
    let ips: Vec<_> = read.ips.iter().map(|ip| ip.address.to_string()).collect();
    assert_eq!(ips, ["10.0.0.1/24", "10.0.0.2/32"]);
    assert!(
        read.ips
            .iter()
            .all(|ip| ip.interface.is_none() && ip.gateway.is_none())
    );
    let bare = json!({"cniVersion": "0.1.0", "ip4": {"ip": "10.0.0.1"}});
    let read = CniResult::parse(&bare, CniVersion::V0_1_0).unwrap();
    assert_eq!(read.ips[0].address.to_string(), "10.0.0.1/32");
    proof::of!("CNI-RES-04");
}

#[test]
fn what_is_no_result_is_refused_with_the_path() {
    let table = [
        (json!([]), "(document)"),
        (json!({"ips": [{"address": "nonsense"}]}), "ips[0].address"),
        (json!({"ips": [{}]}), "ips[0].address"),
        (
            json!({"ips": [{"address": "10.0.0.1/8", "interface": -2}]}),
            "ips[0].interface",
        ),
        (json!({"interfaces": [{"mac": "x"}]}), "interfaces[0].name"),
        (
            json!({"routes": [{"dst": "10.0.0.0/8", "gw": "x"}]}),
            "routes[0].gw",
        ),
        (
            json!({"routes": [{"dst": "10.0.0.0/8", "table": -1}]}),
            "routes[0].table",
        ),
    ];
    for (value, path) in table {
        let error = CniResult::parse(&value, CniVersion::V1_1_0).unwrap_err();
        assert_eq!(error.code(), ErrorCode::INVALID_CONFIG);
        assert!(error.to_string().contains(path), "{value}: {error}");
    }
}

fn any_prefix() -> impl Strategy<Value = IpPrefix> {
    let v4 = (any::<u32>(), 0_u8..=32)
        .prop_map(|(bits, len)| IpPrefix::new(std::net::Ipv4Addr::from_bits(bits).into(), len));
    let v6 = (any::<u64>(), 0_u8..=128).prop_map(|(bits, len)| {
        let addr = std::net::Ipv6Addr::from_bits((0xfd << 120) | u128::from(bits));
        IpPrefix::new(addr.into(), len)
    });
    prop_oneof![v4, v6].prop_map(|prefix| prefix.unwrap())
}

prop_compose! {
    fn any_result()(
        names in prop::collection::vec("[a-z]{1,15}", 1..4),
        mtu in prop::option::of(1_u32..),
        sandbox in prop::option::of("/[a-z/]{1,20}"),
        ips in prop::collection::vec((any_prefix(), any::<prop::sample::Index>(), any::<bool>()), 0..5),
        routes in prop::collection::vec((any_prefix(), prop::option::of(any::<u32>())), 0..4),
        domain in prop::option::of("[a-z.]{1,20}"),
    ) -> CniResult {
        let interfaces: Vec<_> = names
            .into_iter()
            .map(|name| Interface { name, mtu, sandbox: sandbox.clone(), ..Interface::default() })
            .collect();
        CniResult {
            ips: ips
                .into_iter()
                .map(|(address, index, indexed)| IpConfig {
                    address,
                    gateway: None,
                    interface: indexed.then(|| index.index(interfaces.len())),
                })
                .collect(),
            interfaces,
            routes: routes
                .into_iter()
                .map(|(dst, scope)| Route { scope, ..Route::new(dst, None) })
                .collect(),
            dns: Dns { domain, ..Dns::default() },
        }
    }
}

proptest! {
    #[test]
    fn any_result_reads_back_as_far_as_the_version_knows_it(result in any_result()) {
        for version in CniVersion::ALL.into_iter().filter(|v| *v >= CniVersion::V0_3_0) {
            let written = result.to_version(version).unwrap();
            let read = CniResult::parse(&written, CniVersion::V0_1_0).unwrap();
            prop_assert_eq!(&read, &as_known_by(version, result.clone()), "{}", version);
        }
    }
}
