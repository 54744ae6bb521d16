//! Hold the policy to the table of packets, and to any bytes that a pod may send.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use agent_common::addr::{GATEWAY_MAC, MacAddr};
use agent_common::cases::{self, BEYOND, Case, OCHRE, OLIVE, OUTSIDE, PODS, Pod, World, build};
use agent_common::drop::DropReason;
use agent_common::endpoint::{ENDPOINT_GATEWAY, ENDPOINT_OUTSIDE, Endpoint};
use agent_common::packet::{ETH_HLEN, ETH_P_IP, ETH_P_IPV6, first_protocol};
use agent_common::policy::{self, Decision};
use agent_common::port::{
    PORT_ANY_IP, PORT_EGRESS, PORT_L3, PORT_NODE, PORT_OUTSIDE, PORT_ROUTES, PORT_TRUNK, PORT_WIRE,
};
use agent_common::storm::{STORM_BURST, STORM_RATE, StormBucket};
use proptest::prelude::*;
use proptest::sample::Index;

/// Reasons of the dispatcher, storm control and delivery, outside of the policy.
const NOT_OF_THE_POLICY: [DropReason; 20] = [
    // Of Services, to which packets are translated after it.
    DropReason::NoService,
    DropReason::NoBackend,
    DropReason::NoLocalBackend,
    DropReason::ServiceClash,
    // Of network policies, which are asked after the decision.
    DropReason::PolicyEgress,
    DropReason::PolicyIngress,
    DropReason::PolicyFragment,
    DropReason::FlowLimit,
    DropReason::SmallSegments,
    DropReason::StormNetwork,
    DropReason::StormNode,
    DropReason::NoProgram,
    DropReason::NoPort,
    DropReason::Storm,
    DropReason::Undeliverable,
    DropReason::UnknownNode,
    DropReason::UnknownNetwork,
    DropReason::NoTunnel,
    DropReason::PathMtu,
    DropReason::NoUplink,
];

/// Cost of a frame with few receivers, nanoseconds.
const FLOOD_NS: u64 = 1_000_000_000 / STORM_RATE;

static WORLD: LazyLock<World> = LazyLock::new(World::new);
static CASES: LazyLock<Vec<Case>> = LazyLock::new(cases::all);

fn decide(world: &World, sender: &Pod, frame: &[u8]) -> Decision {
    policy::decide(frame, &sender.port(), &world.seen_by(sender.ifindex))
}

