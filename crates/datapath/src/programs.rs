//! Load programs: those of pods at once, others when they are first attached.
//!
//! The verifier walks most of its way through programs for packets of other nodes, which many nodes never
//! attach. The programs of a side are loaded before its dispatcher is pinned, and nothing can be attached
//! without that pin. So a pinned dispatcher says that an agent has used this side, and the next agent
//! loads it before it takes over.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_common::map::{
    JUMP_ANSWER, JUMP_CARRY, JUMP_FLOOD, JUMP_GUARD_IN, JUMP_GUARD_POD, JUMP_GUARD_TO,
    JUMP_ICMP_ERROR, JUMP_PUBLISH, JUMP_REPLICATE, JUMP_REPLY, JUMP_REPLY_TO, JUMP_SERVICE,
    JUMP_TO_WIRE, JUMP_WIRE, ROOT_FROM_GATEWAY, ROOT_FROM_OVERLAY, ROOT_FROM_POD, ROOT_FROM_UPLINK,
    ROOT_TO_POD, ROOT_XDP_UPLINK,
};
use aya::Ebpf;
use aya::maps::{Map, MapData, ProgramArray};
use aya::programs::{Program, ProgramError, ProgramFd};

use crate::error::DatapathError;
use crate::hook::Dispatcher;

/// The program behind `ROOT_FROM_POD`.
pub(crate) const FROM_POD: &str = "from_pod";
/// The program behind `ROOT_FROM_UPLINK`.
pub(crate) const FROM_UPLINK: &str = "from_uplink";
/// The program behind `ROOT_XDP_UPLINK`.
pub(crate) const XDP_UPLINK: &str = "xdp_uplink";
/// Name of the XDP dispatcher, in the object and below `root/`.
pub(crate) const X_UPLINK: &str = "x_uplink";
/// Only ever run by [`crate::Datapath::try_room`].
pub(crate) const TRY_ROOM: &str = "try_room";

/// Copies to other nodes and to uplinks.
///
/// A port has them made only if its network has such.
const REPLICATE: (u32, &str) = (JUMP_REPLICATE, "replicate");

/// Programs that judge by policies, with their slots in `JUMP`.
///
/// They are loaded with the first policy of a port.
const GUARDS: [(u32, &str); 5] = [
    (JUMP_CARRY, "carry"),
    (JUMP_PUBLISH, "publish"),
    (JUMP_GUARD_IN, "guard_in"),
    (JUMP_GUARD_TO, "guard_to"),
    (JUMP_GUARD_POD, "guard_pod"),
];

/// Programs that translate, with their slots in `JUMP`.
///
/// They are loaded with the first Service of a network.
const SERVICES: [(u32, &str); 3] = [
    (JUMP_REPLY, "reply"),
    (JUMP_REPLY_TO, "reply_to"),
    (JUMP_SERVICE, "service"),
];

/// A place where packets come in: a dispatcher, and the programs behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    /// Links of pods.
    Pod,
    /// Links of pods that the node's stack sends to, on their way out.
    ToPod,
    /// The tunnel device.
    Overlay,
    /// Links of gateways.
    Gateway,
    /// Interfaces of the node, in TC.
    Uplink,
    /// Interfaces of the node, in XDP.
    Early,
}

/// The programs of a side.
struct Parts {
    dispatcher: &'static str,
    /// The map, the slot, and the program which the dispatcher calls.
    root: (&'static str, u32, &'static str),
    /// Programs that are called from there, with their slots in `JUMP`.
    ///
    /// Or from programs of pods, for what leaves by this side.
    jumps: &'static [(u32, &'static str)],
}

impl Side {
    /// All of them, in the order in which packets get new programs.
    ///
    /// Packets of other nodes are let in before pods send any, as an answer. What XDP drops, all others drop.
    const ALL: [Self; 6] = [
        Self::Overlay,
        Self::Gateway,
        Self::Uplink,
        Self::ToPod,
        Self::Pod,
        Self::Early,
    ];

