//! Frames that go to a device together, and what the kernel makes of them.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

mod changed;

use super::*;
use crate::port::Count;

const ETH: usize = 14;
const VNET: usize = 10;
const UDP: u8 = 17;
const TCP: u8 = 6;
const MTU: usize = 1500;
const SENDER: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// A station that only the kernel program may know.
const ELSEWHERE: [u8; 6] = [2, 0, 0, 0, 0, 0x77];

fn ones(parts: &[&[u8]]) -> u16 {
    let all = parts.concat();
    let mut sum = 0_u32;
    for pair in all.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}

/// Finds the transport, its protocol, and the addresses of its pseudo header.
fn transport(frame: &[u8]) -> (usize, u8, Vec<u8>) {
    if frame[12..14] == [8, 0] {
        let at = ETH + usize::from(frame[ETH] & 15) * 4;
        (at, frame[ETH + 9], frame[26..34].to_vec())
    } else {
        (ETH + 40, frame[ETH + 6], frame[22..54].to_vec())
    }
}

fn place(protocol: u8) -> usize {
    if protocol == UDP { 6 } else { 16 }
}

/// Writes lengths and checksums, as a stack does.
fn finish(frame: &mut [u8]) {
    let packet = u16::try_from(frame.len() - ETH).unwrap();
    let (at, protocol, _) = transport(frame);
    if frame[12..14] == [8, 0] {
        frame[16..18].copy_from_slice(&packet.to_be_bytes());
    } else {
        frame[18..20].copy_from_slice(&(packet - 40).to_be_bytes());
    }
    if protocol == UDP {
        let carried = u16::try_from(frame.len() - at).unwrap();
        frame[at + 4..at + 6].copy_from_slice(&carried.to_be_bytes());
    }
    sum(frame, (at, protocol));
}

