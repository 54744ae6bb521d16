//! Agents that die, tables that somebody tidied.

use testbed::stream::Stream;
use testbed::{host, traffic, wait};

use super::scene::{BEYOND, NODE, PROTOCOL, attached, call, close, ip, settle_world, setup};

/// `kill -9`, some time without an agent, and a new one; twice.
#[test]
fn kill_9_and_restart_lose_nothing_of_what_the_node_routes() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let ((pa, a), (pb, b)) = (attached(&node, "a", "white"), attached(&node, "b", "white"));
    let streams: Vec<Stream> = traffic::pairs(&a, &b)
        .into_iter()
        .map(|(from, to)| Stream::start(&a, from, &b, to))
        .collect();
    for _ in 0..2 {
        node.kill_9();
        streams.iter().for_each(Stream::progress);
        let seen = call(&a.netns, node.host().outside(), ip(BEYOND[0]), 8080);
        assert_eq!(seen, ip(NODE[0]), "masquerading goes on");
        node.start_agent();
        streams.iter().for_each(Stream::progress);
    }
    for stream in streams {
        stream.assert_nothing_lost();
    }
    close(&node, &[&pa, &pb], "white");
}

/// Down and up again, a link has lost its routes and its neighbours.
#[test]
fn routes_and_neighbours_that_a_link_lost_are_made_again_by_the_next_audit() {
    let node = testbed::node!(setup().with_audits_logged());
    let (pod, port) = attached(&node, "a", "white");
    node.assert_audit_finds_nothing("white");
    let mut here = host::connection(node.netns());
    let link = port.host_ifindex();
    for up in [false, true] {
        here.reconfigure(link, &netdev::LinkChange::updown(up))
            .expect("the link can be set");
        // An audit may come round as soon as it is up.
        let routes = here.routes_by(PROTOCOL).expect("a list").len();
        assert!(up || routes < 2, "{routes} routes");
    }
    // A GC without a list asks for an audit.
    let conf = node.conf("white");
    node.cni("GC").conf(&conf).run().silent();
    wait::until_true("the routes to be back", || {
        here.routes_by(PROTOCOL).expect("a list").len() == 2
    });
    for (address, _) in &port.ips {
        call(node.netns(), &port.netns, *address, 8080);
    }
    node.assert_audit_finds_nothing("white");
    close(&node, &[&pod], "white");
}
