//! Test the reference `bandwidth` plugin behind podnet.
//!
//! For what the pod receives it puts a queue at the host end, and podnet notices and sends packets
//! through it. For what the pod sends it wants the very hook that podnet's program is on: that is a clear
//! error, and podnet's own limits do it.

use std::net::SocketAddr;

use agent_common::drop::DropReason;
use serde_json::{Value, json};
use testbed::frame::{ethernet, marker, udp4};
use testbed::{Node, Pod, Port, Watch, limit, traffic, wait};

use super::libcni::{Libcni, Tools};

/// EtherType of IPv4.
const IP: u16 = 0x0800;

/// A pod on blue, one to talk to, and one with its address on red.
struct Scene<'a> {
    node: &'a Node,
    libcni: Libcni<'a>,
    pods: [Pod<'a>; 3],
    peer: Port,
    other: Port,
}

impl<'a> Scene<'a> {
    fn set(node: &'a Node, tools: &Tools) -> Self {
        let pods = ["peer", "other", "a"].map(|name| node.pod(name));
        let peer = pods[0].attach("blue", "net1");
        let other = pods[1].attach("red", "net1");
        assert_eq!(peer.ips, other.ips, "the same addresses on both networks");
        Self {
            node,
            libcni: tools.on(node),
            pods,
            peer,
            other,
        }
    }

    /// podnet, then `bandwidth` with these rates.
    fn chain(&self, rates: &Value) {
        let mut bandwidth = rates.clone();
        bandwidth["type"] = "bandwidth".into();
        self.libcni
            .chain("blue", &[self.libcni.podnet("blue"), bandwidth]);
    }

    fn pod(&self) -> &Pod<'a> {
        &self.pods[2]
    }

    /// Asserts that spoofed frames are dropped and counted, and honest ones arrive.
    ///
    /// Neither the node nor the world sees any of them.
    #[track_caller]
    fn assert_guarded(&self, port: &Port) {
        let (tap, seen) = (port.tap(), self.peer.tap());
        let watch = Watch::over(self.node, &[&self.peer, &self.other]);
        let before = self.node.drops().of("blue", DropReason::SpoofedIp);
        let attack = marker();
        let packet = udp4([10, 10, 0, 250].into(), self.peer.v4(), (5000, 9), &attack);
        tap.send(&ethernet(self.peer.mac, port.mac, IP, &packet));
        wait::until_true("the spoofed frame to be counted", || {
            self.node.drops().of("blue", DropReason::SpoofedIp) > before
        });
        watch.assert_unseen("a spoofed frame", &attack);

        let watch = Watch::over(self.node, &[&self.other]);
        let honest = marker();
        let to = SocketAddr::from((self.peer.v4(), 9));
        traffic::shout(port, port.v4().into(), to, &honest).expect("it is sent");
        seen.wait_marker("the honest frame", &honest);
        watch.assert_unseen("an honest frame", &honest);
        traffic::assert_reaches(port, &self.peer);
        traffic::assert_reaches(&self.peer, port);
    }

    /// After DEL nothing is left, the plugin's own devices included.
    fn close(self) {
        for _ in 0..2 {
            self.libcni
                .run("del", "blue", self.pod(), "net1")
                .succeeds();
            assert_eq!(self.pod().links(), Vec::<String>::new());
        }
        self.pods[0].detach("blue", "net1");
        self.pods[1].detach("red", "net1");
        self.node.assert_empty();
    }
}

fn from_pod() -> Value {
    json!({"egressRate": 1_000_000, "egressBurst": 1_000_000})
}

fn to_pod() -> Value {
    json!({"ingressRate": 1_000_000, "ingressBurst": 1_000_000})
}

/// The plugin wants the ingress hook of the host end; podnet's program has it.
#[test]
fn a_limit_for_what_the_pod_sends_is_a_clear_error() {
    let Some(tools) = Tools::find(testbed::test_name!(), &["bandwidth"]) else {
        return;
    };
    let node = testbed::node!();
    let scene = Scene::set(&node, &tools);
    scene.chain(&from_pod());
    let ended = scene.libcni.run("add", "blue", scene.pod(), "net1");
    ended.fails_with(&["bandwidth", "ingress qdisc"]);
    scene.close();
}

/// Also when podnet's program has moved to a TCX link.
#[test]
fn a_limit_for_what_the_pod_sends_is_a_clear_error_on_tcx() {
    let Some(tools) = Tools::find(testbed::test_name!(), &["bandwidth"]) else {
        return;
    };
    if testbed::skip::without_tcx(testbed::test_name!()) {
        return;
    }
    let node = testbed::node!();
    let scene = Scene::set(&node, &tools);
    scene.libcni.chain("blue", &[scene.libcni.podnet("blue")]);
    let port = scene.libcni.attach("blue", scene.pod(), "net1");
    node.wait_tcx(&port);
    scene.assert_guarded(&port);
    scene.chain(&from_pod());
    let ended = scene.libcni.run("add", "blue", scene.pod(), "net1");
    ended.fails_with(&["bandwidth", "ingress qdisc"]);
    scene.assert_guarded(&port);
    scene.close();
}

/// The plugin's queue at the host end limits, though podnet has answered before.
#[test]
fn a_limit_for_what_the_pod_receives_is_kept_and_the_pod_guarded() {
    let Some(tools) = Tools::find(testbed::test_name!(), &["bandwidth"]) else {
        return;
    };
    let node = testbed::node!();
    let scene = Scene::set(&node, &tools);
    scene.chain(&to_pod());
    let port = scene.libcni.attach("blue", scene.pod(), "net1");
    wait::until_true("the plugin's queue to be noticed", || {
        let rows = node.get("attachments");
        rows.iter().any(|row| row["foreignQueue"] == true)
    });
    let (from, to) = (scene.peer.v4().into(), port.v4().into());
    limit::flood(&scene.peer, from, &port, to, 300_000).assert_limited(1_000_000);
    scene.assert_guarded(&port);
    scene
        .libcni
        .run("check", "blue", scene.pod(), "net1")
        .succeeds();
    scene.close();
}
