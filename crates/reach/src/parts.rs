//! Members of this node's wing: each verb of its door by its room.

use api::Network;
use book::record::NetworkFacts;
use datapath::DatapathError;
use node_stack::egress::EgressError;
use node_stack::routing::NotRouting;

use super::Reach;
use super::life::Members;
use crate::overlay::OverlayError;
use crate::underlay::UnderlayError;
use crate::uplink_networks::UplinkNetworkError;

impl Members for Reach {
    fn has_tunnelled(&self) -> bool {
        self.book.ledger().has_tunnelled()
    }

    async fn admit_routed(&self, network: &Network) -> Result<(), NotRouting> {
        self.routing.admit(network).await
    }

    async fn admit_uplink(&self, network: &Network) -> Result<(), UplinkNetworkError> {
        self.uplink_networks.admit(network).await
    }

    async fn carry(&self, network: &Network) -> Result<(), OverlayError> {
        self.overlay.carry(&network.name, network.mtu).await
    }

    async fn tunnel(&self) -> Result<(), OverlayError> {
        self.overlay.tunnel().await
    }

    async fn mend_tunnels(&self) {
        self.overlay.mend().await;
    }

    async fn find_paths(&self) -> Result<(), UnderlayError> {
        self.underlay.find().await
    }

    async fn plug(&self) -> Result<(), UplinkNetworkError> {
        self.uplink_networks.plug().await
    }

    async fn mend_uplinks(&self) {
        self.uplink_networks.mend().await;
    }

    async fn find_uplinks(&self) -> Result<(), UplinkNetworkError> {
        let found = self.uplink_networks.find_uplinks().await;
        found.map(drop).map_err(|(_, error)| error)
    }

    async fn find_hops(&self) -> Result<(), UplinkNetworkError> {
        self.uplink_networks.find_hops().await.map(drop)
    }

    async fn route(&self, facts: &NetworkFacts) -> Result<(), DatapathError> {
        self.vpcs.admit(facts).await
    }

    async fn route_all(&self) -> Result<(), DatapathError> {
        self.vpcs.settle().await
    }

    async fn open(&self, facts: &NetworkFacts) -> Result<(), EgressError> {
        self.egress.open(facts).await
    }

    async fn withdraw(&self, facts: &NetworkFacts) -> Result<(), EgressError> {
        self.egress.withdraw(facts).await
    }

    async fn close(&self, facts: &NetworkFacts) {
        self.egress.close(facts).await;
    }

    async fn recover_ways_out(&self) {
        self.egress.recover().await;
    }

    async fn audit_ways_out(&self) -> Result<(), EgressError> {
        self.egress.audit().await
    }

    fn complain(&self) {
        self.remotes.complain();
    }
}
