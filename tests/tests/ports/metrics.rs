//! Test metrics of memif ports.

use std::net::IpAddr;

use testbed::{MemifApp, Port, wait};

use crate::{conf, setup};

/// The page has the switch's packets, its ports, and its losses.
#[test]
fn metrics_show_what_goes_past_the_kernel() {
    let node = testbed::node!(setup());
    let pods = ["fast1", "fast2"].map(|name| node.pod(name));
    let [a, b] = [0, 1].map(|nth: usize| pods[nth].attach_conf(&conf(&node, "blue"), "net1"));
    let sample = |port: &Port, metric: &str, label: &str| -> Option<u64> {
        let (_, page) = node.http("/metrics").expect("the page is served");
        let pod = format!("pod=\"{}\"", port.container);
        let mut lines = page.lines();
        let line = lines.find(|line| {
            line.starts_with(&format!("podnet_memif_{metric}{{"))
                && line.contains(&pod)
                && line.contains(label)
        });
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
    };
    assert_eq!(sample(&a, "connected", ""), Some(0));
    let apps = [MemifApp::start(&a), MemifApp::start(&b)];
    testbed::traffic::assert_reaches(&a, &b);
    for port in [&a, &b] {
        assert_eq!(sample(port, "connected", ""), Some(1));
        for direction in ["ingress", "egress"] {
            let label = format!("direction=\"{direction}\"");
            let [packets, bytes] =
                ["packets_total", "bytes_total"].map(|metric| sample(port, metric, &label));
            assert!(
                packets > Some(0) && bytes > packets,
                "{packets:?} {bytes:?}"
            );
        }
    }
    let [app, other] = apps;
    drop(other);
    wait::until_true("the client to be gone", || {
        sample(&b, "connected", "") == Some(0)
    });
    let lost = || sample(&b, "drops_total", "reason=\"not_connected\"");
    let before = lost();
    testbed::traffic::shout(&a, IpAddr::from(a.v4()), (b.v4(), 4242).into(), b"nobody")
        .expect("sent");
    wait::until_true("the loss to be counted", || lost() > before);
    drop(app);
    pods.iter().for_each(|pod| pod.del("blue", "net1").silent());
    node.assert_empty();
}

/// Ports of every type are counted alike, and what a port drops is its own.
#[test]
fn each_port_has_its_traffic_and_its_drops_on_the_page_unless_that_is_off() {
    let node = testbed::node!(setup());
    let pods = ["fast", "plain1", "plain2"].map(|name| node.pod(name));
    let fast = pods[0].attach_conf(&conf(&node, "blue"), "net1");
    let [one, two] = [1, 2].map(|nth: usize| pods[nth].attach("blue", "net1"));
    let _app = MemifApp::start(&fast);
    let page = || node.http("/metrics").expect("the page is served").1;
    let sample = |name: &str, labels: &[&str]| -> Option<f64> {
        let page = page();
        let line = page.lines().find(|line| {
            let is_it = line
                .strip_prefix(name)
                .is_some_and(|it| it.starts_with('{'));
            is_it && labels.iter().all(|label| line.contains(label))
        });
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
    };
    let of = |port: &Port| format!("pod=\"{}\"", port.container);
    testbed::traffic::assert_reaches(&one, &two);
    testbed::traffic::assert_reaches(&fast, &one);
    for port in [&fast, &one, &two] {
        for direction in ["direction=\"ingress\"", "direction=\"egress\""] {
            let labels = [&of(port)[..], direction, "network=\"blue\""];
            let packets = sample("podnet_port_packets_total", &labels);
            let bytes = sample("podnet_port_bytes_total", &labels);
            assert!(
                packets > Some(0.0) && bytes > packets,
                "{packets:?} {bytes:?}"
            );
        }
    }
    let drops = |port: &Port| sample("podnet_port_drops_total", &[&of(port)[..]]);
    let [before, of_others] = [&one, &two].map(drops);
    let forged = testbed::frame::ethernet(two.mac, fast.mac, 0x0800, &[0; 46]);
    one.tap().send(&forged);
    wait::until_true("the drop to be counted", || {
        drops(&one) == before.map(|count| count + 1.0)
    });
    assert_eq!(drops(&two), of_others);
    let reason = |port: &Port, reason: &str| {
        let reason = format!("reason=\"{reason}\"");
        sample("podnet_port_drop_reasons_total", &[&of(port), &reason])
    };
    let [of_one, of_two] = [&one, &two].map(|port| reason(port, "spoofed_mac"));
    assert_eq!((of_one, of_two), (Some(1.0), None));
    // The frames of a memif port meet the programs behind its TAP device.
    let tagged = testbed::frame::ethernet(one.mac, fast.mac, 0x0800, &[0; 46]);
    let tagged = testbed::frame::tagged(&tagged, 0x8100, 7);
    fast.tap().send(&tagged);
    wait::until_true("the drop of the memif port to be counted", || {
        reason(&fast, "vlan_tag") == Some(1.0)
    });
    assert_eq!(reason(&one, "vlan_tag"), None);
    assert_eq!(reason(&one, "spoofed_mac"), Some(1.0));
    let free = ["network=\"blue\"", "family=\"IPv4\""];
    let left = sample("podnet_ipam_free_addresses", &free);
    let more = node.pod("more");
    more.attach("blue", "net1");
    assert_eq!(
        sample("podnet_ipam_free_addresses", &free),
        left.map(|count| count - 1.0)
    );
    let ports = ["map=\"PORTS\""];
    assert_eq!(sample("podnet_map_entries", &ports), Some(4.0));
    assert_eq!(sample("podnet_map_entry_limit", &ports), Some(4096.0));
    for phase in ["access", "address", "reach", "port", "open"] {
        let phase = format!("phase=\"{phase}\"");
        let count = sample("podnet_add_phase_seconds_count", &[&phase]);
        assert_eq!(count, Some(4.0), "{phase}");
    }
    node.terminate();
    node.start_agent_with(&["--port-metrics", "false"]);
    assert!(!page().contains("podnet_port_"), "they are off");
    assert_eq!(sample("podnet_map_entries", &ports), Some(4.0));
}
