//! Carry networks beyond the node: tunnels, uplinks, egress and node routing.
//!
//! This file alone lists the members of the wing. The engine calls the verbs of [`Reach`]; a member never
//! calls the engine back, and knows no kind of port.
//!
//! - [`overlay`] has the tunnel device, [`underlay`] the routes on which programs do without it.
//! - [`uplinks`] are the interfaces by which other nodes send to this one, [`early_drop`] drops there.
//! - [`uplink_networks`] are networks that a VLAN or a node's interface carries.
//! - [`node_stack`] is what goes through the node's own stack: egress, and the network that the node routes for.
//! - [`vpcs`] routes between networks.
//! - [`members`] publishes the members of this node, as files where there is no cluster.
//! - [`rulesets`] writes podnet's tables of nf_tables again when another program changes them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use api::Network;
use book::ledger::Wanted;
use book::record::{Attachment, HostEnd, NetworkFacts};
use book::{Book, BookError};
use host::{Host, HostError};
use metrics::Metrics;
use netdev::LinkEvent;
use node_stack::egress::{self, ClusterServices, Egress, GatewayOptions, Tracked};
use node_stack::routing::{NodeRouting, Nodes};
use remotes::Remotes;
use tables::Reconciler;
use telemetry::chain;
use tokio::sync::watch;
use world::Current;
use world::policies::PolicyCurrent;

use crate::early_drop::{DropPlace, EarlyDrop, EarlyDropOptions};
use crate::members::Membership;
use crate::overlay::Overlay;
use crate::rulesets::Rulesets;
use crate::underlay::Underlay;
use crate::uplink_networks::UplinkNetworks;
use crate::uplinks::Uplinks;
use crate::vpcs::Vpcs;

pub mod early_drop;
pub mod error;
mod life;
pub mod members;
pub mod overlay;
mod parts;
pub mod rulesets;
pub mod underlay;
pub mod uplink_networks;
pub mod uplinks;
pub mod vpcs;

pub use error::ReachError;

/// Rooms below the wing, which its members share.
#[derive(Debug)]
pub struct Ground {
    /// Name of the node.
    pub name: String,
    /// Handles of the kernel.
    pub host: Arc<Host>,
    /// Attachments, addresses and numbers.
    pub book: Arc<Book>,
    /// The only writer of the tables.
    pub tables: Arc<Reconciler>,
    /// Objects that users write.
    pub world: Arc<Current>,
    /// Policies, which say whether pods of members are to be told.
    pub policies: Arc<PolicyCurrent>,
    /// Members on other nodes.
    pub remotes: Arc<Remotes>,
    /// Counters of what was done.
    pub metrics: Arc<Metrics>,
    /// True when a cluster names the nodes.
    pub clustered: bool,
}

/// Settings of the wing.
#[derive(Debug)]
pub struct ReachOptions {
    /// UDP port of tunnels.
    pub vxlan_port: u16,
    /// Use of XDP at interfaces of the node.
    pub early: EarlyDropOptions,
    /// Settings of ways out.
    pub gateways: GatewayOptions,
}

/// The end of a task that goes on for ever.
#[derive(Debug)]
pub struct Ended {
    /// Name of the task.
    pub what: &'static str,
    /// Reason in words.
    pub why: String,
}

/// The wing, with its members.
#[derive(Debug)]
pub struct Reach {
    book: Arc<Book>,
    remotes: Arc<Remotes>,
    members: Membership,
    routing: Arc<NodeRouting>,
    egress: Arc<Egress>,
    overlay: Arc<Overlay>,
    early_drop: Arc<EarlyDrop>,
    uplinks: Arc<Uplinks>,
    uplink_networks: Arc<UplinkNetworks>,
    underlay: Underlay,
    rulesets: Rulesets,
    vpcs: Vpcs,
}

