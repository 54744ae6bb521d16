//! The number of a network is the cluster's: `status.networkID`.

use testbed::{Network, wait};

use super::agent_scene::AgentScene;

/// Returns `podnet-agent get networks` of a network.
fn known(s: &AgentScene, network: &str) -> Option<serde_json::Value> {
    let networks = s.node.get("networks").into_iter();
    networks.into_iter().find(|it| it["name"] == network)
}

/// The numbers under which attachments run, by container.
fn running(s: &AgentScene) -> Vec<(String, u64)> {
    let all = s.node.get("attachments").into_iter();
    let of = |it: serde_json::Value| {
        let container = it["container"].as_str().unwrap_or_default().to_owned();
        (container, it["networkID"].as_u64().unwrap_or_default())
    };
    let mut all: Vec<_> = all.map(of).collect();
    all.sort();
    all
}

/// Purpose: a network has one number on all nodes, so no node makes one up.
#[test]
fn a_network_without_a_number_is_waited_for() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "number-wait") else {
        return;
    };
    let network = s.network("blue");
    s.apply(&Network::l2(&network, &["10.60.0.0/24"]).yaml());
    let uid = s.make_pod_of("web", "blue");
    let sandbox = s.node.pod("c1");
    let refused = wait::until("the agent to know of the network", || {
        let outcome = s.add(&sandbox, "web", &uid);
        assert!(!outcome.success, "{outcome}");
        Some(outcome.error()).filter(|failure| failure.code == 11)
    });
    refused.names(&[&network, "no number yet", "podnet-agent controller"]);
    let status = known(&s, &network).expect("the network is known");
    assert_eq!(
        (&status["ready"], &status["reason"]),
        (&false.into(), &"NetworkIDPending".into())
    );

    s.number(&network, 0x00b0_0001);
    s.add_in_time(&sandbox, "web", &uid);
    assert_eq!(running(&s), [("c1".to_owned(), 0x00b0_0001)]);
    s.del(&sandbox, "web", &uid).silent();
}

/// Purpose: who writes a number has one without the controller.
#[test]
fn a_number_that_a_network_asks_for_needs_no_controller() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "number-asked") else {
        return;
    };
    let network = s.network("blue");
    let mut asked = Network::l2(&network, &["10.61.0.0/24"]).id(61_061);
    asked.transport = Some("type: Local".to_owned());
    s.apply(&asked.yaml());
    let uid = s.make_pod_of("web", "blue");
    let sandbox = s.node.pod("c1");
    s.add_in_time(&sandbox, "web", &uid);
    assert_eq!(running(&s), [("c1".to_owned(), 61_061)]);
    s.del(&sandbox, "web", &uid).silent();
}

/// Purpose: a number never changes under a running attachment, whatever is written.
#[test]
fn attachments_keep_their_number_and_their_network_gets_another_after_the_last() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "number-kept") else {
        return;
    };
    s.apply_network("blue", &["10.62.0.0/24"], true);
    let network = s.network("blue");
    s.number(&network, 0x00b0_0011);
    let sandboxes = ["c1", "c2", "c3"].map(|name| s.node.pod(name));
    let pods = ["one", "two", "three"].map(|name| (name, s.make_pod_of(name, "blue")));
    wait::until_true("the number", || {
        known(&s, &network).is_some_and(|it| it["id"] == 0x00b0_0011)
    });
    s.add_in_time(&sandboxes[0], pods[0].0, &pods[0].1);
    s.number(&network, 0x00b0_0012);
    // Whoever knows of this one knows of that.
    s.apply_network("later", &[], true);
    wait::until_true("a later network", || {
        known(&s, &s.network("later")).is_some_and(|it| it["ready"] == true)
    });
    s.add_in_time(&sandboxes[1], pods[1].0, &pods[1].1);
    assert_eq!(
        running(&s),
        [
            ("c1".to_owned(), 0x00b0_0011),
            ("c2".to_owned(), 0x00b0_0011)
        ]
    );
    for (sandbox, (pod, uid)) in sandboxes.iter().zip(&pods).take(2) {
        s.del(sandbox, pod, uid).silent();
    }
    s.add_in_time(&sandboxes[2], pods[2].0, &pods[2].1);
    assert_eq!(running(&s), [("c3".to_owned(), 0x00b0_0012)]);
    s.del(&sandboxes[2], pods[2].0, &pods[2].1).silent();
}
