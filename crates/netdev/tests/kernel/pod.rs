//! The one visit of ADD.

use std::net::UdpSocket;
use std::time::Duration;

use netdev::{
    Address, Connection, Error, LinkLocal, Netlink, Netns, PodEnd, Route, RouteKind, Sysctl,
    VethSpec, link_local,
};

use crate::{POD_MAC, Scene, chain, ip, named};

fn dual_stack(name: &str) -> PodEnd {
    let mut end = PodEnd::new(name);
    end.mac = Some(POD_MAC);
    end.mtu = Some(1400);
    end.addresses = vec![
        Address::new(ip("10.10.0.5"), 24),
        Address::new(ip("fd10:10::5"), 64),
    ];
    end.link_local = LinkLocal::Eui64;
    end.routes = vec![
        Route::default_via(ip("10.10.0.1"), 0),
        Route::default_via(ip("fd10:10::1"), 0),
    ];
    end.sysctls = vec![
        Sysctl::v6("disable_ipv6", "0"),
        Sysctl::v4("arp_notify", "1"),
        Sysctl::v6("ndisc_notify", "1"),
        Sysctl::v6("accept_ra", "0"),
    ];
    end
}

#[tokio::test]
async fn a_placed_pod_end_is_complete_and_talks_at_once() {
    let Some(scene) = Scene::set() else { return };
    let node = Netlink::in_netns(&scene.node).expect("a handle");
    let pair = node
        .create_veth(VethSpec::new("host0", "peer0"))
        .await
        .expect("a pair");
    for text in ["10.10.0.1", "fd10:10::1"] {
        let address = Address::new(ip(text), if ip(text).is_ipv4() { 24 } else { 64 });
        node.add_address(pair.host_ifindex, address)
            .await
            .expect("added");
    }
    node.set_up(pair.host_ifindex).await.expect("up");
    // Runtimes switch IPv6 off by default; the settings must win over that.
    scene
        .pod
        .write_sysctls("default", &[Sysctl::v6("disable_ipv6", "1")])
        .expect("written");

    let end = dual_stack("net1");
    let placed = node
        .place_pod_end(&scene.pod, pair.peer_ifindex, end.clone())
        .await
        .unwrap_or_else(|error| panic!("{}", chain(&error)));
    assert_eq!((placed.mac, placed.mtu), (POD_MAC, 1400));
    assert_eq!(placed.link_local, Some(link_local(POD_MAC)));

    let mut pod = scene.pod();
    let link = named(&mut pod, "net1");
    assert_eq!(link.ifindex, placed.ifindex);
    assert!(link.up && link.carrier);
    let states = pod.addresses(placed.ifindex).expect("a list");
    assert!(
        states
            .iter()
            .all(|state| !state.tentative && !state.dad_failed),
        "{states:?}"
    );
    let mut found: Vec<_> = states
        .iter()
        .map(|state| (state.ip, state.prefix_len))
        .collect();
    found.sort_unstable();
    let mut wanted: Vec<_> = end.addresses.iter().map(|a| (a.ip, a.prefix_len)).collect();
    wanted.push((link_local(POD_MAC).into(), 64));
    wanted.sort_unstable();
    assert_eq!(found, wanted);
    let gateways: Vec<_> = pod
        .routes(placed.ifindex)
        .expect("a list")
        .into_iter()
        .filter_map(|route| route.gateway)
        .collect();
    assert_eq!(gateways, [ip("10.10.0.1"), ip("fd10:10::1")]);
    for setting in &end.sysctls {
        let keys = [(setting.family, setting.key.as_str())];
        assert_eq!(
            scene.pod.read_sysctls("net1", &keys).expect("read"),
            [setting.value.as_str()]
        );
    }
    for (from, to) in [("10.10.0.5", "10.10.0.1"), ("fd10:10::5", "fd10:10::1")] {
        let open = |netns: &Netns, at: &str| {
            netns
                .run_in(|| UdpSocket::bind((ip(at), 0)))
                .expect("entered")
                .expect("a socket")
        };
        let (sender, receiver) = (open(&scene.pod, from), open(&scene.node, to));
        receiver
            .set_read_timeout(Some(Duration::from_secs(5)))
            .expect("a time limit");
        sender
            .send_to(b"hello", receiver.local_addr().expect("bound"))
            .expect("sent");
        let mut bytes = [0; 8];
        let (length, source) = receiver.recv_from(&mut bytes).expect("received");
        assert_eq!((&bytes[..length], source.ip()), (&b"hello"[..], ip(from)));
    }
}

