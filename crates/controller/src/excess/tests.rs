use overview::samples::{at, network, ours, parameters, pod, view};
use serde_json::{Value, json};

use super::*;

fn node(name: &str) -> Value {
    json!({"kind": "Node", "metadata": {"name": name, "uid": format!("{name}-uid")}})
}

/// Network `blue` with these addresses.
fn blue(subnet: &str) -> [Value; 2] {
    let mut parameters = parameters("blue", None);
    parameters["spec"]["subnets"] = json!([subnet]);
    [network("blue"), parameters]
}

/// A block of `blue` that node `n1` takes at this time.
fn block(cidr: &str, taken: i64) -> Value {
    block_of("n1", "n1-uid", cidr, taken)
}

fn block_of(node: &str, uid: &str, cidr: &str, taken: i64) -> Value {
    let name = format!("blue.{}", cidr.replace(['.', ':', '/'], "-"));
    let spec = json!({"network": "blue", "cidr": cidr, "node": node, "nodeUID": uid});
    let metadata = json!({"name": name, "creationTimestamp": at(taken).to_string()});
    ours("IPBlock", metadata, spec)
}

/// The first blocks of 10.0.0.0/16, taken at this time.
fn blocks(count: u8, taken: i64) -> Vec<Value> {
    let cidr = |index: u8| format!("10.0.{}.{}/28", index / 16, index % 16 * 16);
    (0..count).map(|index| block(&cidr(index), taken)).collect()
}

fn on_n1(name: &str, list: &Value) -> Value {
    let mut pod = pod(name, list, "");
    pod["spec"]["nodeName"] = "n1".into();
    pod
}

/// Pods of `n1` that list `blue`.
fn pods(count: usize) -> Vec<Value> {
    let list = json!([{"name": "blue"}]);
    let pods = (0..count).map(|index| on_n1(&format!("p{index}"), &list));
    pods.collect()
}

fn cluster(subnet: &str, more: &[Vec<Value>]) -> View {
    let mut all = [&blue(subnet)[..], &[node("n1")]].concat();
    all.extend(more.iter().flatten().cloned());
    view(&all)
}

/// Judges a view that a controller came to know whole, at 100, after it had begun.
fn found(view: &View) -> (Judged, Suspects) {
    let mut judged = Judged::default();
    judged.judge(&View::default(), 2, at(0));
    let first = judged.judge(view, 2, at(100));
    assert_eq!((first.found.len(), first.again), (0, Some(at(102))));
    let suspects = judged.judge(view, 2, at(102));
    (judged, suspects)
}

/// Kept and taken back.
fn counts(view: &View) -> (usize, usize) {
    let (_, suspects) = found(view);
    match suspects.found.as_slice() {
        [] => (view.blocks.len(), 0),
        [one] => (one.kept, one.blocks.len()),
        more => unreachable!("{more:?}"),
    }
}

/// ATT-06e
#[test]
fn a_node_keeps_the_blocks_that_its_pods_can_need_and_those_to_spare() {
    // Less the network address a block has 15 or 16; three are taken while there are fewer than
    // 4 + 2 * 16 addresses.
    assert_eq!(counts(&cluster("10.0.0.0/16", &[blocks(50, 90)])), (3, 47));
    // An agent takes a block while less than 40 + 4 are left, so there are two more at most.
    let with_pods = cluster("10.0.0.0/16", &[blocks(50, 90), pods(40)]);
    assert_eq!(counts(&with_pods), (5, 45));
    let (_, suspects) = found(&with_pods);
    let first = &suspects.found[0];
    let names = (first.node.as_str(), first.network.as_str(), first.family);
    assert_eq!((names, first.needed), (("n1", "blue", Family::V4), 40));
    // As many as they need, and not one is taken back.
    assert_eq!(
        counts(&cluster("10.0.0.0/16", &[blocks(5, 90), pods(40)])),
        (5, 0)
    );
    proof::of!("ATT-06e");
}

