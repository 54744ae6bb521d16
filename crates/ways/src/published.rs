//! Judge frames of guarded ports by the connections that the kernel has judged.
//!
//! The kernel program judges the first packets of a connection, and shows it
//! ([`agent_common::guard::Slot`]). The switch judges the next ones by the same function and the same words. Where that
//! asks for anything more, or would change more than the time of the last packet, the kernel program judges again.

use std::cell::Cell;
use std::os::fd::BorrowedFd;

use agent_common::addr::{Ip16, MacAddr};
use agent_common::endpoint::{ENDPOINT_GUARD, Endpoint};
use agent_common::guard::{
    self, FlowKey, FlowWords, Fragment, FragmentKey, FragmentTables, Guard, GuardTables, Passage,
    SECRET_SLOTS, SLOT_WORDS, Secret, Slot, Stamp,
};
use agent_common::map::MAX_SWITCH_FLOWS;
use agent_common::policy::{Act, Scratch, Tables};
use frames::header::Header;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use zerocopy::transmute;

use crate::network::Identity;
use crate::words::Words;

/// Ticks of 1.07 s after which the kernel sees a packet of a connection again.
///
/// So its entry is among those in use, whose places others take last.
const REFRESH: i32 = 2;

const SLOTS: usize = MAX_SWITCH_FLOWS as usize;
const STAMP_WORDS: usize = size_of::<Stamp>() / 4;

/// Connections and stamps that the kernel and the agent show.
#[derive(Debug)]
pub struct Published {
    flows: Words,
    stamps: Words,
    secret: [[u64; 8]; 2],
}

impl Published {
    /// Has the maps in memory: connections, and stamps of so many ports.
    ///
    /// # Errors
    /// When they are none, or have no secret.
    pub fn new(flows: BorrowedFd<'_>, stamps: BorrowedFd<'_>, ports: u32) -> Result<Self, Errno> {
        let count = usize::try_from(ports).map_err(|_| Errno::OVERFLOW)?;
        let flows = Words::map(flows, SLOTS.saturating_mul(SLOT_WORDS))?;
        let stamps = Words::map(stamps, count.saturating_mul(STAMP_WORDS))?;
        let mut secret = [[0; 8]; 2];
        const { assert!(SECRET_SLOTS == 2) };
        for (nth, half) in secret.iter_mut().enumerate() {
            let words: [u32; SLOT_WORDS] = flows
                .read(nth.saturating_mul(SLOT_WORDS))
                .ok_or(Errno::INVAL)?;
            *half = transmute!(words);
            if *half == [0; 8] {
                return Err(Errno::INVAL);
            }
        }
        Ok(Self {
            flows,
            stamps,
            secret,
        })
    }

    /// The entry of a connection, as it was when the kernel judged its last packet.
    #[inline]
    fn flow(&self, key: &FlowKey) -> Option<FlowWords> {
        let [low, high] = &self.secret;
        let secret = Secret { low, high };
        let sum = secret.sum(key);
        let place = usize::try_from(Secret::place(sum)).ok()?;
        let words: [u32; SLOT_WORDS] = self.flows.read(place.wrapping_mul(SLOT_WORDS))?;
        let slot: Slot = transmute!(words);
        (slot.key == *key && slot.tag == secret.tag(sum, &slot.flow)).then_some(slot.flow)
    }

    /// The stamp of a port.
    #[inline]
    fn stamp(&self, port_id: u16) -> Stamp {
        let at = usize::from(port_id).wrapping_mul(STAMP_WORDS);
        match self.stamps.read::<STAMP_WORDS>(at) {
            Some(words) => transmute!(words),
            // Of a port beyond the map nothing is shown.
            None => Stamp::CHANGING,
        }
    }

    /// Reports whether policies may select a port, whatever the agent has said of it.
    #[inline]
    pub(crate) fn is_guarded(&self, port_id: u16) -> bool {
        self.stamp(port_id).is_any()
    }
}

/// The tick of this moment, as programs have it.
pub fn tick() -> u32 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let rest = u64::try_from(now.tv_nsec).unwrap_or(0);
    guard::tick(seconds.wrapping_mul(1_000_000_000).wrapping_add(rest))
}

/// A frame that is to be judged, of which it was decided what becomes of it.
pub(crate) struct Judging<'j, T> {
    /// The tables by which that was decided.
    pub(crate) tables: &'j T,
    pub(crate) published: &'j Published,
    pub(crate) sender: &'j Identity,
    /// Now, in ticks.
    pub(crate) now: u32,
}

