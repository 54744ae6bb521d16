//! Making, changing, listing and deleting links.

use std::time::{Duration, Instant};

use netdev::{AddrGenMode, Error, Link, LinkChange, LinkFilter, VethSpec};

use crate::{HOST_MAC, POD_MAC, Scene, chain, named, names, pair};

#[test]
fn a_new_pair_is_complete_and_down() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    let spec = VethSpec {
        host_mac: Some(HOST_MAC),
        peer_mac: Some(POD_MAC),
        mtu: 1400,
        alias: Some("podnet:free".to_owned()),
        queues: Some(1),
        ..VethSpec::new("host0", "peer0")
    };
    let pair = node.create_veth(&spec).expect("a pair");
    let host = node
        .by_index(pair.host_ifindex)
        .expect("an answer")
        .expect("the host end");
    let peer = node
        .by_index(pair.peer_ifindex)
        .expect("an answer")
        .expect("the peer");
    assert_eq!(
        host,
        Link {
            ifindex: pair.host_ifindex,
            name: "host0".to_owned(),
            mac: Some(HOST_MAC),
            mtu: 1400,
            up: false,
            promiscuous: false,
            carrier: false,
            kind: Some("veth".to_owned()),
            peer_ifindex: Some(pair.peer_ifindex),
            link_netnsid: None,
            controller_ifindex: None,
            alias: Some("podnet:free".to_owned()),
            group: 0,
        }
    );
    assert_eq!(
        (peer.name.as_str(), peer.mac, peer.mtu),
        ("peer0", Some(POD_MAC), 1400)
    );
    assert_eq!(
        (peer.peer_ifindex, peer.up),
        (Some(pair.host_ifindex), false)
    );
}

#[test]
fn the_host_end_makes_no_link_local_address() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    let pair = pair(&mut node);
    node.set_up(pair.peer_ifindex).expect("peer up");
    node.set_up(pair.host_ifindex).expect("host end up");
    assert!(named(&mut node, "host0").carrier);
    // The peer was left to the kernel, which makes its address from a work queue: only when that
    // one is there does the absence of the other mean something.
    let until = Instant::now() + Duration::from_secs(10);
    while node
        .addresses(pair.peer_ifindex)
        .expect("a list")
        .is_empty()
    {
        assert!(Instant::now() < until, "the peer has no link-local address");
        std::thread::yield_now();
    }
    assert_eq!(node.addresses(pair.peer_ifindex).expect("a list").len(), 1);
    assert_eq!(node.addresses(pair.host_ifindex).expect("a list"), []);
}

#[test]
fn an_existing_name_is_refused_and_nothing_is_left() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    pair(&mut node);
    let error = node
        .create_veth(&VethSpec::new("other0", "peer0"))
        .expect_err("refused");
    assert!(error.is_exists(), "{error:?}");
    assert_eq!(
        error.to_string(),
        "cannot create veth pair other0 and peer0"
    );
    let mut left = names(&mut node, &LinkFilter::default());
    left.sort();
    assert_eq!(left, ["host0", "lo", "peer0"]);
}

#[test]
fn an_alias_that_is_too_long_is_refused_before_anything_is_made() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    let spec = VethSpec {
        alias: Some("a".repeat(256)),
        ..VethSpec::new("host0", "peer0")
    };
    let error = node.create_veth(&spec).expect_err("refused");
    assert!(matches!(error, Error::InvalidAlias { .. }), "{error:?}");
    assert_eq!(names(&mut node, &LinkFilter::default()), ["lo"]);
}

#[test]
fn a_peer_can_be_made_in_another_namespace() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    let spec = VethSpec {
        peer_netns: Some(scene.pod.clone()),
        ..VethSpec::new("host0", "net1")
    };
    let pair = node.create_veth(&spec).expect("a pair");
    let peer = named(&mut scene.pod(), "net1");
    assert_eq!(peer.ifindex, pair.peer_ifindex);
    assert!(named(&mut node, "host0").link_netnsid.is_some());
}

