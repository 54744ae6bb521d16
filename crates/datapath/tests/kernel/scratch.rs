//! A pin directory and a network namespace for one test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use agent_common::cases::{self, Case, World};
use agent_common::drop::DropReason;
use agent_common::guard::{Classes, Guard, ROW_WORDS, Row, RowKey, STARTS, SetKey, UNKNOWN_ATOM};
use agent_common::policy::Decision;
use aya::maps::{Array, HashMap, Map, MapData};
use aya::programs::ProgramError;
use datapath::{
    Datapath, DatapathError, Dispatcher, Entries, GuardMaps, Options, PinDir, Trial, TrialResult,
    bpffs,
};
use netdev::Netns;
use rustix::fs::{FlockOperation, flock};

/// `TC_ACT_OK` of `linux/pkt_cls.h`: on to the stack.
pub(crate) const OK: u32 = 0;
/// `TC_ACT_SHOT` of `linux/pkt_cls.h`.
pub(crate) const SHOT: u32 = 2;
/// `TC_ACT_REDIRECT` of `linux/pkt_cls.h`.
pub(crate) const REDIRECT: u32 = 7;
/// Interface of frames in `BPF_PROG_TEST_RUN`: loopback, the namespace's first.
pub(crate) const LOOPBACK: u32 = 1;

/// Runs of a frame in a row that outlast some writes of another thread.
pub(crate) const REPEAT: u32 = 100_000;

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A directory of pins; dropping it removes them and checks that nothing is left.
pub(crate) struct Scratch {
    pub(crate) path: PathBuf,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let removed = PinDir::new(self.path.clone()).remove();
        if !thread::panicking() {
            assert!(removed.is_ok(), "{removed:?}");
            assert!(!self.path.exists(), "{} is left", self.path.display());
        }
    }
}

impl Scratch {
    pub(crate) fn options(&self) -> Options {
        Options::new(self.path.clone())
    }

    pub(crate) fn with_ports(&self, max_ports: u16) -> Options {
        Options {
            max_ports,
            ..self.options()
        }
    }

    pub(crate) fn pins(&self) -> PinDir {
        PinDir::new(self.path.clone())
    }

    /// The directories of map layouts.
    pub(crate) fn generations(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.path).expect("the pin directory");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths.filter(|path| name(path).starts_with('v')).collect()
    }

    /// Opens a map of the only layout, whose keys have `K` bytes and values `N` words.
    pub(crate) fn map<const K: usize, const N: usize>(
        &self,
        name: &str,
    ) -> HashMap<MapData, [u8; K], [u64; N]> {
        let map = MapData::from_pin(self.generation().join(name)).expect("a pinned map");
        HashMap::try_from(Map::HashMap(map)).expect("a map of this shape")
    }

    /// Opens an array in a directory of pins, whose values have `N` words.
    pub(crate) fn array<const N: usize>(directory: &Path, name: &str) -> Array<MapData, [u64; N]> {
        let map = MapData::from_pin(directory.join(name)).expect("a pinned map");
        Array::try_from(Map::Array(map)).expect("a map of this shape")
    }

    /// The only directory of drop counters.
    pub(crate) fn drops(&self) -> PathBuf {
        self.state("drops")
    }

    /// The only directory of a kind of state that outlives layouts.
    pub(crate) fn state(&self, kind: &str) -> PathBuf {
        let prefix = format!("state-{kind}-");
        let entries = std::fs::read_dir(&self.path).expect("the pin directory");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let found: Vec<_> = paths
            .filter(|path| name(path).starts_with(&prefix))
            .collect();
        match &found[..] {
            [only] => only.clone(),
            others => unreachable!("one directory of {kind} was asked for, not {others:?}"),
        }
    }

    /// Makes the pins those of an agent whose drops are among the maps of a layout.
    pub(crate) fn make_older(&self) -> PathBuf {
        let (state, generation) = (self.drops(), self.generation());
        for map in ["DROPS", "NETWORK_DROPS"] {
            std::fs::rename(state.join(map), generation.join(map)).expect("a pin");
        }
        std::fs::remove_dir_all(&state).expect("a directory without maps");
        // Nor did it note which layout it served.
        let _ = std::fs::remove_dir(generation.join("served"));
        generation
    }

    /// The only one.
    pub(crate) fn generation(&self) -> PathBuf {
        match &self.generations()[..] {
            [only] => only.clone(),
            others => unreachable!("one map layout was asked for, not {others:?}"),
        }
    }

    /// Names of the jump tables in a directory.
    pub(crate) fn jumps(generation: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(generation).expect("the map directory");
        let mut names: Vec<_> = entries
            .map(|entry| name(&entry.expect("an entry").path()))
            .collect();
        names.retain(|name| name.starts_with("jump-"));
        names.sort();
        names
    }
}

/// The case of this name.
pub(crate) fn case(name: &str) -> Case {
    let found = cases::all().into_iter().find(|case| case.name == name);
    found.expect("a case of this name")
}

