//! Test endpoints on other nodes: packets to the tunnel device, numbers of nodes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use agent_common::addr::Ip16;
use agent_common::cases::{self, BLUE_A, BLUE_B, GREEN_A, GREEN_B, Pod, World};
use agent_common::drop::DropReason;
use agent_common::endpoint::{ENDPOINT_REMOTE, Endpoint};
use agent_common::policy::Decision;
use agent_common::vtep::Vtep;
use datapath::Datapath;

use super::scratch::{LOOPBACK, REDIRECT, SHOT, fill, scene, try_run};

/// Number of the other node.
const THERE: u32 = 5;

/// Returns a world with `here` at the loopback interface, `far` on another node.
fn world(here: &Pod, far: &Pod) -> World {
    let mut world = World::with_pod_at(here, LOOPBACK);
    let remote = Endpoint {
        ifindex: THERE,
        flags: ENDPOINT_REMOTE,
        mac: far.mac,
        port_id: u16::MAX,
    };
    for endpoint in world.fdb.values_mut().chain(world.endpoints.values_mut()) {
        if endpoint.ifindex == far.ifindex {
            *endpoint = remote;
        }
    }
    world.ports.remove(&far.ifindex);
    world
}

fn address(text: &str) -> Ip16 {
    text.parse::<IpAddr>().expect("an address").into()
}

/// Runs every case of `here` that is delivered to `far`; how many there were.
fn deliveries(datapath: &mut Datapath, here: &Pod, far: &Pod, verdict: u32) -> u64 {
    let mut ran = 0;
    for case in cases::all() {
        let (Decision::Switch(to) | Decision::Moved(to) | Decision::Route(to, _)) = case.decision
        else {
            continue;
        };
        if *case.sender != *here || to != far.endpoint() || case.beyond_test_run().is_some() {
            continue;
        }
        let Some(result) = try_run(datapath, &case.frame) else {
            continue;
        };
        assert_eq!(result.verdict, verdict, "{}", case.name);
        if verdict == REDIRECT {
            // The device adds what is around it.
            let output = case.output.as_deref().unwrap_or_default();
            assert_eq!(result.frame, output, "{}", case.name);
        }
        ran += 1;
    }
    ran
}

#[test]
fn what_is_for_another_node_goes_to_its_tunnel_and_without_one_nowhere() {
    scene(|scratch| {
        let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
        for (here, far) in [(&BLUE_A, &BLUE_B), (&GREEN_A, &GREEN_B)] {
            fill(&mut datapath, &world(here, far));
            for there in ["192.0.2.7", "2001:db8::7"] {
                let sent = |datapath: &mut Datapath| {
                    let counters = datapath.counters().port(here.port_id).expect("counters");
                    counters.from_pod.packets
                };
                let before = sent(&mut datapath);
                let drops = |datapath: &mut Datapath| {
                    let total = datapath.counters().total_drops(DropReason::NoTunnel);
                    total.expect("counters").packets
                };
                let dropped = drops(&mut datapath);
                let refused = deliveries(&mut datapath, here, far, SHOT);
                assert!(refused > 5, "only {refused} cases ran");
                assert_eq!(drops(&mut datapath), dropped + refused);
                assert_eq!(sent(&mut datapath), before);
                let vtep = Vtep::new(&address(there), LOOPBACK);
                datapath.tables().vteps.set(THERE, vtep).expect("set");
                let ran = deliveries(&mut datapath, here, far, REDIRECT);
                assert_eq!(ran, refused);
                assert_eq!(sent(&mut datapath), before + ran);
                assert_eq!(drops(&mut datapath), dropped + refused);
                datapath.tables().vteps.clear(THERE).expect("cleared");
            }
        }
    });
}

#[test]
fn nodes_are_read_back_as_they_were_written() {
    scene(|scratch| {
        let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
        let vteps = &mut datapath.tables().vteps;
        assert!(vteps.dump().expect("read").is_empty());
        let (a, b) = (address("192.0.2.1"), address("2001:db8::2"));
        for (number, address) in [(1, a), (vteps.capacity() - 1, b)] {
            vteps.set(number, Vtep::new(&address, 9)).expect("set");
            vteps.admit(address, number).expect("admitted");
        }
        let found: BTreeMap<u32, Ip16> = vteps
            .dump()
            .expect("read")
            .into_iter()
            .map(|(number, vtep)| (number, vtep.address()))
            .collect();
        assert_eq!(found, BTreeMap::from([(1, a), (vteps.capacity() - 1, b)]));
        assert_eq!(
            vteps.sources().expect("read"),
            BTreeMap::from([(a, 1), (b, vteps.capacity() - 1),])
        );
        vteps.refuse(&a).expect("refused");
        vteps.clear(1).expect("cleared");
        assert_eq!(vteps.dump().expect("read").len(), 1);
        assert_eq!(vteps.sources().expect("read").len(), 1);
        let beyond = vteps.set(vteps.capacity(), Vtep::new(&a, 9));
        assert!(beyond.is_err(), "a number beyond the table");
    });
}
