//! Test the views of limits for people and monitoring.

use serde_json::{Value, json};
use testbed::limit::{self, Interfaces};
use testbed::{Node, wait};

use crate::limiting_node;

fn text(node: &Node, args: &[&str]) -> String {
    let socket = node.socket();
    let mut all = args.to_vec();
    all.extend(["--socket", socket.to_str().expect("UTF-8")]);
    let output = node.agent_command(&all);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn rate_burst_mechanism_and_source_are_shown() {
    let node = limiting_node!();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let asked =
        json!({"ingressRate": 100_000_000, "egressRate": 8_000_000, "egressBurst": 400_000});
    let port = a.attach_conf(&limit::conf(&node, "blue", &asked), "net1");
    b.attach("blue", "net1");
    let names = Interfaces::of(&node, &port);
    let mechanism = limit::discipline().expect("asked before").to_string();
    let rows = node.get("attachments");
    let row = |container: &str| {
        let row = rows.iter().find(|row| row["container"] == container);
        row.expect("the attachment is shown")["bandwidth"].clone()
    };
    assert_eq!(row("b"), json!({"ingress": null, "egress": null}));
    let shown = row("a");
    for (way, rate, burst, interface) in [
        ("ingress", 100_000_000, 100_000, &names.host),
        ("egress", 8_000_000, 400_000, &names.near),
    ] {
        let limit = &shown[way];
        assert_eq!(limit["rate"], rate);
        // After the kernel's rounding to ticks.
        let found = limit["burst"].as_i64().expect("a burst");
        assert!((found - burst).abs() < burst / 100, "{limit}");
        assert_eq!(limit["mechanism"], mechanism);
        assert_eq!(limit["interface"], **interface);
        assert_eq!(
            limit["source"],
            format!("runtimeConfig.bandwidth.{way}Rate")
        );
    }
    let table = text(&node, &["get", "attachments"]);
    for words in [
        "INGRESS",
        "EGRESS",
        "100 Mbit/s (burst",
        "8 Mbit/s (burst",
        &mechanism,
    ] {
        assert!(table.contains(words), "{words}:\n{table}");
    }
    let explained = text(&node, &["explain", "--container", "a"]);
    for words in [
        "100 Mbit/s",
        "8 Mbit/s, burst 400 kbit asked",
        "runtimeConfig.bandwidth.egressRate",
        "bpf_redirect ",
    ] {
        assert!(explained.contains(words), "{words}:\n{explained}");
    }
    let explained = text(&node, &["explain", "--container", "b"]);
    for words in ["no limit", "bpf_redirect_peer"] {
        assert!(explained.contains(words), "{words}:\n{explained}");
    }
    a.detach("blue", "net1");
    b.detach("blue", "net1");
    node.assert_empty();
}

/// A limit that is not kept is not shown as if it were.
#[test]
fn a_limit_that_is_gone_is_shown_as_not_in_force() {
    let node = limiting_node!();
    let pod = node.pod("a");
    let asked = json!({"ingressRate": 100_000_000});
    let port = pod.attach_conf(&limit::conf(&node, "blue", &asked), "net1");
    limit::add_foreign_queue_instead(node.netns(), port.host_ifindex());
    let shown = node.get("attachments").remove(0)["bandwidth"]["ingress"].clone();
    assert_eq!(
        (&shown["mechanism"], &shown["burst"]),
        (&Value::Null, &Value::Null)
    );
    let table = text(&node, &["get", "attachments"]);
    assert!(table.contains("NOT IN FORCE"), "{table}");
    pod.detach("blue", "net1");
    node.assert_empty();
}

/// The value of a sample.
fn sample(node: &Node, name: &str) -> Option<u64> {
    let (_, page) = node.http("/metrics").expect("the page is served");
    let line = page.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
}

#[test]
fn metrics_count_limits_and_what_they_drop() {
    let node = limiting_node!();
    let (a, b) = (node.pod("a"), node.pod("b"));
    assert_eq!(sample(&node, "podnet_shaping_supported"), Some(1));
    let asked = json!({"ingressRate": 10_000_000, "egressRate": 10_000_000});
    let pa = a.attach_conf(&limit::conf(&node, "blue", &asked), "net1");
    let pb = b.attach("blue", "net1");
    let name =
        |what: &str, way: &str| format!("podnet_{what}{{direction=\"{way}\",network=\"blue\"}}");
    for way in ["ingress", "egress"] {
        assert_eq!(sample(&node, &name("shaped_attachments", way)), Some(1));
        assert_eq!(sample(&node, &name("shaper_backlog_bytes", way)), Some(0));
    }
    let drops = name("shaper_drops_total", "ingress");
    wait::until_true("drops to be counted", || {
        limit::flood(&pb, pb.v4().into(), &pa, pa.v4().into(), 300_000);
        sample(&node, &drops).unwrap_or(0) > 0
    });
    let before = sample(&node, &drops);
    a.detach("blue", "net1");
    // Counted once more at the end, and not forgotten with the queue.
    let after = sample(&node, &drops);
    assert!(after >= before, "{before:?} {after:?}");
    assert_eq!(sample(&node, &name("shaped_attachments", "ingress")), None);
    b.detach("blue", "net1");
    node.assert_empty();
}
