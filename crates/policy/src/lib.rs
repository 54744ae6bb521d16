//! Network policies: as they are written, what they mean, and what they compile to.
//!
//! It reads NetworkPolicy, MultiNetworkPolicy and ClusterNetworkPolicy objects ([`read`]), answers what they
//! allow between two ends of one network ([`judge`]) and why ([`reason`]), and compiles them to tables in which a
//! program finds the same answer by two look-ups, whatever the number of policies ([`compile`], [`Compiler`]). The
//! two ways are compared by generated worlds.
//!
//! It refuses to know where objects come from, who selects the networks that a policy is for, and who enforces
//! anything. It has no IO and no clock.

mod compile;
mod judge;
mod labels;
mod model;
mod read;
mod tell;
mod world;

pub use compile::{
    Atom, Classes, CompileError, Compiler, Guard, MAX_ATOMS, MAX_CLASSES, Network, Row, RowId, Set,
    SetId, UNKNOWN, compile,
};
pub use judge::{Decision, Peer as PeerEnd, Traffic, judge};
pub use labels::{Labels, Requirement, Selector};
pub use model::{
    Action, Block, Direction, Kind, Namespaces, Peer, Pods, Policy, PolicyId, Ports, Protocol,
    Rule, Tier,
};
pub use read::{Problem, Read, cluster, network};
pub use tell::{Warning, reason, selected, warnings};
pub use world::{Member, NamedPort, Node, Workload, Workloads, World};
