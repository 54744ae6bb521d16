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
