//! Failures of the book: what cannot be given, and what cannot be recorded.

use std::net::IpAddr;
use std::path::PathBuf;

use agent_common::addr::MacAddr;
use ipam::IpamError;
use store::StoreError;

use super::host_ports::HostPort;
use super::refusal::AddressError;

/// An attachment cannot be booked, or a record cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// The network's number changed while it is in use.
    #[error(
        "network {network} is in use with another networkID: remove its attachments first, or undo \
         the change"
    )]
    IdChanged {
        /// The network.
        network: String,
    },
    /// The network's mode changed while it is in use.
    #[error(
        "network {network} is in use with another mode: remove its attachments first, or undo the \
         change"
    )]
    ModeChanged {
        /// The network.
        network: String,
    },
    /// The network's routing changed while it is in use.
    #[error(
        "network {network} is in use with another routing: remove its attachments first, or undo \
         the change"
    )]
    RoutingChanged {
        /// The network.
        network: String,
    },
    /// The network's transport changed while it is in use.
    #[error(
        "network {network} is in use with another transport: remove its attachments first, or undo \
         the change"
    )]
    TransportChanged {
        /// The network.
        network: String,
    },
    /// The network got its first subnet, or lost its last, while it is in use.
    #[error(
        "network {network} is in use with another choice of having subnets or none: remove its \
         attachments first, or undo the change"
    )]
    SubnetsChanged {
        /// The network.
        network: String,
    },
    /// Another network that is in use has what this one wants of an uplink.
    #[error(
        "network {network} wants {clash} on uplink {uplink}, and network {owner}, which is in use, has that: give each its own"
    )]
    UplinkTaken {
        /// The network.
        network: String,
        /// The network that has it.
        owner: String,
        /// The interface.
        uplink: String,
        /// The part that both want.
        clash: api::Clash,
    },
    /// Two networks have one number.
    #[error(
        "networkID {id} of network {network} belongs to network {owner} already: choose another"
    )]
    IdTaken {
        /// The number.
        id: u32,
        /// The network that asks.
        network: String,
        /// The network that has it.
        owner: String,
    },
    /// No number is left.
    #[error("no network number is free: set spec.networkID of network {network}")]
    NoId {
        /// The network.
        network: String,
    },
    /// No address of the network can be given, or not the one that is asked for.
    #[error("network {network}: {source}")]
    Address {
        /// The network.
        network: String,
        /// The reason.
        source: IpamError,
    },
    /// The cluster gives no address, or not the one that is asked for.
    #[error(transparent)]
    Refused(Box<AddressError>),
    /// The requested MAC address is in use on the network.
    #[error("network {network}: {mac} is held by another attachment; request another MAC address")]
    MacHeld {
        /// The network.
        network: String,
        /// The address.
        mac: MacAddr,
    },
    /// Another attachment has the port of the node.
    #[error(
        "portMappings: host port {port} is held by {holder}, as {other}: choose another hostPort"
    )]
    HostPortHeld {
        /// The port.
        port: HostPort,
        /// The port of the holder that excludes it.
        other: HostPort,
        /// The pod that has it.
        holder: String,
    },
    /// One pod asks for a port of the node twice.
    #[error(
        "portMappings: host port {port} is asked for twice, also as {other}: give each mapping a hostPort of its own"
    )]
    HostPortTwice {
        /// The port.
        port: HostPort,
        /// The same in another mapping.
        other: HostPort,
    },
    /// A port of the node leads to a family of which the pod has no address.
    #[error(
        "portMappings: host port {port}: the pod has no address of the family of hostIP on the network: \
         remove hostIP, or give the network a subnet of that family"
    )]
    HostPortFamily {
        /// The port.
        port: HostPort,
    },
    /// One pod asks for more ports of the node than one may have.
    #[error(
        "portMappings: {wanted} host ports are asked for, and a pod can have {max}: remove some, or divide them among pods"
    )]
    HostPortsOfPod {
        /// How many are asked for.
        wanted: usize,
        /// How many a pod can have.
        max: usize,
    },
    /// The pods of a network have as many ports of the node as they may have.
    #[error(
        "portMappings: {wanted} host ports are asked for, and pods of network {network} have {held} of the {max} \
         that one network can have on a node: attach the pod on another node"
    )]
    HostPortsOfNetwork {
        /// The network.
        network: String,
        /// How many are asked for.
        wanted: usize,
        /// How many there are.
        held: usize,
        /// How many there can be.
        max: usize,
    },
    /// The node has as many mapped ports as it can have.
    #[error(
        "portMappings: {wanted} host ports are asked for, and the node has {held} of the {max} it can have: \
         attach the pod on another node"
    )]
    NoHostPort {
        /// How many are asked for.
        wanted: usize,
        /// How many there are.
        held: usize,
        /// How many there can be.
        max: usize,
    },
    /// The node's tables are full.
    #[error("the node has all the {max} ports it can have: raise --max-ports")]
    NoPort {
        /// Number of ports.
        max: u16,
    },
    /// An address of the network is in no subnet.
    ///
    /// A record of ours never has such an address.
    #[error("address {ip} has no subnet on network {network}")]
    Orphan {
        /// The address.
        ip: IpAddr,
        /// The network.
        network: String,
    },
    /// The allocator of a network is missing right after it was made.
    #[error("an internal task failed: allocator; {}", telemetry::FAULT)]
    NoAllocator,
    /// Too many of the records in the store cannot be used.
    #[error(
        "{bad} of {all} records cannot be used, the first is {key}: {reason}; start the agent that wrote \
         them, or move the store away: the agent then detaches all pods of this node"
    )]
    Unreadable {
        /// Number of those.
        bad: usize,
        /// Number of all.
        all: usize,
        /// Key of the first.
        key: String,
        /// Fault of the first.
        reason: String,
    },
    /// The boot of the records cannot be written down.
    #[error("cannot write {}, which says of which boot the records are: make room there", path.display())]
    Boot {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A record cannot be read or written as JSON.
    #[error("the record of {key} is not readable: {source}")]
    Record {
        /// The key.
        key: String,
        /// The fault.
        source: serde_json::Error,
    },
    /// A record could not be written.
    #[error("the attachment record could not be written: {source}")]
    Store {
        /// The reason.
        #[from]
        source: StoreError,
    },
}

impl From<AddressError> for BookError {
    fn from(error: AddressError) -> Self {
        Self::Refused(Box::new(error))
    }
}
