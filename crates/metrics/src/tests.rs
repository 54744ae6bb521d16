use std::collections::{BTreeMap, BTreeSet};

use book::bandwidth::Direction;

use super::*;

fn rendered() -> String {
    let metrics = Metrics::new().unwrap();
    metrics.request("ADD", 0, Duration::from_millis(3));
    metrics.request("ADD", 100, Duration::from_millis(1));
    metrics.queue_drops("blue", "ingress", 7, 4);
    metrics.api_write("status", "written");
    metrics.block("taken");
    metrics.phase("port", Duration::from_millis(7));
    metrics.ruleset_restored("podnet-egress");
    metrics.policies_applied(Duration::from_millis(4));
    metrics.services_applied(Duration::from_millis(4));
    metrics.flows(&[("gone".to_owned(), 3)]);
    metrics.flows(&[("blue".to_owned(), 12)]);
    let snapshot = Snapshot {
        policies: Some(PolicyNumbers {
            kinds: BTreeMap::from([("NetworkPolicy", 4), ("ClusterNetworkPolicy", 1)]),
            problems: 2,
        }),
        flow_log: Some(FlowLogNumbers {
            ports: 3,
            logged: 40,
            overflow: 5,
            lost: 6,
            lines: 7,
            failed_lines: 8,
        }),
        connections: vec![("amber".to_owned(), 7, 2)],
        stopped: vec![("podnet-tunnels", "stop to UDP port 4789".to_owned(), 3)],
        networks: vec![("blue".to_owned(), 2, 4), ("red".to_owned(), 1, 0)],
        drops: vec![
            ("blue".to_owned(), "spoofed_mac", 3, 180),
            ("red".to_owned(), "spoofed_mac", 1, 60),
        ],
        shaped: BTreeMap::from([(
            ("blue".to_owned(), "ingress"),
            Shaped {
                attachments: 2,
                backlog: 3028,
            },
        )]),
        can_shape: true,
        unread: 2,
        interfaces: vec![["shop", "web-0", "net1", "shop/blue"].map(str::to_owned)],
        memif: vec![MemifPort {
            place: ["shop", "web-0", "net2"].map(str::to_owned),
            connected: true,
            counters: uswitch::PortCounters {
                fast_from: uswitch::Count {
                    packets: 3,
                    bytes: 192,
                },
                drops: uswitch::PortDrops {
                    no_buffer: 2,
                    ..uswitch::PortDrops::default()
                },
                ..uswitch::PortCounters::default()
            },
        }],
        free: vec![
            ("blue".to_owned(), "IPv4", 251),
            ("blue".to_owned(), "IPv6", 1 << 64),
        ],
        ports: vec![
            PortTraffic {
                place: ["shop", "web-0", "net1", "blue"].map(str::to_owned),
                ingress: Traffic {
                    packets: 11,
                    bytes: 1100,
                },
                egress: Traffic {
                    packets: 12,
                    bytes: 1200,
                },
                flooded: Traffic {
                    packets: 13,
                    bytes: 1300,
                },
                dropped: Traffic {
                    packets: 14,
                    bytes: 1400,
                },
                reasons: vec![("spoofed_mac", 9), ("too_big", 5)],
                rates: vec![(
                    Direction::Egress,
                    Rate {
                        waits: 15,
                        dropped: 16,
                    },
                )],
            },
            PortTraffic {
                place: ["", "0123456789ab", "net1", "red"].map(str::to_owned),
                ..PortTraffic::default()
            },
        ],
        maps: vec![("ENDPOINTS", 40, 131_072)],
        uplinks: vec![("eth0".to_owned(), "native")],
        receivers: vec![("blue".to_owned(), 7)],
        receivers_max: 100_000,
        unrouted: 2,
        untaken: [("vtep", 3)].into(),
        waiting: 5,
        impaired: 1,
        store_failed: true,
        store_failures: 2,
        spans: [3, 0],
        set_aside: 1,
    };
    metrics.render(&snapshot).unwrap()
}

