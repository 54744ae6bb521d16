//! Define the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::pod::PodRef;

/// Asks podnet's agents of a cluster.
#[derive(Debug, Parser)]
#[command(name = "kubectl-podnet", bin_name = "kubectl podnet", version, about)]
pub(crate) struct Cli {
    /// How to reach the cluster.
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Command to run.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that are kubectl's own, and the namespace of podnet.
#[derive(Debug, Clone, Args)]
pub(crate) struct Connection {
    /// Kubeconfig file
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Cluster of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) cluster: Option<String>,
    /// User of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// User to impersonate
    #[arg(long = "as", global = true, value_name = "USER")]
    pub(crate) impersonate: Option<String>,
    /// Group to impersonate; may be repeated
    #[arg(long = "as-group", global = true, value_name = "GROUP")]
    pub(crate) impersonate_groups: Vec<String>,
    /// Namespace of pods that are named without one; the context's when not given
    #[arg(short, long, global = true)]
    pub(crate) namespace: Option<String>,
    /// Namespace of podnet itself
    #[arg(
        long,
        global = true,
        value_name = "NAMESPACE",
        env = "PODNET_NAMESPACE",
        default_value = "podnet-system"
    )]
    pub(crate) podnet_namespace: String,
    /// Seconds after which a question is given up
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) timeout: u64,
    /// Program of kubectl
    #[arg(
        long,
        global = true,
        hide = true,
        env = "KUBECTL",
        default_value = "kubectl"
    )]
    pub(crate) kubectl: PathBuf,
}

/// Commands of the plugin.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show a table of the agents, of all nodes or of some
    Get(GetOptions),
    /// Show the decisions about a pod's attachments, or follow a packet that it sends
    Explain(ExplainOptions),
    /// Follow a packet from pod to pod, on the nodes of both
    ///
    /// It exits with 0 when the packet arrives, and with 3 when it does not.
    Trace(TraceOptions),
    /// Capture the packets of a pod's port, with their verdicts, as pcapng
    Capture(CaptureOptions),
    /// Collect the state of podnet in a cluster into an archive
    Sysdump(SysdumpOptions),
}

/// Tables of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Table {
    /// Networks, and whether they can be attached to
    Networks,
    /// Attachments of the node
    Attachments,
    /// Members of the networks, and their places
    Endpoints,
    /// Dropped packets by reason and network
    Drops,
    /// Interfaces by which other nodes reach the node
    Uplinks,
    /// Network policies: networks, ports that they select there, problems
    Policies,
    /// Services: addresses, ports and endpoints
    Services,
    /// Connections that network policies let pass, the newest 1,000
    Flows,
}

impl Table {
    /// All of them.
    pub(crate) const ALL: [Self; 8] = [
        Self::Networks,
        Self::Attachments,
        Self::Endpoints,
        Self::Drops,
        Self::Uplinks,
        Self::Policies,
        Self::Services,
        Self::Flows,
    ];

    /// Name of the table in the agent's own command.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Networks => "networks",
            Self::Attachments => "attachments",
            Self::Endpoints => "endpoints",
            Self::Drops => "drops",
            Self::Uplinks => "uplinks",
            Self::Policies => "policies",
            Self::Services => "services",
            Self::Flows => "flows",
        }
    }
}

/// How to print.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Text for people
    #[default]
    Table,
    /// JSON for programs, an object with a key for each node
    Json,
}

/// Options of `get`.
#[derive(Debug, Clone, Args)]
pub(crate) struct GetOptions {
    /// Table to show
    pub(crate) table: Table,
    /// Node to ask; may be repeated, and all nodes are asked when not given
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Vec<String>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Output,
}

/// Options of `explain`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ExplainOptions {
    /// Pod, as [NAMESPACE/]NAME[:INTERFACE]
    pub(crate) pod: PodRef,
    /// Receiver of the packet to follow: an IP or MAC address, or NETWORK/ADDRESS
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) to: Option<String>,
    /// The packet.
    #[command(flatten)]
    pub(crate) packet: Packet,
    /// Another source address, IP or MAC, than the pod's own
    #[arg(long, value_name = "ADDRESS", requires = "to")]
    pub(crate) source: Option<String>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Output,
}

/// The kind of a packet, in the agent's own words.
#[derive(Debug, Clone, Args)]
pub(crate) struct Packet {
    /// Protocol of the packet; icmp when not given
    ///
    /// It is tcp[:[SOURCE:]PORT], udp[:[SOURCE:]PORT], icmp, arp, nd, ip:NUMBER or ether:0xTYPE.
    #[arg(long, value_name = "PROTOCOL")]
    pub(crate) proto: Option<String>,
    /// Length in bytes, without the Ethernet header
    #[arg(long, value_name = "BYTES")]
    pub(crate) size: Option<u32>,
}

impl Packet {
    /// Arguments of the agent.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let proto = self.proto.iter().map(|it| format!("--proto={it}"));
        let size = self.size.iter().map(|it| format!("--size={it}"));
        proto.chain(size).collect()
    }
}

/// Options of `trace`.
#[derive(Debug, Clone, Args)]
pub(crate) struct TraceOptions {
    /// Sender, as [NAMESPACE/]NAME[:INTERFACE]
    pub(crate) from: PodRef,
    /// Receiver, as [NAMESPACE/]NAME[:INTERFACE]
    pub(crate) to: PodRef,
    /// Network, where both are on several
    #[arg(long, value_name = "NAME")]
    pub(crate) network: Option<String>,
    /// The packet.
    #[command(flatten)]
    pub(crate) packet: Packet,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Output,
}

/// Options of `capture`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CaptureOptions {
    /// Pod, as [NAMESPACE/]NAME[:INTERFACE]
    pub(crate) pod: PodRef,
    /// File to write; standard output when not given
    #[arg(short, long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// Network of the port, where the pod has several
    #[arg(long, value_name = "NAME")]
    pub(crate) network: Option<String>,
    /// Packets after which it ends
    #[arg(short = 'c', long, value_name = "NUMBER")]
    pub(crate) packets: Option<u64>,
    /// Seconds after which it ends
    #[arg(long, value_name = "SECONDS")]
    pub(crate) seconds: Option<u64>,
    /// Bytes of each packet
    #[arg(short, long, value_name = "BYTES")]
    pub(crate) snaplen: Option<u32>,
    /// Further options of `podnet-agent capture`
    #[arg(last = true, value_name = "OPTIONS")]
    pub(crate) rest: Vec<String>,
}

/// Options of `sysdump`.
#[derive(Debug, Clone, Args)]
pub(crate) struct SysdumpOptions {
    /// Archive to write; podnet-sysdump-TIME.tar.gz when not given
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Node to ask; may be repeated, and all nodes are asked when not given
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Vec<String>,
    /// MiB of one file at most; of logs the end counts
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) file_limit: u64,
    /// MiB of all files together, before they are compressed
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..=65536))]
    pub(crate) total_limit: u64,
    /// Lines of each log, from its end
    #[arg(long, value_name = "NUMBER", default_value_t = 20_000)]
    pub(crate) log_lines: u32,
}
