//! Why an attachment got no address in a cluster.

use std::net::IpAddr;

use agent_common::addr::MacAddr;
use api::Holder;
use ipam::IpamError;

use super::ledger::ClaimRef;

/// No address, or not the one that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// Reserved for another.
    #[error("network {network}: {ip} is reserved for {holder}; request another address")]
    Reserved {
        /// The network.
        network: String,
        /// The address.
        ip: IpAddr,
        /// Holder of the address.
        holder: String,
    },
    /// The node with the block has given it already.
    #[error("network {network}: {ip} is in use: {message}; request another address")]
    InUse {
        /// The network.
        network: String,
        /// The address.
        ip: IpAddr,
        /// Message of that node.
        message: String,
    },
    /// The node with the block has not answered.
    #[error(
        "network {network}: {ip} has to be granted by {}, which has not answered; try again later",
        node.as_deref().map_or_else(|| "the node with its block".to_owned(), |node| format!("node {node}"))
    )]
    NotGranted {
        /// The network.
        network: String,
        /// The address.
        ip: IpAddr,
        /// The node, where it is known.
        node: Option<String>,
    },
    /// All blocks are used up, and there is no further one.
    #[error("network {network}: {source}, and there is no further block: {why}; try again later")]
    NoBlock {
        /// The network.
        network: String,
        /// Exhausted pool.
        source: IpamError,
        /// Why there is no other.
        why: String,
    },
    /// The request names no pod to reserve an address for.
    #[error(
        "{ip} has to be reserved in the cluster, and the request names no pod: give K8S_POD_NAMESPACE, K8S_POD_NAME and K8S_POD_UID in CNI_ARGS"
    )]
    NoPod {
        /// The address.
        ip: IpAddr,
    },
    /// The grant of an address cannot be verified.
    #[error("cannot have {ip} of network {network} granted: {why}; try again later")]
    GrantUnknown {
        /// The address.
        ip: IpAddr,
        /// The network.
        network: String,
        /// The API server's words, or those of the connection to it.
        why: String,
    },
    /// The reservation cannot be made.
    #[error("cannot reserve {ip} on network {network}: {why}; try again later")]
    NotReserved {
        /// The address.
        ip: IpAddr,
        /// The network.
        network: String,
        /// The API server's words, or those of the connection to it.
        why: String,
    },
    /// The node that holds the block of an address cannot be found.
    #[error(
        "cannot find out which node holds the block of {ip} on network {network}: {why}; try again later"
    )]
    NodeUnknown {
        /// The address.
        ip: IpAddr,
        /// The network.
        network: String,
        /// The API server's words, or those of the connection to it.
        why: String,
    },
    /// The claim is changed by others again and again.
    #[error("cannot write the addresses of {claim}: {why}; try again later")]
    ClaimContended {
        /// The claim.
        claim: ClaimRef,
        /// The reason.
        why: String,
    },
    /// The claim cannot be read.
    #[error("cannot read {claim}: {why}; try again later")]
    ClaimUnread {
        /// The claim.
        claim: ClaimRef,
        /// The API server's words, or those of the connection to it.
        why: String,
    },
    /// The status of the claim cannot be written.
    #[error("cannot write status.ips of {claim}: {why}; try again later")]
    ClaimUnwritten {
        /// The claim.
        claim: ClaimRef,
        /// The API server's words, or those of the connection to it.
        why: String,
    },
    /// The claim does not exist (NPWG §8).
    #[error("{claim} does not exist; create it, and the pod will start with its next attempt")]
    ClaimAbsent {
        /// The claim.
        claim: ClaimRef,
    },
    /// The claim is going away (NPWG §8).
    #[error("{claim} is being deleted; create it again")]
    ClaimDeleted {
        /// The claim.
        claim: ClaimRef,
    },
    /// The claim is of another network (NPWG §8).
    #[error(
        "{claim}: spec.network is {found} and the attachment is to network {network}; refer \
         to a claim of that network"
    )]
    ClaimOfAnother {
        /// The claim.
        claim: ClaimRef,
        /// Its network.
        found: String,
        /// The network of the attachment.
        network: String,
    },
    /// The status of the claim lists something else than addresses (NPWG §8).
    #[error("{claim}: \"{text}\" in status.ips is no address; correct it, or remove all")]
    ClaimUnparsed {
        /// The claim.
        claim: ClaimRef,
        /// The value.
        text: String,
    },
    /// The claim has other addresses than the attachment asks for (NPWG §8).
    #[error("{claim}: the pod asks for {ip} too, and the claim has other addresses; remove ips")]
    ClaimDiffers {
        /// The claim.
        claim: ClaimRef,
        /// The address.
        ip: IpAddr,
    },
    /// A Port is another pod's.
    #[error(
        "{claim} is that of {user}, which has not ended: delete that pod, or name another Port"
    )]
    PortInUse {
        /// The Port.
        claim: ClaimRef,
        /// The pod, with its node.
        user: String,
    },
    /// Whether the pod of a Port has ended is not known.
    #[error(
        "{claim} is that of {user}, and whether that has ended is not known: {why}; try again later"
    )]
    PortUserUnknown {
        /// The Port.
        claim: ClaimRef,
        /// The pod, with its node.
        user: String,
        /// The API server's words, or those of the connection to it.
        why: String,
    },
    /// A field of a Port is wrong.
    #[error("{claim}: {why}")]
    PortInvalid {
        /// The Port.
        claim: ClaimRef,
        /// The fields, each with what to write instead.
        why: String,
    },
    /// A Port has another MAC address than the attachment asks for.
    #[error(
        "{claim} has MAC address {found}, and the attachment asks for {asked} by {source_of}; remove one of them"
    )]
    PortMacDiffers {
        /// The Port.
        claim: ClaimRef,
        /// Its MAC address.
        found: MacAddr,
        /// The other one.
        asked: MacAddr,
        /// The object that asks for that.
        source_of: &'static str,
    },
    /// A Port, and no pod that could have it.
    #[error(
        "Port {port}: the request names no pod that could have it: give K8S_POD_NAMESPACE, K8S_POD_NAME and K8S_POD_UID in CNI_ARGS"
    )]
    PortWithoutPod {
        /// The Port.
        port: String,
    },
    /// A pod names a Port on a node without a cluster.
    #[error(
        "{claim}: the node has no cluster that keeps Ports; write macRequest and ipRequests instead"
    )]
    PortWithoutCluster {
        /// The Port.
        claim: ClaimRef,
    },
    /// A claim is of a network whose addresses are the node's (NPWG §8).
    #[error(
        "{claim}: addresses of network {network} are those of the node and cannot move: \
         remove the claim, or use a network without routing Node"
    )]
    ClaimOnNode {
        /// The claim.
        claim: ClaimRef,
        /// The network.
        network: String,
    },
}

impl AddressError {
    /// [`Self::Reserved`] for this holder.
    pub fn reserved(network: &str, ip: IpAddr, holder: &Holder) -> Self {
        Self::Reserved {
            network: network.to_owned(),
            ip,
            holder: holder.to_string(),
        }
    }

    /// [`Self::Reserved`] for another holder than the one that asks.
    ///
    /// That may be one of the same name, which was there before.
    pub fn reserved_before(network: &str, ip: IpAddr, holder: &Holder, asks: &Holder) -> Self {
        if holder.to_string() != asks.to_string() {
            return Self::reserved(network, ip, holder);
        }
        Self::Reserved {
            network: network.to_owned(),
            ip,
            holder: format!(
                "an earlier {holder}, and is given back some minutes after the pods of that one have ended"
            ),
        }
    }
}
