//! Policies as a table: networks, ports that they select here, and problems.

use std::sync::Arc;

use serde_json::{Value, json};

use super::look::joined;
use crate::node::Node;

/// Most problems that are shown of one policy.
const PROBLEMS: usize = 16;

/// Rows of `get policies`.
///
/// While it is not known which there are, a row for each reason stands in their place.
pub(super) async fn rows(node: &Arc<Node>) -> Value {
    let this = Arc::clone(node);
    // Each policy is compared with each member.
    let work = tokio::task::spawn_blocking(move || this.guards.policies());
    let Some(policies) = joined(work.await) else {
        let policies = node.policies.get();
        let unread = policies.unread.iter().map(|why| {
            nameless(&format!(
                "the policies are not known yet, pods wait, and what was in force stays: {why}"
            ))
        });
        return unread.collect();
    };
    let mut rows: Vec<Value> = policies
        .into_iter()
        .map(|policy| {
            let mut problems = policy.problems;
            let more = problems.len().saturating_sub(PROBLEMS);
            problems.truncate(PROBLEMS);
            if more > 0 {
                problems.push(format!("{more} more problems are not shown"));
            }
            json!({
                "kind": policy.kind,
                "namespace": policy.namespace,
                "name": policy.name,
                "networks": policy.networks,
                "ports": policy.ports,
                "problems": problems,
            })
        })
        .collect();
    rows.extend(node.policies.get().broken.iter().map(|it| nameless(it)));
    Value::Array(rows)
}

/// A row about no policy that could be read.
fn nameless(problem: &str) -> Value {
    json!({
        "kind": Value::Null, "namespace": Value::Null, "name": Value::Null,
        "networks": [], "ports": Value::Null, "problems": [problem],
    })
}
