//! Counts connections that policies let pass, and removes old ones.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datapath::DatapathError;
use datapath::connections::{self, Swept};
use telemetry::chain;

use crate::node::Node;

/// Time between two sweeps, at least.
const PACE: Duration = Duration::from_secs(30);
/// A sweep takes at most one part in so many of the time.
const SHARE: u32 = 100;
/// Entries that one sweep removes at most.
///
/// The programs replace the oldest where there is no room.
const MOST: usize = 4_096;

/// Sweeps while policies judge any port; returns never.
pub(super) async fn sweep(node: &Arc<Node>) {
    loop {
        let this = Arc::clone(node);
        let begin = Instant::now();
        let swept = tokio::task::spawn_blocking(move || once(&this)).await;
        match swept {
            Ok(Ok(swept)) => count(node, &swept),
            Ok(Err(error)) => tracing::warn!(
                error = chain(&error),
                "the connections that policies let pass could not be counted; trying again"
            ),
            Err(error) => tracing::error!(
                %error,
                "the connections that policies let pass could not be counted; trying again"
            ),
        }
        let took = begin.elapsed();
        tokio::time::sleep(PACE.max(took.saturating_mul(SHARE))).await;
    }
}

/// One sweep; nothing where no port is judged.
fn once(node: &Node) -> Result<Swept, DatapathError> {
    let guards = node.tables.guards();
    if guards.look(|maps| maps.guards.is_empty())? {
        return Ok(Swept::default());
    }
    guards.connections().sweep(connections::now(), MOST)
}

fn count(node: &Node, swept: &Swept) {
    let ledger = node.book.ledger();
    let named: Vec<(String, usize)> = swept
        .alive
        .iter()
        .map(|(network, count)| {
            let name = ledger.name_of(*network);
            let name = name.map_or_else(|| format!("#{network}"), ToOwned::to_owned);
            (name, *count)
        })
        .collect();
    drop(ledger);
    node.metrics.flows(&named);
    if swept.removed > 0 {
        tracing::debug!(removed = swept.removed, "connections are over");
    }
}
