//! Define the messages in frames: requests to the agent and its replies.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::args::CniArgs;
use crate::config::NetConf;
use crate::error::{CniError, ErrorCode, SpecError};
use crate::frame::MAX_FRAME;
use crate::id::{ContainerId, IfName};
use crate::request::{Call, Command, Invocation, TraceContext};
use crate::version::CniVersion;

/// The version of the frame protocol, the key `v` of every message.
pub const PROTOCOL_VERSION: u64 = 1;

/// Directory of `DEL` requests that wait for the agent (CNI-DEL-05).
///
/// It is next to the agent's socket; the shim leaves requests there when the agent is away.
///
/// Each file is the body of one request ([`Request::from_body`]). The content says which
/// attachment is meant, the file's name does not: it is `<containerID>-<ifname>`, and a number
/// follows when another attachment has that name already. Files that begin with a dot are not
/// finished; one that stays was left by a shim that was killed.
pub const PENDING_DEL: &str = "pending-del";

/// A request to the agent; a connection carries one request and one reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// `cni`: a CNI command; the descriptor of the namespace travels with it.
    Cni(CniRequest),
    /// `get`: a table for people.
    Get(GetRequest),
    /// `explain`: every decision taken for an attachment.
    Explain(ExplainRequest),
    /// `follow`: what would happen to a packet.
    Follow(FollowRequest),
    /// `capture`: the packets of an attachment, as pcapng behind the reply.
    Capture(CaptureRequest),
}

/// A CNI command as the shim forwards it: parameters as given, stdin as it came.
#[derive(Clone, Serialize, Deserialize)]
pub struct CniRequest {
    /// `CNI_COMMAND`.
    pub command: Command,
    /// `CNI_CONTAINERID`; empty for `GC` and `STATUS`.
    #[serde(rename = "containerID", default)]
    pub container_id: String,
    /// `CNI_NETNS`; may be empty.
    #[serde(default)]
    pub netns: String,
    /// `CNI_IFNAME`; empty for `GC` and `STATUS`.
    #[serde(default)]
    pub ifname: String,
    /// `CNI_ARGS`.
    #[serde(default)]
    pub args: String,
    /// `CNI_PATH`.
    #[serde(default)]
    pub path: String,
    /// W3C trace context.
    #[serde(flatten)]
    pub trace: TraceContext,
    /// The network configuration, value for value as on stdin (CNI-CONF-07).
    pub config: Box<RawValue>,
}

impl CniRequest {
    /// The request for an invocation with this configuration.
    #[must_use]
    pub fn new(invocation: &Invocation, config: Box<RawValue>) -> Self {
        let call = &invocation.call;
        let key = call.key();
        Self {
            command: call.command(),
            container_id: key.map(|key| key.container.to_string()).unwrap_or_default(),
            netns: call.netns().unwrap_or_default().to_owned(),
            ifname: key.map(|key| key.ifname.to_string()).unwrap_or_default(),
            args: invocation.args.raw().to_owned(),
            path: invocation.path.clone(),
            trace: invocation.trace.clone(),
            config,
        }
    }

    /// The checked form; the agent trusts no shim to have checked.
    ///
    /// # Errors
    /// As [`Invocation::from_env`], code 4.
    pub fn invocation(&self) -> Result<Invocation, SpecError> {
        Ok(Invocation {
            call: Call::from_parts(self.command, &self.container_id, &self.netns, &self.ifname)?,
            args: CniArgs::parse(&self.args),
            path: self.path.clone(),
            trace: self.trace.clone(),
        })
    }

    /// The network configuration, read as the command needs it.
    ///
    /// # Errors
    /// As [`NetConf::parse`].
    pub fn conf(&self) -> Result<NetConf, SpecError> {
        NetConf::parse(self.config.get(), self.command)
    }
}

/// Shows only the length of `config`: it may hold secrets of other plugins.
impl fmt::Debug for CniRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CniRequest")
            .field("command", &self.command)
            .field("container_id", &self.container_id)
            .field("netns", &self.netns)
            .field("ifname", &self.ifname)
            .field("config_bytes", &self.config.get().len())
            .finish_non_exhaustive()
    }
}

impl PartialEq for CniRequest {
    fn eq(&self, other: &Self) -> bool {
        self.command == other.command
            && self.container_id == other.container_id
            && self.netns == other.netns
            && self.ifname == other.ifname
            && self.args == other.args
            && self.path == other.path
            && self.trace == other.trace
            && self.config.get() == other.config.get()
    }
}

