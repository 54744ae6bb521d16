//! Steps by which networks reach beyond this node, in their order.
//!
//! The node's own members are at [`super::parts`]; tests have others, which fail or die at each step.

use api::{Network, Transport};
use book::record::NetworkFacts;
use datapath::DatapathError;
use node_stack::egress::EgressError;
use node_stack::routing::NotRouting;
use telemetry::chain;

use crate::ReachError;
use crate::overlay::OverlayError;
use crate::underlay::UnderlayError;
use crate::uplink_networks::UplinkNetworkError;

/// Members of the wing, each by the verbs that its door needs.
///
/// What networks need is read from the book at each call.
pub(super) trait Members: Sync {
    /// True when a live attachment's network has members on other nodes behind tunnels.
    fn has_tunnelled(&self) -> bool;

    /// Refuses a network that the node's stack does not route for.
    ///
    /// # Errors
    /// When the node is not ready for it.
    fn admit_routed(
        &self,
        network: &Network,
    ) -> impl Future<Output = Result<(), NotRouting>> + Send;

    /// Refuses a network that cannot have its uplink.
    ///
    /// # Errors
    /// When it cannot.
    fn admit_uplink(
        &self,
        network: &Network,
    ) -> impl Future<Output = Result<(), UplinkNetworkError>> + Send;

    /// Makes sure that tunnels carry a network.
    ///
    /// # Errors
    /// When they do not.
    fn carry(&self, network: &Network) -> impl Future<Output = Result<(), OverlayError>> + Send;

    /// Makes the tunnel device, behind its guards.
    ///
    /// # Errors
    /// When the kernel refuses, as for all verbs here.
    fn tunnel(&self) -> impl Future<Output = Result<(), OverlayError>> + Send;

    /// Mends the tunnel device, and logs a failure.
    fn mend_tunnels(&self) -> impl Future<Output = ()> + Send;

    /// Finds the paths to other nodes.
    ///
    /// # Errors
    /// When they are not known yet.
    fn find_paths(&self) -> impl Future<Output = Result<(), UnderlayError>> + Send;

    /// Finds uplinks and next hops, attaches programs, updates tables.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn plug(&self) -> impl Future<Output = Result<(), UplinkNetworkError>> + Send;

    /// Mends uplinks, and logs a failure.
    fn mend_uplinks(&self) -> impl Future<Output = ()> + Send;

    /// Finds uplinks and attaches programs, without tables.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn find_uplinks(&self) -> impl Future<Output = Result<(), UplinkNetworkError>> + Send;

    /// Finds the next hops to other nodes.
    ///
    /// # Errors
    /// When the kernel does not tell.
    fn find_hops(&self) -> impl Future<Output = Result<(), UplinkNetworkError>> + Send;

    /// Brings routes between networks up to date, before the first port of one.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn route(&self, facts: &NetworkFacts)
    -> impl Future<Output = Result<(), DatapathError>> + Send;

    /// Brings all routes between networks up to date.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn route_all(&self) -> impl Future<Output = Result<(), DatapathError>> + Send;

    /// Opens the way out of a network, behind its guards.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn open(&self, facts: &NetworkFacts) -> impl Future<Output = Result<(), EgressError>> + Send;

    /// Takes ports of attachments of a network out of the tables.
    ///
    /// They are those that are being removed.
    ///
    /// # Errors
    /// When one may lead there still.
    fn withdraw(
        &self,
        facts: &NetworkFacts,
    ) -> impl Future<Output = Result<(), EgressError>> + Send;

    /// Removes ways out that no attachment needs, after that of this network.
    fn close(&self, facts: &NetworkFacts) -> impl Future<Output = ()> + Send;

    /// Opens the ways out that attachments need, before tables lead there.
    fn recover_ways_out(&self) -> impl Future<Output = ()> + Send;

    /// Mends ways out, and removes those that no attachment needs.
    ///
    /// # Errors
    /// The last that failed.
    fn audit_ways_out(&self) -> impl Future<Output = Result<(), EgressError>> + Send;

    /// Logs the members on other nodes that are refused.
    fn complain(&self);
}

/// [`super::Reach::admit`].
pub(super) async fn admit(members: &impl Members, network: &Network) -> Result<(), ReachError> {
    if network.routing == api::Routing::Node {
        members.admit_routed(network).await?;
    }
    Box::pin(members.admit_uplink(network)).await?;
    if network.transport == Transport::Vxlan {
        members.carry(network).await?;
    }
    Ok(())
}

/// [`super::Reach::ensure`].
pub(super) async fn ensure(members: &impl Members, facts: &NetworkFacts) -> Result<(), ReachError> {
    if facts.wire.is_some() {
        Box::pin(members.plug()).await?;
    }
    Box::pin(members.route(facts)).await?;
    Ok(Box::pin(members.open(facts)).await?)
}

/// [`super::Reach::withdraw`].
pub(super) async fn withdraw(
    members: &impl Members,
    facts: &NetworkFacts,
) -> Result<(), ReachError> {
    Ok(Box::pin(members.withdraw(facts)).await?)
}

/// [`super::Reach::release`].
pub(super) async fn release(members: &impl Members, facts: &NetworkFacts) {
    Box::pin(members.close(facts)).await;
    if facts.wire.is_some() {
        Box::pin(members.mend_uplinks()).await;
    }
}

/// [`super::Reach::recover`].
pub(super) async fn recover(members: &impl Members) {
    if members.has_tunnelled() {
        if let Err(error) = members.tunnel().await {
            tracing::error!(error = %chain(&error), "tunnels to other nodes cannot be made yet; the audit tries again");
        }
        // Before the tables are filled, which would take the paths that there are away.
        if let Err(error) = members.find_paths().await {
            tracing::warn!(error = %chain(&error), "the paths to other nodes are not found yet: the next look is within half a minute");
        }
    }
    members.recover_ways_out().await;
    // Before the tables are filled, which would say that uplinks are gone.
    if let Err(error) = Box::pin(members.find_uplinks()).await {
        tracing::error!(error = %chain(&error), "the uplinks of networks are not as they should be; the audit tries again");
    }
    if let Err(error) = Box::pin(members.find_hops()).await {
        tracing::error!(error = %chain(&error), "the next hops to other nodes are not known yet; the audit tries again");
    }
    if let Err(error) = Box::pin(members.route_all()).await {
        tracing::error!(error = %chain(&error), "the routes between networks of VPCs are not as they should be; they are tried again within a second");
    }
}

/// [`super::Reach::settle`].
pub(super) async fn settle(members: &impl Members) {
    Box::pin(members.mend_uplinks()).await;
    members.mend_tunnels().await;
    members.complain();
    if let Err(error) = members.audit_ways_out().await {
        tracing::error!(error = %chain(&error), "the ways out of networks are not as they should be; the audit tries again");
    }
}

/// [`super::Reach::mend_ways_out`].
pub(super) async fn mend_ways_out(members: &impl Members) {
    if let Err(error) = members.audit_ways_out().await {
        tracing::error!(error = %chain(&error), "the ways out of networks could not be mended; the audit tries again");
    }
}

#[cfg(test)]
mod tests;