#[test]
fn a_peer_name_taken_in_the_other_namespace_is_refused_and_nothing_is_left() {
    let Some(scene) = Scene::set() else { return };
    let (mut node, mut pod) = (scene.node(), scene.pod());
    pod.create_veth(&VethSpec::new("net1", "x"))
        .expect("the pod's own");
    let spec = VethSpec {
        peer_netns: Some(scene.pod.clone()),
        ..VethSpec::new("host0", "net1")
    };
    let error = node.create_veth(&spec).expect_err("refused");
    assert!(error.is_exists(), "{error:?}");
    assert_eq!(names(&mut node, &LinkFilter::default()), ["lo"]);
    assert_eq!(names(&mut pod, &LinkFilter::default()).len(), 3);
}

#[test]
fn a_pair_too_narrow_for_ipv6_is_made_all_the_same() {
    let Some(scene) = Scene::set() else { return };
    // Below 1280 bytes a link has no IPv6 (RFC 8200 section 5) and no address generation to set.
    let spec = VethSpec {
        mtu: 1000,
        ..VethSpec::new("host0", "peer0")
    };
    let mut node = scene.node();
    node.create_veth(&spec).expect("a pair");
    assert_eq!(named(&mut node, "host0").mtu, 1000);
}

#[test]
fn one_request_moves_renames_and_readdresses_a_link() {
    let Some(scene) = Scene::set() else { return };
    let (mut node, mut pod) = (scene.node(), scene.pod());
    let pair = pair(&mut node);
    let change = LinkChange {
        netns: Some(scene.pod.clone()),
        name: Some("net1".to_owned()),
        mac: Some(POD_MAC),
        mtu: Some(1400),
        alias: Some("podnet".to_owned()),
        addr_gen_mode: Some(AddrGenMode::None),
        ..LinkChange::default()
    };
    node.reconfigure(pair.peer_ifindex, &change).expect("moved");
    assert!(node.name_is_free("peer0").expect("an answer"));
    let moved = named(&mut pod, "net1");
    assert_eq!((moved.mac, moved.mtu), (Some(POD_MAC), 1400));
    assert_eq!(moved.alias.as_deref(), Some("podnet"));
    assert_eq!(moved.peer_ifindex, Some(pair.host_ifindex));
    assert!(!moved.up);
    // The mode must hold in the new namespace, where IPv6 starts from that one's defaults.
    node.set_up(pair.host_ifindex).expect("host end up");
    pod.set_up(moved.ifindex).expect("pod end up");
    assert_eq!(pod.addresses(moved.ifindex).expect("a list"), []);
}

#[test]
fn a_move_does_not_set_up_as_well() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    let pair = pair(&mut node);
    let change = LinkChange {
        netns: Some(scene.pod.clone()),
        up: Some(true),
        ..LinkChange::default()
    };
    let error = node
        .reconfigure(pair.peer_ifindex, &change)
        .expect_err("refused");
    assert!(matches!(error, Error::InvalidChange { .. }), "{error:?}");
    assert!(!node.name_is_free("peer0").expect("an answer"));
}

#[test]
fn a_change_of_a_missing_link_says_what_was_to_change() {
    let Some(scene) = Scene::set() else { return };
    let error = scene.node().set_up(99).expect_err("no such link");
    assert!(error.is_gone(), "{error:?}");
    let text = chain(&error);
    assert!(
        text.starts_with("cannot change link 99 (up): No such device"),
        "{text}"
    );
}

#[test]
fn deleting_takes_the_peer_along_and_a_second_time_says_so() {
    let Some(scene) = Scene::set() else { return };
    let (mut node, mut pod) = (scene.node(), scene.pod());
    let pair = pair(&mut node);
    let netns = Some(scene.pod.clone());
    node.reconfigure(
        pair.peer_ifindex,
        &LinkChange {
            netns,
            ..LinkChange::default()
        },
    )
    .expect("moved");
    assert!(node.delete(pair.host_ifindex).expect("deleted"));
    assert!(pod.name_is_free("peer0").expect("an answer"));
    assert!(!node.delete(pair.host_ifindex).expect("an answer"));
    assert!(!node.delete_by_name("host0").expect("an answer"));
    assert!(
        node.by_index(pair.host_ifindex)
            .expect("an answer")
            .is_none()
    );
}

