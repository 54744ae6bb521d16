//! Running the binary the way a runtime does.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use cni_spec::CniError;
use serde_json::{Value, json};

/// The binary under test.
pub(crate) const PODNET: &str = env!("CARGO_BIN_EXE_podnet");

/// A call with a full environment, to be changed by the test.
#[derive(Debug)]
pub(crate) struct Call {
    command: Command,
    stdin: Vec<u8>,
}

/// Makes a call of `command` for an agent at `socket`, in our own namespace.
///
/// The namespace is allowed.
pub(crate) fn call(command: &str, socket: &Path) -> Call {
    let config = conf(&json!({"socket": socket}));
    bare()
        .env("CNI_COMMAND", command)
        .env("CNI_CONTAINERID", "c1")
        .env("CNI_NETNS", "/proc/self/ns/net")
        .env("CNI_NETNS_OVERRIDE", "1")
        .env("CNI_IFNAME", "net1")
        .env("CNI_PATH", "/opt/cni/bin")
        .stdin(config.to_string())
}

/// Makes a call without HOME and PATH, in the root directory (CNI-ENV-11).
pub(crate) fn bare() -> Call {
    through(Command::new(PODNET))
}

/// A call through another program, a shell for example.
pub(crate) fn through(mut command: Command) -> Call {
    command
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Call {
        command,
        stdin: Vec::new(),
    }
}

/// The smallest configuration with changes on top.
pub(crate) fn conf(changes: &Value) -> Value {
    let mut conf = json!({
        "cniVersion": "1.1.0", "name": "blue", "type": "podnet", "podNetwork": "blue",
    });
    let (Some(conf_map), Some(changes)) = (conf.as_object_mut(), changes.as_object()) else {
        panic!("changes are an object");
    };
    conf_map.extend(changes.clone());
    conf
}

impl Call {
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    pub(crate) fn stdin(mut self, stdin: impl Into<Vec<u8>>) -> Self {
        self.stdin = stdin.into();
        self
    }

    pub(crate) fn stdout(mut self, stdout: Stdio) -> Self {
        self.command.stdout(stdout);
        self
    }

    /// Starts it, with all of its stdin written.
    pub(crate) fn start(mut self) -> Child {
        let mut child = self.command.spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        // A call that fails early does not read its stdin.
        let _ = pipe.write_all(&self.stdin);
        child
    }

    /// Runs it with an open file for stdin.
    pub(crate) fn run_with_stdin(mut self, file: File) -> Done {
        self.command.stdin(file);
        Done(self.command.output().unwrap())
    }

    /// Runs it.
    pub(crate) fn run(self) -> Done {
        wait(self.start())
    }
}

/// Waits for a started call.
pub(crate) fn wait(child: Child) -> Done {
    Done(child.wait_with_output().unwrap())
}

/// A call that has ended.
#[derive(Debug)]
pub(crate) struct Done(pub(crate) Output);

impl Done {
    pub(crate) fn stdout(&self) -> &str {
        str::from_utf8(&self.0.stdout).unwrap()
    }

    pub(crate) fn stderr(&self) -> &str {
        str::from_utf8(&self.0.stderr).unwrap()
    }

    /// It succeeded, and this was all of stdout.
    #[track_caller]
    pub(crate) fn printed(&self, stdout: &str) {
        assert_eq!(self.0.status.code(), Some(0), "{self:?}");
        assert_eq!(self.stdout(), stdout);
    }

    /// Asserts exit code 1 and an error object alone on stdout (CNI-ERR-01).
    #[track_caller]
    pub(crate) fn error(&self) -> CniError {
        assert_eq!(self.0.status.code(), Some(1), "{self:?}");
        let value: Value = serde_json::from_slice(&self.0.stdout).unwrap();
        assert!(value.get("cniVersion").is_some(), "{value}");
        serde_json::from_value(value).unwrap()
    }

    /// As above, with this code.
    #[track_caller]
    pub(crate) fn failed_with(&self, code: u32) -> CniError {
        let error = self.error();
        assert_eq!(error.code.0, code, "{error:?}");
        error
    }
}
