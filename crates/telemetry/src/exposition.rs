//! Describe metrics once and write them as text for Prometheus.

use prometheus::proto::MetricFamily;
use prometheus::{Encoder as _, Opts, TextEncoder};

/// A metric could not be made; only a wrong name can cause it.
#[derive(Debug, thiserror::Error)]
#[error("metrics cannot be set up")]
pub struct MetricsError(#[from] prometheus::Error);

/// Name, type, labels and meaning of a metric.
pub type Described = (&'static str, &'static str, &'static str, &'static str);

/// Makes the options of a metric with the meaning that its table gives it.
pub fn described(table: &[Described], name: &str) -> Opts {
    let of_name = table.iter().find(|(other, ..)| *other == name);
    Opts::new(name, of_name.map_or("", |(.., help)| help))
}

/// Writes metric families in Prometheus text format 0.0.4.
///
/// # Errors
/// When a metric cannot be encoded.
pub fn exposition(families: &[MetricFamily]) -> Result<String, MetricsError> {
    let mut text = Vec::new();
    TextEncoder::new().encode(families, &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
