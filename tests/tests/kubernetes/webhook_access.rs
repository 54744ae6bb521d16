//! Test access to networks (KEP-P2-1).

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, RoleBinding, RoleRef, Subject};
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use serde_json::{Value, json};
use testbed::apiserver::ApiServer;

use super::objects::Objects;
use super::webhook_scene::{Webhook, act_as, listing, npwg, set};

const ALICE: &str = "alice";
const BLUE: &str = r#"[{"name": "blue"}]"#;
const RED: &str = r#"[{"name": "red"}]"#;

/// Lets a user or service account do something in a namespace.
async fn grant(client: &Client, namespace: &str, role: &str, rule: PolicyRule, subject: Subject) {
    let role = ClusterRole {
        metadata: ObjectMeta {
            name: Some(format!("{namespace}-{role}")),
            ..ObjectMeta::default()
        },
        rules: Some(vec![rule]),
        ..ClusterRole::default()
    };
    let binding = RoleBinding {
        metadata: role.metadata.clone(),
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "ClusterRole".to_owned(),
            name: role.metadata.name.clone().expect("a name"),
        },
        subjects: Some(vec![subject]),
    };
    let params = PostParams::default();
    let roles = Api::<ClusterRole>::all(client.clone());
    roles.create(&params, &role).await.expect("a role");
    let bindings = Api::<RoleBinding>::namespaced(client.clone(), namespace);
    bindings.create(&params, &binding).await.expect("a binding");
}

fn rule(group: &str, resource: &str, name: Option<&str>, verb: &str) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        resource_names: name.map(|name| vec![name.to_owned()]),
        verbs: vec![verb.to_owned()],
        ..PolicyRule::default()
    }
}

fn user(name: &str) -> Subject {
    Subject {
        kind: "User".to_owned(),
        api_group: Some("rbac.authorization.k8s.io".to_owned()),
        name: name.to_owned(),
        namespace: None,
    }
}

fn account(namespace: &str, name: &str) -> Subject {
    Subject {
        kind: "ServiceAccount".to_owned(),
        api_group: None,
        name: name.to_owned(),
        namespace: Some(namespace.to_owned()),
    }
}

/// Starts a webhook with this access control, and users with rights.
///
/// alice may make pods and use `blue`, and a service account `runner` may use `red`.
async fn prepare(
    server: &'static ApiServer,
    client: &Client,
    name: &str,
    control: &str,
) -> (Webhook, Client) {
    let option = format!("--access-control={control}");
    let webhook = Webhook::start(server, client, name, &[&option]).await;
    grant(
        client,
        name,
        "pods",
        rule("", "pods", None, "create"),
        user(ALICE),
    )
    .await;
    let uses = |network| rule("podnet.dev", "podnetworks", Some(network), "use");
    grant(client, name, "blue", uses("blue"), user(ALICE)).await;
    grant(client, name, "red", uses("red"), account(name, "runner")).await;
    let alice = act_as(server, ALICE, &[]).await;
    (webhook, alice)
}

fn run_by(account: &str, mut pod: Value) -> Value {
    pod["spec"]["serviceAccountName"] = json!(account);
    pod
}

/// KEP-P2-1, `pn_access_denied_user`.
#[test]
fn a_user_lists_only_networks_that_were_granted() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(|client| async move {
        let (webhook, alice) = prepare(server, &client, "webhook-user", "user").await;
        let blue = run_by("runner", listing("blue", BLUE));
        webhook
            .create(&alice, &blue, true)
            .await
            .expect("granted to alice");
        for list in [RED, r#"[{"name": "blue"}, {"name": "red"}]"#] {
            let refusal = webhook
                .refusal(&alice, &run_by("runner", listing("red", list)))
                .await;
            assert!(
                refusal.contains("alice may not use PodNetwork red"),
                "{refusal}"
            );
            assert!(refusal.ends_with("(403)"), "{refusal}");
        }
        let everybodys = listing("default", r#"[{"name": "default"}]"#);
        webhook
            .create(&alice, &everybodys, true)
            .await
            .expect("the default network is everybody's");
        // An administrator may do everything.
        webhook
            .create(&client, &listing("red", RED), true)
            .await
            .expect("granted");
    });
    proof::of!("KEP-P2-1");
}

