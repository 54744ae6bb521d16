//! Test the table of packets in the kernel: decision, frame and counters.
//!
//! Every counter has to move that must, and no other.

use std::collections::{BTreeMap, BTreeSet};

use agent_common::cases::{self, Case, PODS, Pod, World};
use agent_common::counter::{Count, PortCounters};
use agent_common::drop::DropReason;
use agent_common::icmp_error::{ICMP_ERROR_V4, ICMP_ERROR_V6};
use agent_common::policy::Decision;
use datapath::Datapath;

use super::scratch::{LOOPBACK, fill, scene, try_run, verdict_of};

/// Everything the programs count.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Counted {
    ports: BTreeMap<&'static str, PortCounters>,
    port_reasons: BTreeMap<(&'static str, DropReason), u64>,
    drops: BTreeMap<DropReason, Count>,
    network_drops: BTreeMap<(u32, DropReason), Count>,
}

impl Counted {
    fn read(datapath: &mut Datapath) -> Self {
        let counters = datapath.counters();
        let port = |pod: &Pod| counters.port(pod.port_id).expect("counters of a port");
        let total = |reason| counters.total_drops(reason).expect("drops");
        let reasons = |pod: &Pod| counters.port_drops(pod.port_id).expect("drops of a port");
        let by_network = counters.drops().expect("drops by network");
        Self {
            ports: PODS.iter().map(|pod| (pod.name, port(pod))).collect(),
            port_reasons: PODS
                .iter()
                .flat_map(|pod| {
                    let found = reasons(pod).into_iter();
                    found.map(move |(reason, packets)| ((pod.name, reason), packets))
                })
                .collect(),
            drops: DropReason::ALL
                .iter()
                .map(|reason| (*reason, total(*reason)))
                .collect(),
            network_drops: by_network
                .into_iter()
                .map(|drop| ((drop.network, drop.reason), drop.count))
                .collect(),
        }
    }

    /// Returns the counters after this case.
    fn after(&self, case: &Case) -> Self {
        let mut next = self.clone();
        let length = case.frame.len();
        let output = case.output.as_ref().map_or(0, Vec::len);
        let mut port = |pod: &Pod, change: fn(&mut PortCounters) -> &mut Count, bytes| {
            add(
                change(next.ports.get_mut(pod.name).expect("a pod of the world")),
                bytes,
            );
        };
        let sender = case.sender;
        // The tables of Services are empty.
        let decision = match case.decision {
            Decision::Service => Decision::Drop(DropReason::NoService),
            decision => decision,
        };
        match decision {
            Decision::Drop(reason) => {
                port(sender, |port| &mut port.dropped, length);
                *next.port_reasons.entry((sender.name, reason)).or_default() += 1;
                add(next.drops.entry(reason).or_default(), length);
                add(
                    next.network_drops
                        .entry((sender.network, reason))
                        .or_default(),
                    length,
                );
                if let Some(error_length) = error_length(case) {
                    port(sender, |port| &mut port.to_pod, error_length);
                }
            }
            Decision::Ignore | Decision::Node | Decision::Wire | Decision::WireRoute(..) => {
                port(sender, |port| &mut port.from_pod, length);
            }
            Decision::Flood => port(sender, |port| &mut port.flooded, length),
            Decision::Switch(to)
            | Decision::Moved(to)
            | Decision::Route(to, _)
            | Decision::Leave(to) => {
                port(sender, |port| &mut port.from_pod, length);
                let found = PODS.iter().find(|pod| pod.port_id == to.port_id);
                port(
                    found.expect("a pod of the world"),
                    |port| &mut port.to_pod,
                    output,
                );
            }
            Decision::ArpReply(_)
            | Decision::NdReply(_)
            | Decision::EchoReply(..)
            | Decision::Service => {
                port(sender, |port| &mut port.from_pod, length);
                port(sender, |port| &mut port.to_pod, output);
            }
        }
        next
    }
}

/// Length of the ICMP error that the sender gets, bytes.
///
/// Of a packet without hops, or to a Service that is not there.
pub(crate) fn error_length(case: &Case) -> Option<usize> {
    let v4 = case.frame.get(12) == Some(&0x08);
    let is_told = matches!(
        case.decision,
        Decision::Drop(DropReason::Ttl) | Decision::Service
    );
    is_told.then_some(if v4 { ICMP_ERROR_V4 } else { ICMP_ERROR_V6 })
}

fn add(count: &mut Count, bytes: usize) {
    count.packets += 1;
    count.bytes += u64::try_from(bytes).expect("a frame");
}