impl Eq for CniRequest {}

/// `get`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetRequest {
    /// Which table.
    pub what: GetWhat,
    /// Of connections: those of one pod.
    ///
    /// It is `NAMESPACE/NAME`, or the first characters of its container's ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Of connections: those of one network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Of connections: the most that are shown, [`Self::LIMIT`] when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u16>,
}

impl GetRequest {
    /// Connections that are shown where nobody says how many.
    pub const LIMIT: u16 = 1_000;
    /// Connections that fit into an answer.
    pub const LIMIT_MAX: u16 = 8_000;

    /// Asks for a whole table.
    pub const fn new(what: GetWhat) -> Self {
        Self {
            what,
            pod: None,
            network: None,
            limit: None,
        }
    }
}

/// The tables there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GetWhat {
    /// The networks the agent knows.
    Networks,
    /// The attachments it holds.
    Attachments,
    /// Endpoints of each network: addresses, and the nodes they are on.
    Endpoints,
    /// Dropped packets by reason and network.
    Drops,
    /// Interfaces of the node by which others reach it.
    Uplinks,
    /// Network policies, and what becomes of them on the node.
    Policies,
    /// Services: addresses, ports and endpoints.
    Services,
    /// VPCs: networks that are routed to each other.
    Vpcs,
    /// Connections that policies let pass.
    Flows,
}

/// `explain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainRequest {
    /// The container.
    pub container: ContainerId,
    /// One of its interfaces, or all.
    #[serde(default)]
    pub ifname: Option<IfName>,
}

/// `follow`: a packet as a person describes it; the agent reads each part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FollowRequest {
    /// Sender of the packet.
    pub from: String,
    /// Receiver of the packet.
    pub to: String,
    /// Protocol that the packet carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proto: Option<String>,
    /// Bytes without the Ethernet header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
    /// The source address in it, if not the sender's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The node whose tunnel brings it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrive_from: Option<String>,
}

/// `capture`: an attachment, and limits; the agent reads each part.
///
/// It ends with the first limit that is reached, and when the client closes its side of the connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CaptureRequest {
    /// Pod of the attachment, `NAMESPACE/NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Its container, or the first characters of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Network of the attachment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Interface in the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifname: Option<String>,
    /// Bytes of each packet.
    pub snaplen: u32,
    /// Packets; 0 for no limit.
    pub packets: u64,
    /// Seconds.
    pub seconds: u64,
    /// Bytes of buffer for each CPU.
    pub buffer: u32,
}

/// Only `v`, to be read before anything that another version may have changed.
#[derive(Deserialize)]
struct VersionKey {
    #[serde(default)]
    v: u64,
}

fn check_version(body: &[u8]) -> Result<(), SpecError> {
    let VersionKey { v } =
        serde_json::from_slice(body).map_err(|source| SpecError::FrameJson { source })?;
    if v == PROTOCOL_VERSION {
        Ok(())
    } else {
        Err(SpecError::FrameVersion { found: v })
    }
}

#[derive(Serialize)]
struct RequestOut<'a> {
    v: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cni: Option<&'a CniRequest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    get: Option<&'a GetRequest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explain: Option<&'a ExplainRequest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    follow: Option<&'a FollowRequest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    capture: Option<&'a CaptureRequest>,
}

#[derive(Deserialize)]
struct RequestIn {
    cni: Option<CniRequest>,
    get: Option<GetRequest>,
    explain: Option<ExplainRequest>,
    follow: Option<FollowRequest>,
    capture: Option<CaptureRequest>,
}

impl Request {
    /// The body of the frame.
    ///
    /// # Errors
    /// [`SpecError::FrameJson`] when it cannot be written as JSON.
    pub fn to_body(&self) -> Result<Vec<u8>, SpecError> {
        let mut out = RequestOut {
            v: PROTOCOL_VERSION,
            cni: None,
            get: None,
            explain: None,
            follow: None,
            capture: None,
        };
        match self {
            Self::Cni(request) => out.cni = Some(request),
            Self::Get(request) => out.get = Some(request),
            Self::Explain(request) => out.explain = Some(request),
            Self::Follow(request) => out.follow = Some(request),
            Self::Capture(request) => out.capture = Some(request),
        }
        serde_json::to_vec(&out).map_err(|source| SpecError::FrameJson { source })
    }

