//! Errors of calls of other plugins.

use std::io;
use std::path::PathBuf;

use cni_spec::{CniError, Command, SpecError};

/// Another plugin could not be called, or did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum DelegateError {
    /// A name that leads out of the directories of plugins.
    #[error("{plugin:?} is not the name of a plugin: write it without `/`")]
    Name {
        /// `type` of its configuration.
        plugin: String,
    },
    /// No such program.
    #[error(
        "plugin {plugin} is in no directory of CNI_PATH ({}): install it on the node",
        searched.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    Absent {
        /// `type` of its configuration.
        plugin: String,
        /// Where it was looked for.
        searched: Vec<PathBuf>,
    },
    /// The program could not be started.
    #[error("cannot start plugin {plugin}")]
    Start {
        /// `type` of its configuration.
        plugin: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The program was started, and its input or output broke.
    #[error("cannot speak with plugin {plugin}")]
    Speak {
        /// `type` of its configuration.
        plugin: String,
        /// The system's answer.
        source: io::Error,
    },
    /// It did not end, and was killed with everything it had started.
    #[error("plugin {plugin} did not end {command} within {seconds} s and was killed")]
    TimedOut {
        /// `type` of its configuration.
        plugin: String,
        /// The command that the plugin was called with.
        command: Command,
        /// How long it had.
        seconds: u64,
    },
    /// It said no, in CNI's form.
    #[error("plugin {plugin} failed {command} with code {}: {}{}", error.code, error.msg, details(error))]
    Failed {
        /// `type` of its configuration.
        plugin: String,
        /// The command that the plugin was called with.
        command: Command,
        /// The error that the plugin printed.
        error: CniError,
    },
    /// It failed, and did not say so in CNI's form.
    #[error("plugin {plugin} failed {command} ({status}){}", said(output))]
    Crashed {
        /// `type` of its configuration.
        plugin: String,
        /// The command that the plugin was called with.
        command: Command,
        /// How it ended.
        status: String,
        /// The end of what it printed.
        output: String,
    },
    /// It succeeded, and what it printed is not a result.
    #[error("plugin {plugin} printed no CNI result: {source}")]
    Result {
        /// `type` of its configuration.
        plugin: String,
        /// The reason for which the result is not one.
        source: SpecError,
    },
    /// The configuration is of no version that is spoken here.
    #[error(
        "network {network} has cniVersion {found}: use one of 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, \
         1.0.0, 1.1.0"
    )]
    Version {
        /// `name` of the configuration.
        network: String,
        /// `cniVersion`.
        found: String,
    },
    /// A demanded capability that no plugin declares (NPWG §4.1.2.1.3.2).
    #[error(
        "{key} is asked for and no plugin of network {network} has the capability {capability}: \
         remove it from the pod's list, or declare the capability"
    )]
    Capability {
        /// Where it is asked for.
        key: &'static str,
        /// `name` of the configuration.
        network: String,
        /// Key in `capabilities`.
        capability: &'static str,
    },
    /// More than is kept of one pod and given to its plugins.
    #[error(
        "the configurations of the pod's plugins, with what each is told of the pod, are longer than \
         {most} bytes: name fewer networks, or shorten cni-args and the pod's annotations"
    )]
    TooLong {
        /// Most bytes.
        most: usize,
    },
    /// A configuration that cannot be completed.
    #[error("the configuration of plugin {plugin} cannot be completed: {source}")]
    Conf {
        /// `type` of the plugin.
        plugin: String,
        /// The error of the JSON parser.
        source: serde_json::Error,
    },
}

impl DelegateError {
    /// True when the plugin was not executed, so that there is nothing to undo.
    pub(super) fn is_before_start(&self) -> bool {
        match self {
            Self::Start { .. }
            | Self::Name { .. }
            | Self::Absent { .. }
            | Self::Version { .. }
            | Self::Capability { .. }
            | Self::TooLong { .. }
            | Self::Conf { .. } => true,
            Self::Speak { .. }
            | Self::TimedOut { .. }
            | Self::Failed { .. }
            | Self::Crashed { .. }
            | Self::Result { .. } => false,
        }
    }
}

fn details(error: &CniError) -> String {
    if error.details.is_empty() {
        String::new()
    } else {
        format!("; {}", error.details)
    }
}

fn said(output: &str) -> String {
    if output.is_empty() {
        ", and said nothing".to_owned()
    } else {
        format!(": {output}")
    }
}
