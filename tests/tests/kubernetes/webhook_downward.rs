//! Pods that ask for a file with their own networks, as the API server has them.

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::webhook_scene::{Webhook, pod, set};

/// Where containers of a pod have the file.
fn mounted(pod: &Pod) -> Vec<Vec<&str>> {
    let spec = pod.spec.as_ref().expect("a spec");
    let containers = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers);
    containers
        .map(|container| {
            let mounts = container.volume_mounts.iter().flatten();
            let ours = mounts.filter(|mount| mount.name == "podnetinfo");
            ours.map(|mount| mount.mount_path.as_str()).collect()
        })
        .collect()
}

/// KEP-P2-2: a pod that asks gets a volume that the API server takes; others none.
#[test]
fn a_pod_that_asks_gets_the_volume_with_its_networks() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(|client| async move {
        let webhook = Webhook::start(server, &client, "webhook-downward", &[]).await;
        let list = r#"[{"name": "a"}]"#;
        let lists = json!({"podnet.dev/networks": list});
        let silent = webhook.create(&client, &pod("silent", &lists), false).await;
        assert_eq!(mounted(&silent.expect("taken")), [[""; 0]]);

        let asks = json!({"podnet.dev/networks": list, "podnet.dev/downward": "true"});
        let mut with_init = pod("asks", &asks);
        with_init["spec"]["initContainers"] =
            json!([{"name": "wait", "image": "none.example/none:0"}]);
        let made = webhook
            .create(&client, &with_init, false)
            .await
            .expect("taken");
        assert_eq!(mounted(&made), [["/etc/podnetinfo"], ["/etc/podnetinfo"]]);
        let volumes = made
            .spec
            .iter()
            .flat_map(|spec| spec.volumes.iter().flatten());
        let items: Vec<(&str, &str)> = volumes
            .filter_map(|volume| volume.downward_api.as_ref())
            .flat_map(|source| source.items.iter().flatten())
            .filter_map(|item| {
                Some((
                    item.path.as_str(),
                    item.field_ref.as_ref()?.field_path.as_str(),
                ))
            })
            .collect();
        assert_eq!(
            items,
            [
                ("annotations", "metadata.annotations"),
                ("labels", "metadata.labels"),
                (
                    "network-status",
                    "metadata.annotations['k8s.v1.cni.cncf.io/network-status']"
                ),
                (
                    "networks",
                    "metadata.annotations['podnet.dev/network-status']"
                ),
            ]
        );
        let gates = made
            .spec
            .iter()
            .flat_map(|spec| spec.scheduling_gates.iter().flatten());
        assert_eq!(gates.count(), 1, "it waits for its networks too");
    });
    proof::of!("KEP-P2-2");
}
