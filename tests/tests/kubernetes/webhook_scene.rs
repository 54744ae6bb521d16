//! A `podnet-agent webhook` that the shared API server calls by URL.
//!
//! It has the configurations of `deploy/base/webhook.yaml` for one namespace.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use testbed::apiserver::ApiServer;
use testbed::node::Binaries;
use testbed::wait;

use super::objects::{self, kubectl};
use super::scene::{self, Scene};

/// Groups of everybody who is somebody.
const AUTHENTICATED: [&str; 1] = ["system:authenticated"];

/// A webhook, its configurations and the namespace of its pods; all have one name.
#[derive(Debug)]
pub(crate) struct Webhook {
    server: &'static ApiServer,
    name: String,
    /// Of the Secret with its certificates.
    secrets: String,
    listen: u16,
    admin: u16,
    dir: tempfile::TempDir,
    process: Option<Child>,
}

/// A server with podnet's definitions.
pub(crate) fn set(test: &str) -> Option<Scene> {
    objects::set(test)
}

impl Webhook {
    /// Starts the webhook with further options, and waits until it is ready.
    ///
    /// Namespace and configurations are made before.
    pub(crate) async fn start(
        server: &'static ApiServer,
        client: &Client,
        name: &str,
        args: &[&str],
    ) -> Self {
        scene::namespace(client, name).await;
        let mut webhook = Self::prepare(server, name);
        webhook.configure(client, name).await;
        webhook.spawn(&server.kubeconfig(), args);
        webhook.wait_ready();
        webhook
    }

    /// Places and ports for a webhook that does not run yet.
    pub(crate) fn prepare(server: &'static ApiServer, name: &str) -> Self {
        let listeners = [(); 2].map(|()| {
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port on loopback")
        });
        let [listen, admin] =
            listeners.map(|listener| listener.local_addr().expect("a bound socket").port());
        Self {
            server,
            name: name.to_owned(),
            secrets: name.to_owned(),
            listen,
            admin,
            dir: tempfile::tempdir().expect("a directory"),
            process: None,
        }
    }

    /// Another replica: the same Secret and configurations, other ports.
    pub(crate) fn replica(&self, args: &[&str]) -> Self {
        let mut other = Self::prepare(self.server, &self.name);
        other.spawn(&self.server.kubeconfig(), args);
        other.wait_ready();
        other
    }

    /// Makes the deployed configurations with another name, URL and namespace.
    pub(crate) async fn configure(&self, client: &Client, namespace: &str) {
        for mut object in manifests(self.server, "webhook.yaml") {
            let kind = object["kind"].as_str().expect("a kind").to_owned();
            if !kind.ends_with("WebhookConfiguration") {
                continue;
            }
            object["metadata"]["name"] = json!(self.name);
            for webhook in object["webhooks"].as_array_mut().expect("webhooks") {
                let path = webhook["clientConfig"]["service"]["path"].take();
                let path = path.as_str().expect("a path").to_owned();
                webhook["clientConfig"] = json!({ "url": self.url(&path) });
                webhook["namespaceSelector"]["matchExpressions"]
                    .as_array_mut()
                    .expect("what is deployed exempts a namespace")
                    .push(json!({
                        "key": "kubernetes.io/metadata.name",
                        "operator": "In",
                        "values": [namespace],
                    }));
            }
            let api = configurations(client, &kind);
            let params = PatchParams::apply("test").force();
            let applied = api.patch(&self.name, &params, &Patch::Apply(&object)).await;
            applied.expect("the deployed configuration is accepted");
        }
    }

    /// Changes the first webhook of the validating configuration.
    pub(crate) async fn change(&self, client: &Client, field: &str, value: Value) {
        let api = configurations(client, "ValidatingWebhookConfiguration");
        let patch =
            json!([{ "op": "add", "path": format!("/webhooks/0/{field}"), "value": value }]);
        let patch = Patch::Json::<()>(serde_json::from_value(patch).expect("a patch"));
        let changed = api.patch(&self.name, &PatchParams::default(), &patch).await;
        changed.expect("the configuration can be changed");
    }

    /// Returns the authorities that the API server trusts, PEM; base64 as in JSON.
    pub(crate) async fn bundle(&self, client: &Client) -> Option<String> {
        let api = configurations(client, "ValidatingWebhookConfiguration");
        let object = api.get(&self.name).await.expect("the configuration");
        let bundle = &object.data["webhooks"][0]["clientConfig"]["caBundle"];
        bundle.as_str().map(str::to_owned)
    }

