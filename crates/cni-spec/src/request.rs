//! Parse one invocation of a plugin: command and environment (CNI SPEC §2).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::args::CniArgs;
use crate::error::SpecError;
use crate::id::{AttachmentKey, ContainerId, IfName};

/// `CNI_COMMAND`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Command {
    /// Attach a container to the network.
    Add,
    /// Detach it; success when there is nothing to detach.
    Del,
    /// Is the attachment as `ADD` left it?
    Check,
    /// Drop attachments the runtime does not know any more.
    Gc,
    /// Would an `ADD` be served now?
    Status,
    /// Which protocol versions are spoken?
    Version,
}

impl Command {
    /// The spelling of `CNI_COMMAND`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Gc => "GC",
            Self::Status => "STATUS",
            Self::Version => "VERSION",
        }
    }

    /// Reads `CNI_COMMAND`; the spelling is exact.
    ///
    /// # Errors
    /// [`SpecError::NoCommand`] for the empty string, [`SpecError::UnknownCommand`] otherwise
    /// (both code 4, CNI-ENV-04).
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        Ok(match text {
            "ADD" => Self::Add,
            "DEL" => Self::Del,
            "CHECK" => Self::Check,
            "GC" => Self::Gc,
            "STATUS" => Self::Status,
            "VERSION" => Self::Version,
            "" => return Err(SpecError::NoCommand),
            other => {
                return Err(SpecError::UnknownCommand {
                    value: other.to_owned(),
                });
            }
        })
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A command with the parameters it has, all checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Attach `key` in the namespace at `netns`.
    Add {
        /// The attachment.
        key: AttachmentKey,
        /// `CNI_NETNS` exactly as given; results repeat it as `sandbox` (CNI-ADD-09).
        netns: String,
    },
    /// Compare `key` with its `prevResult`.
    Check {
        /// The attachment.
        key: AttachmentKey,
        /// `CNI_NETNS` exactly as given.
        netns: String,
    },
    /// Detach `key`; the namespace may be gone already.
    Del {
        /// The attachment.
        key: AttachmentKey,
        /// `CNI_NETNS` exactly as given, when it was.
        netns: Option<String>,
    },
    /// Drop stale attachments.
    Gc,
    /// Readiness.
    Status,
    /// Versions.
    Version,
}

impl Call {
    /// The command.
    #[must_use]
    pub const fn command(&self) -> Command {
        match self {
            Self::Add { .. } => Command::Add,
            Self::Check { .. } => Command::Check,
            Self::Del { .. } => Command::Del,
            Self::Gc => Command::Gc,
            Self::Status => Command::Status,
            Self::Version => Command::Version,
        }
    }

    /// The attachment, for the commands that have one.
    #[must_use]
    pub const fn key(&self) -> Option<&AttachmentKey> {
        match self {
            Self::Add { key, .. } | Self::Check { key, .. } | Self::Del { key, .. } => Some(key),
            Self::Gc | Self::Status | Self::Version => None,
        }
    }

    /// `CNI_NETNS`, where there is one.
    #[must_use]
    pub fn netns(&self) -> Option<&str> {
        match self {
            Self::Add { netns, .. } | Self::Check { netns, .. } => Some(netns),
            Self::Del { netns, .. } => netns.as_deref(),
            Self::Gc | Self::Status | Self::Version => None,
        }
    }

    /// Checks the raw parameters of a command; empty means unset.
    ///
    /// CNI-ENV-01 to -03, -06.
    ///
    /// # Errors
    /// [`SpecError::EnvMissing`] with all missing names, [`SpecError::ContainerId`],
    /// [`SpecError::IfName`] (code 4).
    pub(crate) fn from_parts(
        command: Command,
        container: &str,
        netns: &str,
        ifname: &str,
    ) -> Result<Self, SpecError> {
        match command {
            Command::Gc => return Ok(Self::Gc),
            Command::Status => return Ok(Self::Status),
            Command::Version => return Ok(Self::Version),
            Command::Add | Command::Check | Command::Del => {}
        }
        let required = [
            ("CNI_CONTAINERID", container, true),
            ("CNI_NETNS", netns, command != Command::Del),
            ("CNI_IFNAME", ifname, true),
        ];
        let names: Vec<_> = required
            .into_iter()
            .filter(|(_, value, needed)| *needed && value.is_empty())
            .map(|(name, ..)| name)
            .collect();
        if !names.is_empty() {
            return Err(SpecError::EnvMissing { names });
        }
        let key = AttachmentKey {
            container: ContainerId::new(container)?,
            ifname: IfName::new(ifname)?,
        };
        let netns = netns.to_owned();
        Ok(match command {
            Command::Add => Self::Add { key, netns },
            Command::Check => Self::Check { key, netns },
            _ => Self::Del {
                key,
                netns: Some(netns).filter(|netns| !netns.is_empty()),
            },
        })
    }
}

/// W3C trace context, as libcni may pass it (CNI-ENV-10).
///
/// Empty strings are absent values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceContext {
    /// `TRACEPARENT`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub traceparent: String,
    /// `TRACESTATE`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tracestate: String,
    /// `BAGGAGE`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub baggage: String,
}

