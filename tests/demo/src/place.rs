//! Keep the files of a demo, and remove all that any demo has left.
//!
//! This does not depend on its user, nor on how it ended.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use netdev::NamedNetns;
use rustix::process::{Pid, Signal, kill_process};

/// Directories and namespaces of demos start so, and go on with the demo's number.
const PREFIX: &str = "podnet-demo-";
/// Where `ip netns` looks for names.
const NAMES: &str = "/run/netns";
/// How long the agent may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// The names of everything one demo makes.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    name: String,
}

impl Place {
    /// The place of this process.
    pub(crate) fn own() -> Self {
        Self {
            name: format!("{PREFIX}{}", std::process::id()),
        }
    }

    /// Lists the places of earlier demos: kept ones, and those of killed demos.
    pub(crate) fn all() -> Result<Vec<Self>> {
        let temp = std::env::temp_dir();
        let entries = fs::read_dir(&temp).with_context(|| format!("reading {}", temp.display()))?;
        let mut places = Vec::new();
        for entry in entries {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.starts_with(PREFIX) {
                places.push(Self { name });
            }
        }
        places.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(places)
    }

    /// Directory of everything that is a file.
    pub(crate) fn dir(&self) -> PathBuf {
        std::env::temp_dir().join(&self.name)
    }

    /// A file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    /// Where the agent listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir().join("run/agent.sock")
    }

    /// Where the agent pins.
    pub(crate) fn bpffs(&self) -> PathBuf {
        Path::new("/sys/fs/bpf").join(&self.name)
    }

    /// A network namespace, named as `ip netns` does.
    pub(crate) fn netns(&self, name: &str) -> PathBuf {
        Path::new(NAMES).join(self.netns_name(name))
    }

    /// Returns the name for `ip netns exec`.
    pub(crate) fn netns_name(&self, name: &str) -> String {
        // The whole prefix would make commands long that people type.
        format!("demo-{}-{name}", self.number())
    }

    fn number(&self) -> &str {
        self.name.strip_prefix(PREFIX).unwrap_or(&self.name)
    }

    /// Makes the directory, and takes its lock, which says that a demo is at work.
    ///
    /// It is the demo's as long as the file is open.
    pub(crate) fn create(&self) -> Result<File> {
        let dir = self.dir();
        let failed = || format!("making {}", dir.display());
        fs::create_dir(&dir).with_context(failed)?;
        for part in ["manifests", "run", "state"] {
            fs::create_dir(dir.join(part)).with_context(failed)?;
        }
        let lock = File::create(dir.join("lock")).with_context(failed)?;
        lock.lock().with_context(failed)?;
        Ok(lock)
    }

    /// Whether a demo is at work there.
    pub(crate) fn is_busy(&self) -> bool {
        let Ok(lock) = File::open(self.file("lock")) else {
            return false;
        };
        matches!(lock.try_lock(), Err(fs::TryLockError::WouldBlock))
    }

    /// Everything there is of it now, named for people.
    pub(crate) fn contents(&self) -> Vec<String> {
        let mut found = Vec::new();
        for pid in self.processes() {
            found.push(format!("process {}", pid.as_raw_nonzero()));
        }
        for path in self.namespaces() {
            found.push(format!("network namespace {}", path.display()));
        }
        for path in [self.bpffs(), self.dir()] {
            if path.exists() {
                found.push(format!("directory {}", path.display()));
            }
        }
        found
    }

    /// Removes everything; what is gone already is no error.
    ///
    /// # Errors
    /// Something is left, and what.
    pub(crate) fn remove(&self) -> Result<()> {
        self.end_processes()?;
        // Links go with their namespaces, and pins of links with their links.
        for path in self.namespaces() {
            NamedNetns::remove(&path).with_context(|| format!("removing {}", path.display()))?;
        }
        for path in [self.bpffs(), self.dir()] {
            match fs::remove_dir_all(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("removing {}", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn namespaces(&self) -> Vec<PathBuf> {
        let prefix = self.netns_name("");
        let entries = fs::read_dir(NAMES).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.path())
            .filter(|path| {
                let name = path.file_name().unwrap_or_default();
                name.to_string_lossy().starts_with(&prefix)
            })
            .collect()
    }

    /// Lists the processes of the demo's agent and switch.
    ///
    /// They live: a socket of theirs is in the directory, and their command lines say so.
    fn processes(&self) -> Vec<Pid> {
        let sockets = self.dir().join("run");
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        processes
            .filter_map(|entry| {
                let number = entry.file_name().to_str()?.parse().ok()?;
                let command = fs::read(entry.path().join("cmdline")).ok()?;
                let is_ours = command
                    .split(|byte| *byte == 0)
                    .any(|word| Path::new(OsStr::from_bytes(word)).starts_with(&sockets));
                Pid::from_raw(number).filter(|_| is_ours)
            })
            .collect()
    }

    fn end_processes(&self) -> Result<()> {
        for signal in [Signal::TERM, Signal::KILL] {
            for pid in self.processes() {
                // It may end at this very moment.
                let _ = kill_process(pid, signal);
            }
            let end = Instant::now() + PATIENCE;
            while Instant::now() < end {
                if self.processes().is_empty() {
                    return Ok(());
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
        bail!("processes {:?} do not end", self.processes());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_place_is_busy_as_long_as_its_demo_lives_and_removed_as_a_whole() {
        let place = Place {
            name: format!("{PREFIX}test-{}", std::process::id()),
        };
        let lock = place.create().unwrap();
        assert!(place.is_busy());
        drop(lock);
        assert!(!place.is_busy());
        assert!(place.processes().is_empty());
        assert_eq!(place.contents().len(), 1);
        let socket = place.file("run/switch.sock");
        let mut process = Command::new("sh")
            .args(["-c", "echo ready; read line", "sh"])
            .arg(&socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The kernel lets us go on when it has thrown the old command line away, before it has the new one.
        let mut line = String::new();
        let stdout = process.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        assert_eq!(place.contents().len(), 2, "{:?}", place.contents());
        let ended = thread::spawn(move || process.wait());
        place.remove().unwrap();
        ended.join().unwrap().unwrap();
        assert!(place.contents().is_empty());
    }
}
