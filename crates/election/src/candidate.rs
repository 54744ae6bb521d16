//! Get the Lease, renew it, and give it away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::brief;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::{oneshot, watch};

use crate::{Fence, LeaderElection};

/// Next move about a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    /// It is ours: renew it.
    Renew,
    /// It is nobody's any more: take it.
    Take,
    /// It is another's.
    Wait,
}

/// Decides the move about a Lease that has been `unchanged` for this long.
fn decide(spec: &LeaseSpec, identity: &str, unchanged: Duration) -> Move {
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.unwrap_or_default();
    let good_for = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    if holder == identity {
        Move::Renew
    } else if holder.is_empty() || unchanged >= good_for {
        Move::Take
    } else {
        Move::Wait
    }
}

/// Result of an attempt to get or renew the Lease.
#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    /// The Lease is ours.
    Held,
    /// It is another's.
    Others(String),
    /// Somebody wrote it at the same time.
    Raced,
}

/// One that wants to lead.
#[derive(Debug)]
pub struct Candidate {
    api: Api<Lease>,
    options: LeaderElection,
    identity: String,
    fence: Arc<Fence>,
    /// The version of the Lease that was seen last, and since when.
    seen: Option<(String, Instant)>,
}

impl Candidate {
    /// One that calls itself `identity`; no other may.
    pub fn new(client: &Client, options: &LeaderElection, identity: String) -> Self {
        let fence = if options.enabled {
            Fence::default()
        } else {
            Fence::open()
        };
        Self {
            api: Api::namespaced(client.clone(), &options.namespace(client)),
            options: options.clone(),
            identity,
            fence: Arc::new(fence),
            seen: None,
        }
    }

    /// The fence that holds while this one leads.
    pub fn fence(&self) -> Arc<Fence> {
        Arc::clone(&self.fence)
    }

