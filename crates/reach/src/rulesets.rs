//! Follows changes of podnet's tables of nf_tables, and writes missing ones again.
//!
//! Any tool of the node may flush them, and the kernel announces that.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use host::Host;
use metrics::Metrics;
use netdev::{Netfilter, RulesetMonitor, TableWrite, WayMonitor};
use node_stack::egress::{Egress, OUTSIDE, PORTS};
use node_stack::routing::{self, NodeRouting};
use telemetry::chain;
use tokio::time::Instant;

use crate::overlay::{self, Overlay};

/// The tables in the node's own namespace.
const TABLES: [&str; 4] = [routing::TABLE, OUTSIDE, overlay::TABLE, PORTS];
/// Least time between two looks at the tables.
///
/// It doubles while another tool changes the tables again and again.
const PAUSE: Duration = Duration::from_millis(50);
/// Greatest time between two looks; the audit comes no later than that by much.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// After as long without a change the other tool is taken to have ended.
const QUIET: Duration = Duration::from_secs(10);

/// How long to wait before the next look.
#[derive(Debug)]
struct Pace {
    pause: Duration,
    restored: Option<Instant>,
}

impl Pace {
    const fn new() -> Self {
        Self {
            pause: PAUSE,
            restored: None,
        }
    }

    /// After a look at this time, which had to restore something or not.
    fn after(&mut self, restored: bool, now: Instant) -> Duration {
        let is_fight = self.restored.is_some_and(|last| now - last < QUIET);
        if restored {
            self.pause = if is_fight {
                LONGEST_PAUSE.min(self.pause * 2)
            } else {
                PAUSE
            };
            self.restored = Some(now);
            return self.pause;
        }
        PAUSE
    }
}

/// Cause of a look at the tables.
enum Cause {
    /// A table of the node's namespace was changed.
    Changed,
    /// One in the namespace of a gateway was.
    Gateways,
    /// Routes, links, or facts about the cluster have changed; tables may have to.
    Node,
    /// Networks have changed, or Services of the cluster's network that some reach.
    Services,
}

/// The care for the tables.
#[derive(Debug)]
pub struct Rulesets {
    host: Arc<Host>,
    metrics: Arc<Metrics>,
    egress: Arc<Egress>,
    overlay: Arc<Overlay>,
    routing: Arc<NodeRouting>,
}

impl Rulesets {
    /// Hold the owners of the tables.
    pub fn new(
        host: Arc<Host>,
        metrics: Arc<Metrics>,
        egress: Arc<Egress>,
        overlay: Arc<Overlay>,
        routing: Arc<NodeRouting>,
    ) -> Self {
        Self {
            host,
            metrics,
            egress,
            overlay,
            routing,
        }
    }

    /// Keeps the tables of nf_tables as they should be, for ever.
    ///
    /// # Errors
    /// When the kernel does not tell of changes any more.
    pub async fn keep(&self) -> Result<(), netdev::Error> {
        let mut rules = match self.host.netlink.watch_rules(&TABLES) {
            Ok(monitor) => Some(monitor),
            Err(error) => {
                let error = chain(&error);
                tracing::info!(
                    error,
                    "nf_tables cannot be watched: no table of podnet is looked after"
                );
                None
            }
        };
        let mut ways = self.host.netlink.watch_ways()?;
        let mut cluster = self.routing.changes();
        let (mut services, mut networks) = (self.egress.services(), self.egress.networks());
        let mut pace = Pace::new();
        loop {
            let cause = tokio::select! {
                changed = next_change(rules.as_mut()) => changed.map(|()| Cause::Changed)?,
                () = self.egress.changed_gateways() => Cause::Gateways,
                changed = next_way(&mut ways) => changed.map(|()| Cause::Node)?,
                // The sender lives as long as the node.
                _ = cluster.changed() => Cause::Node,
                _ = services.changed() => Cause::Services,
                _ = networks.changed() => Cause::Services,
            };
            let restored = match cause {
                Cause::Gateways => self.restore_gateways().await,
                Cause::Services => self.follow_services().await,
                // What changed a route may come with the flush, and be heard first.
                Cause::Node => self.restore_tables(TableWrite::Made).await,
                Cause::Changed => self.restore_tables(TableWrite::Replaced).await,
            };
            tokio::time::sleep(pace.after(restored, Instant::now())).await;
        }
    }

