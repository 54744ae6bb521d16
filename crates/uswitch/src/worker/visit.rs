//! A port's turn: frames of its client, and of its device.

use std::time::Instant;

use memif::{GROUP, Packet, Violation};

use super::Worker;
use super::clock::Clock;
use super::share::Shares;
use super::slot::{BUDGET, DEVICE_BUDGET, Input, Output};
use crate::device::{Device, Read, Written};
use crate::port::{Count, PortCounters};
use frames::header::Header;
use frames::spread;
use frames::train::{Kinds, Train};
use ways::Published;
use ways::{Identity, Last, Network, Slot};

/// Frames of a device in a turn.
const FRAMES: u16 = 32;

/// Nanoseconds of a slot in which no packet begins, or a bad one.
///
/// That is about the time of the look at it.
const SLOT_COST: i64 = 50;

/// A turn in which something was moved, or was found to be wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    /// In nanoseconds.
    pub(super) cost: i64,
    /// It ended because it was long enough.
    pub(super) has_more: bool,
}

impl Worker {
    /// Frames of a port's client. Nothing if there were none.
    #[inline]
    pub(super) fn visit(&mut self, at: usize) -> Option<Done> {
        let input = self.inputs.get_mut(at)?.as_mut()?;
        let network = self.tables.get(input.network)?;
        let Input {
            identity,
            fast,
            trains,
            device,
            rx,
            first,
            budget,
            counted,
            ..
        } = input;
        let published = self.published.as_deref();
        let mut turn = Turn {
            identity,
            fast: *fast && (published.is_some() || !identity.is_judged()),
            published: published.map(|it| (it, self.tick)),
            asked: Asked::default(),
            device,
            network,
            counted,
            outputs: &mut self.outputs,
            touched: &mut self.touched,
            headers: &mut self.headers,
            kinds: if *trains {
                device.kinds()
            } else {
                Kinds::default()
            },
            train: &mut self.train,
            to_device: 0,
            clock: &mut self.clock,
            begun: None,
        };
        let rings = rx.len();
        let mut left = *budget;
        let mut fault = None;
        for nth in 0..rings {
            let ring = first.wrapping_add(nth).checked_rem(rings).unwrap_or(0);
            let Some(rx) = rx.get_mut(ring) else {
                continue;
            };
            match rx.burst_groups(left, |packets| turn.take(ring, packets)) {
                Ok(0) => {}
                Ok(taken) => {
                    // Whoever polls needs no doorbell.
                    rx.disarm();
                    left = left.saturating_sub(taken);
                    if left == 0 {
                        break;
                    }
                }
                Err(violation) => {
                    fault = Some(violation);
                    break;
                }
            }
        }
        turn.depart();
        *first = first.wrapping_add(1);
        let taken = budget.saturating_sub(left);
        let (to_device, begun, asked) = (turn.to_device, turn.begun, turn.asked);
        // What goes to the kernel is delivered before the next turn: later frames of the connection may need it no more.
        let asked = if to_device > 0 {
            asked
        } else {
            Asked::default()
        };
        self.flush();
        let cost = match begun {
            Some(begun) => self.clock.end(begun, taken, to_device),
            // Slots without a packet.
            None => i64::from(taken).saturating_mul(SLOT_COST),
        };
        if let Some(Some(input)) = self.inputs.get_mut(at) {
            input.budget = if to_device >= DEVICE_BUDGET {
                DEVICE_BUDGET
            } else {
                BUDGET
            };
            input.budget = input.budget.min(Shares::bearable(taken, cost));
        }
        if let Some(violation) = fault {
            self.cut(at, violation);
        }
        for to in asked.slots() {
            if let Some(Some(input)) = self.inputs.get_mut(super::index(*to)) {
                input.device_ready = true;
            }
        }
        (taken > 0).then_some(Done {
            cost,
            has_more: left == 0 && asked.slots().is_empty(),
        })
    }