impl TraceContext {
    /// Reads the `traceparent`.
    ///
    /// One that is not as W3C Trace Context, section 3.2, says is none: whatever a caller sends
    /// there does not get into a log.
    #[must_use]
    pub fn parent(&self) -> Option<TraceParent<'_>> {
        let is_hex = |text: &str| {
            text.bytes()
                .all(|byte| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'))
        };
        let mut parts = self.traceparent.split('-');
        let mut part = |length: usize| {
            let part = parts.next()?;
            (part.len() == length && is_hex(part)).then_some(part)
        };
        let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        // Later versions may append parts.
        let is_whole = version != "ff" && (version != "00" || parts.next().is_none());
        let is_zero = |id: &str| id.bytes().all(|byte| byte == b'0');
        (is_whole && !is_zero(trace) && !is_zero(span)).then(|| TraceParent {
            trace,
            span,
            sampled: u8::from_str_radix(flags, 16).is_ok_and(|flags| flags & 1 == 1),
        })
    }
}

/// The place of a caller in a trace: W3C Trace Context, section 3.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent<'a> {
    /// ID of the trace, 32 lower-case hexadecimal digits.
    pub trace: &'a str,
    /// ID of the caller's span, 16 of them.
    pub span: &'a str,
    /// Whether the caller records its span.
    pub sampled: bool,
}

/// All a plugin is told through its environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// The command with its parameters.
    pub call: Call,
    /// `CNI_ARGS`.
    pub args: CniArgs,
    /// `CNI_PATH`; never required, whatever libcni's skeleton says (CNI-ENV-05).
    pub path: String,
    /// Where the caller's trace stands.
    pub trace: TraceContext,
}

impl Invocation {
    /// Reads the environment through `get`; empty means unset (CNI-ENV-06).
    ///
    /// # Errors
    /// [`SpecError::NoCommand`], [`SpecError::UnknownCommand`], [`SpecError::EnvMissing`],
    /// [`SpecError::ContainerId`], [`SpecError::IfName`]: all code 4.
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Result<Self, SpecError> {
        let var = |name| get(name).unwrap_or_default();
        let command = Command::parse(&var("CNI_COMMAND"))?;
        let call = Call::from_parts(
            command,
            &var("CNI_CONTAINERID"),
            &var("CNI_NETNS"),
            &var("CNI_IFNAME"),
        )?;
        Ok(Self {
            call,
            args: CniArgs::parse(&var("CNI_ARGS")),
            path: var("CNI_PATH"),
            trace: TraceContext {
                traceparent: var("TRACEPARENT"),
                tracestate: var("TRACESTATE"),
                baggage: var("BAGGAGE"),
            },
        })
    }
}

