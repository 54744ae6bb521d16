//! Rates of pods that the node routes for: both directions wait outside of the pod.

use serde_json::json;
use testbed::limit::{self, Interfaces};
use testbed::{skip, traffic};

use super::scene::{NODE, attached, call, close, ip, setup};

/// bit/s.
const RATE: u64 = 10_000_000;
/// Takes 160 ms at the rate.
const BYTES: usize = 200_000;

#[test]
fn what_a_pod_sends_and_receives_by_the_node_is_limited_in_both_families() {
    if skip::without_shaping(testbed::test_name!()) {
        return;
    }
    let node = testbed::node!(setup().with_audits_logged());
    // Strict reverse paths: what comes out of a shaper is not answered by it.
    node.netns()
        .write_sysctls("all", &[netdev::Sysctl::v4("rp_filter", "1")])
        .expect("a setting");
    for direction in ["ingressRate", "egressRate"] {
        let (free, peer) = attached(&node, "free", "white");
        let slow = node.pod("slow");
        let mut conf = limit::conf(&node, "white", &json!({direction: RATE}));
        conf["isDefaultGateway"] = true.into();
        let port = slow.attach_conf(&conf, "eth0");
        let names = Interfaces::of(&node, &port);
        let (from, to, through) = match direction {
            "ingressRate" => (&peer, &port, &names.host),
            _ => (&port, &peer, &names.near),
        };
        for (_, there) in traffic::pairs(from, to) {
            let before = limit::limit(&node, through);
            limit::tcp(from, to, there, BYTES).assert_limited(RATE);
            let sent = limit::limit(&node, through).sent_bytes - before.sent_bytes;
            assert!(
                sent >= 200_000,
                "{there}: {sent} bytes went through {through}"
            );
        }
        // The node itself is reached through the same queue.
        for own in NODE.map(ip) {
            call(&port.netns, node.netns(), own, 8081);
        }
        node.assert_audit_finds_nothing("white");
        close(&node, &[&free, &slow], "white");
    }
}

#[test]
fn a_rate_comes_and_goes_on_a_live_pod_that_the_node_routes_for() {
    if skip::without_shaping(testbed::test_name!()) {
        return;
    }
    let node = testbed::node!(setup());
    let (pod, port) = attached(&node, "a", "white");
    let names = Interfaces::of(&node, &port);
    for rate in [Some(RATE), None] {
        let mut yaml = super::scene::white().yaml();
        if let Some(rate) = rate {
            yaml.push_str(&format!("  egressRate: {rate}\n  ingressRate: {rate}\n"));
        }
        node.write_manifest("white.yaml", &yaml);
        testbed::wait::until_true("the rate to be there, or not", || {
            limit::ifindex(&node, &names.near).is_some() == rate.is_some()
        });
        for (address, _) in &port.ips {
            call(node.netns(), &port.netns, *address, 8080);
        }
        for own in NODE.map(ip) {
            call(&port.netns, node.netns(), own, 8081);
        }
    }
    close(&node, &[&pod], "white");
}
