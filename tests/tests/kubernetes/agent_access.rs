//! Test access control at `ADD`: the webhook's question is asked again.
//!
//! A webhook that is away stops no pod.

use serde_json::{Value, json};
use testbed::plugins::Plugins;
use testbed::{Call, Pod, wait};

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
    let Some(s) = AgentScene::prepare(testbed::test_name!(), "access-grant", CONTROLLED) else {
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
    proof::of!("KEP-P2-1");
}

/// KEP-P2-1; purpose: a known grant needs no API server, an unknown one is refused.
#[test]
fn a_known_grant_serves_while_the_api_server_is_away_and_nothing_else_does() {
    let Some(mut s) = AgentScene::prepare(testbed::test_name!(), "access-away", CONTROLLED) else {
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
    unknown.names(&["cannot check whether", "try again later"]);
    s.door.open_again();
    proof::of!("KEP-P2-1");
}

/// `CNI_ARGS` of a runtime of Kubernetes.
fn args_of(s: &AgentScene, pod: &str, uid: &str) -> String {
    format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={pod};K8S_POD_UID={uid}",
        s.name
    )
}

/// Returns a configuration that names its network itself.
///
/// Multus or a plugin with a `delegate` hands it on.
fn direct(s: &AgentScene, network: &str) -> Value {
    let mut conf = s.conf();
    let fields = conf.as_object_mut().expect("an object");
    fields.remove("fromPod");
    fields.insert("name".to_owned(), json!("direct"));
    fields.insert("podNetwork".to_owned(), json!(network));
    conf
}

fn call<'a>(sandbox: &Pod<'a>, command: &str, conf: &Value, args: &str) -> Call<'a> {
    let call = sandbox.call(command, "eth0").env("CNI_ARGS", args);
    call.conf(conf)
}

/// ATT-07a: a network of the configuration is checked as one that the pod lists.
///
/// It is asked about only when the attachment is made.
#[test]
fn att_07a_a_direct_configuration_is_asked_about() {
    let Some(mut s) = AgentScene::prepare(testbed::test_name!(), "access-direct", CONTROLLED)
    else {
        return;
    };
    s.node.start_agent();
    s.apply_network("blue", &["10.68.0.0/24"], true);
    let network = s.network("blue");
    let uid = s.make_pod("web", &[]);
    let (conf, args) = (direct(&s, &network), args_of(&s, "web", &uid));
    let sandbox = s.node.pod("c1");
    let refused = wait::until("the agent to know of the network", || {
        let outcome = call(&sandbox, "ADD", &conf, &args).run();
        assert!(!outcome.success, "{outcome}");
        Some(outcome.error()).filter(|failure| failure.msg.contains("may not use"))
    });
    assert_eq!(refused.code, 7);
    refused.names(&["may not use", &network, "system:serviceaccount"]);
    // Without a pod there is nobody to ask about.
    call(&sandbox, "ADD", &conf, "IgnoreUnknown=1")
        .run()
        .fails_with(4)
        .names(&["K8S_POD_NAMESPACE"]);
    // Nor with one of another's UID.
    let other = args_of(&s, "web", "4f9a6f5e-0000-4000-8000-000000000000");
    call(&sandbox, "ADD", &conf, &other).run().fails_with(4);
    assert_eq!(sandbox.links(), [""; 0]);
    s.node.assert_empty();
    grant(&s, &network);
    let result = wait::until("the refusal to be forgotten", || {
        let outcome = call(&sandbox, "ADD", &conf, &args).run();
        outcome.success.then(|| outcome.result())
    });
    // What there is stays, also for an agent that has not asked yet.
    s.kubectl(&[
        "delete",
        "rolebinding",
        &format!("use-{network}"),
        "--namespace",
        &s.name,
    ]);
    s.node.restart();
    let late = s.node.pod("c2");
    wait::until_true("the agent to know of the network again", || {
        let outcome = call(&late, "ADD", &conf, &args).run();
        assert!(!outcome.success, "{outcome}");
        outcome.error().msg.contains("may not use")
    });
    assert_eq!(call(&sandbox, "ADD", &conf, &args).run().result(), result);
    let mut check = conf.clone();
    check["prevResult"] = result;
    call(&sandbox, "CHECK", &check, &args).run().silent();
    s.door.close();
    call(&sandbox, "ADD", &conf, &args).run().result();
    let unknown = wait::until("the refusal to be forgotten", || {
        let outcome = call(&late, "ADD", &conf, &args).run();
        assert!(!outcome.success, "{outcome}");
        Some(outcome.error()).filter(|failure| failure.code == 11)
    });
    unknown.names(&["cannot check whether", "try again later"]);
    call(&sandbox, "DEL", &conf, &args).run().silent();
    s.door.open_again();
    s.node.assert_empty();
    proof::of!("ATT-07a");
}

