//! Ports that are sockets on networks of a VPC.

use std::net::IpAddr;
use std::time::Duration;

use testbed::afxdp;
use testbed::manifest::attachment;
use testbed::memif_app::MemifApp;
use testbed::{Node, traffic, wait};

use super::scene::{app, setup, socket, wait_reaches};

#[test]
fn memif_ports_reach_the_other_networks_of_their_vpc() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let texts = ["one-1", "one-2"]
        .map(|network| {
            attachment(
                &format!("memif-{network}"),
                network,
                "{interface: {type: Memif}}",
            )
        })
        .join("---\n");
    let node = Node::start(setup(&["one"]).file("memif.yaml", &texts));
    let pods = ["one-1", "one-2"].map(|network| {
        let pod = node.pod(&format!("memif-{network}"));
        let conf = node.attachment_conf(network, &format!("memif-{network}"));
        let port = pod.attach_conf(&conf, "net1");
        (pod, port)
    });
    let [(_, first), (_, second)] = &pods;
    let _apps = [first, second].map(MemifApp::start);
    let (_kernel, kernel) = app(&node, "kernel", "one-2");
    wait_reaches(first, second);
    wait_reaches(second, first);
    wait_reaches(first, &kernel);
    wait_reaches(&kernel, first);
}

#[test]
fn af_xdp_ports_are_reached_from_the_other_networks_of_their_vpc() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let text = attachment("afxdp", "one-1", "{interface: {type: AFXDP}}");
    let node = Node::start(setup(&["one"]).file("afxdp.yaml", &text));
    let pod = node.pod("program");
    let program = pod.attach_conf(&node.attachment_conf("one-1", "afxdp"), "net1");
    let (_kernel, kernel) = app(&node, "kernel", "one-2");
    let _echo = afxdp::Echo::start(vec![afxdp::open(&program, 0)]);
    for (from, to) in traffic::pairs(&kernel, &program) {
        let IpAddr::V4(_) = to else { continue };
        let asking = socket(&kernel, (from, 0).into());
        asking
            .set_read_timeout(Some(Duration::from_millis(20)))
            .expect("a timeout");
        wait::until_true("an answer of the program", || {
            let _ = asking.send_to(b"question", (to, 9));
            asking.recv(&mut [0; 16]).is_ok_and(|length| length == 8)
        });
    }
}