#[tokio::test]
async fn a_pod_without_ipv6_gets_no_link_local_address() {
    let Some(scene) = Scene::set() else { return };
    let node = Netlink::in_netns(&scene.node).expect("a handle");
    let pair = node
        .create_veth(VethSpec::new("host0", "peer0"))
        .await
        .expect("a pair");
    node.set_up(pair.host_ifindex).await.expect("up");
    let mut end = PodEnd::new("net1");
    end.addresses = vec![Address::new(ip("10.10.0.5"), 24)];
    end.link_local = LinkLocal::Absent;
    let placed = node
        .place_pod_end(&scene.pod, pair.peer_ifindex, end)
        .await
        .expect("placed");
    assert_eq!(placed.link_local, None);
    let states = scene.pod().addresses(placed.ifindex).expect("a list");
    assert_eq!(states.len(), 1, "{states:?}");
}

#[tokio::test]
async fn a_pod_end_too_narrow_for_ipv6_is_configured_for_ipv4() {
    let Some(scene) = Scene::set() else { return };
    let node = Netlink::in_netns(&scene.node).expect("a handle");
    let peer_netns = Some(scene.pod.clone());
    let spec = VethSpec {
        mtu: 1000,
        peer_netns,
        ..VethSpec::new("host0", "net1")
    };
    node.create_veth(spec).await.expect("a pair");
    let mut end = PodEnd::new("net1");
    end.addresses = vec![Address::new(ip("10.10.0.5"), 24)];
    end.link_local = LinkLocal::Absent;
    let placed = scene.pod.configure_pod_end(end).await.expect("configured");
    assert_eq!(placed.mtu, 1000);
    assert_eq!(
        scene.pod().addresses(placed.ifindex).expect("a list").len(),
        1
    );
}

#[tokio::test]
async fn a_taken_name_leaves_the_link_where_it_was() {
    let Some(scene) = Scene::set() else { return };
    let node = Netlink::in_netns(&scene.node).expect("a handle");
    let pair = node
        .create_veth(VethSpec::new("host0", "peer0"))
        .await
        .expect("a pair");
    scene
        .pod()
        .create_veth(&VethSpec::new("net1", "x"))
        .expect("the pod's own");
    let placed = node
        .place_pod_end(&scene.pod, pair.peer_ifindex, PodEnd::new("net1"))
        .await;
    let error = placed.expect_err("refused");
    assert!(
        matches!(&error, Error::NameTaken { name, .. } if name == "net1"),
        "{error:?}"
    );
    assert!(error.is_exists());
    let peer = node
        .by_index(pair.peer_ifindex)
        .await
        .expect("an answer")
        .expect("still here");
    assert_eq!(peer.name, "peer0");
}

#[tokio::test]
async fn an_index_that_is_taken_in_the_pod_is_replaced() {
    let Some(scene) = Scene::set() else { return };
    let node = Netlink::in_netns(&scene.node).expect("a handle");
    let pair = node
        .create_veth(VethSpec::new("host0", "peer0"))
        .await
        .expect("a pair");
    let own = scene
        .pod()
        .create_veth(&VethSpec::new("own0", "own1"))
        .expect("the pod's own");
    // New namespaces count from the same number, so the two pairs have the same indexes.
    assert_eq!(own, pair);
    let mut end = PodEnd::new("net1");
    end.addresses = vec![Address::new(ip("10.10.0.5"), 24)];
    let placed = node
        .place_pod_end(&scene.pod, pair.peer_ifindex, end)
        .await
        .expect("placed");
    assert_ne!(placed.ifindex, pair.peer_ifindex);
    assert_eq!(
        scene.pod().addresses(placed.ifindex).expect("a list").len(),
        1
    );
    assert_eq!(
        scene
            .pod()
            .addresses(own.peer_ifindex)
            .expect("a list")
            .len(),
        0
    );
}

