//! Run one call of a plugin as a process, bounded in time, output and number.

use std::borrow::Cow;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use api::Shortened;
use cni_spec::{CniError, Command, TraceContext};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Child;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::error::DelegateError;
use telemetry::LOG_BYTES;

/// Subcommand of the agent's binary that enters a root and becomes the plugin.
pub const STAGE: &str = "exec-plugin";

/// Path by which plugins find programs such as `iptables`.
///
/// The agent's own value is about its own root.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Where plugins are when the runtime does not say.
const PLUGINS: &str = "/opt/cni/bin";
/// Attempts to start a program that is being written, as in libcni (CNI-DLG-06).
pub(super) const BUSY_ATTEMPTS: u32 = 6;
/// Between two of them.
pub(super) const BUSY_PAUSE: Duration = Duration::from_secs(1);
/// Most of what is read of an output, bytes: far above any result.
const OUTPUT_MAX: u64 = 1 << 20;
/// Lines of what it prints that are logged.
const LINES_MAX: usize = 20;
/// The part of an output that an error shows, characters.
const SHOWN: usize = 500;
/// Time for the ends of the pipes to close when the plugin is gone.
///
/// A child that it left behind may hold them.
const PIPES: Duration = Duration::from_secs(1);

/// Environment of a plugin (CNI-DLG-01).
///
/// For the commands that are about no container the values are empty, as libcni has it (CNI-ENV-06).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PluginEnv {
    /// `CNI_CONTAINERID`.
    pub container: String,
    /// `CNI_NETNS`; empty when the namespace is gone.
    pub netns: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `CNI_ARGS`.
    pub args: String,
    /// `CNI_PATH`.
    pub path: String,
    /// The caller's trace.
    pub trace: TraceContext,
}

impl PluginEnv {
    fn pairs(&self, command: Command) -> Vec<(&'static str, &str)> {
        let mut pairs = vec![
            ("CNI_COMMAND", command.as_str()),
            ("CNI_CONTAINERID", self.container.as_str()),
            ("CNI_NETNS", &self.netns),
            ("CNI_IFNAME", &self.ifname),
            ("CNI_ARGS", &self.args),
            ("CNI_PATH", self.search_path()),
            ("PATH", PATH),
        ];
        let trace = [
            ("TRACEPARENT", self.trace.traceparent.as_str()),
            ("TRACESTATE", &self.trace.tracestate),
            ("BAGGAGE", &self.trace.baggage),
        ];
        pairs.extend(trace.into_iter().filter(|(_, value)| !value.is_empty()));
        pairs
    }

    pub(super) fn search_path(&self) -> &str {
        if self.path.is_empty() {
            PLUGINS
        } else {
            &self.path
        }
    }
}

/// Where and within which bounds plugins run.
#[derive(Debug)]
pub struct Runner {
    host_root: PathBuf,
    patience: Duration,
    permits: Semaphore,
    /// Where plugins are, whatever a request says.
    plugins: Option<String>,
}

impl Runner {
    /// Makes a runner of plugins with `host_root` as root and `patience` as time limit.
    ///
    /// Not more than `most` run at once: each is a process of its own, and pods come in bursts
    /// (PAIN-MEM-1).
    pub fn new(host_root: PathBuf, patience: Duration, most: usize) -> Self {
        Self {
            host_root,
            patience,
            permits: Semaphore::new(most),
            plugins: None,
        }
    }

    /// Limits the plugins to those of this directory.
    ///
    /// The caller of the agent's socket then does not choose the programs that are executed as root of
    /// the node.
    #[must_use]
    pub fn with_plugins(mut self, directory: Option<&Path>) -> Self {
        self.plugins = directory.map(|directory| directory.display().to_string());
        self
    }

    /// Root of all paths, as the plugins see them.
    pub fn host_root(&self) -> &Path {
        &self.host_root
    }

    /// Calls a plugin; what it printed.
    ///
    /// # Errors
    /// When it cannot be called, takes too long, or fails.
    pub async fn call(
        &self,
        plugin: &str,
        command: Command,
        env: &PluginEnv,
        stdin: &str,
    ) -> Result<String, DelegateError> {
        let mut env = Cow::Borrowed(env);
        if let Some(plugins) = &self.plugins
            && env.path != *plugins
        {
            tracing::debug!(
                plugin,
                asked = env.path,
                used = plugins,
                "the plugin's CNI_PATH is not that of the agent, and is ignored"
            );
            env.to_mut().path.clone_from(plugins);
        }
        let env = env.as_ref();
        let program = self.find(plugin, env.search_path())?;
        // Never closed.
        let _permit = self.permits.acquire().await;
        let mut child =
            self.start(&program, command, env)
                .await
                .map_err(|source| DelegateError::Start {
                    plugin: plugin.to_owned(),
                    source,
                })?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let mut reaper = Reaper(group);
        let conversation = converse(&mut child, stdin);
        let Ok(ended) = timeout(self.patience, conversation).await else {
            return Err(DelegateError::TimedOut {
                plugin: plugin.to_owned(),
                command,
                seconds: self.patience.as_secs(),
            });
        };
        let Ended {
            status,
            stdout,
            stderr,
        } = ended.map_err(|source| DelegateError::Speak {
            plugin: plugin.to_owned(),
            source,
        })?;
        // Its number may be another's from now on.
        reaper.0 = None;
        log_lines(plugin, command, &stderr);
        if status.success() {
            return Ok(stdout);
        }
        Err(refusal(plugin, command, status, &stdout, &stderr))
    }