    const fn parts(self) -> Parts {
        match self {
            Self::Pod => Parts {
                dispatcher: Dispatcher::Pod.name(),
                root: ("ROOT", ROOT_FROM_POD, FROM_POD),
                jumps: &[
                    (JUMP_FLOOD, "flood"),
                    (JUMP_ANSWER, "answer"),
                    (JUMP_ICMP_ERROR, "icmp_error"),
                ],
            },
            Self::ToPod => Parts {
                dispatcher: Dispatcher::ToPod.name(),
                root: ("ROOT", ROOT_TO_POD, "to_pod"),
                jumps: &[],
            },
            Self::Overlay => Parts {
                dispatcher: Dispatcher::Overlay.name(),
                root: ("ROOT", ROOT_FROM_OVERLAY, "from_overlay"),
                jumps: &[REPLICATE],
            },
            Self::Gateway => Parts {
                dispatcher: Dispatcher::Gateway.name(),
                root: ("ROOT", ROOT_FROM_GATEWAY, "from_gateway"),
                jumps: &[],
            },
            Self::Uplink => Parts {
                dispatcher: Dispatcher::Uplink.name(),
                root: ("ROOT", ROOT_FROM_UPLINK, FROM_UPLINK),
                jumps: &[
                    (JUMP_WIRE, "from_wire"),
                    (JUMP_TO_WIRE, "to_wire"),
                    REPLICATE,
                ],
            },
            Self::Early => Parts {
                dispatcher: X_UPLINK,
                root: ("ROOT_XDP", ROOT_XDP_UPLINK, XDP_UPLINK),
                jumps: &[],
            },
        }
    }
}

/// The programs of one object, those that wait included.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    inner: Arc<Mutex<Inner>>,
    /// Directory of the dispatchers' pins.
    root: PathBuf,
    /// The pin of the jump table.
    jump: PathBuf,
}

struct Inner {
    /// It holds the descriptors of all maps, by which programs that wait name them.
    object: Ebpf,
    loaded: BTreeSet<Side>,
    /// Whether the programs that judge by policies are loaded.
    guards: bool,
    /// Whether the programs that translate are loaded.
    services: bool,
    /// Whether packets meet these programs.
    active: bool,
}

impl fmt::Debug for Inner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = out.debug_struct("Inner");
        out.field("loaded", &self.loaded).finish_non_exhaustive()
    }
}

impl Programs {
    /// Hold an object of which nothing is loaded.
    pub(crate) fn new(object: Ebpf, root: &Path, jump: &Path) -> Self {
        let inner = Inner {
            object,
            loaded: BTreeSet::new(),
            guards: false,
            services: false,
            active: false,
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
            root: root.to_owned(),
            jump: jump.to_owned(),
        }
    }

    /// Loads the programs of a side, if they are not; packets do not meet them yet.
    ///
    /// # Errors
    /// The kernel refuses one.
    pub(crate) fn load(&self, side: Side) -> Result<(), DatapathError> {
        self.lock().load(side, &self.jump)
    }

