//! Test that damage to queues is found, logged and repaired.
//!
//! Queues of other programs are respected.

use netdev::{LinkChange, RootQueue};
use serde_json::{Value, json};
use testbed::limit::{self, Interfaces};
use testbed::{Node, Pod, Port, traffic, wait};

use crate::limiting_node;

const RATE: u64 = 10_000_000;

fn attach(node: &Node, pod: &Pod<'_>) -> Port {
    let both = json!({"ingressRate": RATE, "egressRate": RATE});
    pod.attach_conf(&limit::conf(node, "blue", &both), "net1")
}

/// `GC` without a list has the audit done (CNI-GC-01).
fn audit(node: &Node) {
    node.cni("GC").conf(&node.conf("blue")).run().silent();
}

/// A limit that was removed or changed is restored at once, on the kernel's event.
///
/// The kernel sends one for the root of a link.
#[test]
fn a_limit_that_somebody_removed_or_changed_is_put_back_at_once() {
    let node = limiting_node!();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let (pa, pb) = (attach(&node, &a), b.attach("blue", "net1"));
    let names = Interfaces::of(&node, &pa);
    let discipline = limit::discipline().expect("asked before");
    let faster = netdev::Shape::new(1_000_000_000, None, 1500);
    let mut netlink = testbed::host::connection(node.netns());
    for name in [&names.host, &names.near] {
        let ifindex = limit::ifindex(&node, name).expect("it is there");
        let intact = limit::limit(&node, name).shape;
        for removed in [true, false] {
            if removed {
                limit::remove_queue(node.netns(), ifindex);
            } else {
                // In two steps, and the agent may mend the first before the second.
                wait::until_true("limits that were changed", || {
                    netlink.shape(ifindex, &faster, discipline).is_ok()
                });
            }
            wait::until_true(
                "the limit as it was",
                || matches!(limit::root(&node, name), RootQueue::Ours(found) if found.shape == intact),
            );
        }
    }
    traffic::assert_reaches(&pa, &pb);
    a.check("blue", "net1", &pa.result).silent();
    a.detach("blue", "net1");
    b.detach("blue", "net1");
    node.assert_empty();
}

/// CNI-CHK-02, CNI-CHK-05: damage without a kernel event is mended by CHECK.
///
/// The audit repairs it, too. Another program's queue in place of podnet's is damage that CHECK tells: it is
/// not removed.
#[test]
fn a_limit_that_is_broken_or_replaced_is_damage() {
    let node = limiting_node!();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let (pa, pb) = (attach(&node, &a), b.attach("blue", "net1"));
    let names = Interfaces::of(&node, &pa);
    for name in [&names.host, &names.near] {
        let ifindex = limit::ifindex(&node, name).expect("it is there");
        let intact = limit::limit(&node, name);
        for mend in [true, false] {
            limit::remove_inner_queue(node.netns(), ifindex);
            match mend {
                true => a.check("blue", "net1", &pa.result).silent(),
                false => audit(&node),
            }
            let mended = limit::limit(&node, name);
            assert_eq!(mended.shape, intact.shape);
            assert_eq!(mended.discipline, intact.discipline);
        }
        a.check("blue", "net1", &pa.result).silent();
    }
    let host = pa.host_ifindex();
    limit::add_foreign_queue_instead(node.netns(), host);
    let checked = a.check("blue", "net1", &pa.result);
    checked.fails_with(150).names(&[&names.host, "pfifo"]);
    let gc = node.cni("GC").conf(&node.conf("blue")).run();
    gc.error().names(&["pfifo"]);
    limit::remove_queue(node.netns(), host);
    wait::until_true("the limit to be put back", || {
        a.check("blue", "net1", &pa.result).success
    });
    traffic::assert_reaches(&pa, &pb);
    a.detach("blue", "net1");
    b.detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-CHK-02", "CNI-CHK-05");
}

/// A shaper that is deleted is made again on the kernel's event.
///
/// Meanwhile the pod sends nothing, rather than without a limit.
#[test]
fn a_shaper_that_somebody_deleted_is_made_anew() {
    let node = limiting_node!();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let (pa, pb) = (attach(&node, &a), b.attach("blue", "net1"));
    let names = Interfaces::of(&node, &pa);
    for name in [&names.near, &names.far] {
        let before = limit::ifindex(&node, &names.near);
        let ifindex = limit::ifindex(&node, name).expect("it is there");
        let mut netlink = testbed::host::connection(node.netns());
        assert!(netlink.delete(ifindex).expect("links can be removed"));
        wait::until_true("another shaper", || {
            let now = limit::ifindex(&node, &names.near);
            now.is_some() && now != before && a.check("blue", "net1", &pa.result).success
        });
        limit::flood(&pa, pa.v4().into(), &pb, pb.v4().into(), 100_000).assert_limited(RATE);
    }
    a.detach("blue", "net1");
    b.detach("blue", "net1");
    node.assert_empty();
}

