//! Test the agent's writes about pods: two annotations and Events.

use k8s_openapi::api::core::v1::Pod as ApiPod;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::plugins::Plugins;
use testbed::{Network, wait};

use super::agent_removal::call;
use super::agent_scene::AgentScene;

const NPWG: &str = "k8s.v1.cni.cncf.io/network-status";
const KEP: &str = "podnet.dev/network-status";

/// NPWG-5.0, NPWG-5-W1, NPWG-X4, KEP-STS-01
#[test]
fn a_pod_says_where_it_is_attached_and_keeps_what_else_it_says() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "agent-says") else {
        return;
    };
    s.apply_network("blue", &["10.1.0.0/24", "fd10:1::/64"], true);
    s.apply_network("red", &["10.2.0.0/24"], true);
    let list = json!([{"name": s.network("blue")}, {"name": s.network("red")}]).to_string();
    let uid = s.make_pod(
        "web",
        &[("podnet.dev/networks", &list), ("example.com/note", "mine")],
    );
    let sandbox = s.node.pod("c1");
    let result = s.add_in_time(&sandbox, "web", &uid);
    let npwg = s.written("web", NPWG);
    let first = &npwg[0];
    assert_eq!(first["name"], s.network("blue"), "{npwg}");
    assert_eq!(first["interface"], "eth0");
    assert_eq!(first["default"], true);
    assert_eq!(first["mac"], result["interfaces"][0]["mac"]);
    assert_eq!(first["ips"].as_array().map(Vec::len), Some(2));
    assert_eq!(npwg[1]["name"], s.network("red"));
    assert_eq!(npwg[1]["default"], false);
    let kep = s.written("web", KEP);
    let entries: Vec<(&Value, &Value)> = kep
        .as_array()
        .expect("a list")
        .iter()
        .map(|entry| (&entry["name"], &entry["interfaceName"]))
        .collect();
    let (blue, red) = (json!(s.network("blue")), json!(s.network("red")));
    let (eth0, other) = (json!("eth0"), npwg[1]["interface"].clone());
    // One entry for each family.
    assert_eq!(
        entries,
        [(&blue, &eth0), (&blue, &eth0), (&red, &other)],
        "{kep}"
    );
    assert_eq!(
        s.annotation("web", "example.com/note").as_deref(),
        Some("mine")
    );
    assert_eq!(s.annotation("web", "podnet.dev/networks"), Some(list));

    let address = first["ips"][0].as_str().expect("an address");
    s.wait_event(
        "web",
        "AddedInterface",
        &[
            "Add eth0 [",
            address,
            &format!("from {}", s.network("blue")),
        ],
    );
    s.wait_event(
        "web",
        "AddedInterface",
        &[&format!("from {}", s.network("red"))],
    );
    s.del(&sandbox, "web", &uid).silent();
    proof::of!(
        "NPWG-5.0",
        "NPWG-5-W1",
        "NPWG-X4",
        "KEP-STS-01",
        "NPWG-5.2",
        "NPWG-5.3.2",
        "NPWG-5.3.4",
        "NPWG-5.3.5"
    );
}

/// NPWG-5.3.6, NPWG-5.3.7, NPWG-5-W3: default routes, DNS and devices are told.
#[test]
fn a_pod_says_its_default_routes_dns_and_devices() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "agent-beside") else {
        return;
    };
    let gateway = |short: &str, subnet| Network::l2(&s.network(short), &[subnet]).gateway("First");
    s.apply_as(&gateway("blue", "10.1.0.0/24"));
    s.apply_as(&gateway("gate", "10.2.0.0/24"));
    s.apply_as(&Network::l2(&s.network("mem"), &["10.3.0.0/24"]).interface("Memif"));
    let ours =
        |short| json!({"cniVersion": "1.0.0", "type": "podnet", "podNetwork": s.network(short)});
    for (name, config) in [
        ("gate", ours("gate")),
        ("mem", ours("mem")),
        (
            "lan",
            json!({"cniVersion": "1.0.0", "name": "lan", "type": "alpha"}),
        ),
    ] {
        let definition = json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": name, "namespace": s.name},
            "spec": {"config": config.to_string()},
        });
        s.apply(&definition.to_string());
    }
    let plugins = Plugins::new(&["alpha"]);
    let dns = json!({"nameservers": ["10.9.0.53"], "search": ["lan.example"]});
    let printed = json!({
        "cniVersion": "1.0.0", "interfaces": [{"name": "net3", "sandbox": "/x"}],
        "ips": [{"address": "10.9.0.5/24", "interface": 0}], "dns": dns,
    });
    plugins.answer("alpha", "ADD", &printed);
    let kep = json!([{"name": s.network("blue")}]).to_string();
    let npwg = json!([
        {"name": "gate", "default-route": ["10.2.0.1"]}, {"name": "mem"}, {"name": "lan"},
    ]);
    let npwg = npwg.to_string();
    s.make_pod(
        "web",
        &[
            ("podnet.dev/networks", &kep),
            ("k8s.v1.cni.cncf.io/networks", &npwg),
        ],
    );
    let sandbox = s.node.pod("c1");
    let added = wait::until("the agent to know of the networks", || {
        Some(call(&s, &plugins, &sandbox, "ADD")).filter(|outcome| outcome.success)
    });
    added.result();

    let status = s.written("web", NPWG);
    let of = |key: &str| [0, 1, 2, 3].map(|index| status[index][key].clone());
    let names = ["eth0", "net1", "net2", "net3"].map(Value::from);
    assert_eq!(of("interface"), names, "{status}");
    let moved = [Value::Null, json!(["10.2.0.1"]), Value::Null, Value::Null];
    assert_eq!(of("default-route"), moved, "{status}");
    // The default network has none any more, though its network has a gateway.
    assert_eq!(of("gateway"), moved, "{status}");
    let none = json!({});
    assert_eq!(
        of("dns"),
        [none.clone(), none.clone(), none, dns],
        "{status}"
    );
    let [eth0, net1, net2, net3] = of("device-info");
    assert_eq!([eth0, net1, net3], [const { Value::Null }; 3], "{status}");
    assert_eq!(net2["type"], "memif", "{status}");
    // An abstract name: the socket is in the pod's network namespace.
    assert_eq!(net2["memif"]["path"], "@podnet/net2", "{status}");
    call(&s, &plugins, &sandbox, "DEL").silent();
    s.node.assert_empty();
    proof::of!("NPWG-5.3.6", "NPWG-5.3.7", "NPWG-5-W3");
}

