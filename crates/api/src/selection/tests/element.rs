//! The keys of an element of the JSON format (NPWG §4.1.2.1).

use super::{assert_says, error, one};
use crate::{
    Bandwidth, Limit, MacAddr,
    selection::{Protocol, parse_networks},
};

/// Asserts that each of `values` of `key` is refused with `why`, at the key's path.
fn refused(key: &str, values: &[(&str, &str)]) {
    for (value, why) in values {
        let errors = parse_networks(&format!(
            r#"[{{"name":"a"}},{{"name":"b","{key}":{value}}}]"#
        ))
        .expect_err(value)
        .to_string();
        assert_says(&errors, &format!("k8s.v1.cni.cncf.io/networks[1].{key}"));
        assert_says(&errors, why);
    }
}

/// NPWG-4.1.2: every key of the standard at once.
#[test]
fn every_key_of_the_standard_is_read() {
    let all = one(
        r#"{"name":"net-b","namespace":"ops","ips":["10.2.2.42/24","2001:db8::5/64"],
            "mac":"02-23-45-67-89-0A","interface":"blue0","cni-args":{"a":{"b":1.50}},
            "portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"UDP","hostIP":"::1"}],
            "bandwidth":{"ingressRate":2048,"ingressBurst":1600,"egressRate":4096},
            "default-route":["10.2.2.1","fe80::1"],
            "infiniband-guid":"24:8A:07:03:00:8d:ae:2f",
            "ipam-claim-reference":"vm-a.net-b","org.example.key":[1, 2]}"#,
    );
    assert_eq!(
        (all.name.as_str(), all.namespace.as_deref()),
        ("net-b", Some("ops"))
    );
    assert_eq!(all.interface.unwrap().as_str(), "blue0");
    let options = all.options;
    let ips: Vec<_> = options.ips.iter().map(ToString::to_string).collect();
    assert_eq!(ips, ["10.2.2.42/24", "2001:db8::5/64"]);
    assert_eq!(
        options.mac,
        Some(MacAddr::new([2, 0x23, 0x45, 0x67, 0x89, 0x0a]))
    );
    assert_eq!(
        options.bandwidth,
        Some(Bandwidth {
            ingress: Limit {
                rate: Some(2048),
                burst: Some(1600)
            },
            egress: Limit {
                rate: Some(4096),
                burst: None
            },
        })
    );
    let [mapping] = options.port_mappings.as_slice() else {
        panic!("{:?}", options.port_mappings);
    };
    assert_eq!((mapping.host_port, mapping.container_port), (8080, 80));
    assert_eq!(mapping.protocol, Protocol::Udp);
    assert_eq!(mapping.host_ip, Some("::1".parse().unwrap()));
    let gateways = options.default_route.unwrap();
    assert_eq!(
        gateways,
        [
            "10.2.2.1".parse::<std::net::IpAddr>().unwrap(),
            "fe80::1".parse().unwrap()
        ]
    );
    assert_eq!(
        options.infiniband_guid.unwrap().to_string(),
        "24:8a:07:03:00:8d:ae:2f"
    );
    assert_eq!(options.ipam_claim_reference.as_deref(), Some("vm-a.net-b"));
    let args = options.cni_args.unwrap();
    assert_eq!(args.get("a").unwrap().get(), r#"{"b":1.50}"#);
    assert_eq!(options.extensions["org.example.key"].get(), "[1, 2]");
    assert_eq!(all.ignored, [] as [String; 0]);
    proof::of!("NPWG-4.1.2");
}

/// NPWG-4.1.2: elements that are not objects.
#[test]
fn an_element_must_be_an_object() {
    for element in ["null", "1", "\"net-a\"", "[]", "true"] {
        let error = error(&format!("[{element}]"));
        assert_says(&error, "networks[0]: ");
        assert_says(&error, "is not an object");
    }
    proof::of!("NPWG-4.1.2");
}

