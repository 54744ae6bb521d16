//! Memory that a peer can write at any time.
//!
//! All `unsafe` code of the crate is in the two files below. Their rules:
//!
//! - No reference to bytes of shared memory exists, ever. Payload is copied by raw pointers.
//! - What decides anything is read once, by an atomic load, into a value of ours.
//! - A pointer is made only from a region's own base and length, after a check in 64 bits, and lives
//!   no longer than the region.

mod region;
mod ring;

pub use self::region::{Region, Regions, Segment};
pub(crate) use self::ring::{Desc, NEXT, RingMemory};
