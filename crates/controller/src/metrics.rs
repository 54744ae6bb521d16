//! The controller's metrics.

use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};
use telemetry::exposition::{MetricsError, described, exposition};

/// Buckets of a pass, seconds: a small cluster takes a millisecond.
const SECONDS: [f64; 9] = [0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0];

/// Name, type, labels and meaning of every metric; `docs/metrics.md` is made of it.
pub const METRICS: &[(&str, &str, &str, &str)] = &[
    (
        "podnet_controller_leader",
        "gauge",
        "",
        "1 while this controller leads, 0 while it stands by",
    ),
    (
        "podnet_controller_pass_seconds",
        "histogram",
        "",
        "Time to look at the whole cluster and to write what has changed",
    ),
    (
        "podnet_controller_writes_total",
        "counter",
        "object, outcome",
        "Writes to the API server by what became of them: written, conflict or gone (looked at again), failed (tried again)",
    ),
    (
        "podnet_controller_networks",
        "gauge",
        "ready",
        "PodNetworks of this provider by whether they are Ready",
    ),
    (
        "podnet_controller_waiting_pods",
        "gauge",
        "",
        "Pods that wait for their networks behind the scheduling gate",
    ),
    (
        "podnet_controller_unreadable_objects",
        "gauge",
        "",
        "Objects that this version cannot read; finalizers they may need stay",
    ),
    (
        "podnet_controller_blocks_revoked_total",
        "counter",
        "",
        "IPBlocks that were taken back from nodes that took more than their pods can need and --spare-blocks",
    ),
];

/// The metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// 1 for a leader.
    pub leader: IntGauge,
    /// Time of a pass.
    pub pass: Histogram,
    /// Pods behind the gate.
    pub waiting_pods: IntGauge,
    /// Objects that cannot be read.
    pub unreadable: IntGauge,
    /// Blocks that were taken back from nodes with too many.
    pub revoked: IntCounter,
    writes: IntCounterVec,
    networks: IntGaugeVec,
}

impl Metrics {
    /// Sets them up.
    ///
    /// # Errors
    /// Never with the names in this file.
    pub fn new() -> Result<Self, MetricsError> {
        let pass = HistogramOpts::from(opts("podnet_controller_pass_seconds"));
        let this = Self {
            registry: Registry::new(),
            leader: IntGauge::with_opts(opts("podnet_controller_leader"))?,
            pass: Histogram::with_opts(pass.buckets(SECONDS.to_vec()))?,
            waiting_pods: IntGauge::with_opts(opts("podnet_controller_waiting_pods"))?,
            unreadable: IntGauge::with_opts(opts("podnet_controller_unreadable_objects"))?,
            revoked: IntCounter::with_opts(opts("podnet_controller_blocks_revoked_total"))?,
            writes: IntCounterVec::new(
                opts("podnet_controller_writes_total"),
                &["object", "outcome"],
            )?,
            networks: IntGaugeVec::new(opts("podnet_controller_networks"), &["ready"])?,
        };
        let registry = &this.registry;
        registry.register(Box::new(this.leader.clone()))?;
        registry.register(Box::new(this.pass.clone()))?;
        registry.register(Box::new(this.waiting_pods.clone()))?;
        registry.register(Box::new(this.unreadable.clone()))?;
        registry.register(Box::new(this.revoked.clone()))?;
        registry.register(Box::new(this.writes.clone()))?;
        registry.register(Box::new(this.networks.clone()))?;
        Ok(this)
    }

    /// Counts a write.
    pub fn write(&self, object: &str, outcome: &str) {
        self.writes.with_label_values(&[object, outcome]).inc();
    }

    /// Networks of ours: not ready, ready.
    pub fn networks(&self, [not_ready, ready]: [usize; 2]) {
        for (label, count) in [("false", not_ready), ("true", ready)] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.networks.with_label_values(&[label]).set(count);
        }
    }

    /// The exposition, in Prometheus text format 0.0.4.
    ///
    /// # Errors
    /// When a metric cannot be encoded.
    pub fn render(&self) -> Result<String, MetricsError> {
        exposition(&self.registry.gather())
    }
}

fn opts(name: &str) -> Opts {
    described(METRICS, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_of_the_table_is_served() {
        let metrics = Metrics::new().unwrap();
        metrics.write("PodNetwork", "written");
        metrics.networks([1, 2]);
        let text = metrics.render().unwrap();
        for (name, kind, ..) in METRICS {
            assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{name}");
        }
        assert!(
            text.contains("podnet_controller_networks{ready=\"true\"} 2"),
            "{text}"
        );
    }
}
