//! Records of attachments, and the facts that follow from them. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use agent_common::addr::{GATEWAY_V4, GATEWAY_V6, MacAddr};
use api::{InterfaceKind, Mode, Prefix, Routing};
use cni_spec::{
    AttachmentKey, CniResult, Dns, Interface, IpConfig, IpPrefix, PodRef, Route, SpecError,
};
use serde::{Deserialize, Serialize};

use crate::bandwidth::Limits;
use crate::host_ports::HostPort;

mod mac_text;
mod route;

pub use self::route::{PodRoute, metric};

/// States of an attachment; a restart acts by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Undo: nobody was told that it exists.
    Adding,
    /// Keep.
    Added,
    /// Finish removing.
    Deleting,
}

/// The network as it was when the attachment was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkFacts {
    /// Name of the PodNetwork.
    pub name: String,
    /// Its number in the maps.
    pub id: u32,
    /// True for L3.
    pub routed: bool,
    /// True when the node's own stack routes for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_node: bool,
    /// Transport of its packets to other nodes.
    #[serde(default, skip_serializing_if = "api::Transport::is_local")]
    pub transport: api::Transport,
    /// Pods reach the outside through the node, with an address of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub egress: bool,
    /// Pods reach Services of the cluster's network, by the same way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub to_services: bool,
    /// Pods reach the outside by the network's uplink, with their own addresses.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaves_by_uplink: bool,
    /// Its uplink, if it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<api::Wire>,
    /// Largest L3 packet, bytes.
    pub mtu: u16,
    /// Subnets with their gateways.
    pub subnets: Vec<SubnetFacts>,
    /// Routes that pods get besides those to the subnets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteFacts>,
    /// Prefixes of the addresses of its Services, to which pods get routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub service_cidrs: Vec<Prefix>,
    /// Prefixes of its VPC and of the peers of that, to which pods get routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vpc_cidrs: Vec<Prefix>,
}

/// A route that pods get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteFacts {
    /// Where it leads.
    pub dst: Prefix,
    /// Next hop; none for the virtual gateway of a routed network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
}

/// One subnet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubnetFacts {
    /// Prefix.
    pub prefix: Prefix,
    /// Gateway, if it has one.
    pub gateway: Option<IpAddr>,
}

impl NetworkFacts {
    /// True for a network with members on other nodes that tunnels lead to.
    pub fn spans_nodes(&self) -> bool {
        self.transport == api::Transport::Vxlan
    }

    /// True for a network whose pods leave by a gateway on the node.
    pub const fn has_gateway(&self) -> bool {
        self.egress || self.to_services
    }

    /// The facts about a network, which has this number.
    pub fn of(network: &api::Network, id: u32) -> Self {
        Self {
            name: network.name.clone(),
            id,
            routed: network.mode == Mode::L3,
            by_node: network.routing == Routing::Node,
            transport: network.transport,
            egress: network.egress == api::Egress::Masquerade,
            to_services: !network.cluster_services.is_empty(),
            leaves_by_uplink: network.egress == api::Egress::Uplink,
            wire: network.wire.clone(),
            mtu: network.mtu,
            subnets: network
                .subnets
                .iter()
                .map(|subnet| SubnetFacts {
                    prefix: subnet.prefix,
                    gateway: subnet.gateway,
                })
                .collect(),
            routes: network
                .routes
                .iter()
                .map(|route| RouteFacts {
                    dst: route.dst,
                    gw: route.gw,
                })
                .collect(),
            service_cidrs: network.service_cidrs.clone(),
            vpc_cidrs: network.vpc_cidrs.clone(),
        }
    }

    /// True when both come to the same but for routes to other networks.
    ///
    /// Those that pods get change with the VPC and its peers, and pods of before keep theirs.
    pub fn is_alike(&self, other: &Self) -> bool {
        // By name: a new field does not compile without its line below.
        let Self {
            name,
            id,
            routed,
            by_node,
            transport,
            egress,
            to_services,
            leaves_by_uplink,
            wire,
            mtu,
            subnets,
            routes,
            service_cidrs,
            vpc_cidrs: _,
        } = self;
        let flags = [*routed, *by_node, *egress, *to_services, *leaves_by_uplink];
        let others = [
            other.routed,
            other.by_node,
            other.egress,
            other.to_services,
            other.leaves_by_uplink,
        ];
        (name, *id, flags, *mtu) == (&other.name, other.id, others, other.mtu)
            && *transport == other.transport
            && *wire == other.wire
            && *subnets == other.subnets
            && *routes == other.routes
            && *service_cidrs == other.service_cidrs
    }

    /// Its subnets.
    pub fn prefixes(&self) -> Vec<Prefix> {
        self.subnets.iter().map(|subnet| subnet.prefix).collect()
    }