    /// Reads the body of a frame.
    ///
    /// # Errors
    /// [`SpecError::FrameJson`], [`SpecError::FrameVersion`], [`SpecError::FrameKind`].
    pub fn from_body(body: &[u8]) -> Result<Self, SpecError> {
        check_version(body)?;
        let request: RequestIn =
            serde_json::from_slice(body).map_err(|source| SpecError::FrameJson { source })?;
        let RequestIn {
            cni,
            get,
            explain,
            follow,
            capture,
        } = request;
        match (cni, get, explain, follow, capture) {
            (Some(cni), None, None, None, None) => Ok(Self::Cni(cni)),
            (None, Some(get), None, None, None) => Ok(Self::Get(get)),
            (None, None, Some(explain), None, None) => Ok(Self::Explain(explain)),
            (None, None, None, Some(follow), None) => Ok(Self::Follow(follow)),
            (None, None, None, None, Some(capture)) => Ok(Self::Capture(capture)),
            _ => Err(SpecError::FrameKind {
                expected: "cni, get, explain, follow, capture",
            }),
        }
    }
}

/// The agent's answer.
#[derive(Debug, Clone)]
pub enum Reply {
    /// `ok`: what to print, `null` for nothing.
    Ok(Box<RawValue>),
    /// `error`: the CNI error to print.
    Error(CniError),
}

/// A body that is no larger than [`MAX_FRAME`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FittingBody {
    /// The bytes.
    pub body: Vec<u8>,
    /// They are an error in place of a reply that is too large.
    pub replaced: bool,
}

#[derive(Serialize)]
struct ReplyOut<'a> {
    v: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ok: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a CniError>,
}

#[derive(Deserialize)]
struct ReplyIn {
    // `"ok": null` is an answer; only a missing key is none.
    #[serde(default, deserialize_with = "present")]
    ok: Option<Box<RawValue>>,
    error: Option<CniError>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

impl Reply {
    /// A successful answer with a value to print, or `&()` for nothing.
    ///
    /// # Errors
    /// [`SpecError::FrameJson`] when the value cannot be written as JSON.
    pub fn ok(value: &impl Serialize) -> Result<Self, SpecError> {
        serde_json::value::to_raw_value(value)
            .map(Self::Ok)
            .map_err(|source| SpecError::FrameJson { source })
    }

    /// Serializes the body, or an error in its place when it is larger than a frame.
    ///
    /// The caller gets a reason, in `version`, and not a connection that ends.
    ///
    /// # Errors
    /// [`SpecError::FrameJson`] when it cannot be written as JSON.
    pub fn to_fitting_body(&self, version: CniVersion) -> Result<FittingBody, SpecError> {
        let body = self.to_body()?;
        if body.len() <= MAX_FRAME {
            return Ok(FittingBody {
                body,
                replaced: false,
            });
        }
        let length = u64::try_from(body.len()).unwrap_or(u64::MAX);
        let (code, words) = match self {
            Self::Ok(_) => (ErrorCode::IO_FAILURE, "the answer"),
            // `CniError::new` makes none that is so long.
            Self::Error(error) => (error.code, "the error"),
        };
        let msg = format!("{words} is too large for the connection to the plugin");
        let details = SpecError::FrameTooLarge { length }.to_string();
        let body = Self::Error(CniError::new(version, code, msg, details)).to_body()?;
        Ok(FittingBody {
            body,
            replaced: true,
        })
    }

    /// The body of the frame.
    ///
    /// # Errors
    /// [`SpecError::FrameJson`] when it cannot be written as JSON.
    pub fn to_body(&self) -> Result<Vec<u8>, SpecError> {
        let (ok, error) = match self {
            Self::Ok(value) => (Some(&**value), None),
            Self::Error(error) => (None, Some(error)),
        };
        let out = ReplyOut {
            v: PROTOCOL_VERSION,
            ok,
            error,
        };
        serde_json::to_vec(&out).map_err(|source| SpecError::FrameJson { source })
    }

    /// Reads the body of a frame.
    ///
    /// # Errors
    /// [`SpecError::FrameJson`], [`SpecError::FrameVersion`], [`SpecError::FrameKind`].
    pub fn from_body(body: &[u8]) -> Result<Self, SpecError> {
        check_version(body)?;
        let reply: ReplyIn =
            serde_json::from_slice(body).map_err(|source| SpecError::FrameJson { source })?;
        match (reply.ok, reply.error) {
            (Some(value), None) => Ok(Self::Ok(value)),
            (None, Some(error)) => Ok(Self::Error(error)),
            _ => Err(SpecError::FrameKind {
                expected: "ok, error",
            }),
        }
    }
}

#[cfg(test)]
mod tests;
