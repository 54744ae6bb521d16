//! Order in which ways out and the guards of the node are made and removed.
//!
//! [`super::Egress`] has the node's own steps; tests have others, which fail or die at each.

use std::collections::{BTreeMap, BTreeSet};

use book::record::NetworkFacts;
use netdev::TableWrite;
use telemetry::chain;

use super::EgressError;
use super::plan::GatewayPlan;
use super::ports::PortsWritten;

/// Steps at the ways out of a node.
///
/// One caller at a time; each step succeeds when its work is done already.
pub trait Ways: Sync {
    /// The right to change ways out, until it is dropped.
    type Turn<'a>: Send
    where
        Self: 'a;

    /// Waits for that right; those who wait have it in their order.
    fn turn(&self) -> impl Future<Output = Self::Turn<'_>> + Send;

    /// Plans of the ways out that attachments of any state need, by network number.
    fn planned(&self) -> BTreeMap<u32, GatewayPlan>;

    /// That of one network.
    fn plan(&self, network: u32) -> Option<GatewayPlan>;

    /// True when the way out is open as planned.
    fn is_open(&self, plan: &GatewayPlan) -> bool;

    /// Notes for the next agent that the guards of the node may be there.
    ///
    /// One that finds no gateway would not know it, and looks into nf_tables for no other reason.
    fn mark(&self);

    /// Writes the guards of the node, and has it forward these families.
    ///
    /// True when they were not there.
    ///
    /// # Errors
    /// When the kernel refuses, as for all steps.
    fn fence(
        &self,
        v4: bool,
        v6: bool,
    ) -> impl Future<Output = Result<TableWrite, EgressError>> + Send;

    /// Makes a way out; true when it was not there, or not at the same place.
    ///
    /// # Errors
    /// When the kernel refuses; nothing of a way that was not there is left then.
    fn make(&self, plan: GatewayPlan) -> impl Future<Output = Result<bool, EgressError>> + Send;

    /// Writes the tables of mapped ports, of ways out that are open.
    ///
    /// # Errors
    /// When the kernel refuses the node's table; the next call writes them again.
    fn write_ports(&self) -> impl Future<Output = Result<PortsWritten, EgressError>> + Send;

    /// Has the tables lead to a way out that is new.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn lead_to(&self, network: u32) -> Result<(), EgressError>;

    /// Forgets ways out that no attachment needs; returns the networks of the others.
    fn forget(&self) -> BTreeSet<u32>;

    /// Removes all ways out but these; true when there was one.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn remove_all_but(
        &self,
        kept: &BTreeSet<u32>,
    ) -> impl Future<Output = Result<bool, EgressError>> + Send;

    /// True when the guards of the node may be there.
    fn has_fence(&self) -> bool;

    /// Removes the guards of the node.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn remove_fence(&self) -> impl Future<Output = Result<(), EgressError>> + Send;

    /// Notes that they are not there.
    fn unmark(&self);
}

/// [`super::Egress::open`], by the caller whose turn it is.
pub async fn open(ways: &impl Ways, network: u32, plan: GatewayPlan) -> Result<(), EgressError> {
    if !ways.is_open(&plan) {
        ways.mark();
        ways.fence(plan.has(true), plan.has(false)).await?;
        // With the room of the node's table, which is known now.
        let planned = ways.planned().remove(&network);
        ways.make(planned.unwrap_or(plan)).await?;
    }
    write_ports_of(ways, network).await
}

/// Writes the tables of mapped ports, for a network that needs them.
///
/// Another network's gateway that cannot be written is logged: the audit tries again.
///
/// # Errors
/// When the kernel refuses the node's table, or that of the network's gateway.
pub async fn write_ports_of(ways: &impl Ways, network: u32) -> Result<(), EgressError> {
    write_all_ports(ways, network).await?.map_or(Ok(()), Err)
}

/// Writes the tables of mapped ports; returns the failure of this gateway.
async fn write_all_ports(
    ways: &impl Ways,
    network: u32,
) -> Result<Option<EgressError>, EgressError> {
    let mut failed = ways.write_ports().await?.failed;
    let own = failed.remove(&network);
    let _ = first_of(failed);
    Ok(own)
}