    /// Gets the Lease, reports it by `leads`, and renews it.
    ///
    /// That ends when the Lease is lost, or by `stopping`.
    /// Returns the reason for which this one does not lead any more; `None` when it was told to stop, and
    /// has given the Lease away. Without an election it leads until it is told to stop.
    pub async fn lead(
        mut self,
        leads: oneshot::Sender<()>,
        mut stopping: watch::Receiver<bool>,
    ) -> Option<String> {
        if !self.options.enabled {
            // The leader is there as long as this one is.
            let _ = leads.send(());
            let _ = stopping.wait_for(|stop| *stop).await;
            return None;
        }
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => return None,
            () = self.acquire() => {}
        }
        let _ = leads.send(());
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => {}
            why = self.keep() => return Some(why),
        }
        self.release().await;
        None
    }

    /// Returns when this one leads.
    async fn acquire(&mut self) {
        let mut leader = String::new();
        loop {
            match self.try_once(self.options.renew_deadline()).await {
                Ok(Attempt::Held) => return,
                Ok(Attempt::Others(holder)) if holder != leader => {
                    tracing::info!(leader = holder, "another controller leads");
                    leader = holder;
                }
                Ok(Attempt::Others(_) | Attempt::Raced) => {}
                Err(why) => tracing::warn!(error = why, "lease not readable, trying again"),
            }
            tokio::time::sleep(self.options.retry_period()).await;
        }
    }

    /// Renews the Lease; returns when this one leads no more, with the reason.
    async fn keep(&mut self) -> String {
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(self.options.retry_period()).await;
            let deadline = self.options.renew_deadline();
            let left = deadline.saturating_sub(renewed.elapsed());
            if left.is_zero() {
                return format!("the lease was not renewed for {} s", deadline.as_secs());
            }
            match self.try_once(left).await {
                Ok(Attempt::Held) => renewed = Instant::now(),
                Ok(Attempt::Others(holder)) => return format!("{holder} has the lease"),
                Ok(Attempt::Raced) => {}
                Err(why) => tracing::warn!(error = why, "the Lease is not renewed, trying again"),
            }
        }
    }

    /// Gives the Lease away, so that another need not wait for its end.
    async fn release(&mut self) {
        self.fence.set(None);
        let released = tokio::time::timeout(self.options.retry_period(), async {
            let mut lease = self.api.get(&self.options.name).await?;
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() == Some(&self.identity) {
                spec.holder_identity = None;
                spec.lease_duration_seconds = Some(1);
                self.replace(&lease).await?;
            }
            Ok::<(), kube::Error>(())
        });
        match released.await {
            Ok(Ok(())) => tracing::info!("the Lease is given away"),
            Ok(Err(error)) => tracing::warn!(
                error = brief(&error),
                "the Lease could not be given away; another controller waits for its end"
            ),
            Err(_) => tracing::warn!(
                "the Lease could not be given away in time; another controller waits for its end"
            ),
        }
    }

    async fn try_once(&mut self, patience: Duration) -> Result<Attempt, String> {
        let begin = Instant::now();
        let attempt = match tokio::time::timeout(patience, self.attempt()).await {
            Err(_) => Err("no answer from the API server".to_owned()),
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => Ok(Attempt::Raced),
            Ok(Err(error)) => Err(brief(&error)),
            Ok(Ok(attempt)) => Ok(attempt),
        };
        match &attempt {
            Ok(Attempt::Held) => self.fence.set(begin.checked_add(self.options.duration())),
            Ok(Attempt::Others(_)) => self.fence.set(None),
            // What was held is held until its time is over.
            Ok(Attempt::Raced) | Err(_) => {}
        }
        attempt
    }

    async fn attempt(&mut self) -> Result<Attempt, kube::Error> {
        let Some(mut lease) = self.api.get_opt(&self.options.name).await? else {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(self.options.name.clone()),
                    ..ObjectMeta::default()
                },
                spec: Some(self.mine(&LeaseSpec::default(), Move::Take)),
            };
            self.api.create(&PostParams::default(), &lease).await?;
            return Ok(Attempt::Held);
        };
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let since = match &self.seen {
            Some((seen, since)) if *seen == version => *since,
            _ => Instant::now(),
        };
        self.seen = Some((version, since));
        let spec = lease.spec.take().unwrap_or_default();
        let action = decide(&spec, &self.identity, since.elapsed());
        if action == Move::Wait {
            return Ok(Attempt::Others(spec.holder_identity.unwrap_or_default()));
        }
        lease.spec = Some(self.mine(&spec, action));
        self.replace(&lease).await?;
        Ok(Attempt::Held)
    }

    /// Returns the Lease's spec with this controller as its holder.
    fn mine(&self, before: &LeaseSpec, action: Move) -> LeaseSpec {
        let now = Some(MicroTime(Timestamp::now()));
        let taken = action == Move::Take;
        let transitions = before.lease_transitions.unwrap_or_default();
        let is_first = before.renew_time.is_none();
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(i32::from(self.options.lease_duration)),
            acquire_time: if taken {
                now.clone()
            } else {
                before.acquire_time.clone()
            },
            renew_time: now,
            lease_transitions: Some(transitions.saturating_add(i32::from(taken && !is_first))),
            ..before.clone()
        }
    }

    async fn replace(&self, lease: &Lease) -> Result<(), kube::Error> {
        let params = PostParams::default();
        self.api.replace(&self.options.name, &params, lease).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(holder: &str, seconds: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(seconds),
            ..LeaseSpec::default()
        }
    }

    /// KEP-CTL-3
    #[test]
    fn a_lease_is_taken_when_it_is_free_or_over_and_never_before() {
        let after = Duration::from_millis;
        for (spec, unchanged, wanted) in [
            (spec("me", 15), after(0), Move::Renew),
            // Ours, and nobody took it: it is ours again.
            (spec("me", 15), after(60_000), Move::Renew),
            (spec("other", 15), after(14_999), Move::Wait),
            (spec("other", 15), after(15_000), Move::Take),
            (spec("", 15), after(0), Move::Take),
            (LeaseSpec::default(), after(0), Move::Take),
            // A holder that says nothing of a duration, or nonsense, holds nothing.
            (spec("other", -1), after(0), Move::Take),
        ] {
            assert_eq!(decide(&spec, "me", unchanged), wanted, "{spec:?}");
        }
        proof::of!("KEP-CTL-3");
    }
}
