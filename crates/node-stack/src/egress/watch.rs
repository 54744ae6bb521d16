//! Watches tables in the namespaces of gateways, and mends gateways on a change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use host::HostError;
use netdev::{Netns, RulesetMonitor, TableWrite};
use tables::surroundings::WayOut;
use telemetry::chain;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::gateway::guard;
use super::{Egress, INSIDE, PORTS, plan, ports};

/// Tasks that watch gateways, by the number of the network.
#[derive(Debug, Default)]
pub(super) struct Watches {
    tasks: Mutex<BTreeMap<u32, Watch>>,
    changed: Arc<Changed>,
}

#[derive(Debug)]
struct Watch {
    /// The gateway that is watched.
    way_out: WayOut,
    task: JoinHandle<()>,
}

/// A gateway's namespace is held as long as its table is watched.
impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Networks whose gateways were changed.
#[derive(Debug, Default)]
struct Changed {
    networks: Mutex<BTreeSet<u32>>,
    wake: Notify,
}

impl Changed {
    fn networks(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.networks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watches {
    fn tasks(&self) -> MutexGuard<'_, BTreeMap<u32, Watch>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the task that watches a gateway, unless it runs.
    ///
    /// The audit looks after a gateway that cannot be watched.
    pub(super) fn keep(&self, network: u32, way_out: WayOut, directory: &Path) {
        let mut tasks = self.tasks();
        let is_kept = |watch: &Watch| watch.way_out == way_out && !watch.task.is_finished();
        if tasks.get(&network).is_some_and(is_kept) {
            return;
        }
        tasks.remove(&network);
        let opened = Netns::open(&directory.join(plan::file(network)));
        let opened = opened.and_then(|netns| RulesetMonitor::within(&netns, &[INSIDE, PORTS]));
        let mut monitor = match opened {
            Ok(monitor) => monitor,
            Err(error) => {
                let error = chain(&error);
                return tracing::warn!(network, error, "the table of a way out is not watched");
            }
        };
        let changed = Arc::clone(&self.changed);
        let task = tokio::spawn(async move {
            while monitor.changed().await.is_ok() {
                changed.networks().insert(network);
                changed.wake.notify_one();
            }
        });
        tasks.insert(network, Watch { way_out, task });
    }

    /// Ends the others.
    pub(super) fn end_all_but(&self, kept: &BTreeSet<u32>) {
        self.tasks().retain(|network, _| kept.contains(network));
    }
}

impl Egress {
    /// Waits until the table of a gateway is changed.
    pub async fn changed_gateways(&self) {
        self.watches.changed.wake.notified().await;
    }

    /// Mends the gateways whose tables were changed.
    ///
    /// Returns the numbers of their networks, and whether the table was written.
    pub async fn mend_changed_gateways(&self) -> Vec<(u32, Result<TableWrite, HostError>)> {
        let changed = std::mem::take(&mut *self.watches.changed.networks());
        let _turn = self.turn.lock().await;
        let mut planned = self.planned_ways_out();
        let mut outcomes = Vec::new();
        for network in changed {
            if let Some(plan) = planned.remove(&network) {
                outcomes.push((network, self.restore_gateway(plan).await));
            }
        }
        outcomes
    }

    /// Writes the table of a gateway again unless it is as it should be.
    async fn restore_gateway(&self, plan: plan::GatewayPlan) -> Result<TableWrite, HostError> {
        let path = self.directory.join(plan.file());
        let ports = ports::gateway_rules(&self.planned_ports(), plan.network);
        let opened = {
            let open = self.opened();
            // One that the agent is about to write says something else by rights.
            open.get(&plan.network)
                .map(|it| (it.place, it.plan != plan))
        };
        let Some((place, is_update)) = opened else {
            return Ok(TableWrite::Unneeded);
        };
        let write = move |_: &mut netdev::Connection| -> Result<TableWrite, netdev::Error> {
            let netns = Netns::open(&path)?;
            let guards = netns.run_in(|| guard(&plan, place))??;
            let theirs = if is_update {
                TableWrite::Unneeded
            } else {
                guards
            };
            Ok(theirs.max(ports::write_gateway(&path, &ports)?))
        };
        Ok(self.host.netlink.with(write).await?)
    }
}