/// Writes the checksums of a frame, whatever its fields say.
///
/// The transport's header is there.
fn sum(frame: &mut [u8], (at, protocol): (usize, u8)) {
    let (_, _, pseudo) = transport(frame);
    if at == ETH + 20 {
        frame[24..26].fill(0);
        let sum = !ones(&[&frame[ETH..at]]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    let carried = u16::try_from(frame.len() - at).unwrap().to_be_bytes();
    let field = at + place(protocol);
    frame[field..field + 2].fill(0);
    let mut sum = !ones(&[&pseudo, &[0, protocol], &carried, &frame[at..]]);
    if sum == 0 && protocol == UDP {
        sum = 0xffff;
    }
    frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Cuts a packet with a `virtio_net_hdr`, as Linux does.
fn cut(written: &[u8]) -> Vec<Vec<u8>> {
    let (header, packet) = written.split_at(VNET);
    let field = |at: usize| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
    let [flags, kind, ..] = header else {
        panic!("{header:?}")
    };
    if *kind == 0 {
        assert_eq!(header, [0; VNET], "nothing to be done");
        return vec![packet.to_vec()];
    }
    assert_eq!(*flags, 1, "a checksum to be finished");
    let [head, size, start, offset] = [2, 4, 6, 8].map(field);
    let (at, protocol, pseudo) = transport(packet);
    let is_v4 = packet[12..14] == [8, 0];
    let expected = match (protocol, is_v4) {
        (UDP, _) => 5,
        (TCP, true) => 1,
        (TCP, false) => 4,
        other => panic!("{other:?}"),
    };
    assert_eq!((*kind, start, offset), (expected, at, place(protocol)));
    // A train of UDP may end before the place where TCP has its header's length.
    let payload = at
        + match protocol {
            UDP => 8,
            _ => usize::from(packet[at + 12] >> 4) * 4,
        };
    assert_eq!(head, payload);
    assert!(
        packet.len() <= 65_535 && packet.len() > payload + size,
        "a train"
    );
    // What the kernel relies on: lengths of the whole, and a checksum that has been begun.
    let carried = u16::try_from(packet.len() - at).unwrap().to_be_bytes();
    let begun = ones(&[&pseudo, &[0, protocol], &carried]).to_be_bytes();
    assert_eq!(packet[at + offset..at + offset + 2], begun);
    if protocol == UDP {
        assert_eq!(packet[at + 4..at + 6], carried);
    }
    let whole = u16::try_from(packet.len() - ETH).unwrap();
    if is_v4 {
        assert_eq!(packet[16..18], whole.to_be_bytes());
        assert_eq!(ones(&[&packet[ETH..at]]), 0xffff, "IPv4's own checksum");
    } else {
        assert_eq!(packet[18..20], (whole - 40).to_be_bytes());
    }
    let pieces: Vec<&[u8]> = packet[payload..].chunks(size).collect();
    assert!(pieces.len() <= 64);
    let last = pieces.len() - 1;
    let piece = |(nth, piece): (usize, &&[u8])| {
        let mut frame = [&packet[..payload], piece].concat();
        let nth16 = u16::try_from(nth).unwrap();
        if is_v4 {
            let id = u16::from_be_bytes([frame[18], frame[19]]).wrapping_add(nth16);
            frame[18..20].copy_from_slice(&id.to_be_bytes());
        }
        if protocol == TCP {
            let number: [u8; 4] = frame[at + 4..at + 8].try_into().unwrap();
            let number = u32::from_be_bytes(number);
            let number = number.wrapping_add(u32::from(nth16) * u32::try_from(size).unwrap());
            frame[at + 4..at + 8].copy_from_slice(&number.to_be_bytes());
            if nth != last {
                // FIN and PSH.
                frame[at + 13] &= !0x09;
            }
        }
        finish(&mut frame);
        frame
    };
    pieces.iter().enumerate().map(piece).collect()
}

/// A flow, and where its next frame is.
#[derive(Clone, Debug)]
struct Flow {
    v6: bool,
    protocol: u8,
    port: u8,
    options: usize,
    id: u16,
    number: u32,
}

impl Flow {
    fn udp4() -> Self {
        Self {
            v6: false,
            protocol: UDP,
            port: 1,
            options: 0,
            id: 0xfff0,
            number: 0,
        }
    }

    fn all() -> Vec<Self> {
        let mut flows = Vec::new();
        for v6 in [false, true] {
            for (protocol, options) in [(UDP, 0), (TCP, 0), (TCP, 12)] {
                flows.push(Self {
                    v6,
                    protocol,
                    options,
                    number: 0xffff_fe00,
                    ..Self::udp4()
                });
            }
        }
        flows
    }

    fn headers(&self) -> usize {
        let ip = if self.v6 { 40 } else { 20 };
        ETH + ip
            + if self.protocol == UDP {
                8
            } else {
                20 + self.options
            }
    }

    /// The next frame, with so many bytes of payload.
    fn next(&mut self, payload: usize) -> Vec<u8> {
        let mut frame = [ELSEWHERE, SENDER].concat();
        if self.v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, self.protocol, 64]);
            let address = |host: u8| [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host];
            frame.extend([address(1), address(0x77)].concat());
        } else {
            let [a, b] = self.id.to_be_bytes();
            self.id = self.id.wrapping_add(1);
            frame.extend([8, 0, 0x45, 0, 0, 0, a, b, 0x40, 0, 64, self.protocol, 0, 0]);
            frame.extend([10, 0, 0, 1, 10, 0, 0, 0x77]);
        }
        frame.extend([0x13, self.port, 0x13, 0x88]);
        if self.protocol == UDP {
            frame.extend([0; 4]);
        } else {
            frame.extend(self.number.to_be_bytes());
            self.number = self.number.wrapping_add(u32::try_from(payload).unwrap());
            let words = u8::try_from(5 + self.options / 4).unwrap();
            frame.extend([1, 2, 3, 4, words << 4, 0x10, 1, 0, 0, 0, 0, 0]);
            frame.extend(vec![1; self.options]);
        }
        let bytes =
            (0..payload).map(|at| u8::try_from((at * 7 + usize::from(self.id)) % 251).unwrap());
        frame.extend(bytes);
        finish(&mut frame);
        frame
    }
}

/// A port whose frames all go to the device, and their way there.
struct Way {
    worker: Worker,
    pod: Pod,
}

impl Way {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Device)) -> Self {
        let mut worker = worker();
        let pod = Pod::with(&mut worker, "pod/net1", 7, 1, |file| {
            let mut device = Device::new(file, true).unwrap();
            change(&mut device);
            device
        });
        Self { worker, pod }
    }

    /// Has these frames carried at once. Returns what was written, in its order.
    fn carry(&mut self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut written = Vec::new();
        let tx = &mut self.pod.app.tx[0];
        for frame in frames {
            assert_eq!(tx.push(frame).unwrap(), Sent::Yes);
        }
        tx.flush();
        let mut room = vec![0; VNET + 65_536];
        while self.worker.round() {
            while let Ok(len) = rustix::io::read(&self.pod.kernel, &mut room) {
                written.push(room[..len].to_vec());
            }
        }
        written
    }

    fn device_from(&self) -> Count {
        self.pod.counters(&self.worker).device_from
    }
}

