//! Name the faults of a request, and build the error object that a runtime reads.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::frame::MAX_FRAME;
use crate::request::Command;
use crate::version::CniVersion;

/// Longest `msg` and longest `details` of an error, bytes.
///
/// Runtimes put them into pod events and logs, and the author of a configuration or an annotation
/// decides what they quote.
pub const ERROR_TEXT_MAX: usize = 8 << 10;

/// The `code` of a CNI error (CNI SPEC "Error", CNI-ERR-03).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// The configuration's `cniVersion` is unknown, or too old for the command.
    pub const INCOMPATIBLE_VERSION: Self = Self(1);
    /// A field we must not ignore; the message has key and value.
    pub const UNSUPPORTED_FIELD: Self = Self(2);
    /// The container does not exist and nothing of it is left.
    ///
    /// A runtime may skip `DEL` then, so never use it for `ADD` (CNI-ERR-04).
    pub const UNKNOWN_CONTAINER: Self = Self(3);
    /// A `CNI_*` variable is missing or wrong; the message names it.
    pub const INVALID_ENV: Self = Self(4);
    /// Stdin could not be read.
    pub const IO_FAILURE: Self = Self(5);
    /// Stdin is not JSON.
    pub const DECODING_FAILURE: Self = Self(6);
    /// The network configuration is not valid.
    pub const INVALID_CONFIG: Self = Self(7);
    /// `CNI_NETNS` is the plugin's own namespace.
    ///
    /// Known from libcni's skeleton, not from the spec.
    pub const INVALID_NETNS: Self = Self(8);
    /// A transient condition; the same request may succeed later.
    pub const TRY_AGAIN_LATER: Self = Self(11);
    /// `STATUS`: an `ADD` would not be served now.
    pub const NOT_AVAILABLE: Self = Self(50);
    /// `STATUS`: as 50, and containers already attached may be impaired.
    pub const LIMITED_CONNECTIVITY: Self = Self(51);
    /// `DEL`, from agent to plugin: no record can be written now.
    ///
    /// The plugin keeps the request ([`crate::PENDING_DEL`]), and the agent carries it out when it can.
    pub const NOT_RECORDED: Self = Self(140);
    /// The first code that belongs to the plugin.
    pub const PLUGIN_FIRST: Self = Self(100);
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The error object a plugin prints on stdout (CNI-ERR-01, CNI-ERR-02).
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("CNI error {code}: {msg}")]
#[serde(rename_all = "camelCase")]
pub struct CniError {
    /// The version of the request; the newest one when the request did not say.
    #[serde(default = "latest", deserialize_with = "known_or_latest")]
    pub cni_version: CniVersion,
    /// Code of the failure, of CNI or of the agent.
    pub code: ErrorCode,
    /// One line for a person reading pod events.
    pub msg: String,
    /// Details that the line leaves out; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub details: String,
}

fn latest() -> CniVersion {
    CniVersion::LATEST
}

fn known_or_latest<'de, D: Deserializer<'de>>(deserializer: D) -> Result<CniVersion, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(value
        .as_str()
        .and_then(|text| CniVersion::parse(Some(text)).ok())
        .unwrap_or(CniVersion::LATEST))
}

impl CniError {
    /// An error in the words given, at most [`ERROR_TEXT_MAX`] of each.
    #[must_use]
    pub fn new(
        cni_version: CniVersion,
        code: ErrorCode,
        msg: impl Into<String>,
        details: impl Into<String>,
    ) -> Self {
        Self {
            cni_version,
            code,
            msg: shortened(msg.into()),
            details: shortened(details.into()),
        }
    }

    /// Builds the error of an agent that cannot be reached (CNI-ERR-05).
    ///
    /// Its code is 50 for `STATUS`, 11 for everything else.
    #[must_use]
    pub fn agent_unreachable(
        cni_version: CniVersion,
        command: Command,
        socket: &str,
        details: impl Into<String>,
    ) -> Self {
        let (code, advice) = match command {
            Command::Status => (ErrorCode::NOT_AVAILABLE, ""),
            _ => (ErrorCode::TRY_AGAIN_LATER, "; try again later"),
        };
        let msg = format!("podnet-agent is not running: no answer at socket {socket}{advice}");
        Self::new(cni_version, code, msg, details)
    }

    /// Builds the error of a request that was sent and had no answer.
    ///
    /// Its code is 50 for `STATUS`, 11 for everything else.
    #[must_use]
    pub fn outcome_unknown(
        cni_version: CniVersion,
        command: Command,
        details: impl Into<String>,
    ) -> Self {
        let code = match command {
            Command::Status => ErrorCode::NOT_AVAILABLE,
            _ => ErrorCode::TRY_AGAIN_LATER,
        };
        let advice = match command {
            Command::Add => "the outcome of ADD is unknown, a DEL cleans up whatever was done",
            Command::Status => "podnet-agent is not ready",
            _ => "try again later",
        };
        let msg = format!("podnet-agent did not answer {command}: {advice}");
        Self::new(cni_version, code, msg, details)
    }

