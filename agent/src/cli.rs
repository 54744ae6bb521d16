//! Parses the command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use cluster::access::AccessControl;
use cni_spec::{GetRequest, LEASE_MAX};
use controller::ControllerOptions;
use delegate::process;
use ports::switch::{SwitchOptions, SwitchUser};
use reach::early_drop::EarlyDropOptions;
use reach::members::SpanningOptions;
use spans::SpanOptions;
use tables::StormOptions;
use uswitch::Memory;
use webhook::WebhookOptions;
use world::lists::InvalidAnnotation;
use world::lists::ListOptions;

use crate::capture::flow_log::FlowLogOptions;
use crate::devices::DeviceOptions;
use crate::install::InstallOptions;
use crate::kube::scheduling::SchedulingOptions;
use crate::places::{CniPlaces, Places};

mod egress;
pub use egress::EgressOptions;

/// Gives pods more than one network, from an eBPF datapath.
#[derive(Debug, Parser)]
#[command(name = "podnet-agent", version, about)]
pub struct Cli {
    /// Command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands of the agent.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve CNI requests and keep the datapath
    Run(Box<RunOptions>),
    /// Show what the running agent has
    Get(GetOptions),
    /// Show the decisions about an attachment, or follow a packet through the tables
    Explain(ExplainOptions),
    /// Write the packets of one port as pcapng, each with its verdict
    ///
    /// Both directions are there, inbound being to the pod. It ends with the first limit that is reached, and
    /// when it is interrupted.
    Capture(CaptureOptions),
    /// Remove everything podnet has put on this node
    Cleanup(CleanupOptions),
    /// Print podnet's options for a configuration of Multus, and what they leave out
    ///
    /// It reads files and changes nothing. Each field has a line; docs/from-multus.md has the steps of a node.
    ImportMultus(ImportOptions),
    /// Run the controller of the cluster: conditions, numbers, gates and blocks
    Controller(ControllerOptions),
    /// Become another CNI plugin, below the node's root
    #[command(name = process::STAGE, hide = true)]
    ExecPlugin(ExecOptions),
    /// Answer the API server about pods that list networks
    Webhook(WebhookOptions),
    /// Move packets of ports of type Memif
    ///
    /// It takes over from a switch that does so already.
    Switch(ServeOptions),
}