    /// Frames of a port's device, for its client. Nothing if there were none.
    #[inline]
    pub(super) fn visit_device(&mut self, at: usize) -> Option<Done> {
        let input = self.inputs.get_mut(at)?.as_mut()?;
        let output = self.outputs.get_mut(at)?.as_mut()?;
        let begun = self.clock.begin();
        let mut frames: u16 = 0;
        while frames < FRAMES {
            let frame = match input.device.read(&mut self.frame) {
                Read::Frame(frame) => frame,
                Read::Nothing | Read::Gone => {
                    input.device_ready = false;
                    break;
                }
            };
            frames = frames.saturating_add(1);
            let ring = if output.tx.len() > 1 {
                spread::of(frame)
            } else {
                0
            };
            output.push(ring, frame);
        }
        let has_more = input.device_ready;
        for tx in &mut output.tx {
            tx.flush();
        }
        if let Some(violation) = output.fault.take() {
            self.cut(at, violation);
        }
        let cost = self.clock.end(begun, frames, frames);
        (frames > 0).then_some(Done { cost, has_more })
    }

    /// Shows clients what they were sent.
    #[inline]
    fn flush(&mut self) {
        while let Some(at) = self.touched.pop() {
            let Some(Some(output)) = self.outputs.get_mut(at) else {
                continue;
            };
            output.touched = false;
            for tx in &mut output.tx {
                tx.flush();
            }
            if let Some(violation) = output.fault.take() {
                self.cut(at, violation);
            }
        }
    }

    /// Asks all clients for doorbells; returns whether all rings are empty.
    ///
    /// The worker may sleep then.
    pub(super) fn arm(&mut self) -> bool {
        let mut empty = true;
        for at in 0..self.inputs.len() {
            let Some(Some(input)) = self.inputs.get_mut(at) else {
                continue;
            };
            empty &= !input.device_ready;
            let rings = input.rx.iter_mut();
            let armed: Result<bool, Violation> = rings
                .map(memif::Rx::arm)
                .try_fold(true, |all, ring| Ok(all & ring?));
            match armed {
                Ok(nothing) => empty &= nothing,
                Err(violation) => self.cut(at, violation),
            }
        }
        empty
    }
}

/// Ports that the kernel was asked about in a turn.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    slots: [Slot; Self::MOST],
    count: usize,
}

impl Asked {
    /// As many are remembered; with more all of them are asked about.
    const MOST: usize = 8;

    #[inline]
    fn add(&mut self, to: Option<Slot>) {
        let Some(to) = to.filter(|to| !self.slots().contains(to)) else {
            return;
        };
        if let Some(place) = self.slots.get_mut(self.count) {
            *place = to;
        }
        self.count = self.count.saturating_add(1);
    }

    #[inline]
    fn has(&self, to: Slot) -> bool {
        self.count > Self::MOST || self.slots().contains(&to)
    }

    #[inline]
    fn slots(&self) -> &[Slot] {
        self.slots
            .get(..self.count.min(Self::MOST))
            .unwrap_or_default()
    }
}

/// A port's turn.
struct Turn<'w> {
    identity: &'w Identity,
    fast: bool,
    /// Connections that the kernel shows, and the time in ticks.
    published: Option<(&'w Published, u32)>,
    /// Ports that frames of this turn go to by the kernel, as policies judge them.
    asked: Asked,
    device: &'w Device,
    network: &'w Network,
    counted: &'w mut PortCounters,
    outputs: &'w mut [Option<Output>],
    touched: &'w mut Vec<usize>,
    headers: &'w mut [Header],
    /// Trains that may go to the device.
    kinds: Kinds,
    train: &'w mut Train,
    /// Packets that went there.
    to_device: u16,
    clock: &'w mut Clock,
    begun: Option<Instant>,
}

