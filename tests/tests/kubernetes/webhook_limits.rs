//! Test limits of the webhook's questions and answers, and its callers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::{Value, json};
use testbed::apiserver::{self, ApiServer};
use testbed::wait::PATIENCE;

use super::scene::Scene;
use super::webhook_scene::{Webhook, listing, npwg, set};

const QUESTIONS: &str = "podnet_webhook_questions_total";

/// Definitions that all lead to one network.
async fn definitions(client: &Client, namespace: &str, count: usize) {
    let kind = GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition");
    let mut resource = ApiResource::from_gvk(&kind);
    resource.plural = "network-attachment-definitions".to_owned();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    for number in 0..count {
        let config = json!({"cniVersion": "1.1.0", "type": "podnet", "podNetwork": "limits"});
        let object = serde_json::from_value(json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": format!("n{number}")}, "spec": {"config": config.to_string()},
        }));
        let object: DynamicObject = object.expect("an object");
        let made = api.create(&PostParams::default(), &object).await;
        made.expect("a definition");
    }
}

/// ATT-04c: ten definitions of one network, each listed three times.
#[test]
fn a_review_asks_about_each_object_once() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(async |client| {
        let options = [
            "--access-control=either",
            "--inject=resources,node-selector",
        ];
        let webhook = Webhook::start(server, &client, "limits-once", &options).await;
        definitions(&client, "limits-once", 10).await;
        let names: Vec<String> = (0..30).map(|number| format!("n{}", number % 10)).collect();
        let before = webhook.metric(QUESTIONS);
        webhook
            .create(&client, &npwg("web", &names.join(",")), true)
            .await
            .expect("an administrator may use every network");
        let asked = webhook.metric(QUESTIONS) - before;
        // To change the pod: ten definitions and a network that is not there, and again where another
        // webhook could have changed it. To judge it: the same, and two subjects.
        let (change, judge) = (10 + 1, 10 + 1 + 2);
        assert!(
            [change + judge, 2 * change + judge].contains(&asked),
            "{asked} questions"
        );
    });
    proof::of!("ATT-04c");
}

/// ATT-04a, ATT-04c: an annotation full of names is refused without a question.
#[test]
fn a_list_of_43000_networks_is_refused_without_a_question() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(async |client| {
        let options = [
            "--access-control=either",
            "--inject=resources,node-selector",
        ];
        let webhook = Webhook::start(server, &client, "limits-list", &options).await;
        let before = webhook.metric(QUESTIONS);
        let names: Vec<String> = (0..43_000).map(|number| format!("{number:x}")).collect();
        let refusal = webhook
            .refusal(&client, &npwg("web", &names.join(",")))
            .await;
        assert!(
            refusal.contains("asks for 43000 attachments besides 1 that the pod has"),
            "{refusal:.500}"
        );
        assert_eq!(webhook.metric(QUESTIONS), before);

        // ATT-04d: and 20,000 mistakes in one element are ten problems.
        let keys: Vec<String> = (0..20_000).map(|key| format!("\"k{key}\":1")).collect();
        let list = format!("[{{\"name\":\"a\",{}}}]", keys.join(","));
        let refusal = webhook.refusal(&client, &listing("web", &list)).await;
        assert!(refusal.contains("and 19990 more"), "{refusal:.500}");
        assert!(refusal.len() < 8192, "{}", refusal.len());
        assert_eq!(webhook.metric(QUESTIONS), before);
    });
    proof::of!("ATT-04a", "ATT-04c", "ATT-04d");
}

/// An authority, and clients with certificates of it.
struct Callers {
    dir: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Callers {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).expect("a certificate");
        fs::write(dir.path().join("ca.crt"), certificate.pem()).expect("a file");
        Self {
            issuer: Issuer::new(params, key),
            dir,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A kubeconfig for `server` with a certificate for this DNS name.
    fn kubeconfig(&self, name: &str, server: &str) -> PathBuf {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let [crt, private] = ["crt", "key"].map(|end| self.file(&format!("{name}.{end}")));
        fs::write(&crt, certificate.pem()).expect("a file");
        fs::write(&private, key.serialize_pem()).expect("a file");
        let user = json!({"client-certificate": crt, "client-key": private});
        self.write(name, server, &user)
    }

    fn write(&self, name: &str, server: &str, user: &Value) -> PathBuf {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "*"}}],
            "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
            "users": [{"name": "*", "user": user}],
        });
        let path = self.file(&format!("{name}.kubeconfig"));
        fs::write(&path, config.to_string()).expect("a file");
        path
    }
}

