//! Annotations without end: how many attachments they make, and how many words.

use serde_json::{Value, json};
use testbed::{Node, Outcome, Setup};

const NPWG: &str = "k8s.v1.cni.cncf.io/networks";
const KEP: &str = "podnet.dev/networks";

/// Longest answer to a wrong annotation, bytes: ten problems of 512, and the frame.
const ANSWER_MAX: usize = 8 << 10;
/// How often a runtime tries each pod.
const ATTEMPTS: usize = 5;

fn setup() -> Setup {
    Setup::default().args(&["--default-network", "podnetwork:blue"])
}

/// `ADD` of a pod with these annotations, as a runtime of Kubernetes asks for it.
fn add(node: &Node, container: &str, annotations: &Value) -> Outcome {
    let pod = node.pod(container);
    let conf = node.pod_conf(annotations);
    node.cni("ADD")
        .container(pod.container())
        .netns(pod.path())
        .ifname("eth0")
        .env(
            "CNI_ARGS",
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=hostile;K8S_POD_UID=1",
        )
        .conf(&conf)
        .run()
}

/// ATT-04a: a pod takes no more ports than its limit.
///
/// 16 KiB of annotation were all ports of a node, and as many addresses of its network.
#[test]
fn a_pod_takes_no_more_ports_than_its_limit() {
    let definition = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "red", "namespace": "default"}, "spec": {"config": ""},
    });
    let node = testbed::node!(setup().file("red-nad.json", &definition.to_string()));
    let list = vec!["red"; 32].join(",");
    let refused = add(&node, "many", &json!({ NPWG: list }));
    refused.fails_with(7).names(&[
        "k8s.v1.cni.cncf.io/networks: the pod asks for 32 attachments besides 1 that the pod has",
        "the limit of a pod is 32",
        "--max-attachments-per-pod",
    ]);
    assert_eq!(node.get("attachments"), Vec::<Value>::new());
    let most = vec!["red"; 31].join(",");
    add(&node, "most", &json!({ NPWG: most })).result();
    assert_eq!(node.get("attachments").len(), 32);
    proof::of!("ATT-04a");
}

/// ATT-13: an annotation with 60,000 errors is answered and logged in a few lines.
///
/// The answer was larger than a frame, so that the runtime was told of an agent that does not answer,
/// and each attempt logged 10 MB.
#[test]
fn an_annotation_with_60000_errors_is_answered_and_logged_in_a_few_lines() {
    let node = testbed::node!(setup());
    let wrong = vec!["!!"; 60_000].join(",");
    let keys: Vec<String> = (0..20_000).map(|key| format!("\"k{key}\":1")).collect();
    let unknown = format!("[{{\"name\":\"a\",{}}}]", keys.join(","));
    let long = "/".repeat(200_000);
    let before = node.log().len();
    for (container, annotations) in [
        ("wrong", json!({ NPWG: wrong })),
        ("unknown", json!({ KEP: unknown })),
        ("long", json!({ NPWG: long })),
    ] {
        for _ in 0..ATTEMPTS {
            let answer = add(&node, container, &annotations);
            answer.fails_with(7);
            let text = &answer.stdout;
            assert!(text.len() < ANSWER_MAX, "{} bytes: {text:.200}", text.len());
        }
    }
    let log = node.log();
    let written = log.len() - before;
    assert!(written < 32 << 10, "{written} bytes of log");
    // The same refusal is a line once in a while; a slow machine may see it twice.
    let refusals = log.lines().filter(|line| line.contains("refused")).count();
    assert!(
        (3..3 * ATTEMPTS / 2).contains(&refusals),
        "{refusals} lines"
    );
    proof::of!("ATT-13");
}

/// ATT-04a: a definition of thousands of plugins takes no memory of the agent.
///
/// Every plugin of a definition was given the network's name and the pod's arguments: 20,000 of them,
/// in 1 MB that any user of a namespace may write, were more memory than the agent has.
#[test]
fn a_definition_of_thousands_of_plugins_takes_no_memory_of_the_agent() {
    let plugins = vec![json!({"type": "bridge"}); 20_000];
    let config = json!({"cniVersion": "1.0.0", "name": "n".repeat(20_000), "plugins": plugins});
    let definition = |name: &str, config: &Value| {
        json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"config": config.to_string()},
        })
    };
    let many = definition("many", &config).to_string();
    let annotated =
        json!({"type": "bridge", "capabilities": {"io.kubernetes.cri.pod-annotations": true}});
    let config = json!({"cniVersion": "1.0.0", "plugins": vec![annotated; 32]});
    let wide = definition("wide", &config).to_string();
    let setup = setup()
        .file("many-nad.json", &many)
        .file("wide-nad.json", &wide);
    let node = testbed::node!(setup);
    let refused = add(&node, "many", &json!({ NPWG: "many" }));
    refused
        .fails_with(7)
        .names(&["default/many", "longer than 65536 bytes"]);
    // Annotations of a pod have 256 KiB, and each of 31 times 32 plugins wants all of them.
    let filler = "f".repeat(200 << 10);
    let wide = json!({ NPWG: vec!["wide"; 31].join(","), "filler": filler });
    let refused = add(&node, "wide", &wide);
    refused
        .fails_with(7)
        .names(&["default/wide", "1048576 bytes"]);
    let peak = node.agent_peak();
    assert!(peak < 256 << 20, "{} MiB", peak >> 20);
    assert_eq!(node.get("attachments"), Vec::<Value>::new());
    proof::of!("ATT-04a", "PAIN-MEM-1");
}
