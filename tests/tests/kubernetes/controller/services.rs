//! Test EndpointSlices of Services on networks.
//!
//! The slices of the cluster are written as Kubernetes' controller does it; no such controller runs here.

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use super::super::scene::namespace;
use super::super::webhook_scene::{act_as, words};
use super::objects::{Cluster, until};
use super::{ACCOUNT, set};

const MANAGER: &str = "endpointslice.kubernetes.io/managed-by";

/// Makes a Service of a network that has the name of its namespace.
async fn service(cluster: &Cluster, space: &str, annotations: Value, spec: Value) {
    let fields = json!({
        "metadata": {"labels": {"podnet.dev/network": space}, "annotations": annotations},
        "spec": spec,
    });
    cluster.create(("Service", space, "web"), fields).await;
}

/// Writes the slice that Kubernetes makes of the Service's selector.
async fn slice_of_cluster(cluster: &Cluster, space: &str, pods: &[&str], node: &str) {
    let endpoint = |pod: &&str| {
        json!({
            "addresses": ["10.0.0.1"], "nodeName": node,
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "targetRef": {"kind": "Pod", "namespace": space, "name": pod, "uid": "1"},
        })
    };
    let fields = json!({
        "metadata": {"labels": {
            "podnet.dev/network": space,
            "kubernetes.io/service-name": "web",
            MANAGER: "endpointslice-controller.k8s.io",
        }},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": pods.iter().map(endpoint).collect::<Vec<_>>(),
    });
    cluster
        .create(("EndpointSlice", space, "web-abcde"), fields)
        .await;
}

/// Writes what an agent says of the members that it has.
async fn members(cluster: &Cluster, space: &str, node: &str, pods: &[(&str, &str)]) {
    let endpoints = pods.iter().enumerate().map(|(at, (pod, ip))| {
        json!({
            "mac": format!("02:00:00:00:00:{at:02x}"), "since": "2026-01-02T03:04:05Z",
            "ips": [ip], "pod": format!("{space}/{pod}"),
        })
    });
    let fields = json!({
        "metadata": {"labels": {"podnet.dev/network": space, "podnet.dev/node": node}},
        "spec": {
            "network": space, "networkID": 7, "node": node, "vteps": ["192.0.2.1"],
            "endpoints": endpoints.collect::<Vec<_>>(),
        },
    });
    let name = format!("{space}.{node}.0");
    cluster
        .create(("PodNetworkEndpointSlice", "", &name), fields)
        .await;
}

/// Names and addresses of the slices that the controller has made.
async fn written(cluster: &Cluster, space: &str) -> Vec<(String, Vec<String>)> {
    let slices = cluster.list("EndpointSlice", space).await;
    let own = slices
        .iter()
        .filter(|it| it["metadata"]["labels"][MANAGER] == "podnet.dev");
    let mut found: Vec<(String, Vec<String>)> = own
        .map(|it| {
            let endpoints = it["endpoints"].as_array().cloned().unwrap_or_default();
            let ips = endpoints.iter().map(|it| it["addresses"][0].as_str());
            let name = it["metadata"]["name"].as_str().expect("a name");
            let ips = ips.map(|ip| ip.expect("an address").to_owned());
            (name.to_owned(), ips.collect())
        })
        .collect();
    found.sort();
    found
}

async fn wait_written(cluster: &Cluster, space: &str, expected: &[(&str, &[&str])]) {
    let expected: Vec<(String, Vec<String>)> = expected
        .iter()
        .map(|(name, ips)| {
            let ips = ips.iter().map(|ip| (*ip).to_owned());
            ((*name).to_owned(), ips.collect())
        })
        .collect();
    until(&format!("{expected:?}"), async || {
        (written(cluster, space).await == expected).then_some(())
    })
    .await;
}

/// D-EPS-8, by the rights of deploy/base/controller.yaml.
#[test]
fn endpoints_of_a_service_have_the_addresses_of_its_network() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "services-mirrored").await;
        let cluster = Cluster::new(client);
        let node = "services-node";
        cluster.create(("Node", "", node), json!({})).await;
        members(
            &cluster,
            &space,
            node,
            &[("a", "10.50.0.1"), ("b", "10.50.0.2")],
        )
        .await;
        let selecting =
            json!({"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}]});
        service(&cluster, &space, json!({}), selecting).await;
        slice_of_cluster(&cluster, &space, &["a", "b", "elsewhere"], node).await;
        let name = "web-abcde-podnet";
        wait_written(&cluster, &space, &[(name, &["10.50.0.1", "10.50.0.2"])]).await;
        // No webhook runs here.
        until("an Event", async || {
            let events = cluster.list("Event", &space).await;
            let mut notes = events.iter().filter_map(|it| it["note"].as_str());
            notes
                .any(|it| it.starts_with("kube-proxy has it, too"))
                .then_some(())
        })
        .await;
        // A pod that is not ready any more.
        let unready = json!({"endpoints": [{
            "addresses": ["10.0.0.1"], "nodeName": node, "conditions": {"ready": false},
            "targetRef": {"kind": "Pod", "namespace": space, "name": "b", "uid": "1"},
        }]});
        cluster
            .patch(("EndpointSlice", &space, "web-abcde"), unready)
            .await;
        wait_written(&cluster, &space, &[(name, &["10.50.0.2"])]).await;
        let slice = cluster.get(("EndpointSlice", &space, name)).await;
        let slice = slice.expect("the slice");
        assert_eq!(slice["endpoints"][0]["conditions"]["ready"], false);
        // What somebody does to it is mended.
        let broken = json!({"endpoints": []});
        cluster.patch(("EndpointSlice", &space, name), broken).await;
        wait_written(&cluster, &space, &[(name, &["10.50.0.2"])]).await;
        cluster.delete(("EndpointSlice", &space, name)).await;
        wait_written(&cluster, &space, &[(name, &["10.50.0.2"])]).await;
        // The member is gone, and comes back with another address.
        let of_node = format!("{space}.{node}.0");
        cluster
            .delete(("PodNetworkEndpointSlice", "", &of_node))
            .await;
        wait_written(&cluster, &space, &[]).await;
        members(&cluster, &space, node, &[("b", "10.50.0.9")]).await;
        wait_written(&cluster, &space, &[(name, &["10.50.0.9"])]).await;
        cluster.delete(("Service", &space, "web")).await;
        wait_written(&cluster, &space, &[]).await;
    });
    proof::of!("KEP-P3-4");
}

