//! Read the fields of a pod that the controller needs.
//!
//! There are many pods, and most of a pod is of no use here.

use std::borrow::Cow;

use api::GATE;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::NamespaceResourceScope;
use serde::Deserialize;

/// The pod condition that says what a pod behind [`GATE`] waits for.
pub const NETWORKS_READY: &str = "podnet.dev/NetworksReady";

/// A pod, of `v1`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Pod {
    /// Name, namespace, UID, annotations.
    pub metadata: ObjectMeta,
    /// Desired state, as far as it is read.
    #[serde(default)]
    pub spec: PodSpec,
    /// Observed state, as far as it is read.
    #[serde(default)]
    pub status: PodStatus,
}

/// The part of `spec` that is read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node it is bound to.
    pub node_name: Option<String>,
    /// It is in its node's network.
    pub host_network: bool,
    /// Gates that hold back the scheduler.
    pub scheduling_gates: Vec<SchedulingGate>,
}

/// One thing the scheduler waits for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct SchedulingGate {
    /// Its name.
    pub name: String,
}

/// The part of `status` that is read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: Option<String>,
    /// Its addresses, as the kubelet says them.
    #[serde(rename = "podIPs")]
    pub pod_ips: Vec<PodIp>,
    /// All conditions.
    pub conditions: Vec<PodCondition>,
}

/// An address of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodIp {
    /// The address.
    pub ip: String,
}

/// The part of a condition that is read.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PodCondition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Details.
    #[serde(default)]
    pub message: Option<String>,
}

impl Pod {
    /// Its namespace.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Its UID.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// True for one whose containers have all ended and are not started again.
    pub fn has_ended(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    /// True for one that waits behind [`GATE`].
    pub fn is_gated(&self) -> bool {
        let mut gates = self.spec.scheduling_gates.iter();
        gates.any(|gate| gate.name == GATE)
    }

    /// Our own condition.
    pub fn networks_ready(&self) -> Option<&PodCondition> {
        let mut conditions = self.status.conditions.iter();
        conditions.find(|condition| condition.type_ == NETWORKS_READY)
    }
}

impl Resource for Pod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Pod".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
