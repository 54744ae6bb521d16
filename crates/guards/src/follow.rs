//! Follow what policies are made of, and put each change in force.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Guards;

/// Time within which changes that come together are one.
const SETTLE: Duration = Duration::from_millis(5);
/// Time of an update that counts for the rest after it, at most.
const LONGEST: Duration = Duration::from_millis(250);
/// Time to the next attempt where the kernel has refused.
const RETRY: Duration = Duration::from_secs(1);
/// The same where policies did not fit, and others may have gone.
const UNFIT: Duration = Duration::from_secs(5);

impl Guards {
    /// Puts each change of policies, labels and members in force; returns never.
    ///
    /// `applied` hears how long it took from a change until all of it was in force, where policies name networks.
    pub async fn follow(self: &Arc<Self>, applied: impl Fn(Duration)) {
        let mut policies = self.inputs.policies.changes();
        let mut attachments = self.inputs.book.ledger().changes();
        let mut members = self.inputs.remotes.changes();
        let mut networks = self.inputs.world.changes();
        let mut changed = None;
        loop {
            let begun = Instant::now();
            // All that has come by now is read below: it leads to no other round.
            policies.mark_unchanged();
            attachments.mark_unchanged();
            members.mark_unchanged();
            networks.mark_unchanged();
            let this = Arc::clone(self);
            let work = tokio::task::spawn_blocking(move || {
                let (done, any) = this.update_all();
                let took = changed
                    .filter(|_| done && any)
                    .map(|at: Instant| at.elapsed());
                let next = this.settle(done);
                ((done, took), next)
            });
            let (done, next) = match work.await {
                Ok(((done, took), Ok(next))) => {
                    if let Some(took) = took {
                        applied(took);
                        changed = None;
                    }
                    (done || self.is_waiting(), next)
                }
                Ok((_, Err(error))) => {
                    tracing::error!(%error, "what policies do not use any more could not be removed; trying again");
                    (false, None)
                }
                Err(error) => {
                    tracing::error!(%error, "the policies could not be put in force; trying again");
                    (false, None)
                }
            };
            let ended = Instant::now();
            let rested = ended + ended.duration_since(begun).min(LONGEST) * 2;
            let wait = match (done, next) {
                (false, _) => Some(RETRY),
                (true, next) => {
                    let next = next.map(|at| at.saturating_duration_since(Instant::now()));
                    let again = self.is_unfit().then_some(UNFIT);
                    next.into_iter().chain(again).min()
                }
            };
            let again = async {
                match wait {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            // The senders live as long as the node.
            let is_change = tokio::select! {
                _ = policies.changed() => true,
                _ = attachments.changed() => true,
                _ = members.changed() => true,
                _ = networks.changed() => true,
                () = again => false,
            };
            // One that the kernel has refused is the older one.
            if is_change && changed.is_none() {
                changed = Some(Instant::now());
            }
            // Others have the processor, and the policies, twice as long as this had, or half a second.
            let next = rested.max(Instant::now() + SETTLE);
            tokio::time::sleep_until(next.into()).await;
        }
    }

    /// True while policies are not known, which a change will tell.
    fn is_waiting(&self) -> bool {
        !self.inputs.policies.get().unread.is_empty()
    }
}