#[test]
fn a_port_has_eleven_series_at_most_and_one_for_each_reason_it_had_drops_for() {
    let text = rendered();
    let of_port = |pod: &str| -> BTreeSet<String> {
        let pod = format!("pod=\"{pod}\"");
        let lines = text.lines().filter(|line| line.starts_with("podnet_port_"));
        lines
            .filter(|line| line.contains(&pod))
            .map(ToOwned::to_owned)
            .collect()
    };
    let place = r#"interface="net1",namespace="shop",network="blue",pod="web-0""#;
    let directed = |direction: &str| format!(r#"direction="{direction}",{place}"#);
    let (ingress, egress) = (directed("ingress"), directed("egress"));
    let expected = [
        format!("podnet_port_packets_total{{{ingress}}} 11"),
        format!("podnet_port_bytes_total{{{ingress}}} 1100"),
        format!("podnet_port_packets_total{{{egress}}} 12"),
        format!("podnet_port_bytes_total{{{egress}}} 1200"),
        format!("podnet_port_flooded_packets_total{{{place}}} 13"),
        format!("podnet_port_drops_total{{{place}}} 14"),
        format!("podnet_port_drop_bytes_total{{{place}}} 1400"),
        format!("podnet_port_drop_reasons_total{{{place},reason=\"spoofed_mac\"}} 9"),
        format!("podnet_port_drop_reasons_total{{{place},reason=\"too_big\"}} 5"),
        format!("podnet_port_rate_waits_total{{{egress}}} 15"),
        format!("podnet_port_rate_drops_total{{{egress}}} 16"),
    ];
    assert_eq!(of_port("web-0"), expected.into());
    assert_eq!(
        of_port("0123456789ab").len(),
        7,
        "it has no rate and no drop"
    );
}

#[test]
fn every_metric_is_exposed_as_it_is_documented() {
    let text = rendered();
    let mut kinds = BTreeMap::new();
    let mut helps = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|rest| rest.split_once(' '))
        {
            kinds.insert(name, kind);
        }
        if let Some((name, help)) = line
            .strip_prefix("# HELP ")
            .and_then(|rest| rest.split_once(' '))
        {
            helps.insert(name, help);
        }
    }
    for (name, kind, labels, meaning) in METRICS {
        assert_eq!(kinds.remove(name), Some(*kind), "{name}");
        assert_eq!(helps.get(name), Some(meaning), "{name}");
        let samples = text.lines().filter(|line| line.starts_with(name));
        for sample in samples {
            let inside = sample
                .split_once('{')
                .and_then(|(_, rest)| rest.split_once('}'));
            let found: BTreeSet<&str> = inside
                .map_or("", |(inside, _)| inside)
                .split(',')
                .filter_map(|pair| pair.split_once('='))
                .map(|(label, _)| label)
                // A histogram's own.
                .filter(|label| *label != "le")
                .collect();
            let wanted: BTreeSet<&str> = labels
                .split(", ")
                .filter(|label| !label.is_empty())
                .collect();
            assert_eq!(found, wanted, "{sample}");
        }
    }
    assert!(kinds.is_empty(), "not documented: {kinds:?}");
}

