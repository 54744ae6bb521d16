//! Limits the connections that ways out may have tracked.
//!
//! The table of the node is one for all, and a pod without a limit fills it within seconds.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use netdev::{Netfilter, Netns, Ruleset, TableWrite};
use rustix::io::Errno;

use super::{Egress, plan};

/// Room of the table of tracked connections.
const TABLE_MAX: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
/// How many there are, in the namespace of the reader.
const TABLE_COUNT: &str = "/proc/sys/net/netfilter/nf_conntrack_count";
/// Assumed size of the table while the kernel does not tell it, connections.
///
/// The kernel tells it once its module is loaded.
const ASSUMED_MAX: u32 = 65_536;
/// Divisor of the table's size for the default limit of a network.
const NETWORK_SHARE: u32 = 8;
/// Divisor of the table's size for the default limit of a pod.
const POD_SHARE: u32 = 32;
/// A share is never smaller.
const LEAST: u32 = 128;

/// Limits as the operator says, and what the kernel has for them.
#[derive(Debug)]
pub struct Connections {
    per_network: Option<u32>,
    per_pod: Option<u32>,
    /// Room of the node's table when it was last read.
    room: AtomicU32,
    /// The kernel can count connections.
    supported: AtomicBool,
}

impl Connections {
    /// Shares of the node's table, where no numbers are given.
    pub const fn new(per_network: Option<u32>, per_pod: Option<u32>) -> Self {
        Self {
            per_network,
            per_pod,
            room: AtomicU32::new(ASSUMED_MAX),
            supported: AtomicBool::new(true),
        }
    }

    /// Reads how much room the node's table has; true when that is news.
    pub(super) fn read_room(&self) -> bool {
        let read = fs::read_to_string(TABLE_MAX).ok();
        let room = read.and_then(|text| text.trim().parse().ok());
        let room = room.unwrap_or(ASSUMED_MAX);
        self.room.swap(room, Ordering::AcqRel) != room
    }

    fn share(&self, said: Option<u32>, share: u32) -> Option<u32> {
        let room = self.room.load(Ordering::Acquire);
        let is_supported = self.supported.load(Ordering::Acquire);
        is_supported.then(|| said.unwrap_or((room / share).max(LEAST)))
    }

    /// How many a network may have of each family, on this node.
    pub fn of_network(&self) -> Option<u32> {
        self.share(self.per_network, NETWORK_SHARE)
    }

    /// How many a pod may have of each family on a network.
    pub(crate) fn of_pod(&self) -> Option<u32> {
        self.share(self.per_pod, POD_SHARE)
    }

    /// Writes the table of `wanted` with the limit, unless it says that already.
    ///
    /// A kernel that cannot count connections gets the table without a limit; the log says so once.
    pub(super) fn write(
        &self,
        netfilter: &mut Netfilter,
        limit: Option<u32>,
        wanted: impl Fn(Option<u32>) -> Ruleset,
    ) -> Result<TableWrite, netdev::Error> {
        match netfilter.ensure(&wanted(limit)) {
            Err(error) if limit.is_some() && is_unknown(&error) => {
                let written = netfilter.ensure(&wanted(None))?;
                if self.supported.swap(false, Ordering::AcqRel) {
                    tracing::warn!(
                        "connections through ways out are not limited: load the kernel's modules nft_connlimit and nft_hash and restart the agent"
                    );
                }
                Ok(written)
            }
            other => other,
        }
    }
}

/// The kernel has not the expression.
fn is_unknown(error: &netdev::Error) -> bool {
    matches!(error.errno(), Some(Errno::NOENT | Errno::OPNOTSUPP))
}

/// Tracked connections of a way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tracked {
    /// Number of the network.
    pub network: u32,
    /// Connections in the namespace of its gateway.
    pub connections: u64,
    /// Packets dropped because a connection was beyond a pod's limit.
    ///
    /// Counted since the table was written.
    pub refused: u64,
}

impl Egress {
    /// Tracked connections of each open way out, except of those that are gone by now.
    ///
    /// # Errors
    /// When the work is stopped.
    pub async fn tracked_connections(&self) -> Result<Vec<Tracked>, netdev::Error> {
        let networks: Vec<u32> = self.opened().keys().copied().collect();
        if networks.is_empty() {
            return Ok(Vec::new());
        }
        let directory = self.directory.clone();
        let read = move |_: &mut netdev::Connection| -> Result<_, netdev::Error> {
            let tracked = networks.into_iter().filter_map(|network| {
                let netns = Netns::open(&directory.join(plan::file(network))).ok()?;
                let (connections, refused) = netns.run_in(look).ok()?;
                Some(Tracked {
                    network,
                    connections: connections?,
                    refused,
                })
            });
            Ok(tracked.collect())
        };
        self.host.netlink.with(read).await
    }
}

/// On a thread in the namespace of a gateway.
fn look() -> (Option<u64>, u64) {
    let count = fs::read_to_string(TABLE_COUNT).ok();
    let count = count.and_then(|text| text.trim().parse().ok());
    let stopped = Netfilter::open().and_then(|mut netfilter| netfilter.stopped(super::INSIDE));
    let rules = stopped.unwrap_or_default().into_iter();
    let limits = rules.filter(|(rule, _)| rule.contains(" connections of a source"));
    (count, limits.map(|(_, packets)| packets).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_what_was_said_or_shares_of_the_nodes_table() {
        let shares = Connections::new(None, None);
        assert_eq!(
            (shares.of_network(), shares.of_pod()),
            (Some(8192), Some(2048))
        );
        shares.room.store(1024, Ordering::Release);
        assert_eq!(
            (shares.of_network(), shares.of_pod()),
            (Some(128), Some(128))
        );
        let said = Connections::new(Some(1000), Some(200));
        assert_eq!((said.of_network(), said.of_pod()), (Some(1000), Some(200)));
        said.supported.store(false, Ordering::Release);
        assert_eq!((said.of_network(), said.of_pod()), (None, None));
    }
}
