//! Test that what cannot be recovered keeps nothing else from it.

use telemetry::fate::Fate;

use super::super::recover;
use super::{Known, Scene, networks};

#[test]
fn a_network_that_cannot_be_recovered_keeps_no_other_from_it() {
    for index in 0..networks().len() {
        for fate in [Fate::FailsBefore, Fate::FailsFrom] {
            for at in 0..6 {
                let after = format!("network {index}: {fate:?} at call {at}");
                let scene = Scene::new();
                for other in 0..networks().len() {
                    scene
                        .add(u8::try_from(other).unwrap(), other)
                        .unwrap()
                        .expect(&after);
                }
                scene.fake.things().known = Known::default();
                scene.expect(Some((at, fate)));
                let fake = scene.fake.clone();
                scene.run(async move { recover(&fake).await }).unwrap();
                let calls = scene.expect(None);
                // A call that fails is no reason to leave the rest out, but for gateways without guards.
                for name in ["tunnel", "find paths", "find uplinks", "find hops"] {
                    assert!(calls.contains(&name), "{after}: {calls:?}");
                }
                scene.audit();
                scene.assert_settled(&after);
            }
        }
    }
}

/// Runs a recovery of all networks with this fate; returns its calls.
fn recovered(fate: Option<(usize, Fate)>) -> (Scene, Vec<&'static str>) {
    let scene = Scene::new();
    for other in 0..networks().len() {
        let container = u8::try_from(other).unwrap();
        scene.add(container, other).unwrap().unwrap();
    }
    // A reboot: the kernel has nothing, and the book has all.
    {
        let mut things = scene.fake.things();
        things.known = Known::default();
        things.gateways.clear();
        (things.fence, things.mark) = (false, false);
    }
    scene.expect(fate);
    let fake = scene.fake.clone();
    scene.run(async move { recover(&fake).await }).unwrap();
    let calls = scene.expect(None);
    (scene, calls)
}

#[test]
fn a_gateway_that_cannot_be_recovered_keeps_no_other_from_it() {
    let (_, calls) = recovered(None);
    let gateways = calls.iter().enumerate();
    let gateways: Vec<usize> = gateways
        .filter_map(|(at, name)| (*name == "gateway").then_some(at))
        .collect();
    assert_eq!(gateways.len(), 3, "{calls:?}");
    for at in gateways {
        let after = format!("the gateway of call {at} is refused");
        let (scene, calls) = recovered(Some((at, Fate::FailsBefore)));
        assert_eq!(scene.fake.things().gateways.len(), 2, "{after}: {calls:?}");
        scene.audit();
        scene.assert_settled(&after);
    }
}

/// An `ADD` that opens a way out meanwhile waits for one step.
#[test]
fn an_audit_of_ways_out_takes_a_turn_for_each_of_them() {
    let (scene, _) = recovered(None);
    scene.fake.things().turns.clear();
    scene.audit();
    let calls = scene.expect(None);
    let turns = std::mem::take(&mut scene.fake.things().turns);
    let ways = ["fence", "gateway", "gateway", "gateway", "ports"];
    let begun: Vec<&str> = turns.iter().map(|at| calls[*at]).collect();
    assert_eq!(begun, ways, "{calls:?}");
}
