use super::*;

/// A network with all of `spec.scheduling`, one with none, and ways to the first.
const TOLD: &str = r#"
apiVersion: podnet.dev/v1alpha1
kind: PodNetworkParameters
metadata: {name: told}
spec:
  mode: L2
  subnets: [10.0.0.0/24]
  transport: {type: VLAN, uplink: eth1, id: 7}
  ingressRate: 1500000
  scheduling: {addresses: true, bandwidth: true, nodes: true}
---
apiVersion: podnet.dev/v1alpha1
kind: PodNetworkParameters
metadata: {name: untold}
spec: {mode: L2, subnets: [10.0.0.0/24]}
---
apiVersion: podnet.dev/v1alpha1
kind: PodNetwork
metadata: {name: blue}
spec: {provider: podnet.dev/ebpf, parametersRefs: [{group: podnet.dev, kind: PodNetworkParameters, name: told}]}
---
apiVersion: podnet.dev/v1alpha1
kind: PodNetwork
metadata: {name: plain}
spec: {provider: podnet.dev/ebpf, parametersRefs: [{group: podnet.dev, kind: PodNetworkParameters, name: untold}]}
---
apiVersion: podnet.dev/v1alpha1
kind: AttachmentParameters
metadata: {namespace: shop, name: fast}
spec: {egressRate: 40000000}
---
apiVersion: podnet.dev/v1alpha1
kind: PodNetworkAttachment
metadata: {namespace: shop, name: fast}
spec:
  podNetworkName: blue
  parametersRefs: [{group: podnet.dev, kind: AttachmentParameters, name: fast, namespace: shop}]
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata:
  namespace: shop
  name: by-attachment
  annotations: {podnet.dev/config: '{"podNetworkAttachment":"shop/fast"}'}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {namespace: shop, name: blue}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {namespace: shop, name: plain}
"#;

fn limits(list: &str) -> Value {
    let wants = Wants::of_manifests(TOLD);
    let (_, after) = injected(&npwg(list), |pod, selection| {
        resources(pod, selection, &wants)
    });
    let resources = &after["spec"]["containers"][0]["resources"];
    assert_eq!(resources["limits"], resources["requests"]);
    resources["limits"].clone()
}

/// PAIN-SCH-1
#[test]
fn a_pod_asks_for_the_addresses_and_rates_that_its_networks_have_counted() {
    let of = |addresses: &str, rate: &str| json!({"addresses.podnet.dev/blue": addresses, "bandwidth.podnet.dev/eth1": rate});
    assert_eq!(limits("blue"), of("1", "2"), "rounded up");
    assert_eq!(limits("by-attachment"), of("1", "40"));
    assert_eq!(limits("blue, by-attachment, plain"), of("2", "42"));
    let own = json!([{"name": "by-attachment", "bandwidth": {"egressRate": 7_000_000, "egressBurst": 1_000_000}}]);
    assert_eq!(limits(&own.to_string()), of("1", "7"), "the pod's own");
    assert_eq!(limits("plain"), Value::Null, "nothing is counted");
    let claimed = json!([{"name": "blue", "ipam-claim-reference": "vm"}]).to_string();
    let asked = limits(&claimed);
    assert_eq!(
        asked,
        json!({"bandwidth.podnet.dev/eth1": "2"}),
        "the claim has its address"
    );
    proof::of!("PAIN-SCH-1");
}

/// PAIN-SCH-1
#[test]
fn a_pod_goes_to_the_nodes_that_say_they_carry_its_networks() {
    let wants = Wants::of_manifests(TOLD);
    let label = json!({"op": "add", "path": "/spec/nodeSelector/network.podnet.dev~1blue", "value": "true"});
    let first = json!({"op": "add", "path": "/spec/nodeSelector", "value": {}});
    for list in ["blue", "by-attachment, blue"] {
        assert_eq!(
            on_nodes(&npwg(list), &wants),
            Ok(vec![first.clone(), label.clone()])
        );
    }
    assert_eq!(on_nodes(&npwg("plain"), &wants), Ok(Vec::new()));
    let mut elsewhere = npwg("blue");
    elsewhere["spec"]["nodeSelector"] = json!({"network.podnet.dev/blue": "false"});
    let refused = on_nodes(&elsewhere, &wants).expect_err("a contradiction");
    assert!(refused.contains("there is no such node"), "{refused}");
    proof::of!("PAIN-SCH-1");
}
