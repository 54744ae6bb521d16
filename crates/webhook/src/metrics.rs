//! The webhook's metrics.

use std::sync::Arc;
use std::time::Instant;

use prometheus::{
    HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry,
};
use telemetry::exposition::{MetricsError, described, exposition};

/// Bounds of the buckets, seconds.
///
/// They go from half a millisecond, a review without a question, to the three seconds that one may
/// take.
const SECONDS: [f64; 8] = [0.0005, 0.001, 0.002, 0.005, 0.02, 0.1, 0.5, 3.0];

const REVIEWS: &str = "podnet_webhook_reviews_total";
const DURATION: &str = "podnet_webhook_duration_seconds";
const QUESTIONS: &str = "podnet_webhook_questions_total";
const COPIED: &str = "podnet_webhook_copied_answers_total";
const EXPIRY: &str = "podnet_webhook_certificate_expiry_seconds";

/// Name, type, labels and meaning of every metric of `podnet-agent webhook`.
pub const METRICS: &[(&str, &str, &str, &str)] = &[
    (
        REVIEWS,
        "counter",
        "hook, outcome",
        "Reviews: validate-pods ends as allowed, invalid, being_deleted, forbidden or not_checked, mutate-pods as gated, changed, unchanged, invalid, not_checked or failed, populate-pods as populated, unchanged or failed, mutate-services as labelled, unchanged or failed",
    ),
    (DURATION, "histogram", "hook", "Time a review takes"),
    (
        QUESTIONS,
        "counter",
        "",
        "Questions to the API server about what pods list, and about who may use it",
    ),
    (
        COPIED,
        "counter",
        "",
        "Questions about what pods list that copies have answered, where the API server did not within a second",
    ),
    (
        EXPIRY,
        "gauge",
        "certificate",
        "End of the signing authority and of the serving certificate, seconds since 1970",
    ),
];

/// Paths that the API server calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hook {
    /// `/validate-pods`.
    Validate,
    /// `/mutate-pods`.
    Mutate,
    /// `/populate-pods`.
    Populate,
    /// `/mutate-services`.
    Services,
}

impl Hook {
    const fn label(self) -> &'static str {
        match self {
            Self::Validate => "validate-pods",
            Self::Mutate => "mutate-pods",
            Self::Populate => "populate-pods",
            Self::Services => "mutate-services",
        }
    }
}

#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    reviews: IntCounterVec,
    durations: HistogramVec,
    /// Questions of reviews.
    pub(super) questions: IntCounter,
    /// Answers that copies gave.
    pub(super) copied: IntCounter,
    expiry: IntGaugeVec,
}

/// A review that is being done.
#[derive(Debug)]
pub(super) struct Timer {
    metrics: Arc<Metrics>,
    hook: Hook,
    begin: Instant,
}

impl Metrics {
    /// # Errors
    /// Never with the names in this file.
    pub(super) fn new() -> Result<Self, MetricsError> {
        let reviews = IntCounterVec::new(opts(REVIEWS), &["hook", "outcome"])?;
        let buckets = HistogramOpts::from(opts(DURATION)).buckets(SECONDS.to_vec());
        let durations = HistogramVec::new(buckets, &["hook"])?;
        let questions = IntCounter::with_opts(opts(QUESTIONS))?;
        let copied = IntCounter::with_opts(opts(COPIED))?;
        let expiry = IntGaugeVec::new(opts(EXPIRY), &["certificate"])?;
        let registry = Registry::new();
        registry.register(Box::new(reviews.clone()))?;
        registry.register(Box::new(durations.clone()))?;
        registry.register(Box::new(questions.clone()))?;
        registry.register(Box::new(copied.clone()))?;
        registry.register(Box::new(expiry.clone()))?;
        Ok(Self {
            registry,
            reviews,
            durations,
            questions,
            copied,
            expiry,
        })
    }

    /// A review begins.
    pub(super) fn start(self: &Arc<Self>, hook: Hook) -> Timer {
        Timer {
            metrics: Arc::clone(self),
            hook,
            begin: Instant::now(),
        }
    }

    /// The certificates in use end then.
    pub(super) fn expiry(&self, authority: u64, serving: u64) {
        for (certificate, at) in [("authority", authority), ("serving", serving)] {
            let at = i64::try_from(at).unwrap_or(i64::MAX);
            self.expiry.with_label_values(&[certificate]).set(at);
        }
    }

    /// The exposition, in Prometheus text format 0.0.4.
    ///
    /// # Errors
    /// When a metric cannot be encoded.
    pub(super) fn render(&self) -> Result<String, MetricsError> {
        exposition(&self.registry.gather())
    }
}

impl Timer {
    /// It is done.
    pub(super) fn end(self, outcome: &str) {
        let hook = self.hook.label();
        let elapsed = self.begin.elapsed().as_secs_f64();
        self.metrics
            .durations
            .with_label_values(&[hook])
            .observe(elapsed);
        self.metrics
            .reviews
            .with_label_values(&[hook, outcome])
            .inc();
    }
}

fn opts(name: &str) -> Opts {
    described(METRICS, name)
}
