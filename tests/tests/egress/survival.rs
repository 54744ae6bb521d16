//! Ways out outlive agents, are mended, and go with the last pod.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use testbed::host::connection;
use testbed::{Network, Node, Port, wait};

use super::scene::{
    BEYOND, TABLE, assert_closed, assert_gets_out, attached, conf, gateway_links, gateways, ip,
    netfilter, settle_world, setup,
};

/// Asserts that numbered questions and answers lose none while something happens.
#[track_caller]
fn unbroken(node: &Node, port: &Port, during: impl FnOnce(&dyn Fn())) {
    let beyond = SocketAddr::new(ip(BEYOND[0]), 7007);
    let bind = || UdpSocket::bind(beyond);
    let server = node.host().outside().run_in(bind).expect("entered");
    let server = server.expect("a socket");
    let client = testbed::traffic::udp(port, port.v4().into());
    client.connect(beyond).expect("connected");
    let stop = AtomicBool::new(false);
    let answered = AtomicU64::new(0);
    for socket in [&server, &client] {
        let patience = Some(wait::PATIENCE);
        socket.set_read_timeout(patience).expect("a timeout");
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 8];
            while let Ok((length, from)) = server.recv_from(&mut buffer) {
                if length < 8 {
                    return;
                }
                server.send_to(&buffer, from).expect("an answer");
            }
        });
        scope.spawn(|| {
            let mut number = 0_u64;
            while !stop.load(Ordering::Acquire) {
                client.send(&number.to_be_bytes()).expect("a question");
                let mut buffer = [0; 8];
                client.recv(&mut buffer).expect("no datagram is lost");
                assert_eq!(u64::from_be_bytes(buffer), number);
                number += 1;
                answered.store(number, Ordering::Release);
            }
            client.send(b"end").expect("an end");
        });
        let progress = || {
            let goal = answered.load(Ordering::Acquire) + 50;
            wait::until_true("answers", || answered.load(Ordering::Acquire) >= goal);
        };
        progress();
        during(&progress);
        progress();
        stop.store(true, Ordering::Release);
    });
}

#[test]
fn an_agent_that_is_killed_and_started_again_breaks_no_conversation() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (pod, port) = attached(&node, "a", "amber");
    let before = gateways(&node);
    unbroken(&node, &port, |progress| {
        node.kill_9();
        progress();
        node.start_agent();
        progress();
        node.terminate();
        progress();
        node.start_agent_with(&["--max-ports", "512"]);
    });
    assert_eq!(gateways(&node), before, "the gateway is the same one");
    pod.detach("amber", "eth0");
    node.assert_empty();
    assert_closed(&node);
}

#[test]
fn other_pods_come_and_go_beside_a_conversation() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (pod, port) = attached(&node, "a", "amber");
    unbroken(&node, &port, |progress| {
        for network in ["amber", "ochre"] {
            let (other, _) = attached(&node, network, network);
            progress();
            other.detach(network, "eth0");
            progress();
        }
    });
    pod.detach("amber", "eth0");
    assert_closed(&node);
}

/// A link of the way out is gone: the agent hears of it.
#[test]
fn what_somebody_removed_is_made_again() {
    let node = testbed::node!(setup().with_audits_logged());
    settle_world(&node);
    let (pod, port) = attached(&node, "a", "amber");
    assert_gets_out(&node, &port);
    node.assert_audit_finds_nothing("amber");
    for prefix in ["podnet-g", "podnet-e"] {
        let before = gateways(&node);
        let all = gateway_links(&node);
        let name = all.iter().find(|name| name.starts_with(prefix));
        let name = name.expect("a link").clone();
        let mut here = connection(node.netns());
        assert!(here.delete_by_name(&name).expect("deleted"));
        wait::until_true("another gateway", || {
            gateways(&node) != before && gateway_links(&node).len() == 2
        });
        wait::until_true("the audit's word", || {
            let result = pod.check("amber", "eth0", &port.result);
            result.success
        });
        wait::until_true("the tables to lead there", || {
            let probe = BEYOND[0].parse().expect("an address");
            let at = SocketAddr::new(probe, 9);
            testbed::talk::tcp(&port.netns, at, node.host().outside(), at).is_ok()
        });
        assert_gets_out(&node, &port);
        node.assert_audit_finds_nothing("amber");
    }
    pod.detach("amber", "eth0");
    assert_closed(&node);
}

