//! The flow log: counts sampled packets by flow, and writes lines.
//!
//! [`FlowKey`] is what a packet is counted under, [`FlowTable`] counts within limits that give each port its
//! share, [`line`] writes, [`LogFile`] keeps within a size, and [`run`] is the thread that does it.

mod key;
pub mod line;
mod log_file;
mod run;
mod table;
mod turn;

pub use self::key::{Address, FlowKey};
pub use self::line::About;
pub use self::log_file::{LogFile, Place};
pub use self::run::{Change, Counted, FlowPort, Settings, run};
pub use self::table::{Counts, FlowTable, Interval, Outcome, Row};
