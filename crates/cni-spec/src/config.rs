//! Parse the network configuration of an attachment, from stdin (CNI SPEC §1, §2).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::addr::{IpRequest, MacAddr};
use crate::args::CniArgs;
use crate::error::SpecError;
use crate::fields::{Fields, parse_at, refused};
use crate::id::{AttachmentKey, ContainerId, IfName, is_cni_name};
use crate::request::Command;
use crate::result::{CniResult, Dns};
use crate::version::CniVersion;

pub(crate) mod labels;
pub(crate) mod runtime;
#[cfg(test)]
mod tests;

use runtime::{RuntimeConfig, usable_mac};

/// Where the agent listens when the configuration does not say.
pub const DEFAULT_SOCKET: &str = "/run/podnet/agent.sock";

/// Longest socket path, bytes: `sun_path` of unix(7) without the terminating zero.
const SOCKET_PATH_MAX: usize = 107;

/// Longest name of a Kubernetes object (RFC 1123 subdomain).
const OBJECT_NAME_MAX: usize = 253;

/// The part of a configuration that every command needs, `DEL` included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfHead {
    /// `cniVersion`; 0.1.0 when missing.
    pub cni_version: CniVersion,
    /// `name`: the network's name, unique on the host (CNI-CONF-01).
    pub name: String,
    /// `socket`: where the agent listens; [`DEFAULT_SOCKET`] when missing.
    pub socket: PathBuf,
}

impl ConfHead {
    /// Reads the head and nothing else.
    ///
    /// # Errors
    /// [`SpecError::ConfigSyntax`] (code 6), [`SpecError::IncompatibleVersion`] or
    /// [`SpecError::CommandNeedsVersion`] (code 1), [`SpecError::NetworkName`] and others (code 7).
    pub fn parse(text: &str, command: Command) -> Result<Self, SpecError> {
        let value = document(text)?;
        Self::decode(&Fields::root(&value, EXPECTED)?, command)
    }

    /// Chooses the version of the answer when the head cannot be read.
    ///
    /// It is the configuration's if it has a known one, else the newest.
    #[must_use]
    pub fn version_of(text: &str) -> CniVersion {
        let value = document(text).unwrap_or_default();
        Fields::root(&value, EXPECTED)
            .and_then(|fields| version(&fields))
            .unwrap_or(CniVersion::LATEST)
    }

    fn decode(fields: &Fields<'_>, command: Command) -> Result<Self, SpecError> {
        let cni_version = version(fields)?;
        cni_version.require(command)?;
        let name = match fields.string("name")? {
            Some(name) if is_cni_name(&name) => name,
            value => return Err(SpecError::NetworkName { value }),
        };
        let socket = fields
            .string("socket")?
            .unwrap_or_else(|| DEFAULT_SOCKET.to_owned());
        let rule = if !Path::new(&socket).is_absolute() {
            "it must be an absolute path"
        } else if socket.len() > SOCKET_PATH_MAX {
            "the path of a Unix socket has at most 107 bytes"
        } else if socket.contains('\0') {
            "it contains a zero byte"
        } else {
            return Ok(Self {
                cni_version,
                name,
                socket: socket.into(),
            });
        };
        Err(SpecError::SocketPath {
            value: socket,
            rule,
        })
    }
}

const EXPECTED: &str = "a JSON object with the network configuration";

fn document(text: &str) -> Result<Value, SpecError> {
    serde_json::from_str(text).map_err(|source| SpecError::ConfigSyntax { source })
}

fn version(fields: &Fields<'_>) -> Result<CniVersion, SpecError> {
    CniVersion::parse(fields.string("cniVersion")?.as_deref())
}

/// Which network the container is to be attached to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkRef {
    /// `podNetwork`: the name of a PodNetwork.
    PodNetwork(String),
    /// `podNetworkAttachment`: `name`, or `namespace/name`, of a PodNetworkAttachment.
    Attachment {
        /// The namespace when given; else the pod's own is meant.
        namespace: Option<String>,
        /// The object's name.
        name: String,
    },
    /// `fromPod`: the annotations of the pod say which networks, and how many.
    FromPod,
}

/// Attachments still valid for the runtime (CNI-GC-01, CNI-GC-02).
///
/// The key is `cni.dev/valid-attachments`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum GcList {
    /// The key is absent: the runtime said nothing, which must not mean "remove all".
    #[default]
    Absent,
    /// These are valid, everything else is stale; `null` is the empty list.
    List(Vec<AttachmentKey>),
}

/// A label from `args.cni.labels` (CNI-CAP-05).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// `key`.
    pub key: String,
    /// `value`.
    pub value: String,
}

/// `args.cni` (CNI-CAP-05).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigArgs {
    /// `ips`: addresses wanted.
    pub ips: Vec<IpRequest>,
    /// `labels`.
    pub labels: Vec<Label>,
}

