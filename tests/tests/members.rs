//! Test members on other nodes, without a cluster: agents share a directory.
//!
//! Packets to them are tested in `across`.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;
use testbed::{Fabric, Network, Node, Pod, Setup, skip, wait};

/// Two nodes, numbered from 1, dropped before what connects them.
struct Scene {
    one: Node,
    two: Node,
    _fabric: Fabric,
    shared: TempDir,
}

impl Scene {
    /// Both agents are ready. Each node has half of the subnet.
    fn start(test: &str) -> Option<Self> {
        if skip::without_root(test) {
            return None;
        }
        let shared = tempfile::tempdir().expect("a directory for the nodes");
        let fabric = Fabric::create();
        let start = |number: u8, others: &str| {
            let blue = Network::l2("blue", &["10.10.0.0/24", "fd10:10::/64"]);
            let blue = blue.exclude(&[others]).id(2001).vxlan();
            let setup = setup(number, &shared).network(&blue);
            Node::start_on(setup, fabric.host(number))
        };
        Some(Self {
            one: start(1, "10.10.0.128/25"),
            two: start(2, "10.10.0.0/25"),
            _fabric: fabric,
            shared,
        })
    }

    /// The file of node `number`.
    fn file(&self, number: u8) -> PathBuf {
        self.shared.path().join(format!("node-{number}.yaml"))
    }

    /// Returns the endpoints of node `number`, once there are `count` of them.
    fn said(&self, number: u8, count: usize) -> Vec<api::Endpoint> {
        wait::until(&format!("node-{number} to say {count} endpoints"), || {
            let text = fs::read_to_string(self.file(number)).unwrap_or_default();
            let slices = api::parse_endpoint_slices("its file", &text).into_iter();
            let slices = slices.map(|slice| slice.expect("a slice of an agent").1);
            let endpoints: Vec<_> = slices.flat_map(|slice| slice.endpoints).collect();
            (endpoints.len() == count).then_some(endpoints)
        })
    }
}

fn setup(number: u8, shared: &TempDir) -> Setup {
    let directory = shared.path().to_str().expect("a path in UTF-8");
    let (v4, v6) = (Fabric::v4(number), Fabric::v6(number));
    Setup::empty().named(&format!("node-{number}")).args(&[
        "--vtep",
        &v4.to_string(),
        "--vtep",
        &v6.to_string(),
        "--endpoints",
        directory,
    ])
}

/// Members on other nodes, as an agent shows them: MAC address and node.
fn remote(node: &Node) -> Vec<(String, String)> {
    let all = node.get("endpoints").into_iter();
    let mut remote: Vec<(String, String)> = all
        .filter(|row| row["place"] == "remote")
        .map(|row| {
            let text = |key: &str| row[key].as_str().expect("a text").to_owned();
            (text("mac"), text("node"))
        })
        .collect();
    remote.sort();
    remote
}

fn wait_remote(node: &Node, expected: &[(&str, &str)]) {
    wait::until_true(&format!("{expected:?} to be known"), || {
        let remote = remote(node);
        let remote = remote
            .iter()
            .map(|(mac, node)| (mac.as_str(), node.as_str()));
        remote.eq(expected.iter().copied())
    });
}

fn mac(result: &Value) -> &str {
    result["interfaces"][0]["mac"]
        .as_str()
        .expect("a MAC address")
}

fn attach(pod: &Pod<'_>) -> Value {
    pod.add("blue", "net1").result()
}

