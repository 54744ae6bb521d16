//! Test network policies of a real API server, as agents follow them.

use api::PodNetworkEndpointSlice;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;
use testbed::wait;

use super::objects;
use super::scene;
use super::slices::{plain, slices, start, vxlan, wait_remote};

/// A-MNP-06: with the definition that is shipped a range of ports stays one.
#[test]
fn a_multi_network_policy_is_taken_with_a_range_of_ports() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    let read = scene.run(|client| async move {
        let namespace = scene::namespace(&client, "multi-policy").await;
        let kind = GroupVersionKind::gvk("k8s.cni.cncf.io", "v1beta1", "MultiNetworkPolicy");
        let resource = ApiResource::from_gvk_with_plural(&kind, "multi-networkpolicies");
        let policies: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &resource);
        let ports = json!([
            {"protocol": "TCP", "port": 80, "endPort": 90}, {"port": "http"},
        ]);
        let peers = json!([
            {"podSelector": {"matchLabels": {"app": "web"}}, "namespaceSelector": {}},
            {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
        ]);
        let spec = json!({
            "podSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": ports, "from": peers}],
            "egress": [{"ports": ports, "to": peers}],
        });
        // None of this names a network: agents of other tests have no pods to follow for it.
        let object = DynamicObject::new("web", &resource).data(json!({ "spec": spec }));
        let made = policies.create(&Default::default(), &object).await;
        (made.expect("a policy").data["spec"].clone(), spec)
    });
    assert_eq!(read.0, read.1);
}

/// Policies select ends on other nodes by their pods.
#[test]
fn slices_name_pods_from_the_first_policy_on_that_names_networks() {
    let Some(s) = start(testbed::test_name!(), "policies", 9) else {
        return;
    };
    let blue = vxlan(&s.one, "blue", "10.89.0.0/24", 0x00a9_0001);
    let one_uid = s.pod(&s.one, "one", &blue, &json!({}));
    let two_uid = s.pod(&s.two, "two", &blue, &json!({}));
    let (one, two) = (s.one.node.pod("c1"), s.two.node.pod("c2"));
    let of_one = s.add(&s.one, &one, "one", &one_uid);
    s.add(&s.two, &two, "two", &two_uid);
    wait_remote(&s.two, &[[&blue, &s.one.name, plain(&of_one)]]);
    let endpoint = || {
        let all: Vec<PodNetworkEndpointSlice> = slices(&s.one, &blue);
        let own = all.into_iter().find(|it| it.spec.node == s.one.name);
        own.expect("a slice").spec.endpoints.remove(0)
    };
    let before = endpoint();
    assert_eq!(before.pod, None, "no policy names a network");

    s.one.apply(&format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
         metadata: {{name: web, namespace: {}, annotations: {{podnet.dev/networks: {blue}}}}}\n\
         spec: {{podSelector: {{}}}}\n",
        s.one.name
    ));
    let pod = format!("{}/one", s.one.name);
    wait::until_true("the pod of the member to be said", || {
        endpoint().pod.as_ref() == Some(&pod)
    });
    assert_eq!(
        endpoint().since,
        before.since,
        "the claim is that of before"
    );
    // By the rights of deploy/base/agent-rbac.yaml.
    for scene in [&s.one, &s.two] {
        wait::until_true("pods, namespaces and nodes to be known", || {
            let log = scene.node.log();
            log.contains("that policies select by are known")
        });
    }
    s.one
        .kubectl(&["delete", "networkpolicy", "web", "--namespace", &s.one.name]);
    s.del(&s.one, &one, "one", &one_uid);
    s.del(&s.two, &two, "two", &two_uid);
}
