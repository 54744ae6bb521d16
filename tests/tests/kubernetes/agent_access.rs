//! Access control at `ADD`: what the webhook asks when a pod is made is asked again when it is
//! attached, for a webhook that is away stops nobody.

use tests::wait;

use super::agent_scene::AgentScene;

const CONTROLLED: &[&str] = &["--access-control=serviceaccount"];

/// Lets all service accounts of the namespace use a network there.
fn grant(s: &AgentScene, network: &str) {
    let namespace = &s.name;
    s.apply(&format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n\
         metadata: {{name: use-{network}}}\nrules:\n\
         - {{apiGroups: [podnet.dev], resources: [podnetworks], resourceNames: [{network}], verbs: [use]}}\n\
         ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n\
         metadata: {{name: use-{network}, namespace: {namespace}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: use-{network}}}\n\
         subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: Group, \
         name: \"system:serviceaccounts:{namespace}\"}}]\n"
    ));
}

/// KEP-P2-1
#[test]
fn a_pod_without_a_grant_is_not_attached_and_with_one_it_is() {
    let Some(s) = AgentScene::prepare(tests::test_name!(), "access-grant", CONTROLLED) else {
        return;
    };
    s.node.start_agent();
    s.apply_network("blue", &["10.65.0.0/24"], true);
    let network = s.network("blue");
    let uid = s.make_pod_of("web", "blue");
    let sandbox = s.node.pod("c1");
    let refused = wait::until("the agent to know of the network", || {
        let outcome = s.add(&sandbox, "web", &uid);
        assert!(!outcome.success, "{outcome}");
        Some(outcome.error()).filter(|failure| failure.msg.contains("may not use"))
    });
    assert_eq!(refused.code, 7);
    refused.names(&[
        &network,
        &format!("system:serviceaccount:{}:default", s.name),
        "RoleBinding",
    ]);
    s.node.assert_empty();
    grant(&s, &network);
    s.add_in_time(&sandbox, "web", &uid);
    s.del(&sandbox, "web", &uid).silent();
}

/// KEP-P2-1; purpose: what is known needs no API server, and what is not known is refused.
#[test]
fn a_known_grant_serves_while_the_api_server_is_away_and_nothing_else_does() {
    let Some(mut s) = AgentScene::prepare(tests::test_name!(), "access-away", CONTROLLED) else {
        return;
    };
    s.node.start_agent();
    s.apply_network("blue", &["10.66.0.0/24"], true);
    s.apply_network("red", &["10.67.0.0/24"], true);
    grant(&s, &s.network("blue"));
    let (web, db) = (s.make_pod_of("web", "blue"), s.make_pod_of("db", "red"));
    let (one, two) = (s.node.pod("c1"), s.node.pod("c2"));
    s.add_in_time(&one, "web", &web);
    s.del(&one, "web", &web).silent();
    wait::until_true("a refusal", || {
        let outcome = s.add(&two, "db", &db);
        assert!(!outcome.success, "{outcome}");
        outcome.error().msg.contains("may not use")
    });
    s.door.close();
    s.add(&one, "web", &web).result();
    s.del(&one, "web", &web).silent();
    // A refusal is forgotten soon, and nobody can be asked.
    let unknown = wait::until("the refusal to be forgotten", || {
        let outcome = s.add(&two, "db", &db);
        assert!(!outcome.success, "{outcome}");
        Some(outcome.error()).filter(|failure| failure.code == 11)
    });
    unknown.names(&["could not be checked", "try again later"]);
    s.door.open_again();
}