#[test]
fn a_link_is_deleted_by_name() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    pair(&mut node);
    assert!(node.delete_by_name("peer0").expect("deleted"));
    assert_eq!(names(&mut node, &LinkFilter::default()), ["lo"]);
}

#[test]
fn a_listing_is_filtered_by_kind_name_and_alias() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    for (host, peer, alias) in [("pna", "pnb", Some("podnet:1")), ("pnc", "oth", None)] {
        let alias = alias.map(str::to_owned);
        node.create_veth(&VethSpec {
            alias,
            ..VethSpec::new(host, peer)
        })
        .expect("a pair");
    }
    let some = |text: &str| Some(text.to_owned());
    let mut list = |filter: LinkFilter| {
        let mut names = names(&mut node, &filter);
        names.sort();
        names
    };
    let filter = LinkFilter::default;
    assert_eq!(list(filter()), ["lo", "oth", "pna", "pnb", "pnc"]);
    assert_eq!(
        list(LinkFilter {
            kind: some("veth"),
            ..filter()
        }),
        ["oth", "pna", "pnb", "pnc"]
    );
    assert_eq!(
        list(LinkFilter {
            name_prefix: some("pn"),
            ..filter()
        }),
        ["pna", "pnb", "pnc"]
    );
    assert_eq!(
        list(LinkFilter {
            alias_prefix: some("podnet:"),
            ..filter()
        }),
        ["pna"]
    );
    assert!(
        list(LinkFilter {
            kind: some("vxlan"),
            ..filter()
        })
        .is_empty()
    );
}

#[test]
fn a_long_listing_is_complete() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    for n in 0..100 {
        node.create_veth(&VethSpec::new(&format!("a{n}"), &format!("b{n}")))
            .expect("a pair");
    }
    assert_eq!(names(&mut node, &LinkFilter::default()).len(), 201);
}

#[test]
fn links_of_a_group_go_in_one_request_and_no_others() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    const GROUP: u32 = 0x4000_7a7a;
    let ours: Vec<String> = (0..70).map(|number| format!("host{number}")).collect();
    for (number, name) in ours.iter().enumerate() {
        let spec = VethSpec::new(name, &format!("peer{number}"));
        node.create_veth(&spec).expect("a pair");
    }
    let other = VethSpec::new("other0", "other1");
    node.create_veth(&other).expect("a pair");
    node.join_group(&["other1".to_owned()], GROUP + 1)
        .expect("answers");
    let mut asked = ours.clone();
    asked.insert(3, "missing".to_owned());
    let joined = node.join_group(&asked, GROUP).expect("answers");
    let joined: Vec<bool> = joined.into_iter().map(|it| it.expect("joined")).collect();
    let expected: Vec<bool> = asked.iter().map(|name| name != "missing").collect();
    assert_eq!(joined, expected);
    let mut members = node.group_members(GROUP).expect("a list");
    members.sort();
    let mut sorted = ours.clone();
    sorted.sort();
    assert_eq!(members, sorted);

    assert!(node.delete_group(GROUP).expect("deleted"));
    let mut left = names(&mut node, &LinkFilter::default());
    left.sort();
    assert_eq!(left, ["lo", "other0", "other1"]);
    assert_eq!(node.group_members(GROUP).expect("a list"), [""; 0]);
    assert!(!node.delete_group(GROUP).expect("nothing to delete"));
}

#[test]
fn a_group_with_a_link_that_cannot_be_deleted_stays_whole() {
    let Some(scene) = Scene::set() else { return };
    let mut node = scene.node();
    const GROUP: u32 = 0x4000_7a7b;
    pair(&mut node);
    let names = ["host0".to_owned(), "lo".to_owned()];
    for joined in node.join_group(&names, GROUP).expect("answers") {
        assert!(joined.expect("joined"));
    }
    let refused = node.delete_group(GROUP).expect_err("the loopback stays");
    assert!(refused.to_string().contains("group"), "{refused}");
    named(&mut node, "host0");
}
