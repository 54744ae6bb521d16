//! Opening: load programs next to those that run, fill the maps, then flip.
//!
//! The dispatcher on the interfaces never changes. What it calls is one slot of `ROOT`, written
//! last: one system call moves the node from the old programs and maps to the new ones, and no
//! packet sees half of it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use agent_common::ABI_VERSION;
use agent_common::map::{
    JUMP_ANSWER, JUMP_FLOOD, JUMP_ICMP_ERROR, JUMP_REPLICATE, JUMP_TO_WIRE, JUMP_WIRE,
    MAX_DROP_REASONS, MAX_PORTS, ROOT_FROM_GATEWAY, ROOT_FROM_OVERLAY, ROOT_FROM_POD,
    ROOT_FROM_UPLINK, ROOT_XDP_UPLINK,
};
use aya::maps::{Map, MapData, ProgramArray, RingBuf};
use aya::programs::{SchedClassifier, Xdp};
use aya::{Ebpf, EbpfLoader};

use crate::btf;
use crate::capture::{Marks, Sampler};
use crate::counters::{self, Counters};
use crate::error::DatapathError;
use crate::event::Events;
use crate::homes::{self, Homes, ROOT_MAPS, digest, jumps, next_jump};
use crate::hook::{Dispatcher, Hook};
use crate::lasting;
use crate::object::{self, Layout};
use crate::pin::PinDir;
use crate::storm::Storm;
use crate::table::{Table, Tables, Vteps};
use crate::xdp::X_UPLINK;

/// The program behind `ROOT_FROM_POD`.
pub(crate) const FROM_POD: &str = "from_pod";
/// The program behind `ROOT_FROM_OVERLAY`.
const FROM_OVERLAY: &str = "from_overlay";
/// The program behind `ROOT_FROM_GATEWAY`.
const FROM_GATEWAY: &str = "from_gateway";
/// The program behind `ROOT_FROM_UPLINK`.
pub(crate) const FROM_UPLINK: &str = "from_uplink";
/// The program behind `ROOT_XDP_UPLINK`.
pub(crate) const XDP_UPLINK: &str = "xdp_uplink";
/// Only ever run by [`Datapath::try_room`].
pub(crate) const TRY_ROOM: &str = "try_room";
const FLOOD: &str = "flood";
const REPLICATE: &str = "replicate";
const ANSWER: &str = "answer";
const ICMP_ERROR: &str = "icmp_error";
const FROM_WIRE: &str = "from_wire";
const TO_WIRE: &str = "to_wire";

/// The running kernel's types.
pub(crate) const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// The datapath to open.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory of the pins, on a BPF file system.
    pub bpffs: PathBuf,
    /// The eBPF object to load instead of the one in this binary.
    pub object: Option<PathBuf>,
    /// The running kernel's type information (BTF).
    pub types: PathBuf,
    /// Ports the node can have, 1..=65535.
    pub max_ports: u16,
}

impl Options {
    /// The object in this binary, at its own sizes.
    pub fn new(bpffs: PathBuf) -> Self {
        let max_ports = u16::try_from(MAX_PORTS).unwrap_or(u16::MAX);
        Self {
            bpffs,
            object: None,
            types: PathBuf::from(KERNEL_TYPES),
            max_ports,
        }
    }
}

/// The node's programs and maps.
#[derive(Debug)]
pub struct Datapath {
    pins: PinDir,
    generation: PathBuf,
    /// Directories of the state that outlives this layout.
    states: Vec<PathBuf>,
    jump: PathBuf,
    programs: Ebpf,
    tables: Tables,
    counters: Counters,
    hook: Hook,
    adopted: bool,
}

/// Pins of programs and maps that packets no longer reach.
///
/// Remove them a moment after the flip: programs that were running then may still use them.
#[derive(Debug)]
#[must_use]
pub struct Retired {
    paths: Vec<PathBuf>,
}

