//! Test the exchange of the network `default` (KEP-DEF-6).
//!
//! Agent, controller and policy are real. A cluster has one such network, so these tests have a server of their own, and one of them runs at a
//! time.

use std::process::Output;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::Value;
use testbed::apiserver::{self, ApiServer};
use testbed::{Pod, skip, wait};

use super::super::agent_scene::{AgentScene, apply_file, grant};
use super::super::objects::kubectl;
use super::super::scene::Scene;
use super::objects::{Cluster, condition, until};
use super::{Controller, empty_cluster};

const DEFAULT: (&str, &str, &str) = ("PodNetwork", "", "default");

fn set(test: &str) -> Option<(Scene, MutexGuard<'static, ()>)> {
    static SERVER: OnceLock<ApiServer> = OnceLock::new();
    static TURN: Mutex<()> = Mutex::new(());
    if skip::without_root(test) {
        return None;
    }
    let programs = apiserver::programs_for(test)?;
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let server = SERVER.get_or_init(|| {
        let server = empty_cluster(&programs);
        grant(&server);
        apply_file(&server, "base/admission-policy.yaml");
        server
    });
    // What the test before has left.
    let glass = [
        "--as=eve",
        "--as-group=podnet.dev:break-glass",
        "--as-group=system:masters",
    ];
    let default = ["delete", "podnetwork", "default", "--ignore-not-found"];
    for command in [
        &[&default[..], &glass].concat()[..],
        &["delete", "nodes", "--all"],
    ] {
        assert!(kubectl(server, command).status.success(), "{command:?}");
    }
    Some((Scene::on(server), turn))
}

/// A network that ends at its nodes, with parameters of this name and kind.
fn network(name: &str, parameters: &str, spec: &str) -> String {
    format!(
        "apiVersion: podnet.dev/v1alpha1\nkind: PodNetworkParameters\nmetadata: {{name: {parameters}}}\n\
         spec: {{{spec}, transport: {{type: Local}}}}\n---\n\
         apiVersion: podnet.dev/v1alpha1\nkind: PodNetwork\nmetadata: {{name: {name}}}\n\
         spec: {{provider: podnet.dev/ebpf, parametersRefs: [{{group: podnet.dev, \
         kind: PodNetworkParameters, name: {parameters}}}]}}\n"
    )
}

fn l2(subnet: &str) -> String {
    format!("mode: L2, subnets: [{subnet}]")
}

impl AgentScene {
    /// Annotates this node; an empty value takes the annotation away.
    fn lead(&self, value: &str) {
        let annotation = if value.is_empty() {
            "podnet.dev/default-network-".to_owned()
        } else {
            format!("podnet.dev/default-network={value}")
        };
        self.kubectl(&["annotate", "--overwrite", "node", &self.name, &annotation]);
        wait::until_true("the agent to know of the annotation", || {
            let (_, page) = self.node.http("/debug/state").expect("a page");
            let state: Value = serde_json::from_str(&page).expect("JSON");
            state["nodeDefault"].as_str().unwrap_or_default() == value
        });
    }

    /// Attaches a new pod without a list, and returns its first address.
    fn plain(&self, sandbox: &Pod<'_>, pod: &str) -> (String, String) {
        let uid = self.make_pod(pod, &[]);
        let result = self.add_in_time(sandbox, pod, &uid);
        self.written(pod, "podnet.dev/network-status");
        let address = result["ips"][0]["address"].as_str().expect("an address");
        (uid, address.to_owned())
    }

    fn end(&self, sandbox: &Pod<'_>, pod: &str, uid: &str) {
        self.del(sandbox, pod, uid).silent();
        self.delete_pod(pod);
    }

    /// Deletes the network as an administrator without the broken glass.
    fn delete_default(&self, more: &[&str]) -> Output {
        let delete = ["delete", "podnetwork", "default", "--cascade=background"];
        kubectl(self.scene.server, &[&delete, more].concat())
    }