    /// Finds the first regular file of this name in `CNI_PATH` (CNI-CONF-10).
    pub(super) fn find(&self, plugin: &str, path: &str) -> Result<PathBuf, DelegateError> {
        let mut parts = Path::new(plugin).components();
        let one_name = matches!(
            (parts.next(), parts.next()),
            (Some(Component::Normal(name)), None) if name == plugin
        );
        if !one_name {
            return Err(DelegateError::Name {
                plugin: plugin.to_owned(),
            });
        }
        let searched: Vec<PathBuf> = std::env::split_paths(path)
            .filter(|dir| !dir.as_os_str().is_empty())
            .collect();
        let found = searched.iter().map(|dir| dir.join(plugin)).find(|program| {
            std::fs::metadata(self.seen(program))
                .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        });
        found.ok_or_else(|| DelegateError::Absent {
            plugin: plugin.to_owned(),
            searched,
        })
    }

    /// A path of the host as this process sees it.
    pub fn seen(&self, path: &Path) -> PathBuf {
        self.host_root.join(path.strip_prefix("/").unwrap_or(path))
    }

    async fn start(&self, program: &Path, command: Command, env: &PluginEnv) -> io::Result<Child> {
        let mut process = if self.host_root == Path::new("/") {
            tokio::process::Command::new(program)
        } else {
            let mut stage = tokio::process::Command::new("/proc/self/exe");
            stage
                .args([STAGE, "--host-root"])
                .arg(&self.host_root)
                .arg(program);
            stage
        };
        process
            .env_clear()
            .envs(env.pairs(command))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        for _ in 1..BUSY_ATTEMPTS {
            match process.spawn() {
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                    sleep(BUSY_PAUSE).await;
                }
                other => return other,
            }
        }
        process.spawn()
    }
}

/// Kills a plugin that did not end, and all it has started.
struct Reaper(Option<Pid>);

impl Drop for Reaper {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // Nobody is left in it, which is as it should be.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Logs the first lines that a plugin has printed, at most `LINES_MAX`.
///
/// A configuration may have it print any number.
fn log_lines(plugin: &str, command: Command, printed: &str) {
    let mut lines = printed.lines().filter(|line| !line.trim().is_empty());
    for line in lines.by_ref().take(LINES_MAX) {
        let line = Shortened(line, LOG_BYTES);
        tracing::info!(plugin, %command, %line, "a plugin wrote to stderr");
    }
    let more = lines.count();
    if more > 0 {
        tracing::info!(plugin, %command, more, "a plugin wrote more to stderr than is logged");
    }
}

struct Ended {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

async fn converse(child: &mut Child, stdin: &str) -> io::Result<Ended> {
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut input) = input {
            // A plugin need not read it all.
            let _ = input.write_all(stdin.as_bytes()).await;
        }
    };
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let status = {
        let read =
            async { tokio::join!(write, read(output, &mut stdout), read(errors, &mut stderr)) };
        tokio::pin!(read);
        tokio::select! {
            (_, out, err) = &mut read => {
                out.and(err)?;
                child.wait().await?
            }
            status = child.wait() => {
                // What it has printed is in the pipes; what holds them open after it is not waited for.
                if let Ok((_, out, err)) = timeout(PIPES, &mut read).await {
                    out.and(err)?;
                }
                status?
            }
        }
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Ended {
        status,
        stdout: text(&stdout),
        stderr: text(&stderr),
    })
}

async fn read(from: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) -> io::Result<()> {
    let Some(from) = from else { return Ok(()) };
    from.take(OUTPUT_MAX).read_to_end(into).await.map(|_| ())
}

/// The error object on stdout, or whatever else the plugin said (CNI-ERR-01).
fn refusal(
    plugin: &str,
    command: Command,
    status: ExitStatus,
    stdout: &str,
    stderr: &str,
) -> DelegateError {
    let plugin = plugin.to_owned();
    if let Ok(said) = serde_json::from_str::<CniError>(stdout) {
        // No more of its words than of ours.
        let error = CniError::new(said.cni_version, said.code, said.msg, said.details);
        return DelegateError::Failed {
            plugin,
            command,
            error,
        };
    }
    let output = [stdout, stderr].map(str::trim);
    let output = output.into_iter().find(|text| !text.is_empty());
    DelegateError::Crashed {
        plugin,
        command,
        status: status.to_string(),
        output: output.map(tail).unwrap_or_default().to_owned(),
    }
}

fn tail(text: &str) -> &str {
    let count = text.chars().count();
    let mut indices = text.char_indices();
    match indices.nth(count.saturating_sub(SHOWN)) {
        Some((start, _)) => text.get(start..).unwrap_or_default(),
        None => text,
    }
}
