//! Records of pods that list their attachments themselves. Pure.
//!
//! Everything that `DEL`, `CHECK`, `GC` and a restart need is in it: the pod's list, the objects it
//! names and the files of other plugins may all have changed or gone since `ADD` (NPWG §4.2.1).

use std::net::IpAddr;

use api::selection::{Source, Target};
use cni_spec::{AttachmentKey, IfName};
use delegate::Delegation;
use serde::{Deserialize, Serialize};

use crate::record::{DefaultRoutes, PodIdentity, Sandbox, State};

/// A pod's request and the attachments it led to, first to last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRecord {
    /// Request of the runtime: container and first interface.
    pub key: AttachmentKey,
    /// How far it is. Of what is `Adding` any member may be there, whole or in part.
    pub state: State,
    /// `name` of the CNI network configuration, which `GC` goes by.
    pub cni_network: String,
    /// Digest of what was asked, to know a repeated `ADD` again.
    pub request_digest: String,
    /// The pod, where the runtime named one.
    pub pod: Option<PodIdentity>,
    /// Its namespace.
    pub sandbox: Sandbox,
    /// Its attachments in the order in which they are made.
    pub members: Vec<Member>,
    /// Plugin that maps its host ports, where a runtime asked for some.
    #[serde(default)]
    pub host_ports: Option<Delegation>,
    /// Failed attempts of the agent's own to remove it since its namespace was gone.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub attempts: u32,
}

/// True for a pod that no attempt failed for.
const fn is_none_yet(attempts: &u32) -> bool {
    *attempts == 0
}

impl PodRecord {
    /// The key under which CNI knows a member: its own interface in the same container.
    pub fn key_of(&self, member: &Member) -> AttachmentKey {
        AttachmentKey {
            container: self.key.container.clone(),
            ifname: member.ifname.clone(),
        }
    }

    /// The member that has the interface the runtime asked for.
    pub fn primary(&self) -> Option<&Member> {
        self.members
            .iter()
            .find(|member| member.ifname == self.key.ifname)
    }

    /// True when plugins of others have something of it, which a reboot does not end.
    ///
    /// It stays so: members and host ports are noted before their plugins are executed, and never taken out.
    pub fn outlives_boot(&self) -> bool {
        let mut members = self.members.iter();
        self.host_ports.is_some() || members.any(|member| member.delegation().is_some())
    }

    /// True when this attachment of ours is one of its members.
    pub fn owns(&self, key: &AttachmentKey) -> bool {
        self.key.container == key.container
            && self
                .members
                .iter()
                .any(|member| member.ifname == key.ifname && member.delegation().is_none())
    }
}

/// One attachment of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Interface in the pod.
    pub ifname: IfName,
    /// Which list asked for it.
    pub source: Source,
    /// Object or configuration that the list named.
    pub target: Target,
    /// The default routes of the pod that go through it.
    pub default_routes: DefaultRoutes,
    /// `default-route` of the element, where it had the key.
    pub asked_default_route: Option<Vec<IpAddr>>,
    /// Maker of the attachment.
    pub maker: Maker,
}

impl Member {
    /// Returns the delegation to other plugins, if there was one.
    pub const fn delegation(&self) -> Option<&Delegation> {
        match &self.maker {
            Maker::Podnet => None,
            Maker::Plugins(delegation) => Some(delegation),
        }
    }
}

/// `bridge-net as net1 (NetworkAttachmentDefinition …)`, for messages.
impl std::fmt::Display for Member {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} as {}", self.target, self.ifname)
    }
}

/// Makers of attachments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Maker {
    /// This agent; its own record has the same key.
    Podnet,
    /// Other CNI plugins.
    Plugins(Delegation),
}
