use serde_json::json;

use super::*;

fn pod(name: &str, phase: &str, containers: &serde_json::Value) -> Arc<ApiPod> {
    let object = json!({
        "metadata": {"namespace": "shop", "name": name, "labels": {"a": "b"}},
        "spec": {"containers": containers, "nodeName": "n1"},
        "status": {"phase": phase},
    });
    let mut pod: ApiPod = serde_json::from_value(object).unwrap();
    trim_pod(&mut pod);
    Arc::new(pod)
}

fn container(requests: &serde_json::Value) -> serde_json::Value {
    json!({"name": "c", "image": "i", "resources": {"requests": requests, "limits": requests}})
}

#[test]
fn pods_that_run_count_by_what_all_their_containers_ask_for() {
    let blue = "addresses.podnet.dev/blue";
    let two = json!([
        container(&json!({blue: "1", "cpu": "2"})),
        container(&json!({blue: "1"})),
        {"name": "bare", "image": "i"},
    ]);
    let pods = [
        pod("a", "Running", &two),
        pod("b", "Succeeded", &two),
        pod("c", "Pending", &json!([container(&json!({"cpu": "1"}))])),
    ];
    assert_eq!(pods[0].spec.as_ref().unwrap().containers.len(), 2);
    let name = ("shop".to_owned(), "a".to_owned());
    let expected = BTreeMap::from([(blue.to_owned(), BTreeMap::from([(name, 2)]))]);
    assert_eq!(requested(&pods), expected);
}

#[test]
fn init_containers_and_selectors_of_pods_count_as_the_kubelet_reads_them() {
    let blue = "addresses.podnet.dev/blue";
    let with = |amount: &str, more: serde_json::Value| {
        let mut container = container(&json!({blue: amount}));
        let fields = container.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        container
    };
    let object = |phase: &str| {
        json!({
            "metadata": {"namespace": "shop", "name": "a"},
            "spec": {
                "containers": [with("1", json!({}))],
                "initContainers": [
                    with("1", json!({"restartPolicy": "Always"})),
                    with("4", json!({})),
                    with("2", json!({})),
                ],
                "nodeSelector": {"network.podnet.dev/blue": "true", "disk": "fast"},
            },
            "status": {"phase": phase},
        })
    };
    let read = |object: serde_json::Value| {
        let mut pod: ApiPod = serde_json::from_value(object).unwrap();
        trim_pod(&mut pod);
        Arc::new(pod)
    };
    let found = bound(&[read(object("Running"))]);
    assert_eq!(found.resources, BTreeMap::from([(blue.to_owned(), 5)]));
    assert_eq!(found.labels, ["network.podnet.dev/blue".to_owned()].into());
    assert_eq!(bound(&[read(object("Failed"))]), Claims::default());
}

#[test]
fn the_rate_of_an_uplink_is_a_name_and_whole_megabits() {
    assert_eq!(
        uplink_bandwidth("eth1=10000"),
        Ok(("eth1".to_owned(), 10000))
    );
    for bad in [
        "eth1",
        "eth1=",
        "eth1=0",
        "=5",
        "eth1=10G",
        "-a=5",
        "eth1=1000000001",
    ] {
        let why = uplink_bandwidth(bad).expect_err(bad);
        assert!(why.contains("NAME=MBIT"), "{why}");
    }
}
