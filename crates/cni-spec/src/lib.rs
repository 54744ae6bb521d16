//! Read and write CNI from 0.1.0 to 1.1.0, and the frames that carry it.
//!
//! CNI is requests, network configurations, results, errors and versions; frames carry them between the
//! `podnet` binary and the agent.
//!
//! Pure. It refuses to know processes, sockets, files, namespaces and Kubernetes; the environment
//! comes in as a lookup function, frames go through any `Read` or `Write`. Which code an agent
//! failure has (100 and up) is the agent's business, only the codes of the spec live here.
//!
//! ```
//! use cni_spec::{Call, CniRequest, Invocation, NetConf};
//!
//! let env = |name: &str| match name {
//!     "CNI_COMMAND" => Some("ADD".to_owned()),
//!     "CNI_CONTAINERID" => Some("c0ffee".to_owned()),
//!     "CNI_NETNS" => Some("/run/netns/blue".to_owned()),
//!     "CNI_IFNAME" => Some("net1".to_owned()),
//!     _ => None,
//! };
//! let invocation = Invocation::from_env(env)?;
//! let conf = NetConf::parse(
//!     r#"{"cniVersion":"1.1.0","name":"blue","type":"podnet","podNetwork":"blue"}"#,
//!     invocation.call.command(),
//! )?;
//! assert!(matches!(&invocation.call, Call::Add { key, .. } if key.ifname.as_str() == "net1"));
//! assert_eq!(conf.head.socket.to_str(), Some("/run/podnet/agent.sock"));
//! # Ok::<(), cni_spec::SpecError>(())
//! ```
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

mod addr;
mod args;
mod config;
pub mod digest;
mod error;
mod fields;
mod frame;
mod id;
mod lease;
mod message;
mod request;
mod result;
mod version;

pub use addr::{IpPrefix, IpRequest, MacAddr};
pub use args::{CniArgs, PodRef};
pub use config::labels::LABELS_MAX;
pub use config::runtime::{
    Bandwidth, CAP_POD_ANNOTATIONS, IpRange, PortMapping, RATE_MAX, RATE_MIN, RuntimeConfig,
    RuntimeDns,
};
pub use config::{ConfHead, ConfigArgs, DEFAULT_SOCKET, GcList, Label, NetConf, NetworkRef};
pub use error::{CniError, ERROR_TEXT_MAX, ErrorCode, SpecError};
pub use frame::{
    ACK, FRAME_HEADER, FirstFrame, MAX_FRAME, decode_frame, decode_header, encode_frame,
    read_frame, write_frame,
};
pub use id::{AttachmentKey, ContainerId, IfName};
pub use lease::{LEASE, LEASE_ANSWERS, LEASE_BYTES, LEASE_MAX, Lease, Question};
pub use message::{
    CaptureRequest, CniRequest, ExplainRequest, FittingBody, FollowRequest, GetRequest, GetWhat,
    PENDING_DEL, PROTOCOL_VERSION, Reply, Request,
};
pub use request::{Call, Command, Invocation, TraceContext, TraceParent, netns_override};
pub use result::{CniResult, Dns, Interface, IpConfig, Route};
pub use version::{CniVersion, VersionInfo};
