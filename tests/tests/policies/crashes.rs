//! The agent dies in the middle of putting policies in force, and comes again.

use testbed::stream::Stream;
use testbed::{Node, Port, pins, wait};

use super::scene::{answers, app, arrives, becomes, policy, setup};
use super::streams::{Refused, streams};

const WEB: &str = "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]";

/// Another policy with the same answers for `web` and `evil`.
fn other(number: usize) -> String {
    format!(
        "ingress: [{{from: [{{podSelector: {{matchLabels: {{app: web}}}}}}]}}, \
         {{from: [{{podSelector: {{matchLabels: {{app: x{number}}}}}}}], ports: [{{protocol: TCP, port: {}}}]}}]",
        100 + number
    )
}

fn db(rule: &str) -> String {
    policy("db", "routed", "db", rule)
}

/// Entries of the tables of policies.
fn entries(node: &Node) -> [usize; 5] {
    [
        pins::count::<4, 32>(node, "GUARDS"),
        pins::count::<20, 4>(node, "ATOMS"),
        pins::count::<4, 2056>(node, "CLASSES"),
        pins::count::<12, 4>(node, "SETS"),
        pins::count::<8, 100>(node, "ROWS"),
    ]
}

#[track_caller]
fn settles(node: &Node, wanted: [usize; 5]) {
    let mut last = [0; 5];
    let end = std::time::Instant::now() + wait::PATIENCE;
    while std::time::Instant::now() < end {
        last = entries(node);
        if last == wanted {
            return;
        }
        std::thread::yield_now();
    }
    assert_eq!(last, wanted, "GUARDS, ATOMS, CLASSES, SETS, ROWS");
}

fn ends(allowed: Vec<Stream>) {
    for stream in allowed {
        stream.assert_nothing_lost();
    }
}

/// Has the agent die at a point of a policy change; a new one finishes the work.
fn dies_in_a_change(point: &str) {
    let node = Node::start(setup().file("a.yaml", &db(WEB)));
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db_port) = app(&node, "db", "routed");
    let (_evil, evil) = app(&node, "evil", "routed");
    let in_force = entries(&node);
    let allowed = streams(&web, &db_port);
    let denied = Refused::start(&evil, &db_port);
    node.terminate();
    node.write_manifest("a.yaml", &db(&other(1)));
    // It dies as soon as it reads the policy.
    node.launch_agent_to_crash_at(point);
    node.wait_dead();
    denied.progress();
    node.start_agent();
    denied.progress();
    node.write_manifest("a.yaml", &db(WEB));
    settles(&node, in_force);
    denied.assert_none_seen();
    ends(allowed);
}

#[test]
fn dies_with_a_new_generation_written() {
    dies_in_a_change("guards.written");
}

#[test]
fn dies_with_ports_on_a_new_generation() {
    dies_in_a_change("guards.flipped");
}

/// The first policy of a network, half written.
#[test]
fn dies_with_a_first_policy_half_in_force() {
    for point in ["guards.written", "guards.flipped", "guards.marked"] {
        let node = Node::start(setup());
        let (_web, web) = app(&node, "web", "routed");
        let (_db, db_port) = app(&node, "db", "routed");
        let (_evil, evil) = app(&node, "evil", "routed");
        let allowed = streams(&web, &db_port);
        node.terminate();
        node.start_agent_to_crash_at(point);
        node.write_manifest("a.yaml", &db(WEB));
        node.wait_dead();
        node.start_agent();
        becomes(&evil, &db_port, 80, false);
        let denied = Refused::start(&evil, &db_port);
        denied.assert_none_seen();
        ends(allowed);
        node.remove_manifest("a.yaml");
        becomes(&evil, &db_port, 80, true);
        settles(&node, [0; 5]);
    }
}

/// The last policy of a network, half gone.
#[test]
fn dies_with_a_last_policy_half_gone() {
    let node = Node::start(setup().file("a.yaml", &db(WEB)));
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db_port) = app(&node, "db", "routed");
    let (_evil, evil) = app(&node, "evil", "routed");
    let allowed = streams(&web, &db_port);
    node.terminate();
    node.start_agent_to_crash_at("guards.marked");
    node.remove_manifest("a.yaml");
    node.wait_dead();
    node.start_agent();
    becomes(&evil, &db_port, 80, true);
    settles(&node, [0; 5]);
    node.write_manifest("a.yaml", &db(WEB));
    becomes(&evil, &db_port, 80, false);
    ends(allowed);
}