    /// Waits until a deletion would be refused with these words; it is not made.
    fn wait_refused(&self, words: &[&str]) {
        wait::until_true(
            &format!("the deletion to be refused with {words:?}"),
            || {
                let output = self.delete_default(&["--dry-run=server"]);
                let error = String::from_utf8_lossy(&output.stderr).into_owned();
                !output.status.success() && words.iter().all(|word| error.contains(word))
            },
        );
    }

    fn wait_in_use(&self, status: &str, reason: &str) {
        self.run(|client| async move {
            let cluster = Cluster::new(client);
            let what = format!("InUse={status} ({reason})");
            until(&what, async || {
                let default = cluster.get(DEFAULT).await?;
                let found = condition(&default, "InUse")?;
                (found["status"] == status && found["reason"] == reason).then_some(())
            })
            .await;
        });
    }
}

/// KEP-DEF-6, KEP-P1-09: docs/default-network.md, with a restart in the middle.
#[test]
fn the_default_network_is_exchanged_without_broken_glass_when_no_pod_has_it() {
    let Some((scene, _turn)) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    let s = AgentScene::prepare_on(scene, "exchange", &["--default-network=podnetwork:default"]);
    s.apply(&network("default", "first", &l2("10.60.0.0/24")));
    s.apply(&network("green", "green", &l2("10.61.0.0/24")));
    let mut controller = Controller::start(server, "exchange", &["--leader-elect=false"]);
    controller.wait_ready();
    s.node.start_agent();

    let old = s.node.pod("c1");
    let (old_uid, address) = s.plain(&old, "old");
    assert!(address.starts_with("10.60.0."), "{address}");
    s.wait_refused(&[
        "cannot be deleted now: pod exchange/old uses it",
        "break-glass",
    ]);

    // From now on new pods have the next one, and an agent that starts knows at once.
    s.lead("podnetwork:green");
    let links = old.links();
    s.node.kill_9();
    s.node.start_agent();
    let new = s.node.pod("c2");
    let (new_uid, green) = s.plain(&new, "new");
    assert!(green.starts_with("10.61.0."), "{green}");
    assert_eq!(old.links(), links, "who runs keeps what it has");
    s.wait_refused(&["pod exchange/old uses it"]);
    let listed = s.make_pod(
        "listed",
        &[("podnet.dev/networks", r#"[{"name": "default"}]"#)],
    );
    let sandbox = s.node.pod("c3");
    let result = s.add_in_time(&sandbox, "listed", &listed);
    let of_list = result["ips"][0]["address"].as_str().unwrap_or_default();
    assert!(
        of_list.starts_with("10.60.0."),
        "a list says which: {of_list}"
    );
    s.end(&old, "old", &old_uid);
    s.wait_refused(&["pod exchange/listed uses it"]);
    s.end(&sandbox, "listed", &listed);

    // Nobody has it, and nobody gets it.
    s.wait_in_use("False", "Unused");
    let deleted = s.delete_default(&[]);
    assert!(deleted.status.success(), "{deleted:?}");
    s.run(|client| async {
        let cluster = Cluster::new(client);
        // A controller that has planned since would have made one.
        cluster.ready_network("later").await;
        assert_eq!(
            cluster.get(DEFAULT).await,
            None,
            "it is the operator's to make"
        );
    });
    s.apply(&network("default", "second", &l2("10.62.0.0/24")));
    s.wait_in_use("False", "Unused");
    s.lead("");
    let last = s.node.pod("c4");
    let (last_uid, address) = s.plain(&last, "last");
    assert!(address.starts_with("10.62.0."), "{address}");
    s.wait_in_use("True", "Used");
    for (sandbox, pod, uid) in [(&new, "new", &new_uid), (&last, "last", &last_uid)] {
        s.end(sandbox, pod, uid);
    }
    s.wait_refused(&[
        "pods without a list may get it on node exchange",
        "annotate every Node",
    ]);
    s.node.assert_empty();
    proof::of!("KEP-DEF-6", "KEP-P1-09");
}

/// KEP-DEF-6: two networks that the node routes for are not on it together.
#[test]
fn a_node_goes_over_to_another_routed_network_when_the_pods_of_the_last_one_are_gone() {
    let Some((scene, _turn)) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    let s = AgentScene::prepare_on(scene, "rerouted", &["--default-network=podnetwork:default"]);
    s.kubectl(&[
        "patch",
        "node",
        "rerouted",
        "--type=merge",
        "--patch",
        r#"{"spec": {"podCIDR": "10.63.1.0/24", "podCIDRs": ["10.63.1.0/24"]}}"#,
    ]);
    let routed = |more: &str| format!("mode: L3, routing: Node, subnets: [10.63.0.0/16]{more}");
    s.apply(&network("default", "routed", &routed("")));
    s.apply(&network(
        "azure",
        "green-routed",
        &routed(", masquerade: false"),
    ));
    let mut controller = Controller::start(server, "rerouted", &["--leader-elect=false"]);
    controller.wait_ready();
    s.node.start_agent();
    let old = s.node.pod("c1");
    let (old_uid, address) = s.plain(&old, "old");
    assert!(address.starts_with("10.63.1."), "{address}");

    s.lead("podnetwork:azure");
    let new = s.node.pod("c2");
    let new_uid = s.make_pod("new", &[]);
    let refused = wait::until("the next network to be known", || {
        Some(s.add(&new, "new", &new_uid).error()).filter(|it| it.msg.contains("at a time"))
    });
    refused.names(&[
        "network azure",
        "rerouted/old is attached to network default",
        "drain the node",
    ]);
    assert_eq!(new.links(), [""; 0], "nothing is half made");
    // What the last one has stays, whatever happens to the agent.
    s.node.restart();
    assert_eq!(s.node.attachments().len(), 1);
    let refused = wait::until("the next network to be known", || {
        Some(s.add(&new, "new", &new_uid).error()).filter(|it| it.msg.contains("at a time"))
    });
    refused.names(&["rerouted/old"]);
    s.end(&old, "old", &old_uid);
    let result = s.add_in_time(&new, "new", &new_uid);
    let address = result["ips"][0]["address"].as_str().unwrap_or_default();
    assert!(address.starts_with("10.63.1."), "{address}");
    s.written("new", "podnet.dev/network-status");
    assert_eq!(s.node.attachments().len(), 1);
    s.wait_in_use("False", "Unused");
    s.end(&new, "new", &new_uid);
    s.lead("");
    proof::of!("KEP-DEF-6");
}

/// KEP-DEF-6: a slip gives pods no other network than the operator meant.
#[test]
fn a_node_whose_default_network_cannot_be_understood_takes_pods_with_a_list_only() {
    let Some((scene, _turn)) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    let s = AgentScene::prepare_on(scene, "slip", &["--default-network=podnetwork:default"]);
    s.apply(&network("default", "slip", &l2("10.64.0.0/24")));
    let mut controller = Controller::start(server, "slip", &["--leader-elect=false"]);
    controller.wait_ready();
    s.node.start_agent();
    let sandbox = s.node.pod("c1");
    let uid = s.make_pod("web", &[]);
    for (value, words) in [
        (
            "green",
            &[
                "annotation podnet.dev/default-network of this Node",
                "\"green\" is none of podnetwork:NAME",
            ][..],
        ),
        ("podnetwork:missing", &["PodNetwork missing"]),
        ("none", &["eth0"]),
    ] {
        s.lead(value);
        let refused = s.add(&sandbox, "web", &uid).error();
        refused.names(words);
        assert_eq!(sandbox.links(), [""; 0], "{value}");
        let listed = s.make_pod(
            "listed",
            &[("podnet.dev/networks", r#"[{"name": "default"}]"#)],
        );
        let other = s.node.pod("c2");
        s.add_in_time(&other, "listed", &listed);
        s.end(&other, "listed", &listed);
    }
    s.lead("");
    s.add_in_time(&sandbox, "web", &uid);
    s.end(&sandbox, "web", &uid);
    proof::of!("KEP-DEF-6");
}
