//! Services as a table: addresses, ports, endpoints, and problems.

use std::sync::Arc;

use cni_spec::MAX_FRAME;
use serde_json::{Value, json};

use crate::node::Node;

/// Most endpoints that are shown of one port.
const ENDPOINTS: usize = 64;

/// Most bytes of all rows: an answer has to fit the connection.
const BYTES: usize = MAX_FRAME / 4 * 3;

/// Rows as far as there is room, and how many are left off.
#[derive(Debug, Default)]
struct Rows {
    rows: Vec<Value>,
    bytes: usize,
    left: usize,
}

impl Rows {
    fn push(&mut self, row: Value) {
        // Behind the first one without room there is none, however short.
        if self.left == 0 {
            self.bytes += row.to_string().len() + 1;
        }
        if self.left > 0 || self.bytes > BYTES {
            self.left += 1;
        } else {
            self.rows.push(row);
        }
    }

    /// The rows, with one that says how many others there are.
    fn all(mut self) -> Value {
        if self.left > 0 {
            let text = format!(
                "{} more rows are not shown, as the answer would be too long; their Services are in force all the same",
                self.left
            );
            self.rows.push(nameless(&Value::Null, &text));
        }
        Value::Array(self.rows)
    }
}

/// Rows of `get services`, one for each port and one for each problem.
///
/// Of thousands the first ones are there, by network and address, problems before ports. While it is not known which there are, a row for each reason stands in their place.
pub(super) fn rows(node: &Arc<Node>) -> Value {
    let world = node.services.get();
    if !world.unread.is_empty() {
        let unread = world.unread.iter().map(|why| {
            let text = "the Services are not known yet, and what was in force stays";
            nameless(&Value::Null, &format!("{text}: {why}"))
        });
        return unread.collect();
    }
    let mut rows = Rows::default();
    for problem in &world.broken {
        rows.push(nameless(&Value::Null, problem));
    }
    let networks = node.serving.in_force();
    for network in &networks {
        let name = Value::String(network.network.clone());
        for problem in &network.served.problems {
            rows.push(nameless(&name, problem));
        }
    }
    for network in &networks {
        for (at, port) in &network.served.ports {
            let all = port.backends.iter();
            let endpoints = all.take(ENDPOINTS);
            let endpoints: Vec<String> = endpoints
                .map(|(ip, port)| std::net::SocketAddr::from((*ip, *port)).to_string())
                .collect();
            rows.push(json!({
                "network": network.network,
                "service": port.service,
                "address": at.ip.to_string(),
                "port": at.port,
                "protocol": at.protocol.as_str(),
                "affinitySeconds": port.affinity_s,
                "endpoints": endpoints,
                "endpointsNotShown": port.backends.len() - endpoints.len(),
                "elsewhereOnly": port.elsewhere,
                "problem": Value::Null,
            }));
        }
    }
    rows.all()
}

/// A row about no port.
fn nameless(network: &Value, problem: &str) -> Value {
    json!({
        "network": network, "service": Value::Null, "address": Value::Null, "port": Value::Null,
        "protocol": Value::Null, "affinitySeconds": Value::Null, "endpoints": [],
        "endpointsNotShown": 0, "elsewhereOnly": false, "problem": problem,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_more_rows_than_an_answer_has_room_for_the_first_are_there_and_the_rest_are_counted() {
        let mut rows = Rows::default();
        for number in 0..20_000 {
            rows.push(nameless(
                &json!("blue"),
                &format!("{number} {}", "x".repeat(300)),
            ));
        }
        let all = rows.all();
        assert!(all.to_string().len() < MAX_FRAME);
        let all = all.as_array().unwrap();
        let (last, shown) = all.split_last().unwrap();
        assert!(shown[0]["problem"].as_str().unwrap().starts_with("0 "));
        let left = 20_000 - shown.len();
        let told = last["problem"].as_str().unwrap();
        assert!(told.starts_with(&format!("{left} more rows")), "{told}");
    }

    #[test]
    fn of_few_rows_none_is_left_off() {
        let mut rows = Rows::default();
        rows.push(nameless(&Value::Null, "one"));
        assert_eq!(rows.all().as_array().unwrap().len(), 1);
    }
}
