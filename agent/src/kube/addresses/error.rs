//! Why an attachment got no address in a cluster.

use std::net::IpAddr;

use api::Holder;
use ipam::IpamError;

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
        /// Who has it.
        holder: String,
    },
    /// The node with the block has given it already.
    #[error("network {network}: {ip} is in use: {message}; request another address")]
    InUse {
        /// The network.
        network: String,
        /// The address.
        ip: IpAddr,
        /// What that node says.
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
        /// What is used up.
        source: IpamError,
        /// Why there is no other.
        why: String,
    },
    /// Nobody to reserve an address for.
    #[error(
        "{ip} has to be reserved in the cluster, and the request names no pod: give K8S_POD_NAMESPACE, K8S_POD_NAME and K8S_POD_UID in CNI_ARGS"
    )]
    NoPod {
        /// The address.
        ip: IpAddr,
    },
    /// The API server has to be asked and does not answer.
    #[error("cannot {what}: {why}; try again later")]
    ApiServer {
        /// What was tried.
        what: String,
        /// What it says, or the connection to it.
        why: String,
    },
    /// No such claim, or not any more (NPWG §8).
    #[error("IPAMClaim {namespace}/{name} {what}")]
    NoClaim {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// What is wrong.
        what: &'static str,
    },
    /// The claim does not fit the attachment (NPWG §8).
    #[error("IPAMClaim {namespace}/{name}: {why}")]
    Claim {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// What does not fit, and what to do.
        why: String,
    },
}

impl AddressError {
    /// [`Self::Reserved`] for this holder.
    pub(crate) fn reserved(network: &str, ip: IpAddr, holder: &Holder) -> Self {
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