#[test]
fn what_somebody_removed_while_no_agent_was_there_is_made_at_start() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (pod, port) = attached(&node, "a", "amber");
    node.kill_9();
    for name in gateway_links(&node) {
        connection(node.netns())
            .delete_by_name(&name)
            .expect("deleted");
    }
    assert!(netfilter(&node).remove_table(TABLE).expect("removed"));
    node.start_agent();
    assert_gets_out(&node, &port);
    pod.detach("amber", "eth0");
    assert_closed(&node);
}

#[test]
fn an_add_that_dies_with_a_part_of_a_way_out_leaves_nothing_after_the_next_start() {
    for point in ["egress.namespace", "egress.port", "egress.made"] {
        let node = testbed::node!(setup().stopped());
        node.start_agent_to_crash_at(point);
        let pod = node.pod("a");
        let outcome = pod.add_conf(&conf(&node, "amber"), "eth0");
        assert!(!outcome.success, "{point}: {outcome}");
        node.wait_dead();
        node.start_agent();
        node.assert_empty();
        assert_closed(&node);
        let port = pod.attach_conf(&conf(&node, "amber"), "eth0");
        settle_world(&node);
        assert_gets_out(&node, &port);
        pod.detach("amber", "eth0");
        assert_closed(&node);
    }
}

#[test]
fn a_way_out_of_pods_that_are_gone_is_removed_at_start() {
    let node = testbed::node!(setup());
    let (pod, _port) = attached(&node, "a", "amber");
    node.kill_9();
    // The runtime's DEL waits for the agent.
    pod.del("amber", "eth0").silent();
    assert_eq!(gateway_links(&node).len(), 2);
    node.start_agent();
    wait::until_true("the removal that waited", || {
        node.attachments().is_empty() && gateway_links(&node).is_empty()
    });
    assert_closed(&node);
}

#[test]
fn an_add_whose_way_out_cannot_be_made_fails_and_leaves_nothing() {
    let node = testbed::node!(setup());
    // In the place of the directory of namespaces.
    let place = node.path("run").join("egress");
    std::fs::write(&place, "").expect("a file");
    let pod = node.pod("a");
    let failure = pod.add_conf(&conf(&node, "amber"), "eth0").fails_with(110);
    failure.names(&["egress Masquerade", "way out"]);
    node.assert_empty();
    assert_eq!(pod.links(), [""; 0]);
    assert_eq!(gateway_links(&node), [""; 0]);
    assert!(!netfilter(&node).has(TABLE).expect("a look"));
    // Other networks are served.
    let other = node.pod("b");
    other.attach("island", "eth0");
    other.detach("island", "eth0");
    std::fs::remove_file(&place).expect("removed");
    let port = pod.attach_conf(&conf(&node, "amber"), "eth0");
    settle_world(&node);
    assert_gets_out(&node, &port);
    pod.detach("amber", "eth0");
    assert_closed(&node);
}

#[test]
fn who_is_attached_keeps_the_way_out_when_the_network_loses_it_and_newcomers_have_none() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (pod, port) = attached(&node, "a", "amber");
    let without = Network {
        egress: false,
        ..super::scene::amber()
    };
    node.write_manifest("amber.yaml", &without.yaml());
    wait::until_true("the agent to know", || {
        let shown = node.get("networks");
        shown
            .iter()
            .any(|it| it["name"] == "amber" && it["egress"] == "None")
    });
    let (newcomer, _) = attached(&node, "b", "amber");
    assert_gets_out(&node, &port);
    pod.detach("amber", "eth0");
    assert_closed(&node);
    newcomer.detach("amber", "eth0");
}

#[test]
fn cleanup_takes_ways_out_away_and_says_so() {
    let node = testbed::node!(setup());
    let (pod, _port) = attached(&node, "a", "amber");
    node.terminate();
    let said = |output: std::process::Output| String::from_utf8(output.stdout).expect("text");
    let dry = said(node.cleanup(&["--dry-run"]));
    for what in ["link podnet-g", "link podnet-e", "network namespace", TABLE] {
        assert!(dry.contains(what), "{what}: {dry}");
    }
    assert_eq!(gateway_links(&node).len(), 2, "nothing was removed");
    let done = said(node.cleanup(&[]));
    assert!(done.contains("removed link podnet-g"), "{done}");
    assert_closed(&node);
    assert!(!node.path("run").join("egress").exists());
    drop(pod);
}
