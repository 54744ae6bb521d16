//! Limit replicated frames by token buckets.
//!
//! The maps are `STORM`, `STORM_NETWORKS`, `STORM_NODE` and `STORM_LIMITS`.
//!
//! One such frame costs the node as many copies as the network has receivers, and a GSO packet that times
//! its segments. So what counts is copies, for a port, its network and the node. Ports of a network that
//! has spent what it may keep an equal share each, and so do networks of a node.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::drop::DropReason;

/// Copies of its frames that a port may have made per second in the long run.
pub const PORT_COPIES: u32 = 50_000;
/// Copies that all ports of a network on this node may have made per second.
///
/// Frames of other nodes on the network count too.
pub const NETWORK_COPIES: u32 = 200_000;
/// The same of all networks of this node.
pub const NODE_COPIES: u32 = 400_000;
/// Least cost of a frame to its port, in copies for each segment.
///
/// On a network of few ports it is the cost of the decision about the frame.
pub const FLOOD_COPIES_MIN: u32 = 50;
/// Replicated frames a port may send per second to few receivers, in the long run.
pub const STORM_RATE: u64 = (PORT_COPIES / FLOOD_COPIES_MIN) as u64;
/// Replicated frames it may send at once there.
pub const STORM_BURST: u64 = STORM_RATE * (BURST_NS / SECOND_NS);

const SECOND: u32 = 1_000_000_000;
const SECOND_NS: u64 = SECOND as u64;
/// How long a bucket fills, nanoseconds.
const BURST_NS: u64 = 2 * SECOND_NS;
/// Longest time for which a share is paid ahead, nanoseconds.
///
/// One large frame silences no port for longer.
const SHARE_NS: u64 = 60 * SECOND_NS;

/// Prices of copies.
///
/// *Written by* the agent. *Read by* `flood` and `replicate`. *Key*: 0.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct StormLimits {
    /// Nanoseconds for which a port has paid with a copy; 0 for the default.
    pub port_ns: u32,
    /// The same for a network.
    pub network_ns: u32,
    /// The same for the node.
    pub node_ns: u32,
    /// Networks that have ports here; 0 as 1.
    pub networks: u32,
}

const _: () = assert!(size_of::<StormLimits>() == 16);

const fn price(copies: u32) -> u32 {
    match SECOND.checked_div(copies) {
        Some(0) | None => 1,
        Some(each) => each,
    }
}

impl StormLimits {
    /// For so many copies per second of a port, a network and the node.
    pub const fn new([port, network, node]: [u32; 3], networks: u32) -> Self {
        Self {
            port_ns: price(port),
            network_ns: price(network),
            node_ns: price(node),
            networks,
        }
    }

    /// The limits that hold where nothing is said.
    pub const DEFAULT: Self = Self::new([PORT_COPIES, NETWORK_COPIES, NODE_COPIES], 1);

    /// The same with defaults in place of zeroes.
    #[inline(always)]
    #[must_use]
    pub const fn or_default(self) -> Self {
        Self {
            port_ns: nonzero(self.port_ns, Self::DEFAULT.port_ns),
            network_ns: nonzero(self.network_ns, Self::DEFAULT.network_ns),
            node_ns: nonzero(self.node_ns, Self::DEFAULT.node_ns),
            networks: nonzero(self.networks, 1),
        }
    }

    /// Copies that one frame can be at most, or it is never replicated.
    pub const fn most(self) -> u64 {
        let limits = self.or_default();
        let dearest = if limits.port_ns > limits.network_ns {
            limits.port_ns
        } else {
            limits.network_ns
        };
        let dearest = if limits.node_ns > dearest {
            limits.node_ns
        } else {
            dearest
        };
        match BURST_NS.checked_div(dearest as u64) {
            Some(most) => most,
            None => 0,
        }
    }
}

#[inline(always)]
const fn nonzero(value: u32, other: u32) -> u32 {
    if value == 0 { other } else { value }
}

/// A bucket, as the virtual time at which it was last full.
///
/// *Written by* `flood` and `replicate`, without a lock: two CPUs that race let a few more frames pass, no
/// more. *Key*: port id, network, or 0 for the node.
#[repr(C)]
#[derive(
    Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct StormBucket {
    /// `CLOCK_MONOTONIC` at which the copies so far would be paid for, nanoseconds.
    pub paid_until_ns: u64,
    /// The same of those that only a share of the others' paid for.
    pub share_until_ns: u64,
}

const _: () = assert!(size_of::<StormBucket>() == 16);

