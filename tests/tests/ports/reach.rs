//! Test which memif ports reach each other, and which do not.

use std::net::IpAddr;

use testbed::traffic::{assert_reaches, shout};
use testbed::{MemifApp, Tap, frame};

use crate::{conf, setup};

#[test]
fn a_memif_port_and_a_kernel_port_of_a_switched_network_reach_each_other() {
    let node = testbed::node!(setup());
    let (fast, plain) = (node.pod("fast"), node.pod("plain"));
    let fast = fast.attach_conf(&conf(&node, "blue"), "net1");
    let plain = plain.attach("blue", "net1");
    let _app = MemifApp::start(&fast);
    assert_reaches(&fast, &plain);
    assert_reaches(&plain, &fast);
}

#[test]
fn a_memif_port_and_a_kernel_port_of_a_routed_network_reach_each_other() {
    let node = testbed::node!(setup());
    let (fast, plain) = (node.pod("fast"), node.pod("plain"));
    let fast = fast.attach_conf(&conf(&node, "green"), "net1");
    let plain = plain.attach("green", "net1");
    let _app = MemifApp::start(&fast);
    assert_reaches(&fast, &plain);
    assert_reaches(&plain, &fast);
}

/// From socket to socket, without a way through the kernel.
#[test]
fn memif_ports_of_a_network_reach_each_other() {
    let node = testbed::node!(setup());
    for network in ["blue", "green"] {
        let pods = [format!("{network}1"), format!("{network}2")].map(|name| node.pod(&name));
        let [a, b] = [0, 1].map(|nth: usize| pods[nth].attach_conf(&conf(&node, network), "net1"));
        let _apps = [MemifApp::start(&a), MemifApp::start(&b)];
        assert_reaches(&a, &b);
        assert_reaches(&b, &a);
        let rows = node.get("attachments");
        let row = rows
            .iter()
            .find(|row| row["container"] == a.container.as_str());
        let row = row.expect("its row");
        assert_eq!(row["type"], "Memif");
        assert_eq!(row["client"]["connected"], true, "{row}");
        assert!(row["fromPod"]["packets"].as_u64() > Some(0), "{row}");
        for (pod, port) in pods.iter().zip([&a, &b]) {
            pod.del(network, "net1").silent();
            assert!(
                !std::path::Path::new(
                    port.result["interfaces"][0]["socketPath"]
                        .as_str()
                        .expect("a path")
                )
                .exists()
            );
        }
    }
}

/// The other network has the same addresses.
#[test]
fn networks_of_memif_ports_are_isolated() {
    let node = testbed::node!(setup());
    let pods = ["blue1", "blue2", "red1", "red2"].map(|name| node.pod(name));
    let networks = ["blue", "blue", "red", "red"];
    let ports: Vec<_> = pods
        .iter()
        .zip(networks)
        .map(|(pod, network)| pod.attach_conf(&conf(&node, network), "net1"))
        .collect();
    let _apps: Vec<_> = ports.iter().map(MemifApp::start).collect();
    let [blue1, blue2, red1, red2] = &ports[..] else {
        unreachable!("four ports")
    };
    assert_eq!(blue2.ips, red2.ips, "they overlap");
    assert_reaches(blue1, blue2);
    assert_reaches(red1, red2);
    let marker = frame::marker();
    let (mine, other) = (blue2.tap(), red2.tap());
    for ((from, _), (to, _)) in blue1.ips.iter().zip(&blue2.ips) {
        shout(blue1, *from, (*to, 4242).into(), &marker).expect("sent");
    }
    for _ in &blue2.ips {
        mine.wait_marker("the datagram of the same network", &marker);
    }
    assert_eq!(other.count(&marker), 0, "nothing of another network");
    // Multicast goes to every member, of whatever kind, and to nobody else.
    let plain = node.pod("plain");
    let plain = plain.attach("blue", "net1");
    let taps: Vec<Tap> = vec![mine, plain.tap()];
    let marker = frame::marker();
    let group: IpAddr = "239.1.2.3".parse().expect("an address");
    shout(blue1, blue1.v4().into(), (group, 4242).into(), &marker).expect("sent");
    for tap in &taps {
        tap.wait_marker("multicast", &marker);
    }
    assert_eq!(other.count(&marker), 0, "nothing of another network");
}
