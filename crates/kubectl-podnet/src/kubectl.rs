//! Run kubectl, with a limit of its time and of its output.

use std::io::{self, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::cli::Connection;
use crate::error::PluginError;

/// Bytes of an answer at most.
///
/// Tables of a node with 32768 ports have a third of it.
const ANSWER: u64 = 64 << 20;
/// Bytes of a complaint that are shown.
const COMPLAINT: u64 = 4096;

/// kubectl, and the way to the cluster.
#[derive(Debug, Clone)]
pub(crate) struct Kubectl {
    program: PathBuf,
    global: Vec<String>,
    /// Namespace of pods that are named without one.
    pub(crate) namespace: Option<String>,
    /// Namespace of podnet.
    pub(crate) podnet: String,
    timeout: Duration,
}

/// The output of a command, maybe cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    /// Its bytes as far as they were read.
    pub(crate) bytes: Vec<u8>,
    /// Whether there was more.
    pub(crate) cut: bool,
}

impl Kubectl {
    /// With the options of a command line.
    pub(crate) fn new(options: &Connection) -> Self {
        let mut global = Vec::new();
        let mut option = |name: &str, value: Option<String>| {
            global.extend(value.map(|value| format!("--{name}={value}")));
        };
        let path = |path: &PathBuf| path.display().to_string();
        option("kubeconfig", options.kubeconfig.as_ref().map(path));
        option("context", options.context.clone());
        option("cluster", options.cluster.clone());
        option("user", options.user.clone());
        option("as", options.impersonate.clone());
        for group in &options.impersonate_groups {
            option("as-group", Some(group.clone()));
        }
        Self {
            program: options.kubectl.clone(),
            global,
            namespace: options.namespace.clone(),
            podnet: options.podnet_namespace.clone(),
            timeout: Duration::from_secs(options.timeout),
        }
    }

    /// The command, to be started by the caller.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.global).args(arguments);
        command
    }

    /// Starts a command whose output the caller reads.
    ///
    /// # Errors
    /// kubectl cannot be started.
    pub(crate) fn spawn(&self, command: &mut Command) -> Result<Child, PluginError> {
        command.spawn().map_err(|source| PluginError::Start {
            program: self.program.display().to_string(),
            source,
        })
    }

    /// Its whole output.
    ///
    /// # Errors
    /// kubectl fails, takes too long, or prints too much.
    pub(crate) fn text(&self, arguments: &[&str]) -> Result<String, PluginError> {
        let text = self.limited(arguments, ANSWER)?;
        if text.cut {
            return Err(PluginError::Long {
                command: self.show(arguments),
                limit: ANSWER,
            });
        }
        Ok(String::from_utf8_lossy(&text.bytes).into_owned())
    }

    /// Its output as JSON.
    ///
    /// # Errors
    /// As [`Self::text`], or it prints something else.
    pub(crate) fn json(&self, arguments: &[&str]) -> Result<Value, PluginError> {
        let text = self.text(arguments)?;
        serde_json::from_str(&text).map_err(|error| self.form(arguments, &error.to_string()))
    }

    /// The error about an output of another form.
    pub(crate) fn form(&self, arguments: &[&str], reason: &str) -> PluginError {
        PluginError::Form {
            command: self.show(arguments),
            reason: reason.to_owned(),
        }
    }

    /// The first bytes of its output.
    ///
    /// # Errors
    /// kubectl fails, or takes too long.
    pub(crate) fn limited(&self, arguments: &[&str], limit: u64) -> Result<Text, PluginError> {
        let mut child = self.spawn(
            self.command(arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
        )?;
        let output = reader(child.stdout.take(), limit);
        let complaint = reader(child.stderr.take(), COMPLAINT);
        // Both ends of the pipes are gone when it has ended; whatever it started may hold them open.
        let Ok(output) = output.recv_timeout(self.timeout) else {
            end(&mut child);
            return Err(PluginError::Late {
                command: self.show(arguments),
                seconds: self.timeout.as_secs(),
            });
        };
        if output.cut {
            end(&mut child);
            return Ok(output);
        }
        let complaint = complaint.recv_timeout(self.timeout);
        let status = child.wait().map_err(|source| PluginError::Start {
            program: self.program.display().to_string(),
            source,
        })?;
        if status.success() {
            return Ok(output);
        }
        let complaint = complaint.map(|text| text.bytes).unwrap_or_default();
        let complaint = String::from_utf8_lossy(&complaint).trim().to_owned();
        Err(PluginError::Kubectl {
            command: self.show(arguments),
            complaint: if complaint.is_empty() {
                status.to_string()
            } else {
                complaint
            },
        })
    }

    /// The command as a user would type it.
    pub(crate) fn show(&self, arguments: &[&str]) -> String {
        let mut words = vec!["kubectl".to_owned()];
        words.extend(self.global.iter().cloned());
        words.extend(arguments.iter().map(|&word| word.to_owned()));
        words.join(" ")
    }

    /// The longest time of a question.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }
}

/// Kills and reaps a child, which may have ended already.
pub(crate) fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Reads a pipe on a thread of its own, up to a limit.
fn reader(pipe: Option<impl io::Read + Send + 'static>, limit: u64) -> mpsc::Receiver<Text> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let most = limit.saturating_add(1);
        // A pipe that cannot be read has ended.
        let _ = pipe.map(|pipe| pipe.take(most).read_to_end(&mut bytes));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let cut = bytes.len() > limit;
        bytes.truncate(limit);
        // Nobody waits any more when it was too late.
        let _ = sender.send(Text { bytes, cut });
    });
    receiver
}