    /// Packets that rules in the node's namespace have dropped: table, rule, count.
    pub(crate) async fn stopped_packets(&self) -> Vec<(&'static str, String, u64)> {
        let look = |netfilter: &mut Netfilter| {
            let mut all = Vec::new();
            for table in [OUTSIDE, PORTS, overlay::TABLE] {
                let rules = netfilter.stopped(table)?.into_iter();
                all.extend(rules.map(|(rule, packets)| (table, rule, packets)));
            }
            Ok(all)
        };
        if !self.has_tables() {
            return Vec::new();
        }
        self.host
            .netlink
            .with_netfilter(look)
            .await
            .unwrap_or_default()
    }

    /// Whether the node needs a table.
    ///
    /// Where it needs none, nf_tables is not touched: that would load its modules.
    fn has_tables(&self) -> bool {
        self.egress.is_fenced()
            || self.egress.has_ports()
            || self.overlay.device() != 0
            || self.routing.has_table()
    }

    /// Writes each table of the node's namespace that differs from the plan.
    ///
    /// True when one was `least` written which this agent had written before: another program has
    /// changed it.
    async fn restore_tables(&self, least: TableWrite) -> bool {
        let had = [
            self.egress.has_written(),
            self.overlay.has_written(),
            self.routing.has_table(),
            self.egress.has_ports(),
        ];
        let least = had.map(|had| had.then_some(least));
        let egress = self.egress.restore_fence().await;
        let overlay = self.overlay.restore_fence().await;
        let routing = self.routing.restore_masquerade().await;
        let ports = self.egress.restore_ports().await;
        let noted = [
            self.note_restored(OUTSIDE, &egress, least[0]),
            self.note_restored(overlay::TABLE, &overlay, least[1]),
            self.note_restored(routing::TABLE, &routing, least[2]),
            self.note_restored(PORTS, &ports, least[3]),
        ];
        noted.contains(&true)
    }

    /// Reports a table that another program has changed: one that was `least` written.
    fn note_restored<E: Error>(
        &self,
        table: &'static str,
        outcome: &Result<TableWrite, E>,
        least: Option<TableWrite>,
    ) -> bool {
        let is_theirs = |written: &TableWrite| least.is_some_and(|least| *written >= least);
        match outcome {
            Ok(written) if is_theirs(written) => {
                self.metrics.ruleset_restored(table);
                tracing::warn!(
                    table,
                    "another program changed a table of podnet in nf_tables: it is written again"
                );
            }
            Ok(_) => {}
            Err(error) => {
                tracing::error!(
                    table,
                    error = chain(error),
                    "the table in nf_tables could not be written"
                );
            }
        }
        outcome.as_ref().is_ok_and(is_theirs)
    }

    /// Has gateways lead to the Services of the cluster's network.
    ///
    /// That is never a repair.
    async fn follow_services(&self) -> bool {
        if let Err(error) = self.egress.follow().await {
            tracing::error!(
                error = chain(&error),
                "some pods do not reach Services of the cluster that their network names; the audit tries again"
            );
        }
        false
    }

    /// The same in the namespaces of gateways where something was changed.
    async fn restore_gateways(&self) -> bool {
        let mut restored = false;
        for (network, outcome) in self.egress.mend_changed_gateways().await {
            tracing::debug!(network, "a table in the namespace of a way out was changed");
            let least = Some(TableWrite::Replaced);
            restored |= self.note_restored("podnet of a way out", &outcome, least);
        }
        restored
    }
}

async fn next_change(monitor: Option<&mut RulesetMonitor>) -> Result<(), netdev::Error> {
    match monitor {
        Some(monitor) => monitor.changed().await,
        None => std::future::pending().await,
    }
}

async fn next_way(monitor: &mut WayMonitor) -> Result<(), netdev::Error> {
    monitor.changed().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fight_with_another_tool_gets_slower_and_ends_with_it() {
        let (mut pace, mut now) = (Pace::new(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..10 {
            let pause = pace.after(true, now);
            now += pause;
            pauses.push(pause);
        }
        assert_eq!(pauses[0], PAUSE, "the first is answered at once");
        assert!(pauses.is_sorted() && pauses.last() == Some(&LONGEST_PAUSE));
        assert_eq!(pace.after(false, now), PAUSE, "a look that found nothing");
        assert_eq!(pace.after(true, now + QUIET), PAUSE, "the fight is over");
    }
}
