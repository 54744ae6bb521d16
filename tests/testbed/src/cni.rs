//! Running the real CNI binary as a runtime does.

use std::collections::BTreeMap;
use std::io::{Seek, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::node::Node;

/// A call being put together; nothing in its environment but what is set here.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    node: &'a Node,
    env: BTreeMap<String, String>,
    stdin: String,
}

impl<'a> Call<'a> {
    /// A call of this command, empty otherwise.
    pub fn new(node: &'a Node, command: &str) -> Self {
        let call = Self {
            node,
            env: BTreeMap::new(),
            stdin: String::new(),
        };
        call.env("CNI_COMMAND", command)
            .env("CNI_PATH", "/opt/cni/bin")
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Unsets a variable.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.env.remove(name);
        self
    }

    /// Sets `CNI_CONTAINERID`.
    #[must_use]
    pub fn container(self, id: &str) -> Self {
        self.env("CNI_CONTAINERID", id)
    }

    /// Sets `CNI_NETNS`.
    #[must_use]
    pub fn netns(self, path: &Path) -> Self {
        let path = path.to_str().expect("a path in UTF-8").to_owned();
        self.env("CNI_NETNS", &path)
    }

    /// Sets `CNI_IFNAME`.
    #[must_use]
    pub fn ifname(self, name: &str) -> Self {
        self.env("CNI_IFNAME", name)
    }

    /// Sets the network configuration.
    #[must_use]
    pub fn conf(self, conf: &Value) -> Self {
        let text = conf.to_string();
        self.stdin(&text)
    }

    /// Sets stdin as it is.
    #[must_use]
    pub fn stdin(mut self, text: &str) -> Self {
        text.clone_into(&mut self.stdin);
        self
    }

    /// Starts the binary in the node's namespace with this stdout.
    pub fn spawn(&self, stdout: Stdio) -> Child {
        let mut stdin = tempfile::tempfile().expect("a file for stdin");
        stdin
            .write_all(self.stdin.as_bytes())
            .and_then(|()| stdin.rewind())
            .expect("a file for stdin");
        let mut command = Command::new(self.node.binaries().cni.as_path());
        command
            .env_clear()
            .envs(&self.env)
            .current_dir("/")
            .stdin(stdin)
            .stdout(stdout)
            .stderr(Stdio::piped());
        self.node
            .netns()
            .run_in(|| command.spawn())
            .expect("the node's namespace can be entered")
            .expect("podnet can be executed")
    }

    /// Runs the binary to its end.
    pub fn run(&self) -> Outcome {
        let child = self.spawn(Stdio::piped());
        let output = child.wait_with_output().expect("podnet ends");
        let what = format!(
            "{} of {}/{}",
            self.env.get("CNI_COMMAND").map_or("", String::as_str),
            self.env.get("CNI_CONTAINERID").map_or("", String::as_str),
            self.env.get("CNI_IFNAME").map_or("", String::as_str),
        );
        Outcome {
            what,
            success: output.status.success(),
            stdout: String::from_utf8(output.stdout).expect("stdout in UTF-8"),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// How a call ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    what: String,
    /// Exit status 0.
    pub success: bool,
    /// All of it.
    pub stdout: String,
    /// All of it.
    pub stderr: String,
}

impl Outcome {
    /// The JSON on stdout of a successful call (CNI-ADD-02).
    ///
    /// # Panics
    /// If the call failed, or stdout is not one JSON object.
    #[track_caller]
    pub fn result(&self) -> Value {
        assert!(self.success, "{} failed: {self}", self.what);
        let value = self.json();
        assert!(value.is_object(), "{}: no object: {self}", self.what);
        value
    }

    #[track_caller]
    fn json(&self) -> Value {
        let value = serde_json::from_str(&self.stdout);
        assert!(value.is_ok(), "{}: stdout is not JSON: {self}", self.what);
        value.unwrap_or_default()
    }

    /// Succeeded, without a byte on stdout (CNI-DEL-07, CNI-CHK-04, CNI-GC-04).
    ///
    /// # Panics
    /// Otherwise.
    #[track_caller]
    pub fn silent(&self) {
        assert!(self.success, "{} failed: {self}", self.what);
        assert!(self.stdout.is_empty(), "{} printed: {self}", self.what);
    }

    /// The error of a failed call (CNI-ERR-01, CNI-ERR-02).
    ///
    /// # Panics
    /// If the call succeeded or did not print a complete error object.
    #[track_caller]
    pub fn error(&self) -> Failure {
        assert!(!self.success, "{} did not fail: {self}", self.what);
        let value = self.json();
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let code = value["code"].as_u64();
        let failure = Failure {
            cni_version: text("cniVersion"),
            code: code.unwrap_or_default(),
            msg: text("msg"),
            details: text("details"),
        };
        assert!(
            failure.code != 0 && !failure.msg.is_empty() && !failure.cni_version.is_empty(),
            "{}: an incomplete error (CNI-ERR-02): {self}",
            self.what
        );
        failure
    }

    /// The error of a call that must fail with this code.
    ///
    /// # Panics
    /// If it did not.
    #[track_caller]
    pub fn fails_with(&self, code: u64) -> Failure {
        let failure = self.error();
        assert_eq!(failure.code, code, "{}: {self}", self.what);
        failure
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "success={} stdout={:?} stderr={:?}",
            self.success, self.stdout, self.stderr
        )
    }
}

/// An error object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// `cniVersion`.
    pub cni_version: String,
    /// `code`.
    pub code: u64,
    /// `msg`.
    pub msg: String,
    /// `details`; empty when absent.
    pub details: String,
}

impl Failure {
    /// Everything a person gets to see.
    pub fn text(&self) -> String {
        format!("{}; {}", self.msg, self.details)
    }

    /// Fails the test unless the text has every one of `words`.
    ///
    /// # Panics
    /// Then.
    #[track_caller]
    pub fn names(&self, words: &[&str]) {
        let text = self.text();
        for word in words {
            assert!(text.contains(word), "{word:?} is not in {text:?}");
        }
    }
}
