//! Frames against connections that a kernel has shown, or has not.

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;

use agent_common::cases::build::{Ipv4, Ipv6};
use agent_common::cases::{BLUE_A, BLUE_B, BLUE_C, Pod};
use agent_common::guard::{FLOW_ANSWERED, FLOW_FIN_HIGH, FLOW_FIN_LOW, FLOW_RESET, Tuple};
use agent_common::packet::{IPPROTO_TCP, IPPROTO_UDP};
use zerocopy::IntoBytes as _;

use super::*;
use crate::network::{Last, Network, Slot as Port, Way};

const PORTS: u32 = 4096;
const NOW: u32 = 5000;
/// Stamps of the sets of `BLUE_A` and `BLUE_B`.
const STAMPS: (u32, u32) = (41, 42);
const NO_STAMP: Stamp = Stamp {
    word: 0,
    complement: 0,
};
/// An acknowledgement, as most segments are (RFC 9293).
const ACK: u8 = 0x10;

/// Maps, as the kernel and the agent write them.
struct Shown {
    flows: File,
    stamps: File,
    published: Published,
}

fn secret() -> [[u64; 8]; 2] {
    let mut number = 0x0123_4567_89ab_cdef_u64;
    [(); 2].map(|()| {
        [(); 8].map(|()| {
            number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            number
        })
    })
}

impl Shown {
    /// Of two ports that are judged in both directions.
    fn new() -> Self {
        let (flows, stamps) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        flows.set_len(64 * u64::from(MAX_SWITCH_FLOWS)).unwrap();
        stamps.set_len(16 * u64::from(PORTS)).unwrap();
        flows.write_all_at(secret().as_bytes(), 0).unwrap();
        let published = Published::new(flows.as_fd(), stamps.as_fd(), PORTS).unwrap();
        let shown = Self {
            flows,
            stamps,
            published,
        };
        shown.stamp(&BLUE_A, &Stamp::of(&guard(STAMPS.0)));
        shown.stamp(&BLUE_B, &Stamp::of(&guard(STAMPS.1)));
        shown
    }

    fn stamp(&self, pod: &Pod, stamp: &Stamp) {
        let at = 16 * u64::from(pod.port_id);
        self.stamps.write_all_at(stamp.as_bytes(), at).unwrap();
    }

    fn slot(key: FlowKey, flow: FlowWords) -> (u64, Slot) {
        let [low, high] = &secret();
        let secret = Secret { low, high };
        let sum = secret.sum(&key);
        let tag = secret.tag(sum, &flow);
        (64 * u64::from(Secret::place(sum)), Slot { key, flow, tag })
    }

    fn show(&self, key: FlowKey, flow: FlowWords) {
        let (at, slot) = Self::slot(key, flow);
        self.flows.write_all_at(slot.as_bytes(), at).unwrap();
    }

    fn judge(&self, from: &Pod, frame: &[u8]) -> Result<Way, Option<Port>> {
        let header = Header::of(frame);
        network(true).judge(&header, &identity(from, true), Some((&self.published, NOW)))
    }
}

fn guard(stamp: u32) -> Guard {
    Guard {
        generation: 1,
        egress: 1,
        ingress: 2,
        stamp,
        flags: 0,
    }
}

fn identity(pod: &Pod, judged: bool) -> Identity {
    let ips = [IpAddr::V4(pod.ip4), IpAddr::V6(pod.ip6)];
    Identity::new(&pod.port(), &ips, judged)
}

/// `BLUE_C` is not judged.
fn network(judged: bool) -> Network {
    let mut network = Network::default();
    for (pod, judged) in [(&BLUE_A, judged), (&BLUE_B, judged), (&BLUE_C, false)] {
        network.insert(pod.ifindex, &identity(pod, judged));
    }
    network
}

fn key(protocol: u8, from: (IpAddr, u16), to: (IpAddr, u16)) -> FlowKey {
    let tuple = Tuple {
        source: Ip16::from(from.0),
        destination: Ip16::from(to.0),
        protocol,
        source_port: from.1,
        destination_port: to.1,
        ..Tuple::EMPTY
    };
    FlowKey::of(BLUE_A.network, &tuple).0
}

/// A connection that `BLUE_A` has opened from its port 1 to port 2 of `BLUE_B`.
fn opened(protocol: u8) -> (FlowKey, FlowWords) {
    let ends = ((BLUE_A.ip4.into(), 1), (BLUE_B.ip4.into(), 2));
    let key = key(protocol, ends.0, ends.1);
    assert_eq!(key.low, Ip16::from(ends.0.0), "the opener is the lower end");
    let words = FlowWords {
        seen: NOW,
        flags: FLOW_ANSWERED,
        egress: STAMPS.0,
        ingress: STAMPS.1,
    };
    (key, words)
}