#[test]
fn every_case_is_decided_as_the_table_says() {
    let world = &WORLD;
    let mut wrong = Vec::new();
    for case in CASES.iter() {
        let tables = world.seen_by(case.sender.ifindex);
        let decision = policy::decide(case, &case.sender.port(), &tables);
        if decision != case.decision {
            wrong.push(format!(
                "{}: {decision:?}, not {:?}",
                case.name, case.decision
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_has_every_decision_and_every_reason_of_the_policy() {
    let all = &CASES;
    let names: BTreeSet<_> = all.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), all.len(), "two cases have one name");
    assert!(all.len() >= 120, "{} cases", all.len());
    for reason in DropReason::ALL {
        let found = all
            .iter()
            .any(|case| case.decision == Decision::Drop(*reason));
        assert_eq!(found, !NOT_OF_THE_POLICY.contains(reason), "{reason}");
    }
    let kinds: BTreeSet<_> = all.iter().map(|case| kind(&case.decision)).collect();
    assert_eq!(kinds.len(), 14, "{kinds:?}");
}

/// Exhaustive, so that a new decision asks for its case.
fn kind(decision: &Decision) -> &'static str {
    match decision {
        Decision::Drop(_) => "drop",
        Decision::Ignore => "ignore",
        Decision::Switch(_) => "switch",
        Decision::Moved(_) => "moved",
        Decision::Route(..) => "route",
        Decision::Leave(_) => "leave",
        Decision::Wire => "wire",
        Decision::WireRoute(..) => "wire route",
        Decision::Flood => "flood",
        Decision::Node => "node",
        Decision::ArpReply(_) => "arp reply",
        Decision::NdReply(_) => "nd reply",
        Decision::EchoReply(..) => "echo reply",
        Decision::Service => "service",
    }
}

#[test]
fn what_does_not_leave_has_no_output_and_what_leaves_has() {
    for case in CASES.iter() {
        let stays = matches!(
            case.decision,
            Decision::Drop(_) | Decision::Ignore | Decision::Service
        );
        assert_eq!(case.output.is_none(), stays, "{}", case.name);
    }
}

#[test]
fn a_frame_cut_anywhere_is_dropped_or_treated_as_the_whole_one() {
    let world = &WORLD;
    for case in CASES.iter() {
        for length in 0..case.frame.len() {
            let mut shorter = case.clone();
            shorter.frame.truncate(length);
            let tables = world.seen_by(case.sender.ifindex);
            let decision = policy::decide(&shorter, &case.sender.port(), &tables);
            assert!(
                matches!(decision, Decision::Drop(_))
                    || decision == case.decision
                    || case.decision == Decision::Drop(DropReason::TooBig),
                "{} cut to {length}: {decision:?}",
                case.name
            );
        }
    }
}

/// Checks the invariants of a decision about any frame.
fn judge(world: &World, sender: &Pod, frame: &[u8]) -> Result<(), TestCaseError> {
    let decision = decide(world, sender, frame);
    if matches!(decision, Decision::Drop(_)) {
        return Ok(());
    }
    let source = frame.get(6..12).unwrap_or_default();
    prop_assert_eq!(
        source,
        sender.mac.0,
        "{:?} of a frame from another MAC",
        decision
    );
    if let Decision::Switch(to) | Decision::Moved(to) = decision {
        prop_assert!(
            is_neighbour(sender, &to),
            "{to:?} is no neighbour of {}",
            sender.name
        );
    }
    if let Decision::Route(to, _) = decision {
        let switched = sender.flags & PORT_L3 == 0;
        prop_assert!(
            !switched && is_neighbour(sender, &to) || is_led_to(world, sender, &to),
            "{} has no route to {to:?}",
            sender.name
        );
        prop_assert_eq!(&frame[..6], GATEWAY_MAC.0, "past the gateway");
    }
    if let Decision::Leave(to) = decision {
        prop_assert!(
            sender.flags & PORT_EGRESS != 0,
            "{} has no way out",
            sender.name
        );
        prop_assert!(to.flags & ENDPOINT_OUTSIDE != 0, "{to:?}");
        prop_assert!(is_of_network(sender, &to), "{to:?} of {}", sender.name);
        prop_assert!(
            !is_for_none_or_many(frame),
            "nobody outside has that address"
        );
    }
    if decision == Decision::Wire {
        prop_assert!(sender.flags & PORT_WIRE != 0, "{} has no wire", sender.name);
    }
    if let Decision::WireRoute(to, _) = decision {
        prop_assert!([OCHRE, OLIVE].contains(&sender.network), "{}", sender.name);
        if to.flags & ENDPOINT_OUTSIDE != 0 {
            prop_assert!(
                sender.flags & PORT_EGRESS != 0,
                "{} has no way out",
                sender.name
            );
            prop_assert_eq!(to, OUTSIDE.endpoint());
            prop_assert!(
                !is_for_none_or_many(frame),
                "nobody outside has that address"
            );
        } else {
            prop_assert_eq!(to, BEYOND.endpoint());
        }
    }
    // Frames here have no tag beside them.
    prop_assert!(sender.flags & PORT_TRUNK == 0, "{decision:?} without a tag");
    if sender.flags & PORT_L3 != 0 {
        prop_assert!(
            !matches!(
                decision,
                Decision::Switch(_) | Decision::Moved(_) | Decision::Flood | Decision::Wire
            ),
            "{decision:?}"
        );
    } else {
        let routed = matches!(decision, Decision::WireRoute(..));
        prop_assert!(!routed, "{decision:?}");
    }
    if sender.flags & PORT_NODE == 0 {
        prop_assert_ne!(
            decision,
            Decision::Node,
            "a network that the node does not route for"
        );
    } else {
        prop_assert!(
            !matches!(decision, Decision::Route(..)),
            "past the node: {decision:?}"
        );
    }
    if decision == Decision::Node {
        prop_assert!(
            !is_for_none_or_many(frame),
            "the node would take it for its own"
        );
    }
    if sender.flags & (PORT_ANY_IP | PORT_OUTSIDE) == 0 {
        prop_assert!(
            owns_source(sender, frame, &decision),
            "{decision:?} of a false IP source"
        );
    }
    Ok(())
}

/// Read here again: a group, or an address by which a host means itself.
fn is_for_none_or_many(frame: &[u8]) -> bool {
    let ip: std::net::IpAddr = match u16::from_be_bytes([frame[12], frame[13]]) {
        ETH_P_IP => load::<4>(frame, 30).into(),
        _ => load::<16>(frame, 38).into(),
    };
    let broadcast = matches!(ip, std::net::IpAddr::V4(v4) if v4.is_broadcast());
    ip.is_multicast() || ip.is_loopback() || ip.is_unspecified() || broadcast
}

fn is_neighbour(sender: &Pod, to: &Endpoint) -> bool {
    to.flags & (ENDPOINT_GATEWAY | ENDPOINT_OUTSIDE) == 0 && is_of_network(sender, to)
}

/// True for a pod of another network, when both have a route to the other.
fn is_led_to(world: &World, sender: &Pod, to: &Endpoint) -> bool {
    let leads = |from, to| {
        let mut routes = world.routes.iter();
        routes.any(|(key, route)| key.network == from && route.network == to)
    };
    let there = PODS.iter().find(|pod| pod.endpoint() == *to);
    there.is_some_and(|pod| {
        sender.flags & pod.flags & PORT_ROUTES != 0
            && pod.network != sender.network
            && leads(sender.network, pod.network)
            && leads(pod.network, sender.network)
    })
}

fn is_of_network(sender: &Pod, to: &Endpoint) -> bool {
    PODS.iter()
        .any(|pod| pod.network == sender.network && **pod != *sender && pod.endpoint() == *to)
}

fn load<const N: usize>(frame: &[u8], at: usize) -> [u8; N] {
    frame[at..at + N].try_into().expect("as many as asked for")
}

/// True when the IP source, read here again, is one of the sender's own addresses.
///
/// True too when it is unspecified and the packet reaches others by flooding only.
fn owns_source(sender: &Pod, frame: &[u8], decision: &Decision) -> bool {
    let ether_type = u16::from_be_bytes([frame[12], frame[13]]);
    let source: std::net::IpAddr = match ether_type {
        ETH_P_IP => load::<4>(frame, 26).into(),
        ETH_P_IPV6 => load::<16>(frame, 22).into(),
        _ => return true,
    };
    sender.addresses().contains(&source)
        || (ether_type == ETH_P_IPV6
            && source.is_unspecified()
            && frame[20] != 17
            && !matches!(
                decision,
                Decision::Route(..)
                    | Decision::WireRoute(..)
                    | Decision::Leave(_)
                    | Decision::Node
                    | Decision::EchoReply(..)
            ))
}

fn any_pod() -> impl Strategy<Value = &'static Pod> {
    any::<Index>().prop_map(|index| *index.get(&PODS))
}

/// A frame of the table with some bytes changed, which gets further than noise.
fn any_mutant() -> impl Strategy<Value = (Case, Vec<u8>)> {
    let edits = prop::collection::vec((any::<Index>(), any::<u8>()), 0..6);
    (any::<Index>(), edits).prop_map(|(index, edits)| {
        let case = index.get(&CASES[..]).clone();
        let mut frame = case.frame.clone();
        for (at, value) in edits {
            if !frame.is_empty() {
                let at = at.index(frame.len());
                frame[at] = value;
            }
        }
        (case, frame)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..Default::default() })]

    #[test]
    fn noise_is_never_delivered(pod in any_pod(), frame in prop::collection::vec(any::<u8>(), 0..200)) {
        judge(&WORLD, pod, &frame)?;
    }

    #[test]
    fn noise_behind_a_true_ethernet_header_stays_on_its_network(
        pod in any_pod(),
        to in any_pod(),
        ether_type in prop::sample::select(vec![0x0800_u16, 0x86dd, 0x0806, 0x88b5]),
        payload in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        judge(&WORLD, pod, &build::ethernet(to.mac, pod.mac, ether_type, &payload))?;
    }

    #[test]
    fn noise_behind_a_true_ipv6_header_stays_on_its_network(
        pod in any_pod(),
        to in any_pod(),
        protocol in prop::sample::select(vec![0_u8, 6, 17, 43, 44, 51, 58, 60, 135]),
        hops in prop::sample::select(vec![0_u8, 1, 64, 255]),
        payload in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let ip = build::Ipv6 { hops, ..build::Ipv6::new(pod.ip6, to.ip6) };
        judge(&WORLD, pod, &ip.frame(to.mac, pod.mac, protocol, &payload))?;
    }

    #[test]
    fn a_changed_case_stays_on_its_network((case, frame) in any_mutant()) {
        judge(&WORLD, case.sender, &frame)?;
    }

    #[test]
    fn a_case_sent_by_another_pod_is_judged_by_that_pods_rights(
        pod in any_pod(),
        (_, frame) in any_mutant(),
    ) {
        judge(&WORLD, pod, &frame)?;
    }

    #[test]
    fn a_source_mac_that_is_not_the_ports_is_always_dropped(
        mut mutant in any_mutant(),
        mac in any::<[u8; 6]>(),
    ) {
        let (case, frame) = &mut mutant;
        prop_assume!(mac != case.sender.mac.0 && frame.len() >= ETH_HLEN);
        frame[6..12].copy_from_slice(&mac);
        let decision = decide(&WORLD, case.sender, frame);
        let expected = [DropReason::SpoofedMac, DropReason::VlanTag, DropReason::VlanId];
        prop_assert!(expected.map(Decision::Drop).contains(&decision), "{decision:?}");
    }

    #[test]
    fn a_network_without_others_reaches_nobody((case, frame) in any_mutant()) {
        let mut world = WORLD.clone();
        world.fdb.retain(|key, _| key.network != case.sender.network);
        world.endpoints.retain(|key, _| key.network != case.sender.network);
        world.routes.retain(|key, _| key.network != case.sender.network);
        let decision = decide(&world, case.sender, &frame);
        // Whom the node reaches, or a wire, does not depend on our tables.
        let nobody = matches!(
            decision,
            Decision::Drop(_)
                | Decision::Ignore
                | Decision::Flood
                | Decision::Node
                | Decision::Wire
        );
        prop_assert!(nobody, "{decision:?}");
    }

    #[test]
    fn an_answer_goes_out_only_for_who_is_there((case, frame) in any_mutant()) {
        let (Decision::ArpReply(mac) | Decision::NdReply(mac)) =
            decide(&WORLD, case.sender, &frame)
        else {
            return Ok(());
        };
        let network = case.sender.network;
        let there = PODS.iter().any(|pod| pod.network == network && pod.mac == mac);
        prop_assert!(there || mac == GATEWAY_MAC, "{mac}");
        prop_assert_ne!(mac, case.sender.mac, "nobody is told of oneself");
    }

    #[test]
    fn no_more_frames_pass_than_storm_control_allows(
        start in 0_u64..1 << 60,
        pauses in prop::collection::vec(0_u64..20_000_000, 1..200),
        tries in 1_u64..200,
    ) {
        let (mut bucket, mut now, mut passed) = (StormBucket::default(), start, 0_u64);
        for pause in &pauses {
            now += pause;
            for _ in 0..tries {
                if let Some(next) = bucket.take(now, FLOOD_NS) {
                    bucket = next;
                    passed += 1;
                }
            }
        }
        let elapsed = now - start;
        prop_assert!(passed <= STORM_BURST + elapsed * STORM_RATE / 1_000_000_000 + 1, "{passed}");
    }

    #[test]
    fn a_port_within_its_rate_is_never_held_back(
        start in 1_u64 << 40..1 << 60,
        count in 1_u64..5000,
    ) {
        let mut bucket = StormBucket::default();
        for index in 0..count {
            let now = start + index * (1_000_000_000 / STORM_RATE);
            let next = bucket.take(now, FLOOD_NS);
            prop_assert!(next.is_some(), "frame {index}");
            bucket = next.unwrap_or(bucket);
        }
    }
}

