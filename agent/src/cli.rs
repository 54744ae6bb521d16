//! What can be typed.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Gives pods more than one network, from an eBPF datapath.
#[derive(Debug, Parser)]
#[command(name = "podnet-agent", version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve CNI requests and keep the datapath
    Run(RunOptions),
    /// Show what the running agent has
    Get(GetOptions),
    /// Show every decision taken for an attachment
    Explain(ExplainOptions),
    /// Remove everything podnet has put on this node
    Cleanup(CleanupOptions),
}

/// Where the agent keeps things.
#[derive(Debug, Clone, Args)]
pub struct Places {
    /// Socket the CNI plugin and the commands talk to
    #[arg(long, env = "PODNET_SOCKET", default_value = "/run/podnet/agent.sock")]
    pub socket: PathBuf,
    /// Directory of the records that survive a restart
    #[arg(long, env = "PODNET_STATE_DIR", default_value = "/var/lib/podnet")]
    pub state_dir: PathBuf,
    /// Directory of the pinned programs and maps, on a BPF file system
    #[arg(long, env = "PODNET_BPFFS", default_value = "/sys/fs/bpf/podnet")]
    pub bpffs: PathBuf,
}

/// Options of `run`.
#[derive(Debug, Clone, Args)]
pub struct RunOptions {
    /// Directory of YAML files with PodNetwork, PodNetworkAttachment, PodNetworkParameters and
    /// AttachmentParameters objects; read again when it changes
    #[arg(long, value_name = "DIR", env = "PODNET_STANDALONE")]
    pub standalone: PathBuf,
    /// Where things are kept.
    #[command(flatten)]
    pub places: Places,
    /// Address for /metrics, /livez, /readyz and /debug/state
    #[arg(long, env = "PODNET_ADMIN", default_value = "127.0.0.1:9464")]
    pub admin: SocketAddr,
    /// Name of this node; the host name when not given
    #[arg(long, env = "NODE_NAME")]
    pub node_name: Option<String>,
    /// Ports this node can have; changing it moves the datapath to new maps without a loss
    #[arg(long, env = "PODNET_MAX_PORTS", default_value_t = 4096, value_parser = clap::value_parser!(u16).range(1..=32768))]
    pub max_ports: u16,
    /// Age in seconds at which a port's clsact filter gets a TCX link in front of it, where the kernel
    /// has TCX; removing a pod with one takes the kernel some 12 ms longer
    #[arg(
        long,
        env = "PODNET_TCX_AFTER",
        value_name = "SECONDS",
        default_value_t = 60
    )]
    pub tcx_after: u64,
    /// eBPF object to load instead of the built-in one
    #[arg(long, env = "PODNET_EBPF_OBJECT_FILE")]
    pub ebpf_object: Option<PathBuf>,
    /// Log filter, as in `info,agent=debug`
    #[arg(long, env = "PODNET_LOG", default_value = "info")]
    pub log: String,
    /// Tests only: abort when this point is reached
    #[arg(long, env = "PODNET_CRASH_AT", hide = true)]
    pub crash_at: Option<String>,
}

/// What `get` can show.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum What {
    /// Networks, and whether they can be attached to
    Networks,
    /// Attachments this node holds
    Attachments,
    /// Who is where on which network
    Endpoints,
    /// Dropped packets by reason and network
    Drops,
}

/// How to print.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum Output {
    /// A table for people
    #[default]
    Table,
    /// JSON for programs
    Json,
}

/// Options of `get`.
#[derive(Debug, Clone, Args)]
pub struct GetOptions {
    /// What to show
    pub what: What,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
    /// Socket of the agent
    #[arg(long, env = "PODNET_SOCKET", default_value = "/run/podnet/agent.sock")]
    pub socket: PathBuf,
}

/// Options of `explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainOptions {
    /// Container id
    #[arg(long)]
    pub container: String,
    /// Interface in the container; all of them when not given
    #[arg(long)]
    pub ifname: Option<String>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
    /// Socket of the agent
    #[arg(long, env = "PODNET_SOCKET", default_value = "/run/podnet/agent.sock")]
    pub socket: PathBuf,
}

/// Options of `cleanup`.
#[derive(Debug, Clone, Args)]
pub struct CleanupOptions {
    /// Say what would be removed, and remove nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Where things are kept.
    #[command(flatten)]
    pub places: Places,
}
