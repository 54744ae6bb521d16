//! The async handle under parallel use.

use std::sync::{Arc, Barrier};

use netdev::{LinkFilter, Netlink, PodEnd, VethSpec};

use crate::{Scene, names};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_socket_of_a_handle_is_in_its_namespace() {
    let Some(scene) = Scene::set() else { return };
    let handle = Netlink::in_netns(&scene.pod).expect("a handle");
    handle
        .create_veth(VethSpec::new("only0", "only1"))
        .await
        .expect("a pair");
    // All at once, so that more sockets are opened than the first one.
    let meeting = Arc::new(Barrier::new(8));
    let visits: Vec<_> = (0..8)
        .map(|_| {
            let (handle, meeting) = (handle.clone(), Arc::clone(&meeting));
            tokio::spawn(async move {
                handle
                    .with(move |connection| {
                        meeting.wait();
                        connection.by_name("only0")
                    })
                    .await
            })
        })
        .collect();
    for visit in visits {
        assert!(visit.await.expect("no panic").expect("an answer").is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_additions_and_removals_leave_nothing() {
    let Some(scene) = Scene::set() else { return };
    let node = Netlink::in_netns(&scene.node).expect("a handle");
    let lives: Vec<_> = (0..24)
        .map(|n| {
            let (node, pod) = (node.clone(), scene.pod.clone());
            tokio::spawn(async move {
                let spec = VethSpec::new(&format!("h{n}"), &format!("p{n}"));
                let pair = node.create_veth(spec).await?;
                let end = PodEnd::new(&format!("net{n}"));
                node.place_pod_end(&pod, pair.peer_ifindex, end).await?;
                node.delete(pair.host_ifindex).await
            })
        })
        .collect();
    for life in lives {
        assert!(life.await.expect("no panic").expect("a life"));
    }
    assert_eq!(names(&mut scene.node(), &LinkFilter::default()), ["lo"]);
    assert_eq!(names(&mut scene.pod(), &LinkFilter::default()), ["lo"]);
}