/// D-EPS-10: for DNS.
#[test]
fn a_headless_service_has_the_addresses_of_pods_that_its_annotation_selects() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "services-headless").await;
        let cluster = Cluster::new(client);
        let node = "services-headless-node";
        cluster.create(("Node", "", node), json!({})).await;
        let fields = |app: &str| {
            json!({
                "metadata": {"labels": {"app": app}},
                "spec": {
                    "nodeName": node, "hostname": "db-0", "subdomain": "web",
                    "containers": [{"name": "c", "image": "i"}],
                },
            })
        };
        cluster.create(("Pod", &space, "db-0"), fields("db")).await;
        cluster.create(("Pod", &space, "other"), fields("x")).await;
        members(
            &cluster,
            &space,
            node,
            &[("db-0", "10.50.0.1"), ("other", "10.50.0.2")],
        )
        .await;
        let annotation = json!({"podnet.dev/selector": "app=db"});
        let headless = json!({"clusterIP": "None", "ports": [{"name": "sql", "port": 5432}]});
        service(&cluster, &space, annotation, headless).await;
        let name = "web-podnet-ipv4-0";
        wait_written(&cluster, &space, &[(name, &["10.50.0.1"])]).await;
        let slice = cluster.get(("EndpointSlice", &space, name)).await;
        let slice = slice.expect("the slice");
        let endpoint = &slice["endpoints"][0];
        assert_eq!(endpoint["hostname"], "db-0");
        assert_eq!(endpoint["conditions"]["ready"], false);
        assert_eq!(
            slice["metadata"]["labels"]["kubernetes.io/service-name"],
            "web"
        );
        assert_eq!(
            slice["metadata"]["labels"]["service.kubernetes.io/headless"],
            ""
        );
        let ready = json!({"conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"},
        ]});
        cluster.patch_status(("Pod", &space, "db-0"), ready).await;
        until("the pod to be ready", async || {
            let slice = cluster.get(("EndpointSlice", &space, name)).await?;
            (slice["endpoints"][0]["conditions"]["ready"] == true).then_some(())
        })
        .await;
        cluster.delete_now(&space, "db-0").await;
        wait_written(&cluster, &space, &[]).await;
        cluster.delete_now(&space, "other").await;
        cluster.delete(("Service", &space, "web")).await;
    });
    proof::of!("KEP-P3-4");
}

/// ATT-15a: with a controller's rights.
#[test]
fn a_controller_that_was_taken_over_writes_no_slices_but_those_of_networks() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "services-policy").await;
        let cluster = Cluster::new(client);
        slice_of_cluster(&cluster, &space, &[], "n").await;
        let attacker = act_as(scene.server, ACCOUNT, &["system:serviceaccounts"]).await;
        let slices: Api<EndpointSlice> = Api::namespaced(attacker, &space);
        let made = |labels: Value| -> EndpointSlice {
            serde_json::from_value(json!({
                "metadata": {"name": "forged", "labels": labels},
                "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.66"]}],
            }))
            .expect("a slice")
        };
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let plain = made(json!({"kubernetes.io/service-name": "web"}));
        // The server compiles policies some time after they are made.
        until("the policy to be in force", async || {
            slices.create(&dry, &plain).await.is_err().then_some(())
        })
        .await;
        let own = "podnet.dev";
        let refused = [
            json!({"kubernetes.io/service-name": "web"}),
            json!({"kubernetes.io/service-name": "web", MANAGER: own}),
            json!({"podnet.dev/network": "blue", MANAGER: "endpointslice-controller.k8s.io"}),
            json!({
                "kubernetes.io/service-name": "web", MANAGER: own, "podnet.dev/network": "blue",
            }),
            json!({
                "kubernetes.io/service-name": "web", "podnet.dev/service-name": "other", MANAGER: own,
                "podnet.dev/network": "blue", "service.kubernetes.io/headless": "",
            }),
            json!({"podnet.dev/service-name": "web", MANAGER: own, "podnet.dev/network": "blue"}),
        ];
        for labels in refused {
            let done = slices.create(&dry, &made(labels.clone())).await;
            let answer = words(done.expect_err(&format!("{labels} was taken")));
            assert!(
                answer.contains("Services on networks, and no others"),
                "{answer}"
            );
        }
        // It may list them, and not get one.
        let all = slices.list(&ListParams::default()).await.expect("a list");
        let mut of_others = all.items.into_iter().next().expect("a slice");
        let deleted = slices.delete("web-abcde", &DeleteParams::default()).await;
        assert!(words(deleted.expect_err("no deletion")).contains("and no others"));
        let labels = of_others.metadata.labels.as_mut().expect("labels");
        labels.insert(MANAGER.to_owned(), own.to_owned());
        labels.remove("kubernetes.io/service-name");
        let replaced = slices.replace("web-abcde", &dry, &of_others).await;
        assert!(words(replaced.expect_err("no change")).contains("and no others"));
    });
    proof::of!("ATT-15a");
}
