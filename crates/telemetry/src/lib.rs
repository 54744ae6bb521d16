//! Report what a process does: log lines, errors, metrics and failpoints.
//!
//! Nothing here knows a type of podnet's own, so every other crate may use it.

pub mod exposition;
pub mod failpoint;
#[cfg(feature = "fake")]
pub mod fate;
mod log;

pub use self::log::{FilterError, LOG_BYTES, Sparing, init};

/// Remedy of errors that should never be.
pub const FAULT: &str = "this is a fault of podnet: restart the agent of the node if the next attempt fails, too, \
     and report this line with the lines of the agent's log before it";

/// Writes an error and its causes as one line.
///
/// A cause whose text is in the line already is left out: many errors repeat their source.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