/// Issue 5: nodes know who is where, and know no more of who has gone.
#[test]
fn members_are_known_on_the_other_node_for_as_long_as_they_are_attached() {
    let Some(s) = Scene::start(testbed::test_name!()) else {
        return;
    };
    let (a, b, c) = (s.one.pod("a"), s.two.pod("b"), s.two.pod("c"));
    let of_a = attach(&a);
    // This node serves the network, and nobody else does yet.
    s.said(1, 1);
    assert!(remote(&s.two).is_empty());
    let (of_b, of_c) = (attach(&b), attach(&c));
    wait_remote(&s.two, &[(mac(&of_a), "node-1")]);
    let mut both = [(mac(&of_b), "node-2"), (mac(&of_c), "node-2")];
    both.sort_unstable();
    wait_remote(&s.one, &both);

    let shown = s.one.get("endpoints");
    let shown = shown.iter().find(|row| row["mac"] == *mac(&of_b));
    let shown = shown.expect("b is shown");
    assert_eq!(shown["network"], "blue");
    assert_eq!(
        shown["vteps"],
        serde_json::json!([Fabric::v4(2).to_string(), Fabric::v6(2).to_string()])
    );
    let ips = of_b["ips"].as_array().expect("addresses").iter();
    let ips: Vec<&str> = ips
        .filter_map(|ip| ip["address"].as_str()?.split('/').next())
        .collect();
    assert_eq!(shown["ips"], serde_json::json!(ips));
    let socket = s.one.socket();
    let socket = socket.to_str().expect("a path in UTF-8");
    let table = s
        .one
        .agent_command(&["get", "endpoints", "--socket", socket]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(
        table
            .lines()
            .any(|line| line.contains(mac(&of_b)) && line.contains("node-2")),
        "{table}"
    );

    b.detach("blue", "net1");
    wait_remote(&s.one, &[(mac(&of_c), "node-2")]);
    c.detach("blue", "net1");
    wait_remote(&s.one, &[]);
    wait::until_true("the file of a node without members to go", || {
        !s.file(2).exists()
    });
    // Node 2 has no member, so what node 1 has is of no use to it.
    assert!(remote(&s.two).is_empty());
    a.detach("blue", "net1");
}

/// A restart keeps the time of a claim, so no other claim displaces it.
#[test]
fn an_agent_that_is_killed_and_started_again_says_the_same_as_before() {
    let Some(s) = Scene::start(testbed::test_name!()) else {
        return;
    };
    let (a, b) = (s.one.pod("a"), s.two.pod("b"));
    let (of_a, of_b) = (attach(&a), attach(&b));
    let said = s.said(1, 1);
    wait_remote(&s.two, &[(mac(&of_a), "node-1")]);
    s.one.kill_9();
    assert_eq!(s.said(1, 1), said, "the file stays while no agent is there");
    s.one.start_agent();
    wait_remote(&s.one, &[(mac(&of_b), "node-2")]);
    let c = s.one.pod("c");
    attach(&c);
    let now = s.said(1, 2);
    assert!(now.contains(&said[0]), "{now:?}");
    wait::until_true("both to be known", || remote(&s.two).len() == 2);
    for pod in [&a, &c] {
        pod.detach("blue", "net1");
    }
    b.detach("blue", "net1");
}

/// Issue 5: standalone, a static peers file.
///
/// A person writes it, and may write something wrong.
#[test]
fn a_file_that_a_person_writes_counts_and_a_wrong_one_hides_no_other() {
    let Some(s) = Scene::start(testbed::test_name!()) else {
        return;
    };
    let (a, b) = (s.one.pod("a"), s.two.pod("b"));
    attach(&a);
    let of_b = attach(&b);
    let slice = |node: &str, id: u32, mac: &str| {
        format!(
            "apiVersion: podnet.dev/v1alpha1\nkind: PodNetworkEndpointSlice\n\
             metadata: {{name: blue.{node}.0}}\n\
             spec:\n  network: blue\n  networkID: {id}\n  node: {node}\n  vteps: [10.99.9.1]\n  \
             endpoints:\n  - {{mac: \"{mac}\", ips: [10.10.0.250], since: \"2026-01-02T03:04:05Z\"}}\n"
        )
    };
    let put = |name: &str, text: &str| {
        fs::write(s.shared.path().join(name), text).expect("a file in the directory");
    };
    put(
        "broken.yaml",
        "apiVersion: podnet.dev/v1alpha1\nkind: Nothing\n",
    );
    put("number.yaml", &slice("other", 2002, "02:00:00:00:00:09"));
    let two = [
        slice("router", 2001, "02:00:00:00:00:07"),
        slice("switch", 2001, "zz"),
    ];
    put("static.yaml", &two.join("---\n"));
    let mut expected = [(mac(&of_b), "node-2"), ("02:00:00:00:00:07", "router")];
    expected.sort_unstable();
    wait_remote(&s.one, &expected);
    wait::until_true("what is wrong to be said", || {
        let log = s.one.log();
        let said = [
            "PodNetworkEndpointSlice",
            "spec.endpoints[0].mac",
            "another number",
        ];
        said.iter().all(|words| log.contains(words))
    });
    fs::remove_file(s.shared.path().join("static.yaml")).expect("the file is there");
    wait_remote(&s.one, &[(mac(&of_b), "node-2")]);
    a.detach("blue", "net1");
    b.detach("blue", "net1");
}

/// Two nodes that chose numbers by themselves would not understand each other.
#[test]
fn a_network_across_nodes_needs_its_number_where_nobody_gives_one_to_all() {
    let test = testbed::test_name!();
    if skip::without_root(test) {
        return;
    }
    let shared = tempfile::tempdir().expect("a directory for the nodes");
    let fabric = Fabric::create();
    let blue = Network::l2("blue", &["10.10.0.0/24"]).vxlan();
    let node = Node::start_on(setup(1, &shared).network(&blue), fabric.host(1));
    let pod = node.pod("a");
    pod.add("blue", "net1")
        .fails_with(7)
        .names(&["spec.transport", "spec.networkID"]);
    let networks = node.get("networks");
    assert_eq!(networks[0]["reason"], "NetworkIDMissing", "{networks:?}");
    node.write_manifest("blue.yaml", &blue.id(2001).yaml());
    wait::until_true("the network to be ready", || {
        node.get("networks")[0]["ready"] == true
    });
    attach(&pod);
    pod.detach("blue", "net1");
}

/// Policies select a member elsewhere by what its file says of the pod.
#[test]
fn a_file_names_pods_and_their_labels_while_a_policy_names_networks() {
    let Some(s) = Scene::start(testbed::test_name!()) else {
        return;
    };
    let pod = s.one.pod("a");
    let labelled = |app: &str| {
        let mut conf = s.one.conf("blue");
        conf["labels"] = serde_json::json!({ "app": app });
        let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=ops;K8S_POD_NAME=web";
        let call = pod.call("ADD", "net1").conf(&conf);
        call.env("CNI_ARGS", args).run()
    };
    labelled("-").fails_with(7).names(&["labels.app"]);
    let of_a = labelled("web").result();
    // The labels are a part of what was asked for.
    assert_eq!(labelled("web").result(), of_a);
    labelled("db").error();
    attach(&s.two.pod("b"));
    wait_remote(&s.two, &[(mac(&of_a), "node-1")]);
    let before = s.said(1, 1).remove(0);
    assert_eq!(before.pod, None);

    let policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
        metadata: {name: web, namespace: ops, annotations: {podnet.dev/networks: blue}}\n";
    s.one.write_manifest("policy.yaml", policy);
    wait::until_true("the pod to be said", || s.said(1, 1)[0].pod.is_some());
    let now = s.said(1, 1).remove(0);
    let said = now.pod.as_ref().expect("a pod");
    assert_eq!(said.key(), Some(("ops", "web")));
    assert_eq!(said.labels()["app"], "web");
    assert_eq!((now.since, &now.ips), (before.since, &before.ips));
    // What was said stays: the next start and the end of the policy write nothing.
    s.one.remove_manifest("policy.yaml");
    s.one.kill_9();
    s.one.start_agent();
    let c = s.one.pod("c");
    attach(&c);
    let both = s.said(1, 2);
    let of_web = both.iter().find(|it| it.mac == now.mac);
    assert_eq!(of_web.expect("the member").pod, now.pod);
    assert_eq!(both.iter().filter(|it| it.pod.is_some()).count(), 1);
    let all: Vec<String> = both.iter().map(|it| it.mac.to_string()).collect();
    let mut all: Vec<(&str, &str)> = all.iter().map(|mac| (mac.as_str(), "node-1")).collect();
    all.sort_unstable();
    wait_remote(&s.two, &all);
}