/// ATT-07a: a definition of another namespace is checked in that namespace.
///
/// This comes before any of them runs; a definition of the pod's own namespace is not checked.
#[test]
fn att_07a_a_definition_of_another_namespace_is_asked_about() {
    let Some(s) = AgentScene::prepare(testbed::test_name!(), "access-chain", CONTROLLED) else {
        return;
    };
    let plugins = Plugins::new(&["alpha"]);
    s.node.start_agent();
    s.apply_network("blue", &["10.69.0.0/24"], true);
    grant(&s, &s.network("blue"));
    s.apply(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: access-chain-ops}\n---\n\
         apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\n\
         metadata: {name: lan, namespace: access-chain-ops}\n\
         spec: {config: '{\"cniVersion\": \"1.0.0\", \"type\": \"alpha\"}'}\n---\n\
         apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\n\
         metadata: {name: lan, namespace: access-chain}\n\
         spec: {config: '{\"cniVersion\": \"1.0.0\", \"type\": \"alpha\"}'}\n",
    );
    let kep = json!([{"name": s.network("blue")}]).to_string();
    let pod = |name: &str, npwg: &str| {
        let lists = [
            ("podnet.dev/networks", kep.as_str()),
            ("k8s.v1.cni.cncf.io/networks", npwg),
        ];
        s.make_pod(name, &lists)
    };
    let (own, others) = (pod("own", "lan"), pod("others", "access-chain-ops/lan"));
    let add = |sandbox: &Pod<'_>, name: &str, uid: &str| {
        let call = call(sandbox, "ADD", &s.conf(), &args_of(&s, name, uid));
        call.env("CNI_PATH", &plugins.path()).run()
    };
    let (one, two) = (s.node.pod("c1"), s.node.pod("c2"));
    wait::until_true("the agent to know of network and definition", || {
        add(&one, "own", &own).success
    });
    assert_eq!(plugins.calls(), ["alpha ADD net1"]);
    let refused = wait::until("the agent to know of the definition", || {
        let outcome = add(&two, "others", &others);
        assert!(!outcome.success, "{outcome}");
        Some(outcome.error()).filter(|failure| failure.msg.contains("may not use"))
    });
    assert_eq!(refused.code, 7);
    refused.names(&[
        "NetworkAttachmentDefinition access-chain-ops/lan",
        "network-attachment-definitions.k8s.cni.cncf.io",
        "namespace access-chain-ops",
    ]);
    assert_eq!(plugins.calls(), ["alpha ADD net1"]);
    s.apply(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n\
         metadata: {name: use-lan, namespace: access-chain-ops}\nrules:\n\
         - {apiGroups: [k8s.cni.cncf.io], resources: [network-attachment-definitions], \
         resourceNames: [lan], verbs: [use]}\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n\
         metadata: {name: use-lan, namespace: access-chain-ops}\n\
         roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: use-lan}\n\
         subjects: [{kind: ServiceAccount, name: default, namespace: access-chain}]\n",
    );
    wait::until_true("the refusal to be forgotten", || {
        add(&two, "others", &others).success
    });
    assert_eq!(plugins.calls(), ["alpha ADD net1"; 2]);
    for (sandbox, name, uid) in [(&one, "own", &own), (&two, "others", &others)] {
        s.del(sandbox, name, uid).silent();
    }
    s.node.assert_empty();
    proof::of!("ATT-07a");
}
