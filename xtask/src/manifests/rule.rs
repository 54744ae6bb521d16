//! Write the alert rules as an object of the Prometheus operator.
//!
//! The file is `deploy/monitoring/prometheus-rule.yaml`.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};

use crate::workspace;

/// The file that is written.
pub(super) const FILE: &str = "deploy/monitoring/prometheus-rule.yaml";
/// The rules as Prometheus itself reads them.
const SOURCE: &str = "deploy/monitoring/alerts.yaml";

const HEAD: &str = "\
# The alert rules as an object for the Prometheus operator.
# Generated from deploy/monitoring/alerts.yaml by `cargo xtask manifests`. Do not edit.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: podnet
  namespace: podnet-system
  labels:
    app.kubernetes.io/part-of: podnet
spec:
";

/// The object.
pub(super) fn text() -> Result<String> {
    let path = workspace::root().join(SOURCE);
    let rules = fs::read_to_string(&path).with_context(|| format!("reading {SOURCE}"))?;
    let mut text = String::from(HEAD);
    for line in rules.lines().skip_while(|line| line.starts_with('#')) {
        if line.is_empty() {
            text.push('\n');
        } else {
            writeln!(text, "  {line}").context("a string takes everything")?;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_object_has_the_rules_of_the_file_and_nothing_else() {
        let source = fs::read_to_string(workspace::root().join(SOURCE)).unwrap();
        let source: Value = serde_saphyr::from_str(&source).unwrap();
        let object: Value = serde_saphyr::from_str(&text().unwrap()).unwrap();
        assert_eq!(object["spec"], source);
        assert_eq!(object["kind"], "PrometheusRule");
    }
}
