//! Running `cnitool` on a scratch node.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testbed::{Node, Pod, Port, skip};

/// Directories of the reference plugins: of Debian's package, and of all others.
const PLUGINS: [&str; 2] = ["/usr/lib/cni", "/opt/cni/bin"];
/// Gives the program its own `/var/lib`, with mounts that no other process sees.
const PRIVATE_STATE: &str = r#"mount --bind "$1" /var/lib && shift && exec "$@""#;

/// Others' programs, found on this machine.
#[derive(Debug)]
pub(crate) struct Tools {
    cnitool: PathBuf,
    plugins: Option<PathBuf>,
}

impl Tools {
    /// `cnitool` and these reference plugins; says so when something is not there.
    pub(crate) fn find(test: &str, wanted: &[&str]) -> Option<Self> {
        let cnitool = cnitool();
        if !cnitool.is_file() {
            // `cargo xtask test` knows why it could not be built.
            let why = env::var("PODNET_NO_CNITOOL").map_or(String::new(), |why| format!(": {why}"));
            skip::skip(test, &format!("needs cnitool{why}"));
            return None;
        }
        let plugins = PLUGINS.map(PathBuf::from).into_iter().find(|dir| {
            let mut all = wanted.iter().map(|name| dir.join(name));
            all.all(|plugin| plugin.is_file())
        });
        if plugins.is_none() && !wanted.is_empty() {
            let names = wanted.join(", ");
            skip::skip(test, &format!("needs the reference plugins {names}"));
            return None;
        }
        Some(Self { cnitool, plugins })
    }

    /// A directory of configurations and a memory of its own for this node.
    pub(crate) fn on<'a>(&self, node: &'a Node) -> Libcni<'a> {
        let libcni = Libcni {
            node,
            cnitool: self.cnitool.clone(),
            cni_path: self.cni_path(node),
        };
        for dir in ["net.d", "var-lib"] {
            fs::create_dir(node.path(dir)).expect("a directory of the node");
        }
        libcni
    }

    fn cni_path(&self, node: &Node) -> OsString {
        let ours = node.path("bin");
        fs::create_dir(&ours).expect("a directory of the node");
        symlink(&node.binaries().cni, ours.join("podnet")).expect("a link to podnet");
        let dirs = [Some(ours), self.plugins.clone()];
        env::join_paths(dirs.into_iter().flatten()).expect("paths without a colon")
    }
}

/// Returns `cnitool`, from `cargo xtask test` or `PODNET_CNITOOL`.
fn cnitool() -> PathBuf {
    env::var_os("PODNET_CNITOOL").map_or_else(
        || {
            let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
            let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
            target
                .unwrap_or_else(|| tests.with_file_name("target"))
                .join("tools/bin/cnitool")
        },
        PathBuf::from,
    )
}

/// libcni as the runtime of one node.
#[derive(Debug)]
pub(crate) struct Libcni<'a> {
    node: &'a Node,
    cnitool: PathBuf,
    cni_path: OsString,
}

