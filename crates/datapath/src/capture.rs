//! Taps at interfaces, and marks of ports whose drops are all published.
//!
//! Nothing of it has a pin. A tap ends with its sockets, and the marks are of one set of programs: those
//! of the next agent begin without any.

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
pub struct Marks(Array<MapData, u32>);

impl fmt::Debug for Marks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Marks").finish_non_exhaustive()
    }
}

impl Marks {
    /// Name of the map.
    pub(crate) const MAP: &str = "CAPTURED";

    pub(crate) fn new(map: Map) -> Result<Self, DatapathError> {
        Array::try_from(map)
            .map(Self)
            .map_err(DatapathError::map("open", Self::MAP))
    }

    /// Has every drop of a port published, or those of sampled frames, or none.
    ///
    /// # Errors
    /// When the kernel refuses, or has no such port.
    pub fn set(&mut self, port_id: u16, marked: Marked) -> Result<(), DatapathError> {
        let captured = if marked.captured { CAPTURE_ON } else { 0 };
        let value = captured | if marked.sampled { FLOW_ON } else { 0 };
        self.0
            .set(u32::from(port_id), value, 0)
            .map_err(DatapathError::map("write", Self::MAP))
    }

    /// Returns the number of unpublished drops of a port since it was marked.
    ///
    /// CPUs that lose one at the same moment may count one.
    ///
    /// # Errors
    /// When the kernel refuses, or has no such port.
    pub fn lost(&self, port_id: u16) -> Result<u32, DatapathError> {
        self.0
            .get(&u32::from(port_id), 0)
            .map(|value| value / CAPTURE_LOST)
            .map_err(DatapathError::map("read", Self::MAP))
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
