//! Behaviour of statuses, by the sections that ask for it.

use proptest::prelude::*;

use super::*;
use crate::selection::Family;

fn written(entry: &AttachmentStatus) -> String {
    write_network_status(std::slice::from_ref(entry)).unwrap()
}

fn ips(texts: &[&str]) -> Vec<StatusAddress> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// An entry with everything in it.
fn full() -> AttachmentStatus {
    AttachmentStatus {
        name: "shop/blue".to_owned(),
        interface: Some("net1".to_owned()),
        ips: ips(&["192.0.2.2/24", "2001:db8::2234/32"]),
        mac: Some(MacAddr::new([2, 0x11, 0x22, 0x33, 0x44, 0x55])),
        mtu: Some(1500),
        default: true,
        dns: StatusDns {
            nameservers: vec!["192.0.2.1".to_owned()],
            domain: Some("example.com".to_owned()),
            search: vec!["eng.example.com".to_owned()],
        },
        gateway: vec!["192.0.2.1".parse().unwrap()],
        default_route: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
        device_info: Some(RawJson::parse(r#"{"type":"memif","version":"1.1.0"}"#).unwrap()),
        infiniband_guid: None,
        extensions: [("org.example.x".to_owned(), RawJson::parse("[1.0]").unwrap())].into(),
    }
}

/// NPWG-G2, NPWG-5.3, NPWG-5.3.3: what clients in use read.
#[test]
fn a_status_is_what_clients_read() {
    assert_eq!(
        written(&full()),
        concat!(
            r#"[{"name":"shop/blue","interface":"net1","ips":["192.0.2.2","2001:db8::2234"],"#,
            r#""mac":"02:11:22:33:44:55","mtu":1500,"default":true,"#,
            r#""dns":{"nameservers":["192.0.2.1"],"domain":"example.com","search":["eng.example.com"]},"#,
            r#""gateway":["192.0.2.1"],"default-route":["192.0.2.1","2001:db8::1"],"#,
            r#""device-info":{"type":"memif","version":"1.1.0"},"#,
            r#""dev.podnet.ips":["192.0.2.2/24","2001:db8::2234/32"],"org.example.x":[1.0]}]"#,
        )
    );
    proof::of!("NPWG-G2", "NPWG-5.3", "NPWG-5.3.3", "PAIN-STS-1");
}

/// NPWG-5.1.1, NPWG-5.3.5: `default` is required; `dns` is always written.
#[test]
fn a_minimal_entry_has_a_name_and_default() {
    let entry = AttachmentStatus::minimal("shop/blue");
    assert_eq!(
        written(&entry),
        r#"[{"name":"shop/blue","default":false,"dns":{}}]"#
    );
    proof::of!("NPWG-5.1.1", "NPWG-5.3.5");
}

/// NPWG-5.3.5: only one entry is the default network.
#[test]
fn two_default_networks_are_refused() {
    let default = |name| AttachmentStatus {
        default: true,
        ..AttachmentStatus::minimal(name)
    };
    let error = write_network_status(&[default("a"), default("b")]);
    assert!(error.unwrap_err().to_string().contains("\"a\" and \"b\""));
    proof::of!("NPWG-5.3.5");
}

/// NPWG-5.3.4: no hardware address without an interface.
#[test]
fn a_mac_needs_an_interface() {
    let entry = AttachmentStatus {
        interface: None,
        ..full()
    };
    let error = write_network_status(&[entry]).unwrap_err();
    assert!(matches!(error, StatusError::MacWithoutInterface { name } if name == "shop/blue"));
    proof::of!("NPWG-5.3.4");
}

/// NPWG-5.4: statuses of other writers are read.
///
/// They have no `default`, blanks in a MAC, `device`, `null`.
#[test]
fn statuses_of_others_are_read() {
    let list = parse_network_status(
        r#"[{"name":"cbr0","interface":"eth0","ips":["10.244.1.4"],"mac":" 02:11:22:33:44:54",
             "default":true,"dns":{},"gateway":null,"new":[],"infiniband-guid":"80:00"},
            {"name":"a/b","device":{"type":"pci"},"mac":"","dns":null}]"#,
    )
    .unwrap();
    let [first, second] = list.as_slice() else {
        panic!("{list:?}");
    };
    assert_eq!(first.ips, ips(&["10.244.1.4"]));
    assert_eq!(first.mac.unwrap().to_string(), "02:11:22:33:44:54");
    assert_eq!(first.infiniband_guid.as_deref(), Some("80:00"));
    assert_eq!(
        first.extensions.len(),
        0,
        "`new` is reserved, nobody's extension"
    );
    assert_eq!((second.default, second.mac), (false, None));
    assert_eq!(
        second.device_info.as_ref().unwrap().get(),
        r#"{"type":"pci"}"#
    );
    proof::of!("NPWG-5.4");
}

