//! Policies and connections as tables for people.

use serde_json::Value;

use super::{align, cell, holder};

/// The widest line that is printed of policies.
const WIDTH: usize = 120;
/// Characters of a cell that are shown: of a name, and of a list of networks.
const SHOWN: [usize; 2] = [56, 30];
/// In front of a problem, and of the rest of it.
const MARK: [&str; 2] = ["  ! ", "    "];

/// The table of `get policies`: a line for each, and its problems below.
pub(super) fn policies(rows: &Value) -> String {
    let rows: Vec<&Value> = rows.as_array().into_iter().flatten().collect();
    let head = ["KIND", "NAME", "NETWORKS", "PORTS"].map(str::to_owned);
    let mut lines = vec![head.to_vec()];
    for row in &rows {
        let [kind, namespace, name, networks, ports] =
            ["kind", "namespace", "name", "networks", "ports"].map(|key| cell(row, key));
        let name = match namespace.as_str() {
            "-" => name,
            namespace => format!("{namespace}/{name}"),
        };
        let [most_name, most_networks] = SHOWN;
        lines.push(vec![
            kind,
            cut(&name, most_name),
            cut(&networks, most_networks),
            ports,
        ]);
    }
    let table = align(&lines);
    let mut lines = table.lines();
    let mut text: Vec<String> = lines.next().map(str::to_owned).into_iter().collect();
    for (line, row) in lines.zip(rows) {
        if row.get("name").is_some_and(Value::is_string) {
            text.push(line.to_owned());
        }
        let problems = row.get("problems").and_then(Value::as_array);
        for problem in problems.into_iter().flatten().filter_map(Value::as_str) {
            text.extend(wrap(problem));
        }
    }
    text.join("\n")
}

/// The table of `get services`: a line for each port, and problems below.
pub(super) fn services(rows: &Value) -> String {
    let head = ["NETWORK", "SERVICE", "ADDRESS", "PORT", "ENDPOINTS"].map(str::to_owned);
    let mut lines = vec![head.to_vec()];
    let mut problems = Vec::new();
    for row in rows.as_array().into_iter().flatten() {
        if let Some(problem) = row.get("problem").and_then(Value::as_str) {
            problems.extend(wrap(problem));
            continue;
        }
        let [network, service, address, port, protocol, endpoints] = [
            "network",
            "service",
            "address",
            "port",
            "protocol",
            "endpoints",
        ]
        .map(|key| cell(row, key));
        let more = row.get("endpointsNotShown").and_then(Value::as_u64);
        let endpoints = match (more, row.get("elsewhereOnly").and_then(Value::as_bool)) {
            (_, Some(true)) => "on other nodes only".to_owned(),
            (Some(more), _) if more > 0 => format!("{endpoints} and {more} more"),
            _ => endpoints,
        };
        let [most_name, most_endpoints] = SHOWN;
        lines.push(vec![
            cut(&network, most_endpoints),
            cut(&service, most_name),
            address,
            format!("{port}/{protocol}"),
            cut(&endpoints, most_name),
        ]);
    }
    let table = align(&lines);
    let text = table.lines().map(str::to_owned).chain(problems);
    text.collect::<Vec<_>>().join("\n")
}

/// The table of `get flows`.
pub(super) fn flows(rows: &Value) -> String {
    let head = ["NETWORK", "PROTOCOL", "OPENER", "OTHER END", "STATE", "AGE"].map(str::to_owned);
    let mut lines = vec![head.to_vec()];
    for row in rows.as_array().into_iter().flatten() {
        let [network, protocol, state, age] =
            ["network", "protocol", "state", "ageSeconds"].map(|key| cell(row, key));
        let [opener, other] =
            ["opener", "other"].map(|key| end(row.get(key).unwrap_or(&Value::Null)));
        lines.push(vec![
            network,
            protocol,
            opener,
            other,
            state,
            format!("{age}s"),
        ]);
    }
    align(&lines)
}

/// An end as `ADDRESS:PORT (POD)`.
fn end(end: &Value) -> String {
    let (address, port) = (cell(end, "address"), cell(end, "port"));
    let socket = match (port.as_str(), address.contains(':')) {
        ("-", _) => address,
        (port, true) => format!("[{address}]:{port}"),
        (port, false) => format!("{address}:{port}"),
    };
    match holder(end).as_str() {
        "-" => socket,
        holder => format!("{socket} ({holder})"),
    }
}

/// A text of no more characters than these.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept = text.chars().take(most.saturating_sub(1));
    kept.chain(['…']).collect()
}

/// A sentence in lines that are no wider than the table.
fn wrap(text: &str) -> Vec<String> {
    let [first, rest] = MARK;
    let mut lines = vec![first.to_owned()];
    for word in text.split_whitespace() {
        let Some(line) = lines.last_mut() else {
            break;
        };
        let blank = usize::from(!line.ends_with(' '));
        let width = line.chars().count();
        if width + blank + word.chars().count() <= WIDTH {
            line.push_str(&" "[..blank]);
            line.push_str(word);
        } else {
            let room = WIDTH - rest.len();
            lines.push(format!("{rest}{}", cut(word, room)));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_line_of_policies_is_too_wide_and_nothing_of_a_problem_is_lost() {
        let problem = "there is no NetworkAttachmentDefinition default/none: ".repeat(7);
        let rows = json!([
            {"kind": "ClusterNetworkPolicy", "namespace": "", "name": "n".repeat(253),
                "networks": vec!["blue-network"; 40], "ports": 65_536, "problems": [problem.clone()]},
            {"kind": "NetworkPolicy", "namespace": "shop", "name": "db", "networks": ["blue"],
                "ports": 1, "problems": []},
            {"kind": null, "namespace": null, "name": null, "networks": [], "ports": null,
                "problems": ["the policies are not known yet", "x".repeat(400)]},
        ]);
        let text = policies(&rows);
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let told = problem.split_whitespace().count();
        let definition = words.iter().filter(|it| **it == "default/none:").count();
        assert_eq!(definition, told / 5, "{text}");
        assert!(text.contains("shop/db"), "{text}");
        assert!(text.ends_with('…') && text.contains("  ! the policies are not known yet"));
        let of_none = text.lines().filter(|line| line.starts_with('-')).count();
        assert_eq!(of_none, 0, "a row of no policy is its problem only");
    }

    #[test]
    fn ends_of_connections_have_their_ports_and_pods() {
        let rows = json!([
            {"network": "blue", "protocol": "udp", "state": "open", "ageSeconds": 3,
                "opener": {"address": "fd61::1", "port": 53, "pod": {"namespace": "shop", "name": "web"}},
                "other": {"address": "10.61.0.2", "port": 80, "pod": null, "container": null}},
            {"network": "blue", "protocol": "icmp", "state": "opening", "ageSeconds": 0,
                "opener": {"address": "10.61.0.2", "port": null, "container": "0f0f0f0f0f0f0f0f"},
                "other": {"address": "10.61.0.3", "port": null}},
        ]);
        let text = flows(&rows);
        for part in [
            "[fd61::1]:53 (shop/web)",
            "10.61.0.2:80 ",
            "10.61.0.2 (0f0f0f0f0f0f0)",
            "3s",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }
}