/// Asks for a page that the webhook lacks; `Err` when the client is refused.
async fn call(kubeconfig: &Path) -> Result<(), String> {
    let file = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let client = Client::try_from(config.expect("a usable kubeconfig")).expect("a client");
    match Api::<Pod>::all(client).list(&ListParams::default()).await {
        // Let in, and told that there is no such page.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

/// ATT-04c: an API server with a certificate is served, and no other caller.
#[test]
fn only_the_api_server_is_served_where_its_authority_is_known() {
    let Some(programs) = apiserver::programs_for(testbed::test_name!()) else {
        return;
    };
    static SERVER: OnceLock<(ApiServer, Callers)> = OnceLock::new();
    let (server, callers) = SERVER.get_or_init(|| {
        let callers = Callers::new();
        let shown = callers.kubeconfig("apiserver.test", "https://unused.test");
        let plugin = |name: &str| {
            json!({"name": name, "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
                "kubeConfigFile": shown,
            }})
        };
        let admission = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
            "plugins": [plugin("MutatingAdmissionWebhook"), plugin("ValidatingAdmissionWebhook")],
        });
        let file = callers.file("admission.json");
        fs::write(&file, admission.to_string()).expect("a file");
        let flag = format!("--admission-control-config-file={}", file.display());
        let server = ApiServer::start(&programs, &[&flag]);
        server.install_definitions();
        (server, callers)
    });
    let scene = Scene::on(server);
    scene.run(async |client| {
        let authority = format!("--client-ca-file={}", callers.file("ca.crt").display());
        let options = [authority.as_str(), "--client-name=apiserver.test"];
        let webhook = Webhook::start(server, &client, "limits-callers", &options).await;
        webhook
            .change(&client, "failurePolicy", json!("Fail"))
            .await;
        // The API server reads configurations some time after they were written.
        let wrong = listing("web", "[");
        let end = std::time::Instant::now() + PATIENCE;
        while webhook.create(&client, &wrong, true).await.is_ok() {
            assert!(std::time::Instant::now() < end, "the webhook is not asked");
        }
        let refusal = webhook.refusal(&client, &wrong).await;
        assert!(
            refusal.contains("podnet.dev/networks: the value is not a JSON list"),
            "{refusal}"
        );
        let good = listing("web", r#"[{"name": "a"}]"#);
        let taken = webhook.create(&client, &good, true).await;
        taken.expect("a pod with a good list");

        let url = webhook.url("");
        let shown = callers.kubeconfig("apiserver.test", &url);
        assert_eq!(call(&shown).await, Ok(()));
        let nameless = callers.kubeconfig("pod.test", &url);
        let unknown = Callers::new();
        let unknown = unknown.kubeconfig("apiserver.test", &url);
        let nobody = callers.write("nobody", &url, &json!({}));
        for refused in [nameless, unknown, nobody] {
            call(&refused)
                .await
                .expect_err("no caller but the API server");
        }
    });
    proof::of!("ATT-04c");
}

/// ATT-04c: with access control a webhook that does not answer lets no pod pass.
#[test]
fn the_component_for_access_control_fails_closed() {
    let Some(programs) = apiserver::programs_for(testbed::test_name!()) else {
        return;
    };
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let deploy = deploy.canonicalize().expect("the directory of manifests");
    let dir = tempfile::tempdir().expect("a directory");
    // Roots are named by paths that begin at the overlay.
    let up = "../".repeat(
        dir.path()
            .canonicalize()
            .expect("a path")
            .components()
            .count()
            - 1,
    );
    let relative = format!(
        "{up}{}",
        deploy.strip_prefix("/").expect("a path").display()
    );
    let overlay = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": [relative], "components": [format!("{relative}/access-control")],
    });
    let file = dir.path().join("kustomization.yaml");
    fs::write(file, overlay.to_string()).expect("a file");
    let rendered = Command::new(programs.join("kubectl"))
        .arg("kustomize")
        .arg(dir.path())
        .output()
        .expect("kubectl starts");
    let complaint = String::from_utf8_lossy(&rendered.stderr);
    assert!(rendered.status.success(), "{complaint}");
    let text = String::from_utf8(rendered.stdout).expect("text");
    let of = |kind: &str, name: &str| {
        let mut documents = text.split("\n---\n");
        let found = documents.find(|document| {
            document.contains(&format!("\nkind: {kind}\n"))
                && document.contains(&format!("\n  name: {name}\n"))
        });
        found.expect("the object is rendered")
    };
    let validating = of("ValidatingWebhookConfiguration", "podnet-webhook");
    assert!(validating.contains("failurePolicy: Fail"), "{validating}");
    assert!(
        !validating.contains("failurePolicy: Ignore"),
        "{validating}"
    );
    for (kind, name) in [
        ("Deployment", "podnet-webhook"),
        ("DaemonSet", "podnet-agent"),
    ] {
        let object = of(kind, name);
        assert!(
            object.contains("- --access-control=serviceaccount"),
            "{object}"
        );
    }
    proof::of!("ATT-04c");
}
