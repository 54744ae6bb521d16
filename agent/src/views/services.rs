//! Services as a table: addresses, ports, endpoints, and problems.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::node::Node;

/// Most endpoints that are shown of one port.
const ENDPOINTS: usize = 64;

/// Rows of `get services`, one for each port and one for each problem.
///
/// While it is not known which there are, a row for each reason stands in their place.
pub(super) fn rows(node: &Arc<Node>) -> Value {
    let world = node.services.get();
    if !world.unread.is_empty() {
        let unread = world.unread.iter().map(|why| {
            let text = "the Services are not known yet, and what was in force stays";
            nameless(&Value::Null, &format!("{text}: {why}"))
        });
        return unread.collect();
    }
    let mut rows = Vec::new();
    for network in node.serving.in_force() {
        let name = Value::String(network.network);
        for (at, port) in &network.served.ports {
            let all = port.backends.iter();
            let endpoints = all.take(ENDPOINTS);
            let endpoints: Vec<String> = endpoints
                .map(|(ip, port)| std::net::SocketAddr::from((*ip, *port)).to_string())
                .collect();
            rows.push(json!({
                "network": name,
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
        let problems = network.served.problems.iter();
        rows.extend(problems.map(|problem| nameless(&name, problem)));
    }
    rows.extend(world.broken.iter().map(|it| nameless(&Value::Null, it)));
    Value::Array(rows)
}

/// A row about no port.
fn nameless(network: &Value, problem: &str) -> Value {
    json!({
        "network": network, "service": Value::Null, "address": Value::Null, "port": Value::Null,
        "protocol": Value::Null, "affinitySeconds": Value::Null, "endpoints": [],
        "endpointsNotShown": 0, "elsewhereOnly": false, "problem": problem,
    })
}