impl Reach {
    /// Put the members together; nothing is made yet.
    pub fn new(ground: Ground, options: ReachOptions) -> Arc<Self> {
        let Ground {
            name,
            host,
            book,
            tables,
            world,
            policies,
            remotes,
            metrics,
            clustered,
        } = ground;
        let routing = Arc::new(NodeRouting::new(
            Arc::clone(&host),
            Arc::clone(&book),
            Arc::clone(&world),
            clustered,
        ));
        let egress = Arc::new(Egress::new(
            Arc::clone(&host),
            Arc::clone(&book),
            Arc::clone(&tables),
            Arc::clone(&world),
            Arc::clone(&routing),
            options.gateways,
        ));
        let early_drop = Arc::new(EarlyDrop::new(Arc::clone(&host), options.early));
        let uplinks = Arc::new(Uplinks::new(
            Arc::clone(&host),
            Arc::clone(&tables),
            Arc::clone(&early_drop),
        ));
        let overlay = Arc::new(Overlay::new(
            Arc::clone(&host),
            Arc::clone(&book),
            Arc::clone(&tables),
            Arc::clone(&remotes),
            options.vxlan_port,
        ));
        let uplink_networks = Arc::new(UplinkNetworks::new(
            Arc::clone(&host),
            Arc::clone(&book),
            Arc::clone(&tables),
            Arc::clone(&remotes),
            Arc::clone(&uplinks),
        ));
        let vpcs = Vpcs::new(Arc::clone(&book), Arc::clone(&world), Arc::clone(&tables));
        let underlay = Underlay::new(
            Arc::clone(&host),
            tables,
            Arc::clone(&remotes),
            Arc::clone(&overlay),
            Arc::clone(&uplinks),
        );
        let rulesets = Rulesets::new(
            host,
            metrics,
            Arc::clone(&egress),
            Arc::clone(&overlay),
            Arc::clone(&routing),
        );
        let members = Membership::new(
            name,
            Arc::clone(&book),
            (world, policies),
            Arc::clone(&remotes),
        );
        Arc::new(Self {
            book,
            remotes,
            members,
            routing,
            egress,
            overlay,
            early_drop,
            uplinks,
            uplink_networks,
            underlay,
            rulesets,
            vpcs,
        })
    }

    /// Refuse a network that this node cannot carry; nothing is booked yet.
    ///
    /// # Errors
    /// When the node does not route for it, or has no uplink or no tunnels for it.
    pub async fn admit(&self, network: &Network) -> Result<(), ReachError> {
        life::admit(self, network).await
    }

    /// Book an attachment to the network that the node routes for, in a cluster.
    ///
    /// # Errors
    /// When the node has no address for it.
    pub fn reserve(
        &self,
        wanted: Wanted,
        network: &Network,
        host: HostEnd,
    ) -> Result<Attachment, BookError> {
        self.routing.reserve(wanted, network, host)
    }