/// NPWG-5.4: the examples of the standard, with the JSON that they lack.
///
/// Quotation marks, commas and brackets are missing in its text; names, values and keys are as there.
#[test]
fn the_examples_of_the_standard_are_read() {
    let list = parse_network_status(
        r#"[{"name":"namespace-a/cluster-wide-default","interface":"eth5",
             "ips":["192.0.2.2/24","2001:db8::2230/32"],"mac":"02:11:22:33:44:54",
             "default-route":["192.0.2.1","2001:db8::1","2001:db8::2"],"default":true},
            {"name":"namespace-b/some-network","interface":"eth1",
             "ips":["192.0.2.2/24","2001:db8::2234/32"],"mac":"02:11:22:33:44:55",
             "dns":{"nameservers":["192.0.2.1","2001:db8:4860::8888"],
                    "search":["eng.example.com","example.com"]}}]"#,
    )
    .unwrap();
    let [first, second] = list.as_slice() else {
        panic!("{list:?}");
    };
    assert!(first.default && !second.default);
    assert_eq!(first.ips, ips(&["192.0.2.2/24", "2001:db8::2230/32"]));
    let routes: Vec<String> = first
        .default_route
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(routes, ["192.0.2.1", "2001:db8::1", "2001:db8::2"]);
    assert_eq!(second.dns.search, ["eng.example.com", "example.com"]);
    let devices = parse_network_status(
        r#"[{"name":"namespace-b/sriov-network_a","interface":"net1",
             "device-info":{"type":"pci","version":"1.0.0",
               "pci":{"pci-address":"0000:18:02.5","pf-pci-address":"0000:18:00.0"}}},
            {"name":"namespace-c/userspace_net1","interface":"net3","mac":" 64:1f:74:32:2e:6d",
             "device":{"type":"vhost-user","version":"1.0.0"}}]"#,
    )
    .unwrap();
    let kind = |entry: &AttachmentStatus| {
        let device = entry.device_info.as_ref().expect("a device");
        serde_json::from_str::<serde_json::Value>(device.get()).unwrap()["type"].clone()
    };
    assert_eq!(
        devices.iter().map(kind).collect::<Vec<_>>(),
        ["pci", "vhost-user"]
    );
    assert_eq!(devices[1].mac.unwrap().to_string(), "64:1f:74:32:2e:6d");
    proof::of!("NPWG-5.4");
}

/// NPWG-5.0: no value is no entries; anything else must be a list of entries.
#[test]
fn what_is_no_status_is_refused() {
    for text in ["", " ", "[]"] {
        assert_eq!(parse_network_status(text).unwrap(), []);
    }
    for (text, why) in [
        ("{}", "not a list of network statuses"),
        ("[1]", "not a list of network statuses"),
        ("[{}]", "[0].name: nothing is not a string"),
        (
            r#"[{"name":"a"},{"name":"b","ips":["x"]}]"#,
            "[1].ips: x is not an address",
        ),
        (
            r#"[{"name":"a","mac":"x"}]"#,
            "[0].mac: x is not a MAC address",
        ),
        (
            r#"[{"name":"a","mtu":-1}]"#,
            "[0].mtu: -1 is not a number of bytes",
        ),
        (
            r#"[{"name":"a","default":"true"}]"#,
            "[0].default: \"true\" is not true or false",
        ),
    ] {
        let error = parse_network_status(text).expect_err(text).to_string();
        assert!(error.contains(why), "{why:?} is not in {error:?}");
    }
    proof::of!("NPWG-5.0");
}

fn interface(name: &str, sandbox: Option<&str>) -> ResultInterface {
    ResultInterface {
        name: name.to_owned(),
        mac: Some(MacAddr::new([
            2,
            0,
            0,
            0,
            0,
            u8::try_from(name.len()).unwrap(),
        ])),
        mtu: Some(1400),
        sandbox: sandbox.map(str::to_owned),
    }
}

