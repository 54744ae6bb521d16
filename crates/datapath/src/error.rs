//! Errors of the datapath, each with its object.

use std::io;
use std::path::PathBuf;

use aya::EbpfError;
use aya::maps::MapError;
use aya::maps::perf::PerfBufferError;
use aya::pin::PinError;
use aya::programs::ProgramError;
use aya::programs::links::LinkError;

/// An operation on programs, maps, links or pins failed.
#[derive(Debug, thiserror::Error)]
pub enum DatapathError {
    /// The agent was built without the eBPF object.
    #[error(
        "podnet-agent was built without its eBPF object: build it with `cargo xtask build`, \
         which installs the BPF toolchain, or pass --ebpf-object"
    )]
    NoObject,
    /// A port that has to be closed cannot be, as policies in force are not known.
    #[error(
        "policies are not read yet, and the port must not be there without them: it is tried again"
    )]
    PoliciesUnread,
    /// The eBPF object given on the command line cannot be read.
    #[error("cannot read the eBPF object {}", path.display())]
    ReadObject {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The eBPF object is not one.
    #[error("the eBPF object does not parse")]
    ParseObject {
        /// Why not.
        source: Box<aya_obj::ParseError>,
    },
    /// The pin directory is not on a BPF file system.
    #[error(
        "{} is not on a BPF file system: mount one with `mount -t bpf bpf /sys/fs/bpf`, or pass --bpffs",
        path.display()
    )]
    NotBpffs {
        /// The directory.
        path: PathBuf,
    },
    /// A file operation on a pin failed.
    #[error("cannot {operation} {}", path.display())]
    Pin {
        /// The operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The kernel's type information is of no use to programs.
    #[error(transparent)]
    Types(#[from] kernel_types::TypesError),
    /// The kernel refused the programs or maps.
    #[error("cannot load the eBPF object")]
    Load {
        /// Why not.
        source: Box<EbpfError>,
    },
    /// The object lacks a program.
    #[error("the eBPF object has no program {name}")]
    NoProgram {
        /// Its name.
        name: &'static str,
    },
    /// The object lacks a map.
    #[error("the eBPF object has no map {name}")]
    NoMap {
        /// Its name.
        name: &'static str,
    },
    /// A pinned map is not what its directory says.
    #[error(
        "the pinned map {} has another layout than its directory: remove {} with `podnet-agent cleanup`",
        path.display(), path.display()
    )]
    ForeignMap {
        /// The pin.
        path: PathBuf,
    },
    /// An operation on a program failed.
    #[error("cannot {operation} program {name}")]
    Program {
        /// The operation.
        operation: &'static str,
        /// The program.
        name: &'static str,
        /// Why not.
        source: Box<ProgramError>,
    },
    /// An operation on a map failed.
    #[error("cannot {operation} map {name}")]
    Map {
        /// The operation.
        operation: &'static str,
        /// The map.
        name: &'static str,
        /// Why not.
        source: Box<MapError>,
    },
    /// A static map has no room left.
    #[error("map {name} is full ({max_entries} entries): raise --max-ports or use another node")]
    MapFull {
        /// The map.
        name: &'static str,
        /// Its size.
        max_entries: u32,
    },
    /// A program could not be attached to an interface.
    #[error("cannot attach to {interface}")]
    Attach {
        /// The interface.
        interface: String,
        /// Why not.
        source: Box<ProgramError>,
    },
    /// A link could not be handled.
    #[error("cannot {operation} the link of {interface}")]
    Link {
        /// The operation.
        operation: &'static str,
        /// The interface.
        interface: String,
        /// Why not.
        source: Box<LinkError>,
    },
    /// A buffer for the packets of a capture could not be made.
    #[error("cannot make a buffer for captured packets: ask for a smaller one")]
    TapBuffer {
        /// Why not.
        source: Box<PerfBufferError>,
    },
    /// An object could not be pinned.
    #[error("cannot pin {}", path.display())]
    PinObject {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: Box<PinError>,
    },
}

impl DatapathError {
    pub(crate) fn map(
        operation: &'static str,
        name: &'static str,
    ) -> impl FnOnce(MapError) -> Self {
        move |source| Self::Map {
            operation,
            name,
            source: Box::new(source),
        }
    }

    pub(crate) fn program(
        operation: &'static str,
        name: &'static str,
    ) -> impl FnOnce(ProgramError) -> Self {
        move |source| Self::Program {
            operation,
            name,
            source: Box::new(source),
        }
    }

    pub(crate) fn pin(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Pin {
            operation,
            path,
            source,
        }
    }
}
