//! Every command through libcni 1.3.0, which writes what runtimes write.

use testbed::{traffic, wait};

use super::libcni::Tools;

/// A pod runs ADD, CHECK, STATUS, DEL and DEL again, and talks to another's pod.
///
/// The other was attached by another runtime.
#[test]
fn a_pod_of_libcni_talks_to_its_network() {
    let Some(tools) = Tools::find(testbed::test_name!(), &[]) else {
        return;
    };
    let node = testbed::node!();
    let libcni = tools.on(&node);
    for network in ["blue", "green"] {
        libcni.alone(network);
        let (pod, other) = (node.pod("a"), node.pod("b"));
        libcni.of_network("status", network).silent();
        let port = libcni.attach(network, &pod, "net1");
        let peer = other.attach(network, "net1");
        assert_eq!(port.result["cniVersion"], "1.1.0");
        traffic::assert_reaches(&port, &peer);
        traffic::assert_reaches(&peer, &port);
        libcni.run("check", network, &pod, "net1").silent();
        libcni.detach(network, &pod, "net1");
        other.detach(network, "net1");
        node.assert_empty();
        drop((pod, other));
    }
}

/// One pod on two networks, and an interface without a given name.
#[test]
fn a_pod_of_libcni_can_be_on_several_networks() {
    let Some(tools) = Tools::find(testbed::test_name!(), &[]) else {
        return;
    };
    let node = testbed::node!();
    let libcni = tools.on(&node);
    libcni.alone("blue");
    libcni.alone("red");
    let pod = node.pod("a");
    libcni.attach("blue", &pod, "eth0");
    libcni.attach("red", &pod, "net1");
    libcni.run("check", "blue", &pod, "eth0").silent();
    libcni.run("check", "red", &pod, "net1").silent();
    libcni.run("del", "blue", &pod, "eth0").silent();
    assert_eq!(pod.links(), ["net1"]);
    libcni.detach("red", &pod, "net1");
    node.assert_empty();
}

/// CNI-ADD-04 through libcni: a second add is the same attachment.
#[test]
fn a_second_add_gives_the_same_addresses() {
    let Some(tools) = Tools::find(testbed::test_name!(), &[]) else {
        return;
    };
    let node = testbed::node!();
    let libcni = tools.on(&node);
    libcni.alone("blue");
    let pod = node.pod("a");
    let first = libcni.attach("blue", &pod, "net1");
    let second = libcni.attach("blue", &pod, "net1");
    assert_eq!(first.result, second.result);
    libcni.detach("blue", &pod, "net1");
    node.assert_empty();
    proof::of!("CNI-ADD-04", "RT-CT-01");
}

/// CNI-CHK-01: damage is told in words that libcni passes on.
#[test]
fn check_names_what_is_wrong() {
    let Some(tools) = Tools::find(testbed::test_name!(), &[]) else {
        return;
    };
    let node = testbed::node!();
    let libcni = tools.on(&node);
    libcni.alone("blue");
    let pod = node.pod("a");
    let port = libcni.attach("blue", &pod, "net1");
    let ifindex = port.link().expect("the interface is there").ifindex;
    pod.netlink()
        .delete(ifindex)
        .expect("the interface can be deleted");
    let ended = libcni.run("check", "blue", &pod, "net1");
    ended.fails_with(&["podnet", "net1 is gone"]);
    libcni.detach("blue", &pod, "net1");
    node.assert_empty();
    proof::of!("CNI-CHK-01");
}

/// CNI-GC-08: `gc` without a list removes stale attachments only.
///
/// libcni deletes what it remembers of this network, and podnet what has lost its pod. Neither touches
/// another network, nor another runtime's living pod.
#[test]
fn gc_removes_stale_attachments_of_its_network_only() {
    let Some(tools) = Tools::find(testbed::test_name!(), &[]) else {
        return;
    };
    let node = testbed::node!();
    let libcni = tools.on(&node);
    libcni.alone("blue");
    libcni.alone("red");
    let (mut stale, mut dead) = (node.pod("stale"), node.pod("dead"));
    let (alive, elsewhere) = (node.pod("alive"), node.pod("elsewhere"));
    libcni.attach("blue", &stale, "net1");
    stale.remove_netns();
    dead.attach("blue", "net1");
    dead.remove_netns();
    let living = alive.attach("blue", "net1");
    let red = libcni.attach("red", &elsewhere, "net1");
    let left = [
        ("alive".to_owned(), "net1".to_owned()),
        (red.container.clone(), "net1".to_owned()),
    ];
    // The kernel takes a namespace away when it likes to.
    wait::until_true("what has lost its pod to be collected", || {
        libcni.of_network("gc", "blue").silent();
        node.attachments() == left
    });
    assert!(living.link().is_some() && red.link().is_some());
    libcni.run("check", "red", &elsewhere, "net1").silent();
    libcni.of_network("gc", "red").silent();
    assert_eq!(elsewhere.links(), Vec::<String>::new());
    assert_eq!(alive.links(), ["net1"]);
    alive.detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-GC-08", "CNI-GC-02", "CNI-GC-03", "RT-CT-01");
}

/// A runtime that lost its pod's namespace can still delete its attachments.
///
/// It crashed before.
#[test]
fn del_works_after_the_namespace_is_gone() {
    let Some(tools) = Tools::find(testbed::test_name!(), &[]) else {
        return;
    };
    let node = testbed::node!();
    let libcni = tools.on(&node);
    libcni.alone("blue");
    let mut pod = node.pod("a");
    let path = pod.path().to_owned();
    libcni.attach("blue", &pod, "net1");
    pod.remove_netns();
    libcni.run_at("del", "blue", &path, "net1").silent();
    libcni.run_at("del", "blue", &path, "net1").silent();
    node.assert_empty();
}

/// CNI-ERR-05, CNI-DEL-05: without an agent `add` fails, and `del` leaves a note.
///
/// `status` says that there is no agent, too.
#[test]
fn without_an_agent_libcni_is_told_so() {
    let Some(tools) = Tools::find(testbed::test_name!(), &[]) else {
        return;
    };
    let node = testbed::node!();
    let libcni = tools.on(&node);
    libcni.alone("blue");
    let (pod, late) = (node.pod("a"), node.pod("late"));
    libcni.attach("blue", &pod, "net1");
    node.kill_9();
    libcni
        .run("add", "blue", &late, "net1")
        .fails_with(&["podnet-agent"]);
    libcni
        .of_network("status", "blue")
        .fails_with(&["podnet-agent"]);
    // What the note says is for the runtime's log.
    libcni.run("del", "blue", &pod, "net1").succeeds();
    assert_eq!(node.tombstones().len(), 1);
    node.start_agent();
    wait::until_true("the note to be read", || node.tombstones().is_empty());
    node.assert_empty();
    assert_eq!(pod.links(), Vec::<String>::new());
    libcni.of_network("status", "blue").silent();
    proof::of!("CNI-ERR-05", "CNI-DEL-05");
}

/// CNI-STATUS: a network that does not exist is not ready.
#[test]
fn status_of_an_unknown_network_fails() {
    let Some(tools) = Tools::find(testbed::test_name!(), &[]) else {
        return;
    };
    let node = testbed::node!();
    let libcni = tools.on(&node);
    libcni.alone("nosuch");
    let pod = node.pod("a");
    libcni
        .of_network("status", "nosuch")
        .fails_with(&["nosuch"]);
    libcni
        .run("add", "nosuch", &pod, "net1")
        .fails_with(&["nosuch"]);
    libcni.detach("nosuch", &pod, "net1");
    node.assert_empty();
}
