//! Lead: plan and carry out what the cluster needs, whenever it changes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::Shortened;
use api::selection::SelectionRules;
use k8s_openapi::jiff::Timestamp;
use overview::copies::Copies;
use overview::view::View;
use telemetry::LOG_BYTES;
use telemetry::failpoint::held;
use tokio::time::Instant;

use super::apply::Executor;
use super::excess::Judged;
use super::metrics::Metrics;
use super::plan::{Choices, Plan, PodStep, earlier, plan};
use super::reclaim::{BlockStep, Orphans};

/// The longest time between two looks at the cluster.
const RESYNC: Duration = Duration::from_secs(300);
/// Time to the next attempt after a failed write, doubled up to [`RETRY_MAX`].
const RETRY: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// After a pass there is a pause of so many times its length, however much happens.
const PAUSE: u32 = 4;
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Objects that became unreadable and have a line each after one pass.
const UNREADABLE_LINES: usize = 10;

/// The controller that leads.
#[derive(Debug)]
pub struct Leader {
    /// The cluster.
    pub copies: Arc<Copies>,
    /// Executor of the plans.
    pub executor: Executor,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Choices of the user.
    pub choices: Choices,
    /// How pods' lists are read.
    pub rules: SelectionRules,
}

/// State that is kept from pass to pass.
#[derive(Debug, Default)]
struct Memory {
    orphans: Orphans,
    judged: Judged,
    unreadable: BTreeSet<String>,
    failures: u32,
}

impl Leader {
    /// Leads, for ever.
    pub async fn lead(&self) {
        let mut memory = Memory::default();
        loop {
            let begin = Instant::now();
            // Half of the copies say nothing: a network whose parameters were not read yet would
            // look like one without.
            let next = if self.copies.unread().is_empty() {
                self.pass(&mut memory).await
            } else {
                RESYNC
            };
            let pause = begin.elapsed().saturating_mul(PAUSE).min(PAUSE_MAX);
            tokio::time::sleep(pause).await;
            // Either way it is time to look again.
            let _ = tokio::time::timeout(next, self.copies.changed()).await;
        }
    }

    /// Plans and carries out one pass; returns the time until the next one.
    ///
    /// The next pass comes after that time though nothing changes.
    async fn pass(&self, memory: &mut Memory) -> Duration {
        let timer = self.metrics.pass.start_timer();
        let now = Timestamp::now();
        let Some(Thought { view, plan }) = self.think(memory, now).await else {
            return RETRY;
        };
        let unreadable: BTreeSet<String> = view.unreadable.iter().cloned().collect();
        for object in unreadable
            .difference(&memory.unreadable)
            .take(UNREADABLE_LINES)
        {
            let object = Shortened(object, LOG_BYTES);
            tracing::warn!(%object, "the object cannot be read: correct or delete it");
        }
        let waits = |(_, step): &&_| matches!(step, PodStep::Wait(_));
        self.metrics.networks(plan.ready);
        self.metrics.unreadable.set(count(view.unreadable.len()));
        let waiting = plan.pods.iter().filter(waits).count();
        self.metrics.waiting_pods.set(count(waiting));
        let (done, asked) = self.executor.carry_out(&plan, &view).await;
        memory.judged.asked(&asked, now);
        timer.observe_duration();
        memory.unreadable = unreadable;
        let again = self.executor.again(now).await;
        let again = earlier(plan.again, again).map_or(RESYNC, |again| {
            Duration::try_from(again.duration_since(now)).unwrap_or_default()
        });
        if done {
            memory.failures = 0;
            return again.min(RESYNC);
        }
        let retry = RETRY.saturating_mul(2_u32.saturating_pow(memory.failures));
        memory.failures = memory.failures.saturating_add(1);
        again.min(retry).min(RETRY_MAX)
    }
}

/// A view of the cluster, and what has to be done about it.
struct Thought {
    view: View,
    plan: Plan,
}

impl Leader {
    /// Plans one pass on a thread of its own; `None` when that thread has panicked.
    ///
    /// The larger the cluster, the longer it takes, and nothing else waits on that thread.
    async fn think(&self, memory: &mut Memory, now: Timestamp) -> Option<Thought> {
        let (copies, choices) = (Arc::clone(&self.copies), self.choices);
        let rules = self.rules.clone();
        let mut orphans = std::mem::take(&mut memory.orphans);
        let mut judged = std::mem::take(&mut memory.judged);
        let thinking = tokio::task::spawn_blocking(move || {
            held("controller.plan");
            let view = View {
                rules,
                ..copies.view()
            };
            let mut plan = plan(&view, &choices, &mut orphans, now);
            if choices.multi_network {
                plan.excess = judged.judge(&view, choices.spare_blocks, now);
                plan.again = earlier(plan.again, plan.excess.again);
                plan.blocks
                    .retain(|(block, step)| *step != BlockStep::Unmark || !judged.is_asked(block));
            }
            (Thought { view, plan }, orphans, judged)
        });
        let (thought, orphans, judged) = thinking
            .await
            .inspect_err(|error| tracing::error!(%error, "the next steps of the controller could not be planned"))
            .ok()?;
        memory.orphans = orphans;
        memory.judged = judged;
        Some(thought)
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
