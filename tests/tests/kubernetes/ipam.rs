//! Test addresses in a cluster: no two nodes give one, and no pod waits for one.

use std::collections::BTreeSet;
use std::thread;

use serde_json::json;
use testbed::{Pod, wait};

use super::agent_scene::AgentScene;
use super::ipam_scene::{Nodes, addresses};

/// Runs `ADD`s of a network's plain configuration at once; returns all addresses.
pub(super) fn add_all(scene: &AgentScene, sandboxes: &[Pod<'_>], network: &str) -> Vec<String> {
    let conf = scene.node.conf(network);
    thread::scope(|scope| {
        let adding: Vec<_> = sandboxes
            .iter()
            .map(|sandbox| {
                let call = sandbox.call("ADD", "eth0").conf(&conf);
                scope.spawn(move || {
                    let added = wait::until("an ADD that succeeds", || {
                        Some(call.run()).filter(|outcome| outcome.success)
                    });
                    addresses(&added.result())
                })
            })
            .collect();
        let added = adding.into_iter().map(thread::ScopedJoinHandle::join);
        added
            .flat_map(|added| added.expect("no ADD panics"))
            .collect()
    })
}

/// PAIN-IP-2: two nodes, and pods on both at the same moment.
#[test]
fn nodes_that_attach_pods_at_the_same_moment_never_give_one_address_twice() {
    let Some(s) = Nodes::start(testbed::test_name!(), "ipam-parallel") else {
        return;
    };
    let network = s.network("blue", &["10.30.0.0/25", "fd30::/64"]);
    let sandboxes = |scene: &'static str| (0..20).map(move |n| format!("{scene}{n}"));
    let here: Vec<Pod<'_>> = sandboxes("a").map(|id| s.one.node.pod(&id)).collect();
    let there: Vec<Pod<'_>> = sandboxes("b").map(|id| s.two.node.pod(&id)).collect();
    let given = thread::scope(|scope| {
        let elsewhere = scope.spawn(|| add_all(&s.two, &there, &network));
        let mut given = add_all(&s.one, &here, &network);
        given.extend(elsewhere.join().expect("no ADD panics"));
        given
    });
    let different: BTreeSet<&String> = given.iter().collect();
    assert_eq!((given.len(), different.len()), (80, 80), "{given:?}");
    let holders = s.holders(&network);
    assert_eq!(
        holders,
        BTreeSet::from([s.one.name.clone(), s.two.name.clone()])
    );
    for (node, sandboxes) in [(&s.one, here), (&s.two, there)] {
        for sandbox in sandboxes {
            sandbox.del(&network, "eth0").silent();
        }
        node.node.assert_empty();
    }
    wait::until_true("all blocks to be given back", || {
        s.blocks(&network).is_empty()
    });
    proof::of!("PAIN-IP-2", "KUR-11");
}

/// Purpose: a pod that starts waits for no answer of the API server.
#[test]
fn blocks_are_taken_for_pods_that_were_bound_to_the_node_and_not_attached_yet() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "ipam-ahead") else {
        return;
    };
    s.apply_network("blue", &["10.31.0.0/24"], true);
    let uid = s.make_pod_of("web", "blue");
    let network = s.network("blue");
    let block = || {
        let params = kube::api::ListParams::default().fields(&format!("spec.network={network}"));
        let list =
            s.run(
                |client| async move { kube::Api::<api::IpBlock>::all(client).list(&params).await },
            );
        list.expect("blocks can be listed").items.pop()
    };
    let block = wait::until("a block", block);
    assert_eq!(block.spec.node, s.name);
    let sandbox = s.node.pod("c1");
    s.add_in_time(&sandbox, "web", &uid);
    s.del(&sandbox, "web", &uid).silent();
}

/// Purpose: a node gives its addresses without an API server, even after a restart.
///
/// When it has none left, the runtime is told to try again.
#[test]
fn what_a_node_holds_it_gives_while_the_api_server_is_away() {
    let Some(mut s) = Nodes::start(testbed::test_name!(), "ipam-away") else {
        return;
    };
    let network = s.network("blue", &["10.32.0.0/24"]);
    let first = s.one.node.pod("c1");
    add_all(&s.one, std::slice::from_ref(&first), &network);
    let before = s.blocks(&network);
    assert_eq!(before.len(), 1, "{before:?}");
    s.one.node.kill_9();
    s.one.node.start_agent();
    let second = s.one.node.pod("c2");
    add_all(&s.one, std::slice::from_ref(&second), &network);
    assert_eq!(s.blocks(&network), before, "a restart takes nothing new");

    s.one.door.close();
    let more: Vec<Pod<'_>> = (3..=18).map(|n| s.one.node.pod(&format!("c{n}"))).collect();
    let (last, refused) = more
        .iter()
        .enumerate()
        .map(|(n, sandbox)| (n, sandbox.add(&network, "eth0")))
        .find(|(_, outcome)| !outcome.success)
        .expect("sixteen addresses are not enough for eighteen pods");
    assert!(last >= 11, "only {last} of them got an address");
    refused.fails_with(11).names(&[
        &network,
        "no free IPv4 address",
        "1 blocks",
        "try again later",
    ]);

    s.one.door.open_again();
    add_all(&s.one, &more[last..], &network);
    assert_eq!(s.blocks(&network).len(), 2);
    for sandbox in [first, second].into_iter().chain(more) {
        sandbox.del(&network, "eth0").silent();
    }
    s.one.node.assert_empty();
}

