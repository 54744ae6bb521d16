//! Test reviews while the API server does not answer the webhook.

use std::fs;

use kube::Client;
use serde_json::json;
use testbed::apiserver::{ApiServer, Door};

use super::objects::kubectl;
use super::webhook_inject::{limits, memif};
use super::webhook_scene::{Webhook, listing, set};

const COPIED: &str = "podnet_webhook_copied_answers_total";

/// A webhook that reaches the API server by a door, which is open.
async fn behind_a_door(
    server: &'static ApiServer,
    client: &Client,
    name: &str,
    args: &[&str],
) -> (Webhook, Door) {
    let door = Door::open_here(server.port());
    super::scene::namespace(client, name).await;
    let mut webhook = Webhook::prepare(server, name);
    webhook.configure(client, name).await;
    let own = fs::read_to_string(server.kubeconfig()).expect("a kubeconfig");
    let server = format!("127.0.0.1:{}", server.port());
    let behind = own.replace(&server, &format!("127.0.0.1:{}", door.port()));
    assert_ne!(own, behind, "the kubeconfig names the server");
    let file = webhook.write("kubeconfig", &behind);
    webhook.spawn(&file, args);
    webhook.wait_ready();
    (webhook, door)
}

/// An API server that is slow, or gone, keeps no pod from being made.
#[test]
fn a_pod_gets_what_its_networks_want_while_the_api_server_does_not_say_what_they_are() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(|client| async move {
        let name = "webhook-copies";
        memif(&client, name).await;
        let inject = ["--inject=resources,node-selector"];
        let (webhook, mut door) = behind_a_door(server, &client, name, &inject).await;
        let list = json!([{"name": name}]).to_string();
        let asks = async |webhook: &Webhook| {
            let pod = webhook.create(&client, &listing("web", &list), true).await;
            let pod = pod.expect("the pod is admitted");
            assert_eq!(limits(&pod)["c"][format!("podnet.dev/{name}")], "1");
        };
        asks(&webhook).await;
        assert_eq!(webhook.metric(COPIED), 0);
        // It takes what is asked, and says nothing.
        door.hold();
        asks(&webhook).await;
        assert!(webhook.metric(COPIED) > 0);
        door.release();
        // It is gone.
        door.close();
        let before = webhook.metric(COPIED);
        asks(&webhook).await;
        assert!(webhook.metric(COPIED) > before);
        // A network that is in no copy does not exist.
        let list = json!([{"name": "webhook-copies-none"}]).to_string();
        let pod = webhook.create(&client, &listing("none", &list), true).await;
        let pod = pod.expect("a pod waits for what does not exist");
        assert_eq!(limits(&pod)["c"], json!(null));
        door.open_again();
    });
}

/// KEP-P2-1: copies grant no access.
///
/// A pod is refused while the API server does not answer questions about access.
#[test]
fn access_is_not_granted_by_copies() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(|client| async move {
        let name = "webhook-copies-access";
        memif(&client, name).await;
        let control = ["--access-control=user"];
        let (webhook, mut door) = behind_a_door(server, &client, name, &control).await;
        let list = listing("web", &json!([{"name": name}]).to_string());
        let made = webhook.create(&client, &list, true).await;
        made.expect("an administrator may use every network");
        door.close();
        // Not by the client of these tests, which tries again for minutes when the answer is 503.
        let mut pod = list.clone();
        (pod["apiVersion"], pod["kind"]) = ("v1".into(), "Pod".into());
        let file = webhook.write("pod.json", &pod.to_string());
        let file = file.to_str().expect("a path that is text");
        let arguments = [
            "create",
            "--dry-run=server",
            "--namespace",
            name,
            "--filename",
            file,
        ];
        let output = kubectl(server, &arguments);
        assert!(!output.status.success(), "{output:?}");
        let refusal = String::from_utf8_lossy(&output.stderr);
        assert!(
            refusal.contains("access to networks could not be checked"),
            "{refusal}"
        );
        door.open_again();
    });
    proof::of!("KEP-P2-1");
}
