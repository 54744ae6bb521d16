//! JSON rows as a table for people.

use std::fmt::Write as _;

use book::bandwidth::Bits;
use cni_spec::GetWhat;
use serde_json::Value;

mod policies;

/// Column of the pod, as `NAMESPACE/NAME`.
///
/// Without Kubernetes it has the first characters of the container's ID. `explain --from` takes both.
const HOLDER: &str = "(pod)";
/// Shown characters of a container's ID, as many as `crictl` shows.
const CONTAINER_SHOWN: usize = 13;

/// Heading and JSON key of each column.
type Columns = &'static [(&'static str, &'static str)];

const NETWORKS: Columns = &[
    ("NAME", "name"),
    ("ID", "id"),
    ("MODE", "mode"),
    ("TRANSPORT", "transport"),
    ("UPLINK", "uplink"),
    ("SUBNETS", "subnets"),
    ("MTU", "mtu"),
    ("EGRESS", "egress"),
    ("CONNECTIONS", "connections"),
    ("READY", "ready"),
    ("ATTACHED", "attachments"),
    ("REASON", "reason"),
    ("MESSAGE", "message"),
];
const ATTACHMENTS: Columns = &[
    ("POD", HOLDER),
    ("INTERFACE", "ifname"),
    ("NETWORK", "network"),
    ("ADDRESSES", "ips"),
    ("MAC", "mac"),
    ("STATE", "state"),
    ("SENT", "fromPod.packets"),
    ("RECEIVED", "toPod.packets"),
    ("DROPPED", "dropped.packets"),
    ("HOST", "hostInterface"),
    ("HOOK", "hook"),
    ("INGRESS", "bandwidth.ingress"),
    ("EGRESS", "bandwidth.egress"),
];
const ENDPOINTS: Columns = &[
    ("NETWORK", "network"),
    ("ADDRESSES", "ips"),
    ("MAC", "mac"),
    ("PLACE", "place"),
    ("NODE", "node"),
    ("HOST", "hostInterface"),
    ("POD", HOLDER),
    ("INTERFACE", "ifname"),
];
const DROPS: Columns = &[
    ("NETWORK", "network"),
    ("REASON", "reason"),
    ("PACKETS", "packets"),
    ("BYTES", "bytes"),
    ("MEANING", "meaning"),
];

const VPCS: Columns = &[
    ("NAME", "name"),
    ("CIDRS", "cidrs"),
    ("NETWORKS", "networks"),
    ("PEERS", "peers"),
    ("READY", "ready"),
    ("REASON", "reason"),
    ("MESSAGE", "message"),
];

const UPLINKS: Columns = &[
    ("INTERFACE", "interface"),
    ("ADDRESSES", "addresses"),
    ("PORT", "port"),
    ("DROPS IN", "mode"),
    ("BECAUSE", "because"),
    ("STEERS", "steers"),
    ("STEERS BECAUSE", "steersBecause"),
];

/// The table of `get`.
pub(super) fn of(what: GetWhat, rows: &Value) -> String {
    let columns = match what {
        GetWhat::Networks => NETWORKS,
        GetWhat::Attachments => ATTACHMENTS,
        GetWhat::Endpoints => ENDPOINTS,
        GetWhat::Drops => DROPS,
        GetWhat::Uplinks => UPLINKS,
        GetWhat::Vpcs => VPCS,
        GetWhat::Services => return policies::services(rows),
        GetWhat::Policies => return policies::policies(rows),
        GetWhat::Flows => return policies::flows(rows),
    };
    let mut lines = vec![
        columns
            .iter()
            .map(|(heading, _)| (*heading).to_owned())
            .collect(),
    ];
    for row in rows.as_array().into_iter().flatten() {
        lines.push(
            columns
                .iter()
                .map(|(_, key)| cell(row, key))
                .collect::<Vec<_>>(),
        );
    }
    align(&lines)
}

