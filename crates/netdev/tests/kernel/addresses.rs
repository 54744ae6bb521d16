//! Addresses, routes and per-link settings.

use netdev::{Address, Family, Route, RouteScope, Sysctl};

use crate::{Scene, chain, ip, pair};

#[test]
fn an_ipv6_address_without_detection_is_usable_at_once() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    let pair = pair(&mut node);
    node.set_up(pair.peer_ifindex).expect("peer up");
    node.set_up(pair.host_ifindex).expect("host end up");
    let sure = Address::new(ip("fd10::1"), 64);
    let unsure = Address {
        nodad: false,
        ..Address::new(ip("fd10::2"), 64)
    };
    node.add_address(pair.host_ifindex, sure).expect("added");
    node.add_address(pair.host_ifindex, unsure).expect("added");
    let listed = node.addresses(pair.host_ifindex).expect("a list");
    let tentative = |ip| {
        listed
            .iter()
            .find(|state| state.ip == ip)
            .map(|state| state.tentative)
    };
    assert_eq!(tentative(sure.ip), Some(false));
    assert_eq!(tentative(unsure.ip), Some(true));
}

#[test]
fn an_address_is_added_once() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    let pair = pair(&mut node);
    for text in ["10.1.2.3", "fd10::3"] {
        let address = Address::new(ip(text), 24);
        node.add_address(pair.host_ifindex, address).expect("added");
        let error = node
            .add_address(pair.host_ifindex, address)
            .expect_err("refused");
        assert!(error.is_exists(), "{error:?}");
        assert!(chain(&error).contains(text), "{}", chain(&error));
    }
    // Another link's addresses are not mixed in.
    node.add_address(pair.peer_ifindex, Address::new(ip("10.9.9.9"), 24))
        .expect("added");
    let listed: Vec<_> = node.addresses(pair.host_ifindex).expect("a list");
    let listed: Vec<_> = listed
        .into_iter()
        .map(|state| (state.ip, state.prefix_len))
        .collect();
    assert_eq!(listed, [(ip("10.1.2.3"), 24), (ip("fd10::3"), 24)]);
}

#[test]
fn routes_are_read_back_as_they_were_added() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    let pair = pair(&mut node);
    let ifindex = pair.host_ifindex;
    node.set_up(pair.peer_ifindex).expect("peer up");
    node.set_up(ifindex).expect("host end up");
    node.add_address(ifindex, Address::new(ip("10.1.0.5"), 32))
        .expect("added");
    node.add_address(ifindex, Address::new(ip("fd10::5"), 64))
        .expect("added");
    let onlink = Route {
        onlink: true,
        ..Route::default_via(ip("169.254.1.1"), ifindex)
    };
    let tuned = Route {
        metric: Some(50),
        mtu: Some(1400),
        advmss: Some(1300),
        table: Some(1000),
        ..Route::new(ip("10.2.0.0"), 16, None, ifindex)
    };
    let v4_over_v6 = Route::new(ip("10.3.0.0"), 16, Some(ip("fe80::1")), ifindex);
    let v6 = Route {
        metric: Some(5),
        ..Route::default_via(ip("fd10::1"), ifindex)
    };
    for route in [onlink, tuned, v4_over_v6, v6] {
        node.add_route(&route)
            .unwrap_or_else(|error| panic!("{}", chain(&error)));
    }
    let listed = node.routes(ifindex).expect("a list");
    let find = |wanted: &Route| {
        let same = |r: &&Route| (r.dst, r.prefix_len) == (wanted.dst, wanted.prefix_len);
        *listed
            .iter()
            .find(same)
            .unwrap_or_else(|| panic!("{wanted} not in {listed:?}"))
    };
    let main = |route: Route, scope| Route {
        table: Some(254),
        scope: Some(scope),
        // RTPROT_STATIC
        protocol: Some(4),
        ..route
    };
    assert_eq!(find(&onlink), main(onlink, RouteScope::Universe));
    assert_eq!(
        find(&tuned),
        Route {
            scope: Some(RouteScope::Link),
            protocol: Some(4),
            ..tuned
        }
    );
    assert_eq!(find(&v4_over_v6), main(v4_over_v6, RouteScope::Universe));
    assert_eq!(find(&v6), main(v6, RouteScope::Universe));

    let error = node.add_route(&onlink).expect_err("refused");
    assert!(error.is_exists(), "{error:?}");
    assert_eq!(
        error.to_string(),
        format!("cannot add route 0.0.0.0/0 via 169.254.1.1 onlink on link {ifindex}")
    );
}

