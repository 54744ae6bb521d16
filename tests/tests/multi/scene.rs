//! A runtime of Kubernetes, a pod with annotations, and definitions for it.

use serde_json::{Map, Value, json};
use testbed::{Call, Node, Outcome, Pod, Setup};

/// The annotation of NPWG.
pub(crate) const NPWG: &str = "k8s.v1.cni.cncf.io/networks";
/// The annotation of KEP-3698.
pub(crate) const KEP: &str = "podnet.dev/networks";

/// The standard networks; pods get `blue` first.
pub(crate) fn setup() -> Setup {
    Setup::default().args(&["--default-network", "podnetwork:blue"])
}

/// A `NetworkAttachmentDefinition` in namespace `default`.
pub(crate) fn definition(name: &str, config: &Value) -> String {
    let config = if config.is_null() {
        String::new()
    } else {
        config.to_string()
    };
    let object = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"config": config},
    });
    object.to_string()
}

/// A pod of Kubernetes on a node.
pub(crate) struct K8sPod<'a> {
    pub(crate) pod: Pod<'a>,
    node: &'a Node,
    annotations: Map<String, Value>,
    runtime: Map<String, Value>,
    path: String,
    args: String,
}

impl<'a> K8sPod<'a> {
    /// Without annotations.
    pub(crate) fn new(node: &'a Node, name: &str) -> Self {
        Self {
            pod: node.pod(name),
            node,
            annotations: Map::new(),
            runtime: Map::new(),
            path: "/usr/lib/cni:/opt/cni/bin".to_owned(),
            args: format!(
                "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={name};K8S_POD_UID=uid-{name}"
            ),
        }
    }

    /// With the list of NPWG, as text or as JSON.
    pub(crate) fn npwg(self, list: &Value) -> Self {
        self.annotated(NPWG, list)
    }

    /// With the list of KEP-3698.
    pub(crate) fn kep(self, list: &Value) -> Self {
        self.annotated(KEP, list)
    }

    /// With an annotation.
    pub(crate) fn annotated(mut self, key: &str, value: &Value) -> Self {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), ToOwned::to_owned);
        self.annotations.insert(key.to_owned(), text.into());
        self
    }

    /// With something that the runtime passes for a capability.
    pub(crate) fn runtime(mut self, key: &str, value: &Value) -> Self {
        self.runtime.insert(key.to_owned(), value.clone());
        self
    }

    /// With this `CNI_PATH`.
    pub(crate) fn path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// With this at the end of `CNI_ARGS`.
    pub(crate) fn args(mut self, more: &str) -> Self {
        self.args.push(';');
        self.args.push_str(more);
        self
    }

    /// podnet's configuration as a runtime completes it.
    pub(crate) fn conf(&self) -> Value {
        let mut conf = self.node.disk_conf();
        let mut runtime = self.runtime.clone();
        let annotations = Value::Object(self.annotations.clone());
        runtime.insert("io.kubernetes.cri.pod-annotations".to_owned(), annotations);
        conf["runtimeConfig"] = runtime.into();
        conf
    }

    /// A call of podnet for the pod's first interface.
    pub(crate) fn call(&self, command: &str, conf: &Value) -> Call<'a> {
        self.node
            .cni(command)
            .container(self.pod.container())
            .netns(self.pod.path())
            .ifname("eth0")
            .env("CNI_ARGS", &self.args)
            .env("CNI_PATH", &self.path)
            .conf(conf)
    }

    /// `ADD`.
    pub(crate) fn add(&self) -> Outcome {
        self.call("ADD", &self.conf()).run()
    }

    /// A successful `ADD`.
    #[track_caller]
    pub(crate) fn attach(&self) -> Value {
        self.add().result()
    }

    /// `CHECK`.
    pub(crate) fn check(&self, result: &Value) -> Outcome {
        let mut conf = self.conf();
        conf["prevResult"] = result.clone();
        self.call("CHECK", &conf).run()
    }

    /// `DEL` as runtimes do it: no annotations any more.
    pub(crate) fn del(&self) -> Outcome {
        self.call("DEL", &self.node.disk_conf()).run()
    }

    /// Asserts that `DEL` succeeds and the pod has nothing; a second changes nothing.
    #[track_caller]
    pub(crate) fn detach(&self) {
        for _ in 0..2 {
            self.del().silent();
            assert_eq!(self.pod.links(), Vec::<String>::new());
        }
    }

    /// The pod's links, sorted.
    pub(crate) fn links(&self) -> Vec<String> {
        let mut links = self.pod.links();
        links.sort();
        links
    }

    /// Returns gateways of the pod's default routes, as `interface via`, best first.
    pub(crate) fn default_routes(&self, v4: bool) -> Vec<String> {
        let mut found = Vec::new();
        let mut netlink = self.pod.netlink();
        for name in self.links() {
            let link = netlink.by_name(&name).expect("links can be read");
            let Some(link) = link else { continue };
            let routes = netlink.routes(link.ifindex).expect("routes can be read");
            let defaults = routes
                .iter()
                .filter(|route| route.prefix_len == 0 && route.dst.is_ipv4() == v4);
            for route in defaults {
                let via = route.gateway.map(|ip| ip.to_string()).unwrap_or_default();
                found.push((route.metric.unwrap_or(0), format!("{name} {via}")));
            }
        }
        found.sort();
        found.into_iter().map(|(_, route)| route).collect()
    }
}

/// `GC` as a runtime does it: of each pod it knows the first interface.
pub(crate) fn gc(node: &Node, valid: &[&str], path: &str) -> Outcome {
    let mut conf = node.disk_conf();
    let list = valid
        .iter()
        .map(|id| json!({"containerID": id, "ifname": "eth0"}));
    conf["cni.dev/valid-attachments"] = list.collect::<Vec<_>>().into();
    node.cni("GC").env("CNI_PATH", path).conf(&conf).run()
}

/// (container, ifname, network) of everything the agent holds.
pub(crate) fn held(node: &Node) -> Vec<String> {
    let rows = node.get("attachments");
    let mut keys: Vec<String> = rows
        .iter()
        .map(|row| {
            let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
            format!(
                "{}/{} {}",
                text("container"),
                text("ifname"),
                text("network")
            )
        })
        .collect();
    keys.sort();
    keys
}

/// Addresses of a result.
pub(crate) fn ips(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().cloned().unwrap_or_default();
    ips.iter()
        .map(|ip| ip["address"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// Names of the interfaces of a result that are in the pod.
pub(crate) fn interfaces(result: &Value) -> Vec<String> {
    let all = result["interfaces"].as_array().cloned().unwrap_or_default();
    all.iter()
        .filter(|one| one["sandbox"].is_string())
        .map(|one| one["name"].as_str().unwrap_or_default().to_owned())
        .collect()
}
