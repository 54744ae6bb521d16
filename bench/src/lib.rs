//! Measurements: podnet beside a bare veth pair and the reference CNI plugins, on this machine, in
//! alternating rounds, so that whatever else the machine does hits all of them.
//!
//! It knows command lines, namespaces and clocks. It refuses to judge: it prints figures, and how
//! much they spread, whoever wins.
//!
//! ```no_run
//! let mut table = bench::Table::new();
//! table.add("podnet", "ADD ms", 4.2);
//! table.add("bridge", "ADD ms", 13.0);
//! println!("{table}");
//! ```

pub mod interrupt;
pub mod machine;
pub mod plugin;
pub mod probe;
pub mod sandbox;
pub mod series;
pub mod traffic;

pub use plugin::Plugin;
pub use sandbox::{Sandbox, Side};
pub use series::{Series, Table};
