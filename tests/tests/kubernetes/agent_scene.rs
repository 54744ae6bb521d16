//! A scratch node whose agent follows the shared API server.
//!
//! It has the rights that `deploy` gives it. No kubelet and no runtime: a test makes the pod in the API
//! server, and calls the plugin itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use api::PodNetwork;
use k8s_openapi::api::core::v1::{Node as ApiNode, Pod as ApiPod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use testbed::apiserver::{ApiServer, Door};
use testbed::{Network, Node, Outcome, Pod, Setup, skip, wait};

use super::objects::{self, kubectl};
use super::scene::{self, Scene};

/// Where the agent's own service account lives.
const OWN_NAMESPACE: &str = "podnet-system";

/// A node, its way to the API server, and a namespace of the same name.
pub(crate) struct AgentScene {
    // Stops first, while there is still a way to the server.
    pub(crate) node: Node,
    pub(crate) door: Door,
    pub(crate) scene: Scene,
    pub(crate) name: String,
    files: tempfile::TempDir,
}

impl AgentScene {
    /// An agent that is ready.
    pub(crate) fn start(test: &str, name: &str) -> Option<Self> {
        let this = Self::prepare(test, name, &[])?;
        this.node.start_agent();
        Some(this)
    }

    /// An agent that was not started yet, with further arguments.
    pub(crate) fn prepare(test: &str, name: &str, args: &[&str]) -> Option<Self> {
        if skip::without_root(test) {
            return None;
        }
        let scene = objects::set(test)?;
        static GRANTED: OnceLock<()> = OnceLock::new();
        GRANTED.get_or_init(|| grant(scene.server));
        Some(Self::prepare_on(scene, name, args))
    }

    /// Prepares the same on a server with given definitions; `grant` was called.
    pub(crate) fn prepare_on(scene: Scene, name: &str, args: &[&str]) -> Self {
        scene.run(|client| async move {
            scene::namespace(&client, name).await;
            let node = object(json!({"metadata": {"name": name}}));
            let nodes: Api<ApiNode> = Api::all(client);
            let made = nodes.create(&PostParams::default(), &node).await;
            made.expect("a node can be made");
        });
        let files = tempfile::tempdir().expect("a directory");
        let kubeconfig = files.path().join("kubeconfig");
        write_kubeconfig(scene.server, &token(scene.server, name), &kubeconfig);
        let is_told = args.iter().any(|arg| arg.starts_with("--default-network="));
        let default = if is_told {
            &[][..]
        } else {
            &["--default-network=none"]
        };
        let setup = Setup::empty()
            .cluster(name, &kubeconfig)
            .args(default)
            .args(args)
            .stopped();
        let node = Node::start(setup);
        let door = Door::open(node.netns(), scene.server.port());
        Self {
            node,
            door,
            scene,
            name: name.to_owned(),
            files,
        }
    }

    /// Runs steps that get a client of an administrator.
    pub(crate) fn run<F: Future>(&self, steps: impl FnOnce(Client) -> F) -> F::Output {
        self.scene.run(steps)
    }

    /// The cluster-wide name of this test's network `short`.
    pub(crate) fn network(&self, short: &str) -> String {
        format!("{}-{short}", self.name)
    }

    /// Makes or changes a network, with a number as a controller gives it.
    pub(crate) fn apply_network(&self, short: &str, subnets: &[&str], enabled: bool) {
        let mut network = Network::l2(&self.network(short), subnets);
        network.enabled = enabled;
        self.apply_as(&network);
    }

    /// Makes or changes a network that is more than its subnets, and numbers it.
    pub(crate) fn apply_as(&self, network: &Network) {
        self.apply(&network.yaml());
        self.number(&network.name, number_of(&network.name));
    }

    /// Gives a network its number in the cluster. No controller runs here.
    ///
    /// A network for which no transport is written ends at its nodes then, as one that an older controller
    /// has numbered.
    pub(crate) fn number(&self, network: &str, number: u32) {
        self.give(network, &json!({"networkID": number}));
    }

    /// Merges fields into the status of a network.
    pub(crate) fn give(&self, network: &str, status: &Value) {
        let status = json!({ "status": status });
        self.run(|client| async move {
            let networks: Api<PodNetwork> = Api::all(client);
            let patch = Patch::Merge(&status);
            let params = PatchParams::default();
            let numbered = networks.patch_status(network, &params, &patch).await;
            numbered.expect("a network can be numbered");
        });
    }

    /// Has the Node's object say that it is reached by these addresses.
    pub(crate) fn be_reached_by(&self, addresses: &[&str]) {
        let addresses = addresses.iter();
        let mut all: Vec<Value> = addresses
            .map(|address| json!({"type": "InternalIP", "address": address}))
            .collect();
        all.push(json!({"type": "Hostname", "address": self.name}));
        let status = json!({"status": {"addresses": all}});
        self.run(|client| async {
            let nodes: Api<ApiNode> = Api::all(client);
            let patch = Patch::Merge(&status);
            let patched = nodes
                .patch_status(&self.name, &PatchParams::default(), &patch)
                .await;
            patched.expect("a node can be patched");
        });
    }

    /// UID of this node's object.
    pub(crate) fn node_uid(&self) -> String {
        let node =
            self.run(|client| async move { Api::<ApiNode>::all(client).get(&self.name).await });
        let uid = node.expect("the node is there").metadata.uid;
        uid.expect("an object has a UID")
    }

    /// The API server as the agent finds it.
    pub(crate) async fn as_agent(&self) -> Client {
        let file = Kubeconfig::read_from(self.kubeconfig()).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        Client::try_from(config.expect("a usable kubeconfig")).expect("a client")
    }

    /// The same with a token that names no node.
    pub(crate) async fn as_agent_of_no_node(&self) -> Client {
        let create = [
            "create",
            "token",
            "podnet-agent",
            "--namespace",
            OWN_NAMESPACE,
        ];
        let token = succeed(self.scene.server, &create);
        let path = self.files.path().join("no-node");
        write_kubeconfig(self.scene.server, token.trim(), &path);
        let file = Kubeconfig::read_from(path).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        Client::try_from(config.expect("a usable kubeconfig")).expect("a client")
    }

    /// Makes objects, or changes them.
    pub(crate) fn apply(&self, yaml: &str) {
        let file = self.node.path("apply.yaml");
        fs::write(&file, yaml).expect("a file");
        let file = file.to_str().expect("a path that is text");
        self.kubectl(&[
            "apply",
            "--server-side",
            "--force-conflicts",
            "--filename",
            file,
        ]);
    }

    /// `kubectl` as an administrator.
    pub(crate) fn kubectl(&self, arguments: &[&str]) {
        succeed(self.scene.server, arguments);
    }

    /// Makes a pod on this node with these annotations, and returns its UID.
    pub(crate) fn make_pod(&self, name: &str, annotations: &[(&str, &str)]) -> String {
        self.make_pod_on(&self.name, name, annotations)
    }

    /// Makes a pod on a node with these annotations, and returns its UID.
    pub(crate) fn make_pod_on(
        &self,
        node: &str,
        name: &str,
        annotations: &[(&str, &str)],
    ) -> String {
        let annotations: serde_json::Map<String, Value> = annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        let pod: ApiPod = object(json!({
            "metadata": {"name": name, "annotations": annotations, "labels": {"app": name}},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "main", "image": "none.example/none:0"}],
            },
        }));
        let made = self.run(|client| async move {
            let pods: Api<ApiPod> = Api::namespaced(client, &self.name);
            pods.create(&PostParams::default(), &pod).await
        });
        let made = made.expect("a pod can be made");
        made.metadata.uid.expect("an object has a UID")
    }

    /// A pod that lists one network of KEP-3698 as its only one.
    pub(crate) fn make_pod_of(&self, name: &str, short: &str) -> String {
        let list = json!([{"name": self.network(short)}]).to_string();
        self.make_pod(name, &[("podnet.dev/networks", &list)])
    }

    /// Deletes a pod at once, as a kubelet does at the end.
    pub(crate) fn delete_pod(&self, name: &str) {
        let params = DeleteParams::default().grace_period(0);
        self.run(|client| async move {
            let pods: Api<ApiPod> = Api::namespaced(client, &self.name);
            pods.delete(name, &params)
                .await
                .expect("a pod can be deleted");
        });
    }

    /// Returns the configuration that makes podnet look at the pod.
    ///
    /// It lacks the capability that hands the pod's annotations over.
    pub(crate) fn conf(&self) -> Value {
        json!({
            "cniVersion": "1.1.0",
            "name": "podnet",
            "type": "podnet",
            "fromPod": true,
            "socket": self.node.socket().to_str().expect("a path that is text"),
        })
    }

    /// `ADD` of a sandbox as a runtime of Kubernetes calls it (RT-CD-04).
    pub(crate) fn add(&self, sandbox: &Pod<'_>, pod: &str, uid: &str) -> Outcome {
        self.call(sandbox, "ADD", pod, uid)
    }

    /// `DEL`, likewise.
    pub(crate) fn del(&self, sandbox: &Pod<'_>, pod: &str, uid: &str) -> Outcome {
        self.call(sandbox, "DEL", pod, uid)
    }

    fn call(&self, sandbox: &Pod<'_>, command: &str, pod: &str, uid: &str) -> Outcome {
        let args = sandbox.kubernetes_args(&self.name, pod, uid);
        let call = sandbox.call(command, "eth0").env("CNI_ARGS", &args);
        call.conf(&self.conf()).run()
    }

    /// An `ADD` that succeeds as soon as the agent has heard of what was just made.
    pub(crate) fn add_in_time(&self, sandbox: &Pod<'_>, pod: &str, uid: &str) -> Value {
        let added = wait::until("the agent to know of the network", || {
            Some(self.add(sandbox, pod, uid)).filter(|outcome| outcome.success)
        });
        added.result()
    }

    /// An annotation of a pod.
    pub(crate) fn annotation(&self, pod: &str, key: &str) -> Option<String> {
        let pod = self.run(|client| async move {
            let pods: Api<ApiPod> = Api::namespaced(client, &self.name);
            pods.get(pod).await
        });
        let annotations = pod.expect("the pod is there").metadata.annotations?;
        annotations.get(key).cloned()
    }

    /// An annotation of a pod that the agent is about to write, as JSON.
    pub(crate) fn written(&self, pod: &str, key: &str) -> Value {
        let text = wait::until("the pod's annotation", || self.annotation(pod, key));
        serde_json::from_str(&text).expect("the annotation is JSON")
    }

    /// Merges a patch into a pod.
    pub(crate) fn patch_pod(&self, pod: &str, patch: &Value) {
        self.run(|client| async move {
            let pods: Api<ApiPod> = Api::namespaced(client, &self.name);
            let patched = pods
                .patch(pod, &PatchParams::default(), &Patch::Merge(patch))
                .await;
            patched.expect("the pod can be patched");
        });
    }

    /// The Events about a pod, in no order: type, reason, note and count.
    pub(crate) fn events(&self, pod: &str) -> Vec<(String, String, String, i32)> {
        let list = self.run(|client| async move {
            let events: Api<Event> = Api::namespaced(client, &self.name);
            events.list(&ListParams::default()).await
        });
        let events = list.expect("events can be listed").items.into_iter();
        events
            .filter(|event| {
                let regarding = event.regarding.as_ref();
                regarding.is_some_and(|object| object.name.as_deref() == Some(pod))
            })
            .map(|event| {
                (
                    event.type_.unwrap_or_default(),
                    event.reason.unwrap_or_default(),
                    event.note.unwrap_or_default(),
                    event.series.map_or(1, |series| series.count),
                )
            })
            .collect()
    }

    /// Waits until there is an Event with this reason whose note has all these words.
    pub(crate) fn wait_event(&self, pod: &str, reason: &str, words: &[&str]) {
        wait::until_true(&format!("an Event {reason}"), || {
            self.events(pod).iter().any(|(_, found, note, _)| {
                found == reason && words.iter().all(|word| note.contains(word))
            })
        });
    }

    /// Returns the agent's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.files.path().join("kubeconfig")
    }
}

