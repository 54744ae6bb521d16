//! Define the options of an election.

use std::time::Duration;

use clap::Args;

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
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs(self.lease_duration.into())
    }

    /// How long a leader tries to renew it.
    pub(crate) fn renew_deadline(&self) -> Duration {
        Duration::from_secs(self.renew_deadline.into())
    }

    /// How long to wait between attempts.
    pub(crate) fn retry_period(&self) -> Duration {
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
        election: LeaderElection,
    }

    fn parse(arguments: &[&str]) -> LeaderElection {
        let line = [&["controller"], arguments].concat();
        Line::try_parse_from(line).unwrap().election
    }

    #[test]
    fn a_leader_gives_up_before_another_can_take_over() {
        let check = |arguments: &[&str]| parse(arguments).check();
        assert_eq!(check(&[]), Ok(()));
        assert!(check(&["--leader-elect-renew-deadline", "15"]).is_err());
        let error = check(&["--leader-elect-retry-period", "10"]).unwrap_err();
        assert!(error.to_string().contains("--leader-elect-retry-period 10"));
    }

    #[test]
    fn election_is_switched_off_by_an_explicit_false() {
        let enabled = |arguments: &[&str]| parse(arguments).enabled;
        assert!(enabled(&[]));
        assert!(enabled(&["--leader-elect"]));
        assert!(!enabled(&["--leader-elect=false"]));
    }
}