#[test]
fn values_are_those_of_the_moment() {
    let text = rendered();
    for line in [
        r#"podnet_cni_requests_total{code="100",command="ADD"} 1"#,
        r#"podnet_cni_duration_seconds_count{command="ADD"} 2"#,
        r#"podnet_attachments{network="blue"} 2"#,
        r#"podnet_ipam_addresses{network="red"} 0"#,
        r#"podnet_drops_total{network="blue",reason="spoofed_mac"} 3"#,
        r#"podnet_drop_bytes_total{network="red",reason="spoofed_mac"} 60"#,
        r#"podnet_shaped_attachments{direction="ingress",network="blue"} 2"#,
        r#"podnet_shaper_backlog_bytes{direction="ingress",network="blue"} 3028"#,
        r#"podnet_shaper_drops_total{direction="ingress",network="blue"} 4"#,
        r#"podnet_api_writes_total{object="status",outcome="written"} 1"#,
        r#"pod_network_name_info{interface="net1",namespace="shop",network_name="shop/blue",pod="web-0"} 0"#,
        r#"podnet_memif_connected{interface="net2",namespace="shop",pod="web-0"} 1"#,
        r#"podnet_memif_packets_total{direction="egress",interface="net2",namespace="shop",pod="web-0"} 3"#,
        r#"podnet_memif_bytes_total{direction="egress",interface="net2",namespace="shop",pod="web-0"} 192"#,
        r#"podnet_memif_packets_total{direction="ingress",interface="net2",namespace="shop",pod="web-0"} 0"#,
        r#"podnet_memif_drops_total{interface="net2",namespace="shop",pod="web-0",reason="no_buffer"} 2"#,
        "podnet_world_unread 2",
        "podnet_shaping_supported 1",
        "podnet_ports_waiting_for_tcx 5",
        "podnet_nodes_unrouted 2",
        "podnet_remote_claims_refused{reason=\"vtep\"} 3",
        "podnet_ports_impaired 1",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is not in\n{text}"
        );
    }
}

#[test]
fn a_node_without_networks_exposes_what_it_has() {
    let text = Metrics::new()
        .unwrap()
        .render(&Snapshot::default())
        .unwrap();
    assert!(text.contains("podnet_ports_impaired 0"), "{text}");
    assert!(!text.contains("podnet_drops_total"), "{text}");
    assert!(!text.contains("podnet_memif"), "{text}");
}

/// Counters do not fall when queues are replaced.
///
/// Interfaces get the indexes of others, too.
#[test]
fn drops_of_queues_add_up_whatever_becomes_of_the_queues() {
    let metrics = Metrics::new().unwrap();
    let total = || {
        let text = metrics.render(&Snapshot::default()).unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with("podnet_shaper_drops_total{"));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
            .unwrap_or(0)
    };
    let mut expected = 0;
    for (dropped, more) in [(3, 3), (3, 0), (5, 2), (1, 1), (4, 3)] {
        metrics.queue_drops("blue", "egress", 7, dropped);
        expected += more;
        assert_eq!(total(), expected, "{dropped}");
    }
    metrics.queue_is_gone(7);
    metrics.queue_drops("blue", "egress", 7, 4);
    assert_eq!(total(), expected + 4);
}

#[test]
fn names_follow_the_conventions_of_prometheus() {
    for (name, kind, ..) in METRICS {
        // The one that has the name under which others give it.
        let is_ours = name.starts_with("podnet_") || *name == "pod_network_name_info";
        assert!(is_ours, "{name}");
        assert_eq!(
            *kind == "counter",
            name.ends_with("_total"),
            "{name} is a {kind}"
        );
        assert!(*kind != "histogram" || name.ends_with("_seconds"), "{name}");
    }
}

#[test]
fn a_sweep_replaces_the_connections_of_the_one_before() {
    let text = rendered();
    assert!(text.contains("podnet_flows{network=\"blue\"} 12"), "{text}");
    assert!(!text.contains("podnet_flows{network=\"gone\"}"), "{text}");
    let unread = Metrics::new().unwrap().render(&Snapshot::default());
    assert!(!unread.unwrap().contains("podnet_policies"), "not known");
}

#[test]
fn a_node_without_policies_has_a_page() {
    let snapshot = Snapshot {
        policies: Some(PolicyNumbers::default()),
        ..Snapshot::default()
    };
    let text = Metrics::new().unwrap().render(&snapshot).unwrap();
    assert!(text.contains("podnet_policy_problems 0"), "{text}");
}