/// A change to a frame of UDP over IPv4 that keeps it out of the train.
type Change = (&'static str, fn(&mut Vec<u8>));

/// Changes to one that is as good as the others, but is of another flow.
const OTHERS: [Change; 10] = [
    ("another source MAC address", |it| it[11] ^= 1),
    ("another destination", |it| it[5] ^= 1),
    ("another class", |it| summed(it, |it| it[15] ^= 4)),
    ("another identification", |it| summed(it, |it| it[18] ^= 1)),
    ("no DF", |it| summed(it, |it| it[20] = 0)),
    ("another TTL", |it| {
        summed(it, |it| it[22] = it[22].wrapping_sub(1));
    }),
    ("another source", |it| summed(it, |it| it[29] ^= 1)),
    ("another destination of IP", |it| {
        summed(it, |it| it[33] ^= 1);
    }),
    ("another source port", |it| summed(it, |it| it[35] ^= 1)),
    ("another destination port", |it| {
        summed(it, |it| it[37] ^= 1);
    }),
];

/// Changes to one that goes alone even among its like.
///
/// Checksums are right, where they are not what is changed: no check is behind another one.
const LONERS: [Change; 18] = [
    ("a group", |it| it[0] |= 1),
    ("everybody", |it| it[..6].fill(0xff)),
    ("another type", |it| it[13] = 6),
    ("another version", |it| summed(it, |it| it[14] = 0x65)),
    ("options", |it| summed(it, |it| it[14] = 0x46)),
    ("a longer packet than frame", |it| {
        summed(it, |it| it[17] = it[17].wrapping_add(1));
    }),
    ("a shorter packet than frame", |it| {
        summed(it, |it| it[17] = it[17].wrapping_sub(1));
    }),
    ("padding", |it| {
        it.push(0);
        summed(it, |_| {});
    }),
    ("nothing behind its headers", |it| {
        it.truncate(ETH + 28);
        finish(it);
    }),
    ("a first fragment", |it| summed(it, |it| it[20] |= 0x20)),
    ("a later fragment", |it| summed(it, |it| it[21] = 9)),
    ("the last TTL", |it| summed(it, |it| it[22] = 1)),
    ("no TTL", |it| summed(it, |it| it[22] = 0)),
    ("a wrong checksum of IPv4", |it| it[24] ^= 1),
    ("a longer length of UDP", |it| {
        summed(it, |it| it[39] = it[39].wrapping_add(1));
    }),
    ("a shorter length of UDP", |it| {
        summed(it, |it| it[39] = it[39].wrapping_sub(1));
    }),
    ("a wrong checksum of UDP", |it| it[40] ^= 1),
    ("no checksum of UDP", |it| it[40..42].fill(0)),
];

fn changes() -> impl Iterator<Item = &'static Change> {
    OTHERS.iter().chain(&LONERS)
}

/// Changes a frame whose checksums are right then.
fn summed(frame: &mut [u8], change: impl FnOnce(&mut [u8])) {
    let (at, protocol, _) = transport(frame);
    change(frame);
    sum(frame, (at, protocol));
}

#[test]
fn a_flow_goes_to_the_device_as_one_packet_that_the_kernel_cuts_into_its_frames() {
    for mut flow in Flow::all() {
        for payload in [1, 18, 1000] {
            let mut way = Way::new();
            let mut frames: Vec<_> = (0..40).map(|_| flow.next(payload)).collect();
            frames.push(flow.next(1));
            let written = way.carry(&frames);
            let cut: Vec<_> = written.iter().flat_map(|it| cut(it)).collect();
            assert!(cut == frames, "{flow:?}, {payload}");
            // One of a single byte ends none whose frames have one as well.
            assert_eq!(written.len(), 1, "{flow:?}, {payload}");
            let bytes = frames.iter().map(|it| it.len() as u64).sum();
            let all = Count { packets: 41, bytes };
            assert_eq!(way.device_from(), all, "each frame is counted");
        }
    }
}

