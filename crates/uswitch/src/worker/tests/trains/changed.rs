//! A client that changes a frame while the switch reads it.

use std::sync::atomic::AtomicBool;
use std::thread;

use memif::{Agreed, Bell, Layout, Region, Regions, Rx, Segment, Tx};

use super::*;
use frames::train::{Kinds, Train};

/// Times that two frames are joined.
const TIMES: usize = 20_000;
/// The payload of the second one, which is nowhere else.
const MARK: [u8; 8] = *b"the mark";

/// Where these bytes are in a client's memory.
fn find<'r>(regions: &'r Regions, size: u32, bytes: &[u8]) -> Segment<'r> {
    let mut all = vec![0; size as usize];
    regions.segment(0, 0, size).unwrap().read(&mut all);
    let at = all.windows(bytes.len()).position(|it| it == bytes);
    let at = u32::try_from(at.expect("it was sent")).unwrap();
    regions.segment(0, at, 1).unwrap()
}

/// A train has what was found to be right.
///
/// That is not what is there a moment later.
#[test]
fn a_frame_that_changes_while_it_is_read_is_in_a_train_only_as_it_was_checked() {
    let agreed = Agreed {
        app: Text::new("app").unwrap(),
        c2s_rings: 1,
        s2c_rings: 1,
        // Two frames are always in the same two buffers.
        log2_ring_size: 1,
    };
    let layout = Layout::new(&agreed, 2048).unwrap();
    let regions = layout.format(Region::heap(layout.size() as usize));
    let (place, buffers) = layout.c2s[0];
    let mut tx = Tx::client(&regions, place, Bell::silent(), buffers).unwrap();
    let mut rx = Rx::server(&regions, place, None, 2048).unwrap();
    let mut flow = Flow::udp4();
    let first = flow.next(1400);
    let mut second = flow.next(1400);
    let payload = second.len() - MARK.len();
    second[payload..].copy_from_slice(&MARK);
    finish(&mut second);
    let push = |tx: &mut Tx| {
        for frame in [&first, &second] {
            assert_eq!(tx.push(frame).unwrap(), Sent::Yes);
        }
        tx.flush();
    };
    push(&mut tx);
    rx.burst(2, |_| {}).unwrap();
    let ends = AtomicBool::new(false);
    let kinds = Kinds {
        udp: true,
        tcp: true,
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let byte = find(&regions, layout.size(), &MARK);
            while !ends.load(Ordering::Relaxed) {
                byte.write(b"T");
                byte.write(b"t");
            }
        });
        let mut train = Train::new(FRAME_MAX);
        let mut is_right = true;
        for _ in 0..TIMES {
            push(&mut tx);
            train.clear();
            rx.burst(2, |packet| {
                if !train.join(&packet) {
                    train.begin(&packet, kinds, 1500);
                }
            })
            .unwrap();
            if train.frames() == 2 {
                is_right &= train.packet().ends_with(&MARK);
            }
        }
        ends.store(true, Ordering::Relaxed);
        assert!(is_right, "a change was not seen");
    });
}