    /// The same error in words that no runtime takes for success.
    ///
    /// go-cni forgives a `DEL` whose error text contains "not found" or "no such file or
    /// directory", and so would hide a leak (CNI-ERR-06).
    #[must_use]
    pub fn worded_for_del(mut self) -> Self {
        for text in [&mut self.msg, &mut self.details] {
            *text = replace_ignoring_case(text, "not found", "missing");
            *text = replace_ignoring_case(text, "no such file or directory", "missing path");
        }
        self
    }
}

/// The beginning of a text that is too long; `…` stands for the rest.
fn shortened(mut text: String) -> String {
    if text.len() > ERROR_TEXT_MAX {
        text.truncate(text.floor_char_boundary(ERROR_TEXT_MAX));
        text.push('…');
    }
    text
}

fn replace_ignoring_case(text: &str, phrase: &str, by: &str) -> String {
    // ASCII case folding keeps every byte offset.
    let folded = text.to_ascii_lowercase();
    let mut out = String::with_capacity(text.len());
    let mut kept = 0;
    for (start, found) in folded.match_indices(phrase) {
        out.push_str(text.get(kept..start).unwrap_or_default());
        out.push_str(by);
        kept = start.saturating_add(found.len());
    }
    out.push_str(text.get(kept..).unwrap_or_default());
    out
}

