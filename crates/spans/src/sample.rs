//! Choose the requests that get a span.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry::trace::{Link, SpanKind, TraceContextExt as _, TraceId, TraceState};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{
    Sampler as Standard, SamplingDecision, SamplingResult, ShouldSample,
};

use crate::export::Counters;

/// Requests with a span in one second, at most: a caller may sample all.
const REQUESTS: u32 = 100;

/// The caller's choice, or a share of the requests without one, within a rate.
#[derive(Debug)]
pub(crate) struct Sampler {
    share: Standard,
    rate: Mutex<Rate>,
    counters: &'static Counters,
}

/// Requests that were chosen in the second that runs.
#[derive(Debug, Clone, Copy, Default)]
struct Rate {
    since: Option<Instant>,
    chosen: u32,
}

impl Rate {
    fn admits(&mut self, now: Instant) -> bool {
        let runs = |since| now.saturating_duration_since(since) < Duration::from_secs(1);
        if !self.since.is_some_and(runs) {
            *self = Self {
                since: Some(now),
                chosen: 0,
            };
        }
        let admits = self.chosen < REQUESTS;
        self.chosen += u32::from(admits);
        admits
    }
}

impl Sampler {
    pub(crate) fn new(ratio: f64, counters: &'static Counters) -> Self {
        Self {
            share: Standard::TraceIdRatioBased(ratio),
            rate: Mutex::default(),
            counters,
        }
    }

    fn admits(&self, now: Instant) -> bool {
        let mut rate = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
        let admits = rate.admits(now);
        if !admits {
            self.counters.drop(1);
        }
        admits
    }
}

impl Clone for Sampler {
    fn clone(&self) -> Self {
        Self {
            share: self.share.clone(),
            rate: Mutex::new(*self.rate.lock().unwrap_or_else(PoisonError::into_inner)),
            counters: self.counters,
        }
    }
}

impl ShouldSample for Sampler {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let caller = parent.map(|context| context.span().span_context().clone());
        let caller = caller.filter(opentelemetry::trace::SpanContext::is_valid);
        let chosen = match &caller {
            // A phase of a request.
            Some(caller) if !caller.is_remote() => caller.is_sampled(),
            Some(caller) => caller.is_sampled() && self.admits(Instant::now()),
            None => {
                let share = self
                    .share
                    .should_sample(None, trace, name, kind, attributes, links);
                share.decision == SamplingDecision::RecordAndSample && self.admits(Instant::now())
            }
        };
        SamplingResult {
            decision: match chosen {
                true => SamplingDecision::RecordAndSample,
                false => SamplingDecision::Drop,
            },
            attributes: Vec::new(),
            trace_state: caller.map_or_else(TraceState::default, |it| it.trace_state().clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_that_sample_everything_have_a_rate() {
        let begin = Instant::now();
        let mut rate = Rate::default();
        let mut admitted = |at: Duration| (0..1000).filter(|_| rate.admits(begin + at)).count();
        assert_eq!(admitted(Duration::ZERO), 100);
        assert_eq!(admitted(Duration::from_millis(999)), 0);
        assert_eq!(admitted(Duration::from_secs(1)), 100);
    }
}
