//! Test what people see of network policies: `get policies`, `get flows`, metrics.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};

use serde_json::Value;
use testbed::{Node, Port, Setup, pins, wait};

use super::scene::{answers, app, becomes, connect, policy, setup, socket};

/// Runs a command of the agent that must succeed, and returns what it prints.
#[track_caller]
fn run(node: &Node, args: &[&str]) -> String {
    let socket = node.socket();
    let socket = socket.to_str().expect("a path in UTF-8");
    let output = node.agent_command(&[args, &["--socket", socket]].concat());
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// `get flows` with these options.
#[track_caller]
fn flows(node: &Node, args: &[&str]) -> Vec<Value> {
    let text = run(node, &[&["get", "flows", "-o", "json"], args].concat());
    serde_json::from_str(&text).expect("a JSON list")
}

/// The row of a connection between these ports, whoever has opened it.
fn flow(rows: &[Value], opener: SocketAddr, other: SocketAddr) -> Option<&Value> {
    let is = |end: &Value, at: SocketAddr| {
        end["address"] == at.ip().to_string() && end["port"] == at.port()
    };
    let mut rows = rows.iter();
    rows.find(|row| is(&row["opener"], opener) && is(&row["other"], other))
}

fn problems(row: &Value) -> String {
    row["problems"].to_string()
}

#[test]
fn policies_are_listed_with_their_networks_ports_and_problems() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let text = format!(
        "{}---\n{}---\n{}---\n{}",
        policy("db", "routed", "db", "ingress: [{from: []}]"),
        policy("nobody", "routed", "none", "ingress: []"),
        policy(
            "both",
            "'routed, switched'",
            "db",
            "ingress: [{from: [{podSelector: {}}]}]"
        ),
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
         metadata: {name: plain, namespace: default}\nspec: {podSelector: {}}\n---\n\
         apiVersion: k8s.cni.cncf.io/v1beta1\nkind: MultiNetworkPolicy\n\
         metadata: {name: lost, namespace: default, annotations: {k8s.v1.cni.cncf.io/policy-for: nowhere}}\n\
         spec: {podSelector: {}}\n"
    );
    let node = Node::start(setup().file("a.yaml", &text));
    let (_db, _) = app(&node, "db", "routed");
    let (_web, _) = app(&node, "web", "routed");
    let rows = node.get("policies");
    let row = |name: &str| {
        let mut all = rows.iter();
        let found = all.find(|row| row["name"] == name && row["namespace"] == "default");
        found.unwrap_or_else(|| panic!("{name} is not in {rows:#?}"))
    };
    assert_eq!(rows.len(), 5, "{rows:#?}");
    assert_eq!(row("db")["ports"], 1);
    assert_eq!(row("db")["networks"], serde_json::json!(["routed"]));
    assert!(problems(row("db")).contains("ingress rule 1"), "{rows:#?}");
    assert_eq!(row("nobody")["ports"], 0);
    assert!(
        problems(row("nobody")).contains("selects no pod"),
        "{rows:#?}"
    );
    assert_eq!(
        row("both")["networks"],
        serde_json::json!(["routed", "switched"])
    );
    assert!(
        problems(row("plain")).contains("default network"),
        "{rows:#?}"
    );
    assert!(
        problems(row("lost")).contains("default/nowhere"),
        "{rows:#?}"
    );
    let table = run(&node, &["get", "policies"]);
    for line in table.lines() {
        assert!(line.chars().count() <= 120, "{line}");
    }
    assert!(
        table.contains("default/db") && table.contains("  ! "),
        "{table}"
    );
    // The same problems are in the log, once for each change.
    wait::until_true("the problems in the log", || {
        node.log().contains("are not obeyed as they are written")
    });
}

#[test]
fn connections_are_listed_with_their_ends_and_states() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let rule = "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]";
    let node = Node::start(setup().file("a.yaml", &policy("db", "routed", "db", rule)));
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db) = app(&node, "db", "routed");
    let (_free, free) = app(&node, "free", "routed");
    answers(&web, &free, 7);
    assert!(flows(&node, &[]).is_empty(), "no port of it is judged");
    let (here, there) = connect(&web, &db, 5000);
    let (a, b) = (
        here.local_addr().expect("an address"),
        SocketAddr::from((db.v4(), 5000)),
    );
    let rows = flows(&node, &[]);
    let row = flow(&rows, a, b).unwrap_or_else(|| panic!("{a} to {b} is not in {rows:#?}"));
    assert_eq!(row["network"], "routed");
    assert_eq!(row["protocol"], "tcp");
    assert_eq!(row["state"], "open");
    assert!(
        row["ageSeconds"].as_u64().is_some_and(|age| age < 60),
        "{row}"
    );
    assert_eq!(row["opener"]["pod"]["name"], "web");
    let table = run(&node, &["get", "flows"]);
    assert!(table.contains(&format!("{a} (default/web)")), "{table}");
    drop((here, there));
    wait::until_true("the end of the connection", || {
        let rows = flows(&node, &["--pod", "default/db"]);
        flow(&rows, a, b).is_none_or(|row| row["state"] == "closing" || row["state"] == "reset")
    });
    // A question without an answer.
    let from = udp(&web, &db, 40001, 81);
    let rows = flows(&node, &["--pod", "web", "--network", "routed"]);
    let row = flow(&rows, from, (db.v4(), 81).into()).expect("the question");
    assert_eq!(row["state"], "opening");
    assert!(flows(&node, &["--pod", "default/free"]).is_empty());
    udp(&web, &db, 40002, 82);
    assert_eq!(flows(&node, &["--limit", "1"]).len(), 1);
    for (option, value) in [("--pod", "default/nobody"), ("--network", "none")] {
        let socket = node.socket();
        let socket = socket.to_str().expect("a path in UTF-8");
        let args = ["get", "flows", option, value, "--socket", socket];
        let output = node.agent_command(&args);
        assert!(!output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            text.contains(option) && text.contains("known here"),
            "{text}"
        );
    }
}

