//! Prints the path of a packet through the datapath, for people.

use std::fmt::Write as _;

use serde_json::Value;

use super::table::{align, cell};

/// A report as text: the packet, a line for each step, and what becomes of it.
pub(super) fn text(report: &Value) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}", title(report));
    let steps = report.get("steps").and_then(Value::as_array);
    let mut lines = Vec::new();
    for step in steps.into_iter().flatten() {
        let [number, packet, lookup, found, verdict] =
            ["number", "packet", "lookup", "found", "verdict"].map(|key| cell(step, key));
        let verdict = if verdict == "-" {
            String::new()
        } else {
            verdict
        };
        lines.push(vec![format!("{number:>3}"), packet, lookup, found, verdict]);
    }
    let _ = writeln!(text, "{}", align(&lines));
    let outcome = report.get("outcome").unwrap_or(&Value::Null);
    let [verdict, said, meaning, advice] =
        ["verdict", "text", "meaning", "advice"].map(|key| cell(outcome, key));
    let _ = writeln!(text, "{}: {said}", verdict.to_uppercase());
    for (word, value) in [("why", meaning), ("what to do", advice)] {
        if value != "-" {
            let _ = writeln!(text, "  {word}: {value}");
        }
    }
    let differences = report.get("disagreements").and_then(Value::as_array);
    for difference in differences.into_iter().flatten().filter_map(Value::as_str) {
        let _ = writeln!(text, "NOT AS RECORDED: {difference}");
    }
    text.trim_end().to_owned()
}

fn title(report: &Value) -> String {
    let packet = |key: &str| cell(report, &format!("packet.{key}"));
    let [network, mode, from, to] = ["network", "mode", "from", "to"].map(packet);
    let [source, destination] = [("source", "sourceMac"), ("destination", "destinationMac")].map(
        |(ip, mac)| match packet(ip).as_str() {
            "-" => packet(mac),
            ip => ip.to_owned(),
        },
    );
    let length = match packet("bytes").as_str() {
        "0" => String::new(),
        bytes => format!(", {bytes} bytes with the Ethernet header"),
    };
    let receiver = if to == destination {
        to
    } else {
        format!("{to}, {destination}")
    };
    format!(
        "{} on {network} ({mode}){length}\n  from {from}, {source}\n  to {receiver}",
        packet("protocol")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_is_numbered_steps_and_a_verdict_with_what_helps() {
        let report = json!({
            "packet": {"network": "blue", "mode": "L2", "from": "a/net1 on this node",
                "to": "10.10.0.9", "protocol": "ICMP echo request", "source": "10.10.0.2",
                "destination": "10.10.0.9", "bytes": 98},
            "steps": [
                {"number": 1, "packet": "arp", "lookup": "PORTS[7]", "found": "blue", "verdict": "L2"},
                {"number": 2, "packet": "arp", "lookup": "ENDPOINTS[blue, 10.10.0.9]",
                    "found": "nothing", "verdict": ""},
            ],
            "outcome": {"verdict": "dropped", "text": "dropped on here as no_endpoint",
                "meaning": "Nobody has it.", "advice": "look for it"},
            "disagreements": ["FDB is empty"],
        });
        let text = text(&report);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("on blue (L2), 98 bytes"), "{text}");
        assert!(
            lines[1].ends_with("a/net1 on this node, 10.10.0.2"),
            "{text}"
        );
        assert_eq!(lines[2], "  to 10.10.0.9");
        assert_eq!(lines[3].find("blue"), lines[4].find("nothing"), "{text}");
        assert!(
            lines[4].trim_start().starts_with('2') && lines[4].ends_with("nothing"),
            "{text}"
        );
        assert_eq!(lines[5], "DROPPED: dropped on here as no_endpoint");
        assert!(
            lines[6].contains("Nobody") && lines[7].contains("look for it"),
            "{text}"
        );
        assert!(lines[8].contains("FDB is empty"), "{text}");
    }
}
