//! What the controller that leads does: it looks at the cluster whenever that changes, and does what
//! has to be done.

use std::sync::Arc;
use std::time::Duration;

use api::selection::SelectionRules;
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::apply::Executor;
use super::copies::Copies;
use super::metrics::Metrics;
use super::plan::{Choices, PodStep, plan};
use super::reclaim::Orphans;
use super::view::View;

/// The longest time between two looks at the cluster.
const RESYNC: Duration = Duration::from_secs(300);
/// Time to the next attempt after a write failed; doubled with each, up to [`RETRY_MAX`].
const RETRY: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// After a pass there is a pause of so many times its length, however much happens.
const PAUSE: u32 = 4;
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The controller that leads.
#[derive(Debug)]
pub struct Leader {
    /// The cluster.
    pub copies: Arc<Copies>,
    /// Who writes.
    pub executor: Executor,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// What the user chose.
    pub choices: Choices,
    /// How pods' lists are read.
    pub rules: SelectionRules,
}

/// What is remembered from pass to pass.
#[derive(Debug, Default)]
struct Memory {
    orphans: Orphans,
    unreadable: Vec<String>,
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

    /// Does what has to be done now; the time after which to look again though nothing changes.
    async fn pass(&self, memory: &mut Memory) -> Duration {
        let timer = self.metrics.pass.start_timer();
        let now = Timestamp::now();
        let view = View {
            rules: self.rules.clone(),
            ..self.copies.view()
        };
        let known = &memory.unreadable;
        for object in view.unreadable.iter().filter(|it| !known.contains(*it)) {
            tracing::warn!(object, "not readable");
        }
        let plan = plan(&view, &self.choices, &mut memory.orphans, now);
        let waits = |(_, step): &&_| matches!(step, PodStep::Wait(_));
        self.metrics.networks(plan.ready);
        self.metrics.unreadable.set(count(view.unreadable.len()));
        let waiting = plan.pods.iter().filter(waits).count();
        self.metrics.waiting_pods.set(count(waiting));
        let done = self.executor.carry_out(&plan, &view).await;
        timer.observe_duration();
        memory.unreadable = view.unreadable;
        let again = plan.again.map_or(RESYNC, |again| {
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

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
