//! What can go wrong with a request, by what a person has to do about it.

use std::net::IpAddr;

use agent_common::addr::MacAddr;
use api::ResolveError;
use cni_spec::{AttachmentKey, SpecError};
use datapath::DatapathError;
use ipam::IpamError;
use store::StoreError;

use crate::bandwidth::Bits;

/// A request could not be served.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The request itself is wrong.
    #[error(transparent)]
    Request(#[from] SpecError),
    /// The network or the attachment object cannot be used.
    #[error("{source}{}", hint(broken))]
    Resolve {
        /// Why not.
        source: Box<ResolveError>,
        /// Manifests that could not be read, which may be where the object is.
        broken: Vec<String>,
    },
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
    #[error("{key} is damaged: {}", faults.join("; "))]
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
    #[error("{} attachments could not be removed or mended: {}", errors.len(), join(errors))]
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
    /// A task died.
    #[error("an internal task failed: {what}")]
    Internal {
        /// Which.
        what: &'static str,
    },
}

fn hint(broken: &[String]) -> String {
    if broken.is_empty() {
        String::new()
    } else {
        format!(
            " (these manifests could not be read: {})",
            broken.join("; ")
        )
    }
}

fn join(errors: &[AgentError]) -> String {
    errors
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

/// An error and what caused it, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
