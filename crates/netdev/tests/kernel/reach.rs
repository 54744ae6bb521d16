//! Addresses behind a link of the node, and the routes of other nodes.

use netdev::{Address, Connection, Error, Mac, Neighbour, Route, RouteKind, VethPair};

use crate::{POD_MAC, Scene, chain, ip, pair};

/// A number that no other program uses for routes.
const OURS: u8 = 112;

fn at(text: &str, mac: Mac) -> Neighbour {
    Neighbour {
        address: ip(text),
        mac,
    }
}

fn up(node: &mut Connection) -> VethPair {
    let pair = pair(node);
    node.set_up(pair.peer_ifindex).expect("peer up");
    node.set_up(pair.host_ifindex).expect("host end up");
    pair
}

#[test]
fn a_reached_address_has_a_route_of_its_own_and_needs_nobody_to_be_asked() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    let link = up(&mut node).host_ifindex;
    let wanted = [at("10.7.0.2", POD_MAC), at("fd10::2", POD_MAC)];
    assert_eq!(node.unreached(link, &wanted).expect("a look"), wanted);
    node.reach(link, &wanted, OURS).expect("made");
    assert_eq!(node.unreached(link, &wanted).expect("a look"), []);
    for one in wanted {
        let found = node.route_to(one.address).expect("an answer");
        let found = found.expect("a route");
        assert!(found.is_on_link(), "{found}");
        assert_eq!(found.ifindex, link);
    }
    let listed = node.routes_by(OURS).expect("a list");
    let listed: Vec<_> = listed.iter().map(|route| route.dst).collect();
    assert_eq!(listed, [ip("10.7.0.2"), ip("fd10::2")]);
    // Made again, it is the same, and another MAC address takes the place of the first.
    let moved = [at("10.7.0.2", [2, 0, 0, 0, 0, 0x2b]), wanted[1]];
    assert_eq!(node.unreached(link, &moved).expect("a look"), moved[..1]);
    node.reach(link, &moved, OURS).expect("made again");
    assert_eq!(node.unreached(link, &moved).expect("a look"), []);
    assert!(node.delete(link).expect("deleted"));
    assert_eq!(node.routes_by(OURS).expect("a list"), []);
}

#[test]
fn one_list_says_of_every_link_what_is_reached_behind_it() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    let link = up(&mut node).host_ifindex;
    let wanted = [at("10.7.0.2", POD_MAC), at("fd10::2", POD_MAC)];
    let list = |node: &mut Connection| node.reached(OURS).expect("a list");
    let has = |node: &mut Connection, index, one| list(node).has(index, &one);
    assert!(wanted.iter().all(|one| !has(&mut node, link, *one)));
    node.reach(link, &wanted, OURS).expect("made");
    assert!(wanted.iter().all(|one| has(&mut node, link, *one)));
    assert!(!has(&mut node, link + 1, wanted[0]), "another link");
    let moved = at("10.7.0.2", [2, 0, 0, 0, 0, 0x2b]);
    assert!(!has(&mut node, link, moved), "another MAC address");
    // The route goes with the link's state, and the neighbour stays.
    node.reconfigure(link, &netdev::LinkChange::updown(false))
        .expect("down");
    assert!(!has(&mut node, link, wanted[0]), "no route");
}

#[test]
fn an_address_that_the_node_has_or_routes_elsewhere_is_refused_and_nothing_is_made() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    let pair = up(&mut node);
    let own = Address::new(ip("10.7.0.9"), 24);
    node.add_address(pair.peer_ifindex, own).expect("added");
    let foreign = Route::new(ip("fd10::3"), 128, None, pair.peer_ifindex);
    node.add_route(&foreign).expect("added");
    for (taken, words) in [
        ("10.7.0.9", "an address of its own"),
        ("fd10::3", "out of link"),
    ] {
        let wanted = [at("10.7.0.2", POD_MAC), at(taken, POD_MAC)];
        let error = node
            .reach(pair.host_ifindex, &wanted, OURS)
            .expect_err("refused");
        assert!(matches!(error, Error::Routed { .. }), "{error:?}");
        assert!(chain(&error).contains(words), "{}", chain(&error));
        assert!(chain(&error).contains(taken), "{}", chain(&error));
        assert_eq!(node.routes_by(OURS).expect("a list"), []);
    }
    // One within a larger route is not taken: the longer prefix wins.
    let within = [at("10.7.0.2", POD_MAC)];
    node.reach(pair.host_ifindex, &within, OURS).expect("made");
}

#[test]
fn a_route_is_found_as_the_kernel_would_choose_it() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    assert_eq!(node.route_to(ip("10.7.0.2")).expect("an answer"), None);
    assert_eq!(node.route_to(ip("fd10::2")).expect("an answer"), None);
    let link = up(&mut node).host_ifindex;
    // Of IPv6 the kernel makes the like some moments later, in a work queue.
    node.add_address(link, Address::new(ip("10.7.0.1"), 24))
        .expect("added");
    let local = node.route_to(ip("10.7.0.1")).expect("an answer");
    assert_eq!(local.expect("its own").kind, RouteKind::Local);
    let near = node.route_to(ip("10.7.0.2")).expect("an answer");
    let near = near.expect("a route");
    assert_eq!((near.prefix_len, near.is_on_link()), (24, true));
    node.add_route(&Route::new(ip("10.8.0.0"), 16, Some(ip("10.7.0.2")), link))
        .expect("added");
    let far = node.route_to(ip("10.8.1.1")).expect("an answer");
    let far = far.expect("a route");
    assert_eq!(
        (far.gateway, far.is_on_link()),
        (Some(ip("10.7.0.2")), false)
    );
}

#[test]
fn a_route_is_removed_only_under_the_protocol_it_was_made_with() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    let link = up(&mut node).host_ifindex;
    let ours = Route {
        protocol: Some(OURS),
        ..Route::new(ip("10.8.0.0"), 16, None, link)
    };
    let foreign = Route {
        metric: Some(7),
        ..Route::new(ip("10.8.0.0"), 16, None, link)
    };
    for route in [&foreign, &ours] {
        node.add_route(route).expect("added");
    }
    assert!(node.remove_route(&ours).expect("removed"));
    assert!(!node.remove_route(&ours).expect("gone already"));
    let left = node.routes(link).expect("a list");
    let left: Vec<_> = left
        .iter()
        .filter(|route| route.dst == ours.dst)
        .map(|route| route.metric)
        .collect();
    assert_eq!(left, [Some(7)]);
}
