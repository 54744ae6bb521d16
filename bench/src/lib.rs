//! Measure podnet next to a bare veth pair, the reference CNI plugins and others.
//!
//! All run on this machine, in alternating rounds, so that any other load of the machine hits all of
//! them.
//!
//! It knows command lines, namespaces and clocks. It does not judge: it prints figures, and how much
//! they spread, whatever the outcome.
//!
//! ```no_run
//! use bench::report::{Better, Case};
//! let mut case = Case::new("cni", "CNI calls", "From exec to exit.");
//! case.subjects = vec!["podnet".to_owned()];
//! for (round, (ours, theirs)) in [(4.2, 13.0), (4.4, 12.1)].into_iter().enumerate() {
//!     let add = case.measure("", "ADD", "ms", Better::Less);
//!     add.put("podnet", round, ours);
//!     add.put("bridge", round, theirs);
//! }
//! case.seal();
//! print!("{}", bench::report::text::case(&case));
//! ```

pub mod against;
pub mod apps;
pub mod case;
pub mod cases;
pub mod cpu;
pub mod guarded;
pub mod interrupt;
pub mod machine;
pub mod peers;
pub mod plugin;
pub mod policies;
pub mod probe;
pub mod progress;
pub mod quiet;
pub mod run;
pub mod sandbox;
pub mod services;
pub mod spin;
pub mod traffic;
mod turns;
pub mod vpcs;

pub use bench_report as report;
pub use bench_report::series;
pub use plugin::Plugin;
pub use sandbox::{Sandbox, Side};
