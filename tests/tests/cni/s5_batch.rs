//! DELs of many pods at once, whose links go together.

use std::fs;
use std::process::Stdio;
use std::thread;

use testbed::host::{UPLINK, connection};
use testbed::schedule::Schedule;
use testbed::{Node, Pod, Port, Setup, wait};

/// Pods with their ports, which have their TCX links where the kernel has them.
fn attached<'a>(node: &'a Node, count: usize) -> Vec<(Pod<'a>, Port)> {
    let pods = (0..count).map(|number| node.pod(&format!("p{number}")));
    let attached = pods.map(|pod| {
        let port = pod.attach("blue", "net1");
        (pod, port)
    });
    let attached: Vec<_> = attached.collect();
    if !testbed::skip::without_tcx("waiting for TCX links") {
        for (_, port) in &attached {
            node.wait_tcx(port);
        }
    }
    attached
}

fn assert_gone(node: &Node, pods: &[(Pod<'_>, Port)]) {
    for (pod, _) in pods {
        assert!(pod.links().is_empty(), "{}", pod.container());
    }
    let pins = fs::read_dir(node.bpffs().join("links"));
    assert_eq!(pins.map_or(0, Iterator::count), 0, "pins of TCX links");
    let links = node.links().into_iter();
    let left: Vec<_> = links.filter(|link| link.name.starts_with("pn")).collect();
    assert!(left.is_empty(), "{left:?}");
    node.assert_empty();
}

/// Ports with TCX links, which the kernel waits for.
#[test]
fn fifty_dels_at_once_leave_nothing() {
    let node = testbed::node!();
    let pods = attached(&node, 50);
    thread::scope(|scope| {
        for (pod, _) in &pods {
            scope.spawn(move || pod.del("blue", "net1").silent());
        }
    });
    assert_gone(&node, &pods);
}

/// The kernel removes whatever is in the group of links that go together.
#[test]
fn an_interface_of_others_that_gets_into_the_group_of_a_removal_stays() {
    let held = tempfile::tempdir().expect("a directory");
    let path = held.path().to_str().expect("a path in UTF-8");
    let node = testbed::node!(Setup::default().env("PODNET_PAUSE_IN", path));
    let schedule = Schedule::new(held.path());
    let pods = attached(&node, 20);
    schedule.pause("del.grouped");
    thread::scope(|scope| {
        for (pod, _) in &pods {
            scope.spawn(move || pod.del("blue", "net1").silent());
        }
        schedule.wait_held("del.grouped");
        let groups = node.links().into_iter().map(|link| link.group);
        let group = groups.max().expect("a link");
        assert_ne!(group, 0, "a link in a group");
        let joined = connection(node.netns()).join_group(&[UPLINK.to_owned()], group);
        assert!(matches!(joined.as_deref(), Ok([Ok(true)])), "{joined:?}");
        schedule.release("del.grouped");
    });
    assert_gone(&node, &pods);
    let mut links = node.links().into_iter();
    assert!(links.any(|link| link.name == UPLINK), "the uplink is gone");
}

/// `kill -9` between the steps of a removal of many.
#[test]
fn an_agent_that_is_killed_while_it_removes_many_is_followed_by_one_that_ends_it() {
    for point in ["del.grouped", "del.expedited"] {
        let held = tempfile::tempdir().expect("a directory");
        let path = held.path().to_str().expect("a path in UTF-8");
        let node = testbed::node!(Setup::default().env("PODNET_PAUSE_IN", path));
        let schedule = Schedule::new(held.path());
        let pods = attached(&node, 20);
        schedule.pause(point);
        let conf = node.conf("blue");
        let dels = pods.iter().map(|(pod, _)| {
            let call = pod.call("DEL", "net1").conf(&conf);
            call.spawn(Stdio::piped())
        });
        let dels: Vec<_> = dels.collect();
        schedule.wait_held(point);
        node.kill_9();
        for del in dels {
            let output = del.wait_with_output().expect("podnet ends");
            assert!(output.status.success(), "{point}: {output:?}");
        }
        schedule.release(point);
        node.start_agent();
        wait::until_true("the DELs to be served", || node.attachments().is_empty());
        assert_gone(&node, &pods);
        let mark = node.path("run").join("rcu-expedited");
        assert!(!mark.exists(), "{point}: grace periods stay short");
    }
}
