//! Runtimes do not wait for one call before they make the next (CNI-ADD-08).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Barrier;
use std::thread;

/// CNI-ADD-08: containerd runs the networks of one container in parallel.
#[test]
fn add_parallel_same_container() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let names = ["net1", "net2", "net3", "net4"];
    let networks = ["blue", "blue", "red", "green"];
    let barrier = Barrier::new(names.len());
    thread::scope(|scope| {
        for (ifname, network) in names.into_iter().zip(networks) {
            let (pod, barrier) = (&pod, &barrier);
            scope.spawn(move || {
                barrier.wait();
                pod.attach(network, ifname)
            });
        }
    });
    let mut links = pod.links();
    links.sort();
    assert_eq!(links, names);
    thread::scope(|scope| {
        for (ifname, network) in names.into_iter().zip(networks) {
            let pod = &pod;
            scope.spawn(move || pod.detach(network, ifname));
        }
    });
    node.assert_empty();
    proof::of!("CNI-ADD-08");
}

/// CNI-ADD-04, CNI-ADD-08: the same ADD at the same moment makes one attachment.
#[test]
fn the_same_add_at_the_same_moment_makes_one_attachment() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let barrier = Barrier::new(4);
    let results: BTreeSet<String> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (pod, barrier) = (&pod, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    pod.add("blue", "net1").result().to_string()
                })
            })
            .collect();
        let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
        joined.map(|result| result.expect("no ADD fails")).collect()
    });
    assert_eq!(results.len(), 1, "{results:?}");
    assert_eq!(node.attachments().len(), 1);
    pod.detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-ADD-04", "CNI-ADD-08");
}

/// CNI-ADD-08: 100 containers at once have each address and each MAC once.
#[test]
fn add_parallel_100_containers() {
    let node = testbed::node!();
    let pods: Vec<_> = (0..100).map(|n| node.pod(&format!("p{n}"))).collect();
    let owned: Vec<(Vec<IpAddr>, String)> = thread::scope(|scope| {
        let threads: Vec<_> = pods
            .chunks(13)
            .map(|chunk| {
                scope.spawn(move || {
                    let ports = chunk.iter().map(|pod| pod.attach("blue", "net1"));
                    let owned = ports.map(|port| {
                        let ips = port.ips.iter().map(|(ip, _)| *ip).collect();
                        (ips, port.mac.to_string())
                    });
                    owned.collect::<Vec<_>>()
                })
            })
            .collect();
        let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
        joined
            .flat_map(|owned| owned.expect("no ADD fails"))
            .collect()
    });
    let ips: BTreeSet<_> = owned.iter().flat_map(|(ips, _)| ips.clone()).collect();
    let macs: BTreeSet<_> = owned.iter().map(|(_, mac)| mac.clone()).collect();
    assert_eq!((ips.len(), macs.len()), (200, 100));
    assert_eq!(node.attachments().len(), 100);
    thread::scope(|scope| {
        for chunk in pods.chunks(13) {
            scope.spawn(move || {
                for pod in chunk {
                    pod.detach("blue", "net1");
                }
            });
        }
    });
    node.assert_empty();
    proof::of!("CNI-ADD-08");
}

/// ADD and DEL of one attachment at once leave nothing half done.
#[test]
fn add_and_del_at_the_same_moment_leave_no_half() {
    let node = testbed::node!();
    for round in 0..8 {
        let pod = node.pod(&format!("p{round}"));
        let barrier = Barrier::new(2);
        let added = thread::scope(|scope| {
            let add = scope.spawn(|| {
                barrier.wait();
                pod.add("blue", "net1").success
            });
            let del = scope.spawn(|| {
                barrier.wait();
                pod.del("blue", "net1").silent();
            });
            del.join().expect("DEL succeeds");
            add.join().expect("ADD ends")
        });
        let held = !node.attachments().is_empty();
        assert_eq!(held, !pod.links().is_empty(), "record and kernel differ");
        assert!(added || !held, "a failed ADD left an attachment");
        pod.detach("blue", "net1");
        node.assert_empty();
    }
}