/// KEP-P2-1, `pn_access_denied_sa`.
#[test]
fn a_service_account_lists_only_networks_that_were_granted() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(|client| async move {
        let name = "webhook-account";
        let (webhook, _) = prepare(server, &client, name, "serviceaccount").await;
        let red = run_by("runner", listing("red", RED));
        webhook
            .create(&client, &red, true)
            .await
            .expect("granted to the runner");
        for pod in [
            run_by("runner", listing("blue", BLUE)),
            listing("red", BLUE),
        ] {
            let refusal = webhook.refusal(&client, &pod).await;
            let account = pod["spec"]["serviceAccountName"]
                .as_str()
                .unwrap_or("default");
            let words =
                format!("system:serviceaccount:{name}:{account} may not use PodNetwork blue");
            assert!(refusal.contains(&words), "{refusal}");
        }
    });
    proof::of!("KEP-P2-1");
}

/// KEP-P2-1: one of both is enough, as it was for pod security policies.
#[test]
fn either_of_both_may_have_the_grant() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(|client| async move {
        let (webhook, alice) = prepare(server, &client, "webhook-either", "either").await;
        for list in [BLUE, RED] {
            let pod = run_by("runner", listing("one", list));
            webhook.create(&alice, &pod, true).await.expect("one of both may");
        }
        let refusal = webhook.refusal(&alice, &listing("none", RED)).await;
        assert!(refusal.contains("neither alice nor system:serviceaccount:webhook-either:default may use PodNetwork red"), "{refusal}");
    });
    proof::of!("KEP-P2-1");
}

/// KEP-P2-1: the network behind an attachment or a definition counts.
#[test]
fn no_object_leads_around_the_check() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(|client| async move {
        let name = "webhook-around";
        let (webhook, alice) = prepare(server, &client, name, "user").await;
        let attachments = Objects::of::<api::PodNetworkAttachment>(&client, name);
        let definitions = Objects::of::<api::NetworkAttachmentDefinition>(&client, name);
        let to = |network: &str| json!({ "spec": { "podNetworkName": network } });
        attachments
            .create("to-red", to("red"))
            .await
            .expect("an attachment");
        attachments
            .create("to-blue", to("blue"))
            .await
            .expect("an attachment");
        let config = |text: &str| json!({ "spec": { "config": text } });
        let red = config(r#"{"cniVersion": "1.0.0", "type": "podnet", "podNetwork": "red"}"#);
        definitions
            .create("my-red", red)
            .await
            .expect("a definition");
        let by_attachment = config(
            r#"{"cniVersion": "1.0.0", "type": "podnet", "podNetworkAttachment": "to-red"}"#,
        );
        definitions
            .create("by-attachment", by_attachment)
            .await
            .expect("a definition");
        definitions
            .create("red", json!({ "spec": {} }))
            .await
            .expect("a definition");
        let others = config(r#"{"cniVersion": "1.0.0", "type": "macvlan", "master": "eth1"}"#);
        definitions
            .create("others", others)
            .await
            .expect("a definition");

        for (pod, words) in [
            (
                listing("a", r#"[{"attachmentName": "to-red"}]"#),
                "may not use PodNetwork red",
            ),
            (npwg("b", "my-red"), "may not use PodNetwork red"),
            (npwg("c", "by-attachment"), "may not use PodNetwork red"),
            (npwg("d", "red"), "may not use PodNetwork red"),
            (
                npwg("e", "later"),
                "NetworkAttachmentDefinition webhook-around/later: does not exist",
            ),
            (
                listing("f", r#"[{"attachmentName": "later"}]"#),
                "PodNetworkAttachment webhook-around/later: does not exist",
            ),
        ] {
            let refusal = webhook.refusal(&alice, &pod).await;
            assert!(refusal.contains(words), "{words:?} is not in {refusal:?}");
        }
        for pod in [
            listing("g", r#"[{"attachmentName": "to-blue"}]"#),
            npwg("h", "others"),
        ] {
            webhook
                .create(&alice, &pod, true)
                .await
                .expect("nothing to refuse");
        }
    });
    proof::of!("KEP-P2-1");
}