    /// True when podnet gives no addresses on this network and so cannot check them.
    pub fn addressless(&self) -> bool {
        self.subnets.is_empty()
    }

    /// The next hop of a family on a routed network.
    pub fn next_hop(&self, v4: bool) -> IpAddr {
        self.subnets
            .iter()
            .filter_map(|subnet| subnet.gateway)
            .find(|gateway| gateway.is_ipv4() == v4)
            .unwrap_or(if v4 {
                IpAddr::V4(GATEWAY_V4)
            } else {
                IpAddr::V6(GATEWAY_V6)
            })
    }
}

/// An address and where it is from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The address.
    pub address: IpAddr,
    /// Its subnet.
    pub prefix: Prefix,
    /// The subnet's gateway.
    pub gateway: Option<IpAddr>,
}

/// The namespace of the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// `CNI_NETNS` as given.
    pub path: String,
    /// Device number of the nsfs inode.
    pub dev: u64,
    /// Number of the nsfs inode.
    pub ino: u64,
}

/// The host end of the link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostEnd {
    /// Interface name.
    pub name: String,
    /// Interface index; with the name it says that the link is still the one meant.
    pub ifindex: u32,
}

/// Default routes of the pod through an attachment, by family.
///
/// An empty list is the network's own gateway; else these are, the first preferred.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredDefaultRoutes", into = "StoredDefaultRoutes")]
pub struct DefaultRoutes {
    /// Of IPv4.
    pub v4: Option<Vec<IpAddr>>,
    /// Of IPv6.
    pub v6: Option<Vec<IpAddr>>,
}

/// Default routes as stored: one flag where it says all, as older records have it.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredDefaultRoutes {
    Both(bool),
    Each {
        v4: Option<Vec<IpAddr>>,
        v6: Option<Vec<IpAddr>>,
    },
}

impl From<StoredDefaultRoutes> for DefaultRoutes {
    fn from(stored: StoredDefaultRoutes) -> Self {
        match stored {
            StoredDefaultRoutes::Both(both) => both.into(),
            StoredDefaultRoutes::Each { v4, v6 } => Self { v4, v6 },
        }
    }
}

impl From<DefaultRoutes> for StoredDefaultRoutes {
    fn from(routes: DefaultRoutes) -> Self {
        for both in [false, true] {
            if routes == both.into() {
                return Self::Both(both);
            }
        }
        let DefaultRoutes { v4, v6 } = routes;
        Self::Each { v4, v6 }
    }
}

impl From<bool> for DefaultRoutes {
    /// Of both families by the network's own gateways, or none.
    fn from(both: bool) -> Self {
        let routes = both.then(Vec::new);
        Self {
            v4: routes.clone(),
            v6: routes,
        }
    }
}

impl DefaultRoutes {
    /// Returns the routes of one family.
    pub const fn of(&self, v4: bool) -> Option<&Vec<IpAddr>> {
        if v4 {
            self.v4.as_ref()
        } else {
            self.v6.as_ref()
        }
    }

    /// Returns the routes of one family, to be changed.
    pub const fn of_mut(&mut self, v4: bool) -> &mut Option<Vec<IpAddr>> {
        if v4 { &mut self.v4 } else { &mut self.v6 }
    }

    /// True when no default route goes through the attachment.
    pub const fn is_none(&self) -> bool {
        self.v4.is_none() && self.v6.is_none()
    }
}

/// One decision taken for an attachment, for `explain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// About what.
    pub about: String,
    /// Value that was decided.
    pub value: String,
    /// Why.
    pub because: String,
}

impl Decision {
    /// A decision.
    pub fn new(about: &str, value: &(impl ToString + ?Sized), because: &str) -> Self {
        Self {
            about: about.to_owned(),
            value: value.to_string(),
            because: because.to_owned(),
        }
    }
}

/// Identity of the pod, as Kubernetes runtimes give it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodIdentity {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID, if the runtime gave one.
    pub uid: Option<String>,
}

impl From<PodRef> for PodIdentity {
    fn from(pod: PodRef) -> Self {
        Self {
            namespace: pod.namespace,
            name: pod.name,
            uid: pod.uid,
        }
    }
}

/// A device that the kubelet has given to a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The resource it counts for.
    pub resource: String,
    /// Its name.
    pub id: String,
}

/// Name of a PodNetworkAttachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl std::fmt::Display for ObjectRef {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

/// Veth pair of the node that delays the pod's packets, named after the host end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shaper {
    /// Index of the end with the queue.
    pub near: u32,
    /// Index of the end where packets are handed back.
    pub far: u32,
    /// True while the pod's packets go there.
    ///
    /// While it is being made or runs empty, the far end only forwards what comes out.
    pub used: bool,
}