impl Libcni<'_> {
    /// The entry of podnet in a list; the list gives the name and the version.
    pub(crate) fn podnet(&self, network: &str) -> Value {
        let mut conf = self.node.conf(network);
        let fields = conf.as_object_mut().expect("an object");
        fields.remove("cniVersion");
        fields.remove("name");
        conf
    }

    /// Writes a network with this chain of plugins.
    ///
    /// Its version is the newest that the neighbours speak.
    pub(crate) fn chain(&self, name: &str, plugins: &[Value]) {
        self.list(&json!({"cniVersion": "1.0.0", "name": name, "plugins": plugins}));
    }

    /// A network of podnet alone, in version 1.1.0.
    pub(crate) fn alone(&self, network: &str) {
        let plugins = [self.podnet(network)];
        self.list(&json!({"cniVersion": "1.1.0", "name": network, "plugins": plugins}));
    }

    /// Writes a configuration list as it is.
    pub(crate) fn list(&self, list: &Value) {
        let name = list["name"].as_str().expect("a list has a name");
        let path = self.node.path("net.d").join(format!("{name}.conflist"));
        fs::write(path, list.to_string()).expect("a configuration can be written");
    }

    /// A call for a pod's interface.
    pub(crate) fn call(&self, verb: &str, network: &str, pod: &Pod<'_>, ifname: &str) -> Call {
        self.call_at(verb, network, pod.path(), ifname)
    }

    fn call_at(&self, verb: &str, network: &str, netns: &Path, ifname: &str) -> Call {
        let mut call = self.network(verb, network);
        call.command.arg(netns).env("CNI_IFNAME", ifname);
        call
    }

    /// A call for an interface in what was a namespace, run to its end.
    pub(crate) fn run_at(&self, verb: &str, network: &str, netns: &Path, ifname: &str) -> Ended {
        self.call_at(verb, network, netns, ifname).run(self.node)
    }

    /// `gc` or `status`, which are about no pod; the tool wants a path all the same.
    pub(crate) fn of_network(&self, verb: &str, network: &str) -> Ended {
        let mut call = self.network(verb, network);
        call.command.arg("/nowhere");
        call.run(self.node)
    }

    fn network(&self, verb: &str, network: &str) -> Call {
        let mut command = Command::new("unshare");
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("CNI_PATH", &self.cni_path)
            .env("NETCONFPATH", self.node.path("net.d"))
            .args(["--mount", "--propagation", "private", "sh", "-c"])
            .args([PRIVATE_STATE, "sh"])
            .arg(self.node.path("var-lib"))
            .arg(&self.cnitool)
            .args([verb, network])
            .stdin(Stdio::null());
        Call {
            what: format!("{verb} {network}"),
            command,
        }
    }

    /// A call for a pod's interface, run to its end.
    pub(crate) fn run(&self, verb: &str, network: &str, pod: &Pod<'_>, ifname: &str) -> Ended {
        self.call(verb, network, pod, ifname).run(self.node)
    }

    /// A successful `add`.
    #[track_caller]
    pub(crate) fn attach(&self, network: &str, pod: &Pod<'_>, ifname: &str) -> Port {
        let result = self.run("add", network, pod, ifname).result();
        let mut port = pod.port(network, ifname, result);
        port.container = self.container(pod);
        port
    }

    /// How the tool calls the container behind a path: the agent was told.
    fn container(&self, pod: &Pod<'_>) -> String {
        let listed = self.node.get("attachments").into_iter();
        let mut ours = listed.filter(|entry| entry["netns"].as_str() == pod.path().to_str());
        let entry = ours
            .next()
            .expect("the agent holds what libcni has attached");
        entry["container"].as_str().unwrap_or_default().to_owned()
    }

    /// `del`, twice, after which the pod has no link.
    #[track_caller]
    pub(crate) fn detach(&self, network: &str, pod: &Pod<'_>, ifname: &str) {
        for _ in 0..2 {
            self.run("del", network, pod, ifname).silent();
            assert_eq!(pod.links(), Vec::<String>::new());
        }
    }
}

/// A call to be completed.
#[derive(Debug)]
pub(crate) struct Call {
    what: String,
    command: Command,
}

impl Call {
    /// `CAP_ARGS`: what the runtime would give for capabilities.
    pub(crate) fn cap_args(mut self, args: &Value) -> Self {
        self.command.env("CAP_ARGS", args.to_string());
        self
    }

    /// `CNI_ARGS`.
    pub(crate) fn cni_args(mut self, args: &str) -> Self {
        self.command.env("CNI_ARGS", args);
        self
    }

    /// Runs the tool to its end, in the node's network namespace.
    pub(crate) fn run(mut self, node: &Node) -> Ended {
        let output = node.netns().run_in(|| self.command.output());
        let output = output.expect("the node's namespace can be entered");
        let output = output.expect("unshare(1) can be executed");
        Ended {
            what: self.what,
            success: output.status.success(),
            stdout: String::from_utf8(output.stdout).expect("stdout in UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("stderr in UTF-8"),
        }
    }
}

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Ended {
    #[expect(dead_code, reason = "shown when a test fails")]
    what: String,
    success: bool,
    stdout: String,
    stderr: String,
}

impl Ended {
    /// Returns the result that libcni printed after a successful `add`.
    #[track_caller]
    pub(crate) fn result(&self) -> Value {
        assert!(self.success, "{self:?}");
        let result = serde_json::from_str(&self.stdout);
        assert!(result.is_ok(), "{self:?}");
        result.unwrap_or_default()
    }

    /// Succeeded with nothing to say but on stderr.
    #[track_caller]
    pub(crate) fn succeeds(&self) {
        assert!(self.success && self.stdout.is_empty(), "{self:?}");
    }

    /// Succeeded with nothing to say.
    #[track_caller]
    pub(crate) fn silent(&self) {
        assert!(
            self.success && self.stdout.is_empty() && self.stderr.is_empty(),
            "{self:?}"
        );
    }

    /// Failed, and a person is told each of these words.
    #[track_caller]
    pub(crate) fn fails_with(&self, words: &[&str]) {
        assert!(!self.success, "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "no {word:?} in {self:?}");
        }
    }
}