/// Options of `run`.
#[derive(Debug, Clone, Args)]
pub struct RunOptions {
    /// Directory of YAML files with the objects; without it they are the cluster's
    ///
    /// It has PodNetwork, PodNetworkAttachment, PodNetworkParameters and AttachmentParameters objects, and is
    /// read again when it changes.
    #[arg(
        long,
        value_name = "DIR",
        env = "PODNET_STANDALONE",
        conflicts_with = "kubeconfig"
    )]
    pub standalone: Option<PathBuf>,
    /// Options about members on other nodes.
    #[command(flatten)]
    pub spanning: SpanningOptions,
    /// Options about XDP.
    #[command(flatten)]
    pub early: EarlyDropOptions,
    /// Options about the scheduler.
    #[command(flatten)]
    pub scheduling: SchedulingOptions,
    /// Configuration of the API server's client; this pod's service account by default
    #[arg(long, value_name = "FILE", env = "PODNET_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Where things are kept.
    #[command(flatten)]
    pub places: Places,
    /// Where CNI's things are.
    #[command(flatten)]
    pub cni: CniPlaces,
    /// Options about the installation of the plugin.
    #[command(flatten)]
    pub install: InstallOptions,
    /// Address for /metrics, /livez, /readyz and /debug/state
    #[arg(long, env = "PODNET_ADMIN", default_value = "127.0.0.1:9464")]
    pub admin: SocketAddr,
    /// Metrics of each port: packets, bytes, drops, waits for a rate
    ///
    /// A port has at most eleven series, and one for each reason for which its packets were dropped.
    #[arg(
        long,
        env = "PODNET_PORT_METRICS",
        value_name = "BOOL",
        default_value_t = true,
        action = clap::ArgAction::Set
    )]
    pub port_metrics: bool,
    /// Seconds of failed writes of records after which /livez fails
    ///
    /// The kubelet restarts the agent then.
    #[arg(
        long,
        env = "PODNET_STORE_PATIENCE",
        value_name = "SECONDS",
        default_value_t = 60
    )]
    pub store_patience: u64,
    /// Seconds for which a restart of this agent is no failure of the node; 0 for none
    ///
    /// They count from when the agent was well. Until then STATUS has the answer that it had before, and
    /// requests wait.
    #[arg(
        long,
        env = "PODNET_RESTART_LEASE",
        value_name = "SECONDS",
        default_value_t = LEASE_MAX.as_secs(),
        value_parser = clap::value_parser!(u64).range(..=LEASE_MAX.as_secs())
    )]
    pub restart_lease: u64,
    /// Name of this node; the host name when not given
    #[arg(long, env = "NODE_NAME")]
    pub node_name: Option<String>,
    /// Ports that this node can have
    ///
    /// A change moves the datapath to new maps without a loss.
    #[arg(long, env = "PODNET_MAX_PORTS", default_value_t = 4096, value_parser = clap::value_parser!(u16).range(1..=32768))]
    pub max_ports: u16,
    /// Age in seconds at which a port's TC filter gets a TCX link in front of it
    ///
    /// The kernel needs TCX for it. Where the agent may not write `/sys/kernel/rcu_expedited`, the
    /// removal of a pod with one takes the kernel some 13 ms longer.
    #[arg(
        long,
        env = "PODNET_TCX_AFTER",
        value_name = "SECONDS",
        default_value_t = 60
    )]
    pub tcx_after: u64,
    /// Options about spans of requests.
    #[command(flatten)]
    pub spans: SpanOptions,
    /// Options about the flow log.
    #[command(flatten)]
    pub flow_log: FlowLogOptions,
    /// Options about replicated packets.
    #[command(flatten)]
    pub storms: StormOptions,
    /// UDP port of VXLAN tunnels, the same on every node
    #[arg(
        long,
        env = "PODNET_VXLAN_PORT",
        value_name = "PORT",
        default_value_t = reach::overlay::PORT,
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub vxlan_port: u16,
    /// Seconds for which this node keeps a block of addresses that it does not need
    ///
    /// The next pod then waits for no answer of the API server. Other nodes get the block sooner when there is
    /// no other.
    #[arg(
        long,
        env = "PODNET_KEEP_BLOCKS",
        value_name = "SECONDS",
        default_value_t = 300
    )]
    pub keep_blocks: u64,
    /// Subjects that need the verb `use` on a PodNetwork before a pod is attached
    ///
    /// The agent knows service accounts, and leaves users to the webhook.
    #[arg(
        long,
        value_enum,
        env = "PODNET_ACCESS_CONTROL",
        default_value_t,
        conflicts_with = "standalone"
    )]
    pub access_control: AccessControl,
    /// Options about ways out of networks.
    #[command(flatten)]
    pub egress: EgressOptions,
    /// Options about the switch of memif ports.
    #[command(flatten)]
    pub switch: SwitchOptions,
    /// Options about pods that list their networks themselves.
    #[command(flatten)]
    pub pods: PodOptions,
    /// Ports as devices of Kubernetes.
    #[command(flatten)]
    pub devices: DeviceOptions,
    /// eBPF object to load instead of the built-in one
    #[arg(long, env = "PODNET_EBPF_OBJECT_FILE")]
    pub ebpf_object: Option<PathBuf>,
    /// Log filter, as in `info,agent=debug`
    // The client of Kubernetes tells of each attempt; what matters of that is in our own words.
    #[arg(
        long,
        env = "PODNET_LOG",
        default_value = "info,kube_runtime=off,kube_client=off"
    )]
    pub log: String,
    /// Tests only: abort when this point is reached
    #[arg(long, env = "PODNET_CRASH_AT", hide = true)]
    pub crash_at: Option<String>,
    /// Tests only: wait at the points that have a file in this directory
    #[arg(long, env = "PODNET_PAUSE_IN", hide = true)]
    pub pause_in: Option<PathBuf>,
}

