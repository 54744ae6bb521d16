//! Records that an agent cannot use: damaged, or written by another one.

use store::{Batch, Store, Table};
use testbed::{Node, Setup, traffic};

/// Replaces what the store has under a key, while no agent runs.
fn damage(node: &Node, table: Table, key: &str, change: impl FnOnce(String) -> String) {
    let [lasting, of_boot] =
        ["state", "run/records"].map(|directory| node.path(directory).join("attachments.redb"));
    let store = Store::open_apart(lasting, of_boot).expect("the agent has ended");
    let value = store
        .get(table, key.as_bytes())
        .expect("the store can be read");
    let text = String::from_utf8(value.unwrap_or_default()).expect("JSON");
    let batch = Batch::new().put(table, key.as_bytes(), change(text).as_bytes());
    store.commit(batch).expect("the store can be written");
}

/// ATT-15b: an agent with a damaged record starts, and serves other attachments.
///
/// Nothing is left of the attachment whose record was set aside that could send with an address of
/// another pod.
#[test]
fn one_damaged_record_does_not_stop_the_node() {
    let node = testbed::node!();
    let (a, b, c) = (node.pod("a"), node.pod("b"), node.pod("c"));
    let mut conf = node.conf("blue");
    conf["runtimeConfig"] =
        serde_json::json!({"ips": ["10.10.0.42/24"], "mac": "02:00:00:00:00:2a"});
    a.attach_conf(&conf, "net1");
    let (pb, pc) = (b.attach("blue", "net1"), c.attach("blue", "net1"));
    node.terminate();
    damage(&node, Table::Attachments, "a/net1", |text| {
        text.replace("\"Added\"", "\"Frozen\"")
    });
    damage(&node, Table::Pods, "a/eth0", |_| "{}".to_owned());
    node.start_agent();
    traffic::assert_reaches(&pb, &pc);
    assert!(a.links().is_empty(), "{:?}", a.links());
    let rows = node.get("attachments");
    let aside: Vec<_> = rows
        .iter()
        .filter(|row| row["state"] == "SetAside")
        .collect();
    assert_eq!(aside.len(), 2, "{rows:?}");
    let of_attachment = aside
        .iter()
        .find(|row| row["ifname"] == "net1")
        .expect("it is shown");
    let reason = of_attachment["setAside"]["reason"]
        .as_str()
        .unwrap_or_default();
    assert!(reason.contains("Frozen"), "{reason}");
    let (_, metrics) = node.http("/metrics").expect("the agent answers");
    assert!(metrics.contains("podnet_records_set_aside 2"), "{metrics}");
    // Address and MAC are another's now, and nobody answers for them but that one.
    let d = node.pod("d");
    let pd = d.attach_conf(&conf, "net1");
    traffic::assert_reaches(&pb, &pd);
    // A start later it is still known, and a DEL ends that.
    node.restart();
    let held = |state: &str| {
        let rows = node.get("attachments");
        rows.iter().filter(|row| row["state"] == state).count()
    };
    assert_eq!((held("SetAside"), held("Added")), (2, 3));
    a.del("blue", "net1").silent();
    a.del("blue", "eth0").silent();
    assert_eq!(held("SetAside"), 0);
    for pod in [&b, &c, &d] {
        pod.detach("blue", "net1");
    }
    node.assert_empty();
    proof::of!("ATT-15b");
}

/// ATT-15b: set-aside records of a pod that lists its networks end with its `DEL`.
#[test]
fn a_pod_of_many_networks_leaves_nothing_set_aside() {
    let node = testbed::node!(Setup::default().args(&["--default-network", "podnetwork:blue"]));
    let a = node.pod("a");
    let conf = node.pod_conf(&serde_json::json!({}));
    let ask = |command: &str| {
        let call = node.cni(command).container(a.container());
        call.netns(a.path()).ifname("eth0").conf(&conf).run()
    };
    ask("ADD").result();
    node.terminate();
    damage(&node, Table::Attachments, "a/eth0", |text| {
        text.replace("\"Added\"", "\"Frozen\"")
    });
    node.start_agent();
    let rows = node.get("attachments");
    assert!(
        rows.iter().any(|row| row["state"] == "SetAside"),
        "{rows:?}"
    );
    ask("DEL").silent();
    node.assert_empty();
    let rows = node.get("attachments");
    assert!(rows.is_empty(), "{rows:?}");
    proof::of!("ATT-15b");
}

/// ATT-15b: an agent with fewer ports than before serves all that find room.
#[test]
fn fewer_ports_do_not_stop_the_node() {
    let node = testbed::node!();
    let pods: Vec<_> = (0..4).map(|n| node.pod(&format!("p{n}"))).collect();
    let ports: Vec<_> = pods.iter().map(|pod| pod.attach("blue", "net1")).collect();
    pods[0].detach("blue", "net1");
    node.terminate();
    // The last of the ports has number 3.
    node.start_agent_with(&["--max-ports", "3"]);
    traffic::assert_reaches(&ports[1], &ports[3]);
    for pod in &pods[1..] {
        pod.detach("blue", "net1");
    }
    node.assert_empty();
    proof::of!("ATT-15b");
}