/// The number of a network of this name, and of no other.
fn number_of(network: &str) -> u32 {
    static GIVEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut given = GIVEN.lock().expect("no test panics here");
    let index = given.iter().position(|name| name == network);
    let index = index.unwrap_or_else(|| {
        given.push(network.to_owned());
        given.len() - 1
    });
    0x0090_0000 + u32::try_from(index).expect("few networks")
}

/// An object of Kubernetes from JSON.
pub(crate) fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("the object is one of its kind")
}

/// Applies what `deploy` has for the agent, but for the DaemonSet.
pub(crate) fn grant(server: &ApiServer) {
    for file in ["namespace.yaml", "agent-rbac.yaml", "agent-policy.yaml"] {
        apply_file(server, &format!("base/{file}"));
    }
}

/// Applies a file of `deploy`.
pub(crate) fn apply_file(server: &ApiServer, name: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy")
        .join(name);
    let file = file.to_str().expect("a path that is text");
    succeed(server, &["apply", "--server-side", "--filename", file]);
}

/// A token of the agent's service account as the kubelet of a node gets one.
fn token(server: &ApiServer, node: &str) -> String {
    succeed(
        server,
        &[
            "create",
            "token",
            "podnet-agent",
            "--namespace",
            OWN_NAMESPACE,
            "--bound-object-kind=Node",
            &format!("--bound-object-name={node}"),
        ],
    )
    .trim()
    .to_owned()
}

fn write_kubeconfig(server: &ApiServer, token: &str, file: &Path) {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "agent",
        "contexts": [{"name": "agent", "context": {"cluster": "test", "user": "agent"}}],
        "clusters": [{"name": "test", "cluster": {
            "server": format!("https://127.0.0.1:{}", server.port()),
            "certificate-authority": server.pki().certificate("ca"),
        }}],
        "users": [{"name": "agent", "user": {"token": token}}],
    });
    fs::write(file, config.to_string()).expect("a kubeconfig");
}

/// Returns the output of a `kubectl` that must succeed.
fn succeed(server: &ApiServer, arguments: &[&str]) -> String {
    let output = kubectl(server, arguments);
    assert!(
        output.status.success(),
        "kubectl {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("kubectl prints text")
}
