//! Announcements of links.

use std::time::Duration;

use netdev::{Discipline, LinkChange, LinkEvent, LinkMonitor, Netlink, Shape, VethSpec, VxlanSpec};

use crate::{Scene, pair};

/// Events about `name` until `last` says stop.
async fn watch(monitor: &mut LinkMonitor, last: impl Fn(&LinkEvent) -> bool) -> Vec<LinkEvent> {
    let mut seen = Vec::new();
    loop {
        let next = tokio::time::timeout(Duration::from_secs(10), monitor.next());
        let event = next.await.expect("an event in time").expect("an event");
        let stop = last(&event);
        seen.push(event);
        if stop {
            return seen;
        }
    }
}

#[tokio::test]
async fn the_monitor_sees_links_come_change_and_go() {
    let Some(scene) = Scene::set() else { return };
    let node = Netlink::in_netns(&scene.node).expect("a handle");
    let mut monitor = node.monitor().expect("a monitor");
    let pair = node
        .create_veth(VethSpec::new("host0", "peer0"))
        .await
        .expect("a pair");
    node.set_up(pair.host_ifindex).await.expect("up");
    let up =
        |event: &LinkEvent| matches!(event, LinkEvent::Changed(l) if l.name == "host0" && l.up);
    assert!(watch(&mut monitor, up).await.len() > 1);

    let netns = Some(scene.pod.clone());
    let change = LinkChange {
        netns,
        ..LinkChange::default()
    };
    node.reconfigure(pair.peer_ifindex, change)
        .await
        .expect("moved");
    let removed = |ifindex, name: &str| LinkEvent::Removed {
        ifindex,
        name: name.to_owned(),
    };
    // To this namespace a link that moves away is gone.
    watch(&mut monitor, |event| {
        *event == removed(pair.peer_ifindex, "peer0")
    })
    .await;
    // A pod can delete its end; the node learns of the loss of the other.
    scene.pod().delete_by_name("peer0").expect("deleted");
    watch(&mut monitor, |event| {
        *event == removed(pair.host_ifindex, "host0")
    })
    .await;
}

/// A killed agent leaves no device that it takes for that of somebody else.
#[tokio::test]
async fn a_tunnel_device_never_has_its_name_without_its_alias() {
    let Some(scene) = Scene::set() else { return };
    let node = Netlink::in_netns(&scene.node).expect("a handle");
    let mut connection = scene.node();
    // What a crash may leave.
    connection
        .create_veth(&VethSpec::new("tunnels0+", "peer0"))
        .expect("a link");
    let mut monitor = node.monitor().expect("a monitor");
    let spec = VxlanSpec {
        name: "tunnels0".to_owned(),
        port: 4789,
        mtu: 1400,
        alias: "ours".to_owned(),
    };
    let ifindex = connection.create_vxlan(&spec).expect("a device");
    connection.set_up(ifindex).expect("up");
    let up =
        |event: &LinkEvent| matches!(event, LinkEvent::Changed(l) if l.ifindex == ifindex && l.up);
    for event in watch(&mut monitor, up).await {
        if let LinkEvent::Changed(link) = event
            && link.name == spec.name
        {
            assert_eq!(link.alias.as_deref(), Some("ours"), "{link:?}");
        }
    }
    assert!(connection.by_name("tunnels0+").expect("links").is_none());
}

#[tokio::test]
async fn lost_events_are_reported_as_an_overrun() {
    let Some(scene) = Scene::set() else { return };
    let node = Netlink::in_netns(&scene.node).expect("a handle");
    let mut monitor = node.monitor().expect("a monitor");
    let mut connection = scene.node();
    let pair = pair(&mut connection);
    // The kernel announces a new alias only of a link that is up.
    connection.set_up(pair.host_ifindex).expect("up");
    for n in 0..4000 {
        let alias = Some(n.to_string());
        let change = LinkChange {
            alias,
            ..LinkChange::default()
        };
        connection
            .reconfigure(pair.host_ifindex, &change)
            .expect("changed");
    }
    watch(&mut monitor, |event| *event == LinkEvent::Overrun).await;
    // It goes on afterwards.
    connection.delete(pair.host_ifindex).expect("deleted");
    let gone =
        |event: &LinkEvent| matches!(event, LinkEvent::Removed { name, .. } if name == "host0");
    watch(&mut monitor, gone).await;
}

#[tokio::test]
async fn the_monitor_tells_of_root_queues() {
    let Some(scene) = Scene::set() else { return };
    let node = Netlink::in_netns(&scene.node).expect("a handle");
    let mut monitor = node.monitor().expect("a monitor");
    let pair = node
        .create_veth(VethSpec::new("host0", "peer0"))
        .await
        .expect("a pair");
    let requeued = |event: &LinkEvent| {
        *event
            == LinkEvent::Requeued {
                ifindex: pair.host_ifindex,
            }
    };
    node.shape(
        pair.host_ifindex,
        Shape::new(10_000_000, None, 1500),
        Discipline::Fifo,
    )
    .await
    .expect("a limit");
    watch(&mut monitor, requeued).await;
    node.unshape(pair.host_ifindex).await.expect("no limit");
    watch(&mut monitor, requeued).await;
}

#[tokio::test]
async fn a_look_at_a_root_queue_is_not_an_event() {
    let Some(scene) = Scene::set() else { return };
    let node = Netlink::in_netns(&scene.node).expect("a handle");
    let pair = node
        .create_veth(VethSpec::new("host0", "peer0"))
        .await
        .expect("a pair");
    let shape = Shape::new(10_000_000, None, 1500);
    let end = pair.host_ifindex;
    node.shape(end, shape, Discipline::Fifo)
        .await
        .expect("a limit");
    let mut monitor = node.monitor().expect("a monitor");
    for _ in 0..3 {
        node.shape_of(end).await.expect("a look");
    }
    // Events come in order, so this one ends what the looks could have made.
    node.set_up(end).await.expect("up");
    let event = monitor.next().await.expect("an event");
    assert!(
        matches!(&event, LinkEvent::Changed(link) if link.ifindex == end),
        "{event:?}"
    );
}
