//! Loads podnet's eBPF programs and owns their maps, links and pins.
//!
//! It knows how programs get behind the dispatcher, how map layouts change without losing a
//! packet, and how to read counters. It refuses to know networks, attachments and addresses: it is
//! told which entries to have. It opens no socket and changes no interface but for the program it
//! attaches.
//!
//! ```no_run
//! use datapath::{Datapath, Options};
//! let mut datapath = Datapath::open(&Options::new("/sys/fs/bpf/podnet".into()))?;
//! // … fill `datapath.tables()` …
//! let retired = datapath.activate()?;
//! retired.remove()?;
//! # Ok::<(), datapath::DatapathError>(())
//! ```

pub mod bpffs;
pub mod capture;
pub mod connections;
mod cost;
mod counters;
mod error;
mod event;
mod guard;
mod homes;
mod hook;
mod lasting;
mod object;
mod open;
mod pin;
mod pod;
mod programs;
mod services;
mod storm;
mod switched;
mod table;
mod trial;
mod xdp;
mod xsk;

pub use cost::ProgramCost;
pub use counters::{Counters, DropCount};
pub use error::DatapathError;
pub use event::{Events, Sample};
pub use guard::{BlockKey, Blocks, GuardMaps};
pub use hook::{Dispatcher, Hook, HookKind};
pub use object::{Layout, MapLayout};
pub use open::{Datapath, Options, Retired};
pub use pin::PinDir;
pub use services::{ServiceMaps, Translations};
pub use storm::Storm;
pub use switched::{Sets, SwitchFiles};
pub use table::{Entries, Table, Tables, Vteps};
pub use trial::{Room, Trial, TrialResult};
pub use xdp::XdpMode;
pub use xsk::{SHARED_MAP, Sockets};