/// An attachment: one record, all its leases in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    /// Container and interface.
    pub key: AttachmentKey,
    /// How far it is.
    pub state: State,
    /// `name` of the CNI network configuration, which `GC` goes by.
    pub cni_network: String,
    /// Digest of what was asked, to know a repeated `ADD` again.
    pub request_digest: String,
    /// The network.
    pub network: NetworkFacts,
    /// The pod.
    pub pod: Option<PodIdentity>,
    /// Labels of the pod that the CNI configuration gave it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// MAC address in the pod.
    #[serde(with = "mac_text")]
    pub mac: MacAddr,
    /// Addresses in the pod.
    pub leases: Vec<Lease>,
    /// The pod's namespace.
    pub sandbox: Sandbox,
    /// The host end of the link.
    pub host: HostEnd,
    /// Index of its counters.
    pub port_id: u16,
    /// The pod's default routes that go here.
    pub default_gateway: DefaultRoutes,
    /// Resolver settings that the result repeats.
    pub nameservers: Vec<String>,
    /// Why it is as it is.
    pub decisions: Vec<Decision>,
    /// The PodNetworkAttachment it was made by, whose rates it follows.
    #[serde(default)]
    pub object: Option<ObjectRef>,
    /// Rates that the runtime asked for, which no object changes.
    #[serde(default)]
    pub asked: Limits,
    /// Rates it shall have.
    #[serde(default)]
    pub limits: Limits,
    /// Interface of its port.
    #[serde(default, skip_serializing_if = "api::Interface::is_veth")]
    pub interface: api::Interface,
    /// The device of Kubernetes that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Device>,
    /// Where its socket is, of a port that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_path: Option<PathBuf>,
    /// Ports of the node that lead to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_ports: Vec<HostPort>,
    /// True when somebody's queue at the host end holds the packets to the pod.
    #[serde(default)]
    pub queued: bool,
    /// Where packets from the pod wait.
    #[serde(default)]
    pub shaper: Option<Shaper>,
}

impl Attachment {
    /// True when the port is a socket of AF_XDP.
    pub fn is_afxdp(&self) -> bool {
        self.interface.kind == InterfaceKind::AfXdp
    }

    /// True when the switch serves the port, as a socket of memif.
    pub fn is_switched(&self) -> bool {
        self.interface.kind == InterfaceKind::Memif
    }

    /// True when packets to the pod go through the queue of its host end.
    ///
    /// They are those that its rate holds back, copies for a whole network, those that the node routes,
    /// those that an XDP program shall see, and those to the node itself, as `bpf_redirect_peer` leads to another
    /// namespace only. Others go straight to the pod's end.
    pub fn host_end_queues(&self) -> bool {
        self.limits.ingress.is_some()
            || !self.network.routed
            || self.network.by_node
            || self.is_afxdp()
            || self.is_of_node()
    }

    /// Prefix length of an address: its own on a routed network, else the subnet's.
    pub fn prefix_len(&self, lease: &Lease) -> u8 {
        if self.network.routed || self.is_of_node() {
            lease.prefix.max_prefix_len()
        } else {
            lease.prefix.prefix_len()
        }
    }

    /// The next hop for traffic that leaves the subnet of this lease.
    pub fn gateway(&self, lease: &Lease) -> Option<IpAddr> {
        if self.network.routed {
            Some(self.network.next_hop(lease.address.is_ipv4()))
        } else {
            lease.gateway
        }
    }

    /// Builds the result of `ADD`.
    ///
    /// # Errors
    /// Never for a record of ours; the type of a prefix length says otherwise.
    pub fn result(&self) -> Result<CniResult, SpecError> {
        let mtu = Some(u32::from(self.network.mtu));
        let interfaces = vec![
            Interface {
                name: self.key.ifname.to_string(),
                mac: Some(self.mac.to_string()),
                mtu,
                sandbox: Some(self.sandbox.path.clone()),
                socket_path: self.socket_path.as_ref().map(|it| it.display().to_string()),
                ..Interface::default()
            },
            Interface {
                name: self.host.name.clone(),
                mtu,
                ..Interface::default()
            },
        ];
        let ips = self
            .leases
            .iter()
            .map(|lease| {
                Ok(IpConfig {
                    address: IpPrefix::new(lease.address, self.prefix_len(lease))?,
                    gateway: self.gateway(lease),
                    interface: Some(0),
                })
            })
            .collect::<Result<_, SpecError>>()?;
        let routes = self
            .routes()
            .into_iter()
            .map(|route| {
                let to = IpPrefix::new(route.to.addr(), route.to.prefix_len())?;
                Ok(Route {
                    priority: route.metric,
                    ..Route::new(to, route.via)
                })
            })
            .collect::<Result<_, SpecError>>()?;
        let dns = Dns {
            nameservers: self.nameservers.clone(),
            ..Dns::default()
        };
        Ok(CniResult {
            interfaces,
            ips,
            routes,
            dns,
        })
    }
}

#[cfg(test)]
mod tests;