/// Everything this crate refuses, with the CNI code it has ([`SpecError::code`]).
#[derive(Debug, Error)]
pub enum SpecError {
    /// `CNI_COMMAND` is unset or empty: a person runs the binary by hand.
    #[error("required env variables [CNI_COMMAND] missing")]
    NoCommand,
    /// `CNI_COMMAND` is none of the spec's.
    #[error("unknown CNI_COMMAND: {value}")]
    UnknownCommand {
        /// The value given.
        value: String,
    },
    /// Required variables are unset or empty (CNI-ENV-01).
    #[error("required env variables [{}] missing", names.join(","))]
    EnvMissing {
        /// All of them.
        names: Vec<&'static str>,
    },
    /// A container identifier outside the grammar (CNI-ENV-02).
    #[error(
        "CNI_CONTAINERID {value:?} is not valid: it must begin with a letter or digit and go on \
         with letters, digits, `_`, `.`, `-`"
    )]
    ContainerId {
        /// The value given.
        value: String,
    },
    /// An interface name Linux would refuse (CNI-ENV-03).
    #[error("CNI_IFNAME {value:?} is not valid: {rule}")]
    IfName {
        /// The value given.
        value: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// A protocol version we do not speak.
    #[error("incompatible CNI versions")]
    IncompatibleVersion {
        /// The version asked for.
        requested: String,
    },
    /// A command the configuration's version does not have (CNI-ERR-08).
    #[error("incompatible CNI versions: {command} needs cniVersion {needed} or newer")]
    CommandNeedsVersion {
        /// The command.
        command: Command,
        /// The first version that has it.
        needed: CniVersion,
        /// The version of the configuration.
        config: CniVersion,
    },
    /// The network configuration is not JSON.
    #[error("the network configuration on stdin is not JSON")]
    ConfigSyntax {
        /// Where it stops being JSON.
        #[source]
        source: serde_json::Error,
    },
    /// The configuration has no usable `name` (CNI-ERR-09).
    #[error(
        "`name` {} in the network configuration: it must begin with a letter or digit and go on \
         with letters, digits, `_`, `.`, `-`",
        value.as_ref().map_or("is missing".to_owned(), |value| format!("{value:?} is not valid"))
    )]
    NetworkName {
        /// The value given, if any.
        value: Option<String>,
    },
    /// A value of the wrong type or out of range.
    #[error("`{path}` must be {expected}, it is {found}")]
    FieldType {
        /// Where it stands.
        path: String,
        /// The type or range allowed there.
        expected: &'static str,
        /// The value found, shortened.
        found: String,
    },
    /// A text that does not follow its grammar.
    #[error("`{path}` is not valid")]
    FieldValue {
        /// Where it stands.
        path: String,
        /// The rule it breaks.
        #[source]
        source: Box<SpecError>,
    },
    /// A burst that limits nothing.
    #[error("`{path}` limits nothing without a rate: set {rate} too, or remove it")]
    BurstWithoutRate {
        /// Where the burst stands.
        path: String,
        /// The key of the rate.
        rate: &'static str,
    },
    /// A key that must be there.
    #[error("`{path}` is missing")]
    FieldMissing {
        /// Where it should stand.
        path: String,
    },
    /// Neither `podNetwork` nor `podNetworkAttachment` nor `fromPod`.
    #[error(
        "the network configuration names no network: set `podNetwork` to the name of a PodNetwork, \
         `podNetworkAttachment` to the name of a PodNetworkAttachment, or `fromPod` to true"
    )]
    NoNetwork,
    /// Both `podNetwork` and `podNetworkAttachment`.
    #[error("`podNetwork` and `podNetworkAttachment` exclude each other: remove one of them")]
    TwoNetworks,
    /// `fromPod` together with a network.
    #[error(
        "`fromPod` is true and `{key}` is set: with `fromPod` the pod says its networks, so remove \
         one of them"
    )]
    FromPodAndNetwork {
        /// The other key.
        key: &'static str,
    },
    /// A name Kubernetes would refuse.
    #[error("{value:?} is not the name of a Kubernetes object: {rule}")]
    ObjectName {
        /// The value given.
        value: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// A socket path that cannot be connected to.
    #[error("`socket` {value:?} is not valid: {rule}")]
    SocketPath {
        /// The value given.
        value: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// A text that is no IP address.
    #[error("{value:?} is not an address that podnet can use: {rule}")]
    Address {
        /// The value given.
        value: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// A text that is no MAC address, or none an interface may have.
    #[error("{value:?} is not a MAC address that podnet can use: {rule}")]
    Mac {
        /// The value given.
        value: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// `prevResult` is absent where the command needs it (CNI-CHK-01).
    #[error("`prevResult` is missing: {command} compares the container with it")]
    NoPrevResult {
        /// The command that needs it.
        command: Command,
    },
    /// `ips[].interface` points at no interface (CNI-RES-05).
    #[error("`ips[{ip}].interface` is {index}, but the result has {interfaces} interfaces")]
    InterfaceIndex {
        /// Which address.
        ip: usize,
        /// Where it points.
        index: usize,
        /// How many interfaces there are.
        interfaces: usize,
    },
    /// A result without addresses, for a version whose results are addresses alone.
    #[error(
        "cniVersion {version} cannot express a result without IP addresses: use 0.3.0 or newer"
    )]
    NoIpForVersion {
        /// The version asked for.
        version: CniVersion,
    },
    /// A frame larger than [`MAX_FRAME`].
    #[error("a frame of {length} bytes is larger than the limit of {MAX_FRAME}")]
    FrameTooLarge {
        /// Its length in bytes.
        length: u64,
    },
    /// The peer closed the connection inside a frame, or before one.
    #[error("the connection ended after {received} of {expected} bytes of a frame")]
    FrameCut {
        /// Bytes that came.
        received: usize,
        /// Bytes announced.
        expected: usize,
    },
    /// Reading or writing a frame failed.
    #[error("the frame could not be transferred")]
    FrameIo {
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The body of a frame is not the JSON of the protocol.
    #[error("the frame is not a message of the podnet protocol")]
    FrameJson {
        /// Where it deviates.
        #[source]
        source: serde_json::Error,
    },
    /// The peer speaks another version of the frame protocol.
    #[error(
        "the frame has protocol version {found}, this build speaks 1: install podnet and \
         podnet-agent of the same release"
    )]
    FrameVersion {
        /// The version it has; 0 when it says none.
        found: u64,
    },
    /// A frame with none, or more than one, of the message kinds.
    #[error("the frame must have exactly one of {expected}")]
    FrameKind {
        /// The kinds there are.
        expected: &'static str,
    },
}

impl SpecError {
    /// The CNI code of this refusal.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::NoCommand
            | Self::UnknownCommand { .. }
            | Self::EnvMissing { .. }
            | Self::ContainerId { .. }
            | Self::IfName { .. } => ErrorCode::INVALID_ENV,
            Self::IncompatibleVersion { .. } | Self::CommandNeedsVersion { .. } => {
                ErrorCode::INCOMPATIBLE_VERSION
            }
            Self::ConfigSyntax { .. } => ErrorCode::DECODING_FAILURE,
            Self::NetworkName { .. }
            | Self::FieldType { .. }
            | Self::FieldValue { .. }
            | Self::BurstWithoutRate { .. }
            | Self::FieldMissing { .. }
            | Self::NoNetwork
            | Self::TwoNetworks
            | Self::FromPodAndNetwork { .. }
            | Self::ObjectName { .. }
            | Self::SocketPath { .. }
            | Self::Address { .. }
            | Self::Mac { .. }
            | Self::NoPrevResult { .. }
            | Self::InterfaceIndex { .. }
            | Self::NoIpForVersion { .. } => ErrorCode::INVALID_CONFIG,
            Self::FrameTooLarge { .. }
            | Self::FrameCut { .. }
            | Self::FrameIo { .. }
            | Self::FrameJson { .. }
            | Self::FrameVersion { .. }
            | Self::FrameKind { .. } => ErrorCode::IO_FAILURE,
        }
    }

    /// The error object for a runtime: this error as `msg`, its causes as `details`.
    #[must_use]
    pub fn to_cni(&self, cni_version: CniVersion) -> CniError {
        let details = match self {
            // CNI-ERR-07: the runtime's log must show both sides.
            Self::IncompatibleVersion { requested } => format!(
                "config is {requested:?}, plugin supports [{}]",
                CniVersion::ALL.map(CniVersion::as_str).join(" ")
            ),
            Self::CommandNeedsVersion { config, .. } => format!("config is \"{config}\""),
            _ => causes(self),
        };
        CniError::new(cni_version, self.code(), self.to_string(), details)
    }
}