    /// Where the API server calls.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.listen)
    }

    /// Starts the process as the user of the kubeconfig.
    pub(crate) fn spawn(&mut self, kubeconfig: &Path, args: &[&str]) {
        let log = File::create(self.log()).expect("a log file");
        let child = Command::new(Binaries::find().agent)
            .arg("webhook")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg(format!("--listen=127.0.0.1:{}", self.listen))
            .arg(format!("--admin=127.0.0.1:{}", self.admin))
            .arg(format!("--namespace={}", self.secrets))
            .arg(format!("--configuration={}", self.name))
            .arg("--server-name=127.0.0.1")
            .args(args)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log file"))
            .stderr(log)
            .spawn();
        self.process = Some(child.expect("podnet-agent can be executed"));
    }

    /// Keeps its Secret in another namespace than its own.
    pub(crate) fn with_secrets_in(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.secrets);
        self
    }

    /// Writes a file into the webhook's own directory.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("webhook.log")
    }

    pub(crate) fn wait_ready(&mut self) {
        let log = self.log();
        wait::until_true("the webhook to be ready", || {
            let process = self.process.as_mut().expect("it was started");
            let ended = process.try_wait().expect("it is our child");
            let text = || fs::read_to_string(&log).unwrap_or_default();
            assert!(ended.is_none(), "the webhook ended:\n{}", text());
            http(self.admin, "/readyz").is_some_and(|(status, _)| status == 200)
        });
    }

    /// Kills the process.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have ended by itself.
            let _ = process.kill();
            process.wait().expect("it is our child");
        }
    }

    /// A page of the administrator: status and text.
    pub(crate) fn page(&self, path: &str) -> Option<(u16, String)> {
        http(self.admin, path)
    }

    /// The value of a metric with these labels; 0 when there is none.
    pub(crate) fn metric(&self, metric: &str) -> u64 {
        let (status, page) = self.page("/metrics").expect("the webhook answers");
        assert_eq!(status, 200, "{page}");
        let line = page.lines().find_map(|line| line.strip_prefix(metric));
        line.map_or(0, |value| value.trim().parse().expect("a number"))
    }

    /// Makes a pod in the namespace, or only asks what would become of it.
    pub(crate) async fn create(
        &self,
        client: &Client,
        pod: &Value,
        dry_run: bool,
    ) -> Result<Pod, String> {
        create_in(client, &self.name, pod, dry_run).await
    }

    /// The words with which the API server refuses a pod.
    pub(crate) async fn refusal(&self, client: &Client, pod: &Value) -> String {
        refusal_in(client, &self.name, pod).await
    }
}

/// Makes a pod in a namespace, or only asks what would become of it.
pub(crate) async fn create_in(
    client: &Client,
    namespace: &str,
    pod: &Value,
    dry_run: bool,
) -> Result<Pod, String> {
    let api = Api::<Pod>::namespaced(client.clone(), namespace);
    let params = PostParams {
        dry_run,
        ..PostParams::default()
    };
    let pod: Pod = serde_json::from_value(pod.clone()).expect("a pod");
    api.create(&params, &pod).await.map_err(words)
}

/// The words with which the API server refuses a pod in a namespace.
pub(crate) async fn refusal_in(client: &Client, namespace: &str, pod: &Value) -> String {
    let answer = create_in(client, namespace, pod, true).await;
    answer.expect_err("a pod that is refused")
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(self.log()).unwrap_or_default());
        }
    }
}

/// Returns the API server's words of a refusal.
pub(crate) fn words(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        other => format!("no answer: {other:?}"),
    }
}

/// A pod with these annotations.
pub(crate) fn pod(name: &str, annotations: &Value) -> Value {
    json!({
        "metadata": { "name": name, "annotations": annotations },
        "spec": { "containers": [{ "name": "c", "image": "registry.k8s.io/pause:3.10" }] },
    })
}

/// A pod with KEP-3698's list.
pub(crate) fn listing(name: &str, list: &str) -> Value {
    pod(name, &json!({ "podnet.dev/networks": list }))
}

/// A pod with NPWG's list.
pub(crate) fn npwg(name: &str, list: &str) -> Value {
    pod(name, &json!({ "k8s.v1.cni.cncf.io/networks": list }))
}

/// A client that acts as another user.
pub(crate) async fn act_as(server: &ApiServer, user: &str, groups: &[&str]) -> Client {
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.expect("a usable kubeconfig");
    let groups = AUTHENTICATED.iter().chain(groups);
    config.auth_info.impersonate = Some(user.to_owned());
    config.auth_info.impersonate_groups = Some(groups.map(ToString::to_string).collect());
    Client::try_from(config).expect("a client")
}

/// The objects of a file of `deploy/base`.
pub(crate) fn manifests(server: &ApiServer, file: &str) -> Vec<Value> {
    let path = deployed(file);
    let arguments = ["create", "--dry-run=client", "--output=json", "--filename"];
    let output = kubectl(server, &[&arguments[..], &[path.as_str()]].concat());
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let documents = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
    documents
        .map(|document| document.expect("JSON"))
        .flat_map(|document| match &document["items"] {
            Value::Array(items) => items.clone(),
            _ => vec![document],
        })
        .collect()
}

/// Path of a file of `deploy/base`.
pub(crate) fn deployed(file: &str) -> String {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/base");
    let path = base.join(file);
    path.to_str().expect("a path that is text").to_owned()
}

fn configurations(client: &Client, kind: &str) -> Api<kube::core::DynamicObject> {
    let kind = kube::core::GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    Api::all_with(client.clone(), &kube::core::ApiResource::from_gvk(&kind))
}

fn http(port: u16, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: webhook\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}
