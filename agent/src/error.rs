//! What can go wrong with a request, by what a person has to do about it.

use std::net::IpAddr;
use std::path::PathBuf;

use agent_common::addr::MacAddr;
use api::nad::{BrokenFile, DefinitionError};
use api::selection::{NamespaceIsolated, SelectionErrors};
use api::{FieldErrors, Listed};
use cni_spec::{AttachmentKey, IfName, SpecError};
use datapath::DatapathError;
use delegate::error::DelegateError;
use ipam::IpamError;
use store::StoreError;
use world::{Unread, WorldError};

use crate::afxdp::AfXdpError;
use crate::bandwidth::Bits;
use crate::devices::assigned::AssignedError;
use crate::egress::EgressError;
use crate::explain::ExplainError;
use crate::kube::{AccessError, AddressError, LookupError};
use crate::overlay::OverlayError;
use crate::routing::NotRouting;
use crate::sockets::PlaceError;
use crate::switch::SwitchError;
use crate::wires::WireError;

/// A request could not be served.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The request itself is wrong.
    #[error(transparent)]
    Request(#[from] SpecError),
    /// The network or the attachment object cannot be used, or is not known yet.
    #[error(transparent)]
    World(#[from] WorldError),
    /// A feature that was asked for is not there.
    #[error("unsupported {key}: {value}: {why}")]
    Unsupported {
        /// The key in the configuration.
        key: String,
        /// Its value.
        value: String,
        /// What to do instead.
        why: &'static str,
    },
    /// A rate, on a kernel that cannot limit one.
    #[error(
        "{key} is {}/s and this kernel cannot limit rates: load its module sch_tbf and restart the \
         agent, or remove the rate", Bits(*rate)
    )]
    NoShaping {
        /// Where the rate is written.
        key: &'static str,
        /// bit/s.
        rate: u64,
    },
    /// The network spans nodes and this one cannot take part.
    #[error(transparent)]
    Overlay(#[from] OverlayError),
    /// The network has egress and no way out here.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// A port that is a socket cannot have its file.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The kubelet does not say which devices are the pod's.
    #[error(transparent)]
    Devices(#[from] AssignedError),
    /// A configuration names a device of somebody else.
    #[error(
        "deviceID {device}: the kubelet has not given this device of {resource} to the pod; have the pod \
         ask for {resource}, or leave deviceID out"
    )]
    NotItsDevice {
        /// The resource.
        resource: String,
        /// The device.
        device: String,
    },
    /// A port of type Memif, and no switch that serves it.
    #[error("{source}")]
    Switch {
        /// Why not.
        #[from]
        source: SwitchError,
    },
    /// The port cannot be one of AF_XDP.
    #[error(transparent)]
    AfXdp(#[from] AfXdpError),
    /// The network cannot have its uplink.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// `isDefaultGateway` on a network without a gateway.
    #[error(
        "isDefaultGateway is true and network {network} has no gateway: set spec.gateway of its PodNetworkParameters"
    )]
    NoGateway {
        /// The network.
        network: String,
    },
    /// The network's definition changed while it is in use.
    #[error(
        "network {network} is in use with another {what}: remove its attachments first, or undo the change"
    )]
    NetworkChanged {
        /// The network.
        network: String,
        /// What changed.
        what: &'static str,
    },
    /// Two networks with one number.
    #[error(
        "networkID {id} of network {network} belongs to network {owner} already: choose another"
    )]
    NetworkIdTaken {
        /// The number.
        id: u32,
        /// The network that asks.
        network: String,
        /// The network that has it.
        owner: String,
    },
    /// No numbers left.
    #[error("no network number is free: set spec.networkID of network {network}")]
    NoNetworkId {
        /// The network.
        network: String,
    },
    /// No address, or not this one.
    #[error("network {network}: {source}")]
    Address {
        /// The network.
        network: String,
        /// Why not.
        source: IpamError,
    },
    /// The requested MAC address is in use on the network.
    #[error("network {network}: {mac} is held by another attachment; request another MAC address")]
    MacHeld {
        /// The network.
        network: String,
        /// The address.
        mac: MacAddr,
    },
    /// The node's tables are full.
    #[error("this node has all the {max} ports it can have: raise --max-ports")]
    NoPort {
        /// How many.
        max: u16,
    },
    /// The attachment exists and is not what this request asks for.
    #[error("{key} is attached already, with another {what}: DEL it first")]
    AlreadyAttached {
        /// The attachment.
        key: AttachmentKey,
        /// What differs.
        what: &'static str,
    },
    /// Nothing is known of the attachment.
    #[error("{key} is not attached")]
    NotAttached {
        /// The attachment.
        key: AttachmentKey,
    },
    /// The attachment is not as it was made.
    #[error("{key} is damaged: {}", Listed::new(faults))]
    Damaged {
        /// The attachment.
        key: AttachmentKey,
        /// What is wrong.
        faults: Vec<String>,
    },
    /// No namespace came with the request.
    #[error("CNI_NETNS {path} could not be opened by the plugin")]
    NoNetns {
        /// The path.
        path: String,
    },
    /// The namespace is the node's own.
    #[error("CNI_NETNS {path} is the node's own network namespace")]
    HostNetns {
        /// The path.
        path: String,
    },
    /// Netlink refused.
    #[error("{source}")]
    Netdev {
        /// Why.
        #[from]
        source: netdev::Error,
    },
    /// The datapath refused.
    #[error("{source}")]
    Datapath {
        /// Why.
        #[from]
        source: DatapathError,
    },
    /// Of the records in the store too many cannot be used.
    #[error(
        "{bad} of {all} records cannot be used, the first is {key}: {reason}; start the agent that wrote \
         them, or move the store away: the agent then detaches all pods of this node"
    )]
    Unreadable {
        /// How many.
        bad: usize,
        /// Of how many.
        all: usize,
        /// The first.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Which boot the records are of cannot be written down.
    #[error("cannot write {}, which says of which boot the records are: make room there", path.display())]
    Boot {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file of a `DEL` that was carried out stays.
    #[error("cannot remove {}", path.display())]
    Tombstone {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A `DEL` that the runtime has been told is done has yet to be, and the key is asked for again.
    #[error("an earlier DEL of {key} could not be carried out yet: {why}; try again later")]
    Waiting {
        /// Container and interface.
        key: AttachmentKey,
        /// What keeps it.
        why: String,
    },
    /// The record could not be written.
    #[error("the attachment record could not be written: {source}")]
    Store {
        /// Why.
        #[from]
        source: StoreError,
    },
    /// The agent is starting or stopping.
    #[error("podnet-agent is {what}; try again later")]
    NotReady {
        /// What it does.
        what: &'static str,
    },
    /// The pod could not be looked up.
    #[error("{source}")]
    Pod {
        /// Why not.
        #[from]
        source: LookupError,
    },
    /// No address, or not this one, in a cluster.
    #[error("{source}")]
    Addresses {
        /// Why not.
        #[from]
        source: AddressError,
    },
    /// What was written does not describe a packet to follow.
    #[error(transparent)]
    Explain(#[from] ExplainError),
    /// The node does not route for the network, or not yet.
    #[error("{source}")]
    NotRouting {
        /// Why not.
        #[from]
        source: NotRouting,
    },
    /// The pod may not use a network, or nobody says that it may.
    #[error("{source}")]
    Access {
        /// Why not.
        #[from]
        source: AccessError,
    },
    /// Programs are missing on live ports.
    #[error("the datapath of {ports} live ports is damaged")]
    Impaired {
        /// How many.
        ports: usize,
    },
    /// No address is left for the next attachment.
    #[error("network {network} has no free address of family {family}")]
    PoolEmpty {
        /// The network.
        network: String,
        /// IPv4 or IPv6.
        family: ipam::Family,
    },
    /// Several removals failed.
    #[error("{} attachments could not be removed or mended: {}", errors.len(), Listed::new(errors))]
    Collect {
        /// Each failure.
        errors: Vec<AgentError>,
    },
    /// A record cannot be read or written as JSON.
    #[error("the record of {key} is not readable: {source}")]
    Record {
        /// The key.
        key: String,
        /// Why.
        source: serde_json::Error,
    },
    /// An address of the network outside every subnet; a record of ours never has one.
    #[error("address {ip} has no subnet on network {network}")]
    Orphan {
        /// The address.
        ip: IpAddr,
        /// The network.
        network: String,
    },
    /// The runtime sent no annotations of the pod, and there is nobody else to ask.
    #[error(
        "the runtime sent no annotations of pod {namespace}/{name}: declare the capability \
         io.kubernetes.cri.pod-annotations in the network configuration"
    )]
    NoAnnotations {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        name: String,
    },
    /// The configuration names an object of another namespace.
    #[error("podNetworkAttachment: {source}")]
    Isolated {
        /// Which.
        #[from]
        source: NamespaceIsolated,
    },
    /// The pod's lists of networks cannot be understood.
    #[error("{source}")]
    Selection {
        /// All that is wrong.
        #[from]
        source: SelectionErrors,
    },
    /// The pod's lists leave nothing for the interface the runtime asks for.
    #[error(
        "no network of the pod is for {interface}: list one in podnet.dev/networks, or give the \
         agent a --default-network"
    )]
    NoPrimary {
        /// The interface.
        interface: IfName,
    },
    /// A pod on the same network of the KEP twice (KEP-POD-12).
    #[error(
        "PodNetwork {network} is in podnet.dev/networks twice, by a PodNetworkAttachment: keep one"
    )]
    NetworkTwice {
        /// The network.
        network: String,
    },
    /// An interface of the name is in the pod already, and is not ours.
    #[error("the pod has an interface {ifname} already; choose another name")]
    NameTaken {
        /// The name.
        ifname: String,
    },
    /// A gateway that the attachment cannot reach.
    #[error(
        "default-route {gateway} is no neighbour on network {network}: use an address of its subnets"
    )]
    GatewayOutside {
        /// The gateway.
        gateway: IpAddr,
        /// The network.
        network: String,
    },
    /// Routes of an attachment that its network has no way for.
    #[error("network {network} cannot have the routes that are asked of the attachment: {errors}")]
    Routes {
        /// The network.
        network: String,
        /// Each of them.
        errors: FieldErrors,
    },
    /// No such NetworkAttachmentDefinition.
    #[error(
        "NetworkAttachmentDefinition {namespace}/{name} does not exist; create it, or correct the \
         name{}",
        Unread(broken)
    )]
    NoDefinition {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
        /// Manifests that could not be read, which may be where the object is.
        broken: Vec<String>,
    },
    /// A NetworkAttachmentDefinition that cannot be understood.
    #[error("{source}")]
    Definition {
        /// What is wrong.
        #[from]
        source: DefinitionError,
    },
    /// The configuration on disk that is meant cannot be used.
    #[error("{source}")]
    OnDisk {
        /// Which, and why not.
        #[from]
        source: BrokenFile,
    },
    /// The directory of configurations cannot be read.
    #[error("cannot read --cni-conf-dir {}", path.display())]
    ConfDir {
        /// The directory.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The default network is another plugin's, and that one is not installed yet.
    #[error(
        "no default network yet: {} has no CNI configuration but podnet's own; install a network \
         plugin, or use --default-network podnetwork:NAME", path.display()
    )]
    NoDefaultNetwork {
        /// Where configurations are looked for.
        path: PathBuf,
    },
    /// A chain in which podnet would call itself.
    #[error(
        "network {network} has podnet among other plugins: name a PodNetwork, or leave podnet out"
    )]
    OwnPluginInChain {
        /// `name` of the configuration.
        network: String,
    },
    /// The file in which plugins describe a device cannot be made.
    #[error("cannot make way for the device-info file below /var/run/k8s.cni.cncf.io")]
    DeviceInfo {
        /// Why not.
        source: std::io::Error,
    },
    /// Other plugins did not do their part.
    #[error("{source}")]
    Delegate {
        /// Which, and why not.
        #[from]
        source: DelegateError,
    },
    /// The host ports of a pod could not be mapped, or not be taken away.
    #[error("host ports (runtimeConfig.portMappings): {source}")]
    HostPorts {
        /// What the plugin says, or that it is not there.
        source: DelegateError,
    },
    /// One attachment of a pod failed; those before it were undone.
    #[error("attachment {number} of the pod, {member}: {source}")]
    Member {
        /// Its place in the pod's list, from 1.
        number: usize,
        /// What it is to, and its interface.
        member: String,
        /// Why it failed.
        source: Box<AgentError>,
    },
    /// A task died.
    #[error("an internal task failed: {what}")]
    Internal {
        /// Which.
        what: &'static str,
    },
}