impl Turn<'_> {
    /// Forwards a group of packets: copies all headers, judges all, sends all.
    ///
    /// Each of the three waits for memory that the peers' processors have, and so does so once and not
    /// for each packet.
    #[inline]
    fn take(&mut self, ring: usize, packets: &[Packet<'_>]) {
        if self.begun.is_none() {
            self.begun = Some(self.clock.begin());
        }
        if !self.fast {
            for packet in packets {
                self.leave(packet);
            }
            return;
        }
        for (header, packet) in self.headers.iter_mut().zip(packets) {
            header.fill(packet);
        }
        let mut ways = [None; GROUP];
        let mut last = Last::default();
        for ((way, header), packet) in ways.iter_mut().zip(&mut *self.headers).zip(packets) {
            let mut found = last.judge(self.network, header, self.identity, self.published);
            if found.is_err() && header.deepen(packet) {
                found = self.network.judge(header, self.identity, self.published);
            }
            *way = match found {
                // After one that the kernel has, so that they keep their order.
                Ok(found) if found.is_judged() && self.asked.has(found.slot()) => None,
                Ok(found) => Some(found.take(header)),
                Err(to) => {
                    self.asked.add(to);
                    None
                }
            };
        }
        let mut begin: usize = 0;
        for run in ways
            .get(..packets.len())
            .unwrap_or_default()
            .chunk_by(Option::eq)
        {
            let end = begin.saturating_add(run.len());
            let packets = packets.get(begin..end).unwrap_or_default();
            match run.first() {
                Some(Some(slot)) => self.forward(*slot, ring, begin, packets),
                Some(None) | None => packets.iter().for_each(|packet| self.leave(packet)),
            }
            begin = end;
        }
    }

    /// Sends packets to another port's client, with the headers from `begin` on.
    #[inline]
    fn forward(&mut self, slot: Slot, ring: usize, begin: usize, packets: &[Packet<'_>]) {
        let at = super::index(slot);
        let Some(Some(output)) = self.outputs.get_mut(at) else {
            return;
        };
        let headers = self.headers.get(begin..).unwrap_or_default();
        self.counted
            .fast_from
            .add_all(output.forward(ring, headers, packets));
        if !output.touched {
            output.touched = true;
            self.touched.push(at);
        }
    }

    /// To the device, and so to the kernel program. What that judges is its own copy.
    ///
    /// Frames go there in their order. One that can join the one before it waits for the next, until the turn ends.
    fn leave(&mut self, packet: &Packet<'_>) {
        if self.train.join(packet) {
            return;
        }
        self.depart();
        self.train.begin(packet, self.kinds, self.identity.mtu());
    }

    /// Writes what waits for others that join it.
    fn depart(&mut self) {
        let frames = u64::try_from(self.train.frames()).unwrap_or(u64::MAX);
        if frames == 0 {
            return;
        }
        self.to_device = self.to_device.saturating_add(1);
        match (self.device.write(self.train.packet()), self.train.kind()) {
            (Written::Refused, Some(kind)) => {
                self.device.refuse(kind);
                self.kinds = self.device.kinds();
                self.depart_apart();
            }
            (written, _) => self.counted.left(written, frames, self.train.sum()),
        }
        self.train.clear();
    }

    /// Writes the frames of a train one by one.
    #[cold]
    fn depart_apart(&mut self) {
        let Self {
            train,
            device,
            counted,
            to_device,
            ..
        } = self;
        train.each(|parts| {
            *to_device = to_device.saturating_add(1);
            let len = parts.iter().skip(1).map(|part| part.len()).sum::<usize>();
            let written = device.write_parts(parts);
            counted.left(written, 1, u64::try_from(len).unwrap_or(u64::MAX));
        });
    }
}

impl PortCounters {
    /// Counts frames that a device was given, or did not take.
    fn left(&mut self, written: Written, frames: u64, bytes: u64) {
        let drops = &mut self.drops;
        match written {
            Written::Yes => self.device_from.add_all(Count {
                packets: frames,
                bytes,
            }),
            Written::Full => drops.device_full = drops.device_full.wrapping_add(frames),
            Written::Refused | Written::Down => {
                drops.device_down = drops.device_down.wrapping_add(frames);
            }
        }
    }
}
