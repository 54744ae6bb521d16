//! Two rings in a heap region, and a peer that writes there by hand, byte by byte.

use std::sync::Arc;

use memif::{Agreed, Bell, Layout, Name, Region, Regions, RingPlace, Rx, Tx};

/// Slots of each ring.
pub(crate) const SLOTS: u16 = 8;
const LOG2: u8 = 3;
/// Bytes of each buffer.
pub(crate) const BUFFER: u32 = 256;
/// Longest frame that a server accepts, bytes.
pub(crate) const MAX_FRAME: u32 = 2048;
/// The flag of a descriptor whose packet goes on.
pub(crate) const NEXT: u16 = 1;
/// The flag of a ring whose receiver polls.
pub(crate) const MASK_INT: u16 = 1;

/// A descriptor, written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Desc {
    pub(crate) flags: u16,
    pub(crate) region: u16,
    pub(crate) length: u32,
    pub(crate) offset: u32,
}

pub(crate) fn agreed(c2s_rings: u16, s2c_rings: u16, log2_ring_size: u8) -> Agreed {
    Agreed {
        app: Name::default(),
        c2s_rings,
        s2c_rings,
        log2_ring_size,
    }
}

/// A client's memory.
pub(crate) struct Memory {
    pub(crate) layout: Layout,
    pub(crate) regions: Arc<Regions>,
}

impl Memory {
    pub(crate) fn new(agreed: &Agreed, buffer: u32) -> Self {
        let layout = Layout::new(agreed, buffer).unwrap();
        let region = Region::heap(layout.size() as usize);
        let regions = layout.format(region);
        Self { layout, regions }
    }

    /// One ring in each direction.
    pub(crate) fn small() -> Self {
        Self::new(&agreed(1, 1, LOG2), BUFFER)
    }

    /// The client's ends.
    pub(crate) fn client(&self) -> (Rx, Tx) {
        let (place, buffers) = self.layout.s2c[0];
        let rx = Rx::client(&self.regions, place, None, buffers).unwrap();
        let (place, buffers) = self.layout.c2s[0];
        let tx = Tx::client(&self.regions, place, Bell::silent(), buffers).unwrap();
        (rx, tx)
    }

    /// The server's ends.
    pub(crate) fn server(&self) -> (Rx, Tx) {
        let (place, _) = self.layout.c2s[0];
        let rx = Rx::server(&self.regions, place, None, MAX_FRAME).unwrap();
        let (place, _) = self.layout.s2c[0];
        let tx = Tx::server(&self.regions, place, Bell::silent()).unwrap();
        (rx, tx)
    }

    /// The ring from the client, for a peer to write.
    pub(crate) fn c2s(&self) -> ByHand {
        self.by_hand(self.layout.c2s[0].0)
    }

    /// The ring to the client, for a peer to write.
    pub(crate) fn s2c(&self) -> ByHand {
        self.by_hand(self.layout.s2c[0].0)
    }

    fn by_hand(&self, place: RingPlace) -> ByHand {
        ByHand {
            regions: Arc::clone(&self.regions),
            place,
        }
    }

    /// Where the buffer of a slot of the ring from the client is.
    pub(crate) fn c2s_buffer(&self, slot: u16) -> u32 {
        self.first_buffer() + u32::from(slot) * BUFFER
    }

    /// Where the buffer of a slot of the ring to the client is.
    pub(crate) fn s2c_buffer(&self, slot: u16) -> u32 {
        self.first_buffer() + u32::from(SLOTS + slot) * BUFFER
    }

    fn first_buffer(&self) -> u32 {
        self.layout.size() - 2 * u32::from(SLOTS) * BUFFER
    }

    pub(crate) fn write(&self, offset: u32, bytes: &[u8]) {
        let len = u32::try_from(bytes.len()).unwrap();
        let segment = self.regions.segment(0, offset, len).expect("inside");
        assert_eq!(segment.write(bytes), bytes.len());
    }

    pub(crate) fn read(&self, offset: u32, len: u32) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        let segment = self.regions.segment(0, offset, len).expect("inside");
        segment.read(&mut bytes);
        bytes
    }
}

/// A ring as a peer sees it that keeps no rule.
pub(crate) struct ByHand {
    regions: Arc<Regions>,
    pub(crate) place: RingPlace,
}

impl ByHand {
    fn write(&self, at: u32, bytes: &[u8]) {
        let len = u32::try_from(bytes.len()).unwrap();
        let place = self.regions.segment(0, self.place.offset + at, len);
        place.expect("inside").write(bytes);
    }

    fn read<const N: usize>(&self, at: u32) -> [u8; N] {
        let mut bytes = [0; N];
        let len = u32::try_from(N).unwrap();
        let place = self.regions.segment(0, self.place.offset + at, len);
        place.expect("inside").read(&mut bytes);
        bytes
    }

    pub(crate) fn set_cookie(&self, cookie: u32) {
        self.write(0, &cookie.to_ne_bytes());
    }

    pub(crate) fn flags(&self) -> u16 {
        u16::from_ne_bytes(self.read(4))
    }

    pub(crate) fn set_flags(&self, flags: u16) {
        self.write(4, &flags.to_ne_bytes());
    }

    pub(crate) fn head(&self) -> u16 {
        u16::from_ne_bytes(self.read(6))
    }

    pub(crate) fn set_head(&self, head: u16) {
        self.write(6, &head.to_ne_bytes());
    }

    pub(crate) fn tail(&self) -> u16 {
        u16::from_ne_bytes(self.read(64))
    }

    pub(crate) fn set_tail(&self, tail: u16) {
        self.write(64, &tail.to_ne_bytes());
    }

    pub(crate) fn desc(&self, slot: u16) -> Desc {
        let at = 128 + 16 * u32::from(slot);
        Desc {
            flags: u16::from_ne_bytes(self.read(at)),
            region: u16::from_ne_bytes(self.read(at + 2)),
            length: u32::from_ne_bytes(self.read(at + 4)),
            offset: u32::from_ne_bytes(self.read(at + 8)),
        }
    }

    pub(crate) fn set_desc(&self, slot: u16, desc: Desc) {
        let at = 128 + 16 * u32::from(slot);
        self.write(at, &desc.flags.to_ne_bytes());
        self.write(at + 2, &desc.region.to_ne_bytes());
        self.write(at + 4, &desc.length.to_ne_bytes());
        self.write(at + 8, &desc.offset.to_ne_bytes());
    }
}

/// A frame that differs from every other in its bytes.
pub(crate) fn frame(number: u32, len: usize) -> Vec<u8> {
    let [a, b, c, d] = number.to_be_bytes();
    let pattern = [a, b, c, d].into_iter().cycle().zip(0_u8..=255);
    let pattern = pattern.map(|(byte, nth)| byte ^ nth).cycle();
    pattern.take(len).collect()
}

/// All that is in a ring now.
pub(crate) fn receive(rx: &mut Rx) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    rx.burst(u16::MAX, |packet| {
        let mut bytes = vec![0; packet.len() as usize];
        assert_eq!(packet.read(0, &mut bytes), bytes.len());
        frames.push(bytes);
    })
    .expect("an honest peer");
    frames
}