#[test]
fn a_frame_that_differs_where_somebody_checks_goes_alone_and_in_its_order() {
    let mut way = Way::new();
    for (what, change) in changes() {
        for (nth, trains) in [(0, 2), (3, 3), (6, 2)] {
            let mut flow = Flow::udp4();
            let mut frames: Vec<_> = (0..7).map(|_| flow.next(30)).collect();
            change(&mut frames[nth]);
            let written = way.carry(&frames);
            assert_eq!(written.len(), trains, "{what}, frame {nth}");
            let alone = [&[0; VNET][..], &frames[nth]].concat();
            assert!(written.contains(&alone), "{what}, frame {nth}");
            let cut: Vec<_> = written.iter().flat_map(|it| cut(it)).collect();
            assert!(cut == frames, "{what}, frame {nth}");
        }
    }
    let drops = way.pod.counters(&way.worker).drops;
    assert_eq!(drops, crate::port::PortDrops::default());
}

/// Such a frame is judged, answered, paid for or dropped by itself.
#[test]
fn frames_that_somebody_looks_at_one_by_one_go_alone_among_their_like() {
    for (what, change) in LONERS {
        let mut way = Way::new();
        let mut flow = Flow::udp4();
        let mut frames: Vec<_> = (0..7).map(|_| flow.next(30)).collect();
        frames.iter_mut().for_each(change);
        let written = way.carry(&frames);
        assert_eq!(written.len(), frames.len(), "{what}");
        for (written, frame) in written.iter().zip(&frames) {
            assert!(written[VNET..] == frame[..], "{what}");
        }
    }
    // A hop limit of IPv6, and its groups and lengths.
    let changes: [fn(&mut Vec<u8>); 4] = [
        |it| it[21] = 1,
        |it| it[0] |= 1,
        |it| it[19] = it[19].wrapping_add(1),
        |it| it.push(0),
    ];
    for change in changes {
        for mut flow in Flow::all().into_iter().filter(|flow| flow.v6) {
            let mut frames: Vec<_> = (0..7).map(|_| flow.next(30)).collect();
            for frame in &mut frames {
                let (at, protocol, _) = transport(frame);
                change(frame);
                sum(frame, (at, protocol));
            }
            let written = Way::new().carry(&frames);
            assert_eq!(written.len(), frames.len(), "{flow:?}");
        }
    }
}

/// The kernel cuts all but the last to one size.
#[test]
fn a_longer_frame_begins_a_train_and_a_shorter_one_ends_it() {
    for (payloads, trains) in [
        (&[30, 30, 31][..], 2),
        (&[30, 31, 30], 2),
        (&[30, 29, 30], 2),
        (&[30, 29, 29], 2),
        (&[30, 0, 30], 3),
        (&[0, 0, 0], 3),
        (&[1, 1400, 1, 1400], 3),
        (&[1001, 1001, 1], 1),
        (&[30; 64], 1),
        (&[30; 65], 2),
        // 64,000 bytes.
        (&[1400; 46], 2),
    ] {
        for mut flow in Flow::all() {
            let frames: Vec<_> = payloads.iter().map(|it| flow.next(*it)).collect();
            let written = Way::new().carry(&frames);
            assert_eq!(written.len(), trains, "{payloads:?} of {flow:?}");
            let cut: Vec<_> = written.iter().flat_map(|it| cut(it)).collect();
            assert!(cut == frames, "{payloads:?} of {flow:?}");
        }
    }
}

/// Identifications and numbers go round.
#[test]
fn a_number_that_does_not_count_on_ends_a_train() {
    let mut flow = Flow::all().swap_remove(1);
    for (id, number, trains) in [(0, 0, 1), (1, 0, 2), (0xffff, 0, 2), (0, 1, 2), (0, !0, 2)] {
        (flow.id, flow.number) = (0xfffe, 0xffff_ffe0);
        let mut frames: Vec<_> = (0..3).map(|_| flow.next(30)).collect();
        flow.id = flow.id.wrapping_add(id);
        flow.number = flow.number.wrapping_add(number);
        frames.extend((0..3).map(|_| flow.next(30)));
        let written = Way::new().carry(&frames);
        assert_eq!(written.len(), trains, "{id}, {number}");
        let cut: Vec<_> = written.iter().flat_map(|it| cut(it)).collect();
        assert!(cut == frames, "{id}, {number}");
    }
}

#[test]
fn frames_above_the_mtu_are_seen_alone() {
    for mut flow in Flow::all() {
        let most = MTU + ETH - flow.headers();
        let mut way = Way::new();
        let fits: Vec<_> = (0..3).map(|_| flow.next(most)).collect();
        assert_eq!(way.carry(&fits).len(), 1);
        let frames: Vec<_> = (0..3).map(|_| flow.next(most + 1)).collect();
        let written = way.carry(&frames);
        assert_eq!(written.len(), 3, "{flow:?}");
        for (written, frame) in written.iter().zip(&frames) {
            assert!(written[VNET..] == frame[..]);
        }
    }
}

