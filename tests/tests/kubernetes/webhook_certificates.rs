//! The webhook's certificates in a real API server.

use std::fs;

use kube::Client;
use serde_json::{Value, json};

use super::objects::kubectl;
use super::scene;
use super::webhook_inject::{limits, memif};
use super::webhook_scene::{Webhook, create_in, deployed, listing, npwg, refusal_in, set};

/// Waits until something is the case, which is asked again and again.
async fn until<F: Future<Output = bool>>(what: &str, probe: impl Fn() -> F) {
    let end = std::time::Instant::now() + 4 * testbed::wait::PATIENCE;
    while !probe().await {
        assert!(std::time::Instant::now() < end, "waited in vain for {what}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// The webhook says no; a call that fails says something else.
async fn says_no(webhook: &Webhook, client: &Client) {
    let refusal = webhook.refusal(client, &npwg("wrong", "a,,b")).await;
    assert!(
        refusal.contains("a name is missing here"),
        "a call failed: {refusal}"
    );
}

/// Issue of a rotation: the API server trusts the webhook at every moment of it.
#[test]
fn no_call_fails_while_authorities_and_certificates_are_rotated() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(|client| async move {
        let lifetimes = ["--ca-lifetime=16", "--certificate-lifetime=8"];
        let webhook = Webhook::start(server, &client, "webhook-rotation", &lifetimes).await;
        webhook
            .change(&client, "failurePolicy", json!("Fail"))
            .await;
        let first = webhook.bundle(&client).await.expect("a bundle");
        // An old authority goes when it has ended, so the first one has had its whole life then.
        until("the first authority to go", || async {
            says_no(&webhook, &client).await;
            let bundle = webhook.bundle(&client).await.expect("a bundle");
            !decoded(&bundle).contains(&decoded(&first))
        })
        .await;
    });
}

/// The text of a bundle, from base64.
fn decoded(bundle: &str) -> String {
    let value: k8s_openapi::ByteString = serde_json::from_value(json!(bundle)).expect("base64");
    String::from_utf8(value.0).expect("PEM")
}

#[test]
fn replicas_share_one_authority() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(|client| async move {
        let webhook = Webhook::start(server, &client, "webhook-replicas", &[]).await;
        let bundle = webhook.bundle(&client).await;
        let other = webhook.replica(&[]);
        webhook
            .change(&client, "failurePolicy", json!("Fail"))
            .await;
        says_no(&webhook, &client).await;
        let url = json!(other.url("/validate-pods"));
        webhook.change(&client, "clientConfig/url", url).await;
        until("the API server to call the other", || async {
            says_no(&other, &client).await;
            let metric = "podnet_webhook_reviews_total{hook=\"validate-pods\",outcome=\"invalid\"}";
            other.metric(metric) > 0
        })
        .await;
        assert_eq!(webhook.bundle(&client).await, bundle);
    });
}

/// Manifests applied again may take the bundle away.
#[test]
fn a_bundle_that_was_taken_away_comes_back() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(|client| async move {
        let lifetimes = ["--certificate-lifetime=12"];
        let webhook = Webhook::start(server, &client, "webhook-bundle", &lifetimes).await;
        let before = webhook.bundle(&client).await.expect("a bundle");
        // Not JSON's null: a change by another manager of the field.
        webhook
            .change(&client, "clientConfig/caBundle", json!(""))
            .await;
        until("the bundle", || async {
            webhook.bundle(&client).await.as_deref() == Some(before.as_str())
        })
        .await;
        says_no(&webhook, &client).await;
    });
}

/// A webhook without its configurations is not ready, and says why.
///
/// A Service leads to ready pods only, so a missing configuration is seen where people look.
#[test]
fn a_webhook_without_its_configurations_is_not_ready_and_says_why() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(|client| async move {
        let name = "webhook-unready";
        scene::namespace(&client, name).await;
        let mut webhook = Webhook::prepare(server, name);
        let lifetimes = ["--certificate-lifetime=12"];
        webhook.spawn(&server.kubeconfig(), &lifetimes);
        let why = "WebhookConfiguration webhook-unready does not exist; apply podnet's manifests";
        testbed::wait::until_true("the reason", || {
            let page = webhook.page("/readyz");
            page.is_some_and(|(status, text)| status == 503 && text.contains(why))
        });
        assert_eq!(webhook.page("/livez").map(|(status, _)| status), Some(200));
        webhook.configure(&client, name).await;
        webhook.wait_ready();
        says_no(&webhook, &client).await;
    });
}

/// RBAC as deployed: no more than the webhook needs, and no less.
#[test]
fn the_deployed_role_is_enough() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(|client| async move {
        let name = "podnet-webhook";
        let file = deployed("webhook-deployment.yaml");
        let system = deployed("namespace.yaml");
        kubectl(server, &["apply", "--server-side", "--filename", &system]);
        let applied = kubectl(server, &["apply", "--server-side", "--filename", &file]);
        assert!(
            applied.status.success(),
            "{}",
            String::from_utf8_lossy(&applied.stderr)
        );
        let namespace = scene::namespace(&client, "webhook-role").await;

        let mut webhook = Webhook::prepare(server, name).with_secrets_in("podnet-system");
        webhook.configure(&client, &namespace).await;
        let text = fs::read_to_string(server.kubeconfig()).expect("a kubeconfig");
        let mut config: Value = serde_json::from_str(&text).expect("JSON");
        config["users"][0]["user"]["as"] =
            json!("system:serviceaccount:podnet-system:podnet-webhook");
        let dir = tempfile::tempdir().expect("a directory");
        let kubeconfig = dir.path().join("kubeconfig");
        fs::write(&kubeconfig, config.to_string()).expect("a kubeconfig");
        webhook.spawn(&kubeconfig, &["--access-control=serviceaccount"]);
        webhook.wait_ready();

        let refusal = refusal_in(&client, &namespace, &npwg("one", "later")).await;
        assert!(refusal.contains("later: does not exist"), "{refusal}");
        let list = listing("two", r#"[{"name": "blue"}]"#);
        let refusal = refusal_in(&client, &namespace, &list).await;
        assert!(refusal.contains("may not use PodNetwork blue"), "{refusal}");

        webhook.kill();
        webhook.spawn(&kubeconfig, &["--inject=resources,node-selector"]);
        webhook.wait_ready();
        memif(&client, "webhook-role").await;
        let list = listing("three", r#"[{"name": "webhook-role"}]"#);
        let made = create_in(&client, &namespace, &list, true)
            .await
            .expect("taken");
        assert_eq!(
            limits(&made),
            json!({"c": {"podnet.dev/webhook-role": "1"}})
        );
    });
}
