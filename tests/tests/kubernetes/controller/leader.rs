//! Several controllers, one of which leads (KEP-CTL-3).

use std::sync::OnceLock;

use serde_json::{Value, json};
use testbed::apiserver::{self, ApiServer};
use testbed::wait;

use super::super::objects::kubectl;
use super::super::scene::Scene;
use super::objects::{Cluster, until};
use super::{Controller, empty_cluster};

/// Options for a Lease that ends while a test waits.
///
/// It does not end while a busy machine does other things.
const SHORT: [&str; 3] = [
    "--leader-elect-lease-duration=10",
    "--leader-elect-renew-deadline=8",
    "--leader-elect-retry-period=1",
];
/// A Lease that no test sees the end of.
const LONG: [&str; 3] = [
    "--leader-elect-lease-duration=3600",
    "--leader-elect-renew-deadline=60",
    "--leader-elect-retry-period=1",
];

/// Returns a cluster in which each test has a Lease and leaders of its own.
///
/// They do the same things at the same time, which must not harm, either.
pub(super) fn set(test: &str) -> Option<Scene> {
    static SERVER: OnceLock<ApiServer> = OnceLock::new();
    let programs = apiserver::programs_for(test)?;
    Some(Scene::on(SERVER.get_or_init(|| empty_cluster(&programs))))
}

/// A candidate for a Lease of this name. The deployed one may have only one name.
fn start(scene: &Scene, name: &str, lease: &str, times: &[&str]) -> Controller {
    let lease = format!("--leader-elect-resource-name={lease}");
    let options = [times, &[lease.as_str()]].concat();
    let kubeconfig = scene.server.kubeconfig();
    let mut controller = Controller::start_as(&kubeconfig, scene.server, name, &options);
    controller.wait_ready();
    controller
}

async fn holder(cluster: &Cluster, lease: &str) -> String {
    let lease = cluster.get(("Lease", "podnet-system", lease)).await;
    let holder = lease.as_ref().map(|lease| &lease["spec"]["holderIdentity"]);
    holder
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// A second controller takes over from a killed leader, and keeps its decisions.
#[test]
fn one_controller_leads_and_another_takes_over() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let first = start(&scene, "first", "takeover", &SHORT);
    wait::until_true("the first to lead", || first.leads());
    let second = start(&scene, "second", "takeover", &SHORT);
    scene.run(async |client| {
        let cluster = Cluster::new(client);
        assert!(holder(&cluster, "takeover").await.starts_with("first_"));
        cluster.ready_network("before").await;
        assert!(!second.leads());
        let before = cluster
            .get(("PodNetwork", "", "before"))
            .await
            .expect("the network");

        drop(first);
        until("the second to lead", async || second.leads().then_some(())).await;
        assert!(holder(&cluster, "takeover").await.starts_with("second_"));
        cluster.ready_network("after").await;
        let after = cluster
            .get(("PodNetwork", "", "before"))
            .await
            .expect("the network");
        assert_eq!(after["status"], before["status"]);
        let lease = cluster.get(("Lease", "podnet-system", "takeover")).await;
        assert_eq!(lease.expect("the lease")["spec"]["leaseTransitions"], 1);
    });
    proof::of!("KEP-CTL-3");
}

/// It stops at once instead of writing next to another.
#[test]
fn a_controller_that_loses_the_lease_ends() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let mut controller = start(&scene, "robbed", "robbed", &LONG);
    wait::until_true("the controller to lead", || controller.leads());
    scene.run(async |client| {
        let cluster = Cluster::new(client);
        let thief = json!({"holderIdentity": "thief", "leaseDurationSeconds": 3600});
        let lease = ("Lease", "podnet-system", "robbed");
        cluster.patch(lease, json!({ "spec": thief })).await;
        let ended = async || controller.process.has_ended().then_some(());
        until("the controller to end", ended).await;
        let log = controller.log();
        assert!(
            log.contains("no longer the leader: thief has the lease"),
            "{log}"
        );
        assert_eq!(holder(&cluster, "robbed").await, "thief");
    });
    proof::of!("KEP-CTL-3");
}

/// Whether another leads cannot be known then, so it has to be assumed.
#[test]
fn a_controller_that_cannot_renew_the_lease_ends() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let mut controller = Controller::start(scene.server, "refused", &SHORT);
    controller.wait_ready();
    wait::until_true("the controller to lead", || controller.leads());
    let role = [
        "delete",
        "role",
        "podnet-controller",
        "--namespace=podnet-system",
    ];
    assert!(kubectl(scene.server, &role).status.success());
    wait::until_true("the controller to end", || controller.process.has_ended());
    let log = controller.log();
    assert!(
        log.contains("no longer the leader: the lease was not renewed for 8 s"),
        "{log}"
    );
}

/// The next one leads long before the time of the Lease is over.
#[test]
fn a_controller_that_is_told_to_stop_gives_the_lease_away() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let first = start(&scene, "leaves", "given-away", &LONG);
    wait::until_true("the first to lead", || first.leads());
    let second = start(&scene, "stays", "given-away", &LONG);
    first.process.terminate();
    wait::until_true("the second to lead", || second.leads());
}
