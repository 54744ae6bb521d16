//! Test lists that the webhook fills in (KEP-3698 "Auto-population").

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::webhook_scene::{Webhook, npwg, pod, set};

const LIST: &str = "podnet.dev/networks";
const MARK: &str = "podnet.dev/networks-populated";

async fn label(client: &Client, namespace: &str) {
    let patch = json!({"metadata": {"labels": {"podnet.dev/populate": "true"}}});
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let params = PatchParams::default();
    let labelled = namespaces
        .patch(namespace, &params, &Patch::Merge(patch))
        .await;
    labelled.expect("a namespace can have labels");
}

/// List and mark of a pod, and its scheduling gates.
fn shown(pod: &Pod) -> [Value; 3] {
    let annotation = |key: &str| {
        let annotations = pod.metadata.annotations.as_ref();
        json!(annotations.and_then(|all| all.get(key)))
    };
    let spec = pod.spec.as_ref().expect("a spec");
    [
        annotation(LIST),
        annotation(MARK),
        json!(spec.scheduling_gates),
    ]
}

const NOTHING: [Value; 3] = [const { Value::Null }; 3];

/// KEP-DEF-5, KEP-DEF-7: in a namespace with the label.
#[test]
fn a_pod_that_lists_nothing_shows_the_default_network_and_does_not_wait() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(|client| async move {
        let name = "webhook-populate";
        let mut webhook = Webhook::start(
            server,
            &client,
            name,
            &["--default-network=podnetwork:blue"],
        )
        .await;
        let bare = |name: &str| pod(name, &json!({}));
        // KEP-P1-01: nobody has asked for it.
        let made = webhook.create(&client, &bare("unlabelled"), false).await;
        assert_eq!(shown(&made.expect("taken")), NOTHING);

        label(&client, name).await;
        let blue = json!(r#"[{"name":"blue"}]"#);
        let made = webhook.create(&client, &bare("plain"), false).await;
        let populated = [blue.clone(), json!("blue"), Value::Null];
        assert_eq!(shown(&made.expect("taken")), populated);
        let metric = r#"podnet_webhook_reviews_total{hook="populate-pods",outcome="populated"} "#;
        assert!(webhook.metric(metric) >= 1);
        // The other networks of a pod are waited for, and only those.
        let made = webhook
            .create(&client, &npwg("further", "red"), false)
            .await;
        let gates = json!([{"name": "podnet.dev/pod-networks"}]);
        assert_eq!(
            shown(&made.expect("taken")),
            [blue, json!("blue"), gates.clone()]
        );

        let own = pod("own", &json!({LIST: r#"[{"name": "blue"}]"#}));
        let made = webhook.create(&client, &own, false).await.expect("taken");
        assert_eq!(
            shown(&made),
            [json!(r#"[{"name": "blue"}]"#), Value::Null, gates]
        );
        let nics = r#"[{"subnetName": "blue"}]"#;
        let nics = pod(
            "nics",
            &json!({"podnet.dev/vpc": "demo", "podnet.dev/nics": nics}),
        );
        let made = webhook.create(&client, &nics, false).await.expect("taken");
        assert_eq!(shown(&made)[0], Value::Null, "its NICs are all that it has");
        let mut on_host = bare("on-host");
        on_host["spec"]["hostNetwork"] = true.into();
        let made = webhook.create(&client, &on_host, false).await;
        assert_eq!(shown(&made.expect("taken")), NOTHING);

        // Pods are made while no webhook answers.
        webhook.kill();
        let made = webhook.create(&client, &bare("alone"), false).await;
        assert_eq!(shown(&made.expect("taken")), NOTHING);
    });
    proof::of!("KEP-DEF-5", "KEP-DEF-7", "KEP-P1-01");
}

/// Where pods must list their first network, no list is filled in.
#[test]
fn without_a_default_network_no_list_is_filled_in() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(|client| async move {
        for (name, option) in [
            ("webhook-populate-none", "--default-network=none"),
            ("webhook-populate-off", "--feature-gates=MultiNetwork=false"),
        ] {
            let webhook = Webhook::start(server, &client, name, &[option]).await;
            label(&client, name).await;
            let made = webhook
                .create(&client, &pod("plain", &json!({})), false)
                .await;
            assert_eq!(shown(&made.expect("taken")), NOTHING, "{option}");
            let metric =
                r#"podnet_webhook_reviews_total{hook="populate-pods",outcome="unchanged"} "#;
            assert!(webhook.metric(metric) >= 1, "{option}");
        }
    });
}
