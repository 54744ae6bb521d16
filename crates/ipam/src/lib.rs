//! Choose addresses: arithmetic over prefixes that never gives a held address.
//!
//! The job: from a network's subnets and a question "is this one held?", choose the addresses of
//! an attachment, or say exactly why there are none.
//!
//! Refuses to know: where leases are kept, who holds one, how long. It has no state but the place
//! each subnet's search goes on from, and losing that is harmless.
//!
//! In a cluster a node gives only what is in the blocks it holds: which there are, which to try next,
//! and when to take one or give one back is answered here; how a node takes one is not.
//!
//! ```
//! use std::{collections::HashSet, net::IpAddr};
//!
//! use ipam::{Allocator, Pool};
//!
//! let v4 = Pool::new(
//!     "10.10.0.0/24".parse().unwrap(),
//!     &["10.10.0.1".parse().unwrap()],
//!     &["10.10.0.200/29".parse().unwrap()],
//! )?;
//! let v6 = Pool::new("fd10:10::/64".parse().unwrap(), &[], &[])?;
//! assert_eq!(v4.capacity(), 254 - 1 - 8);
//!
//! let mut network = Allocator::new(vec![v4, v6])?;
//! let mut held: HashSet<IpAddr> = HashSet::new();
//! let leases = network.allocate(&[], &|address| held.contains(&address))?;
//! assert_eq!(leases[0].to_string(), "10.10.0.2/24");
//! assert_eq!(leases[1].to_string(), "fd10:10::1/64");
//! held.extend(leases.iter().map(|lease| lease.address));
//! # Ok::<(), ipam::IpamError>(())
//! ```

mod allocator;
mod block;
mod error;
mod pool;

pub use allocator::{Allocator, Lease, Request};
pub use block::{BlockLength, Held, LOW_WATER, Occupied, Plan, SLACK, candidates, overlap, plan};
pub use error::{Family, IpamError, Reserved};
pub use pool::Pool;