/// [`super::Egress::withdraw`], by the caller whose turn it is.
///
/// A gateway that somebody has broken is made again, without the ports of pods that go: no removal waits for the audit.
pub async fn withdraw(ways: &impl Ways, network: u32) -> Result<(), EgressError> {
    let Some(error) = write_all_ports(ways, network).await? else {
        return Ok(());
    };
    let Some(plan) = ways.planned().remove(&network) else {
        return Err(error);
    };
    tracing::warn!(
        network,
        error = chain(&error),
        "ports of the node cannot be taken from the way out of the network; it is made again"
    );
    if ways.make(plan).await? {
        ways.lead_to(network)?;
    }
    write_ports_of(ways, network).await
}

/// Logs gateways whose mapped ports could not be written, and returns the first.
pub(super) fn first_of(failed: BTreeMap<u32, EgressError>) -> Result<(), EgressError> {
    for (network, error) in &failed {
        tracing::error!(
            network,
            error = chain(error),
            "no port of the node leads to pods of the network now; the audit tries again"
        );
    }
    failed.into_values().next().map_or(Ok(()), Err)
}

/// [`super::Egress::close`].
pub async fn close(ways: &impl Ways, facts: &NetworkFacts) {
    if let Err(error) = remove(ways, Some(facts.id)).await {
        tracing::error!(
            network = facts.name,
            error = chain(&error),
            "the way out of the network could not be removed; the audit tries again"
        );
    }
}

/// [`super::Egress::recover`].
pub async fn recover(ways: &impl Ways) {
    let planned = ways.planned();
    if planned.is_empty() {
        return;
    }
    if let Err(error) = fence(ways, &planned).await {
        tracing::error!(
            error = chain(&error),
            "networks cannot have ways out yet; the audit tries again"
        );
        return;
    }
    // With the room of the node's table, which is known now.
    for plan in ways.planned().into_values() {
        let network = plan.network;
        if let Err(error) = ways.make(plan).await {
            tracing::error!(
                network,
                error = chain(&error),
                "the network has no way out yet; the audit tries again"
            );
        }
    }
    match ways.write_ports().await {
        Ok(written) => {
            let _ = first_of(written.failed);
        }
        Err(error) => tracing::error!(
            error = chain(&error),
            "ports of the node do not lead to pods yet; the audit tries again"
        ),
    }
}

/// [`super::Egress::audit`], by a caller whose turn it is not.
///
/// Each step has a turn of its own: who opens a way out meanwhile waits for one step, and not for all.
pub async fn audit(ways: &impl Ways) -> Result<(), EgressError> {
    let networks: Vec<u32> = {
        let _turn = ways.turn().await;
        let planned = ways.planned();
        if !planned.is_empty() {
            fence(ways, &planned).await?;
        }
        planned.into_keys().collect()
    };
    let mut failed = None;
    for network in networks {
        let _turn = ways.turn().await;
        // With the room of the node's table, which is known now; one that is needed no more has none.
        let Some(plan) = ways.plan(network) else {
            continue;
        };
        let made = match ways.make(plan).await {
            Ok(false) => Ok(()),
            Ok(true) => ways.lead_to(network),
            Err(error) => Err(error),
        };
        failed = made.err().or(failed);
    }
    let _turn = ways.turn().await;
    failed = remove(ways, None).await.err().or(failed);
    failed.map_or(Ok(()), Err)
}

/// Writes the guards for the families of these plans.
pub async fn fence(
    ways: &impl Ways,
    planned: &BTreeMap<u32, GatewayPlan>,
) -> Result<TableWrite, EgressError> {
    let has = |v4| planned.values().any(|plan| plan.has(v4));
    ways.mark();
    ways.fence(has(true), has(false)).await
}

/// Removes the gateways that no attachment needs.
///
/// With the last gateway, the guards of the node go. Fails with ports of this network only, if one is named.
async fn remove(ways: &impl Ways, of: Option<u32>) -> Result<(), EgressError> {
    let kept = ways.forget();
    // Ports first: none leads to a gateway that is gone.
    let ports = match of {
        Some(network) => write_ports_of(ways, network).await,
        None => match ways.write_ports().await {
            Ok(written) => first_of(written.failed),
            Err(error) => Err(error),
        },
    };
    let removed = ways.remove_all_but(&kept).await?;
    // The note of the guards is also that of ports.
    ports?;
    // Where there was none, nf_tables is not touched: that alone would load its modules.
    if kept.is_empty() && (ways.has_fence() || removed) {
        ways.remove_fence().await?;
        ways.unmark();
    }
    Ok(())
}
