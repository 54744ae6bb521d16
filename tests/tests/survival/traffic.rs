//! Test upheavals under traffic: not one datagram may be lost.
//!
//! The programs, maps and links belong to the kernel.

use std::net::IpAddr;

use testbed::stream::Stream;
use testbed::{Node, Pod, Port, traffic};

/// Counts streams over both families and both modes while something happens.
fn nothing_is_lost_while(node: &Node, happening: impl FnOnce(&[Stream])) {
    let (a, b) = (node.pod("a"), node.pod("b"));
    let pairs: Vec<(Port, Port)> = [("blue", "net1"), ("green", "net2")]
        .map(|(network, ifname)| (a.attach(network, ifname), b.attach(network, ifname)))
        .into();
    let streams: Vec<Stream> = pairs
        .iter()
        .flat_map(|(pa, pb)| {
            let addresses: Vec<(IpAddr, IpAddr)> = traffic::pairs(pa, pb);
            addresses
                .into_iter()
                .map(|(from, to)| Stream::start(pa, from, pb, to))
                .collect::<Vec<_>>()
        })
        .collect();
    happening(&streams);
    for stream in &streams {
        stream.progress();
    }
    for stream in streams {
        stream.assert_nothing_lost();
    }
    detach_all(&a);
    detach_all(&b);
    node.assert_empty();
}

fn detach_all(pod: &Pod<'_>) {
    pod.detach("blue", "net1");
    pod.detach("green", "net2");
}

fn progress(streams: &[Stream]) {
    for stream in streams {
        stream.progress();
    }
}

/// `kill -9`, some time without an agent, and a new one; twice.
#[test]
fn kill_9_and_restart_lose_nothing() {
    let node = testbed::node!();
    nothing_is_lost_while(&node, |streams| {
        for _ in 0..2 {
            node.kill_9();
            progress(streams);
            node.start_agent();
            progress(streams);
        }
    });
    proof::of!("PAIN-UPG-1");
}

/// SIGTERM drains and leaves the datapath forwarding.
#[test]
fn sigterm_leaves_the_datapath_forwarding() {
    let node = testbed::node!();
    nothing_is_lost_while(&node, |streams| {
        let status = node.terminate();
        assert!(status.success(), "{status:?}");
        progress(streams);
        node.start_agent();
    });
    proof::of!("PAIN-UPG-1");
}

/// The change from a filter to TCX loses nothing, under traffic.
///
/// A port is attached by a TC filter at once and gets its TCX link at a quiet moment.
#[test]
fn the_change_from_a_filter_to_tcx_loses_nothing() {
    let node = testbed::node!();
    if testbed::skip::without_tcx(testbed::test_name!()) {
        return;
    }
    let (a, b) = (node.pod("a"), node.pod("b"));
    let (pa, pb) = (a.attach("blue", "net1"), b.attach("blue", "net1"));
    let pairs = traffic::pairs(&pa, &pb).into_iter();
    let streams: Vec<_> = pairs
        .map(|(from, to)| Stream::start(&pa, from, &pb, to))
        .collect();
    for port in [&pa, &pb] {
        node.wait_tcx(port);
    }
    progress(&streams);
    node.restart();
    progress(&streams);
    for stream in streams {
        stream.assert_nothing_lost();
    }
    a.detach("blue", "net1");
    b.detach("blue", "net1");
    node.assert_empty();
}

/// Attachments of other pods come and go.
#[test]
fn attachments_beside_a_stream_lose_nothing() {
    let node = testbed::node!();
    nothing_is_lost_while(&node, |_| {
        for round in 0..10 {
            let pod = node.pod(&format!("p{round}"));
            pod.attach("blue", "net1");
            pod.detach("blue", "net1");
        }
    });
}

/// GC of everything stale, with the streams' attachments in its list.
#[test]
fn gc_beside_a_stream_loses_nothing() {
    let node = testbed::node!();
    nothing_is_lost_while(&node, |streams| {
        node.gc("blue", &[("a", "net1"), ("b", "net1")]).silent();
        node.gc("green", &[("a", "net2"), ("b", "net2")]).silent();
        progress(streams);
    });
}

/// The manifests change under running pods: other networks come and go.
#[test]
fn changed_manifests_lose_nothing() {
    let node = testbed::node!();
    nothing_is_lost_while(&node, |streams| {
        let later = testbed::Network::l2("later", &["10.30.0.0/24"]);
        node.write_manifest("later.yaml", &later.yaml());
        node.remove_manifest("lime.yaml");
        testbed::wait::until_true("the agent to notice", || {
            node.get("networks")
                .iter()
                .any(|row| row["name"] == "later")
        });
        progress(streams);
    });
}