fn address(text: &str, interface: Option<i64>) -> ResultAddress {
    ResultAddress {
        address: text.parse().unwrap(),
        interface,
        gateway: None,
    }
}

/// NPWG-5.1.1, NPWG-5.3.2, NPWG-5.3.3: the first interface in the sandbox counts.
#[test]
fn the_first_interface_in_the_sandbox_is_the_entry() {
    let result = AttachmentResult {
        interfaces: vec![
            interface("br0", None),
            interface("veth", Some("")),
            interface("net1", Some("/run/netns/x")),
            interface("second", Some("/run/netns/x")),
        ],
        ips: vec![
            address("10.0.0.1/24", Some(0)),
            address("10.0.0.2/24", Some(2)),
            address("10.0.0.3/24", Some(3)),
            address("fd00::2/64", Some(2)),
            address("10.0.0.4/24", None),
            address("10.0.0.5/24", Some(9)),
        ],
        ..AttachmentResult::default()
    };
    let entry = AttachmentStatus::from_result("shop/blue", &result);
    assert_eq!(entry.interface.as_deref(), Some("net1"));
    assert_eq!(entry.mac, result.interfaces[2].mac);
    assert_eq!(entry.mtu, Some(1400));
    assert_eq!(entry.ips, ips(&["10.0.0.2/24", "fd00::2/64"]));
    assert!(!entry.default);
    proof::of!("NPWG-5.1.1", "NPWG-5.3.2", "NPWG-5.3.3");
}

/// NPWG-5.3.3: without an interface in the sandbox the first free address counts.
#[test]
fn without_an_interface_the_first_unplaced_address_counts() {
    let mut result = AttachmentResult {
        interfaces: vec![interface("br0", None)],
        ips: vec![
            address("10.0.0.1/24", Some(0)),
            address("10.0.0.2/24", Some(-1)),
            address("fd00::2/64", None),
        ],
        ..AttachmentResult::default()
    };
    let entry = AttachmentStatus::from_result("a", &result);
    assert_eq!((entry.interface, entry.mac), (None, None));
    assert_eq!(entry.ips, ips(&["10.0.0.2/24"]));
    result.ips.truncate(1);
    assert_eq!(AttachmentStatus::from_result("a", &result).ips, []);
    proof::of!("NPWG-5.3.3");
}

/// NPWG-5.3.3: before 0.3.0 a result has one address of each family.
#[test]
fn a_legacy_result_gives_both_its_addresses() {
    let result = AttachmentResult {
        ips: vec![address("10.0.0.2/24", None), address("fd00::2/64", None)],
        legacy: true,
        ..AttachmentResult::default()
    };
    let entry = AttachmentStatus::from_result("a", &result);
    assert_eq!(entry.ips, ips(&["10.0.0.2/24", "fd00::2/64"]));
    proof::of!("NPWG-5.3.3");
}

/// NPWG-5.1.1, NPWG-2.3: no result and no addresses are fine.
#[test]
fn an_empty_result_is_a_minimal_entry() {
    let entry = AttachmentStatus::from_result("a", &AttachmentResult::default());
    assert_eq!(entry, AttachmentStatus::minimal("a"));
    proof::of!("NPWG-5.1.1", "NPWG-2.3");
}

fn addresses(network: &str, interface: &str, ips: &[&str]) -> PodNetworkAddresses {
    PodNetworkAddresses {
        network: network.to_owned(),
        interface: interface.to_owned(),
        ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
        default_routes: Vec::new(),
    }
}

/// KEP-STS-02: the example of the KEP.
#[test]
fn the_status_follows_the_list() {
    let mut default = addresses("default", "eth0", &["192.168.5.54"]);
    default.default_routes = vec![Family::V4];
    let list = [
        default,
        addresses("dataplane1", "net1", &["10.0.0.20"]),
        addresses("fast-net", "net2", &["2011::233"]),
    ];
    assert_eq!(
        write_pod_network_status(&list).unwrap(),
        concat!(
            r#"[{"name":"default","interfaceName":"eth0","ip":"192.168.5.54","isDefaultGW":true},"#,
            r#"{"name":"dataplane1","interfaceName":"net1","ip":"10.0.0.20"},"#,
            r#"{"name":"fast-net","interfaceName":"net2","ip":"2011::233"}]"#,
        )
    );
    proof::of!("KEP-STS-02");
}

