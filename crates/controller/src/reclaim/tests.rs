use overview::samples::{at, ours, pod, view};
use serde_json::{Value, json};

use super::*;

const DELAY: SignedDuration = SignedDuration::from_secs(300);

fn node(name: &str, uid: &str) -> Value {
    json!({"kind": "Node", "metadata": {"name": name, "uid": uid}})
}

fn block(node_uid: &str, reclaim_after: Option<Timestamp>) -> Value {
    let spec =
        json!({"network": "blue", "cidr": "10.0.0.16/28", "node": "n1", "nodeUID": node_uid});
    let mut block = ours("IPBlock", json!({"name": "blue.10-0-0-16"}), spec);
    if let Some(time) = reclaim_after {
        block["status"] = json!({"reclaimAfter": time.to_string()});
    }
    block
}

fn on_n1(phase: &str) -> Value {
    let mut pod = pod("web", &Value::Null, "");
    pod["spec"]["nodeName"] = "n1".into();
    pod["status"]["phase"] = phase.into();
    pod
}

fn step(block: Value, others: &[Value], now: Timestamp) -> Option<BlockStep> {
    let objects = [&[block], others].concat();
    let view = view(&objects);
    block_step(&view.blocks[0], &view, &busy_nodes(&view), now, DELAY)
}

#[test]
fn the_block_of_a_node_that_is_there_stays() {
    assert_eq!(step(block("u1", None), &[node("n1", "u1")], at(0)), None);
    let came_back = step(block("u1", Some(at(300))), &[node("n1", "u1")], at(400));
    assert_eq!(came_back, Some(BlockStep::Unmark));
}

#[test]
fn the_block_of_a_node_that_is_gone_is_marked_and_later_taken_back() {
    assert_eq!(
        step(block("u1", None), &[], at(0)),
        Some(BlockStep::Mark(at(300)))
    );
    let marked = || block("u1", Some(at(300)));
    assert_eq!(step(marked(), &[], at(299)), Some(BlockStep::Wait(at(300))));
    assert_eq!(step(marked(), &[], at(300)), Some(BlockStep::Delete));
}

/// A node of the same name that came later is another one.
#[test]
fn a_later_node_of_the_name_does_not_hold_the_block() {
    let later = [node("n1", "u2")];
    assert_eq!(
        step(block("u1", None), &later, at(0)),
        Some(BlockStep::Mark(at(300)))
    );
}

#[test]
fn a_block_is_not_taken_back_while_a_pod_names_its_node() {
    for phase in ["Running", "Unknown", "Failed"] {
        assert_eq!(step(block("u1", None), &[on_n1(phase)], at(0)), None);
        let marked = block("u1", Some(at(300)));
        assert_eq!(
            step(marked, &[on_n1(phase)], at(400)),
            Some(BlockStep::Unmark),
            "{phase}"
        );
        // It may run on the machine that was the node before.
        let later = [on_n1(phase), node("n1", "u2")];
        assert_eq!(step(block("u1", None), &later, at(0)), None);
    }
}

#[test]
fn a_block_that_is_being_deleted_is_left_alone() {
    let mut block = block("u1", None);
    block["metadata"]["deletionTimestamp"] = "2026-11-20T10:00:00Z".into();
    assert_eq!(step(block, &[], at(0)), None);
}

fn reservation(holder: &Value) -> Value {
    let mut spec = json!({"network": "blue", "address": "10.0.0.7"});
    for (key, value) in holder.as_object().expect("an object") {
        spec[key] = value.clone();
    }
    ours("IPReservation", json!({"name": "blue.10-0-0-7"}), spec)
}

fn orphan(holder: &Value, others: &[Value]) -> bool {
    let objects = [&[reservation(holder)], others].concat();
    let view = view(&objects);
    is_orphan(&view.reservations[0], &view, &Usage::of(&view))
}

#[test]
fn a_reservation_of_a_pod_goes_with_the_pod_by_its_uid() {
    let holder =
        |uid| json!({"pod": {"namespace": "shop", "name": "web", "uid": uid, "node": "n1"}});
    assert!(!orphan(&holder("web-uid"), &[on_n1("Running")]));
    // Its containers may not have ended on a node nobody hears from.
    assert!(!orphan(&holder("web-uid"), &[on_n1("Failed")]));
    assert!(orphan(&holder("web-uid"), &[]));
    assert!(orphan(&holder("an-earlier-uid"), &[on_n1("Running")]));
}

fn ipam_claim(ips: &[&str]) -> Value {
    json!({
        "kind": "IPAMClaim",
        "metadata": {"name": "vm-a", "uid": "c1"},
        "spec": {"network": "blue", "interface": "net1"},
        "status": {"ips": ips},
    })
}

/// ADR 0061: an ADD reserved it and failed, and the claim has other addresses.
#[test]
fn a_reservation_goes_that_its_claim_does_not_name() {
    let holder = json!({"claim": {"namespace": "shop", "name": "vm-a", "uid": "c1"}});
    let other = || ipam_claim(&["10.0.0.8/24", "fd10::8"]);
    assert!(orphan(&holder, &[other()]));
    assert!(!orphan(
        &holder,
        &[ipam_claim(&["10.0.0.8/24", "10.0.0.7/24"])]
    ));
    // What cannot be read may be this one.
    assert!(!orphan(&holder, &[ipam_claim(&["10.0.0.8/24", "10.0.0"])]));
    // A pod may have it from before somebody wrote into the claim.
    let list = r#"[{"name": "blue", "ipam-claim-reference": "vm-a"}]"#;
    assert!(!orphan(&holder, &[other(), pod("vm", &Value::Null, list)]));
}

