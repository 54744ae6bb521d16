use serde_json::{Value, json};

use super::super::review;
use super::super::samples::{create, npwg, plain, pod, update};
use super::*;

mod scheduling;

/// Two memif networks, a veth network, definitions with and without a resource.
const OBJECTS: &str = r#"
apiVersion: podnet.dev/v1alpha1
kind: PodNetworkParameters
metadata: {name: memif}
spec: {mode: L2, interface: {type: Memif}}
---
apiVersion: podnet.dev/v1alpha1
kind: PodNetworkParameters
metadata: {name: veth}
spec: {mode: L2}
---
apiVersion: podnet.dev/v1alpha1
kind: PodNetwork
metadata: {name: fast}
spec: {provider: podnet.dev/ebpf, parametersRefs: [{group: podnet.dev, kind: PodNetworkParameters, name: memif}]}
---
apiVersion: podnet.dev/v1alpha1
kind: PodNetwork
metadata: {name: slow}
spec: {provider: podnet.dev/ebpf, parametersRefs: [{group: podnet.dev, kind: PodNetworkParameters, name: veth}]}
---
apiVersion: podnet.dev/v1alpha1
kind: PodNetwork
metadata: {name: defined}
spec:
  provider: podnet.dev/ebpf
  parametersRefs: [{group: k8s.cni.cncf.io, kind: NetworkAttachmentDefinition, name: memif, namespace: ops}]
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {namespace: ops, name: memif}
spec: {config: '{"type":"podnet","parameters":{"mode":"L2","interface":{"type":"Memif"}}}'}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {namespace: shop, name: fast}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {namespace: shop, name: slow}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata:
  namespace: shop
  name: vf
  annotations: {k8s.v1.cni.cncf.io/resourceName: vendor.example/vf, k8s.v1.cni.cncf.io/nodeSelector: "rack = a"}
spec: {config: '{"cniVersion":"1.0.0","type":"sriov"}'}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata:
  namespace: shop
  name: there
  annotations: {k8s.v1.cni.cncf.io/nodeSelector: has-nic}
spec: {config: '{"cniVersion":"1.0.0","type":"macvlan"}'}
"#;

fn wants() -> Wants {
    Wants::of_manifests(OBJECTS)
}

/// The operations for a pod, and the pod as it is after them.
fn injected(
    object: &Value,
    change: impl Fn(&Pod, &PodSelection) -> Vec<Value>,
) -> (Vec<Value>, Value) {
    let request = create(object);
    let rules = api::selection::SelectionRules::default();
    let selection = review::read(&request, &rules)
        .expect("a good list")
        .expect("a list");
    let operations = change(request.object.as_ref().expect("a pod"), &selection);
    let mut after = object.clone();
    let patch: json_patch::Patch = serde_json::from_value(json!(operations)).expect("a patch");
    json_patch::patch(&mut after, &patch).expect("a patch that fits");
    (operations, after)
}

fn with_resources(object: &Value) -> (Vec<Value>, Value) {
    injected(object, |pod, selection| resources(pod, selection, &wants()))
}

fn with(list: &str, spec: &Value) -> Value {
    let mut object = npwg(list);
    object["spec"] = spec.clone();
    object
}

/// S003-05, NRI-02, NRI-06
#[test]
fn the_first_container_asks_for_a_device_for_each_attachment() {
    let (patch, after) = with_resources(&npwg("fast, slow, vf, fast"));
    let place = "/spec/containers/0/resources";
    let expected = [
        (place.to_owned(), json!({})),
        (format!("{place}/limits"), json!({})),
        (format!("{place}/limits/podnet.dev~1fast"), json!("2")),
        (format!("{place}/limits/vendor.example~1vf"), json!("1")),
        (format!("{place}/requests"), json!({})),
        (format!("{place}/requests/podnet.dev~1fast"), json!("2")),
        (format!("{place}/requests/vendor.example~1vf"), json!("1")),
    ];
    let expected = expected.map(|(path, value)| json!({"op": "add", "path": path, "value": value}));
    assert_eq!(patch, expected);
    let all = json!({"podnet.dev/fast": "2", "vendor.example/vf": "1"});
    assert_eq!(
        after["spec"]["containers"][0]["resources"],
        json!({"limits": all, "requests": all})
    );
    let (again, _) = with_resources(&after);
    assert_eq!(again, [Value::Null; 0], "the webhook may be asked twice");
    proof::of!("S003-05", "NRI-02", "NRI-06");
}

