//! Taps of the flow log: one frame of many of a port, with its first bytes.
//!
//! Each port has programs and a ring of its own, so that none takes room of another. They share one word of
//! each CPU with the node's programs, by which these know a sampled frame when they drop it.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use agent_common::capture::FlowRecord;
use aya::maps::{Map, MapData, PerCpuArray, RingBuf};
use aya::programs::SocketFilter;
use aya::{Ebpf, EbpfLoader};
use zerocopy::FromBytes as _;

use super::TapPlace;
use crate::error::DatapathError;
use crate::object;

/// The map of samples, in its object.
const FLOWS: &str = "FLOWS";
/// The map of what found no room in that.
const FLOWS_LOST: &str = "FLOWS_LOST";
/// The constant that chooses frames.
const THRESHOLD: &str = "THRESHOLD";

impl TapPlace {
    const fn flow_program(self) -> &'static str {
        match self {
            Self::HostEnd => "flow_host_end",
            Self::PodEnd => "flow_pod_end",
            Self::Both => "flow_both",
        }
    }
}

/// Makes taps that the node's programs know of.
#[derive(Debug)]
pub struct Sampler {
    /// The pin of `SAMPLED`, by which taps find the map; it goes with this value.
    pin: PathBuf,
}

impl Sampler {
    /// Name of the map.
    pub(crate) const MAP: &str = "SAMPLED";

    pub(crate) fn new(map: &Map, generation: &Path) -> Result<Self, DatapathError> {
        let pin = generation.join(Self::MAP);
        map.pin(&pin).map_err(|source| DatapathError::PinObject {
            path: pin.clone(),
            source: Box::new(source),
        })?;
        Ok(Self { pin })
    }

    /// Removes the pin of an agent that had no time to.
    pub(crate) fn forget(generation: &Path) -> Result<(), DatapathError> {
        let pin = generation.join(Self::MAP);
        match fs::remove_file(&pin) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(DatapathError::pin("remove", pin)(error))
            }
            _ => Ok(()),
        }
    }

    /// Loads the programs of one port, which sample one of `one_of` frames.
    ///
    /// # Errors
    /// When the object is missing, or the kernel refuses.
    pub fn tap(&self, one_of: u32, places: &[TapPlace]) -> Result<FlowTap, DatapathError> {
        let threshold = u32::MAX / one_of.max(1);
        let mut programs = EbpfLoader::new()
            .btf(None)
            .map_pin_path(Self::MAP, self.pin.as_path())
            .override_global(THRESHOLD, &threshold, true)
            .load(object::of_tap()?)
            .map_err(|source| DatapathError::Load {
                source: Box::new(source),
            })?;
        for place in places {
            program(&mut programs, *place)?
                .load()
                .map_err(DatapathError::program("load", place.flow_program()))?;
        }
        let mut take = |name| programs.take_map(name).ok_or(DatapathError::NoMap { name });
        let ring = RingBuf::try_from(take(FLOWS)?).map_err(DatapathError::map("open", FLOWS))?;
        let lost = PerCpuArray::try_from(take(FLOWS_LOST)?)
            .map_err(DatapathError::map("open", FLOWS_LOST))?;
        Ok(FlowTap {
            programs: Some(programs),
            ring,
            lost,
            sockets: Vec::new(),
        })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // What stays is removed when the next agent opens the datapath.
        let _ = fs::remove_file(&self.pin);
    }
}

/// The samples of one port.
pub struct FlowTap {
    /// None once they are attached.
    programs: Option<Ebpf>,
    ring: RingBuf<MapData>,
    lost: PerCpuArray<MapData, u64>,
    /// As long as they are open, samples come.
    sockets: Vec<OwnedFd>,
}

impl fmt::Debug for FlowTap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "FlowTap({} sockets)", self.sockets.len())
    }
}

impl FlowTap {
    /// Samples the frames of a packet socket, which gets none of them itself.
    ///
    /// # Errors
    /// When the kernel refuses, or the taps are complete.
    pub fn attach(&mut self, place: TapPlace, socket: OwnedFd) -> Result<(), DatapathError> {
        let name = place.flow_program();
        let programs = self
            .programs
            .as_mut()
            .ok_or(DatapathError::NoProgram { name })?;
        program(programs, place)?
            .attach(socket.as_fd())
            .map_err(DatapathError::program("attach", name))?;
        self.sockets.push(socket);
        Ok(())
    }

    /// Ends attaching: the sockets keep their programs, and a port has few descriptors.
    pub fn complete(&mut self) {
        self.programs = None;
    }

    /// Gives the samples that are there, at most this many.
    ///
    /// A port that fills its ring as fast as it is read keeps no reader from the others.
    pub fn read(&mut self, most: usize, mut take: impl FnMut(&FlowRecord)) {
        for _ in 0..most {
            let Some(item) = self.ring.next() else {
                return;
            };
            if let Ok((record, _)) = FlowRecord::ref_from_prefix(&item) {
                take(record);
            }
        }
    }

    /// Returns the number of samples so far that found no room.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn lost(&self) -> Result<u64, DatapathError> {
        let by_cpu = self.lost.get(&0, 0);
        let by_cpu = by_cpu.map_err(DatapathError::map("read", FLOWS_LOST))?;
        Ok(by_cpu.iter().sum())
    }
}

fn program(programs: &mut Ebpf, place: TapPlace) -> Result<&mut SocketFilter, DatapathError> {
    let name = place.flow_program();
    programs
        .program_mut(name)
        .ok_or(DatapathError::NoProgram { name })?
        .try_into()
        .map_err(DatapathError::program("use", name))
}