#[test]
fn flags_of_tcp_that_are_of_one_segment_stay_with_it() {
    let flags = ETH + 20 + 13;
    // FIN, SYN, RST, URG, ECE, CWR and PSH.
    for (flag, written) in [
        (1, 3),
        (2, 3),
        (4, 3),
        (0x20, 3),
        (0x40, 3),
        (0x80, 3),
        (8, 2),
    ] {
        let mut way = Way::new();
        let mut flow = Flow::all().swap_remove(1);
        let mut frames: Vec<_> = (0..7).map(|_| flow.next(30)).collect();
        frames[3][flags] |= flag;
        finish(&mut frames[3]);
        let packets = way.carry(&frames);
        assert_eq!(packets.len(), written, "flag {flag}");
        let cut: Vec<_> = packets.iter().flat_map(|it| cut(it)).collect();
        assert!(cut == frames, "flag {flag}");
    }
}

/// Without headers, with a kernel that cuts nothing, and while frames are seen.
#[test]
fn frames_go_one_by_one_where_trains_are_not_taken() {
    let mut flow = Flow::udp4();
    let frames: Vec<_> = (0..20).map(|_| flow.next(30)).collect();
    let sum: usize = frames.iter().map(Vec::len).sum();
    let mut old = Way::with(|device| device.cuts_nothing = true);
    for _ in 0..2 {
        let written = old.carry(&frames);
        assert_eq!(written.len(), frames.len());
        for (written, frame) in written.iter().zip(&frames) {
            assert_eq!(written[..VNET], [0; VNET]);
            assert!(written[VNET..] == frame[..]);
        }
    }
    assert_eq!(old.device_from().bytes, 2 * sum as u64);
    let mut plain = Way::with(|device| {
        let file = device.fd().try_clone_to_owned().unwrap();
        *device = Device::new(file, false).unwrap();
    });
    assert_eq!(plain.carry(&frames), frames);
    let mut looked_at = Way::new();
    let config = PortConfig {
        trains: false,
        ..looked_at.pod.config.clone()
    };
    looked_at.worker.obey(Command::Update {
        slot: looked_at.pod.slot,
        config: Box::new(config),
        device: None,
    });
    assert_eq!(looked_at.carry(&frames).len(), frames.len());
}

/// A frame of a flow, with a payload and a change or none.
fn steps() -> impl Strategy<Value = Vec<(usize, usize, usize, bool)>> {
    let payload = prop_oneof![8 => Just(30_usize), 2 => 1_usize..60, 1 => 0_usize..1500];
    let flow = prop_oneof![6 => Just(0_usize), 1 => 0_usize..6];
    let changed = prop_oneof![12 => Just(usize::MAX), 1 => 0..changes().count() + 2];
    prop::collection::vec((flow, payload, changed, prop::bool::weighted(0.05)), 1..120)
}

/// Whatever a client sends, the kernel has the same frames in the same order.
#[test]
fn what_the_kernel_cuts_is_what_was_sent_byte_by_byte_and_in_its_order() {
    let way = std::cell::RefCell::new(Way::new());
    let mut runner = TestRunner::new(Config::with_cases(300));
    let outcome = runner.run(
        &(steps(), any::<u16>(), any::<u32>()),
        |(steps, id, number)| {
            let mut flows = Flow::all();
            for flow in &mut flows {
                (flow.id, flow.number) = (id, number);
            }
            let frame = |(flow, payload, changed, push): (usize, usize, usize, bool)| {
                let flow: &mut Flow = &mut flows[flow];
                let mut frame = flow.next(payload.min(MTU + ETH + 2 - flow.headers()));
                if push && flow.protocol == TCP {
                    let at = transport(&frame).0;
                    frame[at + 13] |= 8;
                    finish(&mut frame);
                }
                match changes().nth(changed) {
                    Some((_, change)) if !flow.v6 && flow.protocol == UDP => change(&mut frame),
                    // Any bit.
                    Some(_) => {
                        let at = (changed * 7 + payload) % frame.len();
                        frame[at] ^= 1 << (changed % 8);
                    }
                    None => {}
                }
                frame
            };
            let frames: Vec<_> = steps.into_iter().map(frame).collect();
            let written = way.borrow_mut().carry(&frames);
            let cut: Vec<_> = written.iter().flat_map(|it| cut(it)).collect();
            prop_assert!(cut == frames, "{} frames of {}", cut.len(), frames.len());
            Ok(())
        },
    );
    outcome.unwrap();
}