    /// Loads the programs of each side that an agent has used.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub(crate) fn load_pinned(&self) -> Result<(), DatapathError> {
        let mut inner = self.lock();
        for side in Side::ALL {
            if self.pin_of(side).exists() {
                inner.load(side, &self.jump)?;
            }
        }
        Ok(())
    }

    /// Loads the programs of all sides.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub(crate) fn load_all(&self) -> Result<(), DatapathError> {
        let mut inner = self.lock();
        let mut sides = Side::ALL.into_iter();
        sides.try_for_each(|side| inner.load(side, &self.jump))?;
        inner.load_guards(&self.jump)?;
        inner.load_services(&self.jump)
    }

    /// Loads the programs that judge by policies, if they are not.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub(crate) fn load_guards(&self) -> Result<(), DatapathError> {
        self.lock().load_guards(&self.jump)
    }

    /// Loads the programs that translate, if they are not.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub(crate) fn load_services(&self) -> Result<(), DatapathError> {
        self.lock().load_services(&self.jump)
    }

    /// Pins the dispatcher of a side, if none is.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn pin(&self, side: Side) -> Result<(), DatapathError> {
        self.lock().pin(side, &self.pin_of(side))
    }

    /// Serves a side that no agent has used: its programs, then its dispatcher's pin.
    ///
    /// The programs of a side that has a pin are changed by [`Self::activate`] only.
    ///
    /// # Errors
    /// The kernel refuses a program or a pin.
    pub(crate) fn serve(&self, side: Side) -> Result<(), DatapathError> {
        let pin = self.pin_of(side);
        let mut inner = self.lock();
        // A pin that came after the flip is another agent's, whose programs are of other maps.
        if pin.exists() && (inner.loaded.contains(&side) || !inner.active) {
            return Ok(());
        }
        inner.load(side, &self.jump)?;
        inner.flip(side, &self.root)?;
        inner.pin(side, &pin)
    }

    /// Has packets meet the programs of each side that is loaded, or was used since.
    ///
    /// # Errors
    /// The kernel refuses; sides after the one that it refuses have the programs of before.
    pub(crate) fn activate(&self) -> Result<(), DatapathError> {
        self.load_pinned()?;
        let mut inner = self.lock();
        let mut sides = Side::ALL.into_iter();
        sides.try_for_each(|side| match inner.loaded.contains(&side) {
            true => inner.flip(side, &self.root),
            false => Ok(()),
        })?;
        inner.active = true;
        Ok(())
    }

    /// Calls a function with a program, which is loaded if it is not.
    ///
    /// # Errors
    /// The program cannot be loaded, or the function's.
    pub(crate) fn with<T>(
        &self,
        side: Side,
        name: &'static str,
        operation: &'static str,
        call: impl FnOnce(&Program) -> Result<T, ProgramError>,
    ) -> Result<T, DatapathError> {
        let mut inner = self.lock();
        inner.load(side, &self.jump)?;
        call(inner.program(name)?).map_err(DatapathError::program(operation, name))
    }

    /// Calls a function with each program, loaded or not, and its name.
    ///
    /// # Errors
    /// The function's.
    pub(crate) fn each(
        &self,
        mut call: impl FnMut(&str, &Program) -> Result<(), DatapathError>,
    ) -> Result<(), DatapathError> {
        let inner = self.lock();
        let mut programs = inner.object.programs();
        programs.try_for_each(|(name, program)| call(name, program))
    }

    /// Path of the pin of a side's dispatcher.
    pub(crate) fn pin_of(&self, side: Side) -> PathBuf {
        self.root.join(side.parts().dispatcher)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn load(&mut self, side: Side, jump: &Path) -> Result<(), DatapathError> {
        if self.loaded.contains(&side) {
            return Ok(());
        }
        let parts = side.parts();
        let (_, _, first) = parts.root;
        self.load_program(first)?;
        self.load_jumps(parts.jumps, jump)?;
        if side == Side::Pod {
            self.load_program(TRY_ROOM)?;
        }
        self.loaded.insert(side);
        Ok(())
    }

    fn load_guards(&mut self, jump: &Path) -> Result<(), DatapathError> {
        if !self.guards {
            self.load_jumps(&GUARDS, jump)?;
            self.guards = true;
        }
        Ok(())
    }

    fn load_services(&mut self, jump: &Path) -> Result<(), DatapathError> {
        if !self.services {
            self.load_jumps(&SERVICES, jump)?;
            self.services = true;
        }
        Ok(())
    }

    /// Loads programs and puts them into their slots of `JUMP`, in this order.
    fn load_jumps(
        &mut self,
        jumps: &[(u32, &'static str)],
        jump: &Path,
    ) -> Result<(), DatapathError> {
        let mut table = program_array(jump, "JUMP")?;
        for (slot, name) in jumps {
            self.load_program(name)?;
            table
                .set(*slot, self.fd(name)?, 0)
                .map_err(DatapathError::map("write", "JUMP"))?;
        }
        Ok(())
    }

    fn load_program(&mut self, name: &'static str) -> Result<&mut Program, DatapathError> {
        let program = self
            .object
            .program_mut(name)
            .ok_or(DatapathError::NoProgram { name })?;
        // One that was loaded before another of its side was refused stays.
        if program.fd().is_err() {
            let loaded = match &mut *program {
                Program::SchedClassifier(program) => program.load(),
                Program::Xdp(program) => program.load(),
                _ => Err(ProgramError::UnexpectedProgramType),
            };
            loaded.map_err(DatapathError::program("load", name))?;
        }
        Ok(program)
    }

    fn pin(&mut self, side: Side, path: &Path) -> Result<(), DatapathError> {
        if path.exists() {
            return Ok(());
        }
        let program = self.load_program(side.parts().dispatcher)?;
        program
            .pin(path)
            .map_err(|source| DatapathError::PinObject {
                path: path.to_owned(),
                source: Box::new(source),
            })
    }

    fn flip(&self, side: Side, root: &Path) -> Result<(), DatapathError> {
        let (map, slot, name) = side.parts().root;
        program_array(&root.join(map), map)?
            .set(slot, self.fd(name)?, 0)
            .map_err(DatapathError::map("write", map))
    }

    fn fd(&self, name: &'static str) -> Result<&ProgramFd, DatapathError> {
        let program = self.program(name)?;
        program.fd().map_err(DatapathError::program("use", name))
    }

    fn program(&self, name: &'static str) -> Result<&Program, DatapathError> {
        self.object
            .program(name)
            .ok_or(DatapathError::NoProgram { name })
    }
}

/// Maps of an object, each to be taken once.
///
/// They have descriptors of their own: those of the object stay for programs that are loaded later.
pub(crate) struct Maps(BTreeMap<String, Map>);

impl fmt::Debug for Maps {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.0.keys()).finish()
    }
}

