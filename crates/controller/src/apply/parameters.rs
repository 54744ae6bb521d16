//! Write the status of parameters.

use std::time::Duration;

use api::{AttachmentParameters, PodNetworkParameters, Port, Vpc};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use k8s_openapi::jiff::Timestamp;
use kube::core::ApiResource;
use tokio::time::{Instant, timeout};

use super::{AT_ONCE, Executor, Outcome};
use crate::plan::{ObjectStep, Plan, StatusOf};

/// The most statuses of parameters that are written in one pass.
///
/// Users of namespaces decide how many there are, and pods wait for a pass to end. Each write is seen as a
/// change, and leads to the next pass.
const A_PASS: usize = 256;
/// Time in which the writes of one pass begin.
const WINDOW: Duration = Duration::from_secs(3);
/// How long the API server may take for one of them.
///
/// So no pass is longer than [`WINDOW`] and this because of them.
const ONE: Duration = Duration::from_secs(2);

impl Executor {
    /// Writes the status of VPCs, of parameters, of networks first, and of Ports.
    ///
    /// One that fails waits for its next turn, which is later each time: see [`Self::again`].
    pub(super) async fn parameters(&self, plan: &Plan) {
        let steps = &plan.parameters;
        let all = plan.vpcs.iter().chain(&steps.networks);
        let all = all.chain(&steps.attachments).chain(&plan.ports.status);
        let mut setbacks = self.setbacks.lock().await;
        let chosen = setbacks.choose(all, A_PASS, Timestamp::now());
        let end = Instant::now() + WINDOW;
        let tried = each(
            chosen,
            || Instant::now() < end,
            ONE,
            |step| self.of_parameters(step),
        );
        for (step, outcome) in tried.await {
            let is_refused = outcome == Outcome::Refused;
            if is_refused || outcome == Outcome::Failed {
                setbacks.add(step, is_refused, Timestamp::now());
            }
        }
    }

    async fn of_parameters(&self, step: &ObjectStep) -> Outcome {
        let resource = match step.kind {
            StatusOf::Port => ApiResource::erase::<Port>(&()),
            StatusOf::Vpc => ApiResource::erase::<Vpc>(&()),
            StatusOf::Parameters if step.namespace.is_some() => {
                ApiResource::erase::<AttachmentParameters>(&())
            }
            StatusOf::Parameters => ApiResource::erase::<PodNetworkParameters>(&()),
        };
        let api = self.api(&resource, step);
        self.status(&api, &resource, step, &step.version).await
    }
}

/// Begins a write for each step while `has_time`, and returns their outcomes.
///
/// One without an answer after `patience` has failed.
async fn each<'a, W: Future<Output = Outcome>>(
    steps: Vec<&'a ObjectStep>,
    has_time: impl Fn() -> bool,
    patience: Duration,
    write: impl Fn(&'a ObjectStep) -> W,
) -> Vec<(&'a ObjectStep, Outcome)> {
    let mut left = steps.into_iter();
    let mut running = FuturesUnordered::new();
    let mut done = Vec::new();
    loop {
        while running.len() < AT_ONCE && has_time() {
            let Some(step) = left.next() else { break };
            let answer = timeout(patience, write(step));
            running.push(async move { (step, answer.await.unwrap_or(Outcome::Failed)) });
        }
        match running.next().await {
            Some(one) => done.push(one),
            None => return done,
        }
    }
}

#[cfg(test)]
mod tests;
