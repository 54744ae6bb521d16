//! Ports of the node that cannot be led to pods, or not away from these.

use telemetry::fate::Fate;

use super::{Scene, clean_run, facts, networks};

/// A network with egress, and another.
const EGRESS: usize = 4;
const OTHER: usize = 5;

#[test]
fn an_add_whose_ports_cannot_be_written_is_undone_with_its_way_out() {
    let (calls, _) = clean_run(EGRESS);
    let at = calls.iter().position(|name| *name == "ports");
    let at = at.expect("a step of the ADD");
    for fate in Fate::FAILURES {
        let after = format!("{fate:?}");
        let scene = Scene::new();
        scene.expect(Some((at, fate)));
        scene.add(1, EGRESS).unwrap().expect_err(&after);
        scene.expect(None);
        scene.remove(1).unwrap();
        scene.assert_settled(&after);
        let things = scene.fake.things();
        assert!(things.ports.is_empty() && things.book.is_empty(), "{after}");
        assert!(things.gateways.is_empty() && !things.fence, "{after}");
    }
}

#[test]
fn a_gateway_that_takes_no_ports_fails_its_own_network_and_no_other() {
    assert!(networks()[EGRESS].egress == networks()[OTHER].egress);
    let scene = Scene::new();
    scene.add(1, OTHER).unwrap().unwrap();
    let broken = facts(OTHER).1.id;
    scene.fake.things().broken.insert(broken);
    scene.add(2, EGRESS).unwrap().expect("another network");
    scene.add(3, OTHER).unwrap().expect_err("its own");
    // No port leads to a gateway that may say anything.
    assert_eq!(scene.fake.things().ports, [2].into());
    scene.remove(2).unwrap();
    assert!(!scene.fake.things().book.contains_key(&2), "another's DEL");
    // Its addresses are held until it is known that no port leads there.
    scene.remove(3).unwrap();
    assert!(scene.fake.things().book.contains_key(&3), "its own DEL");
    scene.fake.things().broken.clear();
    scene.audit();
    scene.assert_settled("the gateway is mended");
    assert_eq!(scene.fake.things().ports, [1].into());
}

#[test]
fn the_addresses_of_a_pod_are_held_while_a_port_may_lead_there() {
    let scene = Scene::new();
    scene.add(1, EGRESS).unwrap().unwrap();
    let (_, removed) = clean_run(EGRESS);
    assert_eq!(removed.first(), Some(&"ports"), "before all else");
    scene.expect(Some((0, Fate::FailsBefore)));
    scene.remove(1).unwrap();
    scene.expect(None);
    assert!(scene.fake.things().book.contains_key(&1));
    scene.audit();
    scene.assert_settled("the audit");
    assert!(scene.fake.things().book.is_empty());
}

/// It is made again, so that no removal waits for the audit.
#[test]
fn a_pod_behind_a_gateway_without_a_namespace_is_removed_at_once() {
    let scene = Scene::new();
    scene.add(1, EGRESS).unwrap().unwrap();
    scene.add(2, EGRESS).unwrap().unwrap();
    let lost = facts(EGRESS).1.id;
    scene.fake.things().lost.insert(lost);
    scene.remove(1).unwrap();
    assert!(!scene.fake.things().book.contains_key(&1), "it is gone");
    assert_eq!(scene.fake.things().ports, [2].into());
    scene.assert_settled("the gateway is made again");
}
