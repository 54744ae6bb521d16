//! Ports that come, change and go.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, EventData, EventFlags};

use super::slot::{Input, Output};
use super::{Counted, DEVICE, Report, Worker, Yielded, index};
use crate::device::Device;
use crate::port::{PortConfig, PortCounters};
use ways::{Network, Slot};

impl Worker {
    pub(super) fn add(
        &mut self,
        slot: Slot,
        config: &PortConfig,
        device: Arc<Device>,
        counters: PortCounters,
    ) {
        let at = index(slot);
        while self.inputs.len() <= at {
            self.inputs.push(None);
            self.outputs.push(None);
        }
        // So that no packet ever makes it grow.
        self.touched.reserve(self.outputs.len());
        self.watch(&device, at);
        let network = self.network(config.network);
        let pod = self.shares.add(config.pod());
        let input = Input::new(
            config.identity(),
            (config.is_fast(), config.trains),
            (network, pod),
            device,
            counters,
        );
        if let Some(table) = self.tables.get_mut(network)
            && config.is_fast()
        {
            table.insert(slot, &input.identity);
        }
        if let (Some(place), Some(output)) = (self.inputs.get_mut(at), self.outputs.get_mut(at)) {
            *place = Some(input);
            *output = Some(Output::default());
        }
    }

    pub(super) fn update(&mut self, slot: Slot, config: &PortConfig, device: Option<Arc<Device>>) {
        let at = index(slot);
        if let Some(device) = &device {
            self.watch(device, at);
        }
        let Some(Some(input)) = self.inputs.get_mut(at) else {
            return;
        };
        if let Some(device) = device {
            let old = std::mem::replace(&mut input.device, device);
            input.device_ready = true;
            forget(&self.epoll, old.fd());
        }
        input.identity = config.identity();
        input.fast = config.is_fast();
        input.trains = config.trains;
        if let Some(table) = self.tables.get_mut(input.network) {
            table.remove(slot);
            if config.is_fast() {
                table.insert(slot, &input.identity);
            }
        }
    }

    pub(super) fn connect(&mut self, slot: Slot, serial: u64, port: memif::Port) {
        let at = index(slot);
        let (Some(Some(input)), Some(Some(output))) =
            (self.inputs.get_mut(at), self.outputs.get_mut(at))
        else {
            return self.report(Report {
                serial,
                rings: Box::new(port),
                violation: None,
            });
        };
        for (ring, nth) in port.rx.iter().zip(1..) {
            if let Some(event) = ring.event() {
                let edges = EventFlags::IN | EventFlags::ET;
                // Without it the ring is polled at the end of each sleep.
                let _ = epoll::add(
                    &self.epoll,
                    event,
                    EventData::new_u64(token(at, nth)),
                    edges,
                );
            }
        }
        input.connect(serial, port.rx, (port.app, port.peer));
        output.tx = port.tx;
    }

    /// A port's rings, if it has a client: out of every table and epoll.
    pub(super) fn take_rings(&mut self, at: usize) -> Option<memif::Port> {
        let (Some(Some(input)), Some(Some(output))) =
            (self.inputs.get_mut(at), self.outputs.get_mut(at))
        else {
            return None;
        };
        let tx = std::mem::take(&mut output.tx);
        output.touched = false;
        let (rx, (app, peer)) = input.disconnect()?;
        for event in rx.iter().filter_map(memif::Rx::event) {
            forget(&self.epoll, event);
        }
        Some(memif::Port { rx, tx, app, peer })
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<Yielded> {
        let at = index(slot);
        let rings = self.take_rings(at);
        let input = self.inputs.get_mut(at)?.take()?;
        let output = self.outputs.get_mut(at)?.take()?;
        forget(&self.epoll, input.device.fd());
        self.shares.remove(input.pod);
        if let Some(table) = self.tables.get_mut(input.network) {
            table.remove(slot);
        }
        let mut others = self.inputs.iter().flatten();
        if others.all(|other| other.network != input.network) {
            self.networks.remove(&input.identity.network());
            self.free.push(input.network);
        }
        Some(Yielded {
            slot,
            counters: output.counters(input.counters()),
            rings,
        })
    }

    pub(super) fn count(&self) -> Counted {
        let both = self.inputs.iter().zip(&self.outputs).zip(0..);
        let ports = both.filter_map(|((input, output), slot)| {
            let (input, output) = (input.as_ref()?, output.as_ref()?);
            Some((slot, output.counters(input.counters())))
        });
        Counted {
            ports: ports.collect(),
            rounds: self.rounds,
            sleeps: self.sleeps,
        }
    }

    /// The place of a network's tables.
    fn network(&mut self, number: u32) -> usize {
        if let Some(place) = self.networks.get(&number) {
            return *place;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.tables.push(Network::default());
            self.tables.len().saturating_sub(1)
        });
        self.networks.insert(number, place);
        place
    }

    fn watch(&self, device: &Device, at: usize) {
        let data = EventData::new_u64(token(at, DEVICE));
        let watched = epoll::add(
            &self.epoll,
            device.fd(),
            data,
            EventFlags::IN | EventFlags::ET,
        );
        if let Err(errno) = watched {
            let error = io::Error::from(errno);
            tracing::error!(worker = self.number, slot = at, %error, "a device cannot be waited for");
        }
    }
}

/// A file that others have too is not forgotten by being closed here.
fn forget(epoll: &OwnedFd, file: BorrowedFd<'_>) {
    // It is not there, if there was no room for it.
    let _ = epoll::delete(epoll, file);
}

fn token(at: usize, file: u64) -> u64 {
    (u64::try_from(at).unwrap_or(u64::MAX) << 16) | file
}
