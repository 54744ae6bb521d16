//! What is remembered of a pod that says itself what it is attached to. Pure.
//!
//! Everything that `DEL`, `CHECK`, `GC` and a restart need is in it: the pod's list, the objects it
//! names and the files of other plugins may all have changed or gone since `ADD` (NPWG §4.2.1).

use std::net::IpAddr;
use std::path::PathBuf;

use api::RawJson;
use api::selection::{Source, Target};
use cni_spec::{AttachmentKey, CniResult, CniVersion, IfName, SpecError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::record::{DefaultRoutes, PodIdentity, Sandbox, State};

/// A pod's request and the attachments it led to, first to last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRecord {
    /// What the runtime asked for: container and first interface.
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
    /// Who maps its host ports, where a runtime asked for some.
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
    /// What it named.
    pub target: Target,
    /// The default routes of the pod that go through it.
    pub default_routes: DefaultRoutes,
    /// `default-route` of the element, where it had the key.
    pub asked_default_route: Option<Vec<IpAddr>>,
    /// Who makes it.
    pub maker: Maker,
}

impl Member {
    /// What was handed to other plugins, if it was.
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

/// Who makes an attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Maker {
    /// This agent; its own record has the same key.
    Podnet,
    /// Other CNI plugins.
    Plugins(Delegation),
}

/// What other plugins are told, and what they said. Enough to call them again in every way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delegation {
    /// `name` of their configuration.
    pub network: String,
    /// `cniVersion` they are spoken to in.
    pub version: CniVersion,
    /// `disableCheck`.
    pub disable_check: bool,
    /// `disableGC`.
    pub disable_gc: bool,
    /// In the order of `ADD`.
    pub plugins: Vec<PluginConf>,
    /// `CNI_ARGS`.
    pub args: String,
    /// `CNI_PATH`.
    pub path: String,
    /// The file in which they may describe a device, for plugins that take one.
    #[serde(default)]
    pub device_info_file: Option<PathBuf>,
    /// What a device plugin wrote about the device, for that file to begin with.
    #[serde(default)]
    pub device_plugin_file: Option<PathBuf>,
    /// What they wrote there.
    #[serde(default)]
    pub device_info: Option<RawJson>,
    /// The last result of `ADD`, in their version; absent until they have succeeded.
    pub result: Option<RawJson>,
}

impl Delegation {
    /// Bytes that its plugins read.
    pub fn length(&self) -> usize {
        let plugins = self.plugins.iter();
        plugins.map(|plugin| plugin.config.get().len()).sum()
    }

    /// Notes that nothing is left of plugins from this one on, in the order of `ADD`.
    pub fn settle_from(&mut self, index: usize) {
        for plugin in self.plugins.iter_mut().skip(index) {
            plugin.settled = true;
        }
    }

    /// Lists the plugins that are still to succeed in `DEL`, in the order of `ADD`.
    pub fn unsettled(&self) -> impl Iterator<Item = &str> {
        let plugins = self.plugins.iter().filter(|plugin| !plugin.settled);
        plugins.map(|plugin| plugin.plugin.as_str())
    }

    /// True when nothing is left of any of the plugins.
    pub fn is_settled(&self) -> bool {
        self.unsettled().next().is_none()
    }

    /// The result of `ADD`; an attachment without one has neither interfaces nor addresses.
    ///
    /// # Errors
    /// When it is not a result; what is stored was one.
    pub fn result(&self) -> Result<CniResult, SpecError> {
        let Some(result) = &self.result else {
            return Ok(CniResult::default());
        };
        let value: Value = result
            .read()
            .map_err(|source| SpecError::ConfigSyntax { source })?;
        CniResult::parse(&value, self.version)
    }
}

/// One plugin with its configuration, complete but for `prevResult`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginConf {
    /// `type`: the name of its binary.
    pub plugin: String,
    /// What it reads on stdin, values as they were written.
    pub config: RawJson,
    /// True when nothing is left of it: it was never executed, or has succeeded in `DEL`. In the
    /// record before any plugin is called it is false, so that a crash leaves no plugin untold.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settled: bool,
}