#[test]
fn a_bucket_is_full_right_after_boot_only_as_far_as_time_has_passed() {
    // CLOCK_MONOTONIC starts near 0: a bucket of zeros has then earned nothing.
    assert_eq!(StormBucket::default().take(0, FLOOD_NS), None);
    assert!(StormBucket::default().take(1_000_000, FLOOD_NS).is_some());
}

#[test]
fn a_clock_that_stands_still_gives_the_burst_and_no_more() {
    let mut bucket = StormBucket::default();
    let mut passed = 0;
    while let Some(next) = bucket.take(u64::MAX / 2, FLOOD_NS) {
        bucket = next;
        passed += 1;
    }
    assert_eq!(passed, STORM_BURST);
}

#[test]
fn the_macs_of_the_world_repeat_across_networks_and_not_within() {
    let mut seen = BTreeSet::new();
    for pod in PODS {
        assert!(seen.insert((pod.network, pod.mac)), "{}", pod.name);
    }
    let macs: BTreeSet<MacAddr> = PODS.iter().map(|pod| pod.mac).collect();
    assert!(macs.len() < PODS.len());
}

#[test]
fn the_protocol_of_a_frame_is_found_in_its_fixed_header() {
    let ethernet =
        |kind: u16, rest: &[u8]| -> Vec<u8> { [&[0; 12][..], &kind.to_be_bytes(), rest].concat() };
    let v4 = [[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6].as_slice(), &[0; 10]].concat();
    let v6 = [[0x60, 0, 0, 0, 0, 0, 17, 64].as_slice(), &[0; 32]].concat();
    for (kind, rest, expected) in [
        (ETH_P_IP, &v4[..], 6),
        (ETH_P_IPV6, &v6[..], 17),
        (ETH_P_IP, &v4[..9], 0),
        (0x0806, &[6; 28][..], 0),
    ] {
        let frame = ethernet(kind, rest);
        assert_eq!(first_protocol(&frame[..]), expected, "{kind:#06x}");
    }
}
