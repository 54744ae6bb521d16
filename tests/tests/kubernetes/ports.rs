//! `Port`s: a MAC address and addresses that outlive pods, nodes and agents.

use std::thread;

use api::Port;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testbed::wait;

use super::agent_scene::{AgentScene, object};
use super::ipam_policy::{check, until_refused};
use super::ipam_scene::Nodes;

fn of_port(name: &str) -> Value {
    json!({"podnet.dev/port": name})
}

impl Nodes {
    fn make_port(&self, name: &str, spec: &Value) {
        let port = json!({
            "apiVersion": "podnet.dev/v1alpha1",
            "kind": "Port",
            "metadata": {"name": name, "namespace": self.one.name},
            "spec": spec,
        });
        self.one.apply(&port.to_string());
    }

    fn port(&self, name: &str) -> Value {
        let port = self.one.run(|client| async move {
            let ports: Api<Port> = Api::namespaced(client, &self.one.name);
            ports.get(name).await
        });
        serde_json::to_value(port.expect("the Port is there")).expect("JSON")
    }

    /// MAC address of `net1` of a sandbox, as the agent has it.
    fn mac(node: &AgentScene, sandbox: &testbed::Pod<'_>) -> Value {
        let all = node.node.get("attachments");
        let mut all = all.iter();
        let made = all.find(|it| it["container"] == sandbox.container() && it["ifname"] == "net1");
        made.expect("an attachment")["mac"].clone()
    }
}

/// DES-03, DES-04, ARKX-50, KURX-06
#[test]
fn a_port_keeps_its_mac_and_addresses_from_pod_to_pod_and_node_to_node() {
    let Some(s) = Nodes::start(testbed::test_name!(), "port-moves") else {
        return;
    };
    let network = s.network("blue", &["10.140.0.0/24", "fd14::/64"]);
    s.make_port("db-0", &json!({"network": network}));
    let (first, here) = (
        s.pod(&s.one, "first", &network, &of_port("db-0")),
        s.one.node.pod("c1"),
    );
    let ips = s.add(&s.one, &here, "first", &first);
    let mac = Nodes::mac(&s.one, &here);
    let status = s.port("db-0")["status"].clone();
    assert_eq!(
        (&status["ips"], &status["mac"]),
        (&json!(ips), &mac),
        "written when the ADD succeeds"
    );
    assert_eq!(ips.len(), 2);
    let user = json!({"pod": "first", "uid": first, "node": s.one.name});
    assert_eq!((&status["user"], &status["epoch"]), (&user, &json!(1)));

    // The same pod again, as after a crash of its sandbox.
    s.del(&s.one, &here, "first", &first);
    let again = s.one.node.pod("c2");
    assert_eq!(s.add(&s.one, &again, "first", &first), ips);
    assert_eq!(s.port("db-0")["status"], status, "nothing is to be written");

    // Another pod has to wait, on any node, as long as this one has not ended.
    let second = s.pod(&s.two, "second", &network, &of_port("db-0"));
    let there = s.two.node.pod("c3");
    s.refused(&s.two, &there, ("second", &second), 11).names(&[
        "Port",
        "db-0",
        "pod first",
        &s.one.name,
    ]);
    let thief = s.pod(&s.two, "thief", &network, &json!({"ips": [bare(&ips[0])]}));
    let den = s.two.node.pod("c4");
    s.refused(&s.two, &den, ("thief", &thief), 101)
        .names(&[&format!("Port {}/db-0", s.one.name)]);

    // It has ended; its node may not even have noticed.
    s.one.delete_pod("first");
    assert_eq!(s.add(&s.two, &there, "second", &second), ips);
    assert_eq!(Nodes::mac(&s.two, &there), mac);
    let status = s.port("db-0")["status"].clone();
    assert_eq!(
        (&status["user"]["pod"], &status["epoch"]),
        (&json!("second"), &json!(2))
    );
    s.del(&s.one, &again, "first", &first);
    s.del(&s.two, &there, "second", &second);
    assert_eq!(s.port("db-0")["status"]["ips"], json!(ips));
    proof::of!("DES-03", "DES-04", "ARKX-50", "KURX-06");
}

fn bare(ip: &str) -> &str {
    ip.split('/').next().unwrap_or_default()
}

