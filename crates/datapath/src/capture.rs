//! Taps at interfaces, and marks of ports whose drops are all published.
//!
//! Nothing of it has a pin. A tap ends with its sockets, and the marks are of one set of programs: those
//! of the next agent begin without any.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use agent_common::capture::{CAPTURE_LOST, CAPTURE_ON, FLOW_ON, MAX_SNAPLEN, TapRecord};
use aya::maps::perf::{PerfEvent, PerfEventArrayBuffer};
use aya::maps::{Array, Map, MapData, PerfEventArray};
use aya::programs::SocketFilter;
use aya::util::online_cpus;
use aya::{Ebpf, EbpfLoader};
use rustix::param::page_size;
use zerocopy::FromBytes as _;

use crate::error::DatapathError;
use crate::object;

mod flow;

pub use self::flow::{FlowTap, Sampler};

/// The map of records, in its object.
const FRAMES: &str = "FRAMES";
/// Its constant.
const SNAPLEN: &str = "SNAPLEN";

/// Marks of ports under capture, in the programs of one agent.
pub struct Marks {
    map: Array<MapData, u32>,
    /// Ports with a mark.
    kept: HashMap<u16, Kept>,
}

/// Facts that the agent keeps of a port with a mark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Kept {
    marked: Marked,
    /// Drops that were lost before the word of the port was written last.
    lost: u64,
}

impl fmt::Debug for Marks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Marks").finish_non_exhaustive()
    }
}

impl Marks {
    /// Name of the map.
    pub(crate) const MAP: &str = "CAPTURED";

    pub(crate) fn new(map: Map) -> Result<Self, DatapathError> {
        let map = Array::try_from(map).map_err(DatapathError::map("open", Self::MAP))?;
        Ok(Self {
            map,
            kept: HashMap::new(),
        })
    }

    /// Has every drop of a port published, or those of sampled frames, or none.
    ///
    /// # Errors
    /// When the kernel refuses, or has no such port.
    pub fn set(&mut self, port_id: u16, marked: Marked) -> Result<(), DatapathError> {
        let before = self.kept.get(&port_id).copied().unwrap_or_default();
        if before.marked == marked {
            return Ok(());
        }
        let word = self.word(port_id)?;
        self.write(port_id, marked)?;
        if marked == Marked::default() {
            self.kept.remove(&port_id);
        } else {
            self.kept.insert(port_id, before.after_write(word, marked));
        }
        Ok(())
    }

    /// Returns the number of unpublished drops of a port since it was marked.
    ///
    /// It may be more than were lost, and is more than before when any was lost meanwhile.
    ///
    /// # Errors
    /// When the kernel refuses, or has no such port.
    pub fn lost(&mut self, port_id: u16) -> Result<u64, DatapathError> {
        let word = self.word(port_id)?;
        let kept = self.kept.get(&port_id).copied().unwrap_or_default();
        if word % CAPTURE_LOST == kept.marked.bits() {
            return Ok(kept.lost + u64::from(word / CAPTURE_LOST));
        }
        // A program that counted at the moment of a write has undone it.
        self.write(port_id, kept.marked)?;
        let kept = kept.after_write(word, kept.marked);
        self.kept.insert(port_id, kept);
        Ok(kept.lost)
    }

    fn word(&self, port_id: u16) -> Result<u32, DatapathError> {
        self.map
            .get(&u32::from(port_id), 0)
            .map_err(DatapathError::map("read", Self::MAP))
    }

    fn write(&mut self, port_id: u16, marked: Marked) -> Result<(), DatapathError> {
        self.map
            .set(u32::from(port_id), marked.bits(), 0)
            .map_err(DatapathError::map("write", Self::MAP))
    }
}

impl Kept {
    /// Counts what a write over this word would hide.
    ///
    /// A listener that goes on hears of drops that were lost before.
    /// One that is lost at the moment of the write is in neither word, so that one more is counted.
    fn after_write(self, word: u32, marked: Marked) -> Self {
        let is_new = self.marked == Marked::default();
        let lost = self.lost + u64::from(word / CAPTURE_LOST) + 1;
        Self {
            marked,
            lost: if is_new { 0 } else { lost },
        }
    }
}

impl Marked {
    /// The bits of the word of a port.
    const fn bits(self) -> u32 {
        let captured = if self.captured { CAPTURE_ON } else { 0 };
        captured | if self.sampled { FLOW_ON } else { 0 }
    }
}

/// The marks of one port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marked {
    /// It is under capture.
    pub captured: bool,
    /// It is in the flow log.
    pub sampled: bool,
}

/// Place of a tap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TapPlace {
    /// The host end of a veth: frames that the pod has sent.
    HostEnd,
    /// The pod's end of a veth: frames that come to the pod.
    PodEnd,
    /// The node's interface of a port that is a socket: both.
    Both,
}

impl TapPlace {
    /// Each of them.
    const ALL: [Self; 3] = [Self::HostEnd, Self::PodEnd, Self::Both];

    const fn program(self) -> &'static str {
        match self {
            Self::HostEnd => "tap_host_end",
            Self::PodEnd => "tap_pod_end",
            Self::Both => "tap_both",
        }
    }
}

/// An event of a tap.
#[derive(Debug)]
pub enum TapEvent<'a> {
    /// A frame.
    Frame {
        /// The CPU that has seen it.
        cpu: u32,
        /// Facts about it.
        record: TapRecord,
        /// Its first bytes.
        bytes: &'a [u8],
    },
    /// Frames that found no room in a buffer.
    Lost(u64),
}

