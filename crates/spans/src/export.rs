//! Keep what waits for the collector within a bound, and count it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter, SpanProcessor};

/// Counters of this process.
pub(crate) static COUNTS: Counters = Counters::new();

#[derive(Debug)]
pub(crate) struct Counters {
    exported: AtomicU64,
    dropped: AtomicU64,
    waiting: AtomicUsize,
}

impl Counters {
    pub(crate) const fn new() -> Self {
        Self {
            exported: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Spans that wait for the collector or its answer.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            exported: self.exported.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn drop(&self, spans: u64) {
        self.dropped.fetch_add(spans, Ordering::Relaxed);
    }
}

/// Spans of this process so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// The collector has taken them.
    pub exported: u64,
    /// Dropped: beyond a rate, beyond the queue, or refused by the collector.
    pub dropped: u64,
}

/// Returns the number of spans of this process so far.
pub fn counts() -> Counts {
    COUNTS.counts()
}

/// An exporter whose spans are counted.
#[derive(Debug)]
pub(crate) struct Counted<E>(E, &'static Counters);

impl<E> Counted<E> {
    pub(crate) const fn new(exporter: E, counters: &'static Counters) -> Self {
        Self(exporter, counters)
    }
}

impl<E: SpanExporter> SpanExporter for Counted<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let exported = self.0.export(batch).await;
        self.1.waiting.fetch_sub(spans, Ordering::Relaxed);
        let spans = u64::try_from(spans).unwrap_or(u64::MAX);
        match &exported {
            Ok(()) => {
                self.1.exported.fetch_add(spans, Ordering::Relaxed);
            }
            Err(error) => {
                self.1.drop(spans);
                tracing::debug!(%error, spans, "the collector of --otlp-endpoint took no spans: they are dropped");
            }
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

/// A processor that drops, and counts, what is beyond its queue.
///
/// The standard one drops as well, and tells nobody.
#[derive(Debug)]
pub(crate) struct Bounded<P> {
    inner: P,
    most: usize,
    counters: &'static Counters,
}

impl<P> Bounded<P> {
    pub(crate) const fn new(inner: P, most: usize, counters: &'static Counters) -> Self {
        Self {
            inner,
            most,
            counters,
        }
    }
}

impl<P: SpanProcessor> SpanProcessor for Bounded<P> {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.inner.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        let room = |waiting| (waiting < self.most).then_some(waiting + 1);
        let counted =
            self.counters
                .waiting
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room);
        match counted {
            Ok(_) => self.inner.on_end(span),
            Err(_) => self.counters.drop(1),
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}
