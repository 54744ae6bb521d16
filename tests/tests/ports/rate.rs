//! Test rates of memif ports: on every way of a packet, and changed under a client.

use std::net::IpAddr;

use testbed::limit::{self, Interfaces};
use testbed::{MemifApp, Node, Port};

use crate::{conf, setup};

/// bit/s.
const RATE: u64 = 10_000_000;
/// Takes 160 ms at the rate.
const BYTES: u64 = 200_000;

fn v4(port: &Port) -> IpAddr {
    port.v4().into()
}

/// Between two memif ports packets would go past the queues of the kernel.
#[test]
fn a_memif_port_with_a_rate_is_limited_in_both_directions_and_against_its_like() {
    if testbed::skip::without_root(testbed::test_name!())
        || testbed::skip::without_shaping(testbed::test_name!())
    {
        return;
    }
    let node = Node::start(setup());
    let pods = ["slow", "fast", "plain"].map(|name| node.pod(name));
    let slow = limit::attach_by_manifest(&node, &pods[0], "Memif", RATE);
    let fast = pods[1].attach_conf(&conf(&node, "blue"), "net1");
    let plain = pods[2].attach("blue", "net1");
    let apps = [MemifApp::start(&slow), MemifApp::start(&fast)];
    let names = Interfaces::told(&node, &slow);
    for rate in [RATE, 2 * RATE] {
        limit::change_by_manifest(&node, &slow, "Memif", rate);
        for peer in [&fast, &plain] {
            for (from, to, queue) in [(&slow, peer, &names.near), (peer, &slow, &names.host)] {
                let before = limit::limit(&node, queue).sent_bytes;
                limit::flood(from, v4(from), to, v4(to), BYTES).assert_limited(rate);
                let through = limit::limit(&node, queue).sent_bytes - before;
                assert!(through >= BYTES, "{through} bytes went through {queue}");
            }
        }
    }
    let [of_slow, of_fast] = [&slow, &fast].map(|port| node.switch_counters(port));
    assert_eq!(of_slow.fast_from.packets + of_slow.fast_to.packets, 0);
    assert_eq!(of_fast.fast_from.packets + of_fast.fast_to.packets, 0);
    assert!(apps.iter().all(|app| app.connections() == 1));
    drop(apps);
    for pod in &pods {
        pod.del("blue", "net1").silent();
    }
    node.assert_empty();
}