/// NPWG-X4, PAIN-SIL-1: the pod has the reason of a failed start, once and counted.
#[test]
fn a_refused_pod_has_an_event_that_says_why() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "agent-refused") else {
        return;
    };
    s.apply_network("off", &["10.1.0.0/24"], false);
    let missing = s.make_pod_of("missing", "nowhere");
    let off = s.make_pod_of("off", "off");
    let sandbox = s.node.pod("c1");
    for _ in 0..3 {
        s.add(&sandbox, "missing", &missing).fails_with(7);
    }
    s.wait_event(
        "missing",
        "NoNetworkFound",
        &[&s.network("nowhere"), "does not exist"],
    );
    wait::until_true(
        "the same again to be counted",
        || matches!(s.events("missing").as_slice(), [(kind, _, _, 3)] if kind == "Warning"),
    );
    wait::until_true("the agent to know of the network", || {
        let failure = s.add(&sandbox, "off", &off).error();
        failure.code == 11 && failure.msg.contains("disabled")
    });
    s.wait_event(
        "off",
        "FailedAddingInterface",
        &[&s.network("off"), "disabled"],
    );
    proof::of!("NPWG-X4", "PAIN-SIL-1");
}

/// The owner of a pod that Services and probes lose finds the reason with the pod.
#[test]
fn a_pod_off_the_default_network_at_its_first_interface_has_an_event() {
    let main = "agent-moved-main";
    let args = [&*format!("--default-network=podnetwork:{main}")];
    let Some(s) = AgentScene::prepare(testbed::test_name!(), "agent-moved", &args) else {
        return;
    };
    s.node.start_agent();
    s.apply_network("blue", &["10.1.0.0/24"], true);
    let list = json!([
        {"name": s.network("blue"), "interfaceName": "eth0"},
        {"name": main, "interfaceName": "net7"},
    ]);
    let uid = s.make_pod("moved", &[("podnet.dev/networks", &list.to_string())]);
    let sandbox = s.node.pod("c1");
    // The default network is not there, and the pod waits for it.
    wait::until_true("the agent to know of the other network", || {
        s.add(&sandbox, "moved", &uid).error().code == 7
    });
    s.wait_event(
        "moved",
        "DefaultNetworkMoved",
        &[
            &format!("{main} is at net7"),
            &format!("give {main} the interfaceName eth0"),
        ],
    );
    s.node.assert_empty();
}