fn udp(from: &Pod, to: &Pod, ports: (u16, u16)) -> Vec<u8> {
    Ipv4::new(from.ip4, to.ip4).udp(to.mac, from.mac, ports)
}

fn tcp(from: &Pod, to: &Pod, (source, destination): (u16, u16), flags: u8) -> Vec<u8> {
    let mut segment = [0; 20];
    segment[..2].copy_from_slice(&source.to_be_bytes());
    segment[2..4].copy_from_slice(&destination.to_be_bytes());
    segment[12] = 5 << 4;
    segment[13] = flags;
    Ipv4::new(from.ip4, to.ip4).frame(to.mac, from.mac, IPPROTO_TCP, &segment)
}

fn is_carried(found: Result<Way, Option<Port>>, to: &Pod) -> bool {
    match found {
        Ok(way) => {
            assert_eq!(way.take(&mut Header::default()), to.ifindex);
            true
        }
        Err(asked) => {
            assert_eq!(asked, Some(to.ifindex), "the kernel is asked");
            false
        }
    }
}

#[test]
fn packets_of_a_connection_are_carried_once_the_kernel_has_shown_it() {
    let shown = Shown::new();
    let (onward, back) = (udp(&BLUE_A, &BLUE_B, (1, 2)), udp(&BLUE_B, &BLUE_A, (2, 1)));
    assert!(!is_carried(shown.judge(&BLUE_A, &onward), &BLUE_B));
    assert!(!is_carried(shown.judge(&BLUE_B, &back), &BLUE_A));
    let (key, words) = opened(IPPROTO_UDP);
    shown.show(key, words);
    assert!(is_carried(shown.judge(&BLUE_A, &onward), &BLUE_B));
    assert!(is_carried(shown.judge(&BLUE_B, &back), &BLUE_A));
    // Another connection of the same pods.
    for ports in [(3, 2), (1, 3), (2, 1)] {
        let other = udp(&BLUE_A, &BLUE_B, ports);
        assert!(
            !is_carried(shown.judge(&BLUE_A, &other), &BLUE_B),
            "{ports:?}"
        );
    }
    let other = tcp(&BLUE_A, &BLUE_B, (1, 2), ACK);
    assert!(!is_carried(shown.judge(&BLUE_A, &other), &BLUE_B));
}

#[test]
fn a_connection_is_the_kernels_to_judge_when_its_sets_have_changed_or_are_not_known() {
    let onward = udp(&BLUE_A, &BLUE_B, (1, 2));
    let (key, words) = opened(IPPROTO_UDP);
    for (pod, stamp) in [
        (&BLUE_A, Stamp::of(&guard(43))),
        (&BLUE_B, Stamp::of(&guard(43))),
        (&BLUE_A, Stamp::default()),
        (&BLUE_B, Stamp::default()),
        (&BLUE_A, Stamp::CHANGING),
        (&BLUE_B, Stamp::CHANGING),
        // Written in part.
        (
            &BLUE_B,
            Stamp {
                word: Stamp::of(&guard(43)).word,
                ..Stamp::of(&guard(STAMPS.1))
            },
        ),
        (
            &BLUE_B,
            Stamp {
                word: Stamp::of(&guard(STAMPS.1)).word,
                ..Stamp::of(&guard(43))
            },
        ),
    ] {
        let shown = Shown::new();
        shown.show(key, words);
        assert!(is_carried(shown.judge(&BLUE_A, &onward), &BLUE_B));
        shown.stamp(pod, &stamp);
        assert!(
            !is_carried(shown.judge(&BLUE_A, &onward), &BLUE_B),
            "{stamp:?}"
        );
    }
}

#[test]
fn a_connection_is_the_kernels_to_judge_from_time_to_time() {
    let onward = udp(&BLUE_A, &BLUE_B, (1, 2));
    let (key, words) = opened(IPPROTO_UDP);
    for (age, carried) in [
        // The kernel's processor is a tick ahead.
        (-1, true),
        (0, true),
        (REFRESH, true),
        (REFRESH + 1, false),
        (9_000, false),
    ] {
        let shown = Shown::new();
        shown.show(
            key,
            FlowWords {
                seen: NOW.wrapping_add_signed(-age),
                ..words
            },
        );
        assert_eq!(
            is_carried(shown.judge(&BLUE_A, &onward), &BLUE_B),
            carried,
            "{age}"
        );
    }
}

