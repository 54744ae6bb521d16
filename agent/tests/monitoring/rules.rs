//! The rules and the dashboard, held against the tables of metrics.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use agent::cni::error::{CODES, SPEC_CODES};
use agent_common::drop::DropReason;
use metrics::METRICS;
use serde_json::Value;

use super::promql::{Question, Use, read};

/// Labels that Prometheus adds to everything, and that of a histogram's buckets.
const COMMON: [&str; 3] = ["instance", "job", "le"];
/// Metric that Prometheus has of every target itself.
const TARGET: &str = "up";
/// Functions over the growth of a counter.
const OF_COUNTERS: [&str; 3] = ["rate", "irate", "increase"];

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/monitoring");
    let path: PathBuf = path.join(name);
    fs::read_to_string(&path).unwrap_or_else(|why| unreachable!("{}: {why}", path.display()))
}

fn table() -> Vec<(&'static str, &'static str, &'static str)> {
    let all = [METRICS, controller::metrics::METRICS, webhook::METRICS].concat();
    let brief = all
        .into_iter()
        .map(|(name, kind, labels, _)| (name, kind, labels));
    brief.collect()
}

/// The metric that a name means: the name itself, or that of a histogram.
fn described(name: &str) -> Option<(&'static str, &'static str, &'static str)> {
    table().into_iter().find(|(known, kind, _)| {
        let parts = ["_bucket", "_sum", "_count"];
        match *kind {
            "histogram" => parts
                .iter()
                .any(|part| name.strip_suffix(part) == Some(known)),
            _ => name == *known,
        }
    })
}

/// Everything that is wrong with an expression.
fn findings(expression: &str) -> Vec<String> {
    let Question { uses, grouping } = read(expression);
    let mut findings = Vec::new();
    let mut labels: BTreeSet<&str> = COMMON.into();
    for one in &uses {
        if one.metric == TARGET {
            continue;
        }
        let Some((name, kind, own)) = described(&one.metric) else {
            findings.push(format!("no metric is called {}", one.metric));
            continue;
        };
        let own: BTreeSet<&str> = own.split(", ").filter(|label| !label.is_empty()).collect();
        labels.extend(&own);
        let function = one.function.as_deref().unwrap_or_default();
        if OF_COUNTERS.contains(&function) != (kind != "gauge") {
            findings.push(format!(
                "{name} is a {kind}, and this is {function}({name})"
            ));
        }
        findings.extend(wrong_matchers(one, name, &own));
    }
    let unknown = grouping
        .iter()
        .filter(|label| !labels.contains(label.as_str()));
    findings.extend(unknown.map(|label| format!("nothing has the label {label}")));
    findings
}

fn wrong_matchers(one: &Use, name: &str, own: &BTreeSet<&str>) -> Vec<String> {
    let reasons: Vec<String> = DropReason::ALL
        .iter()
        .map(|reason| reason.label().to_string())
        .collect();
    let codes = SPEC_CODES
        .iter()
        .chain(CODES)
        .map(|(code, ..)| code.to_string());
    let codes: Vec<String> = codes.chain(["0".to_owned()]).collect();
    let commands = ["ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"].map(str::to_owned);
    let mut findings = Vec::new();
    for (label, values) in &one.matchers {
        if !own.contains(label.as_str()) && !COMMON.contains(&label.as_str()) {
            findings.push(format!("{name} has no label {label}"));
        }
        let known: &[String] = match label.as_str() {
            "reason" => &reasons,
            "code" => &codes,
            "command" => &commands,
            _ => continue,
        };
        let unknown = values
            .split('|')
            .filter(|value| !known.iter().any(|one| one == value));
        findings.extend(unknown.map(|value| format!("{label} is never {value}")));
    }
    findings
}

