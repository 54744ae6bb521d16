//! Two nodes of one cluster, each with an agent of its own.

use std::collections::BTreeSet;

use api::{IpBlock, IpReservation, IpamClaim};
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::{Outcome, Pod, wait};

use super::agent_scene::AgentScene;

/// The nodes; networks, pods and claims are made by the first, in its namespace.
pub(crate) struct Nodes {
    pub(crate) one: AgentScene,
    pub(crate) two: AgentScene,
}

/// `name` of the configuration in the NetworkAttachmentDefinition of a network.
pub(crate) fn config_name(network: &str) -> String {
    format!("lan-of-{network}")
}

impl Nodes {
    /// Starts two agents, which keep spare blocks for a second, and waits for both.
    ///
    /// Nodes, networks and namespace have names that begin with `name`.
    pub(crate) fn start(test: &str, name: &str) -> Option<Self> {
        let start = |number| {
            let name = format!("{name}-{number}");
            let scene = AgentScene::prepare(test, &name, &["--keep-blocks=1"])?;
            scene.node.start_agent();
            Some(scene)
        };
        Some(Self {
            one: start(1)?,
            two: start(2)?,
        })
    }

    /// Makes a network of the cluster.
    pub(crate) fn network(&self, short: &str, subnets: &[&str]) -> String {
        self.one.apply_network(short, subnets, true);
        self.one.network(short)
    }

    /// Makes a pod with a network as `net1` on a node; returns its UID.
    ///
    /// The element of the NPWG list has `keys` and the name. Its `eth0` is on a network without
    /// addresses.
    pub(crate) fn pod(&self, node: &AgentScene, name: &str, network: &str, keys: &Value) -> String {
        let definition = json!({
            "apiVersion": "k8s.cni.cncf.io/v1",
            "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": network, "namespace": self.one.name},
            "spec": {"config": json!({
                "cniVersion": "1.0.0", "type": "podnet", "podNetwork": network,
                "name": config_name(network),
            }).to_string()},
        });
        self.one.apply(&definition.to_string());
        self.one.apply_network("base", &[], true);
        let first = json!([{"name": self.one.network("base")}]).to_string();
        let mut element = json!({"name": network, "interface": "net1"});
        for (key, value) in keys.as_object().into_iter().flatten() {
            element[key] = value.clone();
        }
        let list = json!([element]).to_string();
        let annotations = [
            ("podnet.dev/networks", first.as_str()),
            ("k8s.v1.cni.cncf.io/networks", list.as_str()),
        ];
        self.one.make_pod_on(&node.name, name, &annotations)
    }

    /// One CNI call for a pod of the namespace, on the node that its sandbox is on.
    pub(crate) fn call(
        &self,
        node: &AgentScene,
        command: &str,
        sandbox: &Pod<'_>,
        pod: &str,
        uid: &str,
    ) -> Outcome {
        let args = sandbox.kubernetes_args(&self.one.name, pod, uid);
        let call = sandbox.call(command, "eth0").env("CNI_ARGS", &args);
        call.conf(&node.conf()).run()
    }

    /// Runs `ADD` once the agent knows the network; returns `net1`'s addresses.
    ///
    /// They have their lengths.
    pub(crate) fn add(
        &self,
        node: &AgentScene,
        sandbox: &Pod<'_>,
        pod: &str,
        uid: &str,
    ) -> Vec<String> {
        wait::until_true(&format!("the ADD of {pod} to succeed"), || {
            self.call(node, "ADD", sandbox, pod, uid).success
        });
        let all = node.node.get("attachments");
        let made = all
            .iter()
            .find(|entry| entry["container"] == sandbox.container() && entry["ifname"] == "net1");
        let ips = made.and_then(|entry| entry["ips"].as_array());
        let ips = ips.into_iter().flatten();
        ips.filter_map(|ip| ip.as_str().map(str::to_owned))
            .collect()
    }

    /// Asserts that `ADD` is refused with this code, once the agent knows all objects.
    ///
    /// They are the network and the claim.
    pub(crate) fn refused(
        &self,
        node: &AgentScene,
        sandbox: &Pod<'_>,
        (pod, uid): (&str, &str),
        code: u64,
    ) -> testbed::cni::Failure {
        wait::until("an ADD that fails as it should", || {
            let outcome = self.call(node, "ADD", sandbox, pod, uid);
            assert!(!outcome.success, "{outcome}");
            let failure = outcome.error();
            let unknown = ["does not exist", "no number yet"];
            let is_known = !unknown.iter().any(|words| failure.msg.contains(words));
            (failure.code == code && is_known).then_some(failure)
        })
    }

    /// `DEL`.
    pub(crate) fn del(&self, node: &AgentScene, sandbox: &Pod<'_>, pod: &str, uid: &str) {
        self.call(node, "DEL", sandbox, pod, uid).silent();
    }

    /// All blocks of a network: first address and node.
    pub(crate) fn blocks(&self, network: &str) -> BTreeSet<(String, String)> {
        let params = ListParams::default().fields(&format!("spec.network={network}"));
        let list = self.one.run(|client| async move {
            let blocks: Api<IpBlock> = Api::all(client);
            blocks.list(&params).await
        });
        let blocks = list.expect("blocks can be listed").items.into_iter();
        blocks
            .map(|block| (block.spec.cidr, block.spec.node))
            .collect()
    }

    /// Nodes that hold blocks of a network.
    pub(crate) fn holders(&self, network: &str) -> BTreeSet<String> {
        let blocks = self.blocks(network).into_iter();
        blocks.map(|(_, node)| node).collect()
    }

    /// All reservations of a network: address, and whether and how they are granted.
    pub(crate) fn reservations(&self, network: &str) -> Vec<(String, Option<String>)> {
        let params = ListParams::default().fields(&format!("spec.network={network}"));
        let list = self.one.run(|client| async move {
            let reservations: Api<IpReservation> = Api::all(client);
            reservations.list(&params).await
        });
        let list = list.expect("reservations can be listed").items.into_iter();
        list.map(|reservation| {
            let status = reservation.status.unwrap_or_default();
            let granted = status.conditions.into_iter().next();
            (reservation.spec.address, granted.map(|it| it.status))
        })
        .collect()
    }

    /// Makes a claim, with these addresses when there are any.
    pub(crate) fn claim(&self, name: &str, network: &str, ips: &[&str]) {
        let claim = json!({
            "apiVersion": "k8s.cni.cncf.io/v1alpha1",
            "kind": "IPAMClaim",
            "metadata": {"name": name, "namespace": self.one.name},
            "spec": {"network": network, "interface": "net1"},
        });
        self.one.apply(&claim.to_string());
        if !ips.is_empty() {
            let status = json!({"status": {"ips": ips}});
            self.one.run(|client| async move {
                let claims: Api<IpamClaim> = Api::namespaced(client, &self.one.name);
                let patch = Patch::Merge(&status);
                let patched = claims
                    .patch_status(name, &PatchParams::default(), &patch)
                    .await;
                patched.expect("a claim can be written");
            });
        }
    }

    /// `status.ips` of a claim.
    pub(crate) fn claimed(&self, name: &str) -> Vec<String> {
        let claim = self.one.run(|client| async move {
            let claims: Api<IpamClaim> = Api::namespaced(client, &self.one.name);
            claims.get(name).await
        });
        let status = claim.expect("the claim is there").status;
        status.map(|status| status.ips).unwrap_or_default()
    }
}

/// The addresses in a result of `ADD`.
pub(crate) fn addresses(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().into_iter().flatten();
    ips.filter_map(|ip| ip["address"].as_str().map(str::to_owned))
        .collect()
}