/// Kills at any moment, while the policy changes.
#[test]
fn dies_at_any_moment() {
    let node = Node::start(setup().file("a.yaml", &db(WEB)));
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db_port) = app(&node, "db", "routed");
    let (_evil, evil) = app(&node, "evil", "routed");
    let in_force = entries(&node);
    let allowed = streams(&web, &db_port);
    let denied = Refused::start(&evil, &db_port);
    for round in 0..10 {
        // The more changes, the later it dies.
        for change in 0..=round * 3 {
            node.write_manifest("a.yaml", &db(&other(change + round)));
        }
        node.kill_9();
        denied.progress();
        node.start_agent();
    }
    node.write_manifest("a.yaml", &db(WEB));
    settles(&node, in_force);
    denied.assert_none_seen();
    ends(allowed);
}

/// An agent with another number of ports has other maps, and the same policies.
#[test]
fn another_layout_of_the_ports_lets_nothing_through_and_loses_nothing() {
    let node = Node::start(setup().file("a.yaml", &db(WEB)));
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db_port) = app(&node, "db", "routed");
    let (_evil, evil) = app(&node, "evil", "routed");
    let allowed = streams(&web, &db_port);
    let denied = Refused::start(&evil, &db_port);
    for max_ports in ["512", "4096", "1024"] {
        node.kill_9();
        node.start_agent_with(&["--max-ports", max_ports]);
        denied.progress();
    }
    denied.assert_none_seen();
    ends(allowed);
}

/// A port that gets another number is judged by its own sets all the time.
///
/// The port's number changes because there are fewer.
#[test]
fn a_port_with_another_number_is_judged_all_the_time() {
    let node = Node::start(setup().file("a.yaml", &db(WEB)).stopped());
    node.start_agent_with(&["--max-ports", "4"]);
    let (_web, web) = app(&node, "web", "routed");
    let (gone, _gone) = app(&node, "gone", "routed");
    let (_evil, evil) = app(&node, "evil", "routed");
    let (_db, db_port) = app(&node, "db", "routed");
    gone.detach("routed", "net1");
    answers(&web, &db_port, 80);
    let denied = Refused::start(&evil, &db_port);
    node.kill_9();
    node.start_agent_with(&["--max-ports", "3"]);
    denied.progress();
    assert!(arrives(&web, &db_port, 80));
    denied.assert_none_seen();
}

/// A pod that floods from its first moment, and one that is flooded.
#[test]
fn a_pod_sends_and_gets_nothing_denied_from_its_first_moment() {
    let both = "policyTypes: [Ingress, Egress], \
                ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}], \
                egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]";
    let node = Node::start(setup().file("a.yaml", &db(both)));
    let (_web, _) = app(&node, "web", "routed");
    let (first, first_port) = app(&node, "db", "routed");
    let (_evil, evil) = app(&node, "evil", "routed");
    first.detach("routed", "net1");
    for number in 0..10 {
        let (pod, port) = flooded(&node, number, &evil, &first_port);
        pod.detach("routed", "net1");
        drop(port);
    }
}

/// Attaches a guarded pod to which another sends before, while and after it comes.
fn flooded<'a>(
    node: &'a Node,
    number: usize,
    evil: &Port,
    before: &Port,
) -> (testbed::Pod<'a>, Port) {
    use std::sync::atomic::{AtomicBool, Ordering};
    let stop = AtomicBool::new(false);
    let mark = testbed::frame::marker();
    let name = format!("db{number}");
    let pod = node.pod(&name);
    let seen = testbed::Tap::everything(pod.netns());
    let mut conf = node.conf("routed");
    conf["labels"] = serde_json::json!({"app": "db"});
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            let tap = evil.tap();
            let packets: Vec<Vec<u8>> = (0..3)
                .map(|host| {
                    let [a, b, c, d] = before.v4().octets();
                    let to = [a, b, c, d + host].into();
                    let packet = testbed::frame::udp4(evil.v4(), to, (5000, 80), &mark);
                    super::attacker::frame(evil, before, &packet)
                })
                .collect();
            while !stop.load(Ordering::Acquire) {
                for packet in &packets {
                    tap.send(packet);
                }
            }
        });
        let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={name}");
        let call = pod.call("ADD", "net1").env("CNI_ARGS", &args).conf(&conf);
        let outcome = call.run();
        stop.store(true, Ordering::Release);
        outcome.result()
    });
    let port = pod.port("routed", "net1", result);
    assert_eq!(seen.count(&mark), 0, "a denied datagram was seen by {name}");
    (pod, port)
}
