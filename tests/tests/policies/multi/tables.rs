//! Tables of an agent by its socket, without a program that is started for each.

use std::io::Write as _;
use std::os::unix::net::UnixStream;

use cni_spec::{GetRequest, GetWhat, Reply, Request, encode_frame, read_frame};
use serde_json::Value;
use testbed::Node;
use testbed::wait::START;

/// Reads a table, as `podnet-agent get` prints it.
fn get(node: &Node, what: GetWhat) -> Vec<Value> {
    let request = Request::Get(GetRequest::new(what));
    let body = request.to_body().expect("a request can be written");
    let frame = encode_frame(&body).expect("a request fits a frame");
    let mut stream = UnixStream::connect(node.socket()).expect("the agent listens");
    stream.set_read_timeout(Some(START)).expect("a timeout");
    stream.write_all(&frame).expect("the agent reads");
    let body = read_frame(&mut stream).expect("the agent answers");
    let reply = Reply::from_body(&body).expect("the answer is a reply");
    let Reply::Ok(rows) = &reply else {
        assert!(matches!(reply, Reply::Ok(_)), "{what:?}: {reply:?}");
        return Vec::new();
    };
    serde_json::from_str(rows.get()).expect("a list of rows")
}

/// Counts the policies that an agent has read.
///
/// It answers when no change is being put in force.
pub(super) fn policies(node: &Node) -> usize {
    let rows = get(node, GetWhat::Policies);
    // Others are lines about problems.
    rows.iter().filter(|row| row["name"].is_string()).count()
}

/// Counts the packets that policies have dropped on a node.
pub(super) fn drops(node: &Node) -> u64 {
    let rows = get(node, GetWhat::Drops);
    let of_policies = rows.iter().filter(|row| {
        let reason = row["reason"].as_str();
        matches!(reason, Some("policy_ingress" | "policy_egress"))
    });
    of_policies.filter_map(|row| row["packets"].as_u64()).sum()
}
