//! libmemif in a pod, as its authors have it.

use testbed::libmemif::{LENS, Responder, program};
use testbed::{MemifApp, Node, Port, wait};

use super::switch::{start, switch};
use crate::{conf, setup};

/// Packets of each length that are under way together.
///
/// libmemif's example ends when it finds more than 256.
const TOGETHER: u16 = 16;

/// Returns the connected peer, as the agent tells it.
fn peer(node: &Node, port: &Port) -> Option<String> {
    let rows = node.get("attachments");
    let row = rows
        .iter()
        .find(|row| row["container"] == port.container.as_str());
    row?["client"]["peer"].as_str().map(str::to_owned)
}

#[test]
fn kernel_ports_and_memif_ports_reach_libmemif_and_are_answered_byte_by_byte() {
    let Some(program) = program(testbed::test_name!()) else {
        return;
    };
    let node = testbed::node!(setup());
    for network in ["blue", "green"] {
        let pods = ["theirs", "ours", "plain"].map(|name| node.pod(&format!("{name}-{network}")));
        let theirs = pods[0].attach_conf(&conf(&node, network), "net1");
        let ours = pods[1].attach_conf(&conf(&node, network), "net1");
        let plain = pods[2].attach(network, "net1");
        let _app = MemifApp::start(&ours);
        let mut responder = Responder::of(program.clone(), &theirs);
        for asker in [&plain, &ours] {
            responder.assert_answers(asker, theirs.v4(), &LENS, 1);
            responder.assert_answers(asker, theirs.v4(), &LENS, TOGETHER);
        }
        let name = peer(&node, &theirs);
        assert_eq!(name.as_deref(), Some("libmemif0 of icmp_responder_example"));
        for pod in &pods {
            pod.del(network, "net1").silent();
        }
        responder.wait_ended();
    }
}

/// The example ends when it is disconnected, and its container is started again.
#[test]
fn libmemif_connects_again_when_the_switch_has_died() {
    let Some(program) = program(testbed::test_name!()) else {
        return;
    };
    let node = testbed::node!(setup());
    let pods = ["theirs", "plain"].map(|name| node.pod(name));
    let theirs = pods[0].attach_conf(&conf(&node, "blue"), "net1");
    let plain = pods[1].attach("blue", "net1");
    let mut responder = Responder::of(program, &theirs);
    responder.assert_answers(&plain, theirs.v4(), &LENS, 1);
    let before = switch(&node).expect("a switch runs");
    rustix::process::kill_process(before, rustix::process::Signal::KILL).expect("killed");
    responder.restart();
    responder.assert_answers(&plain, theirs.v4(), &LENS, TOGETHER);
    assert_ne!(switch(&node), Some(before));
}

#[test]
fn libmemif_does_not_notice_that_the_switch_is_replaced() {
    let Some(program) = program(testbed::test_name!()) else {
        return;
    };
    let node = testbed::node!(setup());
    let pods = ["theirs", "ours", "plain"].map(|name| node.pod(name));
    let theirs = pods[0].attach_conf(&conf(&node, "blue"), "net1");
    let ours = pods[1].attach_conf(&conf(&node, "blue"), "net1");
    let plain = pods[2].attach("blue", "net1");
    let _app = MemifApp::start(&ours);
    let mut responder = Responder::of(program, &theirs);
    responder.assert_answers(&plain, theirs.v4(), &LENS, 1);
    for _ in 0..3 {
        let before = switch(&node).expect("a switch runs");
        let mut new = start(&node);
        wait::until_true("the old switch to end", || {
            rustix::process::test_kill_process(before).is_err() || switch(&node) != Some(before)
        });
        for asker in [&plain, &ours] {
            responder.assert_answers(asker, theirs.v4(), &LENS, TOGETHER);
        }
        assert!(new.try_wait().expect("a child").is_none(), "it serves");
        // It goes with its successor, or with the node; it must not be left as a child nobody waited for.
        std::thread::spawn(move || new.wait());
    }
    responder.assert_running();
}
