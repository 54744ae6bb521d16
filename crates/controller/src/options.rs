//! Define the command line of `controller`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
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
    #[arg(long, env = "PODNET_LOG", default_value = "info")]
    pub log: String,
}

/// Which of several controllers leads.
#[derive(Debug, Clone, Args)]
pub struct LeaderElection {
    /// Lead only while holding the Lease; false for one that is alone
    #[arg(
        long = "leader-elect",
        default_value_t = true,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    pub enabled: bool,
    /// Seconds after which others may take a Lease that is not renewed
    #[arg(long = "leader-elect-lease-duration", value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub lease_duration: u16,
    /// Seconds without a renewal after which a leader gives up
    ///
    /// Less than the lease's duration.
    #[arg(
        long = "leader-elect-renew-deadline",
        value_name = "SECONDS",
        default_value_t = 10
    )]
    pub renew_deadline: u16,
    /// Seconds between attempts to get or renew the Lease; less than the deadline
    #[arg(long = "leader-elect-retry-period", value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub retry_period: u16,
    /// Name of the Lease
    #[arg(
        long = "leader-elect-resource-name",
        default_value = "podnet-controller"
    )]
    pub name: String,
    /// Namespace of the Lease; the pod's own, or that of the kubeconfig, when not given
    #[arg(long = "leader-elect-resource-namespace")]
    pub namespace: Option<String>,
}

/// The times of leader election do not go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "--leader-elect-retry-period {retry} must be less than --leader-elect-renew-deadline {renew}, \
     and that less than --leader-elect-lease-duration {lease}"
)]
pub struct LeaseTimesError {
    retry: u16,
    renew: u16,
    lease: u16,
}

impl LeaderElection {
    /// Succeeds when a leader gives up before another can take over.
    ///
    /// # Errors
    /// When the times are not in order.
    pub fn check(&self) -> Result<(), LeaseTimesError> {
        if self.retry_period < self.renew_deadline && self.renew_deadline < self.lease_duration {
            return Ok(());
        }
        Err(LeaseTimesError {
            retry: self.retry_period,
            renew: self.renew_deadline,
            lease: self.lease_duration,
        })
    }

    /// The namespace of the Lease.
    pub fn namespace(&self, client: &kube::Client) -> String {
        let namespace = self.namespace.as_deref();
        namespace
            .unwrap_or_else(|| client.default_namespace())
            .to_owned()
    }

    /// How long a Lease is good for.
    pub fn duration(&self) -> Duration {
        Duration::from_secs(self.lease_duration.into())
    }

    /// How long a leader tries to renew it.
    pub fn renew_deadline(&self) -> Duration {
        Duration::from_secs(self.renew_deadline.into())
    }

    /// How long to wait between attempts.
    pub fn retry_period(&self) -> Duration {
        Duration::from_secs(self.retry_period.into())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: ControllerOptions,
    }

    fn parse(arguments: &[&str]) -> Result<ControllerOptions, String> {
        let line = [&["controller"], arguments].concat();
        Line::try_parse_from(line)
            .map(|line| line.options)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_leader_gives_up_before_another_can_take_over() {
        let check = |arguments: &[&str]| parse(arguments).unwrap().leader_election.check();
        assert_eq!(check(&[]), Ok(()));
        assert!(check(&["--leader-elect-renew-deadline", "15"]).is_err());
        let error = check(&["--leader-elect-retry-period", "10"]).unwrap_err();
        assert!(error.to_string().contains("--leader-elect-retry-period 10"));
    }

    #[test]
    fn election_is_switched_off_by_an_explicit_false() {
        let enabled = |arguments: &[&str]| parse(arguments).unwrap().leader_election.enabled;
        assert!(enabled(&[]));
        assert!(enabled(&["--leader-elect"]));
        assert!(!enabled(&["--leader-elect=false"]));
    }
}
