//! Options about ways out of networks.

use api::Prefix;
use clap::Args;

use crate::attach::ReservedPorts;

/// Options about ways out: prefixes that they do not lead to, and limits.
#[derive(Debug, Clone, Args)]
pub struct EgressOptions {
    /// Addresses of the cluster's pods, which networks with egress do not reach
    ///
    /// They are those of all plugins. The podCIDRs of all Nodes belong to them anyway.
    #[arg(
        long = "cluster-cidr",
        value_name = "PREFIX",
        env = "PODNET_CLUSTER_CIDR",
        value_delimiter = ',',
        value_parser = prefix
    )]
    pub cluster_cidrs: Vec<Prefix>,
    /// Addresses of the cluster's Services, which networks with egress do not reach
    ///
    /// The ServiceCIDRs of the cluster belong to them anyway.
    #[arg(
        long = "service-cidr",
        value_name = "PREFIX",
        env = "PODNET_SERVICE_CIDR",
        value_delimiter = ',',
        value_parser = prefix
    )]
    pub service_cidrs: Vec<Prefix>,
    /// Tracked connections of a network with egress on this node, for each family
    ///
    /// An eighth of nf_conntrack_max when not given.
    #[arg(
        long = "egress-connections-per-network",
        value_name = "NUMBER",
        env = "PODNET_EGRESS_CONNECTIONS_PER_NETWORK",
        value_parser = clap::value_parser!(u32).range(128..)
    )]
    pub connections_per_network: Option<u32>,
    /// Tracked connections of a pod on a network with egress, for each family
    ///
    /// A thirty-second of nf_conntrack_max when not given.
    #[arg(
        long = "egress-connections-per-pod",
        value_name = "NUMBER",
        env = "PODNET_EGRESS_CONNECTIONS_PER_POD",
        value_parser = clap::value_parser!(u32).range(128..)
    )]
    pub connections_per_pod: Option<u32>,
    /// Ports of the node that lead to no pod, as FROM-TO or PORT, with commas between
    ///
    /// Of TCP and of UDP. The default are the NodePorts of Services, which have no socket that shows them taken. An
    /// empty value reserves none.
    #[arg(
        long,
        value_name = "PORTS",
        env = "PODNET_RESERVED_HOST_PORTS",
        default_value = "30000-32767"
    )]
    pub reserved_host_ports: ReservedPorts,
}

impl EgressOptions {
    /// All of them.
    pub fn inside(&self) -> Vec<Prefix> {
        let all = self.cluster_cidrs.iter().chain(&self.service_cidrs);
        all.copied().collect()
    }
}

fn prefix(text: &str) -> Result<Prefix, String> {
    let prefix: Prefix = text
        .parse()
        .map_err(|_| format!("{text} is no prefix: write one as 10.244.0.0/16 or fd00:244::/48"))?;
    if prefix.trunc() == prefix {
        Ok(prefix)
    } else {
        Err(format!(
            "{prefix} has bits behind its length: write {}",
            prefix.trunc()
        ))
    }
}