    /// Make the parts that a network needs here before its first port.
    ///
    /// The book has the attachment.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn ensure(&self, facts: &NetworkFacts) -> Result<(), ReachError> {
        life::ensure(self, facts).await
    }

    /// Take away ports of the node that lead to an attachment.
    ///
    /// The book has it as one that is being removed, and its addresses are not free yet.
    ///
    /// # Errors
    /// When one may lead there still.
    pub async fn withdraw(&self, facts: &NetworkFacts) -> Result<(), ReachError> {
        life::withdraw(self, facts).await
    }

    /// Remove parts that a network needs no more, after the book forgot an attachment.
    ///
    /// The audit comes back to what cannot be removed now.
    pub async fn release(&self, facts: &NetworkFacts) {
        life::release(self, facts).await;
    }

    /// Make the parts that networks in the book need, before the tables are filled.
    ///
    /// A network that is not carried yet does not keep the others from that: the audit comes back to it.
    pub async fn recover(&self) {
        life::recover(self).await;
    }

    /// Mend all members as the book says, at each audit.
    pub async fn settle(&self) {
        life::settle(self).await;
    }

    /// Mend ways out, and remove those that no attachment needs.
    pub async fn mend_ways_out(&self) {
        life::mend_ways_out(self).await;
    }

    /// Mend routes and neighbours of an attachment in the node's stack.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn mend(&self, record: &Attachment) -> Result<(), HostError> {
        self.routing.mend(record).await
    }

    /// Describe the damage of an attachment beyond its port, in words.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub async fn faults(&self, record: &Attachment) -> Result<Vec<String>, HostError> {
        let mut faults = self.routing.faults(record).await?;
        if record.network.has_gateway() && self.egress.way_out(record.network.id).is_none() {
            faults.push("the way out of its network is gone".to_owned());
        }
        Ok(faults)
    }

    /// Find attachments with possible damage beyond their ports, by their places.
    ///
    /// The places are those in the list. All are looked at together. Blocks.
    ///
    /// # Errors
    /// When the kernel does not tell: nothing is known of any.
    pub fn suspects(&self, records: &[Attachment]) -> Result<BTreeSet<usize>, HostError> {
        let mut suspects = self.routing.suspects(records)?;
        let closed = records.iter().enumerate().filter(|(_, record)| {
            record.network.has_gateway() && self.egress.way_out(record.network.id).is_none()
        });
        suspects.extend(closed.map(|(place, _)| place));
        Ok(suspects)
    }

    /// Start the repair that a change of a link asks for, if it is of the wing.
    ///
    /// False where it is not. After lost changes the uplinks are looked at, and the rest is left to the audit.
    pub fn on_link(self: &Arc<Self>, event: &LinkEvent) -> bool {
        match event {
            LinkEvent::Removed { name, .. } if name == overlay::DEVICE => {
                let overlay = Arc::clone(&self.overlay);
                tokio::spawn(async move { overlay.mend().await });
            }
            LinkEvent::Removed { name, .. } if egress::is_link(name) => self.look_at_ways_out(),
            LinkEvent::Removed { ifindex, name }
                if self.uplink_networks.concerns(name, *ifindex, false) =>
            {
                self.uplink_networks.look();
            }
            LinkEvent::Changed(link)
                if self
                    .uplink_networks
                    .concerns(&link.name, link.ifindex, true) =>
            {
                self.uplink_networks.look();
            }
            LinkEvent::Unhooked { ifindex } if self.uplinks.has(*ifindex) => {
                let uplinks = Arc::clone(&self.uplinks);
                tokio::spawn(async move {
                    if let Err(error) = uplinks.mend().await {
                        tracing::error!(error = %chain(&error), "the program could not be attached to an uplink again; the audit tries again");
                    }
                });
            }
            LinkEvent::Unhooked { ifindex } if self.egress.has_port(*ifindex) => {
                self.look_at_ways_out();
            }
            LinkEvent::Overrun => {
                self.uplink_networks.look();
                return false;
            }
            _ => return false,
        }
        true
    }

    fn look_at_ways_out(self: &Arc<Self>) {
        let reach = Arc::clone(self);
        tokio::spawn(async move { reach.mend_ways_out().await });
    }

    /// Run the tasks of all members; return when one of them cannot go on.
    pub async fn work(&self) -> Ended {
        let ended = |what, why| Ended { what, why };
        tokio::select! {
            end = self.underlay.keep(&self.uplink_networks) => ended("watching paths to other nodes", reason(end.err().as_ref())),
            end = self.rulesets.keep() => ended("watching nf_tables", reason(end.err().as_ref())),
            () = self.routing.keep() => ended("routing for the node's network", "it ended".into()),
            () = self.members.serve() => ended("following networks in use", "it ended".into()),
            () = self.vpcs.keep() => ended("routing between networks of VPCs", "it ended".into()),
        }
    }

    /// Tell the networks that this node serves; [`Self::work`] goes on with it.
    pub fn serve_now(&self) {
        self.members.serve_now();
    }

    /// Exchange members with other nodes by files in a directory.
    ///
    /// Returns the reason when that ends. Members of this node are written once `ready` says that they are all known.
    pub async fn share(&self, directory: &Path, ready: watch::Receiver<bool>) -> String {
        tokio::select! {
            end = self.members.follow(directory) => reason(end.err().as_ref()),
            () = self.members.publish(directory, ready) => "it ended".to_owned(),
        }
    }

    /// Set the nodes of the cluster, and where its pods and Services are.
    pub fn set_nodes(&self, nodes: Nodes) {
        self.routing.set_nodes(nodes);
    }

    /// Set the ports of Services of the cluster's network that networks name.
    pub fn set_cluster_services(&self, services: ClusterServices) {
        self.egress.set_services(services);
    }

    /// True for an interface of the node that has the program of uplinks.
    pub fn has_program(&self, ifindex: u32) -> bool {
        self.uplinks.has(ifindex)
    }

    /// UDP port of tunnels.
    pub fn tunnel_port(&self) -> u16 {
        self.overlay.port()
    }

    /// Copies the places of early drops, by the index of the interface.
    pub fn places(&self) -> BTreeMap<u32, DropPlace> {
        self.early_drop.places()
    }

    /// Number of nodes with pods that are not reached.
    pub fn unrouted(&self) -> usize {
        self.routing.unrouted()
    }

    /// Limit of connections that a network may have here, for each family.
    pub fn most_connections(&self) -> Option<u32> {
        self.egress.connections.of_network()
    }

    /// Count the connections through each way out that is open.
    ///
    /// # Errors
    /// When the work is stopped.
    pub async fn tracked_connections(&self) -> Result<Vec<Tracked>, netdev::Error> {
        self.egress.tracked_connections().await
    }

    /// Packets that rules of the node's tables have dropped: table, rule, count.
    pub async fn stopped_packets(&self) -> Vec<(&'static str, String, u64)> {
        self.rulesets.stopped_packets().await
    }
}

fn reason<E: std::error::Error>(error: Option<&E>) -> String {
    error.map_or_else(|| "it ended".to_owned(), |error| chain(error))
}
