//! Compare the cost of frames in two eBPF objects, by `BPF_PROG_TEST_RUN`.
//!
//! The runs alternate. Needs root, and a machine that does nothing else.
//!
//! ```sh
//! cargo run --release -p datapath --example frame_cost -- before.o after.o
//! ```

use std::error::Error;
use std::path::PathBuf;
use std::{env, process};

use agent_common::cases::{self, Case, World};
use agent_common::guard::{AtomKey, Classes, Guard, ROW_WORDS, Row, RowKey, STARTS, SetKey};
use agent_common::port::PORT_GUARD;
use datapath::{Datapath, Entries, GuardMaps, Options, PinDir, Trial, TrialResult, bpffs};
use netdev::Netns;

/// Frames on the way from pod to pod of one node.
const NAMES: [&str; 4] = [
    "UDP",
    "UDP, L3",
    "UDP over IPv6, L3",
    "who has a neighbour's address",
];
/// Sets of all guarded ports, which let everything pass between members.
const SETS: Guard = Guard {
    generation: 1,
    egress: 1,
    ingress: 1,
    stamp: 1,
    flags: 0,
};
const ATOM: u32 = 1;
const ROW: u32 = 1;
/// The interface that a test run's frames come in by.
const LOOPBACK: u32 = 1;
const ROUNDS: usize = 21;
/// Runs of a round by the kernel, where the frame stays as it is.
const REPEAT: u32 = 100_000;
/// Runs of a round of a frame that is changed.
const RUNS: usize = 20_000;
/// `TC_ACT_REDIRECT` of linux/pkt_cls.h.
const REDIRECT: u32 = 7;

/// Pins of an object, which end with it.
struct Pins(PinDir);

impl Drop for Pins {
    fn drop(&mut self) {
        if let Err(error) = self.0.remove() {
            println!("pins are left: {error}");
        }
    }
}

/// An object that is loaded.
struct Loaded {
    datapath: Datapath,
    guards: GuardMaps,
    _pins: Pins,
}

impl Loaded {
    fn open(object: PathBuf, number: usize) -> Result<Self, Box<dyn Error>> {
        let name = format!("/sys/fs/bpf/podnet-frame-cost-{}-{number}", process::id());
        let path = bpffs::find(&PathBuf::from(name))?;
        let pins = Pins(PinDir::new(path.clone()));
        let options = Options {
            object: Some(object),
            ..Options::new(path)
        };
        let mut datapath = Datapath::open(&options)?;
        let guards = datapath.guards()?;
        datapath.serve_guards()?;
        Ok(Self {
            datapath,
            guards,
            _pins: pins,
        })
    }

    fn fill(&mut self, case: &Case, guarded: bool) -> Result<(), Box<dyn Error>> {
        let mut world = World::with_pod_at(case.sender, LOOPBACK);
        if guarded {
            self.guard(&mut world)?;
        }
        let wanted = Entries {
            ports: world.ports,
            port_addresses: world.port_addresses,
            fdb: world.fdb,
            endpoints: world.endpoints,
            ..Entries::default()
        };
        let tables = self.datapath.tables();
        let old = tables.dump()?;
        Ok(tables.apply(&old, &wanted)?)
    }

    fn guard(&mut self, world: &mut World) -> Result<(), Box<dyn Error>> {
        let (guards, generation) = (&mut self.guards, SETS.generation);
        let classes = Classes {
            counts: [1, 1, 1, 0],
            starts: [0; STARTS],
        };
        guards.classes.insert(generation, classes)?;
        let words = [u32::MAX; ROW_WORDS];
        let row = RowKey {
            generation,
            row: ROW,
        };
        guards.rows.insert(row, Row { words })?;
        let set = SetKey {
            generation,
            set: SETS.egress,
            atom: ATOM,
        };
        guards.sets.insert(set, ROW)?;
        for key in world.endpoints.keys() {
            let atom = AtomKey {
                generation,
                ip: key.ip,
            };
            guards.atoms.insert(atom, ATOM)?;
        }
        for port in world.ports.values_mut() {
            port.flags |= PORT_GUARD;
            guards.guards.insert(port.port_id.into(), SETS)?;
        }
        Ok(())
    }

    /// Nanoseconds for one frame.
    ///
    /// The kernel repeats runs on one frame, and a frame that was routed is not forwarded again: such a frame is
    /// run by itself, with two readings of the clock, and this is the mean of the middle half of its runs.
    fn run(&self, frame: &[u8]) -> Result<f64, Box<dyn Error>> {
        let once = Trial { frame, repeat: 1 };
        if self.forward(&once)?.frame == frame {
            let many = Trial {
                repeat: REPEAT,
                ..once
            };
            return Ok(nanoseconds(&self.forward(&many)?));
        }
        let mut times = Vec::with_capacity(RUNS);
        for _ in 0..RUNS {
            times.push(nanoseconds(&self.forward(&once)?));
        }
        times.sort_by(f64::total_cmp);
        let middle = &times[RUNS / 4..RUNS / 4 * 3];
        Ok(middle.iter().sum::<f64>() / middle.len() as f64)
    }

    fn forward(&self, trial: &Trial<'_>) -> Result<TrialResult, Box<dyn Error>> {
        let result = self.datapath.try_frame(trial)?;
        if result.verdict == REDIRECT {
            Ok(result)
        } else {
            Err(format!("the frame is not forwarded: {result:?}").into())
        }
    }
}

fn nanoseconds(result: &TrialResult) -> f64 {
    result.duration.as_secs_f64() * 1e9
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn compare(sets: &mut [Loaded]) -> Result<(), Box<dyn Error>> {
    println!(
        "{:<40}{:>10}{:>10}{:>8}",
        "frame", "before", "after", "ratio"
    );
    let all = cases::all();
    let cases = all.iter().filter(|case| NAMES.contains(&case.name));
    for (case, guarded) in cases.flat_map(|case| [(case, false), (case, true)]) {
        for set in sets.iter_mut() {
            set.fill(case, guarded)?;
        }
        let (mut before, mut after, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let (first, second) = (round % 2, 1 - round % 2);
            let mut times = [0.0; 2];
            for turn in [first, second] {
                times[turn] = sets[turn].run(&case.frame)?;
            }
            before.push(times[0]);
            after.push(times[1]);
            // Speed: above 1 the second object is faster.
            ratios.push(times[0] / times[1]);
        }
        let judged = if guarded { ", judged" } else { "" };
        println!(
            "{:<40}{:>7.1} ns{:>7.1} ns{:>8.3}",
            format!("{}{judged}", case.name),
            median(&mut before),
            median(&mut after),
            median(&mut ratios)
        );
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let objects: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    if objects.len() != 2 {
        return Err("two eBPF objects are compared: frame_cost BEFORE AFTER".into());
    }
    let mut sets = Vec::new();
    for (number, object) in objects.into_iter().enumerate() {
        sets.push(Loaded::open(object, number)?);
    }
    let netns = Netns::create()?;
    netns.run_in(|| compare(&mut sets).map_err(|error| error.to_string()))??;
    Ok(())
}