/// ATT-06e: the earlier ones stay, by the API server's clock.
#[test]
fn what_was_taken_last_is_taken_back() {
    let mut all = blocks(5, 90);
    all[0]["metadata"]["creationTimestamp"] = at(95).to_string().into();
    all[1]["metadata"]["creationTimestamp"] = at(94).to_string().into();
    let (_, suspects) = found(&cluster("10.0.0.0/16", &[all]));
    let cidrs = suspects.found[0]
        .blocks
        .iter()
        .map(|it| it.spec.cidr.as_str());
    assert_eq!(cidrs.collect::<Vec<_>>(), ["10.0.0.16/28", "10.0.0.0/28"]);
    proof::of!("ATT-06e");
}

/// ATT-06e: a block counts as asked for though no copy shows its mark.
///
/// Its node may remove the mark before a copy has it.
#[test]
fn a_mark_that_its_node_removes_at_once_counts_as_asked() {
    let mut taken = blocks(8, 90);
    for (block, taken) in taken.iter_mut().zip(90..) {
        block["metadata"]["creationTimestamp"] = at(taken).to_string().into();
    }
    let view = cluster("10.0.0.0/16", &[taken, pods(2)]);
    let (mut judged, suspects) = found(&view);
    let excess = suspects.found[0].blocks.clone();
    assert_eq!(excess.len(), 5);
    judged.asked(&excess, at(102));
    // No copy shows a mark.
    assert_eq!(judged.judge(&view, 2, at(103)).found, []);
    let late = judged.judge(&view, 2, at(113)).found;
    assert_eq!((late[0].blocks.len(), late[0].withheld.len()), (0, 3));
    proof::of!("ATT-06e");
}

/// ATT-06e: which of its blocks are in use is the node's word, how many is not.
#[test]
fn a_node_is_asked_first_and_keeps_as_many_blocks_as_its_pods_can_need_addresses() {
    let with_marks = |marked: std::ops::Range<usize>| {
        let mut blocks = blocks(8, 90);
        for (block, taken) in blocks.iter_mut().zip(90..) {
            block["metadata"]["creationTimestamp"] = at(taken).to_string().into();
        }
        for block in &mut blocks[marked] {
            block["status"] = json!({"reclaimAfter": at(110).to_string()});
        }
        cluster("10.0.0.0/16", &[blocks, pods(2)])
    };
    let (mut judged, suspects) = found(&with_marks(0..0));
    let excess = &suspects.found[0];
    assert_eq!((excess.kept, excess.blocks.len()), (3, 5));
    assert_eq!(excess.withheld, []);
    let marked = with_marks(3..8);
    let asked = judged.judge(&marked, 2, at(103));
    assert_eq!((asked.found.len(), asked.again), (0, Some(at(113))));
    let last = |view: &View| {
        let mut blocks = view.blocks.iter();
        let last = blocks.find(|it| it.spec.cidr == "10.0.0.112/28");
        Arc::clone(last.unwrap())
    };
    assert!(judged.is_asked(&last(&marked)));
    assert!(judged.judge(&marked, 2, at(112)).found.is_empty());
    // The node says that it needs the last one.
    let answered = with_marks(3..7);
    let withheld = &judged.judge(&answered, 2, at(113)).found[0].withheld;
    let cidrs: Vec<&str> = withheld.iter().map(|it| it.spec.cidr.as_str()).collect();
    assert_eq!(cidrs, ["10.0.0.64/28", "10.0.0.80/28", "10.0.0.96/28"]);
    assert!(!judged.is_asked(&last(&answered)));
    proof::of!("ATT-06e");
}

