//! Run both ends with a peer that writes into rings and buffers between calls.
//!
//! Input: the role, then deeds. The address sanitizer sees every byte that is touched outside of
//! the regions.

use std::sync::Arc;

use memif::{
    Agreed, Bell, Buffers, Layout, MAX_SEGMENTS, MIN_FRAME, Name, Region, Regions, RingPlace, Rx,
    Sent, Tx,
};

const SLOTS: u16 = 8;
const BUFFER: u32 = 128;
const MAX_FRAME: u32 = 700;

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (first, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        first
    }
}

struct Memory {
    regions: Arc<Regions>,
    c2s: (RingPlace, Buffers),
    s2c: (RingPlace, Buffers),
    size: u32,
}

impl Memory {
    fn new() -> Self {
        let agreed = Agreed {
            app: Name::default(),
            c2s_rings: 1,
            s2c_rings: 1,
            log2_ring_size: 3,
        };
        let layout = Layout::new(&agreed, BUFFER).expect("a legal layout");
        let size = layout.size();
        // Formatted once, then copied beside a second region, of an odd size.
        let one = layout.format(Region::heap(size as usize));
        let two = Regions::new(vec![Region::heap(size as usize), Region::heap(77)]);
        let from = one.segment(0, 0, size).expect("all of it");
        from.copy_to(&two.segment(0, 0, size).expect("all of it"));
        Self {
            regions: Arc::new(two),
            c2s: layout.c2s[0],
            s2c: layout.s2c[0],
            size,
        }
    }

    fn write(&self, at: u32, bytes: &[u8]) {
        let len = u32::try_from(bytes.len()).expect("a short one");
        if let Some(place) = self.regions.segment(0, at % self.size, len) {
            place.write(bytes);
        }
    }
}

fn play(data: &[u8]) -> Option<()> {
    let mut input = Input(data);
    let memory = Memory::new();
    let [role] = input.take()?;
    let as_server = role % 2 == 0;
    let (mut rx, mut tx) = if as_server {
        let rx = Rx::server(&memory.regions, memory.c2s.0, None, MAX_FRAME);
        let tx = Tx::server(&memory.regions, memory.s2c.0, Bell::silent());
        (rx.expect("a ring"), tx.expect("a ring"))
    } else {
        let rx = Rx::client(&memory.regions, memory.s2c.0, None, memory.s2c.1);
        let tx = Tx::client(&memory.regions, memory.c2s.0, Bell::silent(), memory.c2s.1);
        (rx.expect("a ring"), tx.expect("a ring"))
    };
    let longest = if as_server { MAX_FRAME } else { BUFFER };
    let mut rx_lives = true;
    let mut tx_lives = true;
    loop {
        let [deed] = input.take()?;
        let ring = if deed & 0x80 == 0 {
            memory.c2s.0
        } else {
            memory.s2c.0
        };
        match deed & 7 {
            0 => {
                let at = u32::from(u16::from_ne_bytes(input.take()?));
                let [len] = input.take()?;
                memory.write(at, input.bytes(usize::from(len % 64)));
            }
            1 => {
                let [slot] = input.take()?;
                let slot = u32::from(u16::from(slot) % SLOTS);
                memory.write(ring.offset + 128 + 16 * slot, &input.take::<12>()?);
            }
            2 => memory.write(ring.offset + 6, &input.take::<2>()?),
            3 => memory.write(ring.offset + 64, &input.take::<2>()?),
            4 => memory.write(ring.offset + 4, &input.take::<2>()?),
            5 | 6 if rx_lives => {
                let [budget] = input.take()?;
                let budget = u16::from(budget % 16);
                let mut visited = 0;
                let taken = rx.burst(budget, |packet| {
                    visited += 1;
                    assert!((MIN_FRAME..=longest).contains(&packet.len()));
                    let len = packet.len() as usize;
                    let mut bytes = [0; MAX_FRAME as usize + 1];
                    assert_eq!(packet.read(0, &mut bytes), len);
                    let part = usize::from(deed >> 3) * 7;
                    let rest = len.saturating_sub(part);
                    let skip = u32::try_from(part).expect("a small one");
                    assert_eq!(packet.read(skip, &mut bytes), rest);
                    if tx_lives {
                        let header = &bytes[..part.min(len)];
                        match tx.forward(header, &packet) {
                            Ok(Sent::Yes) if !as_server => assert!(len <= BUFFER as usize),
                            Ok(_) => {}
                            Err(_) => tx_lives = false,
                        }
                    }
                });
                assert!(visited <= budget);
                match taken {
                    Ok(taken) => {
                        assert!(usize::from(taken) <= usize::from(budget) * MAX_SEGMENTS);
                        assert!(taken <= SLOTS);
                    }
                    Err(violation) => {
                        let _ = violation.to_string();
                        rx_lives = false;
                    }
                }
                tx.flush();
            }
            _ if tx_lives => {
                let [len] = input.take()?;
                let frame = [0x5a; 256];
                tx_lives = tx.push(&frame[..usize::from(len)]).is_ok();
                tx.flush();
                if rx_lives && len % 8 == 0 {
                    rx_lives = rx.arm().is_ok();
                    rx.disarm();
                }
            }
            _ => {}
        }
    }
}

/// Runs one input.
pub(crate) fn run(data: &[u8]) {
    play(data);
}