/// DES-06: by a list of KEP-3698, too.
#[test]
fn a_port_that_was_made_with_addresses_has_them_and_the_rest_is_chosen_once() {
    let Some(s) = Nodes::start(testbed::test_name!(), "port-made") else {
        return;
    };
    let network = s.network("blue", &["10.141.0.0/24", "fd15::/64"]);
    let spec = json!({
        "network": network, "macRequest": "02:00:00:00:0d:2a", "ipRequests": ["10.141.0.77"],
    });
    s.make_port("db-0", &spec);
    let list = json!([{"name": network, "port": "db-0", "interfaceName": "eth0"}]).to_string();
    let lists = [("podnet.dev/networks", list.as_str())];
    let attached = |node: &AgentScene, name: &str, container: &str| {
        let uid = s.one.make_pod_on(&node.name, name, &lists);
        let sandbox = node.node.pod(container);
        wait::until_true("the ADD to succeed", || {
            s.call(node, "ADD", &sandbox, name, &uid).success
        });
        let all = node.node.get("attachments");
        let made = all.iter().find(|it| it["container"] == sandbox.container());
        let made = made.expect("an attachment").clone();
        s.del(node, &sandbox, name, &uid);
        s.one.delete_pod(name);
        (made["mac"].clone(), made["ips"].clone())
    };
    let first = attached(&s.one, "first", "c1");
    assert_eq!(first.0, "02:00:00:00:0d:2a");
    assert_eq!(first.1[0], "10.141.0.77/24");
    assert_eq!(first.1.as_array().map(Vec::len), Some(2));
    assert_eq!(attached(&s.two, "second", "c2"), first);
    assert_eq!(s.port("db-0")["status"]["ips"], first.1);
    proof::of!("DES-06");
}

#[test]
fn of_two_pods_that_want_a_port_at_the_same_moment_one_has_it() {
    let Some(s) = Nodes::start(testbed::test_name!(), "port-race") else {
        return;
    };
    let network = s.network("blue", &["10.142.0.0/24"]);
    // Both agents know the network.
    for (node, name) in [(&s.one, "warm-1"), (&s.two, "warm-2")] {
        let (uid, sandbox) = (s.pod(node, name, &network, &json!({})), node.node.pod(name));
        s.add(node, &sandbox, name, &uid);
    }
    for round in 0..8 {
        let port = format!("db-{round}");
        s.make_port(&port, &json!({"network": network}));
        let names = [format!("a-{round}"), format!("b-{round}")];
        let nodes = [&s.one, &s.two];
        let sandboxes = [s.one.node.pod(&names[0]), s.two.node.pod(&names[1])];
        let pods: Vec<String> = nodes
            .iter()
            .zip(&names)
            .map(|(node, name)| s.pod(node, name, &network, &of_port(&port)))
            .collect();
        let outcomes: Vec<_> = thread::scope(|scope| {
            let calls: Vec<_> = (0..2)
                .map(|at| {
                    let (s, sandbox) = (&s, &sandboxes[at]);
                    let (node, name, uid) = (nodes[at], &names[at], &pods[at]);
                    scope.spawn(move || s.call(node, "ADD", sandbox, name, uid))
                })
                .collect();
            calls
                .into_iter()
                .map(|it| it.join().expect("a call"))
                .collect()
        });
        let user = s.port(&port)["status"]["user"]["pod"].clone();
        for (outcome, name) in outcomes.iter().zip(&names) {
            assert_eq!(outcome.success, user == *name, "{user}: {outcome}");
        }
        let reserved = s.reservations(&network).len();
        assert_eq!(reserved, round + 1, "nothing is left of the one that lost");
    }
}

