//! Captures of one port's packets, and the log of all ports' flows.
//!
//! A capture has each packet with its verdict, as pcapng.
//!
//! Frames come from taps ([`datapath::capture`]) and drops from the programs that judged them; [`join`]
//! puts the two together, [`file`] writes them, [`Captures`] knows which ports are under capture, and
//! [`session`] is the thread that does it for one of them. [`flows`] counts what the taps of the flow log
//! sample. The crate knows no attachment and no pod: it is
//! told sockets, a port and names.
//!
//! ```
//! use capture::{Direction, Frame, Join};
//! let mut join = Join::new(7);
//! join.see(Frame {
//!     time_ns: 1,
//!     cpu: 0,
//!     direction: Direction::ToPod,
//!     length: 60,
//!     segments: 1,
//!     bytes: vec![0; 60],
//! });
//! assert_eq!(join.release(u64::MAX, true).len(), 1);
//! ```

pub mod file;
pub mod flows;
pub mod join;
pub mod registry;
pub mod session;

pub use file::{File, Named};
pub use join::{Direction, Frame, Join, Judged, Verdict};
pub use registry::{Busy, Captures, Watch};
pub use session::{Limits, Sink, Source, run};
