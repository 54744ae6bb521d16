//! `podnet-agent get drops`.

use agent_common::drop::DropReason;
use serde::Deserialize;
use serde_json::Value;

/// Dropped packets by network and reason.
#[derive(Debug, Clone, Default)]
pub struct Drops {
    rows: Vec<Row>,
}

#[derive(Debug, Clone, Deserialize)]
struct Row {
    network: String,
    reason: String,
    packets: u64,
}

impl Drops {
    pub(super) fn read(rows: Vec<Value>) -> Self {
        let rows = rows
            .into_iter()
            .map(|row| serde_json::from_value(row).expect("a drop has network, reason, packets"))
            .collect();
        Self { rows }
    }

    /// Packets of a network dropped for a reason.
    pub fn of(&self, network: &str, reason: DropReason) -> u64 {
        let rows = self.rows.iter();
        rows.filter(|row| row.network == network && row.reason == reason.label())
            .map(|row| row.packets)
            .sum()
    }

    /// Packets of a network dropped for any reason.
    pub fn of_network(&self, network: &str) -> u64 {
        let rows = self.rows.iter().filter(|row| row.network == network);
        rows.map(|row| row.packets).sum()
    }
}
