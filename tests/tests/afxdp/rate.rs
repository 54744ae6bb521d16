//! Test rates of AF_XDP ports: a socket's packets wait in a kernel port's queues.

use testbed::Node;
use testbed::limit::{self, Interfaces};

use super::scene::{Echo, open, setup};

/// bit/s.
const RATE: u64 = 10_000_000;
/// Takes 160 ms at the rate.
const BYTES: u64 = 200_000;
/// No socket of the kernel is there.
const PORT: u16 = 4242;

#[test]
fn a_socket_of_a_port_with_a_rate_is_limited_and_stays_when_the_rate_changes() {
    if testbed::skip::without_root(testbed::test_name!())
        || testbed::skip::without_shaping(testbed::test_name!())
    {
        return;
    }
    let node = Node::start(setup());
    let (fast, plain) = (node.pod("fast"), node.pod("plain"));
    let pf = limit::attach_by_manifest(&node, &fast, "AFXDP", RATE);
    let pp = plain.attach("blue", "net1");
    let names = Interfaces::of(&node, &pf);
    let echo = Echo::start(vec![open(&pf, 0)]);
    for rate in [RATE, 2 * RATE] {
        limit::change_by_manifest(&node, &pf, "AFXDP", rate);
        let sent = || [&names.host, &names.near].map(|name| limit::limit(&node, name).sent_bytes);
        let before = sent();
        limit::flood_echo(&pp, (pf.v4(), PORT).into(), BYTES).assert_limited(rate);
        for (before, after) in before.into_iter().zip(sent()) {
            assert!(after - before >= BYTES, "{before} to {after}");
        }
    }
    assert!(echo.stop() > 0);
    fast.detach("blue", "net1");
    plain.detach("blue", "net1");
    node.assert_empty();
}