/// Options of `switch`.
#[derive(Debug, Clone, Args)]
pub struct ServeOptions {
    /// Socket the agent talks to it by
    #[arg(
        long,
        value_name = "FILE",
        env = "PODNET_SWITCH_SOCKET",
        default_value = "/run/podnet/switch/switch.sock"
    )]
    pub socket: PathBuf,
    /// User and group of a switch that is started as root; 0:0 stays root
    ///
    /// It becomes this user before it hears of any client.
    #[arg(
        long,
        value_name = "UID:GID",
        env = "PODNET_SWITCH_USER",
        default_value_t
    )]
    pub user: SwitchUser,
    /// Threads that move packets; the ports of a network are one's
    #[arg(
        long,
        value_name = "NUMBER",
        env = "PODNET_SWITCH_WORKERS",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=256)
    )]
    pub workers: u16,
    /// Poll without sleep: each worker keeps a processor busy, and packets never wait
    #[arg(long, env = "PODNET_SWITCH_BUSY_POLL")]
    pub busy_poll: bool,
    /// Processors of the workers, one for each; the kernel chooses when not given
    #[arg(
        long,
        value_name = "NUMBERS",
        env = "PODNET_SWITCH_CPUS",
        value_delimiter = ','
    )]
    pub cpus: Vec<usize>,
    /// Slots of a ring by which the memory of a port is computed
    ///
    /// A port has its queues, in both directions, and a buffer for each slot.
    #[arg(
        long,
        value_name = "NUMBER",
        env = "PODNET_SWITCH_RING_SLOTS",
        default_value_t = Memory::default().ring_slots,
        value_parser = clap::value_parser!(u16).range(16..=16384)
    )]
    pub ring_slots: u16,
    /// MiB of memory that the ports of a pod may lend the switch together
    #[arg(
        long,
        value_name = "MIB",
        env = "PODNET_SWITCH_POD_MEMORY",
        default_value_t = Memory::default().pod >> 20,
        value_parser = clap::value_parser!(u64).range(1..=1 << 20)
    )]
    pub pod_memory: u64,
    /// MiB of memory that all ports may lend the switch
    ///
    /// The limit of the process's memory must be a tenth and 64 MiB above that.
    #[arg(
        long,
        value_name = "MIB",
        env = "PODNET_SWITCH_MEMORY",
        default_value_t = Memory::default().switch >> 20,
        value_parser = clap::value_parser!(u64).range(1..=1 << 20)
    )]
    pub memory: u64,
    /// Stay until a signal comes when another switch has taken over
    ///
    /// The pod of a DaemonSet must.
    #[arg(long)]
    pub stay: bool,
    /// Log filter, as in `info,uswitch=debug`
    #[arg(long, env = "PODNET_LOG", default_value = "info")]
    pub log: String,
}

/// Options about pods that list their networks themselves (`fromPod`).
#[derive(Debug, Clone, Args)]
pub struct PodOptions {
    /// How their lists are read.
    #[command(flatten)]
    pub lists: ListOptions,
    /// Treatment of a pod whose annotations cannot be understood
    #[arg(long, value_enum, env = "PODNET_INVALID_ANNOTATION", default_value_t)]
    pub invalid_annotation: InvalidAnnotation,
    /// Directory of the node's own root in an agent that runs in a container
    ///
    /// Plugins of others run below it.
    #[arg(
        long,
        value_name = "DIR",
        env = "PODNET_HOST_ROOT",
        default_value = "/"
    )]
    pub host_root: PathBuf,
    /// Time in seconds after which a plugin of others is killed
    #[arg(
        long,
        value_name = "SECONDS",
        env = "PODNET_DELEGATE_TIMEOUT",
        default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub delegate_timeout: u64,
    /// Plugins of others that run at once; each is a process with memory of its own
    #[arg(
        long,
        value_name = "NUMBER",
        env = "PODNET_DELEGATES",
        default_value_t = 8,
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub delegates: u16,
}

/// Options of the subcommand that becomes a plugin.
#[derive(Debug, Clone, Args)]
pub struct ExecOptions {
    /// Where the node's own root is
    #[arg(long)]
    pub host_root: PathBuf,
    /// The plugin, as the node has it
    pub program: PathBuf,
}

/// Tables that `get` shows.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum What {
    /// Networks, and whether they can be attached to
    Networks,
    /// Attachments this node holds
    Attachments,
    /// Members of the networks, and their places
    Endpoints,
    /// Dropped packets by reason and network
    Drops,
    /// Interfaces of this node by which other nodes reach it
    Uplinks,
    /// Network policies: networks, ports that they select here, problems
    Policies,
    /// Services: addresses, ports, and the endpoints that clients of this node have
    Services,
    /// VPCs: prefixes, networks, peers, and what is not in force
    Vpcs,
    /// Connections that network policies let pass, the newest first
    Flows,
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
    /// Objects to show
    pub what: What,
    /// Which connections.
    #[command(flatten)]
    pub flows: FlowOptions,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
    /// Socket of the agent
    #[arg(long, env = "PODNET_SOCKET", default_value = "/run/podnet/agent.sock")]
    pub socket: PathBuf,
}

/// Connections that `get flows` shows.
#[derive(Debug, Clone, Args)]
pub struct FlowOptions {
    /// Flows only: those of one pod of this node
    ///
    /// It is NAMESPACE/NAME, or the first characters of a container's ID.
    #[arg(long, value_name = "POD")]
    pub pod: Option<String>,
    /// Flows only: those of one network
    #[arg(long, value_name = "NAME")]
    pub network: Option<String>,
    /// Flows only: the most that are shown; 1000 when not given
    #[arg(
        long,
        value_name = "NUMBER",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(GetRequest::LIMIT_MAX))
    )]
    pub limit: Option<u16>,
}

