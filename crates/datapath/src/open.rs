//! Opening: load programs next to those that run, fill the maps, then flip.
//!
//! The dispatcher on the interfaces never changes. What it calls is one slot of `ROOT`, written
//! last: one system call moves the node from the old programs and maps to the new ones, and no
//! packet sees half of it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use agent_common::ABI_VERSION;
use agent_common::guard::Guard;
use agent_common::map::{MAX_DROP_REASONS, MAX_PORTS};
use agent_common::port::Port;
use agent_common::seal::{SealedGuard, SealedPort, Stored};
use aya::EbpfLoader;
use aya::maps::{Map, MapData, RingBuf};

use crate::capture::{Marks, Sampler};
use crate::counters::{self, Counters};
use crate::error::DatapathError;
use crate::event::Events;
use crate::guard::GuardMaps;
use crate::homes::{self, Homes, ROOT_MAPS, digest, jumps, next_jump};
use crate::hook::Hook;
use crate::lasting;
use crate::object::{self, Layout};
use crate::pin::PinDir;
use crate::programs::{Maps, Programs, Side};
use crate::services::ServiceMaps;
use crate::storm::Storm;
use crate::switched::{self, Sets};
use crate::table::{Bytes, Table, Tables, Vteps};

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
            types: PathBuf::from(kernel_types::KERNEL_TYPES),
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
    programs: Programs,
    /// Maps that were not taken yet.
    maps: Maps,
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
    /// Loads the programs of pods, on pinned maps or, for another layout, on new ones.
    ///
    /// Programs for packets of other nodes and of gateways are loaded with them if an agent before has had a use
    /// for them, else when they are attached first. Packets are not touched before [`Self::activate`].
    ///
    /// # Errors
    /// When the object is missing, the kernel refuses it, or a pin is not what it should be.
    pub fn open(options: &Options) -> Result<Self, DatapathError> {
        let object = object::bytes(options.object.as_ref())?;
        let skb = kernel_types::skb_layout(&options.types)?.pack();
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
        let (programs, mut maps) = load(&object, &homes, &jump, &sizes, skb)?;
        programs.load(Side::Pod)?;
        programs.load_pinned()?;
        programs.pin(Side::Pod)?;
        let mut opened = Self {
            tables: tables(&mut maps, &layout)?,
            counters: Counters::new(|name| maps.take(name))?,
            hook: Hook::new(pins.clone(), programs.clone()),
            pins,
            states: homes.states,
            generation,
            jump,
            programs,
            maps,
            adopted,
        };
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
        let map = self.maps.take("EVENTS")?;
        let ring = RingBuf::try_from(map).map_err(DatapathError::map("open", "EVENTS"))?;
        Ok(Events { ring })
    }

    /// Takes the maps of guarded ports; they can be taken once.
    ///
    /// Programs that judge are loaded if any port is guarded.
    ///
    /// # Errors
    /// When they were taken before, or the kernel refuses a program.
    pub fn guards(&mut self) -> Result<GuardMaps, DatapathError> {
        let maps = GuardMaps::new(|name| self.maps.take(name))?;
        if !maps.guards.is_empty()? {
            self.programs.load_guards()?;
        }
        Ok(maps)
    }

    /// Reads the sets of ports in the layout in use until the flip, by interface.
    ///
    /// None if they meet this one: then they are in its maps. Ports may have other numbers there.
    ///
    /// # Errors
    /// When the directory of pins cannot be read.
    pub fn guards_before(&self) -> Result<BTreeMap<u32, Guard>, DatapathError> {
        let mut found = BTreeMap::new();
        for older in self.layouts_before()? {
            let table = |name| pinned(&older, name);
            let read = || -> Result<BTreeMap<u32, Guard>, DatapathError> {
                // Layouts up to 10 have these without seals, up to 9 those of ports.
                let plain = || Table::<u32, Guard>::new("GUARDS", 0, table("GUARDS")?)?.dump();
                let sealed = Table::<u32, Guard, SealedGuard>::new("GUARDS", 0, table("GUARDS")?);
                let guards = sealed.map_or_else(|_| plain(), |guards| guards.dump())?;
                let plain = || Table::<u32, Port>::new("PORTS", 0, table("PORTS")?)?.dump();
                let sealed = Table::<u32, Port, SealedPort>::new("PORTS", 0, table("PORTS")?);
                let ports = sealed.map_or_else(|_| plain(), |ports| ports.dump())?;
                let guarded = ports.into_iter().filter_map(|(ifindex, port)| {
                    let guard = guards.get(&u32::from(port.port_id))?;
                    Some((ifindex, *guard))
                });
                Ok(guarded.collect())
            };
            // Agents before policies have no such map.
            found.extend(read().unwrap_or_default());
        }
        Ok(found)
    }

    /// Loads the programs that judge by policies, if they are not.
    ///
    /// # Errors
    /// The kernel refuses one.
    pub fn serve_guards(&self) -> Result<(), DatapathError> {
        self.programs.load_guards()
    }

    /// Takes the maps of Services; they can be taken once.
    ///
    /// Loads the programs that translate, if there is a Service.
    ///
    /// # Errors
    /// When they were taken before, or the kernel refuses.
    pub fn services(&mut self) -> Result<ServiceMaps, DatapathError> {
        let maps = ServiceMaps::new(|name| self.maps.take(name))?;
        if !maps.services.is_empty()? {
            self.programs.load_services()?;
        }
        Ok(maps)
    }

    /// Loads the programs that translate, if they are not.
    ///
    /// Before the first Service of a network is written.
    ///
    /// # Errors
    /// When the kernel refuses one.
    pub fn serve_services(&self) -> Result<(), DatapathError> {
        self.programs.load_services()
    }

    /// Takes the marks of ports under capture; they can be taken once.
    ///
    /// # Errors
    /// When they were taken before.
    pub fn marks(&mut self) -> Result<Marks, DatapathError> {
        Marks::new(self.maps.take(Marks::MAP)?)
    }

    /// Lets the flow log have taps that these programs know of; it can be taken once.
    ///
    /// # Errors
    /// When it was taken before, or the kernel refuses the pin.
    pub fn sampler(&mut self) -> Result<Sampler, DatapathError> {
        let map = self.maps.take(Sampler::MAP)?;
        Sampler::new(&map, &self.generation)
    }

    /// Sends every packet from now on through the programs and maps of this object.
    ///
    /// # Errors
    /// When the kernel refuses; the node then forwards as before.
    pub fn activate(&mut self) -> Result<Retired, DatapathError> {
        self.programs.activate()?;
        homes::mark_served(&self.generation)?;
        for state in &self.states {
            homes::mark_served(state)?;
        }
        let mut paths = self.other_layouts()?;
        for path in &paths {
            // Agents before this map have none.
            if let Ok(stamps) = pinned(path, Sets::SHOWN) {
                switched::retire(stamps)?;
            }
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

    pub(crate) const fn programs(&self) -> &Programs {
        &self.programs
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

fn sizes(max_ports: u16) -> [(&'static str, u32); 7] {
    let ports = u32::from(max_ports);
    [
        ("PORTS", ports),
        ("PORT_COUNTERS", ports),
        ("PORT_REASONS", ports * MAX_DROP_REASONS),
        ("STORM", ports),
        (Marks::MAP, ports),
        (Sets::STAMPS, ports),
        (Sets::SHOWN, ports),
    ]
}

fn load(
    object: &[u8],
    homes: &Homes,
    jump: &Path,
    sizes: &[(&'static str, u32)],
    skb: u64,
) -> Result<(Programs, Maps), DatapathError> {
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
    let object = loader.load(object).map_err(|source| DatapathError::Load {
        source: Box::new(source),
    })?;
    let maps = Maps::of(&object)?;
    Ok((Programs::new(object, &homes.root, jump), maps))
}

fn tables(maps: &mut Maps, layout: &Layout) -> Result<Tables, DatapathError> {
    let sources = table("VTEP_SOURCES", maps, layout)?;
    Ok(Tables {
        ports: table("PORTS", maps, layout)?,
        port_addresses: table("PORT_ADDRESSES", maps, layout)?,
        fdb: table("FDB", maps, layout)?,
        endpoints: table("ENDPOINTS", maps, layout)?,
        flood: table("FLOOD", maps, layout)?,
        networks: table("NETWORKS", maps, layout)?,
        flood_vteps: table("FLOOD_VTEPS", maps, layout)?,
        vteps: Vteps::new(maps.take("VTEPS")?, sources)?,
        wires: table("WIRES", maps, layout)?,
        next_hops: table("NEXT_HOPS", maps, layout)?,
        routes: table("ROUTES", maps, layout)?,
        uplinks: table("UPLINKS", maps, layout)?,
        outlets: table("OUTLETS", maps, layout)?,
        storm: Storm::new(|name| maps.take(name))?,
    })
}

fn table<K: Bytes + Ord, V: Bytes, S: Bytes + Stored<K, V>>(
    name: &'static str,
    maps: &mut Maps,
    layout: &Layout,
) -> Result<Table<K, V, S>, DatapathError> {
    let most = layout.0.get(name).map_or(0, |map| map.max_entries);
    Table::new(name, most, maps.take(name)?)
}

/// Opens a map by its pin in a directory.
fn pinned(directory: &Path, name: &'static str) -> Result<Map, DatapathError> {
    MapData::from_pin(directory.join(name))
        .and_then(Map::from_map_data)
        .map_err(DatapathError::map("open", name))
}
