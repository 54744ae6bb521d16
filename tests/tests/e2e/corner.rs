//! Set up a test's own namespace and networks, whose names begin with its name.
//!
//! All of it is removed when the test ends, and a failure of that fails the test.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::commands::{SYSTEM, in_pod};
use super::dump::dump;
use super::objects::{
    DAEMON_SET, DEFINITION, EVENT, NAMESPACE, NETWORK, Objects, PARAMETERS, POD, condition,
    network_spec, until,
};

pub(crate) const NPWG: &str = "k8s.v1.cni.cncf.io/networks";
pub(crate) const KEP: &str = "podnet.dev/networks";
pub(crate) const NPWG_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";
pub(crate) const KEP_STATUS: &str = "podnet.dev/network-status";

/// Image of the pods, made by `cargo xtask cluster up`.
pub(crate) const IMAGE: &str = "localhost/busybox:1";

/// One of them at a time has a name.
pub(crate) struct Corner {
    pub(crate) name: String,
    pub(crate) objects: Objects,
    networks: RefCell<Vec<String>>,
}

/// One interface of a pod, as `k8s.v1.cni.cncf.io/network-status` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) network: String,
    pub(crate) ips: Vec<String>,
    pub(crate) mac: String,
    pub(crate) default: bool,
}

impl Corner {
    pub(crate) fn new(name: &str) -> Self {
        let objects = Objects::connect();
        let name = format!("e2e-{name}");
        objects.make(NAMESPACE, ("", &name), json!({}));
        Self {
            name,
            objects,
            networks: RefCell::default(),
        }
    }

    /// The name of a network of this corner.
    pub(crate) fn network_name(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.name)
    }

    /// Returns the cluster's own network, as statuses name it: podnet's or another.
    pub(crate) fn default_network(&self) -> &'static str {
        if is_native(&self.objects) {
            "default"
        } else {
            "reference"
        }
    }

    /// Makes an L2 network with this subnet, and waits until it is ready.
    pub(crate) fn network(&self, suffix: &str, subnet: &str) -> String {
        self.network_of(suffix, subnet, "Veth")
    }

    /// The same, with ports of a type.
    pub(crate) fn network_of(&self, suffix: &str, subnet: &str, port: &str) -> String {
        let spec = json!({"mode": "L2", "subnets": [subnet], "interface": {"type": port}});
        self.network_with(suffix, spec)
    }

    /// Makes a network with these parameters, and waits until it is ready.
    pub(crate) fn network_with(&self, suffix: &str, spec: Value) -> String {
        let name = self.network_name(suffix);
        self.networks.borrow_mut().push(name.clone());
        let parameters = json!({"spec": spec});
        self.objects.make(PARAMETERS, ("", &name), parameters);
        self.objects.make(NETWORK, ("", &name), network_spec(&name));
        until(&format!("network {name} to be ready"), || {
            let network = self.objects.get(NETWORK, ("", &name))?;
            (condition(&network, "Ready")? == "True").then_some(())
        });
        name
    }

    /// Makes a network and a `NetworkAttachmentDefinition` with the suffix as its name.
    pub(crate) fn defined_network(&self, suffix: &str, subnet: &str) {
        let network = self.network(suffix, subnet);
        let config = json!({"cniVersion": "1.0.0", "type": "podnet", "podNetwork": network});
        self.definition(suffix, &config);
    }

    /// Makes a `NetworkAttachmentDefinition`.
    pub(crate) fn definition(&self, name: &str, config: &Value) {
        let spec = json!({"spec": {"config": config.to_string()}});
        self.objects.make(DEFINITION, (&self.name, name), spec);
    }

    /// Makes a pod on a node that lists networks.
    pub(crate) fn pod(&self, name: &str, node: &str, annotations: &[(&str, String)]) {
        self.create(name, &pod_fields(node, annotations));
    }

    /// Makes a pod of these fields.
    pub(crate) fn create(&self, name: &str, fields: &Value) {
        until(&format!("pod {name} to be taken"), || {
            match self.objects.create(POD, (&self.name, name), fields.clone()) {
                Ok(_) => Some(()),
                // A new namespace gets its service account a moment later.
                Err(why) if why.contains("serviceaccount") => None,
                Err(why) => unreachable!("pod {name} is refused: {why}"),
            }
        });
    }

    /// The object of a pod.
    #[track_caller]
    pub(crate) fn object(&self, pod: &str) -> Value {
        let found = self.objects.get(POD, (&self.name, pod));
        found.unwrap_or_else(|| unreachable!("there is no pod {pod}"))
    }

    /// Waits until a pod is ready with its status; returns its interfaces.
    ///
    /// They are in the pod with the addresses of the status.
    #[track_caller]
    pub(crate) fn ready(&self, pod: &str) -> Vec<Interface> {
        let interfaces = until(&format!("pod {pod} to be ready"), || {
            let object = self.objects.get(POD, (&self.name, pod))?;
            let is_ready = condition(&object, "Ready")? == "True";
            let status = object["metadata"]["annotations"][NPWG_STATUS].as_str()?;
            is_ready.then(|| read(status))
        });
        let node = self.object(pod)["spec"]["nodeName"].clone();
        for one in &interfaces {
            let Interface {
                name,
                network,
                ips,
                mac,
                ..
            } = one;
            let ips = ips.join(" ");
            eprintln!(
                "attached {}/{pod} on {node}: {name} {ips} {mac} on {network}",
                self.name
            );
        }
        self.assert_has(pod, &interfaces);
        interfaces
    }

    /// Checks that a pod has these interfaces and no others, with these addresses.
    #[track_caller]
    pub(crate) fn assert_has(&self, pod: &str, interfaces: &[Interface]) {
        let shown = self.run(pod, &["ip", "-o", "address"]);
        let names: BTreeSet<String> = interfaces.iter().map(|one| one.name.clone()).collect();
        assert_eq!(self.links(pod), names, "{shown}");
        for one in interfaces {
            for ip in &one.ips {
                let has = shown.lines().any(|line| {
                    let mut words = line.split_whitespace().skip(1);
                    let link = words.next();
                    let address = words.nth(1).unwrap_or_default();
                    link == Some(&one.name) && address.split('/').next() == Some(ip)
                });
                assert!(has, "{pod}: {} has not {ip}:\n{shown}", one.name);
            }
        }
    }

    /// The interfaces of a pod, without the loopback.
    #[track_caller]
    pub(crate) fn links(&self, pod: &str) -> BTreeSet<String> {
        let text = self.run(pod, &["ls", "-1", "/sys/class/net"]);
        let names = text.lines().filter(|name| *name != "lo");
        names.map(str::to_owned).collect()
    }

    /// Runs a program in a pod.
    #[track_caller]
    pub(crate) fn run(&self, pod: &str, program: &[&str]) -> String {
        let done = in_pod((&self.name, pod), program);
        done.unwrap_or_else(|why| unreachable!("{program:?} in {pod}: {why}"))
    }

    /// Whether an address answers a pod.
    pub(crate) fn reaches(&self, pod: &str, ip: &str) -> bool {
        in_pod((&self.name, pod), &["ping", "-c", "2", "-W", "2", ip]).is_ok()
    }

    /// Deletes a pod and waits until it is gone.
    #[track_caller]
    pub(crate) fn delete(&self, pod: &str) {
        self.objects.delete_wait(POD, (&self.name, pod));
    }

    /// Reasons and texts of the Events of a pod.
    pub(crate) fn events(&self, pod: &str) -> Vec<(String, String)> {
        let events = self.objects.list(EVENT, &self.name);
        let of_pod = events.iter().filter(|one| one["regarding"]["name"] == pod);
        of_pod
            .filter_map(|one| {
                let reason = one["reason"].as_str()?.to_owned();
                Some((reason, one["note"].as_str()?.to_owned()))
            })
            .collect()
    }

    /// Waits for an Event of a pod whose text has all these words.
    #[track_caller]
    pub(crate) fn event(&self, pod: &str, reason: &str, words: &[&str]) {
        until(&format!("{reason} of {pod} with {words:?}"), || {
            let events = self.events(pod);
            let mut found = events.iter().filter(|(has, _)| has == reason);
            found
                .any(|(_, text)| words.iter().all(|word| text.contains(word)))
                .then_some(())
        });
    }
}

