//! Metrics of the flow log.

use prometheus::core::Collector as _;
use prometheus::proto::MetricFamily;
use prometheus::{IntCounterVec, IntGauge};

use super::{MetricsError, opts};

/// Numbers of the flow log since the agent has started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowLogNumbers {
    /// Ports that it samples now.
    pub ports: u64,
    /// Samples that are in flows.
    pub logged: u64,
    /// Samples for whose flow there was no room.
    pub overflow: u64,
    /// Samples for which there was no room in their ring.
    pub lost: u64,
    /// Lines that were written.
    pub lines: u64,
    /// Lines that could not be written.
    pub failed_lines: u64,
}

/// None where there is no flow log.
pub(super) fn families(
    numbers: Option<&FlowLogNumbers>,
) -> Result<Vec<MetricFamily>, MetricsError> {
    let Some(numbers) = numbers else {
        return Ok(Vec::new());
    };
    let ports = IntGauge::with_opts(opts("podnet_flow_log_ports"))?;
    ports.set(i64::try_from(numbers.ports).unwrap_or(i64::MAX));
    let samples = IntCounterVec::new(opts("podnet_flow_log_samples_total"), &["outcome"])?;
    for (outcome, count) in [
        ("logged", numbers.logged),
        ("overflow", numbers.overflow),
        ("lost", numbers.lost),
    ] {
        samples.with_label_values(&[outcome]).inc_by(count);
    }
    let lines = IntCounterVec::new(opts("podnet_flow_log_lines_total"), &["outcome"])?;
    for (outcome, count) in [("written", numbers.lines), ("failed", numbers.failed_lines)] {
        lines.with_label_values(&[outcome]).inc_by(count);
    }
    let counters = samples.collect().into_iter().chain(lines.collect());
    Ok(ports.collect().into_iter().chain(counters).collect())
}
