//! Elect the one of several controllers that leads: the one that holds the Lease.
//!
//! The clocks of others are not trusted. A Lease that has not changed for as long as its holder said
//! that it is good for, on the clock of the one who looks, may be taken. To take or renew it is to
//! replace the version that was read, so of two that try, one succeeds. The [`Fence`] tells those who
//! write until when no other can lead.

mod candidate;
mod fence;
mod options;

pub use self::candidate::Candidate;
pub use self::fence::Fence;
pub use self::options::{LeaderElection, LeaseTimesError};