/// The chain of causes below an error, each after a colon; empty without one.
fn causes(error: &dyn std::error::Error) -> String {
    let below = std::iter::successors(error.source(), |cause| cause.source());
    below
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_object_is_written_as_the_spec_shows_it() {
        let error = CniError::new(CniVersion::V0_4_0, ErrorCode::INVALID_CONFIG, "no", "");
        let json = serde_json::to_string(&error).unwrap();
        assert_eq!(json, r#"{"cniVersion":"0.4.0","code":7,"msg":"no"}"#);
        assert_eq!(serde_json::from_str::<CniError>(&json).unwrap(), error);
    }

    /// ATT-13
    #[test]
    fn long_words_of_an_error_are_cut_at_a_character() {
        let words = format!("a{}", "ä".repeat(ERROR_TEXT_MAX));
        let error = CniError::new(CniVersion::LATEST, ErrorCode(7), words.clone(), words);
        for text in [error.msg, error.details] {
            assert!(
                text.len() <= ERROR_TEXT_MAX + '…'.len_utf8(),
                "{}",
                text.len()
            );
            assert!(text.starts_with("aää") && text.ends_with("ä…"));
        }
        let short = "b".repeat(ERROR_TEXT_MAX);
        let error = CniError::new(CniVersion::LATEST, ErrorCode(7), short.clone(), "");
        assert_eq!(error.msg, short);
        proof::of!("ATT-13");
    }

    #[test]
    fn error_object_of_go_plugins_has_no_version_and_is_read_all_the_same() {
        let error: CniError = serde_json::from_str(r#"{"code":999,"msg":"x"}"#).unwrap();
        assert_eq!((error.cni_version, error.code.0), (CniVersion::LATEST, 999));
        let error: CniError =
            serde_json::from_str(r#"{"cniVersion":"7.0.0","code":1,"msg":"x"}"#).unwrap();
        assert_eq!(error.cni_version, CniVersion::LATEST);
    }

    #[test]
    fn del_errors_avoid_the_phrases_that_runtimes_forgive_cni_err_06() {
        let error = CniError::new(
            CniVersion::LATEST,
            ErrorCode(110),
            "link Not Found, not found",
            "open: No such file or directory (os error 2)",
        )
        .worded_for_del();
        assert_eq!(error.msg, "link missing, missing");
        assert_eq!(error.details, "open: missing path (os error 2)");
        proof::of!("CNI-ERR-06");
    }

    #[test]
    fn status_has_code_50_and_the_others_11_when_the_agent_is_away() {
        for command in [Command::Add, Command::Check, Command::Gc, Command::Del] {
            let error = CniError::agent_unreachable(CniVersion::LATEST, command, "/s", "");
            assert_eq!(error.code, ErrorCode::TRY_AGAIN_LATER);
            assert!(error.msg.contains("/s") && error.msg.contains("podnet-agent"));
            let error = CniError::outcome_unknown(CniVersion::LATEST, command, "");
            assert_eq!(error.code, ErrorCode::TRY_AGAIN_LATER);
        }
        let status = CniError::agent_unreachable(CniVersion::LATEST, Command::Status, "/s", "");
        assert_eq!(status.code, ErrorCode::NOT_AVAILABLE);
        let status = CniError::outcome_unknown(CniVersion::LATEST, Command::Status, "");
        assert_eq!(status.code, ErrorCode::NOT_AVAILABLE);
    }

    #[test]
    fn causes_become_details() {
        let error = SpecError::FieldValue {
            path: "runtimeConfig.mac".to_owned(),
            source: Box::new(SpecError::Mac {
                value: "x".to_owned(),
                rule: "too short",
            }),
        };
        let object = error.to_cni(CniVersion::LATEST);
        assert_eq!(object.msg, "`runtimeConfig.mac` is not valid");
        assert_eq!(
            object.details,
            "\"x\" is not a MAC address that podnet can use: too short"
        );
    }
}