/// KEP-3698's list counts as NPWG's.
#[test]
fn both_lists_lead_to_devices_and_a_pod_without_any_is_left_alone() {
    let kep = json!({"podnet.dev/networks": r#"[{"name": "slow"}, {"name": "fast"}, {"name": "defined"}]"#});
    let (_, after) = with_resources(&pod(&kep, &plain()));
    let found = &after["spec"]["containers"][0]["resources"]["limits"];
    let expected = json!({"podnet.dev/fast": "1", "podnet.dev/defined": "1"});
    assert_eq!(*found, expected);
    for list in ["slow", "there", "absent"] {
        let (patch, _) = with_resources(&npwg(list));
        assert_eq!(patch, [Value::Null; 0], "{list}");
    }
}

/// NRI-06: what the user says of a resource holds, in whichever container.
#[test]
fn what_a_pod_asks_for_itself_is_not_asked_for_again() {
    let own = |container: &str| {
        let mut spec = json!({
            "initContainers": [{"name": "i", "image": "i"}],
            "containers": [
                {"name": "a", "image": "i", "resources": {"limits": {"cpu": "1"}}},
                {"name": "b", "image": "i"},
            ],
        });
        let place = spec.pointer_mut(container).expect("a container");
        place["resources"]["requests"] = json!({"podnet.dev/fast": "3"});
        with_resources(&with("fast, vf", &spec)).0
    };
    for container in ["/containers/1", "/initContainers/0"] {
        let place = "/spec/containers/0/resources";
        let expected = [
            (format!("{place}/limits/vendor.example~1vf"), json!("1")),
            (format!("{place}/requests"), json!({})),
            (format!("{place}/requests/vendor.example~1vf"), json!("1")),
        ];
        let expected =
            expected.map(|(path, value)| json!({"op": "add", "path": path, "value": value}));
        assert_eq!(own(container), expected, "{container}");
    }
    proof::of!("NRI-06");
}

fn on_nodes(pod: &Value, wants: &Wants) -> Result<Vec<Value>, String> {
    let request = create(pod);
    let rules = api::selection::SelectionRules::default();
    let selection = review::read(&request, &rules).expect("a good list");
    let pod = request.object.as_ref().expect("a pod");
    node_selector(pod, &selection.expect("a list"), wants).map_err(|denial| denial.to_string())
}

/// NRI-07
#[test]
fn a_pod_goes_to_the_nodes_that_its_networks_want() {
    let list = npwg("vf, there");
    let (patch, after) = injected(&list, |pod, selection| {
        node_selector(pod, selection, &wants()).expect("no clash")
    });
    assert_eq!(
        patch,
        [
            json!({"op": "add", "path": "/spec/nodeSelector", "value": {}}),
            json!({"op": "add", "path": "/spec/nodeSelector/has-nic", "value": ""}),
            json!({"op": "add", "path": "/spec/nodeSelector/rack", "value": "a"}),
        ]
    );
    assert_eq!(on_nodes(&after, &wants()), Ok(Vec::new()));
    let mut own = list.clone();
    own["spec"]["nodeSelector"] = json!({"example.com/zone": "z", "rack": "a"});
    let expected = json!({"op": "add", "path": "/spec/nodeSelector/has-nic", "value": ""});
    assert_eq!(on_nodes(&own, &wants()), Ok(vec![expected]));
    assert_eq!(on_nodes(&list, &Wants::default()), Ok(Vec::new()));
    proof::of!("NRI-07");
}

/// NRI-07
#[test]
fn wishes_that_no_node_can_meet_are_refused() {
    let mut own = npwg("vf");
    own["spec"]["nodeSelector"] = json!({"rack": "b"});
    let refused = on_nodes(&own, &wants()).expect_err("a clash");
    let expected = "NetworkAttachmentDefinition shop/vf: wants nodes with rack=a, the pod or \
                    another network of it rack=b; there is no such node";
    assert_eq!(refused, expected);
    for wrong in ["a=b=c", "", "=b", "a=b,c=d"] {
        let text = OBJECTS.replace("\"rack = a\"", &format!("\"{wrong}\""));
        let refused = on_nodes(&npwg("vf"), &Wants::of_manifests(&text)).expect_err(wrong);
        assert!(
            refused.contains("is not one label; write key=value"),
            "{refused}"
        );
    }
    proof::of!("NRI-07");
}

/// S003-06: no author can choose it.
#[test]
fn a_context_is_another_one_for_each_pod_and_the_authors_own_is_replaced() {
    let uid = |object: &Value| {
        let (_, after) = injected(object, |pod, _| context_uid(pod).expect("an identifier"));
        let text = &after["metadata"]["annotations"][CONTEXT_ANNOTATION];
        (text.as_str().expect("text").to_owned(), after)
    };
    let (first, once) = uid(&npwg("fast"));
    let parts: Vec<usize> = first.split('-').map(str::len).collect();
    assert_eq!(parts, [8, 4, 4, 4, 12], "{first}");
    let (second, _) = uid(&once);
    assert_ne!(first, second);
    let request = create(&json!({"metadata": {"name": "web"}, "spec": plain()}));
    let patch = context_uid(request.object.as_ref().expect("a pod")).expect("an identifier");
    assert_eq!(patch[0]["path"], "/metadata/annotations");
    proof::of!("S003-06");
}

/// KEP-DEF-5, KEP-DEF-7: the list that it has, and a mark.
#[test]
fn a_pod_without_a_list_gets_the_one_it_has_anyway() {
    let after = |object: &Value| {
        let operations = populated(&create(object), "default");
        let mut after = object.clone();
        let patch: json_patch::Patch = serde_json::from_value(json!(operations)).expect("a patch");
        json_patch::patch(&mut after, &patch).expect("a patch that fits");
        after["metadata"]["annotations"].clone()
    };
    let list = r#"[{"name":"default"}]"#;
    let written = json!({
        "podnet.dev/networks": list, "podnet.dev/networks-populated": "default",
    });
    assert_eq!(after(&pod(&Value::Null, &plain())), written);
    assert_eq!(after(&pod(&json!({}), &plain())), written);
    // What it has besides the default network is no list of KEP-3698.
    let both = after(&npwg("blue"));
    assert_eq!(both["podnet.dev/networks"], list);
    assert_eq!(both["k8s.v1.cni.cncf.io/networks"], "blue");
    // None of these is waited for or asked about.
    let request = create(&pod(&written, &plain()));
    let rules = api::selection::SelectionRules::default();
    assert_eq!(review::gate(&request, &rules), None);
    let selection = review::read(&request, &rules).expect("a good list");
    let selection = selection.expect("a list");
    assert_eq!(named(&selection).count(), 0);

    let mut on_host = plain();
    on_host["hostNetwork"] = true.into();
    for left_alone in [
        pod(&json!({"podnet.dev/networks": "[]"}), &plain()),
        pod(&json!({"v1.multus-cni.io/default-network": "a"}), &plain()),
        pod(&json!({"kubernetes.io/config.mirror": "h"}), &plain()),
        pod(&json!({}), &on_host),
        pod(&written, &plain()),
    ] {
        let operations = populated(&create(&left_alone), "default");
        assert_eq!(operations, [Value::Null; 0], "{left_alone}");
    }
    let changed = update(
        &pod(&json!({}), &plain()),
        &pod(&json!({"a": "b"}), &plain()),
    );
    assert_eq!(populated(&changed, "default"), [Value::Null; 0]);
    proof::of!("KEP-DEF-5", "KEP-DEF-7");
}
