//! Metrics of network policies.

use std::collections::BTreeMap;

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{IntGauge, IntGaugeVec};
use telemetry::exposition::MetricsError;

use super::{number, opts};

/// Numbers of network policies.
#[derive(Debug, Default)]
pub struct PolicyNumbers {
    /// Objects by kind.
    pub kinds: BTreeMap<&'static str, usize>,
    /// Parts of them that are not obeyed.
    pub problems: usize,
}

/// Families of these numbers.
pub(super) fn families(
    policies: Option<&PolicyNumbers>,
) -> Result<Vec<MetricFamily>, MetricsError> {
    let Some(policies) = policies else {
        return Ok(Vec::new());
    };
    let kinds = IntGaugeVec::new(opts("podnet_policies"), &["kind"])?;
    for (kind, count) in &policies.kinds {
        kinds.with_label_values(&[*kind]).set(number(*count));
    }
    let problems = IntGauge::with_opts(opts("podnet_policy_problems"))?;
    problems.set(number(policies.problems));
    Ok([kinds.collect(), problems.collect()].concat())
}