/// ADR 0061: pods of a block that was in use are gone, and a later one is in use.
///
/// The node is asked for both; only it knows which of them is.
#[test]
fn a_node_is_asked_again_before_a_block_goes_that_it_says_is_in_use() {
    let with_marks = |count: u8, marked: &[usize]| {
        let mut blocks = blocks(count, 90);
        for (block, taken) in blocks.iter_mut().zip(90..) {
            block["metadata"]["creationTimestamp"] = at(taken).to_string().into();
        }
        for index in marked {
            blocks[*index]["status"] = json!({"reclaimAfter": at(110).to_string()});
        }
        cluster("10.0.0.0/16", &[blocks, pods(1)])
    };
    let cidrs = |blocks: &[Arc<IpBlock>]| {
        let cidrs = blocks.iter().map(|it| it.spec.cidr.clone());
        cidrs.collect::<Vec<_>>()
    };
    let (mut judged, suspects) = found(&with_marks(4, &[]));
    assert_eq!(cidrs(&suspects.found[0].blocks), ["10.0.0.48/28"]);
    judged.asked(&suspects.found[0].blocks, at(102));
    // It is in use, and its pod goes later. That of the next one comes.
    assert!(
        judged
            .judge(&with_marks(4, &[]), 2, at(112))
            .found
            .is_empty()
    );
    judged.judge(&with_marks(5, &[]), 2, at(120));
    let asked = judged.judge(&with_marks(5, &[]), 2, at(122));
    assert_eq!(cidrs(&asked.found[0].blocks), ["10.0.0.64/28"]);
    judged.asked(&asked.found[0].blocks, at(122));
    let again = judged.judge(&with_marks(5, &[]), 2, at(132));
    assert_eq!(again.found[0].withheld, []);
    assert_eq!(
        cidrs(&again.found[0].blocks),
        ["10.0.0.48/28", "10.0.0.64/28"]
    );
    let confirmed = again.confirmed(&with_marks(5, &[]));
    assert_eq!(confirmed, again.found);
    judged.asked(&confirmed[0].blocks, at(132));
    // The first one stays marked, and goes; one that is said to be in use stays.
    let last = judged.judge(&with_marks(5, &[3]), 2, at(142)).found;
    assert_eq!(cidrs(&last[0].withheld), ["10.0.0.48/28"]);
    assert_eq!(last[0].blocks, []);
    // A node that says so of both keeps one.
    judged.asked(&again.found[0].blocks, at(132));
    let last = judged.judge(&with_marks(5, &[]), 2, at(142)).found;
    assert_eq!(cidrs(&last[0].withheld), ["10.0.0.64/28"]);
}

/// ATT-06e: what a node once had a right to may be in use, whoever is gone.
#[test]
fn a_block_that_was_kept_stays_when_the_pods_go() {
    let (mut judged, suspects) = found(&cluster("10.0.0.0/16", &[blocks(5, 90), pods(40)]));
    assert!(suspects.found.is_empty());
    let without = cluster("10.0.0.0/16", &[blocks(6, 90)]);
    judged.judge(&without, 2, at(200));
    let later = judged.judge(&without, 2, at(203)).found;
    assert_eq!((later[0].kept, later[0].blocks.len()), (5, 1));
    assert_eq!(later[0].blocks[0].spec.cidr, "10.0.0.80/28");
    proof::of!("ATT-06e");
}

/// ATT-06e
#[test]
fn a_controller_that_begins_judges_what_was_taken_while_nobody_led() {
    let mut judged = Judged::default();
    let view = cluster(
        "10.0.0.0/16",
        &[blocks(10, 0), {
            let mut recent = blocks(20, 95);
            recent.split_off(10)
        }],
    );
    assert_eq!(judged.judge(&view, 2, at(100)).again, Some(at(102)));
    let found = judged.judge(&view, 2, at(102)).found;
    assert_eq!((found[0].kept, found[0].blocks.len()), (10, 10));
    proof::of!("ATT-06e");
}

/// ATT-06e: names of nodes, networks and parts of blocks do not evade the limit.
#[test]
fn parts_of_blocks_and_other_uids_of_the_node_count_too() {
    let parts: Vec<Value> = (0..50)
        .map(|index| {
            block(
                &format!("10.0.{}.{}/32", index / 16, index % 16 * 16 + 1),
                90,
            )
        })
        .collect();
    assert_eq!(counts(&cluster("10.0.0.0/16", &[parts])), (3, 47));
    let other = vec![block_of("n1", "another-uid", "10.0.0.0/28", 90)];
    assert_eq!(counts(&cluster("10.0.0.0/16", &[other])), (0, 1));
    let outside: Vec<Value> = (0..50)
        .map(|index| block(&format!("10.9.{index}.0/28"), 90))
        .collect();
    assert_eq!(counts(&cluster("10.0.0.0/24", &[outside])), (3, 47));
    // Another node has its own.
    let mut two = blocks(3, 90);
    two.push(node("n2"));
    two.push(block_of("n2", "n2-uid", "10.0.9.0/28", 90));
    assert_eq!(counts(&cluster("10.0.0.0/16", &[two])), (4, 0));
    proof::of!("ATT-06e");
}