/// Programs and buffers of one capture.
pub struct Tap {
    programs: Ebpf,
    /// By CPU.
    buffers: Vec<(u32, PerfEventArrayBuffer<MapData>)>,
    /// A frame that is in two pieces in its buffer.
    whole: Vec<u8>,
    /// As long as they are open, frames come.
    sockets: Vec<OwnedFd>,
}

impl fmt::Debug for Tap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Tap({} CPUs)", self.buffers.len())
    }
}

impl Tap {
    /// Loads the programs, with `buffer` bytes of room for each CPU.
    ///
    /// They copy `snaplen` bytes of a frame. The buffer is rounded up to a power of two of pages.
    ///
    /// # Errors
    /// When the object is missing, or the kernel refuses.
    pub fn load(snaplen: u32, buffer: usize) -> Result<Self, DatapathError> {
        let snaplen = snaplen.min(MAX_SNAPLEN);
        let mut programs = EbpfLoader::new()
            .btf(None)
            .override_global(SNAPLEN, &snaplen, true)
            .load(object::of_tap()?)
            .map_err(|source| DatapathError::Load {
                source: Box::new(source),
            })?;
        for place in TapPlace::ALL {
            program(&mut programs, place)?
                .load()
                .map_err(DatapathError::program("load", place.program()))?;
        }
        let map = programs
            .take_map(FRAMES)
            .ok_or(DatapathError::NoMap { name: FRAMES })?;
        let mut frames =
            PerfEventArray::try_from(map).map_err(DatapathError::map("open", FRAMES))?;
        let pages = buffer.div_ceil(page_size()).next_power_of_two();
        let cpus = online_cpus().map_err(|(_, source)| DatapathError::TapBuffer {
            source: Box::new(source.into()),
        })?;
        let buffers = cpus.into_iter().map(|cpu| {
            let buffer = frames.open(cpu, Some(pages));
            buffer
                .map(|buffer| (cpu, buffer))
                .map_err(|source| DatapathError::TapBuffer {
                    source: Box::new(source),
                })
        });
        Ok(Self {
            buffers: buffers.collect::<Result<_, _>>()?,
            programs,
            whole: Vec::new(),
            sockets: Vec::new(),
        })
    }

    /// Shows the frames of a packet socket, which gets none of them itself.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn attach(&mut self, place: TapPlace, socket: OwnedFd) -> Result<(), DatapathError> {
        program(&mut self.programs, place)?
            .attach(&socket)
            .map_err(DatapathError::program("attach", place.program()))?;
        self.sockets.push(socket);
        Ok(())
    }

    /// Gives the events that are there, those of a CPU in their order.
    pub fn read(&mut self, mut take: impl FnMut(TapEvent<'_>)) {
        let Self { buffers, whole, .. } = self;
        for (cpu, buffer) in buffers {
            buffer.for_each(|event| match event {
                PerfEvent::Lost { count } => take(TapEvent::Lost(count)),
                PerfEvent::Sample { head, tail } => {
                    let sample = if tail.is_empty() {
                        head
                    } else {
                        whole.clear();
                        whole.extend_from_slice(head);
                        whole.extend_from_slice(tail);
                        whole.as_slice()
                    };
                    // What follows the frame aligns the record.
                    if let Ok((record, rest)) = TapRecord::read_from_prefix(sample)
                        && let Some(bytes) = usize::try_from(record.captured)
                            .ok()
                            .and_then(|length| rest.get(..length))
                    {
                        take(TapEvent::Frame {
                            cpu: *cpu,
                            record,
                            bytes,
                        });
                    }
                }
            });
        }
    }

    /// Descriptors that are readable when there are events.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.buffers.iter().map(|(_, buffer)| buffer.as_fd())
    }
}

fn program(programs: &mut Ebpf, place: TapPlace) -> Result<&mut SocketFilter, DatapathError> {
    let name = place.program();
    programs
        .program_mut(name)
        .ok_or(DatapathError::NoProgram { name })?
        .try_into()
        .map_err(DatapathError::program("use", name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLED: Marked = Marked {
        captured: false,
        sampled: true,
    };
    const BOTH: Marked = Marked {
        captured: true,
        sampled: true,
    };

    #[test]
    fn a_capture_that_begins_or_ends_hides_no_lost_drop_of_a_sampled_port() {
        let begun = Kept::default().after_write(7 * CAPTURE_LOST, SAMPLED);
        assert_eq!(begun.lost, 0, "nobody listened before");
        let both = begun.after_write((3 * CAPTURE_LOST) | SAMPLED.bits(), BOTH);
        assert!(both.lost >= 3 && both.marked == BOTH, "{both:?}");
        let one = both.after_write((2 * CAPTURE_LOST) | BOTH.bits(), SAMPLED);
        assert!(one.lost >= 5, "{one:?}");
        // None was seen to be lost, and one may have been at the moment of the write.
        assert!(one.after_write(SAMPLED.bits(), BOTH).lost > one.lost);
    }

    #[test]
    fn the_bits_of_marks_are_below_the_count() {
        assert!(BOTH.bits() < CAPTURE_LOST);
        assert_ne!(BOTH.bits(), SAMPLED.bits());
    }
}
