//! Hold a worker's input and output of a port.

use std::sync::Arc;

use memif::{Name, Packet, Rx, Sent, Tx, Violation};

use super::share::Credit;
use crate::device::Device;
use crate::port::{Count, PortCounters};
use frames::header::Header;
use frames::spread;
use ways::Identity;

/// Slots of a client's rings that are looked at in a turn.
pub(super) const BUDGET: u16 = 64;
/// The same where most frames go to the device, which takes a system call for each.
pub(super) const DEVICE_BUDGET: u16 = 16;

/// A port's frames.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) identity: Identity,
    pub(super) fast: bool,
    /// Frames of a flow may go to the device together.
    pub(super) trains: bool,
    /// The place of its network's tables.
    pub(super) network: usize,
    pub(super) device: Arc<Device>,
    /// The device may have a frame.
    pub(super) device_ready: bool,
    /// Which client it is.
    pub(super) serial: u64,
    pub(super) rx: Vec<Rx>,
    names: Option<(Name, Name)>,
    /// The ring that has the next turn.
    pub(super) first: usize,
    pub(super) budget: u16,
    /// The place of its pod among those that share the worker's time.
    pub(super) pod: usize,
    pub(super) credit: Credit,
    /// Counters of this part; the rings and the output count the rest.
    pub(super) counted: PortCounters,
}

impl Input {
    pub(super) fn new(
        identity: Identity,
        (fast, trains): (bool, bool),
        (network, pod): (usize, usize),
        device: Arc<Device>,
        counted: PortCounters,
    ) -> Self {
        Self {
            identity,
            fast,
            trains,
            network,
            device,
            // The first frame may be there already.
            device_ready: true,
            serial: 0,
            rx: Vec::new(),
            names: None,
            first: 0,
            budget: BUDGET,
            pod,
            credit: Credit::default(),
            counted,
        }
    }

    pub(super) fn connect(&mut self, serial: u64, rx: Vec<Rx>, names: (Name, Name)) {
        self.serial = serial;
        self.rx = rx;
        self.names = Some(names);
        self.first = 0;
        self.budget = BUDGET;
    }

    pub(super) fn disconnect(&mut self) -> Option<(Vec<Rx>, (Name, Name))> {
        let names = self.names.take()?;
        // The rings take their counters with them.
        self.counted = self.counters();
        Some((std::mem::take(&mut self.rx), names))
    }

    /// Returns the counters, without those of the output.
    pub(super) fn counters(&self) -> PortCounters {
        let mut counters = self.counted;
        for ring in &self.rx {
            let counted = ring.counters();
            let drops = &mut counters.drops;
            drops.bad_length = drops.bad_length.wrapping_add(counted.bad_length);
            drops.bad_descriptor = drops.bad_descriptor.wrapping_add(counted.bad_chain);
        }
        counters
    }
}

/// A port's client, as the other ports have it.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) tx: Vec<Tx>,
    /// There is something to flush.
    pub(super) touched: bool,
    /// The client lied.
    pub(super) fault: Option<Violation>,
    fast: Count,
    device: Count,
    no_buffer: u64,
    too_long: u64,
    not_connected: u64,
}

impl Output {
    /// Sends packets of another port, with these headers, by one of the rings.
    ///
    /// Returns the packets and bytes, which it also counts.
    #[inline]
    pub(super) fn forward(
        &mut self,
        ring: usize,
        headers: &[Header],
        packets: &[Packet<'_>],
    ) -> Count {
        let mut all = Count::default();
        let mut sent = Count::default();
        let mut no_buffer: u64 = 0;
        let rings = self.tx.len();
        let mut tx = self.tx.get_mut(spread::ring(ring, rings));
        for (header, packet) in headers.iter().zip(packets) {
            let len = u64::try_from(header.frame_len()).unwrap_or(u64::MAX);
            all.add(len);
            let Some(tx) = &mut tx else {
                self.not_connected = self.not_connected.wrapping_add(1);
                continue;
            };
            match tx.forward(header.bytes(), packet) {
                Ok(Sent::Yes) => sent.add(len),
                Ok(Sent::NoBuffer) => no_buffer = no_buffer.wrapping_add(1),
                Ok(Sent::TooLong) => self.too_long = self.too_long.wrapping_add(1),
                Err(violation) => self.fault = Some(violation),
            }
        }
        self.fast.add_all(sent);
        self.no_buffer = self.no_buffer.wrapping_add(no_buffer);
        all
    }

    /// Sends a frame of the device by one of the rings, and counts it.
    #[inline]
    pub(super) fn push(&mut self, ring: usize, frame: &[u8]) {
        let rings = self.tx.len();
        let Some(tx) = self.tx.get_mut(spread::ring(ring, rings)) else {
            self.not_connected = self.not_connected.wrapping_add(1);
            return;
        };
        match tx.push(frame) {
            Ok(Sent::Yes) => self
                .device
                .add(u64::try_from(frame.len()).unwrap_or(u64::MAX)),
            Ok(Sent::NoBuffer) => self.no_buffer = self.no_buffer.wrapping_add(1),
            Ok(Sent::TooLong) => self.too_long = self.too_long.wrapping_add(1),
            Err(violation) => self.fault = Some(violation),
        }
    }

    /// Adds what the output has counted.
    pub(super) fn counters(&self, mut of: PortCounters) -> PortCounters {
        for (count, mine) in [
            (&mut of.fast_to, self.fast),
            (&mut of.device_to, self.device),
        ] {
            count.add_all(mine);
        }
        for (drops, mine) in [
            (&mut of.drops.no_buffer, self.no_buffer),
            (&mut of.drops.too_long, self.too_long),
            (&mut of.drops.not_connected, self.not_connected),
        ] {
            *drops = drops.wrapping_add(mine);
        }
        of
    }
}