/// The text of `explain`.
pub(super) fn explanation(rows: &Value) -> String {
    let mut text = String::new();
    for row in rows.as_array().into_iter().flatten() {
        let title = [HOLDER, "ifname", "network", "state"].map(|key| cell(row, key));
        let [container, ifname, network, state] = title;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{ifname} of {container} on {network} ({state})");
        let decisions = row.get("decisions").and_then(Value::as_array);
        let lines: Vec<Vec<String>> = decisions
            .into_iter()
            .flatten()
            .map(|decision| {
                vec![
                    format!("  {}", cell(decision, "about")),
                    cell(decision, "value"),
                    cell(decision, "because"),
                ]
            })
            .collect();
        text.push_str(&align(&lines));
        text.push('\n');
    }
    text.trim_end().to_owned()
}

pub(super) fn cell(row: &Value, key: &str) -> String {
    if key == HOLDER {
        return holder(row);
    }
    let found = key.split('.').try_fold(row, |value, part| value.get(part));
    match found {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) if text.is_empty() => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) if items.is_empty() => "-".to_owned(),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| {
                item.as_str()
                    .map_or_else(|| item.to_string(), ToOwned::to_owned)
            })
            .collect::<Vec<_>>()
            .join(","),
        Some(limit @ Value::Object(fields)) if fields.contains_key("rate") => rate(limit),
        Some(other) => other.to_string(),
    }
}

fn holder(row: &Value) -> String {
    let text = |path: &str| row.pointer(path).and_then(Value::as_str);
    match (text("/pod/namespace"), text("/pod/name")) {
        (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
        _ => text("/container").map_or_else(
            || "-".to_owned(),
            |id| id.chars().take(CONTAINER_SHOWN).collect(),
        ),
    }
}

/// A limit, as `100 Mbit/s (burst 100 kbit, tbf+htb)`.
fn rate(limit: &Value) -> String {
    let bits = |key: &str| limit.get(key).and_then(Value::as_u64).map(Bits);
    let rate = bits("rate").unwrap_or(Bits(0));
    let mechanism = limit.get("mechanism").and_then(Value::as_str);
    match (bits("burst"), mechanism) {
        (Some(burst), Some(mechanism)) => format!("{rate}/s (burst {burst}, {mechanism})"),
        _ => format!("{rate}/s (NOT IN FORCE)"),
    }
}

/// Columns as wide as their widest cell, two blanks apart.
pub(super) fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column| {
        let cells = lines
            .iter()
            .filter_map(|line: &Vec<String>| line.get(column));
        cells
            .map(|cell: &String| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    lines
        .iter()
        .map(|line| {
            let padded = line
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:width$}"));
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        })
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_line_up_and_absent_values_are_a_dash() {
        let rows =
            json!([{"network": "blue", "reason": "spoofed_mac", "packets": 3, "bytes": 180}]);
        let text = of(GetWhat::Drops, &rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].find("REASON"), lines[1].find("spoofed_mac"));
        assert!(lines[1].ends_with('-'), "{text}");
    }

    #[test]
    fn a_pod_has_its_name_and_a_container_without_one_the_beginning_of_its_id() {
        let id = "0f".repeat(32);
        let rows = json!([
            {"container": id, "pod": {"namespace": "vms", "name": "vm-a", "uid": "u"}},
            {"container": id, "pod": null},
            {"container": "short"},
            {},
        ]);
        for what in [GetWhat::Attachments, GetWhat::Endpoints] {
            let text = of(what, &rows);
            let column = text.lines().next().and_then(|line| line.find("POD"));
            let column = column.expect("a column of pods");
            let shown: Vec<&str> = text
                .lines()
                .skip(1)
                .filter_map(|line| line[column..].split_whitespace().next())
                .collect();
            assert_eq!(shown, ["vms/vm-a", "0f0f0f0f0f0f0", "short", "-"], "{text}");
        }
    }

    #[test]
    fn a_limit_says_how_it_is_kept_or_that_it_is_not() {
        let rows = json!([{"bandwidth": {
            "ingress": {"rate": 100_000_000, "burst": 100_000, "mechanism": "tbf+htb"},
            "egress": {"rate": 5000, "burst": null, "mechanism": null},
        }}]);
        let text = of(GetWhat::Attachments, &rows);
        assert!(
            text.contains("100 Mbit/s (burst 100 kbit, tbf+htb)"),
            "{text}"
        );
        assert!(text.contains("5 kbit/s (NOT IN FORCE)"), "{text}");
    }
}
