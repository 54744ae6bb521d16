//! Define the command line of `controller`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use election::LeaderElection;
use world::lists::{FeatureGates, ListOptions};

/// Options of `controller`.
#[derive(Debug, Clone, Args)]
pub struct ControllerOptions {
    /// Kubeconfig file of the cluster; the pod's own service account when not given
    #[arg(long, value_name = "FILE", env = "PODNET_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Address for /metrics, /livez and /readyz
    #[arg(
        long,
        env = "PODNET_CONTROLLER_ADMIN",
        default_value = "127.0.0.1:9465"
    )]
    pub admin: SocketAddr,
    /// Leave it to the cluster's operator to make the PodNetwork default
    #[arg(long, env = "PODNET_DISABLE_DEFAULT_PODNETWORK_CREATION")]
    pub disable_default_podnetwork_creation: bool,
    /// How the lists of pods are read, as the agents have it.
    #[command(flatten)]
    pub lists: ListOptions,
    /// Feature gates.
    #[command(flatten)]
    pub features: FeatureGates,
    /// Seconds after which addresses of a lost node, pod or claim are taken back
    ///
    /// Blocks of a lost node say when in status.reclaimAfter. Reservations of a lost pod or claim wait from when
    /// this leader first sees that it is gone: a new leader begins again.
    #[arg(
        long,
        value_name = "SECONDS",
        env = "PODNET_RECLAIM_DELAY",
        default_value_t = 300
    )]
    pub reclaim_delay: u32,
    /// Blocks of a network that a node may take beyond the need of its pods
    ///
    /// For each address family.
    #[arg(
        long,
        value_name = "NUMBER",
        env = "PODNET_SPARE_BLOCKS",
        default_value_t = 2
    )]
    pub spare_blocks: u32,
    /// Name of this controller among others; the host's name when not given
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub pod_name: Option<String>,
    /// Options of leader election.
    #[command(flatten)]
    pub leader_election: LeaderElection,
    /// Where to wait, and the file that says for how long; for tests.
    #[arg(long, env = "PODNET_HOLD_AT", hide = true)]
    pub hold_at: Option<String>,
    /// Log filter, as in `info,agent=debug`
    #[arg(long, env = "PODNET_LOG", default_value = "info,kube_runtime=off")]
    pub log: String,
}