#[test]
fn a_port_that_does_not_fit_is_refused_and_a_missing_one_waited_for() {
    let Some(s) = Nodes::start(testbed::test_name!(), "port-wrong") else {
        return;
    };
    let (blue, red) = (
        s.network("blue", &["10.143.0.0/24"]),
        s.network("red", &["10.144.0.0/24"]),
    );
    s.make_port("red-0", &json!({"network": red}));
    let (web, here) = (
        s.pod(&s.one, "web", &blue, &of_port("red-0")),
        s.one.node.pod("c1"),
    );
    s.refused(&s.one, &here, ("web", &web), 7)
        .names(&["red-0", &red, &blue, "spec.network"]);
    assert!(s.port("red-0")["status"].get("user").is_none());

    let late = s.pod(&s.one, "late", &blue, &of_port("late-0"));
    let failure = wait::until("an ADD that waits for the Port", || {
        let outcome = s.call(&s.one, "ADD", &here, "late", &late);
        Some(outcome.error()).filter(|failure| failure.code == 11)
    });
    failure.names(&["Port", "late-0", "does not exist"]);
    assert!(
        s.one.node.attachments().is_empty(),
        "nothing is given blindly"
    );
    s.make_port("late-0", &json!({"network": blue}));
    s.add(&s.one, &here, "late", &late);
    s.del(&s.one, &here, "late", &late);

    // What the Port says, the list does not.
    let both = json!({"podnet.dev/port": "late-0", "mac": "02:00:00:00:00:01"});
    let two = s.pod(&s.one, "two", &blue, &both);
    s.refused(&s.one, &here, ("two", &two), 7)
        .names(&["mac", "Port"]);
}

#[test]
fn a_port_of_a_network_without_addresses_has_a_mac_address() {
    let Some(s) = Nodes::start(testbed::test_name!(), "port-bare") else {
        return;
    };
    let network = s.network("bare", &[]);
    s.make_port("db-0", &json!({"network": network}));
    let uid = s.pod(&s.one, "web", &network, &of_port("db-0"));
    let here = s.one.node.pod("c1");
    assert!(s.add(&s.one, &here, "web", &uid).is_empty());
    let mac = Nodes::mac(&s.one, &here);
    let status = s.port("db-0")["status"].clone();
    assert_eq!((&status["mac"], &status["epoch"]), (&mac, &json!(1)));
    s.del(&s.one, &here, "web", &uid);
    // The same pod again.
    let again = s.one.node.pod("c3");
    assert!(s.add(&s.one, &again, "web", &uid).is_empty());
    assert_eq!(s.port("db-0")["status"], status);
    s.del(&s.one, &again, "web", &uid);
    s.one.delete_pod("web");
    let uid = s.pod(&s.two, "next", &network, &of_port("db-0"));
    let there = s.two.node.pod("c2");
    assert!(s.add(&s.two, &there, "next", &uid).is_empty());
    assert_eq!(Nodes::mac(&s.two, &there), mac);
}

/// A network may grow, and get a family more, under its Ports.
#[test]
fn a_port_keeps_what_it_has_when_the_subnets_of_its_network_change() {
    let Some(s) = Nodes::start(testbed::test_name!(), "port-grows") else {
        return;
    };
    let network = s.network("blue", &["10.146.0.0/24"]);
    s.make_port(
        "db-0",
        &json!({"network": network, "ipRequests": ["10.146.0.7/24"]}),
    );
    let uid = s.pod(&s.one, "first", &network, &of_port("db-0"));
    let here = s.one.node.pod("c1");
    let first = s.add(&s.one, &here, "first", &uid);
    assert_eq!(first, ["10.146.0.7/24"]);
    s.del(&s.one, &here, "first", &uid);
    s.one.delete_pod("first");
    s.network("blue", &["10.146.0.0/23", "fd16::/64"]);
    let uid = s.pod(&s.two, "second", &network, &of_port("db-0"));
    let there = s.two.node.pod("c2");
    let second = wait::until("both families", || {
        let found = s.add(&s.two, &there, "second", &uid);
        s.del(&s.two, &there, "second", &uid);
        (found.len() == 2).then_some(found)
    });
    assert_eq!(bare(&second[0]), bare(&first[0]));
    let ips = s.port("db-0")["status"]["ips"].clone();
    assert_eq!(
        ips,
        json!([first[0], second[1]]),
        "what it had stays as it was"
    );
    s.one.delete_pod("second");
    let uid = s.pod(&s.one, "third", &network, &of_port("db-0"));
    let here = s.one.node.pod("c3");
    assert_eq!(s.add(&s.one, &here, "third", &uid), second);
    s.del(&s.one, &here, "third", &uid);
}