pub(crate) fn name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Returns the path with a BPF file system under it, which is mounted if missing.
///
/// A mount stays.
fn on_bpffs(wanted: &Path) -> PathBuf {
    // Others test here too, and a second mount would hide their pins.
    let lock = File::open("/sys/fs").expect("sysfs");
    flock(&lock, FlockOperation::LockExclusive).expect("a lock");
    bpffs::find(wanted).expect("a BPF file system")
}

/// Runs `test` in a namespace with pins of its own, unless the machine cannot.
pub(crate) fn scene(test: impl FnOnce(&Scratch) + Send) {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: needs root (CAP_BPF, CAP_NET_ADMIN, CAP_SYS_ADMIN)");
        return;
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let wanted = PathBuf::from(format!(
        "/sys/fs/bpf/podnet-datapath-test-{}-{number}",
        process::id()
    ));
    let scratch = Scratch {
        path: on_bpffs(&wanted),
    };
    // The object is looked for before there is any pin.
    let no_pins = Options::new(PathBuf::from("/dev/null/pins"));
    if let Err(DatapathError::NoObject) = Datapath::open(&no_pins) {
        println!("SKIP: needs the eBPF object (PODNET_EBPF_OBJECT at build time)");
        return;
    }
    let netns = Netns::create().expect("a network namespace");
    netns.run_in(|| test(&scratch)).expect("entered");
}

/// The tables of a world.
pub(crate) fn entries(world: &World) -> Entries {
    Entries {
        ports: world.ports.clone(),
        port_addresses: world.port_addresses.clone(),
        fdb: world.fdb.clone(),
        endpoints: world.endpoints.clone(),
        flood: world.flood.clone(),
        networks: world.networks.clone(),
        wires: world.wires.clone(),
        next_hops: world.next_hops.clone(),
        routes: world.routes.clone(),
        ..Entries::default()
    }
}

/// Fills the tables with a world, whatever they held.
///
/// Programs of uplinks are there if the world has a wire: an agent attaches them before it has one.
pub(crate) fn fill(datapath: &mut Datapath, world: &World) {
    if !world.wires.is_empty() {
        let hook = datapath.hook();
        hook.program(Dispatcher::Uplink)
            .expect("programs that load");
    }
    let old = datapath.tables().dump().expect("tables that can be read");
    datapath
        .tables()
        .apply(&old, &entries(world))
        .expect("tables with room");
}

/// Has a set of egress let the pods of a world have what this row says.
pub(crate) fn allow(maps: &mut GuardMaps, sets: &Guard, words: [u32; ROW_WORDS]) {
    let generation = sets.generation;
    let classes = Classes {
        counts: [1, 1, 1, 0],
        starts: [0; STARTS],
    };
    maps.classes.insert(generation, classes).expect("an entry");
    let row = RowKey { generation, row: 1 };
    maps.rows.insert(row, Row { words }).expect("an entry");
    let set = SetKey {
        generation,
        set: sets.egress,
        atom: UNKNOWN_ATOM,
    };
    maps.sets.insert(set, 1).expect("an entry");
}

/// Returns the program's verdict for this decision.
pub(crate) const fn verdict_of(decision: Decision) -> u32 {
    match decision {
        // Its sender gets an ICMP error.
        Decision::Drop(DropReason::Ttl) | Decision::Service => REDIRECT,
        Decision::Drop(_) | Decision::Ignore | Decision::Flood => SHOT,
        Decision::Node => OK,
        Decision::Switch(_)
        | Decision::Moved(_)
        | Decision::Route(..)
        | Decision::Leave(_)
        | Decision::Wire
        | Decision::WireRoute(..)
        | Decision::ArpReply(_)
        | Decision::NdReply(_)
        | Decision::EchoReply(..) => REDIRECT,
    }
}

/// Runs a frame once.
pub(crate) fn run(datapath: &Datapath, frame: &[u8]) -> TrialResult {
    try_run(datapath, frame).expect("a frame that the kernel does not refuse to test")
}

/// Runs each frame some times in a row, one frame after the other.
///
/// Another thread works meanwhile, until it is told that it is done.
pub(crate) fn run_meanwhile<'f>(
    datapath: &Datapath,
    repeat: u32,
    frames: impl Iterator<Item = &'f Vec<u8>>,
    work: impl FnOnce(&AtomicBool) + Send,
) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| work(&done));
        for frame in frames {
            let trial = Trial { frame, repeat };
            datapath.try_frame(&trial).expect("a frame that is run");
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Runs a frame once, or `None` when the kernel refuses to test it.
pub(crate) fn try_run(datapath: &Datapath, frame: &[u8]) -> Option<TrialResult> {
    match datapath.try_frame(&Trial { frame, repeat: 1 }) {
        Ok(result) => Some(result),
        Err(DatapathError::Program { source, .. }) if is_refusal(&source) => None,
        Err(error) => unreachable!("{frame:02x?} cannot be run: {error:?}"),
    }
}

fn is_refusal(error: &ProgramError) -> bool {
    let refusal = Some(rustix::io::Errno::INVAL.raw_os_error());
    matches!(error, ProgramError::SyscallError(error) if error.io_error.raw_os_error() == refusal)
}
