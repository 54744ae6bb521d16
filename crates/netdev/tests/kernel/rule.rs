//! Rules for the host's own packets.

use netdev::{Address, OwnTable, Route, RouteKind};

use crate::{Scene, ip, pair};

const TABLE: OwnTable = OwnTable {
    table: 1000,
    priority: 30_000,
    protocol: 112,
};

#[test]
fn packets_that_begin_at_the_host_take_the_routes_of_the_table_with_their_source() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    let ends = pair(&mut node);
    node.set_up(ends.host_ifindex).expect("up");
    node.set_up(ends.peer_ifindex).expect("up");
    for (own, to, length) in [
        ("192.0.2.1", "10.1.0.0", 16),
        ("2001:db8::1", "fd10:1::", 64),
    ] {
        let full = if ip(own).is_ipv4() { 32 } else { 128 };
        let address = Address {
            host_only: true,
            ..Address::new(ip(own), full)
        };
        node.add_address(ends.host_ifindex, address).expect("added");
        let route = Route {
            table: Some(TABLE.table),
            source: Some(ip(own)),
            ..Route::new(ip(to), length, None, ends.host_ifindex)
        };
        node.add_route(&route).expect("added");
    }
    let leads = |node: &mut netdev::Connection| {
        ["10.1.2.3", "fd10:1::7"].map(|to| {
            let found = node.route_to(ip(to)).expect("an answer");
            found.is_some_and(|it| it.kind == RouteKind::Unicast && it.ifindex == ends.host_ifindex)
        })
    };
    assert_eq!(leads(&mut node), [false; 2]);
    assert!(!node.leads_own_packets(&TABLE).expect("a list"));
    for _ in 0..2 {
        node.lead_own_packets(&TABLE).expect("led");
        assert_eq!(leads(&mut node), [true; 2]);
        assert!(node.leads_own_packets(&TABLE).expect("a list"));
    }
    let listed = node.routes_beside(TABLE.table).expect("a list");
    assert_eq!(
        listed
            .iter()
            .filter(|it| it.table == Some(TABLE.table))
            .count(),
        2
    );
    assert!(node.release_own_packets(&TABLE).expect("released"));
    assert_eq!(
        leads(&mut node),
        [false; 2],
        "one rule a family, however often it was asked for"
    );
    assert!(
        !node
            .release_own_packets(&TABLE)
            .expect("nothing to release")
    );
}