/// Every `expr` below a value, with the nearest name above it.
fn expressions<'a>(value: &'a Value, name: &'a str, found: &mut Vec<(&'a str, &'a str)>) {
    match value {
        Value::Object(fields) => {
            let names = ["alert", "title"]
                .iter()
                .find_map(|key| value[key].as_str());
            let name = names.unwrap_or(name);
            if let Some(expression) = fields.get("expr").and_then(Value::as_str) {
                found.push((name, expression));
            }
            fields
                .values()
                .for_each(|field| expressions(field, name, found));
        }
        Value::Array(list) => list.iter().for_each(|one| expressions(one, name, found)),
        _ => {}
    }
}

fn check(file: &str, content: &Value) -> BTreeSet<&'static str> {
    let mut all = Vec::new();
    expressions(content, file, &mut all);
    assert!(!all.is_empty(), "{file} asks for nothing");
    let wrong: Vec<String> = all
        .iter()
        .flat_map(|(name, text)| {
            findings(text)
                .into_iter()
                .map(move |one| format!("{name}: {one}"))
        })
        .collect();
    assert_eq!(wrong, [""; 0], "{file}");
    all.iter()
        .flat_map(|(_, text)| read(text).uses)
        .filter_map(|one| described(&one.metric))
        .map(|(name, ..)| name)
        .collect()
}

#[test]
fn every_metric_label_and_value_of_the_alert_rules_exists() {
    let rules: Value = serde_saphyr::from_str(&file("alerts.yaml")).expect("YAML");
    check("alerts.yaml", &rules);
    let groups = rules["groups"].as_array().expect("groups");
    let rules = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().into_iter().flatten());
    let mut names = BTreeSet::new();
    for rule in rules {
        let name = rule["alert"].as_str().expect("a name");
        assert!(names.insert(name), "{name} is there twice");
        for text in ["summary", "description"] {
            assert!(
                rule["annotations"][text].is_string(),
                "{name} has no {text}"
            );
        }
        let severity = rule["labels"]["severity"].as_str().unwrap_or_default();
        assert!(
            ["critical", "warning", "info"].contains(&severity),
            "{name}: {severity}"
        );
    }
}

/// The dashboard shows every metric: one that it does not show is one too many.
#[test]
fn the_dashboard_shows_every_metric_and_no_other() {
    let dashboard: Value = serde_json::from_str(&file("dashboard.json")).expect("JSON");
    let shown = check("dashboard.json", &dashboard);
    let all = table().into_iter().map(|(name, ..)| name);
    // It names the network of an interface, for joins with metrics of others.
    let missing: Vec<&str> = all
        .filter(|name| !shown.contains(name) && *name != "pod_network_name_info")
        .collect();
    assert_eq!(missing, [""; 0]);

    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<u64> = panels
        .iter()
        .filter_map(|panel| panel["id"].as_u64())
        .collect();
    assert_eq!(
        ids.len(),
        panels.len(),
        "every panel has a number of its own"
    );
}

#[test]
fn an_expression_that_asks_for_what_is_not_there_is_found() {
    for (expression, expected) in [
        (
            "podnet_attachment > 0",
            "no metric is called podnet_attachment",
        ),
        (
            "rate(podnet_attachments[5m])",
            "podnet_attachments is a gauge",
        ),
        ("podnet_drops_total > 0", "podnet_drops_total is a counter"),
        (
            "podnet_cni_duration_seconds > 1",
            "no metric is called podnet_cni_duration_seconds",
        ),
        (
            r#"rate(podnet_drops_total{node="a"}[5m])"#,
            "podnet_drops_total has no label node",
        ),
        (
            r#"rate(podnet_drops_total{reason="spoofed"}[5m])"#,
            "reason is never spoofed",
        ),
        (
            "sum by (node) (podnet_attachments)",
            "nothing has the label node",
        ),
    ] {
        let found = findings(expression).join("\n");
        assert!(found.contains(expected), "{expression}: {found}");
    }
    let good = r#"sum by (network) (rate(podnet_drops_total{reason=~"storm|ttl"}[5m])) > 1"#;
    assert_eq!(findings(good), [""; 0]);
}
