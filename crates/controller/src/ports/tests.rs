use overview::samples::{at, network, ours, pod, view};
use serde_json::{Value, json};

use super::*;

fn subnet(name: &str, mode: &str) -> Value {
    let spec = json!({"mode": mode, "subnets": ["10.1.0.0/16"], "gateway": "First"});
    ours("PodNetworkParameters", json!({"name": name}), spec)
}

fn port(name: &str, spec: Value) -> Value {
    let metadata =
        json!({"namespace": "shop", "name": name, "creationTimestamp": at(1).to_string()});
    ours("Port", metadata, spec)
}

fn steps_of(objects: &[Value]) -> Steps {
    let view = view(objects);
    steps(&view, &view.resolve(), at(9))
}

fn told(objects: &[Value], name: &str) -> (String, String) {
    let steps = steps_of(objects);
    let step = steps.status.iter().find(|step| step.name == name);
    let status = step.and_then(|step| step.status.as_ref());
    let condition = &status.expect("a status").conditions[0];
    assert_eq!(condition.type_, READY);
    let reason = format!("{} {}", condition.status, condition.reason);
    (reason, condition.message.clone())
}

#[test]
fn a_port_is_ready_when_a_pod_can_have_all_that_it_is_to_have() {
    let with = |spec: Value, other: Option<Value>| {
        let mut objects = vec![network("blue"), subnet("blue", "L3"), port("db-0", spec)];
        objects.extend(other);
        told(&objects, "db-0")
    };
    let blue = |ip: &str| json!({"network": "blue", "ipRequests": [ip]});
    assert_eq!(with(blue("10.1.0.7"), None).0, "True Ready");
    let (reason, message) = with(json!({"network": "red"}), None);
    assert_eq!(reason, "False NetworkNotReady");
    assert!(message.contains("red"), "{message}");
    for (ip, words) in [
        ("10.2.0.7", ["10.2.0.7", "10.1.0.0/16"]),
        ("10.1.0.1", ["10.1.0.1", "gateway"]),
        ("10.1.0.7/24", ["10.1.0.7/24", "10.1.0.7/16"]),
    ] {
        let (reason, message) = with(blue(ip), None);
        assert_eq!(reason, "False AddressUnusable", "{ip}");
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
    let (reason, message) = with(json!({"network": "blue", "macRequest": "x"}), None);
    assert_eq!(reason, "False ParamsInvalid");
    assert!(message.contains("spec.macRequest"), "{message}");

    // What another one only wishes for keeps nobody from it.
    let mac =
        json!({"network": "blue", "macRequest": "02:00:00:00:00:2a", "ipRequests": ["10.1.0.7"]});
    let mut other = port("a", mac.clone());
    assert_eq!(with(mac.clone(), Some(other.clone())).0, "True Ready");
    other["status"] = json!({"mac": "02:00:00:00:00:2a"});
    let (reason, message) = with(mac.clone(), Some(other.clone()));
    assert_eq!(reason, "False MACTaken");
    assert!(message.contains("Port shop/a"), "{message}");
    other["metadata"]["namespace"] = "bank".into();
    let (_, message) = with(mac, Some(other));
    assert!(
        message.contains("of another namespace") && !message.contains("bank"),
        "{message}"
    );
    let metadata = json!({"name": "blue.10-1-0-7"});
    let holder = json!({"namespace": "shop", "name": "web", "uid": "w", "node": "n1"});
    let spec = json!({"network": "blue", "address": "10.1.0.7", "pod": holder});
    let reserved = ours("IPReservation", metadata, spec);
    let (reason, message) = with(blue("10.1.0.7"), Some(reserved));
    assert_eq!(reason, "False AddressTaken");
    assert!(message.contains("pod shop/web on node n1"), "{message}");
    let holder = json!({"namespace": "bank", "name": "safe", "uid": "w", "node": "n1"});
    let spec = json!({"network": "blue", "address": "10.1.0.7", "pod": holder});
    let reserved = ours("IPReservation", json!({"name": "blue.10-1-0-7"}), spec);
    let (_, message) = with(blue("10.1.0.7"), Some(reserved));
    assert!(!message.contains("safe"), "{message}");
}

#[test]
fn an_address_that_is_in_use_makes_a_port_unready() {
    let metadata = json!({"name": "blue.10-1-0-7"});
    let holder = json!({"namespace": "shop", "name": "db-0", "uid": "db-0-uid"});
    let spec = json!({"network": "blue", "address": "10.1.0.7", "port": holder});
    let mut reserved = ours("IPReservation", metadata, spec);
    let blue = json!({"network": "blue", "ipRequests": ["10.1.0.7"]});
    let told = |reserved: &Value| {
        told(
            &[
                network("blue"),
                subnet("blue", "L3"),
                port("db-0", blue.clone()),
                reserved.clone(),
            ],
            "db-0",
        )
    };
    assert_eq!(told(&reserved).0, "True Ready");
    reserved["status"] = json!({"conditions": [{
        "type": "Granted", "status": "False", "reason": "InUse", "lastTransitionTime": at(0).to_string(),
        "message": "pod shop/web on node n2 has it",
    }]});
    let (reason, message) = told(&reserved);
    assert_eq!(reason, "False AddressTaken");
    assert!(message.contains("web on node n2 has it"), "{message}");
}

#[test]
fn a_port_is_released_when_its_pod_has_ended_and_not_before() {
    let released = |pod: Option<Value>| {
        let mut held = port("db-0", json!({"network": "blue"}));
        held["status"] = json!({"user": {"pod": "web", "uid": "web-uid", "node": "n1"}});
        let mut objects = vec![network("blue"), subnet("blue", "L3"), held];
        objects.extend(pod);
        steps_of(&objects).released.len()
    };
    let list = json!([{"name": "blue", "port": "db-0"}]);
    let mut running = pod("web", &list, "");
    running["spec"]["nodeName"] = "n1".into();
    assert_eq!(released(Some(running.clone())), 0);
    assert_eq!(released(None), 1);
    let mut ended = running.clone();
    ended["status"]["phase"] = "Succeeded".into();
    assert_eq!(released(Some(ended)), 1);
    let mut another = running.clone();
    another["metadata"]["uid"] = "another".into();
    assert_eq!(released(Some(another)), 1);
    // A node says of its own pods only that they have a Port.
    let mut elsewhere = running;
    elsewhere["spec"]["nodeName"] = "n2".into();
    assert_eq!(released(Some(elsewhere)), 1);
}

#[test]
fn a_status_of_a_port_that_says_so_already_is_not_written_again() {
    let mut object = port("db-0", json!({"network": "blue"}));
    object["status"] = json!({"mac": "02:00:00:00:00:2a", "conditions": [{
        "type": "Ready", "status": "True", "reason": "Ready", "message": "",
        "observedGeneration": 1, "lastTransitionTime": at(0).to_string(),
    }]});
    let objects = [network("blue"), subnet("blue", "L3"), object];
    assert_eq!(steps_of(&objects), Steps::default());
}