/// NPWG-4.1.2.1.1: `name` is required.
#[test]
fn a_name_is_required() {
    for element in ["{}", r#"{"name":null}"#, r#"{"namespace":"a"}"#] {
        assert_says(&error(&format!("[{element}]")), "[0]: a name is required");
    }
    for (name, why) in [
        (r#""""#, "[0].name: a name is required"),
        ("5", "[0].name: 5 is not a string"),
        (r#""ns/a""#, "[0].name: \"ns/a\" is not a DNS-1123 name"),
    ] {
        assert_says(&error(&format!(r#"[{{"name":{name}}}]"#)), why);
    }
    proof::of!("NPWG-4.1.2.1.1");
}

/// NPWG-4.1.2.1.2: `namespace` is a name of Kubernetes.
#[test]
fn a_namespace_must_be_a_label() {
    refused(
        "namespace",
        &[
            ("\"a.b\"", "is not a DNS-1123 name"),
            ("1", "is not a string"),
        ],
    );
    proof::of!("NPWG-4.1.2.1.2");
}

/// NPWG-4.1.2: keys without a period are reserved, those with one are extensions.
#[test]
fn unknown_keys_are_ignored_and_extensions_are_kept() {
    let element = one(r#"{"name":"a","mut":true,"x.y":null,"X.y":1,
        "portMappings":[{"hostPort":1,"containerPort":1,"why":"x"}]}"#);
    assert_eq!(element.ignored, ["portMappings[0].why", "mut"]);
    let keys: Vec<_> = element.options.extensions.keys().collect();
    assert_eq!(keys, ["X.y", "x.y"]);
    proof::of!("NPWG-4.1.2");
}

/// NPWG-4.1.2: duplicate keys; JSON readers disagree about which one counts.
#[test]
fn a_key_twice_is_an_error_in_any_case() {
    for element in [
        r#"{"name":"a","name":"b"}"#,
        r#"{"name":"a","ips":["10.0.0.1"],"IPs":["10.0.0.2"]}"#,
        r#"{"name":"a","bandwidth":{"ingressRate":1000,"ingressrate":2000}}"#,
    ] {
        assert_says(
            &error(&format!("[{element}]")),
            "is there twice; remove one",
        );
    }
    proof::of!("NPWG-4.1.2");
}

/// CNI-CAP-03: Go matches keys without regard to case, so lists in use have any.
#[test]
fn keys_match_in_any_case() {
    let element = one(r#"{"Name":"a","Interface":"x0","MAC":"02:00:00:00:00:01"}"#);
    assert_eq!(element.interface.unwrap().as_str(), "x0");
    assert!(element.options.mac.is_some());
    proof::of!("CNI-CAP-03");
}

/// NPWG-4.1.2: `null` is an absent value, as Go writes it.
#[test]
fn null_values_are_absent() {
    let element = one(
        r#"{"name":"a","ips":null,"mac":null,"bandwidth":null,"default-route":null,"cni-args":null}"#,
    );
    assert_eq!(element, one(r#"{"name":"a"}"#));
    proof::of!("NPWG-4.1.2");
}

/// NPWG-4.1.2.1.3: addresses that are none, and such that no pod can have.
#[test]
fn wrong_ips_are_refused() {
    refused(
        "ips",
        &[
            ("[]", "needs at least one address"),
            ("\"10.0.0.1\"", "is not a list of strings"),
            ("[1]", "ips[0]: 1 is not a string"),
            ("[null]", "ips[0]: null is not a string"),
            (
                r#"["10.0.0.9","10.0.0.1/33"]"#,
                "ips[1]: \"10.0.0.1/33\" is not an address",
            ),
            (r#"["10.0.0"]"#, "is not an address"),
            (r#"["fe80::1%eth0"]"#, "is not an address"),
            (r#"[""]"#, "is not an address"),
            (r#"["0.0.0.0"]"#, "not a unicast address"),
            (r#"["224.0.0.1"]"#, "not a unicast address"),
            (
                r#"["10.0.0.0/24"]"#,
                "10.0.0.0 is the network address of 10.0.0.0/24",
            ),
            (
                r#"["10.0.0.255/24"]"#,
                "10.0.0.255 is the broadcast address of 10.0.0.0/24",
            ),
            (r#"["fd00::/64"]"#, "subnet-router anycast"),
            (
                r#"["10.0.0.1","10.0.0.1/24"]"#,
                "ips[1]: 10.0.0.1 is requested twice",
            ),
        ],
    );
    proof::of!("NPWG-4.1.2.1.3");
}

/// NPWG-4.1.2.1.3: an IPv4 address in IPv6's form is not IPv6 to a network.
#[test]
fn a_mapped_address_is_refused_with_what_to_write() {
    refused(
        "ips",
        &[
            (r#"["::ffff:10.0.0.1"]"#, "write 10.0.0.1"),
            (r#"["::ffff:10.0.0.1/112"]"#, "write 10.0.0.1"),
        ],
    );
    refused(
        "default-route",
        &[(r#"["::ffff:10.0.0.1"]"#, "write 10.0.0.1")],
    );
    proof::of!("NPWG-4.1.2.1.3");
}

/// NPWG-4.1.2.1.3: a prefix is optional; the network decides whether it takes it.
#[test]
fn addresses_are_read_with_and_without_a_prefix() {
    let element = one(r#"{"name":"a","ips":["10.0.0.7","10.1.0.0/31","fd00::7/64"]}"#);
    let lens: Vec<_> = element.options.ips.iter().map(|ip| ip.prefix_len).collect();
    assert_eq!(lens, [None, Some(31), Some(64)]);
    proof::of!("NPWG-4.1.2.1.3");
}

/// NPWG-4.1.2.1.4: six octets, in any form Go reads; normalised.
#[test]
fn macs_are_normalised_to_lower_case_and_colons() {
    for text in ["02:AB:cd:00:00:01", "02-ab-cd-00-00-01", "02ab.CD00.0001"] {
        let element = one(&format!(r#"{{"name":"a","mac":"{text}"}}"#));
        assert_eq!(
            element.options.mac.unwrap().to_string(),
            "02:ab:cd:00:00:01"
        );
    }
    proof::of!("NPWG-4.1.2.1.4");
}

/// NPWG-4.1.2.1.4: other lengths, groups and zero.
#[test]
fn wrong_macs_are_refused() {
    refused(
        "mac",
        &[
            (r#""""#, "is not a MAC address"),
            (r#""02:00:00:00:00:00:00:01""#, "is not a MAC address"),
            (r#""0200.0000.0000.0001""#, "is not a MAC address"),
            (r#""02:00:00:00:00""#, "is not a MAC address"),
            (r#""01:00:5e:00:00:01""#, "group address or zero"),
            (r#""ff:ff:ff:ff:ff:ff""#, "group address or zero"),
            (r#""00:00:00:00:00:00""#, "group address or zero"),
            ("2", "is not a string"),
        ],
    );
    proof::of!("NPWG-4.1.2.1.4");
}

/// NPWG-4.1.2.1.5: names Linux refuses, and one name twice.
#[test]
fn wrong_interfaces_are_refused() {
    refused(
        "interface",
        &[
            (r#""""#, "it is empty"),
            (r#""0123456789abcdef""#, "longer than 15 bytes"),
            (r#""a b""#, "white space"),
            (r#""lo""#, "loopback"),
        ],
    );
    assert_says(
        &error(r#"[{"name":"a","interface":"x0"},{"name":"b","interface":"x0"}]"#),
        "networks[1].interface: interface x0 is used by k8s.v1.cni.cncf.io/networks[0] already",
    );
    proof::of!("NPWG-4.1.2.1.5");
}

/// NPWG-4.1.2.1.6: arguments keep their bytes.
#[test]
fn cni_args_must_be_an_object() {
    refused(
        "cni-args",
        &[("[]", "is not an object"), ("\"a\"", "is not an object")],
    );
    let element = one(r#"{"name":"a","cni-args":{"n":123456789012345678901234567890,"f":1e0}}"#);
    assert_eq!(
        serde_json::to_string(&element.options.cni_args).unwrap(),
        r#"{"n":123456789012345678901234567890,"f":1e0}"#
    );
    proof::of!("NPWG-4.1.2.1.6");
}

/// NPWG-4.1.2.1.7: ports, protocols.
#[test]
fn wrong_port_mappings_are_refused() {
    refused(
        "portMappings",
        &[
            ("[]", "needs at least one mapping"),
            ("{}", "is not a list of objects"),
            ("[5]", "portMappings[0]: 5 is not an object"),
            ("[{}]", "hostPort: nothing is not a port"),
            (
                r#"[{"hostPort":1}]"#,
                "portMappings[0].containerPort: nothing is not a port",
            ),
            (
                r#"[{"hostPort":0,"containerPort":1}]"#,
                "hostPort: 0 is not a port",
            ),
            (
                r#"[{"hostPort":1,"containerPort":65536}]"#,
                "65536 is not a port",
            ),
            (
                r#"[{"hostPort":"80","containerPort":1}]"#,
                "\"80\" is not a port",
            ),
            (r#"[{"hostPort":-1,"containerPort":1}]"#, "-1 is not a port"),
            (
                r#"[{"hostPort":1,"containerPort":1,"protocol":"icmp"}]"#,
                "write tcp, udp or sctp",
            ),
            (
                r#"[{"hostPort":1,"containerPort":1,"hostIP":"x"}]"#,
                "is not an IP address",
            ),
        ],
    );
    proof::of!("NPWG-4.1.2.1.7");
}

/// NPWG-4.1.2.1.7: any case, `tcp` by default, no address for all addresses.
#[test]
fn protocols_are_lower_case_and_tcp_by_default() {
    let element = one(
        r#"{"name":"a","portMappings":[{"hostPort":1,"containerPort":65535},
            {"hostPort":1,"containerPort":2,"protocol":"Sctp","hostIP":""},
            {"hostPort":65535,"containerPort":2,"protocol":"tcp","hostIP":"0.0.0.0"}]}"#,
    );
    let mappings = element.options.port_mappings;
    let protocols: Vec<_> = mappings.iter().map(|m| m.protocol.as_str()).collect();
    assert_eq!(protocols, ["tcp", "sctp", "tcp"]);
    assert!(mappings.iter().all(|mapping| mapping.host_ip.is_none()));
    proof::of!("NPWG-4.1.2.1.7");
}

/// NPWG-4.1.2.1.8: rates and bursts.
#[test]
fn wrong_bandwidths_are_refused() {
    refused(
        "bandwidth",
        &[
            ("{}", "needs at least one rate"),
            (r#"{"ingressRate":null}"#, "needs at least one rate"),
            ("5", "is not an object"),
            (r#"{"ingressRate":0}"#, "0 is not a whole number from 1"),
            (r#"{"ingressRate":-5}"#, "-5 is not a whole number"),
            (r#"{"ingressRate":1.5}"#, "1.5 is not a whole number"),
            (r#"{"egressRate":"1M"}"#, "\"1M\" is not a whole number"),
            (
                r#"{"ingressRate":9007199254740992}"#,
                "is not a whole number from 1 to 9007199254740991",
            ),
            (r#"{"ingressRate":999}"#, "999 bit/s is out of range"),
            (r#"{"ingressRate":1000000000000001}"#, "is out of range"),
            (r#"{"ingressBurst":1000}"#, "set ingressRate too"),
            (
                r#"{"ingressRate":1000,"egressBurst":1000}"#,
                "egressBurst: a burst without a rate",
            ),
            (
                r#"{"ingressRate":1000,"rate":1}"#,
                "\"rate\" is not a key here; write one of ingressRate",
            ),
        ],
    );
    proof::of!("NPWG-4.1.2.1.8");
}

/// NPWG-4.1.2.1.9: gateways; the list may be empty, but the key is for one element.
#[test]
fn only_one_element_may_have_the_default_route() {
    let element = one(r#"{"name":"a","default-route":[]}"#);
    assert_eq!(element.options.default_route, Some(Vec::new()));
    assert_says(
        &error(
            r#"[{"name":"a","default-route":[]},{"name":"b"},{"name":"c","default-route":["fe80::1"]}]"#,
        ),
        "networks[2].default-route: only one element may have default-route, and [0] has it",
    );
    proof::of!("NPWG-4.1.2.1.9");
}

/// NPWG-4.1.2.1.9: what cannot be a gateway.
#[test]
fn wrong_gateways_are_refused() {
    refused(
        "default-route",
        &[
            (r#"["10.0.0.1/24"]"#, "is not the address of a gateway"),
            (r#"["0.0.0.0"]"#, "is not the address of a gateway"),
            (r#"["ff02::1"]"#, "is not the address of a gateway"),
            (r#"["127.0.0.1"]"#, "is not the address of a gateway"),
            (r#"["255.255.255.255"]"#, "is not the address of a gateway"),
            (
                r#"["10.0.0.1","10.0.0.1"]"#,
                "default-route[1]: 10.0.0.1 is requested twice",
            ),
            ("\"10.0.0.1\"", "is not a list of strings"),
        ],
    );
    proof::of!("NPWG-4.1.2.1.9");
}

/// NPWG-4.1.2.1.10: eight octets.
#[test]
fn wrong_guids_are_refused() {
    refused(
        "infiniband-guid",
        &[
            (r#""24:8a:07:03:00:8d:ae""#, "write eight hex pairs"),
            (r#""24:8a:07:03:00:8d:ae:2f:00""#, "write eight hex pairs"),
            (r#""24:8a:07:03:00:8d:ae:+f""#, "write eight hex pairs"),
            (r#""00:00:00:00:00:00:00:00""#, "write eight hex pairs"),
            (r#""""#, "write eight hex pairs"),
        ],
    );
    proof::of!("NPWG-4.1.2.1.10");
}

/// NPWG-4.1.2.1.11: the name of an object.
#[test]
fn a_claim_is_named_by_an_object_name() {
    refused(
        "ipam-claim-reference",
        &[(r#""A""#, "DNS-1123"), (r#""""#, "a name is required")],
    );
    proof::of!("NPWG-4.1.2.1.11");
}

/// NPWG-G1: a person sees all that is wrong.
#[test]
fn every_wrong_key_of_every_element_is_reported() {
    let errors = parse_networks(
        r#"[{"name":"A","mac":"x","ips":["y","10.0.0.1","z"]},7,{"name":"b","interface":"a/b"}]"#,
    )
    .unwrap_err();
    let places: Vec<_> = errors.first.iter().map(|e| e.place.to_string()).collect();
    assert_eq!(
        places,
        [
            "[0].name",
            "[0].ips[0]",
            "[0].ips[2]",
            "[0].mac",
            "[1]",
            "[2].interface"
        ]
    );
    proof::of!("NPWG-G1");
}