#[test]
fn what_begins_answers_or_ends_a_connection_is_the_kernels_to_judge() {
    const FIN: u8 = 1;
    const SYN: u8 = 2;
    const RST: u8 = 4;
    let (key, words) = opened(IPPROTO_TCP);
    let shown = Shown::new();
    shown.show(key, words);
    let send = |flags| shown.judge(&BLUE_A, &tcp(&BLUE_A, &BLUE_B, (1, 2), flags));
    assert!(is_carried(send(ACK), &BLUE_B));
    for flags in [SYN, FIN | ACK, RST, RST | ACK] {
        assert!(!is_carried(send(flags), &BLUE_B), "{flags:#x}");
    }
    // The first answer.
    shown.show(key, FlowWords { flags: 0, ..words });
    let answer = tcp(&BLUE_B, &BLUE_A, (2, 1), ACK);
    assert!(!is_carried(shown.judge(&BLUE_B, &answer), &BLUE_A));
    assert!(is_carried(send(ACK), &BLUE_B));
    // What is over, by the time that the kernel gives it.
    for flags in [FLOW_FIN_LOW | FLOW_FIN_HIGH, FLOW_RESET] {
        let flags = FLOW_ANSWERED | flags;
        shown.show(key, FlowWords { flags, ..words });
        assert!(is_carried(send(ACK), &BLUE_B), "the last acknowledgement");
    }
}

#[test]
fn a_slot_of_which_a_part_is_another_connections_shows_none() {
    let onward = udp(&BLUE_A, &BLUE_B, (1, 2));
    let (key, words) = opened(IPPROTO_UDP);
    let (at, whole) = Shown::slot(key, FlowWords { egress: 1, ..words });
    let (_, other) = Shown::slot(key, words);
    let shown = Shown::new();
    let put = |slot: &Slot| shown.flows.write_all_at(slot.as_bytes(), at).unwrap();
    put(&other);
    assert!(is_carried(shown.judge(&BLUE_A, &onward), &BLUE_B));
    // Each mixture of the two, by words.
    let (a, b) = (whole.as_bytes(), other.as_bytes());
    let differing: Vec<usize> = (0..64)
        .step_by(4)
        .filter(|at| a[*at..*at + 4] != b[*at..*at + 4])
        .collect();
    assert_eq!(differing, [52, 60], "the stamp and the tag");
    for at in differing {
        let mut mixed = other;
        mixed.as_mut_bytes()[at..at + 4].copy_from_slice(&a[at..at + 4]);
        put(&mixed);
        assert!(
            !is_carried(shown.judge(&BLUE_A, &onward), &BLUE_B),
            "word at {at}"
        );
    }
    for bit in 0..8 * 64 {
        let mut mixed = other;
        mixed.as_mut_bytes()[bit / 8] ^= 1 << (bit % 8);
        put(&mixed);
        assert!(
            !is_carried(shown.judge(&BLUE_A, &onward), &BLUE_B),
            "bit {bit}"
        );
    }
}

#[test]
fn one_end_that_is_judged_is_enough() {
    let shown = Shown::new();
    let frame = udp(&BLUE_C, &BLUE_B, (1, 2));
    let unjudged = identity(&BLUE_C, false);
    let judge = || {
        let header = Header::of(&frame);
        network(true).judge(&header, &unjudged, Some((&shown.published, NOW)))
    };
    assert!(!is_carried(judge(), &BLUE_B));
    let ends = ((BLUE_C.ip4.into(), 1), (BLUE_B.ip4.into(), 2));
    let key = key(IPPROTO_UDP, ends.0, ends.1);
    let words = FlowWords {
        egress: 0,
        flags: if key.low == Ip16::from(ends.0.0) {
            0
        } else {
            1
        },
        ..opened(IPPROTO_UDP).1
    };
    shown.show(key, words);
    assert!(is_carried(judge(), &BLUE_B));
    // Without the maps nothing is known.
    let header = Header::of(&frame);
    assert_eq!(network(true).judge(&header, &unjudged, None), Err(None));
    assert!(network(false).judge(&header, &unjudged, None).is_ok());
}