impl Drop for Corner {
    fn drop(&mut self) {
        if std::thread::panicking() {
            dump(&self.objects, &self.name);
            // As it is, or the next run meets it.
            for network in self.networks.take() {
                let _ = self.objects.delete(NETWORK, ("", &network));
                let _ = self.objects.delete(PARAMETERS, ("", &network));
            }
            let _ = self.objects.delete(NAMESPACE, ("", &self.name));
            return;
        }
        let pods = self.objects.list(POD, &self.name);
        let names = || {
            pods.iter()
                .filter_map(|pod| pod["metadata"]["name"].as_str())
        };
        // All end side by side.
        for pod in names() {
            let _ = self.objects.delete(POD, (&self.name, pod));
        }
        for pod in names() {
            self.delete(pod);
        }
        for network in self.networks.take() {
            self.objects.delete_wait(NETWORK, ("", &network));
            self.objects.delete_wait(PARAMETERS, ("", &network));
        }
        self.objects.delete_wait(NAMESPACE, ("", &self.name));
    }
}

/// True where podnet makes the default network.
pub(crate) fn is_native(objects: &Objects) -> bool {
    let agent = objects.get(DAEMON_SET, (SYSTEM, "podnet-agent"));
    let agent = agent.expect("podnet is installed").to_string();
    agent.contains("--default-network=podnetwork:default")
}

/// A pod of one container on a node, with these annotations.
pub(crate) fn pod_fields(node: &str, annotations: &[(&str, String)]) -> Value {
    let annotations: serde_json::Map<String, Value> = annotations
        .iter()
        .map(|(key, value)| ((*key).to_owned(), Value::from(value.clone())))
        .collect();
    json!({
        "metadata": {"annotations": annotations},
        "spec": {
            // Not by `nodeName`: the scheduler has its part in this.
            "nodeSelector": {"kubernetes.io/hostname": node},
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "busybox",
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "command": ["sleep", "1000000"],
            }],
        },
    })
}

/// Returns the interfaces of a pod's object, none where it has no status yet.
pub(crate) fn status_of(pod: &Value) -> Vec<Interface> {
    let status = pod["metadata"]["annotations"][NPWG_STATUS].as_str();
    status.map(read).unwrap_or_default()
}

/// Reads the annotation with the status of NPWG §5.
fn read(status: &str) -> Vec<Interface> {
    let list: Vec<Value> = serde_json::from_str(status).expect("the status is a JSON list");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let interfaces = list.iter().map(|one| Interface {
        name: text(&one["interface"]),
        network: text(&one["name"]),
        ips: one["ips"]
            .as_array()
            .into_iter()
            .flatten()
            .map(text)
            .collect(),
        mac: text(&one["mac"]),
        default: one["default"] == true,
    });
    interfaces.collect()
}

/// Interface and network of each.
pub(crate) fn pairs(interfaces: &[Interface]) -> Vec<(&str, &str)> {
    let pairs = interfaces
        .iter()
        .map(|one| (one.name.as_str(), one.network.as_str()));
    pairs.collect()
}
