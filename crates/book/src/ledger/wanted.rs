//! Wishes for an attachment, as they were asked for.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use agent_common::addr::MacAddr;
use api::Holder;
use cni_spec::AttachmentKey;
use ipam::Request;

use crate::access::is_of_node;
use crate::bandwidth::Limits;
use crate::host_ports::HostPort;
use crate::record::{Decision, DefaultRoutes, Device, ObjectRef, PodIdentity, Sandbox};

/// An object in the cluster with addresses for pods that name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRef {
    /// Its kind.
    pub kind: ClaimKind,
    /// Its namespace and name.
    pub object: ObjectRef,
}

/// Kinds of such objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimKind {
    /// `IPAMClaim` (NPWG v1.3 §8): addresses, for all pods that name it.
    IpamClaim,
    /// `Port`: a MAC address and addresses, for one pod at a time.
    Port,
}

impl ClaimKind {
    /// Key by which a pod names it.
    pub const fn key(self) -> &'static str {
        match self {
            Self::IpamClaim => "ipam-claim-reference",
            Self::Port => "port",
        }
    }
}

impl fmt::Display for ClaimRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ClaimKind::IpamClaim => "IPAMClaim",
            ClaimKind::Port => "Port",
        };
        write!(f, "{kind} {}", self.object)
    }
}

/// Wishes for an attachment, before anything is chosen.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Container and interface.
    pub key: AttachmentKey,
    /// `name` of the CNI network configuration.
    pub cni_network: String,
    /// Digest of the request.
    pub request_digest: String,
    /// The pod.
    pub pod: Option<PodIdentity>,
    /// Labels of the pod, of the CNI configuration.
    pub labels: BTreeMap<String, String>,
    /// Its namespace.
    pub sandbox: Sandbox,
    /// Addresses it must have, and who said so.
    pub ips: (Vec<Request>, &'static str),
    /// The object in the cluster that says which addresses it has.
    pub claim: Option<ClaimRef>,
    /// `name` of the configuration that leads to the network, as claims may say.
    ///
    /// It is that of the NetworkAttachmentDefinition, whether this agent reads it or another program calls
    /// podnet with it; never that of a configuration which leaves the networks to the pod.
    pub claim_network: Option<String>,
    /// Holder of its addresses in the cluster, where they are reserved.
    pub holder: Option<Holder>,
    /// MAC address it must have, and who said so.
    pub mac: Option<(MacAddr, &'static str)>,
    /// The pod's default routes that go here.
    pub default_gateway: DefaultRoutes,
    /// Resolver settings.
    pub nameservers: Vec<String>,
    /// The PodNetworkAttachment that was named.
    pub object: Option<ObjectRef>,
    /// Rates that the runtime asks for.
    pub asked: Limits,
    /// Rates it shall have.
    pub limits: Limits,
    /// Interface of its port.
    pub interface: api::Interface,
    /// The device of Kubernetes that it is.
    pub device: Option<Device>,
    /// Where its socket is, of a port that has one.
    pub socket_path: Option<PathBuf>,
    /// Ports of the node that shall lead to it.
    pub host_ports: Vec<HostPort>,
    /// Decisions taken so far.
    pub decisions: Vec<Decision>,
}

impl Wanted {
    /// A port with an interface of the kernel, which asks for nothing else.
    ///
    /// `request_digest` is of what was asked.
    pub fn plain(key: AttachmentKey, request_digest: String, sandbox: Sandbox) -> Self {
        Self {
            key,
            cni_network: String::new(),
            request_digest,
            pod: None,
            labels: BTreeMap::new(),
            sandbox,
            ips: (Vec::new(), "nobody"),
            claim: None,
            claim_network: None,
            holder: None,
            mac: None,
            default_gateway: DefaultRoutes::default(),
            nameservers: Vec::new(),
            object: None,
            asked: Limits::default(),
            limits: Limits::default(),
            interface: api::Interface::VETH,
            device: None,
            socket_path: None,
            host_ports: Vec::new(),
            decisions: Vec::new(),
        }
    }

    /// True for the port that the node itself has on a network.
    pub fn is_of_node(&self) -> bool {
        is_of_node(&self.key.container)
    }

    /// Its port is this device, which the kubelet has given to the pod.
    pub fn give(&mut self, device: Device) {
        let because = format!(
            "the kubelet has given it to the pod, of {}",
            device.resource
        );
        let decision = Decision::new("device", &device.id, &because);
        self.decisions.push(decision);
        self.device = Some(device);
    }
}