/// Sends a datagram that arrives, and returns where it came from.
#[track_caller]
fn udp(a: &Port, b: &Port, from: u16, number: u16) -> SocketAddr {
    let to = SocketAddr::from((b.v4(), number));
    let there = socket(b, to);
    let here = socket(a, (IpAddr::from(a.v4()), from).into());
    here.send_to(b"question", to).expect("a datagram");
    let (_, seen) = there.recv_from(&mut [0; 64]).expect("the question");
    seen
}

#[test]
fn a_connection_that_a_policy_cuts_is_shown_as_denied() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup().file("p.yaml", &policy("db", "routed", "db", "ingress: [{}]")));
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db) = app(&node, "db", "routed");
    let (mut here, _there) = connect(&web, &db, 5000);
    let only = "ingress: [{ports: [{protocol: UDP, port: 80}]}]";
    node.write_manifest("p.yaml", &policy("db", "routed", "db", only));
    becomes(&web, &db, 81, false);
    here.write_all(b"more").expect("a buffer");
    let a = here.local_addr().expect("an address");
    let b = SocketAddr::from((db.v4(), 5000));
    wait::until_true("the connection to be cut", || {
        flow(&flows(&node, &[]), a, b).is_some_and(|row| row["state"] == "denied")
    });
    let told = node.explain("web", &db.v4().to_string(), &["--proto", "tcp:5000"]);
    told.assert_is("dropped", "policy_ingress");
}

#[test]
fn policies_that_are_not_known_yet_are_no_empty_list() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(Setup::empty());
    assert!(node.get("policies").is_empty());
    assert!(run(&node, &["get", "policies"]).starts_with("KIND"));
}

#[test]
fn connections_that_are_over_are_neither_shown_nor_counted() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup().file("a.yaml", &policy("db", "routed", "db", "ingress: [{}]")));
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db) = app(&node, "db", "routed");
    udp(&web, &db, 40001, 81);
    assert!(!flows(&node, &[]).is_empty());
    let numbers = |count: usize| {
        // The first count of an agent is at once.
        node.terminate();
        node.start_agent();
        wait::until_true("the numbers of policies", || {
            let (_, page) = node.http("/metrics").expect("the page is served");
            let has = |line: &str| page.lines().any(|it| it.starts_with(line));
            let connections = match count {
                0 => !has("podnet_flows{"),
                _ => has(&format!("podnet_flows{{network=\"routed\"}} {count}")),
            };
            connections
                && has("podnet_policies{kind=\"NetworkPolicy\"} 1")
                && has("podnet_policy_problems 0")
                && has("podnet_map_entries{map=\"ROWS\"} ")
                && has("podnet_map_entry_limit{map=\"ATOMS\"} ")
        });
    };
    numbers(flows(&node, &[]).len());
    let entries = pins::connections(&node);
    pins::each_connection(&node, |state| {
        // 100,000 ticks before: an entry of no time is none.
        if *state != 0 {
            *state = *state & !0xffff_ffff | u64::from(long_before(*state));
        }
    });
    assert_eq!(pins::connections(&node), entries);
    assert!(flows(&node, &[]).is_empty(), "it is none any more");
    numbers(0);
    node.write_manifest("b.yaml", &policy("web", "routed", "web", "ingress: []"));
    becomes(&db, &web, 80, false);
    wait::until_true("the time that it took", || {
        let (_, page) = node.http("/metrics").expect("the page is served");
        page.contains("podnet_policy_apply_seconds_count")
            && !page.contains("podnet_policy_apply_seconds_count 0")
    });
}

/// The time 100,000 ticks before that of a state, its lower half.
#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
const fn long_before(state: u64) -> u32 {
    (state as u32).wrapping_sub(100_000)
}