impl<T: Tables> Judging<'_, T> {
    /// Reports whether policies let the frame pass, and the kernel need not see it.
    pub(crate) fn passes(&self, header: &Header, act: Act, scratch: &Scratch) -> bool {
        let looked = Looked {
            judging: self,
            to: &scratch.to,
            lacks: Cell::new(false),
            found: Cell::new(false),
        };
        let mut passage = Passage {
            port: self.sender.port,
            ..Passage::EMPTY
        };
        let judged = guard::depart(header, act, scratch, &looked, &mut passage);
        judged.is_ok() && !looked.lacks.get()
    }
}

/// The look-ups of one frame.
struct Looked<'l, 'j, T> {
    judging: &'l Judging<'j, T>,
    to: &'l Endpoint,
    /// Something was asked for that only the kernel has.
    lacks: Cell<bool>,
    /// A connection was looked up.
    found: Cell<bool>,
}

impl<T> Looked<'_, '_, T> {
    /// The answer to what only the kernel has.
    #[inline(always)]
    fn lack<V>(&self, answer: V) -> V {
        self.lacks.set(true);
        answer
    }
}

impl<T: Tables> Tables for Looked<'_, '_, T> {
    #[inline(always)]
    fn is_further_address(&self, ip: &Ip16) -> bool {
        self.judging.tables.is_further_address(ip)
    }

    #[inline(always)]
    fn endpoint(&self, network: u32, ip: &Ip16) -> Option<Endpoint> {
        let found = self.judging.tables.endpoint(network, ip);
        if found.is_none() {
            return self.lack(None);
        }
        found
    }

    #[inline(always)]
    fn station(&self, network: u32, mac: MacAddr) -> Option<Endpoint> {
        let found = self.judging.tables.station(network, mac);
        if found.is_none() {
            return self.lack(None);
        }
        found
    }
}

impl<T: Tables> FragmentTables for Looked<'_, '_, T> {
    #[inline(always)]
    fn fragment(&self, _: &FragmentKey) -> Option<Fragment> {
        self.lack(None)
    }

    #[inline(always)]
    fn keep_fragment(&self, _: &FragmentKey, _: &Fragment) {
        self.lack(());
    }

    #[inline(always)]
    fn now(&self) -> u32 {
        self.judging.now
    }
}

impl<T: Tables> GuardTables for Looked<'_, '_, T> {
    #[inline(always)]
    fn guard(&self, port_id: u16) -> Guard {
        let sender = self.judging.sender;
        let is_judged = match port_id == sender.port.port_id {
            true => sender.judged,
            false => self.to.flags & ENDPOINT_GUARD != 0,
        };
        let stamp = self.judging.published.stamp(port_id);
        match stamp.guard() {
            Some(guard) => guard,
            // The agent says so, and the map does, too.
            None if !is_judged && !stamp.is_any() => Guard::default(),
            None => self.lack(Guard::default()),
        }
    }

    #[inline(always)]
    fn atom_of_member(&self, _: u32, _: &Ip16) -> Option<u32> {
        self.lack(None)
    }

    #[inline(always)]
    fn atom_of_block(&self, _: u32, _: &Ip16) -> Option<u32> {
        self.lack(None)
    }

    #[inline(always)]
    fn class(&self, _: u32, _: u32, _: u16) -> Option<u32> {
        self.lack(None)
    }

    #[inline(always)]
    fn row(&self, _: u32, _: u32, _: u32) -> Option<u32> {
        self.lack(None)
    }

    #[inline(always)]
    fn word(&self, _: u32, _: u32, _: u32) -> u32 {
        self.lack(0)
    }

    #[inline(always)]
    fn seek(&self, _: &FlowKey) {}

    #[inline(always)]
    fn flow(&self, key: &FlowKey, words: &mut FlowWords) -> bool {
        let Some(found) = self.judging.published.flow(key) else {
            return self.lack(false);
        };
        if guard::ticks_since(found.seen, self.judging.now) > REFRESH {
            return self.lack(false);
        }
        // A frame has one connection; what asks for a second one is the kernel's to judge.
        if self.found.replace(true) {
            return self.lack(false);
        }
        *words = found;
        true
    }

    /// Notes nothing.
    ///
    /// A frame that changes more than the time of its connection is the kernel's to judge.
    #[inline(always)]
    fn note(&self, was: &FlowWords, is: &FlowWords) {
        let seen = was.seen;
        if *was != (FlowWords { seen, ..*is }) {
            self.lack(());
        }
    }

    #[inline(always)]
    fn tell(&self, _: &FlowKey, _: u32) -> bool {
        self.lack(false)
    }

    #[inline(always)]
    fn open(&self, _: &FlowKey, _: &FlowWords) -> bool {
        self.lack(false)
    }

    #[inline(always)]
    fn pay(&self, _: u32) -> bool {
        self.lack(true)
    }
}

#[cfg(test)]
mod tests;