/// The network configuration of one attachment.
///
/// For `ADD` and `CHECK` everything is read and checked. For the other commands only what they
/// use is read, because a `DEL` has to work whatever became of the configuration (CNI-DEL-01): the
/// rest has its default value. Keys we do not know are tolerated.
#[derive(Debug, Clone, PartialEq)]
pub struct NetConf {
    /// Fields that every command needs.
    pub head: ConfHead,
    /// `type`: the plugin's name.
    pub plugin_type: Option<String>,
    /// Network to attach to; always there for `ADD` and `CHECK`.
    ///
    /// From `podNetwork`, `podNetworkAttachment` or `fromPod`.
    pub network: Option<NetworkRef>,
    /// `isDefaultGateway`: the container's default routes go through this network.
    pub is_default_gateway: bool,
    /// `disableCheck`: the runtime is asked not to call `CHECK`.
    pub disable_check: bool,
    /// `dns`: what results repeat.
    pub dns: Dns,
    /// `runtimeConfig`: capability arguments.
    pub runtime: RuntimeConfig,
    /// `args.cni`.
    pub args: ConfigArgs,
    /// `labels`: the pod's, where no cluster knows them.
    pub labels: BTreeMap<String, String>,
    /// `GC` only: what is still valid.
    pub valid_attachments: GcList,
    /// `prevResult` as it came; read by [`NetConf::prev_result`].
    prev_result: Value,
}

impl NetConf {
    /// Reads the configuration as `command` needs it.
    ///
    /// # Errors
    /// As [`ConfHead::parse`]; for `ADD` and `CHECK` also [`SpecError::NoNetwork`],
    /// [`SpecError::TwoNetworks`], [`SpecError::FromPodAndNetwork`] and any value that is not what it must be (code 7).
    pub fn parse(text: &str, command: Command) -> Result<Self, SpecError> {
        let value = document(text)?;
        let fields = Fields::root(&value, EXPECTED)?;
        let mut conf = Self {
            head: ConfHead::decode(&fields, command)?,
            plugin_type: fields.string("type").ok().flatten(),
            network: None,
            is_default_gateway: false,
            disable_check: false,
            dns: Dns::default(),
            runtime: RuntimeConfig::default(),
            args: ConfigArgs::default(),
            labels: BTreeMap::new(),
            valid_attachments: GcList::Absent,
            prev_result: fields.get("prevResult").cloned().unwrap_or_default(),
        };
        match command {
            Command::Add | Command::Check => {
                conf.network = Some(network(&fields)?.ok_or(SpecError::NoNetwork)?);
                conf.is_default_gateway = fields.flag("isDefaultGateway")?;
                conf.disable_check = fields.flag("disableCheck")?;
                conf.dns = Dns::decode(fields.object("dns")?.as_ref())?;
                conf.runtime = RuntimeConfig::decode(fields.object("runtimeConfig")?.as_ref())?;
                conf.args = config_args(&fields)?;
                conf.labels = labels::labels(&fields)?;
            }
            Command::Gc => conf.valid_attachments = gc_list(&fields)?,
            Command::Status => conf.network = network(&fields)?,
            Command::Del => conf.network = network(&fields).ok().flatten(),
            Command::Version => {}
        }
        Ok(conf)
    }

    /// Parses `prevResult`: the result of earlier plugins, or of our own `ADD`.
    ///
    /// Our own is there for `CHECK` and `DEL`; absent, `null` and `{}` are none.
    ///
    /// # Errors
    /// Code 7 when it is not a result; a `DEL` does well not to ask.
    pub fn prev_result(&self) -> Result<Option<CniResult>, SpecError> {
        match &self.prev_result {
            Value::Null => Ok(None),
            Value::Object(object) if object.is_empty() => Ok(None),
            value => CniResult::parse(value, self.head.cni_version).map(Some),
        }
    }

    /// As [`NetConf::prev_result`], where it must be there (CNI-CHK-01).
    ///
    /// # Errors
    /// [`SpecError::NoPrevResult`] and as above, code 7.
    pub fn required_prev_result(&self, command: Command) -> Result<CniResult, SpecError> {
        self.prev_result()?
            .ok_or(SpecError::NoPrevResult { command })
    }