impl StormBucket {
    /// Takes what `cost_ns` nanoseconds earn, and returns the new bucket.
    ///
    /// `None` when there is less in it.
    #[inline(always)]
    pub const fn take(self, now_ns: u64, cost_ns: u64) -> Option<Self> {
        let paid_until_ns = self.begin(now_ns) + cost_ns;
        if paid_until_ns > now_ns {
            None
        } else {
            Some(Self {
                paid_until_ns,
                ..self
            })
        }
    }

    /// Takes what a share earns once what is for all is spent, and counts it there.
    #[inline(always)]
    const fn take_share(self, now_ns: u64, cost_ns: u64) -> Option<Self> {
        if self.share_until_ns > now_ns {
            return None;
        }
        let cost_ns = if cost_ns > SHARE_NS {
            SHARE_NS
        } else {
            cost_ns
        };
        Some(Self {
            share_until_ns: now_ns + cost_ns,
            ..self
        })
    }

    /// Takes more than there is.
    #[inline(always)]
    const fn owe(self, now_ns: u64, cost_ns: u64) -> Self {
        let until = self.begin(now_ns) + cost_ns;
        let most = now_ns + SECOND_NS;
        Self {
            paid_until_ns: if until > most { most } else { until },
            ..self
        }
    }

    #[inline(always)]
    const fn begin(self, now_ns: u64) -> u64 {
        let oldest = now_ns.saturating_sub(BURST_NS);
        if self.paid_until_ns < oldest {
            oldest
        } else {
            self.paid_until_ns
        }
    }
}

/// A frame that is to be replicated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flood {
    /// Packets that each copy is on a wire.
    pub segments: u32,
    /// Ports and nodes that get a copy.
    pub receivers: u32,
    /// Ports that the network has on this node.
    pub ports: u32,
}

impl Flood {
    #[inline(always)]
    const fn copies(self) -> u64 {
        self.segments as u64 * self.receivers as u64
    }

    /// Returns the copies that a port pays for.
    #[inline(always)]
    const fn price(self) -> u64 {
        let least = self.segments as u64 * FLOOD_COPIES_MIN as u64;
        let copies = self.copies();
        if copies < least { least } else { copies }
    }
}

/// The buckets that a frame is paid from.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Buckets {
    /// Of the port; as it was for a frame that another node sent.
    pub port: StormBucket,
    /// Of its network.
    pub network: StormBucket,
    /// Of the node.
    pub node: StormBucket,
}

/// Takes the price of a frame, and returns the new buckets.
///
/// `by_port` is false for a frame that came from elsewhere, for which its port's node has paid.
///
/// # Errors
/// `Storm`, `StormNetwork` or `StormNode`, by whose limit it is refused; nothing is taken then.
#[inline(always)]
pub const fn admit(
    buckets: Buckets,
    flood: Flood,
    by_port: bool,
    limits: StormLimits,
    now_ns: u64,
) -> Result<Buckets, DropReason> {
    let limits = limits.or_default();
    let copies = flood.copies();
    let port = if by_port {
        match buckets
            .port
            .take(now_ns, flood.price() * limits.port_ns as u64)
        {
            Some(port) => port,
            None => return Err(DropReason::Storm),
        }
    } else {
        buckets.port
    };
    let cost = copies * limits.network_ns as u64;
    let (port, network) = match buckets.network.take(now_ns, cost) {
        Some(network) => (port, network),
        None if !by_port => return Err(DropReason::StormNetwork),
        None => match port.take_share(now_ns, shared(cost, flood.ports)) {
            Some(port) => (port, buckets.network.owe(now_ns, cost)),
            None => return Err(DropReason::StormNetwork),
        },
    };
    let cost = copies * limits.node_ns as u64;
    let (network, node) = match buckets.node.take(now_ns, cost) {
        Some(node) => (network, node),
        None => match network.take_share(now_ns, shared(cost, limits.networks)) {
            Some(network) => (network, buckets.node.owe(now_ns, cost)),
            None => return Err(DropReason::StormNode),
        },
    };
    Ok(Buckets {
        port,
        network,
        node,
    })
}

/// Returns the price for one of many that have an equal share each.
#[inline(always)]
const fn shared(cost_ns: u64, among: u32) -> u64 {
    let cost_ns = if cost_ns > SHARE_NS {
        SHARE_NS
    } else {
        cost_ns
    };
    cost_ns * among as u64
}

/// Takes the price of telling a port about a packet, and returns the new bucket.
///
/// `None` when there is less in it.
#[inline(always)]
pub const fn tell(bucket: StormBucket, limits: StormLimits, now_ns: u64) -> Option<StormBucket> {
    let each = limits.or_default().port_ns as u64;
    bucket.take(now_ns, each * FLOOD_COPIES_MIN as u64)
}

#[cfg(test)]
mod tests;