/// CNI-CHK-05: A shaper that is down or has lost its program is repaired.
///
/// By the audit, or by CHECK before it answers. Without the program at its far end packets would go to the node.
#[test]
fn a_shaper_that_somebody_broke_is_mended() {
    let node = limiting_node!(testbed::Setup::default().with_audits_logged());
    let (a, b) = (node.pod("a"), node.pod("b"));
    let (pa, pb) = (attach(&node, &a), b.attach("blue", "net1"));
    node.assert_audit_finds_nothing("blue");
    let names = Interfaces::of(&node, &pa);
    let mut netlink = testbed::host::connection(node.netns());
    for name in [&names.near, &names.far] {
        for by_audit in [true, false] {
            let ifindex = limit::ifindex(&node, name).expect("it is there");
            let down = LinkChange::updown(false);
            netlink.reconfigure(ifindex, &down).expect("down");
            match by_audit {
                true => audit(&node),
                false => a.check("blue", "net1", &pa.result).silent(),
            }
            traffic::assert_reaches(&pa, &pb);
            a.check("blue", "net1", &pa.result).silent();
        }
    }
    let far = limit::ifindex(&node, &names.far).expect("it is there");
    testbed::host::remove_clsact(node.netns(), far);
    wait::until_true("the program to be attached again", || {
        a.check("blue", "net1", &pa.result).success
    });
    traffic::assert_reaches(&pa, &pb);
    node.assert_audit_finds_nothing("blue");
    a.detach("blue", "net1");
    b.detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-CHK-05");
}

fn row(node: &Node, container: &str) -> Value {
    let mut rows = node.get("attachments").into_iter();
    let row = rows.find(|row| row["container"] == container);
    row.expect("the attachment is there")
}

/// Another program's queue at an unlimited port's host end is not bypassed.
///
/// The reference `bandwidth` plugin puts one there.
#[test]
fn a_queue_of_somebody_else_is_used_and_left_alone() {
    let node = limiting_node!();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let (pa, pb) = (a.attach("blue", "net1"), b.attach("blue", "net1"));
    assert_eq!(row(&node, "a")["foreignQueue"], false);
    let host = pa.host_ifindex();
    limit::add_foreign_queue(node.netns(), host);
    wait::until_true("the queue to be noticed", || {
        row(&node, "a")["foreignQueue"] == true
    });
    assert_eq!(row(&node, "b")["foreignQueue"], false);
    for (from, to) in traffic::pairs(&pb, &pa) {
        let before = limit::sent_through(node.netns(), host);
        limit::tcp(&pb, &pa, to, 100_000);
        let through = limit::sent_through(node.netns(), host) - before;
        assert!(through > 0, "{from} went past the queue");
    }
    a.check("blue", "net1", &pa.result).silent();
    node.restart();
    assert_eq!(row(&node, "a")["foreignQueue"], true);
    let name = Interfaces::of(&node, &pa).host;
    assert!(matches!(limit::root(&node, &name), RootQueue::Foreign { kind } if kind == "pfifo"));
    limit::remove_queue(node.netns(), host);
    wait::until_true("the fast way again", || {
        row(&node, "a")["foreignQueue"] == false
    });
    traffic::assert_reaches(&pa, &pb);
    a.detach("blue", "net1");
    b.detach("blue", "net1");
    node.assert_empty();
}

/// An ADD that fails when everything but the shaper is there leaves nothing.
#[test]
fn a_shaper_that_cannot_be_made_fails_the_add_and_leaves_nothing() {
    let node = limiting_node!();
    let pod = node.pod("a");
    // Where the far end has to go.
    let port = attach(&node, &pod);
    let names = Interfaces::of(&node, &port);
    pod.detach("blue", "net1");
    let mut netlink = testbed::host::connection(node.netns());
    let stranger = netdev::VethSpec::new("stranger", &names.far);
    let pair = netlink.create_veth(&stranger).expect("somebody's link");
    let links = node.links().len();
    let both = json!({"ingressRate": RATE, "egressRate": RATE});
    let outcome = pod.add_conf(&limit::conf(&node, "blue", &both), "net1");
    assert!(!outcome.success, "{outcome}");
    assert!(pod.links().is_empty());
    assert_eq!(node.links().len(), links, "{:?}", node.links());
    node.assert_empty();
    netlink
        .delete(pair.host_ifindex)
        .expect("links can be removed");
    attach(&node, &pod);
    pod.detach("blue", "net1");
    node.assert_empty();
}