    /// Returns the requested addresses, from the nearest source (CNI-CAP-05).
    ///
    /// `runtimeConfig.ips`, else `args.cni.ips`, else `IP` of `CNI_ARGS` (one or more, separated by
    /// commas). The nearer source wins whole.
    ///
    /// # Errors
    /// [`SpecError::FieldValue`] (code 7) when `IP` is what counts and holds no address.
    pub fn requested_ips(&self, args: &CniArgs) -> Result<Vec<IpRequest>, SpecError> {
        if !self.runtime.ips.is_empty() {
            return Ok(self.runtime.ips.clone());
        }
        if !self.args.ips.is_empty() {
            return Ok(self.args.ips.clone());
        }
        let Some(text) = args.get("IP") else {
            return Ok(Vec::new());
        };
        text.split(',')
            .map(str::trim)
            .map(|ip| parse_at("CNI_ARGS IP", ip))
            .collect()
    }

    /// The MAC asked for: `runtimeConfig.mac`, else `MAC` of `CNI_ARGS`.
    ///
    /// # Errors
    /// [`SpecError::FieldValue`] (code 7) when `MAC` is what counts and is not usable.
    pub fn requested_mac(&self, args: &CniArgs) -> Result<Option<MacAddr>, SpecError> {
        match (self.runtime.mac, args.get("MAC")) {
            (Some(mac), _) => Ok(Some(mac)),
            (None, Some(text)) => usable_mac("CNI_ARGS MAC", text).map(Some),
            (None, None) => Ok(None),
        }
    }
}

fn network(fields: &Fields<'_>) -> Result<Option<NetworkRef>, SpecError> {
    let pod_network = fields.string("podNetwork")?;
    let attachment = fields.string("podNetworkAttachment")?;
    if fields.flag("fromPod")? {
        let set = [
            ("podNetwork", pod_network.is_some()),
            ("podNetworkAttachment", attachment.is_some()),
        ];
        return match set.into_iter().find(|(_, set)| *set) {
            Some((key, _)) => Err(SpecError::FromPodAndNetwork { key }),
            None => Ok(Some(NetworkRef::FromPod)),
        };
    }
    Ok(match (pod_network, attachment) {
        (Some(_), Some(_)) => return Err(SpecError::TwoNetworks),
        (None, None) => None,
        (Some(name), None) => {
            check_object_name(&fields.path("podNetwork"), &name)?;
            Some(NetworkRef::PodNetwork(name))
        }
        (None, Some(text)) => {
            let path = fields.path("podNetworkAttachment");
            let (namespace, name) = match text.split_once('/') {
                Some((namespace, name)) => (Some(namespace), name),
                None => (None, text.as_str()),
            };
            if let Some(namespace) = namespace {
                check_object_name(&path, namespace)?;
            }
            check_object_name(&path, name)?;
            Some(NetworkRef::Attachment {
                namespace: namespace.map(ToOwned::to_owned),
                name: name.to_owned(),
            })
        }
    })
}

/// An RFC 1123 subdomain, as Kubernetes wants names of objects (NPWG-3.3).
fn check_object_name(path: &str, name: &str) -> Result<(), SpecError> {
    let label_ok = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    let rule = if name.len() > OBJECT_NAME_MAX {
        "it is longer than 253 characters"
    } else if name.split('.').all(label_ok) {
        return Ok(());
    } else {
        "use lower case letters, digits, `-` and `.`, with a letter or digit at both ends"
    };
    Err(SpecError::FieldValue {
        path: path.to_owned(),
        source: Box::new(SpecError::ObjectName {
            value: name.to_owned(),
            rule,
        }),
    })
}

fn config_args(fields: &Fields<'_>) -> Result<ConfigArgs, SpecError> {
    let Some(cni) = fields
        .object("args")?
        .and_then(|args| args.object("cni").transpose())
        .transpose()?
    else {
        return Ok(ConfigArgs::default());
    };
    Ok(ConfigArgs {
        ips: cni.parsed_list("ips")?,
        labels: cni.objects("labels", |label| {
            Ok(Label {
                key: label.required("key", label.string("key")?)?,
                value: label.string("value")?.unwrap_or_default(),
            })
        })?,
    })
}

/// Reads the list of valid attachments, under its key or libcni's older one.
///
/// libcni writes both (CNI-GC-01).
///
/// An entry that cannot be read is an error: leaving it out would remove a live attachment.
fn gc_list(fields: &Fields<'_>) -> Result<GcList, SpecError> {
    let Some((key, value)) = ["cni.dev/valid-attachments", "cni.dev/attachments"]
        .into_iter()
        .find_map(|key| Some((key, fields.raw(key)?)))
    else {
        return Ok(GcList::Absent);
    };
    if !value.is_null() && !value.is_array() {
        return Err(refused(key, "a list of attachments", value));
    }
    let valid = fields.objects(key, |entry| {
        let container: Option<ContainerId> = entry.parsed("containerID")?;
        let ifname: Option<IfName> = entry.parsed("ifname")?;
        Ok(AttachmentKey {
            container: entry.required("containerID", container)?,
            ifname: entry.required("ifname", ifname)?,
        })
    })?;
    Ok(GcList::List(valid))
}