/// Purpose: a node that gets nothing says who has it all.
#[test]
fn a_subnet_that_another_node_has_taken_is_refused_with_its_name() {
    let Some(s) = Nodes::start(testbed::test_name!(), "ipam-full") else {
        return;
    };
    // Two addresses for pods.
    let network = s.network("blue", &["10.33.0.0/30"]);
    let here = [s.one.node.pod("c1"), s.one.node.pod("c2")];
    let there = s.two.node.pod("c3");
    add_all(&s.one, &here, &network);
    let refused = wait::until("the other node to know of the network", || {
        let outcome = there.add(&network, "eth0");
        assert!(!outcome.success, "{outcome}");
        Some(outcome.error()).filter(|failure| failure.msg.contains("are taken"))
    });
    assert_eq!(refused.code, 11);
    refused.names(&[&network, &s.one.name, "add a subnet"]);
    for sandbox in here {
        sandbox.del(&network, "eth0").silent();
    }
    // The blocks are free, and the same ADD succeeds.
    add_all(&s.two, std::slice::from_ref(&there), &network);
    there.del(&network, "eth0").silent();
}

/// An address by name has one holder in the cluster.
///
/// So it is, however the holder got it.
#[test]
fn an_address_by_name_has_one_holder_in_the_cluster_and_a_refusal_names_it() {
    let Some(s) = Nodes::start(testbed::test_name!(), "ipam-static") else {
        return;
    };
    let network = s.network("blue", &["10.34.0.0/24"]);
    let asking = |ip: &str| json!({"ips": [ip]});
    let (web, sandbox) = (
        s.pod(&s.one, "web", &network, &json!({})),
        s.one.node.pod("c1"),
    );
    let dynamic = s.add(&s.one, &sandbox, "web", &web);
    let taken = dynamic[0].trim_end_matches("/24").to_owned();
    // Another one of the same block.
    let (_, last) = taken.rsplit_once('.').expect("IPv4");
    let free = format!("10.34.0.{}", last.parse::<u8>().expect("a number") ^ 9);
    let free = free.as_str();

    // Given by the node with the block.
    let thief = s.pod(&s.two, "thief", &network, &asking(&taken));
    let other = s.two.node.pod("c2");
    let failure = s.refused(&s.two, &other, ("thief", &thief), 101);
    failure.names(&[&taken, &format!("pod {}/web", s.one.name), &s.one.name]);
    wait::until_true("the refused reservation to go", || {
        s.reservations(&network).is_empty()
    });

    // Free, and granted by that node; then it is taken for both.
    let named = s.pod(&s.two, "named", &network, &asking(free));
    assert_eq!(
        s.add(&s.two, &other, "named", &named),
        [format!("{free}/24")]
    );
    assert_eq!(
        s.reservations(&network),
        [(free.to_owned(), Some("True".to_owned()))]
    );
    for (node, name) in [(&s.one, "late-1"), (&s.two, "late-2")] {
        let uid = s.pod(node, name, &network, &asking(free));
        let late = node.node.pod(name);
        let failure = s.refused(node, &late, (name, &uid), 101);
        failure.names(&[free, &format!("pod {}/named", s.one.name)]);
    }

    // With its pod it is free for everybody.
    s.del(&s.two, &other, "named", &named);
    wait::until_true("the reservation to go", || {
        s.reservations(&network).is_empty()
    });
    let heir = s.pod(&s.one, "heir", &network, &asking(free));
    let third = s.one.node.pod("c3");
    assert_eq!(s.add(&s.one, &third, "heir", &heir), [format!("{free}/24")]);
    assert!(
        s.reservations(&network).is_empty(),
        "an own block needs none"
    );
    s.del(&s.one, &third, "heir", &heir);
    s.del(&s.one, &sandbox, "web", &web);
    for node in [&s.one, &s.two] {
        node.node.assert_empty();
    }
    proof::of!("NPWG-4.1.2.1.3", "PAIN-IP-2", "ARK-04");
}

/// Purpose: a node that needs an address of a free block takes the block.
#[test]
fn an_address_by_name_of_a_block_that_nobody_holds_is_had_at_once() {
    let Some(s) = Nodes::start(testbed::test_name!(), "ipam-nobody") else {
        return;
    };
    let network = s.network("blue", &["10.35.0.0/24", "fd35::/64"]);
    let keys = json!({"ips": ["10.35.0.200", "fd35::abcd"]});
    let (uid, sandbox) = (s.pod(&s.two, "web", &network, &keys), s.two.node.pod("c1"));
    assert_eq!(
        s.add(&s.two, &sandbox, "web", &uid),
        ["10.35.0.200/24", "fd35::abcd/64"]
    );
    assert_eq!(s.holders(&network), [s.two.name.clone()].into());
    for (ip, granted) in s.reservations(&network) {
        assert_eq!(granted.as_deref(), Some("True"), "{ip}");
    }
    s.del(&s.two, &sandbox, "web", &uid);
    // What nobody may have is refused before anybody is asked.
    let keys = json!({"ips": ["10.99.0.1"]});
    let uid = s.pod(&s.two, "lost", &network, &keys);
    s.refused(&s.two, &sandbox, ("lost", &uid), 102)
        .names(&["10.99.0.1"]);
}