#[test]
fn default_routes_of_one_family_and_link_are_removed_and_nothing_else() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    let pair = pair(&mut node);
    let ifindex = pair.host_ifindex;
    node.set_up(pair.peer_ifindex).expect("peer up");
    node.set_up(ifindex).expect("host end up");
    for (address, length) in [("10.1.0.5", 24), ("fd10::5", 64)] {
        node.add_address(ifindex, Address::new(ip(address), length))
            .expect("added");
    }
    let second = Route {
        metric: Some(7),
        ..Route::default_via(ip("10.1.0.2"), ifindex)
    };
    let elsewhere = Route {
        table: Some(1000),
        ..Route::default_via(ip("10.1.0.1"), ifindex)
    };
    let subnet = Route::new(ip("10.2.0.0"), 16, Some(ip("10.1.0.1")), ifindex);
    let v6 = Route::default_via(ip("fd10::1"), ifindex);
    let first = Route::default_via(ip("10.1.0.1"), ifindex);
    for route in [first, second, elsewhere, subnet, v6] {
        node.add_route(&route)
            .unwrap_or_else(|error| panic!("{}", chain(&error)));
    }
    for (v4, count) in [(true, 2), (true, 0)] {
        assert_eq!(
            node.remove_default_routes(ifindex, v4).expect("removed"),
            count
        );
    }
    let listed = node.routes(ifindex).expect("a list");
    let has = |wanted: &Route, table| {
        let same = |route: &Route| (route.dst, route.prefix_len) == (wanted.dst, wanted.prefix_len);
        listed
            .iter()
            .any(|route| same(route) && route.table == Some(table))
    };
    assert!(!has(&first, 254), "{listed:?}");
    assert!(has(&elsewhere, 1000) && has(&subnet, 254) && has(&v6, 254));
    assert_eq!(
        node.remove_default_routes(ifindex, false).expect("removed"),
        1
    );
}

#[test]
fn an_unreachable_gateway_is_refused_with_the_kernels_words() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    let pair = pair(&mut node);
    node.set_up(pair.host_ifindex).expect("up");
    let route = Route::default_via(ip("192.0.2.1"), pair.host_ifindex);
    let error = node.add_route(&route).expect_err("refused");
    assert!(
        chain(&error).contains("Nexthop has invalid gateway"),
        "{}",
        chain(&error)
    );
}

#[test]
fn a_missing_link_has_no_addresses_and_no_routes() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    for error in [
        node.addresses(99).expect_err("no such link"),
        node.routes(99).expect_err("no such link"),
    ] {
        assert!(error.is_gone(), "{error:?}");
    }
}

#[test]
fn settings_are_those_of_the_entered_namespace() {
    let Some(scene) = Scene::set() else { return };
    let settings = [Sysctl::v4("arp_notify", "1"), Sysctl::v6("accept_ra", "0")];
    let keys = [(Family::V4, "arp_notify"), (Family::V6, "accept_ra")];
    scene.pod.write_sysctls("lo", &settings).expect("written");
    assert_eq!(
        scene.pod.read_sysctls("lo", &keys).expect("read"),
        ["1", "0"]
    );
    assert_eq!(
        scene.node.read_sysctls("lo", &keys).expect("read"),
        ["0", "1"]
    );
    let error = scene
        .pod
        .write_sysctls("lo", &[Sysctl::v4("arp_notify", "x")])
        .expect_err("no");
    assert_eq!(
        error.to_string(),
        "cannot write \"x\" to /proc/sys/net/ipv4/conf/lo/arp_notify"
    );
}
