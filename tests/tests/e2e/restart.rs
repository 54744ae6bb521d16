//! The agent of a node is killed.

use serde_json::json;

use super::commands::{SYSTEM, on_node};
use super::corner::{Corner, KEP};
use super::objects::{POD, condition, until};
use super::removal::agent_of;

/// Starts of the agent's container so far, once it is ready.
fn starts(corner: &Corner) -> Option<u64> {
    let agent = agent_of(&corner.objects, "n1");
    let object = corner.objects.get(POD, (SYSTEM, &agent))?;
    (condition(&object, "Ready")? == "True").then_some(())?;
    object["status"]["containerStatuses"][0]["restartCount"].as_u64()
}

/// Command that kills a node's agent without notice, as a crash does.
///
/// It finds the agent by its arguments, since the controller is the same program.
pub(crate) const KILL: &str = "for pid in $(pgrep -x podnet-agent); do \
    tr '\\0' ' ' < /proc/$pid/cmdline | grep -q -e --install-cni && kill -KILL $pid && echo $pid; \
    done; true";

#[test]
fn pods_talk_on_while_the_agent_is_dead_and_new_ones_start_after_it() {
    let corner = Corner::new("restart");
    let blue = corner.network("blue", "10.108.0.0/24");
    let list = json!([{"name": "default", "isDefaultGW": true}, {"name": blue}]).to_string();
    for pod in ["a", "b"] {
        corner.pod(pod, "n1", &[(KEP, list.clone())]);
    }
    let [a, b] = ["a", "b"].map(|pod| corner.ready(pod));
    let to = &b[1].ips[0];
    let ping = format!("ping -i 0.1 {to} </dev/null >/tmp/ping 2>&1 & echo $! >/tmp/pid");
    corner.run("a", &["sh", "-c", &ping]);
    let before = until("the agent to be ready", || starts(&corner));

    let killed = on_node("n1", KILL);
    assert_eq!(killed.lines().count(), 1, "{killed}");
    until("another agent", || {
        starts(&corner).filter(|now| *now > before)
    });
    corner.pod("c", "n1", &[(KEP, list)]);
    let c = corner.ready("c");

    corner.run("a", &["sh", "-c", "kill -INT $(cat /tmp/pid)"]);
    let said = until("ping to count", || {
        let said = corner.run("a", &["cat", "/tmp/ping"]);
        said.contains("packet loss").then_some(said)
    });
    let summary = said.lines().rev().find(|line| line.contains("packet loss"));
    let summary = summary.unwrap_or_default();
    // The last one may be under way when it is stopped.
    let numbers: Vec<u32> = summary
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|word| word.parse().ok())
        .collect();
    let [sent, received, ..] = numbers.as_slice() else {
        unreachable!("{said}");
    };
    assert!(*sent > 10 && sent - received <= 1, "{summary}");

    // Nobody has lost what it had to the new agent, which looks at all pods when it starts.
    corner.assert_has("a", &a);
    corner.assert_has("b", &b);
    assert!(corner.reaches("c", to));
    assert!(corner.reaches("b", &c[1].ips[0]));
}