#[test]
fn addresses_that_a_network_cannot_give_are_reserved_for_no_port() {
    let Some(s) = Nodes::start(testbed::test_name!(), "port-outside") else {
        return;
    };
    let network = s.network("blue", &["10.148.0.0/24"]);
    for (index, (ip, word)) in [
        ("198.51.100.7", "10.148.0.0/24"),
        ("10.148.0.255", "broadcast"),
        ("10.148.0.7/16", "10.148.0.7/24"),
    ]
    .into_iter()
    .enumerate()
    {
        let (port, pod) = (format!("db-{index}"), format!("web-{index}"));
        s.make_port(&port, &json!({"network": network, "ipRequests": [ip]}));
        let uid = s.pod(&s.one, &pod, &network, &of_port(&port));
        let sandbox = s.one.node.pod(&pod);
        s.refused(&s.one, &sandbox, (&pod, &uid), 7)
            .names(&[&port, &network, bare(ip), word]);
        assert!(s.port(&port)["status"].is_null(), "nothing is written");
    }
    assert_eq!(s.reservations(&network), []);
}

/// DES-09
#[test]
fn an_agent_gives_a_port_to_pods_of_its_node_and_changes_nothing_that_it_has() {
    let Some(s) = AgentScene::prepare(testbed::test_name!(), "policy-ports", &[]) else {
        return;
    };
    s.run(|admin| async {
        let agent: Api<Port> = Api::namespaced(s.as_agent().await, &s.name);
        let admin: Api<Port> = Api::namespaced(admin, &s.name);
        let port: Port = object(json!({
            "apiVersion": "podnet.dev/v1alpha1", "kind": "Port",
            "metadata": {"name": "db-0"},
            "spec": {"network": "blue", "macRequest": "02-00-00-00-00-07", "ipRequests": ["10.145.0.7"]},
        }));
        admin
            .create(&PostParams::default(), &port)
            .await
            .expect("a Port");
        let write = async |status: Value, dry_run: bool| {
            let params = PatchParams {
                dry_run,
                ..PatchParams::default()
            };
            let patch = Patch::Merge(json!({"status": status}));
            agent.patch_status("db-0", &params, &patch).await
        };
        let user = |node: &str| json!({"pod": "web", "uid": "u", "node": node});
        let begin = |ip: &str, mac: &str| {
            json!({"ips": [ip], "mac": mac, "user": user(&s.name), "epoch": 1})
        };
        let first = begin("10.145.0.7/24", "02:00:00:00:00:07");
        let strange = begin("10.145.0.8/24", "02:00:00:00:00:07");
        until_refused(async || write(strange.clone(), true).await).await;
        const MADE: Option<&str> = Some("that it was made with");
        check("not its addresses", write(strange, false).await, MADE);
        let strange = begin("10.145.0.7/24", "02:00:00:00:00:08");
        check("not its MAC address", write(strange, false).await, MADE);
        let strange = begin("x", "02:00:00:00:00:07");
        check("no address", write(strange, false).await, MADE);
        check("the first", write(first, false).await, None);
        let with = |key: &str, value: Value| {
            let mut status = json!({"user": user(&s.name), "epoch": 2});
            status[key] = value;
            status
        };
        const HAS: Option<&str> = Some("may not change");
        const ITS: Option<&str> = Some("pods of its own node only");
        let other = write(with("ips", json!(["10.145.0.8/24"])), false).await;
        check("other addresses", other, HAS);
        let more = json!(["10.145.0.7/24", "10.145.0.8/24"]);
        let more = write(with("ips", more), false).await;
        check("one more of a family that it has", more, HAS);
        let other = write(with("mac", json!("02:00:00:00:00:08")), false).await;
        check("another MAC address", other, HAS);
        let foreign = write(with("user", user("another-node")), false).await;
        check("a pod of another node", foreign, ITS);
        let uncounted = write(with("epoch", json!(1)), false).await;
        check("not counted", uncounted, ITS);
        let released = write(json!({"user": null}), false).await;
        check("released", released, ITS);
        let conditions = json!([{"type": "Ready", "status": "True", "reason": "Ready", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let ready = write(with("conditions", conditions), false).await;
        check("a condition", ready, Some("ips, mac, user and epoch"));
        let more = json!(["10.145.0.7/24", "fd14::7/64"]);
        check("the next pod, and a family more", write(with("ips", more), false).await, None);
    });
    proof::of!("DES-09");
}
