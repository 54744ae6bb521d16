//! Test ports whose traffic waits in a rate limit, on the way there and back.

use std::collections::BTreeMap;

use agent_common::cases::{self, Case, PODS, Pod, World};
use agent_common::counter::PortCounters;
use agent_common::policy::Decision;
use agent_common::port::Port;
use datapath::Datapath;

use super::cases::error_length;
use super::scratch::{LOOPBACK, REDIRECT, fill, scene, try_run, verdict_of};

/// The near end of the shaper.
///
/// The kernel looks at it after the program, which is not tested here.
const SHAPER: u32 = 4000;

fn is_forwarded(case: &Case) -> bool {
    matches!(
        case.decision,
        Decision::Switch(_)
            | Decision::Moved(_)
            | Decision::Route(..)
            | Decision::Leave(_)
            | Decision::Wire
            | Decision::WireRoute(..)
            | Decision::Node
            | Decision::Service
            | Decision::Flood
    )
}

fn counters(datapath: &mut Datapath) -> BTreeMap<&'static str, PortCounters> {
    let counters = datapath.counters();
    PODS.iter()
        .map(|pod| (pod.name, counters.port(pod.port_id).expect("counters")))
        .collect()
}

/// Returns a world with the loopback interface as this pod's, which has `port`.
fn world(pod: &Pod, port: Port) -> World {
    let mut world = World::with_pod_at(pod, pod.ifindex);
    world.ports.insert(LOOPBACK, port);
    world
}

/// Runs cases in the kernel with `check` on each result; returns the sum of these.
fn each(
    datapath: &mut Datapath,
    sender: &Pod,
    mut check: impl FnMut(&Case, u32, &[u8], bool) -> usize,
) -> usize {
    let mut ran = 0;
    for case in cases::all().iter().filter(|case| *case.sender == *sender) {
        if case.beyond_test_run().is_some() {
            continue;
        }
        let before = counters(datapath);
        let Some(result) = try_run(datapath, &case.frame) else {
            continue;
        };
        let counted = counters(datapath) != before;
        ran += check(case, result.verdict, &result.frame, counted);
    }
    ran
}

#[test]
fn what_a_limited_port_may_send_goes_to_its_shaper_as_it_is_and_is_counted_later() {
    scene(|scratch| {
        let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
        datapath.serve_services().expect("programs that load");
        let mut ran = 0;
        for sender in PODS {
            let port = Port {
                shaper: SHAPER,
                ..sender.port()
            };
            fill(&mut datapath, &world(sender, port));
            ran += each(&mut datapath, sender, |case, verdict, frame, counted| {
                let name = case.name;
                if is_forwarded(case) {
                    assert_eq!(verdict, REDIRECT, "{name}");
                    assert_eq!(frame, case.frame, "{name}");
                    assert!(!counted, "{name} is counted before it has left the shaper");
                } else {
                    assert_eq!(verdict, verdict_of(case.decision), "{name}");
                    assert!(counted, "{name}");
                }
                1
            });
        }
        assert!(ran > 300, "only {ran} cases ran");
    });
}

#[test]
fn what_comes_back_from_a_shaper_is_decided_as_if_the_pod_had_just_sent_it() {
    scene(|scratch| {
        let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
        datapath.serve_services().expect("programs that load");
        let mut ran = 0;
        for sender in PODS {
            // Home stays the pod's own interface: its further addresses are filed there.
            fill(&mut datapath, &world(sender, sender.port()));
            ran += each(&mut datapath, sender, |case, verdict, frame, counted| {
                let name = case.name;
                assert_eq!(verdict, verdict_of(case.decision), "{name}");
                let expected = case.output.as_ref().unwrap_or(&case.frame);
                let is_error = error_length(case).is_some();
                assert!(is_error || frame == expected, "{name}");
                assert!(counted, "{name}");
                1
            });
        }
        assert!(ran > 300, "only {ran} cases ran");
    });
}