#[test]
fn a_reservation_of_a_claim_goes_with_the_claim_when_no_pod_names_it() {
    let claim = ipam_claim(&[]);
    let holder = json!({"claim": {"namespace": "shop", "name": "vm-a", "uid": "c1"}});
    assert!(!orphan(&holder, &[claim]));
    assert!(orphan(&holder, &[]));
    let list = r#"[{"name": "blue", "ipam-claim-reference": "vm-a"}]"#;
    assert!(!orphan(&holder, &[pod("vm", &Value::Null, list)]));
    proof::of!("NPWG-8-T4");
}

#[test]
fn where_claims_are_not_defined_their_reservations_stay() {
    let holder = json!({"claim": {"namespace": "shop", "name": "vm-a", "uid": "c1"}});
    let mut view = view(&[reservation(&holder)]);
    view.claims = None;
    assert!(!is_orphan(&view.reservations[0], &view, &Usage::of(&view)));
}

#[test]
fn an_orphan_is_due_when_it_was_one_all_the_time() {
    let mut orphans = Orphans::default();
    let (one, none) = (BTreeSet::from(["r1".to_owned()]), BTreeSet::new());
    assert_eq!(
        orphans.due(&one, at(0), DELAY),
        (BTreeSet::new(), Some(at(300)))
    );
    assert_eq!(
        orphans.due(&one, at(299), DELAY),
        (BTreeSet::new(), Some(at(300)))
    );
    // It had a holder for a moment.
    assert_eq!(orphans.due(&none, at(299), DELAY), (BTreeSet::new(), None));
    assert_eq!(
        orphans.due(&one, at(310), DELAY),
        (BTreeSet::new(), Some(at(610)))
    );
    assert_eq!(orphans.due(&one, at(610), DELAY), (one, None));
}

fn slice(node: Option<&str>) -> ObjectMeta {
    let label = |node: &str| [(NODE_LABEL.to_owned(), label_value(node))].into();
    ObjectMeta {
        labels: node.map(label),
        ..ObjectMeta::default()
    }
}

#[test]
fn slices_are_left_by_nodes_that_are_neither_there_nor_named_by_pods() {
    let long = format!("{}.example", "n".repeat(100));
    let nodes = labels_of_nodes(["here", long.as_str()].into_iter());
    for (node, left) in [
        (Some("here"), false),
        (Some(long.as_str()), false),
        (Some("gone"), true),
        (None, true),
    ] {
        assert_eq!(is_left(&slice(node), &nodes), left, "{node:?}");
    }
}

#[test]
fn the_reservation_of_a_port_is_kept_for_the_port_and_the_pods_that_may_have_it() {
    let reserved = |ip: &str| {
        let name = format!("blue.{}", ip.replace('.', "-"));
        let holder = json!({"namespace": "shop", "name": "db-0", "uid": "first"});
        let spec = json!({"network": "blue", "address": ip, "port": holder});
        ours("IPReservation", json!({"name": name}), spec)
    };
    let port = |uid: &str, made: i64| {
        let made = at(made).to_string();
        let metadata =
            json!({"namespace": "shop", "name": "db-0", "uid": uid, "creationTimestamp": made});
        let mut port = ours("Port", metadata, json!({"network": "blue"}));
        port["status"] = json!({"ips": ["10.0.0.7/24"]});
        port
    };
    let user = |made: i64| {
        let mut pod = pod("web", &json!([{"name": "blue", "port": "db-0"}]), "");
        pod["metadata"]["creationTimestamp"] = at(made).to_string().into();
        pod
    };
    let orphans = |others: &[Value]| {
        let mut objects = vec![reserved("10.0.0.7"), reserved("10.0.0.8")];
        objects.extend(others.iter().cloned());
        let view = view(&objects);
        let usage = Usage::of(&view);
        let all = view.reservations.iter();
        let all = all.filter(|it| is_orphan(it, &view, &usage));
        all.map(|it| it.spec.address.clone()).collect::<Vec<_>>()
    };
    const BOTH: [&str; 2] = ["10.0.0.7", "10.0.0.8"];
    const NONE: [&str; 0] = [];
    assert_eq!(orphans(&[]), BOTH);
    assert_eq!(
        orphans(&[port("first", 1)]),
        ["10.0.0.8"],
        "it has the other"
    );
    assert_eq!(
        orphans(&[port("first", 1), user(2)]),
        ["10.0.0.8"],
        "its pods have its address"
    );
    assert_eq!(
        orphans(&[user(2)]),
        NONE,
        "the Port is deleted, and its pod runs"
    );
    // The next Port of the name, for which pods wait that may be older, as old or younger.
    for made in [2, 3, 4] {
        assert_eq!(orphans(&[port("next", 3), user(made)]), BOTH);
    }
}
