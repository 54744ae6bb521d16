//! Follow what policies are made of, and put each change in force.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Guards;

/// Time within which changes that come together are one.
const SETTLE: Duration = Duration::from_millis(5);
/// Time of an update that counts for the pause after it, at most.
const LONGEST: Duration = Duration::from_millis(250);
/// Time to the next attempt where the kernel has refused.
const RETRY: Duration = Duration::from_secs(1);
/// The same where policies did not fit, and others may have gone.
const UNFIT: Duration = Duration::from_secs(5);

impl Guards {
    /// Puts each change of policies, labels and members in force; returns never.
    pub async fn follow(self: &Arc<Self>) {
        let mut policies = self.inputs.policies.changes();
        let mut attachments = self.inputs.book.ledger().changes();
        let mut members = self.inputs.remotes.changes();
        let mut networks = self.inputs.world.changes();
        loop {
            let begun = Instant::now();
            let this = Arc::clone(self);
            let work = tokio::task::spawn_blocking(move || {
                let done = this.update_all();
                let next = this.settle(done);
                (done, next)
            });
            let (done, next) = match work.await {
                Ok((done, Ok(next))) => (done || self.is_waiting(), next),
                Ok((_, Err(error))) => {
                    tracing::error!(%error, "what policies do not use any more could not be removed; trying again");
                    (false, None)
                }
                Err(error) => {
                    tracing::error!(%error, "the policies could not be put in force; trying again");
                    (false, None)
                }
            };
            let pause = begun.elapsed().min(LONGEST) * 2;
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
            tokio::select! {
                _ = policies.changed() => {}
                _ = attachments.changed() => {}
                _ = members.changed() => {}
                _ = networks.changed() => {}
                () = again => {}
            }
            // Others have the processor, and the policies, at least twice as long.
            tokio::time::sleep(pause.max(SETTLE)).await;
        }
    }

    /// True while policies are not known, which a change will tell.
    fn is_waiting(&self) -> bool {
        !self.inputs.policies.get().unread.is_empty()
    }
}
