//! Test features that can be switched off.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::json;
use testbed::apiserver::{self, ApiServer};

use super::super::scene::{Scene, namespace};
use super::objects::{Cluster, condition, until};
use super::{Controller, empty_cluster};

/// A cluster whose only controller is the test's; one test at a time.
fn set(test: &str) -> Option<(Scene, MutexGuard<'static, ()>)> {
    static SERVER: OnceLock<ApiServer> = OnceLock::new();
    static TURN: Mutex<()> = Mutex::new(());
    let programs = apiserver::programs_for(test)?;
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    Some((
        Scene::on(SERVER.get_or_init(|| empty_cluster(&programs))),
        turn,
    ))
}

fn start(scene: &Scene, name: &str, options: &[&str]) -> Controller {
    let options = [&["--leader-elect=false"], options].concat();
    let mut controller = Controller::start(scene.server, name, &options);
    controller.wait_ready();
    controller
}

/// KEP-CTL-4, KEP-PN-U4: no pod is stuck, and what is being deleted goes.
#[test]
fn gate_removed_when_feature_off() {
    let Some((scene, _turn)) = set(testbed::test_name!()) else {
        return;
    };
    let on = start(&scene, "on", &[]);
    scene.run(async |client| {
        let space = namespace(&client, "switched").await;
        let cluster = Cluster::new(client);
        cluster.ready_network("kept").await;
        cluster
            .pod(&space, "old", json!([{"name": "kept"}]), Some("no-node"))
            .await;
        cluster
            .pod(&space, "new", json!([{"name": "missing"}]), None)
            .await;
        let pod = ("Pod", space.as_str(), "new");
        let (type_, reason) = ("podnet.dev/NetworksReady", "NetworksNotReady");
        cluster.wait_condition(pod, type_, "False", reason).await;
        cluster.delete(("PodNetwork", "", "kept")).await;
        assert!(cluster.get(("PodNetwork", "", "kept")).await.is_some());

        drop(on);
        let _off = start(&scene, "off", &["--feature-gates=MultiNetwork=false"]);
        cluster.wait_released(&space, "new").await;
        until("the pod's condition to go", async || {
            let pod = cluster.get(pod).await?;
            condition(&pod, type_).is_none().then_some(())
        })
        .await;
        cluster.wait_gone(("PodNetwork", "", "kept")).await;
        // It makes nothing, either.
        cluster.delete(("PodNetwork", "", "default")).await;
        cluster
            .pod(&space, "last", json!([{"name": "missing"}]), None)
            .await;
        cluster.wait_released(&space, "last").await;
        assert!(cluster.get(("PodNetwork", "", "default")).await.is_none());
    });
    proof::of!("KEP-CTL-4", "KEP-PN-U4");
}

/// KEP-DEF-4: the operator makes it, and only pods that name it wait.
#[test]
fn the_default_network_is_not_made_when_the_operator_wants_to() {
    let Some((scene, _turn)) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "no-default").await;
        let cluster = Cluster::new(client);
        cluster.delete(("PodNetwork", "", "default")).await;
        let options = ["--disable-default-podnetwork-creation"];
        let _controller = start(&scene, "no-default", &options);
        cluster.pod(&space, "plain", json!(null), None).await;
        cluster.wait_released(&space, "plain").await;
        cluster
            .pod(&space, "names-it", json!([{"name": "default"}]), None)
            .await;
        let pod = ("Pod", space.as_str(), "names-it");
        let (type_, reason) = ("podnet.dev/NetworksReady", "NetworksNotReady");
        cluster.wait_condition(pod, type_, "False", reason).await;
        let default = ("PodNetwork", "", "default");
        assert!(cluster.get(default).await.is_none());
        cluster
            .create(default, json!({"spec": {"enabled": true}}))
            .await;
        cluster.wait_released(&space, "names-it").await;
    });
    proof::of!("KEP-DEF-4");
}

/// Issue 17: an upgrade changes no network under its pods.
#[test]
fn a_network_that_was_there_before_transports_were_decided_on_stays_on_its_nodes() {
    let Some((scene, _turn)) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let cluster = Cluster::new(client);
        for name in ["before", "after"] {
            cluster.parameters(name, json!({})).await;
            cluster.network(name).await;
        }
        let numbered = json!({"networkID": 0x0080_1234});
        cluster
            .patch_status(("PodNetwork", "", "before"), numbered)
            .await;
        let _controller = start(&scene, "transports", &[]);
        for (name, expected) in [("before", "Local"), ("after", "VXLAN")] {
            let what = format!("the transport of {name}");
            let found = until(&what, async || {
                let network = cluster.get(("PodNetwork", "", name)).await?;
                network["status"]["transport"].as_str().map(str::to_owned)
            });
            assert_eq!(found.await, expected, "{name}");
        }
        let before = cluster.get(("PodNetwork", "", "before")).await;
        let before = before.expect("the network");
        assert_eq!(before["status"]["networkID"], 0x0080_1234);
    });
}
