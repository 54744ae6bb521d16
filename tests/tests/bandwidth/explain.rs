//! `explain` follows packets through the queues of rates.

use serde_json::json;
use testbed::frame::marker;
use testbed::limit::{self, Interfaces};
use testbed::traffic;

use crate::limiting_node;

#[test]
fn a_packet_is_followed_through_the_queues_that_hold_it_back() {
    let node = limiting_node!();
    let (pa, pb) = (node.pod("a"), node.pod("b"));
    let egress = json!({"egressRate": 8_000_000});
    let ingress = json!({"ingressRate": 100_000_000});
    let a = pa.attach_conf(&limit::conf(&node, "blue", &egress), "net1");
    let b = pb.attach_conf(&limit::conf(&node, "blue", &ingress), "net1");
    let (from, to) = (Interfaces::of(&node, &a), Interfaces::of(&node, &b));
    let told = node.explain("a", &b.v4().to_string(), &["--proto", "udp:9"]);
    told.assert_is("delivered", "");
    assert_eq!(told.disagreements(), "[]");
    let far = limit::ifindex(&node, &from.far).expect("the far end");
    let mechanism = limit::discipline().expect("asked before").to_string();
    told.assert_tells(&[
        &format!("queue of {} | 8 Mbit/s", from.near),
        &format!("PORTS[{far}]"),
        "bpf_redirect, through its queue",
        &format!("queue of {} | 100 Mbit/s", to.host),
        &format!("by {mechanism}"),
    ]);
    let (mark, tap) = (marker(), b.tap());
    traffic::shout(&a, a.v4().into(), (b.v4(), 9).into(), &mark).expect("sent");
    tap.wait_marker("the datagram", &mark);
    // What the datapath answers waits for nobody.
    let told = node.explain("a", &b.v4().to_string(), &["--proto", "arp"]);
    told.assert_is("answered", "");
    assert!(!told.steps().contains("queue"), "{}", told.steps());
    // Somebody's queue in the place of the limit is told as what it is.
    limit::add_foreign_queue_instead(node.netns(), b.host_ifindex());
    let told = node.explain("a", &b.v4().to_string(), &[]);
    told.assert_is("delivered", "");
    told.assert_tells(&["a pfifo that is not podnet's"]);
    let said = told.disagreements();
    assert!(said.contains("replaced by a pfifo"), "{said}");
    pa.detach("blue", "net1");
    pb.detach("blue", "net1");
    node.assert_empty();
}
