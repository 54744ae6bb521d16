//! Test the controller while it plans.

use std::fs;

use serde_json::{Value, json};
use testbed::wait;

use super::super::scene::namespace;
use super::objects::{Cluster, until};
use super::{Controller, leader};

/// A Lease that is over long before a test is.
const TIMES: [&str; 3] = [
    "--leader-elect-lease-duration=6",
    "--leader-elect-renew-deadline=4",
    "--leader-elect-retry-period=1",
];

/// ATT-04b: a long plan keeps neither the Lease nor `livez` waiting.
///
/// The leader of a large cluster stays the leader and alive.
#[test]
fn a_plan_that_does_not_end_keeps_neither_the_lease_nor_livez_waiting() {
    let Some(scene) = leader::set(testbed::test_name!()) else {
        return;
    };
    let hold = scene.server.kubeconfig().with_file_name("thinking.hold");
    scene.run(async |client| {
        let space = namespace(&client, "thinking").await;
        let cluster = Cluster::new(client);
        cluster.network("thinking").await;
        cluster.parameters("thinking", json!({})).await;

        fs::write(&hold, "").expect("a file can be written");
        let point = format!("--hold-at=controller.plan={}", hold.display());
        let lease = "--leader-elect-resource-name=thinking";
        let options = [&TIMES[..], &[point.as_str(), lease]].concat();
        let kubeconfig = scene.server.kubeconfig();
        let mut controller = Controller::start_as(&kubeconfig, scene.server, "thinking", &options);
        controller.wait_ready();
        wait::until_true("the controller to think", || {
            fs::read_to_string(&hold).is_ok_and(|text| text == "held")
        });
        let list = json!([{"name": "thinking"}]);
        cluster.pod(&space, "web", list, None).await;

        // Twice as often as the Lease would have lasted by itself.
        let renewed = async || {
            let lease = cluster.get(("Lease", "podnet-system", "thinking")).await?;
            lease["spec"]["renewTime"].as_str().map(str::to_owned)
        };
        let mut last = until("the lease", renewed).await;
        for _ in 0..12 {
            last = until("the lease to be renewed", async || {
                renewed().await.filter(|now| *now != last)
            })
            .await;
            let (status, _) = controller.http("/livez").expect("an answer of /livez");
            assert_eq!(status, 200);
        }
        assert!(controller.leads() && !controller.process.has_ended());
        assert!(!cluster.gates(&space, "web").await.is_empty());
        let lease = cluster.get(("Lease", "podnet-system", "thinking")).await;
        let transitions = &lease.expect("the lease")["spec"]["leaseTransitions"];
        assert_eq!(transitions.as_i64().unwrap_or_default(), 0);

        fs::remove_file(&hold).expect("the file is there");
        cluster.wait_released(&space, "web").await;
    });
    proof::of!("ATT-04b");
}

/// ATT-04b, ATT-04d: pods with lists of 43,000 networks wait with a short sentence.
///
/// Such lists of several pods broke a leader once.
#[test]
fn pods_with_lists_of_43000_networks_wait_with_one_short_sentence() {
    let Some(scene) = super::set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "endless").await;
        let cluster = Cluster::new(client);
        let names: Vec<String> = (0..43_000).map(|number| format!("{number:x}")).collect();
        let list = names.join(",");
        for number in 0..3 {
            let name = format!("hostile-{number}");
            let fields = json!({
                "metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": list}},
                "spec": {
                    "schedulingGates": [{"name": "podnet.dev/pod-networks"}],
                    "containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10"}],
                },
            });
            cluster.create(("Pod", &space, &name), fields).await;
        }
        cluster.ready_network("endless").await;
        cluster
            .pod(&space, "honest", json!([{"name": "endless"}]), None)
            .await;
        cluster.wait_released(&space, "honest").await;
        for number in 0..3 {
            let name = format!("hostile-{number}");
            let message = until("the pod to be told", async || {
                let pod = cluster.get(("Pod", &space, &name)).await?;
                let ready = super::objects::condition(&pod, "podnet.dev/NetworksReady")?;
                ready["message"].as_str().map(str::to_owned)
            })
            .await;
            assert!(message.contains("asks for 43000 attachments"), "{message}");
            assert!(message.len() < 512, "{}", message.len());
        }
        let events = cluster.list("Event", &space).await;
        let notes = events.iter().filter_map(|event| event["note"].as_str());
        assert!(notes.clone().count() >= 3);
        assert!(
            notes
                .map(Value::from)
                .all(|note| note.to_string().len() <= 1100)
        );
    });
    proof::of!("ATT-04b", "ATT-04d");
}
