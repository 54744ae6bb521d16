//! Export spans of requests to a collector, by OTLP over gRPC.
//!
//! A runtime that traces hands its trace over (`TRACEPARENT`), and a share of other requests begins a trace of its
//! own. What waits for the collector has a bound: a collector that is slow or away costs spans, which are counted,
//! and no request any time.

mod export;
mod sample;

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use opentelemetry::trace::{
    FutureExt as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags,
    TraceId, TraceState, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SdkTracer, SdkTracerProvider,
};

use self::export::{Bounded, COUNTS, Counted, Counters};
pub use self::export::{Counts, counts};
use self::sample::Sampler;

/// Spans that wait for the collector, at most.
const QUEUE: usize = 2048;
/// Spans in one message to the collector.
const BATCH: usize = 512;
/// Time between two messages.
const DELAY: Duration = Duration::from_secs(2);
/// Time that the collector has to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time that is left for the last spans of a process that ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// Options about spans.
#[derive(Debug, Clone, Default, Args)]
pub struct SpanOptions {
    /// Collector that gets spans of CNI requests, by OTLP over gRPC
    ///
    /// For example <http://127.0.0.1:4317>: a collector on the node. Without it no spans are made.
    #[arg(long, env = "PODNET_OTLP_ENDPOINT", value_name = "URL", value_parser = endpoint)]
    pub otlp_endpoint: Option<String>,
    /// Share of the requests without a trace of the runtime that get one, 0 to 1
    ///
    /// Requests with a trace are exported where the runtime says that it samples it; of both no more than 100 a second.
    #[arg(
        long,
        env = "PODNET_OTLP_RATIO",
        value_name = "SHARE",
        default_value_t = 0.0,
        value_parser = ratio,
        requires = "otlp_endpoint"
    )]
    pub otlp_ratio: f64,
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok();
    let ratio = ratio.filter(|it| (0.0..=1.0).contains(it));
    ratio.ok_or_else(|| "write a number from 0 to 1, for example 0.1".to_owned())
}

fn endpoint(text: &str) -> Result<String, String> {
    let of_collector = text.strip_prefix("http://").filter(|rest| !rest.is_empty());
    let url = of_collector.and_then(|_| text.parse::<tonic::transport::Uri>().ok());
    let url = url.filter(|it| it.port_u16().is_some() && matches!(it.path(), "" | "/"));
    if url.is_none() {
        return Err(
            "write http://ADDRESS:PORT of a collector that takes OTLP over gRPC without TLS, \
                    for example http://127.0.0.1:4317 of one on the node"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}

/// No exporter can be made.
#[derive(Debug, thiserror::Error)]
#[error("--otlp-endpoint {endpoint} cannot be used")]
pub struct SpanError {
    endpoint: String,
    source: ExporterBuildError,
}

static TRACER: OnceLock<SdkTracer> = OnceLock::new();

/// Exports what is left when it is dropped.
#[derive(Debug)]
#[must_use = "spans are exported while it is there"]
pub struct Exporting(SdkTracerProvider);

impl Drop for Exporting {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown_with_timeout(FAREWELL) {
            tracing::debug!(%error, "the collector did not get the last spans");
        }
    }
}

/// Starts the export, if a collector is named.
///
/// A process does so once, in its runtime.
///
/// # Errors
/// When the address cannot be used.
pub fn start(
    options: &SpanOptions,
    service: &str,
    node: &str,
) -> Result<Option<Exporting>, SpanError> {
    let Some(endpoint) = &options.otlp_endpoint else {
        return Ok(None);
    };
    let resource = Resource::builder_empty()
        .with_service_name(service.to_owned())
        .with_attribute(KeyValue::new("host.name", node.to_owned()))
        .build();
    let provider = provider(endpoint, options.otlp_ratio, resource, (PATIENCE, &COUNTS));
    let provider = provider.map_err(|source| SpanError {
        endpoint: endpoint.clone(),
        source,
    })?;
    // Of a second start the first one's stays.
    let _ = TRACER.set(provider.tracer(service.to_owned()));
    Ok(Some(Exporting(provider)))
}

/// Makes what exports to a collector, which has this time for each answer.
fn provider(
    endpoint: &str,
    ratio: f64,
    resource: Resource,
    (patience, counters): (Duration, &'static Counters),
) -> Result<SdkTracerProvider, ExporterBuildError> {
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .with_timeout(patience)
        .build()?;
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(QUEUE)
        .with_max_export_batch_size(BATCH)
        .with_scheduled_delay(DELAY)
        .build();
    let processor = BatchSpanProcessor::builder(Counted::new(exporter, counters))
        .with_batch_config(batches)
        .build();
    Ok(SdkTracerProvider::builder()
        .with_span_processor(Bounded::new(processor, QUEUE, counters))
        .with_sampler(Sampler::new(ratio, counters))
        .with_resource(resource)
        .build())
}

/// The place of a caller in its trace, from `TRACEPARENT`.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// 32 hexadecimal digits.
    pub trace: &'a str,
    /// Of the caller's span, 16 hexadecimal digits.
    pub span: &'a str,
    /// Whether it samples the trace.
    pub sampled: bool,
}

impl Caller<'_> {
    fn context(self) -> Option<Context> {
        let trace = TraceId::from_hex(self.trace).ok()?;
        let span = SpanId::from_hex(self.span).ok()?;
        let flags = match self.sampled {
            true => TraceFlags::SAMPLED,
            false => TraceFlags::NOT_SAMPLED,
        };
        let caller = SpanContext::new(trace, span, flags, true, TraceState::default());
        Some(Context::new().with_remote_span_context(caller))
    }
}