/// The agent tells the switch later, or ends before.
#[test]
fn ports_with_a_stamp_are_judged_whatever_the_agent_has_said() {
    let frame = udp(&BLUE_A, &BLUE_B, (1, 2));
    let unjudged = identity(&BLUE_A, false);
    let network = network(false);
    for (a, b) in [(true, false), (false, true), (true, true)] {
        for stamp in [Stamp::CHANGING, Stamp::of(&guard(43))] {
            let shown = Shown::new();
            for (pod, has) in [(&BLUE_A, a), (&BLUE_B, b)] {
                shown.stamp(pod, if has { &stamp } else { &NO_STAMP });
            }
            let published = Some((&shown.published, NOW));
            let found = network.judge(&Header::of(&frame), &unjudged, published);
            assert!(!is_carried(found, &BLUE_B), "{a} {b} {stamp:?}");
        }
    }
    let shown = Shown::new();
    for pod in [&BLUE_A, &BLUE_B] {
        shown.stamp(pod, &NO_STAMP);
    }
    let published = Some((&shown.published, NOW));
    let found = network.judge(&Header::of(&frame), &unjudged, published);
    assert!(is_carried(found, &BLUE_B), "no policy selects them");
}

/// A policy allows addresses, and no station that does not have them.
#[test]
fn a_connection_is_carried_to_the_station_of_its_address_only() {
    let shown = Shown::new();
    let (key, words) = opened(IPPROTO_UDP);
    shown.show(key, words);
    let stray = Ipv4::new(BLUE_A.ip4, BLUE_B.ip4).udp(BLUE_C.mac, BLUE_A.mac, (1, 2));
    assert_eq!(shown.judge(&BLUE_A, &stray), Err(Some(BLUE_C.ifindex)));
}

#[test]
fn fragments_are_the_kernels_to_judge() {
    let shown = Shown::new();
    let (key, words) = opened(IPPROTO_UDP);
    shown.show(key, words);
    let whole = udp(&BLUE_A, &BLUE_B, (1, 2));
    for fragment in [0x2000, 0x2001, 0x0001] {
        let packet = Ipv4 {
            fragment,
            ..Ipv4::new(BLUE_A.ip4, BLUE_B.ip4)
        };
        let frame = packet.frame(BLUE_B.mac, BLUE_A.mac, IPPROTO_UDP, &whole[34..]);
        assert!(
            !is_carried(shown.judge(&BLUE_A, &frame), &BLUE_B),
            "{fragment:#x}"
        );
    }
}

/// Whatever a byte of the second frame is.
#[test]
fn the_way_of_the_last_frame_is_taken_only_where_the_next_one_has_it_too() {
    let shown = Shown::new();
    let v6 = |protocol| {
        let ends = ((BLUE_A.ip6.into(), 1), (BLUE_B.ip6.into(), 2));
        let key = key(protocol, ends.0, ends.1);
        shown.show(key, opened(protocol).1);
    };
    v6(IPPROTO_UDP);
    for protocol in [IPPROTO_UDP, IPPROTO_TCP] {
        let (key, words) = opened(protocol);
        shown.show(key, words);
    }
    let frames = [
        udp(&BLUE_A, &BLUE_B, (1, 2)),
        tcp(&BLUE_A, &BLUE_B, (1, 2), ACK),
        Ipv6::new(BLUE_A.ip6, BLUE_B.ip6).udp(BLUE_B.mac, BLUE_A.mac, (1, 2)),
    ];
    let (network, sender) = (network(true), identity(&BLUE_A, true));
    let published = Some((&shown.published, NOW));
    for first in frames {
        let (mut carried, mut left) = (0, 0);
        for at in 0..first.len().min(64) {
            for byte in 0..=255 {
                let mut second = first.clone();
                second[at] = byte;
                let second = Header::of(&second);
                let mut last = Last::default();
                let before = last.judge(&network, &Header::of(&first), &sender, published);
                assert!(before.is_ok());
                let alone = network.judge(&second, &sender, published);
                let behind = last.judge(&network, &second, &sender, published);
                assert_eq!(behind, alone, "byte {at} is {byte}");
                match alone {
                    Ok(_) => carried += 1,
                    Err(_) => left += 1,
                }
            }
        }
        assert!(carried > 64 && left > 64, "{carried} carried, {left} left");
    }
}

#[test]
fn files_that_are_no_such_maps_are_refused() {
    let empty = tempfile::tempfile().unwrap();
    empty.set_len(64 * u64::from(MAX_SWITCH_FLOWS)).unwrap();
    let refused = Published::new(empty.as_fd(), empty.as_fd(), PORTS).unwrap_err();
    assert_eq!(refused, Errno::INVAL, "there is no secret");
    let dir = File::open("/").unwrap();
    assert!(Published::new(dir.as_fd(), empty.as_fd(), PORTS).is_err());
}
