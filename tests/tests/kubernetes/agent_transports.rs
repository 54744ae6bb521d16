//! The transport of a network is the cluster's: `status.transport`.

use serde_json::json;
use testbed::{Network, wait};

use super::agent_scene::AgentScene;
use super::slices;

/// Transport, MTU and reason in `podnet-agent get networks`.
fn known(s: &AgentScene, network: &str) -> Option<(String, u64, String)> {
    let networks = s.node.get("networks").into_iter();
    let found = networks.into_iter().find(|it| it["name"] == network)?;
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    Some((text("transport"), found["mtu"].as_u64()?, text("reason")))
}

fn wait_known(s: &AgentScene, network: &str, (transport, mtu, reason): (&str, u64, &str)) {
    let expected = (transport.to_owned(), mtu, reason.to_owned());
    wait::until_true(&format!("{network} to be known as {expected:?}"), || {
        known(s, network).as_ref() == Some(&expected)
    });
}

/// Issue 17: in a cluster, a network for which nothing is written spans the nodes.
#[test]
fn nodes_reach_each_others_pods_on_a_network_that_the_cluster_has_decided_to_carry() {
    let Some(s) = slices::start(testbed::test_name!(), "transport", 5) else {
        return;
    };
    let network = s.one.network("open");
    s.one
        .apply(&Network::l2(&network, &["10.85.0.0/24"]).yaml());
    let given = json!({"networkID": 0x00a5_0001, "transport": "VXLAN"});
    s.one.give(&network, &given);
    for node in [&s.one, &s.two] {
        wait_known(node, &network, ("VXLAN", 1430, "Ready"));
    }
    let one_uid = s.pod(&s.one, "one", &network, &json!({}));
    let two_uid = s.pod(&s.two, "two", &network, &json!({}));
    let (one, two) = (s.one.node.pod("c1"), s.two.node.pod("c2"));
    let of_one = s.add(&s.one, &one, "one", &one_uid);
    let of_two = s.add(&s.two, &two, "two", &two_uid);
    let (node_1, node_2) = (s.one.name.as_str(), s.two.name.as_str());
    slices::wait_remote(&s.two, &[[&network, node_1, slices::plain(&of_one)]]);
    slices::wait_remote(&s.one, &[[&network, node_2, slices::plain(&of_two)]]);
    s.del(&s.two, &two, "two", &two_uid);
    s.del(&s.one, &one, "one", &one_uid);
}

/// Two nodes that decided for themselves could decide otherwise.
#[test]
fn a_network_without_a_decision_is_waited_for() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "transport-wait") else {
        return;
    };
    let network = s.network("blue");
    s.apply(&Network::l2(&network, &["10.86.0.0/24"]).id(86_086).yaml());
    let uid = s.make_pod_of("web", "blue");
    let sandbox = s.node.pod("c1");
    let refused = wait::until("the agent to know of the network", || {
        let outcome = s.add(&sandbox, "web", &uid);
        assert!(!outcome.success, "{outcome}");
        Some(outcome.error()).filter(|failure| failure.code == 11)
    });
    refused.names(&[&network, "no transport yet", "write spec.transport"]);
    s.give(
        &network,
        &json!({"networkID": 86_086, "transport": "Local"}),
    );
    s.add_in_time(&sandbox, "web", &uid);
    s.del(&sandbox, "web", &uid).silent();
}

/// Issue 17: an upgrade changes no network under its pods.
#[test]
fn a_network_that_an_older_controller_has_numbered_stays_on_its_nodes() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "transport-old") else {
        return;
    };
    let network = s.network("blue");
    s.apply(&Network::l2(&network, &["10.87.0.0/24"]).yaml());
    s.give(&network, &json!({"networkID": 0x00a5_0011}));
    wait_known(&s, &network, ("Local", 1500, "Ready"));
    let uid = s.make_pod_of("web", "blue");
    let sandbox = s.node.pod("c1");
    s.add_in_time(&sandbox, "web", &uid);
    // The new one says the same of it.
    s.give(&network, &json!({"transport": "Local"}));
    let later = s.network("later");
    s.apply(&Network::l2(&later, &[]).yaml());
    s.give(
        &later,
        &json!({"networkID": 0x00a5_0012, "transport": "Local"}),
    );
    wait_known(&s, &later, ("Local", 1500, "Ready"));
    wait_known(&s, &network, ("Local", 1500, "Ready"));
    s.del(&sandbox, "web", &uid).silent();
}

#[test]
fn parameters_that_come_back_with_another_transport_are_refused() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "transport-other") else {
        return;
    };
    let network = s.network("blue");
    let mut local = Network::l2(&network, &["10.88.0.0/24"]);
    s.apply(&local.yaml());
    s.give(
        &network,
        &json!({"networkID": 0x00a5_0021, "transport": "VXLAN"}),
    );
    s.kubectl(&["delete", "podnetworkparameters", &network]);
    local.transport = Some("type: Local".to_owned());
    s.apply(&local.yaml());
    wait::until_true("the network to be refused", || {
        known(&s, &network).is_some_and(|(_, _, reason)| reason == "TransportConflict")
    });
    let uid = s.make_pod_of("web", "blue");
    let sandbox = s.node.pod("c1");
    let refused = s.add(&sandbox, "web", &uid).error();
    refused.names(&[&network, "made with transport VXLAN", "have Local"]);
}