/// Options of `explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainOptions {
    /// First characters of a container's ID, to show every decision taken for it
    #[arg(long, required_unless_present = "from")]
    pub container: Option<String>,
    /// Interface in the container; all of them when not given
    #[arg(long, requires = "container")]
    pub ifname: Option<String>,
    /// The packet to follow.
    #[command(flatten)]
    pub packet: PacketOptions,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
    /// Socket of the agent
    #[arg(long, env = "PODNET_SOCKET", default_value = "/run/podnet/agent.sock")]
    pub socket: PathBuf,
}

/// A packet that `explain` follows.
#[derive(Debug, Clone, Args)]
pub struct PacketOptions {
    /// Sender of the packet to follow
    ///
    /// It is CONTAINER[/IFNAME], NAMESPACE/POD[:IFNAME] or NETWORK/ADDRESS. A member on another node is
    /// NETWORK/ADDRESS; its packets arrive here by a tunnel.
    #[arg(
        long,
        value_name = "WHO",
        requires = "to",
        conflicts_with = "container"
    )]
    pub from: Option<String>,
    /// Receiver of the packet: an IP address, a MAC address, or as --from
    #[arg(long, value_name = "WHO", requires = "from")]
    pub to: Option<String>,
    /// Protocol of the packet; icmp when not given
    ///
    /// It is tcp[:[SOURCE:]PORT], udp[:[SOURCE:]PORT], icmp (an echo request), arp, nd, ip:NUMBER or
    /// ether:0xTYPE.
    #[arg(long, value_name = "PROTOCOL", requires = "from")]
    pub proto: Option<String>,
    /// Its length in bytes, without the Ethernet header
    #[arg(long, value_name = "BYTES", requires = "from")]
    pub size: Option<u32>,
    /// The source address in it, IP or MAC; the sender's own when not given
    #[arg(long, value_name = "ADDRESS", requires = "from")]
    pub source: Option<String>,
    /// Node whose tunnel brings the packet; the sender's own when not given
    ///
    /// It is a name, or the node's address for tunnels.
    #[arg(long, value_name = "NODE", requires = "from")]
    pub arrive_from: Option<String>,
}

/// Options of `capture`.
#[derive(Debug, Clone, Args)]
pub struct CaptureOptions {
    /// Pod of the port
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        required_unless_present = "container",
        conflicts_with = "container"
    )]
    pub pod: Option<String>,
    /// Container of the port, or its first characters, six at least
    #[arg(long, value_name = "ID")]
    pub container: Option<String>,
    /// Network of the port, where the pod has several
    #[arg(long, value_name = "NAME")]
    pub network: Option<String>,
    /// Interface in the pod, where it has several on the network
    #[arg(long, value_name = "NAME")]
    pub ifname: Option<String>,
    /// File to write; stdout when not given
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Bytes of each packet that are written
    #[arg(short, long, value_name = "BYTES", default_value_t = 9216)]
    pub snaplen: u32,
    /// Packets after which it ends; 0 for no limit
    #[arg(short = 'c', long, value_name = "NUMBER", default_value_t = 0)]
    pub packets: u64,
    /// Seconds after which it ends
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub seconds: u64,
    /// KiB of buffer for each processor of the node, in the kernel
    #[arg(long, value_name = "KIB", default_value_t = 1024)]
    pub buffer: u32,
    /// Socket of the agent
    #[arg(long, env = "PODNET_SOCKET", default_value = "/run/podnet/agent.sock")]
    pub socket: PathBuf,
}

/// Options of `import-multus`.
#[derive(Debug, Clone, Args)]
pub struct ImportOptions {
    /// Configuration of Multus' plugin or daemon, at most 1 MiB
    #[arg(value_name = "FILE", default_value = "/etc/cni/net.d/00-multus.conf")]
    pub file: PathBuf,
    /// File of NetworkAttachmentDefinitions, at most 1 MiB; may be repeated
    ///
    /// It is what `kubectl get network-attachment-definitions -A -o yaml` prints. The default network is looked for in them, and each has a line of its own.
    #[arg(long, value_name = "FILE")]
    pub definitions: Vec<PathBuf>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Options of `cleanup`.
#[derive(Debug, Clone, Args)]
pub struct CleanupOptions {
    /// Say what would be removed, and remove nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Stay until a signal comes when everything is removed
    ///
    /// The pod of a DaemonSet must.
    #[arg(long, conflicts_with = "dry_run")]
    pub stay: bool,
    /// Where CNI's things are.
    #[command(flatten)]
    pub cni: CniPlaces,
    /// Where things are kept.
    #[command(flatten)]
    pub places: Places,
}