/// KEP-STS-01, pod_status_dualstack_two_entries: an entry for each family.
#[test]
fn both_families_have_an_entry_of_their_own() {
    let mut both = addresses(
        "blue",
        "net1",
        &["10.0.0.7", "fd00::7", "10.0.0.8", "fd00::8"],
    );
    both.default_routes = vec![Family::V6];
    let entries = pod_network_entries(&[both]);
    let read: Vec<_> = entries
        .iter()
        .map(|entry| (entry.ip.unwrap().to_string(), entry.is_default_gateway))
        .collect();
    assert_eq!(
        read,
        [("10.0.0.7".to_owned(), false), ("fd00::7".to_owned(), true)]
    );
    assert!(
        entries
            .iter()
            .all(|e| e.name == "blue" && e.interface_name == "net1")
    );
    proof::of!("KEP-STS-01");
}

/// KEP-STS-05: an attachment without addresses has an entry without one.
#[test]
fn an_attachment_without_addresses_has_an_entry() {
    let text = write_pod_network_status(&[addresses("blue", "net1", &[])]).unwrap();
    assert_eq!(text, r#"[{"name":"blue","interfaceName":"net1"}]"#);
    proof::of!("KEP-STS-05");
}

fn entries() -> impl Strategy<Value = AttachmentStatus> {
    let v4 = (any::<[u8; 4]>(), 0..=32_u8).prop_map(|(ip, len)| (IpAddr::from(ip), len));
    let v6 = (any::<[u8; 16]>(), 0..=128_u8).prop_map(|(ip, len)| (IpAddr::from(ip), len));
    let ip =
        (prop_oneof![v4, v6], any::<bool>()).prop_map(|((address, len), known)| StatusAddress {
            address,
            prefix_len: known.then_some(len),
        });
    // One prefix for each address: the key of prefixes is read by address.
    let once = prop::collection::btree_map(any::<IpAddr>(), ip, 0..4).prop_map(|all| {
        let place = |(address, ip): (IpAddr, StatusAddress)| StatusAddress {
            address,
            prefix_len: ip
                .prefix_len
                .map(|len| if address.is_ipv4() { len.min(32) } else { len }),
        };
        all.into_iter().map(place).collect::<Vec<_>>()
    });
    (
        (".*", prop::option::of("[a-z]{1,9}"), once, any::<[u8; 6]>()),
        (any::<Option<u32>>(), any::<bool>(), any::<Vec<IpAddr>>()),
        prop::collection::vec(".*", 0..3),
    )
        .prop_map(
            |((name, interface, ips, mac), (mtu, default, gateway), words)| AttachmentStatus {
                name,
                mac: interface.is_some().then_some(MacAddr::new(mac)),
                interface,
                ips,
                mtu,
                default,
                dns: StatusDns {
                    nameservers: words.clone(),
                    domain: words.first().cloned(),
                    search: words,
                },
                default_route: gateway.clone(),
                gateway,
                ..AttachmentStatus::default()
            },
        )
}

proptest! {
    /// NPWG-G2: what is written reads back, prefixes included.
    #[test]
    fn a_written_status_reads_back(entry in entries()) {
        let text = written(&entry);
        prop_assert_eq!(parse_network_status(&text).unwrap(), vec![entry], "{}", text);
        proof::of!("NPWG-G2");
    }

    /// KEP-STS-02: what is written reads back.
    #[test]
    fn a_written_pod_network_status_reads_back(
        list in prop::collection::vec((".*", any::<Vec<IpAddr>>(), any::<bool>()), 0..4),
    ) {
        let list: Vec<_> = list
            .into_iter()
            .map(|(network, ips, default)| PodNetworkAddresses {
                network,
                interface: "net1".to_owned(),
                ips,
                default_routes: if default { vec![Family::V4, Family::V6] } else { Vec::new() },
            })
            .collect();
        let text = write_pod_network_status(&list).unwrap();
        let read: Vec<PodNetworkStatusEntry> = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(read, pod_network_entries(&list));
        proof::of!("KEP-STS-02");
    }

    /// Every text is a status or has an error.
    #[test]
    fn no_text_panics(text in ".*", key in "[a-z.-]{1,12}", value in "[0-9a-z\\[\\]{}\":,]{0,12}") {
        let _any = parse_network_status(&text);
        let _like = parse_network_status(&format!(r#"[{{"name":"a","{key}":{value}}}]"#));
    }
}