/// NPWG-5-W1, PAIN-STS-1: whatever was missed is made good.
#[test]
fn annotations_that_are_lost_come_back() {
    let Some(mut s) = AgentScene::start(testbed::test_name!(), "agent-back") else {
        return;
    };
    s.apply_network("blue", &["10.1.0.0/24"], true);
    let uid = s.make_pod_of("web", "blue");
    let sandbox = s.node.pod("c1");
    s.add_in_time(&sandbox, "web", &uid);
    let status = s.written("web", NPWG);
    let remove = json!({"metadata": {"annotations": {NPWG: null, KEP: null}}});

    // Somebody removes them.
    s.patch_pod("web", &remove);
    assert_eq!(s.written("web", NPWG), status);
    assert!(s.annotation("web", KEP).is_some());

    // Or does while no agent is there.
    s.node.kill_9();
    s.patch_pod("web", &remove);
    assert_eq!(s.annotation("web", NPWG), None);
    s.node.start_agent();
    assert_eq!(s.written("web", NPWG), status);

    // Or the API server is away when a pod is attached.
    let late = s.make_pod_of("late", "blue");
    let other = s.node.pod("c2");
    s.add_in_time(&other, "late", &late);
    s.written("late", NPWG);
    s.del(&other, "late", &late).silent();
    s.patch_pod("late", &remove);
    s.door.close();
    s.add(&other, "late", &late).result();
    assert_eq!(s.annotation("late", NPWG), None);
    s.door.open_again();
    let late_status = s.written("late", NPWG);
    assert_eq!(late_status[0]["interface"], "eth0");

    s.del(&sandbox, "web", &uid).silent();
    s.del(&other, "late", &late).silent();
    proof::of!("NPWG-5-W1", "PAIN-STS-1");
}

/// NPWG-5-W2: a deleted pod ends the tries, and another of its name is left alone.
#[test]
fn another_pod_of_the_same_name_is_not_written_about() {
    let Some(mut s) = AgentScene::start(testbed::test_name!(), "agent-other-pod") else {
        return;
    };
    s.apply_network("blue", &["10.1.0.0/24"], true);
    let old = s.make_pod_of("web-0", "blue");
    let sandbox = s.node.pod("c1");
    s.add_in_time(&sandbox, "web-0", &old);
    s.written("web-0", NPWG);
    s.del(&sandbox, "web-0", &old).silent();
    let before = s.make_pod_of("probe", "blue");
    let probe = s.node.pod("c2");
    // Attached with the way closed, so that its status waits; then it is replaced.
    s.add_in_time(&probe, "probe", &before);
    s.written("probe", NPWG);
    s.door.close();
    s.add(&sandbox, "web-0", &old).result();
    s.delete_pod("web-0");
    let new = s.make_pod_of("web-0", "blue");
    s.door.open_again();
    // What is removed comes back when the agent has caught up with everything.
    s.patch_pod("probe", &json!({"metadata": {"annotations": {NPWG: null}}}));
    s.written("probe", NPWG);
    wait::until_true("the agent to give up the old pod", || {
        let (_, metrics) = s.node.http("/metrics").expect("the agent answers");
        metrics.contains("podnet_api_writes_total{object=\"status\",outcome=\"gone\"}")
    });
    assert_ne!(old, new);
    assert_eq!(s.annotation("web-0", NPWG), None);
    s.del(&sandbox, "web-0", &old).silent();
    s.del(&probe, "probe", &before).silent();
    proof::of!("NPWG-5-W2");
}

/// `deploy/base/agent-policy.yaml`: an agent's rights suffice for two annotations.
///
/// An attacker with them can write those of the pods of its node, and nothing else.
#[test]
fn an_agent_can_write_nothing_but_its_annotations_of_its_own_pods() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "agent-limits") else {
        return;
    };
    s.make_pod("own", &[("example.com/note", "mine")]);
    s.make_pod_on("another-node", "foreign", &[]);
    let ours = json!({"metadata": {"annotations": {NPWG: "[]", KEP: "[]"}}});
    let cases = [
        ("own", ours.clone(), true),
        ("foreign", ours, false),
        (
            "own",
            json!({"metadata": {"annotations": {"example.com/note": "x"}}}),
            false,
        ),
        (
            "own",
            json!({"metadata": {"annotations": {"example.com/note": null}}}),
            false,
        ),
        (
            "own",
            json!({"metadata": {"annotations": {"podnet.dev/networks": "[]"}}}),
            false,
        ),
        ("own", json!({"metadata": {"labels": {"app": "x"}}}), false),
        (
            "own",
            json!({"metadata": {"finalizers": ["example.com/x"]}}),
            false,
        ),
        (
            "own",
            json!({"status": {"podIP": "192.0.2.66", "podIPs": [{"ip": "192.0.2.66"}]}}),
            false,
        ),
        ("own", json!({"status": {"phase": "Running"}}), false),
    ];
    s.run(|_| async {
        let pods: Api<ApiPod> = Api::namespaced(s.as_agent().await, &s.name);
        for (pod, patch, allowed) in cases {
            let merge = Patch::Merge(&patch);
            let params = PatchParams::default();
            let done = pods.patch_status(pod, &params, &merge).await;
            match done {
                Ok(_) => assert!(allowed, "{patch} of {pod} was taken"),
                Err(kube::Error::Api(status)) => {
                    assert!(!allowed && status.code == 403, "{patch}: {status:?}");
                }
                Err(other) => panic!("{patch}: {other}"),
            }
            let whole = pods.patch(pod, &params, &merge).await;
            assert!(matches!(whole, Err(kube::Error::Api(status)) if status.code == 403));
        }
    });
}
