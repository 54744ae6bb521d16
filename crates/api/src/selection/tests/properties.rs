//! Test properties of the selection with arbitrary text.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{prelude::*, sample::select};

use crate::{
    Bandwidth, Limit, MacAddr,
    json::RawJson,
    selection::{
        AttachmentOptions, InterfaceName, NETWORKS_ANNOTATION, NetworkSelection,
        POD_NETWORKS_ANNOTATION, PodAnnotations, PodSelection, PortMapping, Protocol,
        SelectionRules, parse_networks, parse_pod_networks,
    },
};

/// Texts that look like lists more often than not.
fn listlike() -> impl Strategy<Value = String> {
    let pieces = [
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "\"name\"",
        "\"ips\"",
        "\"mac\"",
        "\"bandwidth\"",
        "\"ingressRate\"",
        "\"portMappings\"",
        "\"hostPort\"",
        "\"default-route\"",
        "\"interface\"",
        "\"interfaceName\"",
        "\"isDefaultGW\"",
        "\"10.0.0.1/24\"",
        "\"net1\"",
        "\"eth0\"",
        "\"a\"",
        "a",
        "/",
        "@",
        "net1",
        " ",
        "1",
        "1e400",
        "-0",
        "null",
        "true",
        "\\",
        "\u{e4}",
    ];
    prop_oneof![
        ".*",
        prop::collection::vec(select(pieces.to_vec()), 0..24).prop_map(|all| all.concat()),
    ]
}

fn selections() -> impl Strategy<Value = NetworkSelection> {
    let interface = prop::option::of("[a-z][a-z0-9]{0,13}x");
    let number = prop::option::of(1_000_u64..1_000_000);
    let limit = || {
        (number.clone(), any::<bool>()).prop_map(|(rate, burst)| Limit {
            rate,
            burst: rate.filter(|_| burst),
        })
    };
    let ips = prop::collection::btree_set("10\\.[1-9]\\.[1-9]\\.[1-9]/24", 0..3);
    let mappings = prop::collection::vec((1..u16::MAX, 1..u16::MAX), 0..3);
    let extension = prop::option::of("[a-z]{1,5}");
    (
        ("[a-z]{1,8}", prop::option::of("[a-z]{1,8}"), interface),
        (ips, any::<Option<[u8; 5]>>(), limit(), limit()),
        (mappings, any::<Option<[u8; 4]>>(), extension),
    )
        .prop_map(
            |((name, namespace, interface), (ips, mac, ingress, egress), rest)| {
                let (mappings, gateway, extension) = rest;
                let limited = ingress.rate.is_some() || egress.rate.is_some();
                let mapping = |(host_port, container_port)| PortMapping {
                    host_port,
                    container_port,
                    protocol: Protocol::Udp,
                    host_ip: None,
                };
                let value = |text: String| (text.clone() + ".x", RawJson::parse("[1.0]").unwrap());
                let options = AttachmentOptions {
                    ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
                    mac: mac.map(|[a, b, c, d, e]| MacAddr::new([2, a, b, c, d, e])),
                    bandwidth: limited.then_some(Bandwidth { ingress, egress }),
                    port_mappings: mappings.into_iter().map(mapping).collect(),
                    default_route: gateway.map(|[a, b, c, _]| vec![[10, a, b, c].into()]),
                    extensions: extension.map(value).into_iter().collect(),
                    ..AttachmentOptions::default()
                };
                NetworkSelection {
                    name,
                    namespace,
                    interface: interface.map(|name| InterfaceName::new(name).unwrap()),
                    options,
                    ignored: Vec::new(),
                }
            },
        )
}

proptest! {
    /// NPWG-4.1.2: what is written in the JSON format reads back.
    #[test]
    fn a_written_element_reads_back(selection in selections()) {
        let text = serde_json::to_string(&[&selection]).unwrap();
        prop_assert_eq!(parse_networks(&text), Ok(vec![selection]), "{}", text);
        proof::of!("NPWG-4.1.2");
    }

    /// NPWG-G1: every text is a list or has an error that says where.
    #[test]
    fn no_text_panics(text in listlike()) {
        if let Err(errors) = parse_networks(&text) {
            prop_assert!(!errors.first.is_empty());
            prop_assert!(errors.to_string().starts_with(NETWORKS_ANNOTATION));
        }
        if let Err(errors) = parse_pod_networks(&text) {
            prop_assert!(!errors.first.is_empty());
            prop_assert!(errors.to_string().starts_with(POD_NETWORKS_ANNOTATION));
        }
        proof::of!("NPWG-G1");
    }

    /// KEP-X1, NPWG-4.1.2.1.5: unique names, one primary, one default gateway.
    #[test]
    fn interfaces_are_unique_and_one_is_primary(
        kep in prop::collection::vec(prop::option::of(select(vec!["eth0", "net1", "net2", "x"])), 0..4),
        npwg in prop::collection::vec(prop::option::of(select(vec!["net1", "net2", "net3", "y"])), 0..5),
    ) {
        let kep: Vec<_> = kep
            .iter()
            .enumerate()
            .map(|(index, name)| serde_json::json!({"name": format!("p{index}"), "interfaceName": name}))
            .collect();
        let npwg: Vec<_> = npwg
            .iter()
            .map(|name| serde_json::json!({"name": "n", "interface": name}))
            .collect();
        let annotations = BTreeMap::from([
            (POD_NETWORKS_ANNOTATION.to_owned(), serde_json::to_string(&kep).unwrap()),
            (NETWORKS_ANNOTATION.to_owned(), serde_json::to_string(&npwg).unwrap()),
        ]);
        let pod = PodAnnotations { namespace: "shop", host_network: false, annotations: &annotations };
        if let Ok(selection) = PodSelection::read(&pod, &SelectionRules::default()) {
            let names: BTreeSet<_> =
                selection.attachments.iter().map(|one| one.interface.as_str()).collect();
            prop_assert_eq!(names.len(), selection.attachments.len());
            prop_assert_eq!(names.len(), kep.len().max(1) + npwg.len());
            prop_assert!(names.contains("eth0"));
            let gateways = selection.attachments.iter().filter(|one| one.is_default_gateway);
            prop_assert_eq!(gateways.count(), 1);
        }
        proof::of!("KEP-X1", "NPWG-4.1.2.1.5");
    }
}
