//! Failures of requests, by what a person has to do about them.
//!
//! Each room has an error of its own; [`AgentError`] wraps them, and has those of the engine and of the
//! front ends. No room below the engine returns it.

mod explain;

use std::net::IpAddr;
use std::path::PathBuf;

use api::nad::{BrokenFile, DefinitionError};
use api::selection::{NamespaceIsolated, SelectionErrors};
use api::{FieldErrors, InterfaceKind, Listed};
use cni_spec::{AttachmentKey, IfName, SpecError};
use datapath::DatapathError;
use delegate::error::DelegateError;
use store::StoreError;
use world::{Unread, WorldError};

pub use self::explain::ExplainError;
use book::host_ports::HostPort;
use book::{AddressError, BookError};
use host::HostError;
use ports::PortError;
use reach::ReachError;

use crate::devices::assigned::AssignedError;
use crate::kube::{AccessError, ClusterError, LookupError};

/// A request could not be served.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The request itself is wrong.
    #[error(transparent)]
    Request(#[from] SpecError),
    /// The objects that users write do not say what is asked of them.
    #[error(transparent)]
    World(#[from] WorldError),
    /// The attachment cannot be booked or recorded.
    #[error(transparent)]
    Book(#[from] BookError),
    /// The cluster does not give, or does not say, what is needed.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The port cannot be made, mended or removed.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The network cannot leave this node.
    #[error(transparent)]
    Reach(#[from] ReachError),
    /// The kernel refused.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Host ports are asked of a network that the node does not route for.
    #[error(
        "unsupported runtimeConfig.portMappings: host port {host} to {container}: host ports are mapped \
         for pods whose first network has routing Node or egress Masquerade: use one, or remove the mapping"
    )]
    HostPortOfRuntime {
        /// Port of the node.
        host: u16,
        /// Port of the pod.
        container: u16,
    },
    /// Ranges of addresses are asked for.
    #[error(
        "unsupported runtimeConfig.ipRanges: {count} ranges: addresses come from spec.subnets of the \
         network: remove the ranges"
    )]
    Ranges {
        /// Number of them.
        count: usize,
    },
    /// Host ports are asked for in the pod's list.
    #[error(
        "unsupported portMappings: host port {host} to {container}: a pod's list, which Pod Security does not \
         look at, gets none: remove the mapping, and write hostPort in the container"
    )]
    HostPortOfList {
        /// Port of the node.
        host: u16,
        /// Port of the pod.
        container: u16,
    },
    /// A mapping of a host port is of a kind that podnet does not make.
    #[error("unsupported portMappings: host port {host} to {container}: {reason}")]
    HostPortKind {
        /// Port of the node.
        host: u16,
        /// Port of the pod.
        container: u16,
        /// Part that is not supported, and the remedy.
        reason: &'static str,
    },
    /// A program of the node listens at a host port.
    #[error(
        "portMappings: host port {port} is in use by a program of the node: choose another hostPort"
    )]
    HostPortServed {
        /// The port.
        port: HostPort,
    },
    /// The hostIP is no address of the node.
    #[error(
        "portMappings: host port {port}: the node does not have the address: write one of its own as hostIP, or none"
    )]
    HostPortAddress {
        /// The port.
        port: HostPort,
    },
    /// The host port would be one of addresses of Services.
    #[error(
        "portMappings: host port {port}: addresses of Services are on interface {link} of this node, as kube-proxy of mode ipvs puts them there, and their clients would reach the pod: write another address of the node as hostIP"
    )]
    HostPortOfServices {
        /// The port.
        port: HostPort,
        /// The interface.
        link: &'static str,
    },
    /// The operator keeps a host port from pods, or tunnels come by it.
    #[error(
        "portMappings: host port {port} is in the range {range}: choose a hostPort outside of it"
    )]
    HostPortReserved {
        /// The port.
        port: HostPort,
        /// The range, and the option that has it.
        range: String,
    },
    /// The node does not tell whether a program of it listens at a host port.
    #[error(
        "portMappings: host port {port}: the node does not tell whether a program uses it, and nothing is mapped: \
         {source}: mend that, or remove the hostPort"
    )]
    HostPortLook {
        /// The port.
        port: HostPort,
        /// The kernel's answer to a socket there.
        source: std::io::Error,
    },
    /// An InfiniBand GUID is asked for.
    #[error(
        "unsupported infiniband-guid: {guid}: podnet's networks are Ethernet: remove it from the pod's \
         list"
    )]
    InfiniBand {
        /// The GUID.
        guid: String,
    },
    /// A port that is a socket is asked of the network that the node routes for.
    #[error(
        "unsupported interface.type: {kind}: the node reaches pods of this network by their interfaces: \
         write Veth, or name a network with routing Isolated"
    )]
    InterfaceOfNodeNetwork {
        /// The type.
        kind: InterfaceKind,
    },
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
    /// `isDefaultGateway` on a network without a gateway.
    #[error(
        "isDefaultGateway is true and network {network} has no gateway: set spec.gateway of its PodNetworkParameters"
    )]
    NoGateway {
        /// The network.
        network: String,
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
        /// Faults of the attachment.
        faults: Vec<String>,
    },
    /// No namespace came with the request.
    #[error(
        "CNI_NETNS {path} could not be opened by the plugin: see that the namespace is there, and that the plugin runs as root in the mount namespace of the runtime; a sandbox without one has to be made again"
    )]
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
    /// The container is the one that ports of the node itself are of.
    #[error(
        "containers {}* are those of the node's own ports on networks, which no runtime makes or removes: use another CNI_CONTAINERID",
        book::access::CONTAINERS
    )]
    NodeContainer,
    /// The file of a `DEL` that was carried out stays.
    #[error("cannot remove {}", path.display())]
    Tombstone {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// An earlier `DEL` has yet to be carried out, and the key is asked for again.
    ///
    /// The runtime has been told that it is done.
    #[error("an earlier DEL of {key} could not be carried out yet: {why}; try again later")]
    Waiting {
        /// Container and interface.
        key: AttachmentKey,
        /// Cause of the delay.
        why: String,
    },
    /// The options of `explain` do not describe a packet to follow.
    #[error(transparent)]
    Explain(#[from] ExplainError),
    /// Programs are missing on live ports.
    #[error(
        "programs are missing at {ports} live ports; the audit attaches them within 30 s, and logs an error where it cannot"
    )]
    Impaired {
        /// How many.
        ports: usize,
    },
    /// Several removals failed.
    #[error("{} attachments could not be removed or mended: {}", errors.len(), Listed::new(errors))]
    Collect {
        /// Each failure.
        errors: Vec<AgentError>,
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
        "no network of the pod is for {interface}: list one in podnet.dev/networks, name a NIC {interface}, or give the \
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
    /// A network that is not of the VPC of the pod's NICs.
    #[error(
        "network {network} is not of Vpc {vpc}: name one whose parameters have spec.vpc {vpc}, or correct podnet.dev/vpc"
    )]
    NotOfVpc {
        /// The network.
        network: String,
        /// The VPC.
        vpc: String,
    },
    /// A Port or a VPC, and a network of other plugins.
    #[error(
        "{what} is for networks of podnet, and this one is made by other plugins: name a PodNetwork with provider podnet.dev/ebpf"
    )]
    NetworkOfPlugins {
        /// The Port or the VPC.
        what: String,
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
        /// Fault of the definition.
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
    /// The default network would be Multus', which may take podnet for its own.
    #[error(
        "default network: {file} in --cni-conf-dir leads to {plugin}, and Multus may call podnet in turn; remove \
         the file once Multus' pod has left this node (docs/from-multus.md), let {file} name the network's own \
         plugins, or use --default-network podnetwork:NAME"
    )]
    MultusInDefaultChain {
        /// Name of the file.
        file: String,
        /// Type of the plugin.
        plugin: &'static str,
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
        /// Message of the plugin, or that it is not there.
        source: DelegateError,
    },
    /// One attachment of a pod failed; those before it were undone.
    #[error("attachment {number} of the pod, {member}: {source}")]
    Member {
        /// Its place in the pod's list, from 1.
        number: usize,
        /// Object that the attachment is to, and its interface.
        member: String,
        /// Why it failed.
        source: Box<AgentError>,
    },
    /// The attachment exists in another network namespace.
    #[error("{key} is attached already, with another network namespace: DEL it first")]
    OtherNamespace {
        /// The attachment.
        key: AttachmentKey,
    },
    /// The attachment exists with another configuration.
    #[error("{key} is attached already, with another configuration: DEL it first")]
    OtherConfiguration {
        /// The attachment.
        key: AttachmentKey,
    },
    /// The attachment exists, and has lost its link.
    #[error("{key} is attached already, and its link is gone: DEL it first")]
    LinkGone {
        /// The attachment.
        key: AttachmentKey,
    },
    /// The attachment exists, and is going away.
    #[error("{key} is attached already, and is being removed: DEL it first")]
    BeingRemoved {
        /// The attachment.
        key: AttachmentKey,
    },
    /// The agent is starting.
    #[error("podnet-agent is starting; try again later")]
    Starting,
    /// The plugins of the default network have not said that they are ready.
    #[error(
        "podnet-agent is waiting for the default network's plugins to say that they are ready; try again \
         later"
    )]
    DefaultNetworkWaits,
    /// An `ADD` has no container.
    #[error(
        "an internal task failed: ADD without a container; {}",
        telemetry::FAULT
    )]
    AddWithoutContainer,
    /// A request for a pod has no container.
    #[error(
        "an internal task failed: a request without a container; {}",
        telemetry::FAULT
    )]
    NoContainer,
    /// The device cannot be written into the configuration of a plugin.
    #[error(
        "an internal task failed: the device in a configuration; {}",
        telemetry::FAULT
    )]
    DeviceUntold,
    /// The interface of a request is none of a pod.
    #[error("an internal task failed: CNI_IFNAME; {}", telemetry::FAULT)]
    InterfaceName,
}

/// Errors of rooms by way of the room.
macro_rules! through {
    ($($error:ty => $room:ty),* $(,)?) => {
        $(impl From<$error> for AgentError {
            fn from(error: $error) -> Self {
                <$room>::from(error).into()
            }
        })*
    };
}

through!(
    netdev::Error => HostError,
    DatapathError => HostError,
    StoreError => BookError,
    AddressError => BookError,
    LookupError => ClusterError,
    AccessError => ClusterError,
);