/// The span of a request; nothing where none is made.
#[derive(Debug)]
pub struct Request(Option<Context>);

impl Request {
    /// Begins the span of a request that is served now.
    ///
    /// `attributes` are names with values.
    pub fn begin(
        name: &'static str,
        caller: Option<Caller<'_>>,
        attributes: impl FnOnce() -> Vec<(&'static str, String)>,
    ) -> Self {
        match TRACER.get() {
            Some(tracer) => Self::begin_by(tracer, name, caller, attributes),
            None => Self(None),
        }
    }

    fn begin_by(
        tracer: &SdkTracer,
        name: &'static str,
        caller: Option<Caller<'_>>,
        attributes: impl FnOnce() -> Vec<(&'static str, String)>,
    ) -> Self {
        let parent = caller.and_then(Caller::context).unwrap_or_default();
        let span = tracer
            .span_builder(name)
            .with_kind(SpanKind::Server)
            .start_with_context(tracer, &parent);
        let context = parent.with_span(span);
        if !context.span().is_recording() {
            return Self(None);
        }
        for (name, value) in attributes() {
            context.span().set_attribute(KeyValue::new(name, value));
        }
        Self(Some(context))
    }

    /// Serves the request: phases that end meanwhile are part of its span.
    pub async fn serve<T>(&self, work: impl Future<Output = T>) -> T {
        match &self.0 {
            Some(context) => work.with_context(context.clone()).await,
            None => work.await,
        }
    }

    /// Ends the span; a request that was refused says why.
    pub fn end(self, refusal: impl FnOnce() -> Option<(u32, String)>) {
        let Some(context) = self.0 else { return };
        let span = context.span();
        if let Some((code, reason)) = refusal() {
            span.set_attribute(KeyValue::new("cni.code", i64::from(code)));
            span.set_status(Status::error(reason));
        }
        span.end();
    }
}

/// Adds a phase that lasted from `since` to `now` to the request served here.
pub fn phase(name: &'static str, since: Instant, now: Instant) {
    if let Some(tracer) = TRACER.get() {
        phase_by(tracer, name, since, now);
    }
}

fn phase_by(tracer: &SdkTracer, name: &'static str, since: Instant, now: Instant) {
    let context = Context::current();
    if !context.span().is_recording() {
        return;
    }
    // The clock is read once: the phase has its length, whatever passes here.
    let end = SystemTime::now();
    let span = tracer
        .span_builder(name)
        .with_start_time(end - now.saturating_duration_since(since))
        .start_with_context(tracer, &context);
    context.with_span(span).span().end_with_timestamp(end);
}

#[cfg(test)]
mod tests;