/// Tells whether the plugin's own namespace may be the container's (CNI-ENV-07).
///
/// It may when `CNI_NETNS_OVERRIDE` is `1` or `true`, in any case.
#[must_use]
pub fn netns_override(get: impl Fn(&str) -> Option<String>) -> bool {
    get("CNI_NETNS_OVERRIDE")
        .is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("true"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// CNI-ENV-10: the IDs of a trace are read, and nothing else is taken for them.
    #[test]
    fn a_trace_has_ids_only_as_w3c_trace_context_writes_them() {
        let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        let of = |traceparent: &str| {
            let context = TraceContext {
                traceparent: traceparent.to_owned(),
                ..TraceContext::default()
            };
            let parent = context.parent()?;
            let ids = [parent.trace, parent.span].map(str::to_owned);
            Some((ids, parent.sampled))
        };
        let ids = |sampled| Some(([trace, span].map(str::to_owned), sampled));
        assert_eq!(of(&format!("00-{trace}-{span}-01")), ids(true));
        assert_eq!(of(&format!("00-{trace}-{span}-02")), ids(false));
        assert_eq!(of(&format!("cc-{trace}-{span}-03-more")), ids(true));
        let zero = "0".repeat(32);
        for wrong in [
            String::new(),
            format!("00-{trace}-{span}"),
            format!("00-{trace}-{span}-01-more"),
            format!("ff-{trace}-{span}-01"),
            format!("00-{zero}-{span}-01"),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-{trace}\n-{span}-01"),
        ] {
            assert_eq!(of(&wrong), None, "{wrong}");
        }
        proof::of!("CNI-ENV-10");
    }

    fn from(pairs: &[(&str, &str)]) -> Result<Invocation, SpecError> {
        let map: BTreeMap<_, _> = pairs.iter().copied().collect();
        Invocation::from_env(|name| map.get(name).map(ToString::to_string))
    }

    const FULL: [(&str, &str); 7] = [
        ("CNI_CONTAINERID", "c1"),
        ("CNI_NETNS", "/run/netns/x"),
        ("CNI_IFNAME", "net1"),
        ("CNI_ARGS", "IP=10.0.0.1"),
        ("CNI_PATH", "/opt/cni/bin"),
        ("TRACEPARENT", "00-a-b-01"),
        ("BAGGAGE", "k=v"),
    ];

    fn with(
        command: &str,
        changes: &[(&'static str, &'static str)],
    ) -> Result<Invocation, SpecError> {
        let mut map: BTreeMap<&str, &str> = FULL.into_iter().collect();
        map.insert("CNI_COMMAND", command);
        map.extend(changes.iter().copied());
        from(&map.into_iter().collect::<Vec<_>>())
    }

    #[test]
    fn all_missing_variables_are_reported_together_cni_env_01() {
        let table: [(&str, Option<&str>); 6] = [
            ("ADD", Some("[CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME]")),
            ("CHECK", Some("[CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME]")),
            ("DEL", Some("[CNI_CONTAINERID,CNI_IFNAME]")),
            ("GC", None),
            ("STATUS", None),
            ("VERSION", None),
        ];
        for (command, expected) in table {
            match (from(&[("CNI_COMMAND", command)]), expected) {
                (Err(error), Some(names)) => {
                    assert_eq!(error.code().0, 4);
                    let text = format!("required env variables {names} missing");
                    assert_eq!(error.to_string(), text, "{command}");
                }
                (Ok(invocation), None) => assert_eq!(invocation.call.command().as_str(), command),
                (other, _) => panic!("{command}: {other:?}"),
            }
        }
        proof::of!("CNI-ENV-01");
    }

    #[test]
    fn empty_is_unset_cni_env_06() {
        let error = with("ADD", &[("CNI_NETNS", ""), ("CNI_IFNAME", "")]).unwrap_err();
        assert!(
            error.to_string().contains("[CNI_NETNS,CNI_IFNAME]"),
            "{error}"
        );
        let gc = with(
            "GC",
            &[
                ("CNI_CONTAINERID", ""),
                ("CNI_NETNS", ""),
                ("CNI_IFNAME", ""),
            ],
        );
        assert_eq!(gc.unwrap().call, Call::Gc);
        let del = with("DEL", &[("CNI_NETNS", "")]).unwrap();
        assert_eq!(del.call.netns(), None);
        proof::of!("CNI-ENV-06");
    }

    #[test]
    fn cni_path_is_never_required_cni_env_05() {
        assert!(with("ADD", &[("CNI_PATH", "")]).is_ok());
        assert!(with("GC", &[("CNI_PATH", "")]).is_ok());
        proof::of!("CNI-ENV-05");
    }

    #[test]
    fn commands_are_spelled_exactly_cni_env_04() {
        for bad in ["add", "Add", "UPDATE", " ADD", "ADD "] {
            let error = with(bad, &[]).unwrap_err();
            assert_eq!(error.to_string(), format!("unknown CNI_COMMAND: {bad}"));
            assert_eq!(error.code().0, 4);
        }
        assert!(matches!(with("", &[]), Err(SpecError::NoCommand)));
        assert!(matches!(from(&[]), Err(SpecError::NoCommand)));
        proof::of!("CNI-ENV-04");
    }

    #[test]
    fn everything_given_is_kept() {
        let invocation = with("ADD", &[]).unwrap();
        assert_eq!(invocation.call.netns(), Some("/run/netns/x"));
        assert_eq!(invocation.call.key().unwrap().to_string(), "c1/net1");
        assert_eq!(invocation.args.get("IP"), Some("10.0.0.1"));
        assert_eq!(invocation.path, "/opt/cni/bin");
        assert_eq!(invocation.trace.traceparent, "00-a-b-01");
        assert_eq!(invocation.trace.baggage, "k=v");
    }

    #[test]
    fn override_is_1_or_true_in_any_case_cni_env_07() {
        let read = |value: &str| netns_override(|_| Some(value.to_owned()));
        assert!(["1", "true", "TRUE", "True"].into_iter().all(read));
        assert!(!["", "0", "yes", "false", "11"].into_iter().any(read));
        assert!(!netns_override(|_| None));
        proof::of!("CNI-ENV-07");
    }

    proptest! {
        #[test]
        fn any_environment_is_read_or_refused_with_code_4(
            values in prop::collection::vec(prop::option::of(".{0,20}"), 5),
        ) {
            let names = ["CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"];
            let env: BTreeMap<_, _> = names
                .into_iter()
                .zip(values)
                .filter_map(|(name, value)| Some((name, value?)))
                .collect();
            if let Err(error) = Invocation::from_env(|name| env.get(name).cloned()) {
                prop_assert_eq!(error.code().0, 4);
            }
        }

        #[test]
        fn valid_parameters_are_kept_as_they_are(
            container in "[a-zA-Z0-9][a-zA-Z0-9_.-]{0,70}",
            netns in "/[a-z0-9/-]{1,40}",
            ifname in "[a-z][a-z0-9@_-]{0,14}",
        ) {
            let call = Call::from_parts(Command::Add, &container, &netns, &ifname).unwrap();
            let key = call.key().unwrap();
            prop_assert_eq!(key.container.as_str(), container.as_str());
            prop_assert_eq!(key.ifname.as_str(), ifname.as_str());
            prop_assert_eq!(call.netns(), Some(netns.as_str()));
        }
    }
}
