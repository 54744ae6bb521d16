//! Why an attachment got no address in a cluster.

use std::net::IpAddr;

use api::Holder;
use ipam::IpamError;

use super::record::ObjectRef;

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
    #[error("cannot write the addresses of IPAMClaim {claim}: {why}; try again later")]
    ClaimContended {
        /// The claim.
        claim: ObjectRef,
        /// The reason.
        why: String,
    },
    /// The claim cannot be read.
    #[error("cannot read IPAMClaim {claim}: {why}; try again later")]
    ClaimUnread {
        /// The claim.
        claim: ObjectRef,
        /// The API server's words, or those of the connection to it.
        why: String,
    },
    /// The status of the claim cannot be written.
    #[error("cannot write status.ips of IPAMClaim {claim}: {why}; try again later")]
    ClaimUnwritten {
        /// The claim.
        claim: ObjectRef,
        /// The API server's words, or those of the connection to it.
        why: String,
    },
    /// The claim does not exist (NPWG §8).
    #[error(
        "IPAMClaim {claim} does not exist; create it, and the pod will start with its next attempt"
    )]
    ClaimAbsent {
        /// The claim.
        claim: ObjectRef,
    },
    /// The claim is going away (NPWG §8).
    #[error("IPAMClaim {claim} is being deleted; create it again")]
    ClaimDeleted {
        /// The claim.
        claim: ObjectRef,
    },
    /// The claim is of another network (NPWG §8).
    #[error(
        "IPAMClaim {claim}: spec.network is {found} and the attachment is to network {network}; refer \
         to a claim of that network"
    )]
    ClaimOfAnother {
        /// The claim.
        claim: ObjectRef,
        /// Its network.
        found: String,
        /// The network of the attachment.
        network: String,
    },
    /// The status of the claim lists something else than addresses (NPWG §8).
    #[error("IPAMClaim {claim}: \"{text}\" in status.ips is no address; correct it, or remove all")]
    ClaimUnparsed {
        /// The claim.
        claim: ObjectRef,
        /// The value.
        text: String,
    },
    /// The claim has other addresses than the attachment asks for (NPWG §8).
    #[error(
        "IPAMClaim {claim}: the pod asks for {ip} too, and the claim has other addresses; remove ips"
    )]
    ClaimDiffers {
        /// The claim.
        claim: ObjectRef,
        /// The address.
        ip: IpAddr,
    },
    /// A claim is of a network whose addresses are the node's (NPWG §8).
    #[error(
        "IPAMClaim {claim}: addresses of network {network} are those of the node and cannot move: \
         remove the claim, or use a network without routing Node"
    )]
    ClaimOnNode {
        /// The claim.
        claim: ObjectRef,
        /// The network.
        network: String,
    },
}

impl AddressError {
    /// [`Self::Reserved`] for this holder.
    pub fn reserved(network: &str, ip: IpAddr, holder: &Holder) -> Self {
        let holder = match holder {
            Holder::Pod(pod) => format!("pod {}/{} on node {}", pod.namespace, pod.name, pod.node),
            Holder::Claim(claim) => format!("IPAMClaim {}/{}", claim.namespace, claim.name),
        };
        Self::Reserved {
            network: network.to_owned(),
            ip,
            holder,
        }
    }
}
