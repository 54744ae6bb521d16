//! What a worker has of a port: where frames come from, and where they go to.

use std::sync::Arc;

use memif::{Name, Rx, Sent, Tx, Violation};

use crate::device::Device;
use crate::network::Identity;
use crate::port::{Count, PortCounters};

/// Slots of a client's rings that are looked at in a turn.
pub(super) const BUDGET: u16 = 64;
/// The same where most frames go to the device, which takes a system call for each.
pub(super) const DEVICE_BUDGET: u16 = 16;

/// A port's frames.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) identity: Identity,
    pub(super) fast: bool,
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
    /// Its part of the counters: all but what the rings count, and what goes to the client.
    pub(super) counted: PortCounters,
}

impl Input {
    pub(super) fn new(
        identity: Identity,
        fast: bool,
        network: usize,
        device: Arc<Device>,
        counted: PortCounters,
    ) -> Self {
        Self {
            identity,
            fast,
            network,
            device,
            // The first frame may be there already.
            device_ready: true,
            serial: 0,
            rx: Vec::new(),
            names: None,
            first: 0,
            budget: BUDGET,
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

    /// What went through, without what the output has counted.
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

/// By which way a frame came to an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Port,
    Device,
}

impl Output {
    /// Sends a frame of this length by one of the rings, and counts it.
    #[inline]
    pub(super) fn send(
        &mut self,
        by: From,
        ring: usize,
        len: usize,
        push: impl FnOnce(&mut Tx) -> Result<Sent, Violation>,
    ) {
        let rings = self.tx.len();
        let ring = if ring < rings {
            ring
        } else {
            ring.checked_rem(rings).unwrap_or(0)
        };
        let Some(tx) = self.tx.get_mut(ring) else {
            self.not_connected = self.not_connected.wrapping_add(1);
            return;
        };
        match push(tx) {
            Ok(Sent::Yes) => {
                let count = match by {
                    From::Port => &mut self.fast,
                    From::Device => &mut self.device,
                };
                count.add(u64::try_from(len).unwrap_or(u64::MAX));
            }
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
            count.packets = count.packets.wrapping_add(mine.packets);
            count.bytes = count.bytes.wrapping_add(mine.bytes);
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
