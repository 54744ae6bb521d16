//! Test the label by which kube-proxy leaves Services of networks alone.

use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::webhook_scene::{Webhook, set};

const PROXY: &str = "service.kubernetes.io/service-proxy-name";

fn service(name: &str, labels: &Value) -> Service {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"ports": [{"port": 80}]},
    }))
    .expect("a Service")
}

fn proxy(service: &Service) -> Option<&str> {
    let labels = service.metadata.labels.as_ref()?;
    labels.get(PROXY).map(String::as_str)
}

/// D-SVC-07: with the deployed configuration.
#[test]
fn kube_proxy_is_kept_away_from_services_of_networks_and_from_no_others() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(|client| async move {
        let name = "webhook-services";
        let mut webhook = Webhook::start(server, &client, name, &[]).await;
        let services: Api<Service> = Api::namespaced(client.clone(), name);
        let make = async |name: &str, labels: Value| {
            let service = service(name, &labels);
            let made = services.create(&PostParams::default(), &service).await;
            made.expect("a Service")
        };
        let made = make("of-network", json!({"podnet.dev/network": "blue"})).await;
        assert_eq!(proxy(&made), Some("podnet.dev"));
        let metric = r#"podnet_webhook_reviews_total{hook="mutate-services",outcome="labelled"} "#;
        assert_eq!(webhook.metric(metric), 1);
        assert_eq!(proxy(&make("plain", json!({"a": "b"})).await), None);
        let other = json!({"podnet.dev/network": "blue", PROXY: "mine"});
        assert_eq!(proxy(&make("others", other).await), Some("mine"));
        // A Service that becomes one of a network, and one whose label is removed.
        for (name, labels) in [
            ("plain", json!({"podnet.dev/network": "blue"})),
            ("of-network", json!({PROXY: null})),
        ] {
            let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
            let patched = services.patch(name, &PatchParams::default(), &patch).await;
            assert_eq!(
                proxy(&patched.expect("a Service")),
                Some("podnet.dev"),
                "{name}"
            );
        }
        // One that leaves its network is kube-proxy's again.
        let patch = Patch::Merge(json!({"metadata": {"labels": {"podnet.dev/network": null}}}));
        let patched = services
            .patch("plain", &PatchParams::default(), &patch)
            .await;
        assert_eq!(proxy(&patched.expect("a Service")), None);
        // Services are made while no webhook answers.
        webhook.kill();
        let made = make("alone", json!({"podnet.dev/network": "blue"})).await;
        assert_eq!(proxy(&made), None);
    });
    proof::of!("KEP-P3-4");
}