/// ATT-06e: blocks for addresses by name and blocks of one address are granted.
///
/// An address by name may be in a block of its own, and blocks of one address are needed one by one.
#[test]
fn addresses_by_name_and_small_blocks_are_granted_what_agents_take_for_them() {
    let named = |index: u8| {
        let list = json!([{"name": "blue", "ips": [format!("10.0.{index}.1")]}]).to_string();
        let mut pod = pod(&format!("p{index}"), &Value::Null, &list);
        pod["spec"]["nodeName"] = "n1".into();
        pod
    };
    let mut all: Vec<Value> = (0..10).map(named).collect();
    // The name is that of a definition without a configuration.
    all.push(overview::samples::definition("shop", "blue", ""));
    assert_eq!(
        counts(&cluster("10.0.0.0/16", &[all, blocks(13, 90)])),
        (13, 0)
    );
    let single: Vec<Value> = (1..11)
        .map(|index| block(&format!("10.0.0.{index}/32"), 90))
        .collect();
    let small = cluster("10.0.0.0/28", &[pods(7), single]);
    assert_eq!(counts(&small), (10, 0));
    proof::of!("ATT-06e");
}

/// ATT-06e: a plugin may attach a pod that lists nothing of it.
#[test]
fn pods_that_list_nothing_count_by_their_addresses_and_until_they_have_one() {
    let none = json!([{"name": "red"}]);
    let with_ip = |index: usize| {
        let mut pod = on_n1(&format!("p{index}"), &none);
        pod["status"]["podIPs"] = json!([{"ip": format!("10.0.0.{}", index + 1)}]);
        pod
    };
    let inside: Vec<Value> = (0..40).map(with_ip).collect();
    assert_eq!(
        counts(&cluster("10.0.0.0/16", &[inside, blocks(50, 90)])),
        (5, 45)
    );
    let elsewhere = |index: usize| {
        let mut pod = with_ip(index);
        pod["status"]["podIPs"] = json!([{"ip": format!("172.16.0.{}", index + 1)}]);
        pod
    };
    let elsewhere: Vec<Value> = (0..40).map(elsewhere).collect();
    assert_eq!(
        counts(&cluster("10.0.0.0/16", &[elsewhere, blocks(50, 90)])),
        (3, 47)
    );
    let silent: Vec<Value> = (0..40)
        .map(|index| on_n1(&format!("p{index}"), &none))
        .collect();
    assert_eq!(
        counts(&cluster("10.0.0.0/16", &[silent.clone(), blocks(50, 90)])),
        (5, 45)
    );
    let host: Vec<Value> = silent
        .into_iter()
        .map(|mut pod| {
            pod["spec"]["hostNetwork"] = true.into();
            pod
        })
        .collect();
    assert_eq!(
        counts(&cluster("10.0.0.0/16", &[host, blocks(50, 90)])),
        (3, 47)
    );
    proof::of!("ATT-06e");
}

/// ATT-06e: before anything is taken back, the API server's own word counts.
#[test]
fn what_pods_need_that_the_copies_did_not_know_is_not_taken_back() {
    let (_, suspects) = found(&cluster("10.0.0.0/16", &[blocks(6, 90)]));
    assert_eq!(suspects.found[0].blocks.len(), 3);
    let now = cluster("10.0.0.0/16", &[blocks(6, 90), pods(40)]);
    let confirmed = suspects.confirmed(&now);
    assert_eq!(confirmed[0].blocks.len(), 1);
    assert!(
        suspects
            .confirmed(&cluster("10.0.0.0/16", &[blocks(6, 90), pods(90)]))
            .is_empty()
    );
    proof::of!("ATT-06e");
}
