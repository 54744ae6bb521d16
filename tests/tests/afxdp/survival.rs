//! Test programs while the agent is away, and when another one starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use testbed::{traffic, wait};

use super::scene::{Echo, assert_answers, attach, conf, open, setup, socket_path};

/// A program loses no datagram while the agent is killed, restarted and upgraded.
///
/// The upgrade has another layout of maps. The control socket is back with the agent.
#[test]
fn the_agent_goes_and_comes_and_a_program_loses_nothing() {
    let node = testbed::node!(setup());
    let (fast, plain) = (node.pod("fast"), node.pod("plain"));
    let (pf, pp) = (
        attach(&node, &fast, "blue", "fast-blue"),
        plain.attach("blue", "net1"),
    );
    let echo = Echo::start(vec![open(&pf, 0)]);
    let stop = Arc::new(AtomicBool::new(false));
    let back = Arc::new(AtomicU64::new(0));
    let asked = {
        let socket = traffic::udp(&pp, pp.v4().into());
        let (stop, back, to) = (Arc::clone(&stop), Arc::clone(&back), pf.v4());
        thread::spawn(move || {
            let mut asked = 0_u64;
            let mut answer = [0; 64];
            while !stop.load(Ordering::Acquire) {
                socket
                    .send_to(&asked.to_be_bytes(), (to, 4242))
                    .expect("sent");
                let (came, _) = socket.recv_from(&mut answer).expect("an answer");
                assert_eq!(answer[..came], asked.to_be_bytes());
                asked += 1;
                back.store(asked, Ordering::Release);
                thread::sleep(Duration::from_micros(200));
            }
            asked
        })
    };
    let progress = || {
        let goal = back.load(Ordering::Acquire) + 100;
        wait::until_true("answers", || back.load(Ordering::Acquire) >= goal);
    };
    progress();
    node.kill_9();
    progress();
    node.start_agent();
    progress();
    node.restart();
    progress();
    node.kill_9();
    node.start_agent_with(&["--max-ports", "512"]);
    progress();
    let mut check = conf(&node, "blue", "fast-blue");
    check["prevResult"] = pf.result.clone();
    fast.call("CHECK", "net1").conf(&check).run().silent();
    stop.store(true, Ordering::Release);
    let asked = asked.join().expect("every answer comes");
    assert_eq!(echo.stop(), asked);

    // A program that comes now is served as ever.
    assert_answers(open(&pf, 0), &pf, &pp);
    fast.detach("blue", "net1");
    plain.detach("blue", "net1");
    node.assert_empty();
}

/// A port whose pins were removed is repaired at the next start.
#[test]
fn a_port_whose_program_was_taken_away_is_mended_at_start() {
    let node = testbed::node!(setup());
    let (fast, plain) = (node.pod("fast"), node.pod("plain"));
    let (pf, pp) = (
        attach(&node, &fast, "blue", "fast-blue"),
        plain.attach("blue", "net1"),
    );
    node.kill_9();
    std::fs::remove_dir_all(node.bpffs().join("ports")).expect("pins");
    std::fs::remove_file(socket_path(&pf)).expect("a socket");
    node.start_agent();
    let mut check = conf(&node, "blue", "fast-blue");
    check["prevResult"] = pf.result.clone();
    fast.call("CHECK", "net1").conf(&check).run().silent();
    assert_answers(open(&pf, 0), &pf, &pp);
    fast.detach("blue", "net1");
    plain.detach("blue", "net1");
    node.assert_empty();
}

/// An agent that dies anywhere in `ADD` leaves no port unknown to the next agent.
#[test]
fn a_port_that_was_begun_is_undone_or_kept_whole() {
    for point in [
        "add.reserved",
        "add.placed",
        "add.recorded",
        "add.live",
        "add.saved",
    ] {
        let node = testbed::node!(setup());
        let fast = node.pod("fast");
        node.forget_agent();
        node.start_agent_to_crash_at(point);
        let _ = fast
            .call("ADD", "net1")
            .conf(&conf(&node, "blue", "fast-blue"))
            .run();
        node.wait_dead();
        node.start_agent();
        fast.call("DEL", "net1")
            .conf(&conf(&node, "blue", "fast-blue"))
            .run()
            .silent();
        assert!(node.attachments().is_empty(), "{point}");
        node.assert_empty();
    }
}

/// A stray of a port, of which no record knows, goes at start.
#[test]
fn what_no_record_knows_goes_at_start() {
    let node = testbed::node!(setup());
    let fast = node.pod("fast");
    let pf = attach(&node, &fast, "blue", "fast-blue");
    let directory = socket_path(&pf);
    let directory = directory
        .parent()
        .and_then(std::path::Path::parent)
        .expect("a directory");
    let stray = directory.join("pn000000000000");
    node.kill_9();
    std::fs::create_dir(&stray).expect("a directory");
    std::fs::create_dir(node.bpffs().join("ports/pn000000000000")).expect("a directory of pins");
    node.start_agent();
    assert!(!stray.exists());
    assert!(!node.bpffs().join("ports/pn000000000000").exists());
    assert!(socket_path(&pf).exists());
    fast.detach("blue", "net1");
    node.assert_empty();
}