/// Lists the differences between a case and the kernel's result.
///
/// # Errors
/// When the kernel refuses to run it.
fn compare(datapath: &mut Datapath, case: &Case) -> Result<Vec<String>, &'static str> {
    let before = Counted::read(datapath);
    let Some(result) = try_run(datapath, &case.frame) else {
        assert!(
            case.may_be_refused_by_test_run(),
            "{} cannot be run",
            case.name
        );
        return Err("this kernel tests no frame without a whole IP header");
    };
    let after = Counted::read(datapath);
    let mut wrong = Vec::new();
    let error_length = error_length(case);
    let verdict = verdict_of(case.decision);
    if result.verdict != verdict {
        wrong.push(format!("verdict {}, not {verdict}", result.verdict));
    }
    let frame = case.output.as_ref().unwrap_or(&case.frame);
    if let Some(length) = error_length {
        // What it says is looked at where a pod hears it, in the isolation tests.
        let start = [&case.frame[6..12], &case.frame[..6], &case.frame[12..14]].concat();
        if result.frame.len() != length || !result.frame.starts_with(&start) {
            wrong.push(format!(
                "ICMP error
    {:02x?}",
                result.frame
            ));
        }
    } else if result.frame != *frame {
        wrong.push(format!(
            "frame\n    {:02x?}\nnot {frame:02x?}",
            result.frame
        ));
    }
    let expected = before.after(case);
    if after != expected {
        for (name, counters) in &after.ports {
            if expected.ports.get(name) != Some(counters) {
                wrong.push(format!(
                    "{name} {counters:?}, not {:?}",
                    expected.ports.get(name)
                ));
            }
        }
        for (reason, count) in &after.drops {
            if expected.drops.get(reason) != Some(count) {
                wrong.push(format!(
                    "{reason} {count:?}, not {:?}",
                    expected.drops.get(reason)
                ));
            }
        }
        if after.port_reasons != expected.port_reasons {
            wrong.push(format!("reasons {:?}", after.port_reasons));
        }
        wrong.push("counters".to_owned());
    }
    Ok(wrong
        .into_iter()
        .map(|line| format!("{}: {line}", case.name))
        .collect())
}

#[test]
fn the_kernel_decides_every_case_as_the_table_says() {
    scene(|scratch| {
        let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
        datapath.serve_services().expect("programs that load");
        let (mut ran, mut wrong, mut beyond) = (0, Vec::new(), BTreeMap::new());
        let all = cases::all();
        for sender in PODS {
            fill(&mut datapath, &World::with_pod_at(sender, LOOPBACK));
            for case in all.iter().filter(|case| *case.sender == *sender) {
                let result = case
                    .beyond_test_run()
                    .map_or_else(|| compare(&mut datapath, case), Err);
                match result {
                    Ok(lines) => {
                        wrong.extend(lines);
                        ran += 1;
                    }
                    Err(reason) => beyond
                        .entry(reason)
                        .or_insert_with(Vec::new)
                        .push(case.name),
                }
            }
        }
        for (reason, names) in &beyond {
            println!("not run, because {reason}: {}", names.join("; "));
        }
        let left_out: usize = beyond.values().map(Vec::len).sum();
        assert_eq!(ran + left_out, all.len());
        assert!(left_out <= 24, "{left_out} cases are not run");
        assert!(
            wrong.is_empty(),
            "{} of {ran} cases\n{}",
            wrong.len(),
            wrong.join("\n")
        );
        println!("{ran} cases");
    });
}

#[test]
fn no_frame_cut_short_gets_farther_in_the_kernel_than_in_the_library() {
    scene(|scratch| {
        let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
        // One question of each kind and one packet of each family: every load of every parser.
        let chosen: BTreeSet<_> = [
            "who has a neighbour's address",
            "solicit with four options",
            "advertise one's own address",
            "UDP",
            "eight extension headers",
            "an MLDv2 report",
            "ping with 40 bytes of IPv4 options",
            "ping behind destination options",
            "UDP over IPv6, L3",
            "UDP, by the node",
        ]
        .into();
        let all: Vec<_> = cases::all()
            .into_iter()
            .filter(|case| chosen.contains(case.name))
            .collect();
        assert_eq!(all.len(), chosen.len());
        for case in all {
            let world = World::with_pod_at(case.sender, LOOPBACK);
            fill(&mut datapath, &world);
            let tables = world.seen_by(LOOPBACK);
            for length in 14..case.frame.len() {
                let mut shorter = case.clone();
                shorter.frame.truncate(length);
                let decision = agent_common::policy::decide(&shorter, &case.sender.port(), &tables);
                let Some(result) = try_run(&datapath, &shorter.frame) else {
                    assert!(
                        shorter.may_be_refused_by_test_run(),
                        "{} cut to {length}",
                        case.name
                    );
                    continue;
                };
                let expected = verdict_of(decision);
                assert_eq!(
                    result.verdict, expected,
                    "{} cut to {length}: {decision:?}",
                    case.name
                );
            }
        }
    });
}