impl Maps {
    /// Opens all maps once more.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub(crate) fn of(object: &Ebpf) -> Result<Self, DatapathError> {
        let again = |(name, map): (&str, &Map)| {
            let fd = data(map).fd().as_fd().try_clone_to_owned();
            let fd = fd.map_err(DatapathError::pin(
                "duplicate the descriptor of the map",
                name,
            ))?;
            let map = MapData::from_fd(fd).and_then(Map::from_map_data);
            let map = map.map_err(DatapathError::map("open again", "maps of the object"))?;
            Ok((name.to_owned(), map))
        };
        object.maps().map(again).collect::<Result<_, _>>().map(Self)
    }

    /// Takes a map.
    ///
    /// # Errors
    /// There is none of this name, or it was taken.
    pub(crate) fn take(&mut self, name: &'static str) -> Result<Map, DatapathError> {
        self.0.remove(name).ok_or(DatapathError::NoMap { name })
    }
}

/// The descriptor of a map, whatever its kind.
fn data(map: &Map) -> &MapData {
    match map {
        Map::Array(data)
        | Map::ArrayOfMaps(data)
        | Map::BloomFilter(data)
        | Map::CgroupArray(data)
        | Map::CgroupStorage(data)
        | Map::CgrpStorage(data)
        | Map::CpuMap(data)
        | Map::DevMap(data)
        | Map::DevMapHash(data)
        | Map::HashMap(data)
        | Map::HashOfMaps(data)
        | Map::InodeStorage(data)
        | Map::LpmTrie(data)
        | Map::LruHashMap(data)
        | Map::PerCpuArray(data)
        | Map::PerCpuCgroupStorage(data)
        | Map::PerCpuHashMap(data)
        | Map::PerCpuLruHashMap(data)
        | Map::PerfEventArray(data)
        | Map::ProgramArray(data)
        | Map::Queue(data)
        | Map::ReusePortSockArray(data)
        | Map::RingBuf(data)
        | Map::SockHash(data)
        | Map::SockMap(data)
        | Map::SkStorage(data)
        | Map::Stack(data)
        | Map::StackTraceMap(data)
        | Map::Unsupported(data)
        | Map::XskMap(data) => data,
    }
}

fn program_array(path: &Path, name: &'static str) -> Result<ProgramArray<MapData>, DatapathError> {
    MapData::from_pin(path)
        .and_then(Map::from_map_data)
        .and_then(ProgramArray::try_from)
        .map_err(DatapathError::map("open", name))
}