#[tokio::test]
async fn the_first_refused_step_is_named() {
    let Some(scene) = Scene::set() else { return };
    let node = Netlink::in_netns(&scene.node).expect("a handle");
    let pair = node
        .create_veth(VethSpec::new("host0", "peer0"))
        .await
        .expect("a pair");
    let mut end = PodEnd::new("net1");
    end.addresses = vec![Address::new(ip("10.1.2.3"), 24); 2];
    end.routes = vec![Route::default_via(ip("192.0.2.1"), 0)];
    let placed = node.place_pod_end(&scene.pod, pair.peer_ifindex, end).await;
    let error = placed.expect_err("refused");
    assert_eq!(error.to_string(), "cannot add address 10.1.2.3/24 to net1");
    assert!(error.is_exists(), "{error:?}");
    // The way back of the caller.
    assert!(node.delete(pair.host_ifindex).await.expect("deleted"));
    assert!(scene.pod().name_is_free("net1").expect("an answer"));
}

#[tokio::test]
async fn a_link_made_in_the_pod_is_configured_there() {
    let Some(scene) = Scene::set() else { return };
    let node = Netlink::in_netns(&scene.node).expect("a handle");
    let peer_netns = Some(scene.pod.clone());
    let spec = VethSpec {
        peer_netns,
        ..VethSpec::new("host0", "net1")
    };
    let pair = node.create_veth(spec).await.expect("a pair");
    node.set_up(pair.host_ifindex).await.expect("up");
    let placed = scene
        .pod
        .configure_pod_end(dual_stack("net1"))
        .await
        .expect("configured");
    assert_eq!(
        (placed.ifindex, placed.mac, placed.mtu),
        (pair.peer_ifindex, POD_MAC, 1400)
    );
    assert_eq!(
        scene.pod().addresses(placed.ifindex).expect("a list").len(),
        3
    );
    let gone = scene
        .pod
        .configure_pod_end(PodEnd::new("net2"))
        .await
        .expect_err("no net2");
    assert!(gone.is_gone(), "{gone:?}");
}

/// Packets to an address without a local route are forwarded or dropped.
#[tokio::test]
async fn a_link_that_is_made_takes_packets_to_all_of_its_addresses() {
    let Some(scene) = Scene::set() else { return };
    let node = Netlink::in_netns(&scene.node).expect("a handle");
    for number in 0..200 {
        let name = format!("net{number}");
        let mut end = PodEnd::new(&name);
        let addresses = [format!("10.{number}.0.5"), format!("fd10:{number}::5")];
        let addresses = addresses.map(|it| ip(&it));
        end.addresses = addresses.map(|it| Address::new(it, 24)).to_vec();
        end.link_local = LinkLocal::Eui64;
        let spec = VethSpec {
            peer_netns: Some(scene.pod.clone()),
            ..VethSpec::new(&format!("host{number}"), &name)
        };
        let here = move |connection: &mut Connection| {
            let pair = connection.create_veth(&spec)?;
            connection.set_up(pair.host_ifindex)
        };
        node.make_pod_link(&scene.pod, end, here)
            .await
            .unwrap_or_else(|error| panic!("{}", chain(&error)));
        let mut pod = scene.pod();
        for address in addresses {
            let found = pod.route_to(address).expect("an answer");
            let kind = found.map(|route| route.kind);
            assert_eq!(kind, Some(RouteKind::Local), "{address} of {name}");
        }
    }
}
