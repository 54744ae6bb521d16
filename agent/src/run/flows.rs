//! Counts connections that policies let pass.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datapath::DatapathError;
use datapath::connections;
use telemetry::chain;

use crate::node::Node;

/// Time between two counts, at least.
const PACE: Duration = Duration::from_secs(30);
/// A count takes at most one part in so many of the time.
const SHARE: u32 = 100;

/// Counts while policies judge any port; returns never.
pub(super) async fn watch(node: &Arc<Node>) {
    loop {
        let this = Arc::clone(node);
        let begin = Instant::now();
        let counted = tokio::task::spawn_blocking(move || once(&this)).await;
        match counted {
            Ok(Ok(alive)) => show(node, &alive),
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

/// Connections by network; none where no port is judged.
fn once(node: &Node) -> Result<BTreeMap<u32, usize>, DatapathError> {
    let guards = node.tables.guards();
    if guards.look(|maps| maps.guards.is_empty())? {
        return Ok(BTreeMap::new());
    }
    let (mut alive, now) = (BTreeMap::new(), connections::now());
    guards.connections().each(|key, words| {
        if words.is_alive(key.protocol, now) {
            *alive.entry(key.network).or_default() += 1;
        }
    })?;
    Ok(alive)
}

fn show(node: &Node, alive: &BTreeMap<u32, usize>) {
    let ledger = node.book.ledger();
    let named: Vec<(String, usize)> = alive
        .iter()
        .map(|(network, count)| {
            let name = ledger.name_of(*network);
            let name = name.map_or_else(|| format!("#{network}"), ToOwned::to_owned);
            (name, *count)
        })
        .collect();
    drop(ledger);
    node.metrics.flows(&named);
}
