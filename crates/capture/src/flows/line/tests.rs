use serde_json::{Value, json};

use super::*;
use crate::flows::key::FlowKey;

fn header() -> Header<'static> {
    Header {
        node: "n1",
        end_ns: 1_767_225_610_000_000_000,
        interval_ms: 10_000,
        one_of: 100,
        epoch_ns: 1_767_225_600_000_000_000,
    }
}

fn about() -> About {
    About {
        network: "blue".to_owned(),
        namespace: Some("shop".to_owned()),
        pod: Some("web-0".to_owned()),
        container: "4f2a91".to_owned(),
        interface: "n\"1\n".to_owned(),
    }
}

fn row(outcome: Outcome) -> Row {
    Row {
        direction: Direction::FromPod,
        key: FlowKey {
            vlan: None,
            ether_type: 0x0800,
            source: Address::Ip([10, 0, 0, 1].into()),
            destination: Address::Ip([10, 0, 0, 2].into()),
            protocol: Some(6),
            ports: Some((40_000, 443)),
            icmp: None,
        },
        outcome,
        counts: Counts {
            samples: 3,
            packets: 5,
            bytes: 700,
            first_ns: 1_250_000_000,
            last_ns: 9_000_000_000,
        },
    }
}

fn lines(interval: &Interval) -> Vec<Value> {
    let mut text = Vec::new();
    let count = of_port(&mut text, &header(), &about(), interval).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), count);
    lines
}

#[test]
fn a_flow_has_its_port_its_ends_and_numbers_times_the_rate() {
    let interval = Interval {
        rows: vec![row(Outcome::Dropped(6))],
        ..Interval::default()
    };
    assert_eq!(
        lines(&interval),
        [json!({
            "time": "2026-01-01T00:00:10.000Z", "kind": "flow", "node": "n1",
            "intervalMs": 10_000, "oneOf": 100,
            "network": "blue", "namespace": "shop", "pod": "web-0", "container": "4f2a91",
            "interface": "n\"1\n",
            "direction": "egress", "verdict": "dropped", "reason": "spoofed_ip",
            "source": "10.0.0.1", "destination": "10.0.0.2", "protocol": "tcp",
            "sourcePort": 40_000, "destinationPort": 443,
            "samples": 3, "packets": 500, "bytes": 70_000,
            "firstSeen": "2026-01-01T00:00:01.250Z", "lastSeen": "2026-01-01T00:00:09.000Z",
        })]
    );
}

#[test]
fn packets_without_room_are_a_line_of_their_port_and_in_the_sums_of_the_interval() {
    let interval = Interval {
        rows: vec![row(Outcome::Forwarded), row(Outcome::Unknown)],
        overflow: row(Outcome::Forwarded).counts,
        lost: 9,
    };
    let of_port = lines(&interval);
    let verdicts: Vec<&Value> = of_port.iter().map(|line| &line["verdict"]).collect();
    assert_eq!(
        verdicts,
        [&json!("forwarded"), &json!("unknown"), &Value::Null]
    );
    let rest = &of_port[2];
    assert_eq!(
        (&rest["kind"], &rest["packets"]),
        (&json!("rest"), &json!(500))
    );
    assert_eq!(
        (&rest["samples"], &rest["lostSamples"]),
        (&json!(3), &json!(9))
    );
    let mut text = Vec::new();
    end(
        &mut text,
        &header(),
        4,
        &[(1, interval.clone()), (2, interval)],
    )
    .unwrap();
    let end: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!((&end["kind"], &end["ports"]), (&json!("end"), &json!(4)));
    assert_eq!(
        (&end["flows"], &end["overflowSamples"]),
        (&json!(4), &json!(6))
    );
    assert_eq!(end["lostSamples"], 18);
}

#[test]
fn days_are_counted_as_the_calendar_does() {
    for (seconds, text) in [
        (0, "1970-01-01T00:00:00.000Z"),
        (951_782_399, "2000-02-28T23:59:59.000Z"),
        (951_782_400, "2000-02-29T00:00:00.000Z"),
        (1_735_689_599, "2024-12-31T23:59:59.000Z"),
        (4_107_542_400, "2100-03-01T00:00:00.000Z"),
    ] {
        assert_eq!(time(seconds * 1_000_000_000), text);
    }
}