impl Retired {
    /// Removes the pins.
    ///
    /// # Errors
    /// When one cannot be removed.
    pub fn remove(self) -> Result<(), DatapathError> {
        for path in self.paths {
            let removed = if path.is_dir() {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            };
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(DatapathError::pin("remove", path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Datapath {
    /// Loads the programs, on pinned maps or, for another layout, on new ones.
    ///
    /// Packets are not touched before [`Self::activate`].
    ///
    /// # Errors
    /// When the object is missing, the kernel refuses it, or a pin is not what it should be.
    pub fn open(options: &Options) -> Result<Self, DatapathError> {
        let object = object::bytes(options.object.as_ref())?;
        let skb = btf::skb_layout(&options.types)?.pack();
        let sizes = sizes(options.max_ports);
        let layout = Layout::of(&object, &sizes)?;
        let pins = PinDir::new(options.bpffs.clone());
        pins.create()?;
        let generation = pins.generation(ABI_VERSION, &digest(&layout));
        let adopted = generation.join("PORTS").exists();
        let homes = Homes::of(&pins, &generation, &layout);
        homes.create()?;
        homes.check(&layout)?;
        Sampler::forget(&generation)?;
        let jump = next_jump(&generation)?;
        let mut programs = load(&object, &homes, &jump, &sizes, skb)?;
        let mut opened = Self {
            tables: tables(&mut programs, &layout)?,
            counters: Counters::new(|name| take(&mut programs, name))?,
            hook: Hook::new(pins.clone()),
            pins,
            states: homes.states,
            generation,
            jump,
            programs,
            adopted,
        };
        opened.link_programs()?;
        opened.serve_gateways()?;
        opened.inherit_ports()?;
        opened.inherit_drops()?;
        Ok(opened)
    }

    /// True when the maps were there already, with what an agent before us has written.
    pub fn adopted(&self) -> bool {
        self.adopted
    }

    /// The maps to fill.
    pub fn tables(&mut self) -> &mut Tables {
        &mut self.tables
    }

    /// The counters.
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Attaching to interfaces.
    pub fn hook(&self) -> &Hook {
        &self.hook
    }

    /// Takes the ring of samples; it can be taken once.
    ///
    /// # Errors
    /// When it was taken before.
    pub fn events(&mut self) -> Result<Events, DatapathError> {
        let map = take(&mut self.programs, "EVENTS")?;
        let ring = RingBuf::try_from(map).map_err(DatapathError::map("open", "EVENTS"))?;
        Ok(Events { ring })
    }

    /// Takes the marks of ports under capture; they can be taken once.
    ///
    /// # Errors
    /// When they were taken before.
    pub fn marks(&mut self) -> Result<Marks, DatapathError> {
        Marks::new(take(&mut self.programs, Marks::MAP)?)
    }

    /// Lets the flow log have taps that these programs know of; it can be taken once.
    ///
    /// # Errors
    /// When it was taken before, or the kernel refuses the pin.
    pub fn sampler(&mut self) -> Result<Sampler, DatapathError> {
        let map = take(&mut self.programs, Sampler::MAP)?;
        Sampler::new(&map, &self.generation)
    }

    /// Sends every packet from now on through the programs and maps of this object.
    ///
    /// # Errors
    /// When the kernel refuses; the node then forwards as before.
    pub fn activate(&mut self) -> Result<Retired, DatapathError> {
        let mut root = program_array(&self.pins.root().join("ROOT"), "ROOT")?;
        // What comes from other nodes is let in first: an answer to what a pod sends.
        for (slot, name) in [
            (ROOT_FROM_OVERLAY, FROM_OVERLAY),
            (ROOT_FROM_GATEWAY, FROM_GATEWAY),
            (ROOT_FROM_UPLINK, FROM_UPLINK),
            (ROOT_FROM_POD, FROM_POD),
        ] {
            let program = self
                .program(name)?
                .fd()
                .map_err(DatapathError::program("use", name))?;
            root.set(slot, program, 0)
                .map_err(DatapathError::map("write", "ROOT"))?;
        }
        // Last: what the others take in it must not drop.
        let mut root = program_array(&self.pins.root().join("ROOT_XDP"), "ROOT_XDP")?;
        let program = self
            .xdp()?
            .fd()
            .map_err(DatapathError::program("use", XDP_UPLINK))?;
        root.set(ROOT_XDP_UPLINK, program, 0)
            .map_err(DatapathError::map("write", "ROOT_XDP"))?;
        homes::mark_served(&self.generation)?;
        for state in &self.states {
            homes::mark_served(state)?;
        }
        let mut paths = self.other_layouts()?;
        for path in &paths {
            homes::unmark_served(path)?;
        }
        for kind in lasting::KINDS {
            let mut states = self.pins.states(kind.name)?;
            states.retain(|path| !self.states.contains(path));
            paths.extend(states);
        }
        paths.extend(jumps(&self.generation)?.into_iter().map(|(_, path)| path));
        paths.retain(|path| *path != self.jump);
        Ok(Retired { paths })
    }

    pub(crate) fn program(&self, name: &'static str) -> Result<&SchedClassifier, DatapathError> {
        let program = self
            .programs
            .program(name)
            .ok_or(DatapathError::NoProgram { name })?;
        program
            .try_into()
            .map_err(DatapathError::program("use", name))
    }

    pub(crate) const fn programs(&self) -> &Ebpf {
        &self.programs
    }

    pub(crate) fn xdp(&self) -> Result<&Xdp, DatapathError> {
        let name = XDP_UPLINK;
        let program = self
            .programs
            .program(name)
            .ok_or(DatapathError::NoProgram { name })?;
        program
            .try_into()
            .map_err(DatapathError::program("use", name))
    }

    /// Fills the jump table of this set of programs.
    fn link_programs(&mut self) -> Result<(), DatapathError> {
        let mut jump = program_array(&self.jump, "JUMP")?;
        for (slot, name) in [
            (JUMP_FLOOD, FLOOD),
            (JUMP_ANSWER, ANSWER),
            (JUMP_REPLICATE, REPLICATE),
            (JUMP_ICMP_ERROR, ICMP_ERROR),
            (JUMP_WIRE, FROM_WIRE),
            (JUMP_TO_WIRE, TO_WIRE),
        ] {
            let program = self
                .program(name)?
                .fd()
                .map_err(DatapathError::program("use", name))?;
            jump.set(slot, program, 0)
                .map_err(DatapathError::map("write", "JUMP"))?;
        }
        Ok(())
    }

    /// Puts the program of gateways' links into its slot, if that was always empty.
    ///
    /// It has no use before their dispatcher is attached, which an agent without it has not done.
    fn serve_gateways(&self) -> Result<(), DatapathError> {
        let mut root = program_array(&self.pins.root().join("ROOT"), "ROOT")?;
        let served = root
            .indices()
            .filter_map(Result::ok)
            .any(|slot| slot == ROOT_FROM_GATEWAY);
        if served {
            return Ok(());
        }
        let program = self.program(FROM_GATEWAY)?;
        let program = program
            .fd()
            .map_err(DatapathError::program("use", FROM_GATEWAY))?;
        root.set(ROOT_FROM_GATEWAY, program, 0)
            .map_err(DatapathError::map("write", "ROOT"))
    }

    fn other_layouts(&self) -> Result<Vec<PathBuf>, DatapathError> {
        let mut layouts = self.pins.generations()?;
        layouts.retain(|path| *path != self.generation);
        Ok(layouts)
    }

    /// Lists the layouts that packets meet until the flip; none if they meet this one.
    fn layouts_before(&self) -> Result<Vec<PathBuf>, DatapathError> {
        if homes::is_served(&self.generation) {
            return Ok(Vec::new());
        }
        Ok(homes::served(self.other_layouts()?))
    }

    /// Copies what the ports of the layout before have counted.
    ///
    /// Again at each opening until the flip: an agent that died before that may have copied nothing.
    fn inherit_ports(&mut self) -> Result<(), DatapathError> {
        for older in self.layouts_before()? {
            // Maps of another shape are not worth failing for: counters then start at zero.
            if let Ok(ports) = counters::ports(|name| pinned(&older, name)) {
                // Agents before this map have counted no reasons.
                let reasons = counters::port_reasons(|name| pinned(&older, name)).ok();
                self.counters.inherit_port_reasons(reasons.as_ref())?;
                self.counters.inherit_ports(&ports)?;
            }
        }
        Ok(())
    }

    /// Copies the drops that maps of another shape, or at another place, have counted.
    ///
    /// The layout before has maps of its own if its agent did not know this state. What the state has counted
    /// is then older, and those maps are what was reported last.
    fn inherit_drops(&mut self) -> Result<(), DatapathError> {
        let drops = |older: Vec<PathBuf>| -> Vec<_> {
            let found = older.iter();
            found
                .filter_map(|older| counters::drops(|name| pinned(older, name)).ok())
                .collect()
        };
        let states = self.pins.states(lasting::DROPS.name)?.into_iter();
        let (own, others): (Vec<_>, Vec<_>) = states.partition(|path| self.states.contains(path));
        let mut older = drops(self.layouts_before()?);
        if older.is_empty() && !own.iter().all(|path| homes::is_served(path)) {
            older = drops(homes::served(others));
        }
        if !older.is_empty() {
            self.counters.forget_drops()?;
        }
        for (drops, by_network) in older {
            self.counters.inherit_drops(&drops, &by_network)?;
        }
        Ok(())
    }
}

fn sizes(max_ports: u16) -> [(&'static str, u32); 5] {
    let ports = u32::from(max_ports);
    [
        ("PORTS", ports),
        ("PORT_COUNTERS", ports),
        ("PORT_REASONS", ports * MAX_DROP_REASONS),
        ("STORM", ports),
        (Marks::MAP, ports),
    ]
}

fn load(
    object: &[u8],
    homes: &Homes,
    jump: &Path,
    sizes: &[(&'static str, u32)],
    skb: u64,
) -> Result<Ebpf, DatapathError> {
    let mut loader = EbpfLoader::new();
    loader
        .default_map_pin_directory(&homes.generation)
        .map_pin_path("JUMP", jump)
        .override_global("SKB_LAYOUT", &skb, true);
    let lasting = lasting::KINDS.iter().flat_map(|kind| kind.maps);
    for name in ROOT_MAPS.iter().chain(lasting) {
        loader.map_pin_path(name, homes.of_map(name));
    }
    for (name, size) in sizes {
        loader.map_max_entries(name, *size);
    }
    let mut programs = loader.load(object).map_err(|source| DatapathError::Load {
        source: Box::new(source),
    })?;
    for name in [
        FROM_POD,
        FROM_OVERLAY,
        FROM_GATEWAY,
        FROM_UPLINK,
        FROM_WIRE,
        TO_WIRE,
        FLOOD,
        REPLICATE,
        ANSWER,
        ICMP_ERROR,
        TRY_ROOM,
    ] {
        load_program(&mut programs, name)?;
    }
    for dispatcher in Dispatcher::ALL {
        let path = homes.root.join(dispatcher.name());
        if !path.exists() {
            let program = load_program(&mut programs, dispatcher.name())?;
            program
                .pin(&path)
                .map_err(|source| DatapathError::PinObject {
                    path,
                    source: Box::new(source),
                })?;
        }
    }
    load_xdp(&mut programs, XDP_UPLINK)?;
    let path = homes.root.join(X_UPLINK);
    if !path.exists() {
        let program = load_xdp(&mut programs, X_UPLINK)?;
        program
            .pin(&path)
            .map_err(|source| DatapathError::PinObject {
                path,
                source: Box::new(source),
            })?;
    }
    Ok(programs)
}

fn load_xdp<'a>(programs: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Xdp, DatapathError> {
    let program = programs
        .program_mut(name)
        .ok_or(DatapathError::NoProgram { name })?;
    let program: &mut Xdp = program
        .try_into()
        .map_err(DatapathError::program("use", name))?;
    program
        .load()
        .map_err(DatapathError::program("load", name))?;
    Ok(program)
}

fn load_program<'a>(
    programs: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut SchedClassifier, DatapathError> {
    let program = programs
        .program_mut(name)
        .ok_or(DatapathError::NoProgram { name })?;
    let program: &mut SchedClassifier = program
        .try_into()
        .map_err(DatapathError::program("use", name))?;
    program
        .load()
        .map_err(DatapathError::program("load", name))?;
    Ok(program)
}

fn take(programs: &mut Ebpf, name: &'static str) -> Result<Map, DatapathError> {
    programs.take_map(name).ok_or(DatapathError::NoMap { name })
}

fn tables(programs: &mut Ebpf, layout: &Layout) -> Result<Tables, DatapathError> {
    let size = |name: &str| layout.0.get(name).map_or(0, |map| map.max_entries);
    Ok(Tables {
        ports: Table::new("PORTS", size("PORTS"), take(programs, "PORTS")?)?,
        port_addresses: Table::new(
            "PORT_ADDRESSES",
            size("PORT_ADDRESSES"),
            take(programs, "PORT_ADDRESSES")?,
        )?,
        fdb: Table::new("FDB", size("FDB"), take(programs, "FDB")?)?,
        endpoints: Table::new("ENDPOINTS", size("ENDPOINTS"), take(programs, "ENDPOINTS")?)?,
        flood: Table::new("FLOOD", size("FLOOD"), take(programs, "FLOOD")?)?,
        networks: Table::new("NETWORKS", size("NETWORKS"), take(programs, "NETWORKS")?)?,
        flood_vteps: Table::new(
            "FLOOD_VTEPS",
            size("FLOOD_VTEPS"),
            take(programs, "FLOOD_VTEPS")?,
        )?,
        vteps: Vteps::new(
            take(programs, "VTEPS")?,
            Table::new(
                "VTEP_SOURCES",
                size("VTEP_SOURCES"),
                take(programs, "VTEP_SOURCES")?,
            )?,
        )?,
        wires: Table::new("WIRES", size("WIRES"), take(programs, "WIRES")?)?,
        next_hops: Table::new("NEXT_HOPS", size("NEXT_HOPS"), take(programs, "NEXT_HOPS")?)?,
        uplinks: Table::new("UPLINKS", size("UPLINKS"), take(programs, "UPLINKS")?)?,
        outlets: Table::new("OUTLETS", size("OUTLETS"), take(programs, "OUTLETS")?)?,
        storm: Storm::new(|name| take(programs, name))?,
    })
}

/// Opens a map by its pin in a directory.
fn pinned(directory: &Path, name: &'static str) -> Result<Map, DatapathError> {
    MapData::from_pin(directory.join(name))
        .and_then(Map::from_map_data)
        .map_err(DatapathError::map("open", name))
}

fn program_array(path: &Path, name: &'static str) -> Result<ProgramArray<MapData>, DatapathError> {
    MapData::from_pin(path)
        .and_then(Map::from_map_data)
        .and_then(ProgramArray::try_from)
        .map_err(DatapathError::map("open", name))
}
