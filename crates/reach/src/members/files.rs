//! Members as files, where there is no API server: each node writes one.
//!
//! A node reads the files of the others.
//!
//! The directory is shared by the nodes in whatever way; a file appears in it as a whole, under the
//! name of its node, and goes with the node's last member.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use api::{EndpointSlice, PodNetworkEndpointSlice};
use cni_spec::digest::digest;
use remotes::Remotes;
use telemetry::chain;
use tokio::sync::{mpsc, watch};
use world::watched;

use super::{Membership, Pods, Slices, divide, of, published, spec};

/// Time within which several events of a file are one change.
const SETTLE: Duration = Duration::from_millis(20);
/// Time to the next attempt at a file that could not be written.
const RETRY: Duration = Duration::from_secs(1);

/// Slices of this node, by network.
type Published = BTreeMap<String, Slices>;

impl Membership {
    /// Write this node's members into the directory whenever they change, for ever.
    ///
    /// The first time once `ready` says that they are known.
    pub async fn publish(&self, directory: &Path, mut ready: watch::Receiver<bool>) {
        // What runs here is not known before, and what was said of it still holds.
        // The sender lives as long as the self.
        let _ = ready.wait_for(|ready| *ready).await;
        let own = own_file(directory, &self.name);
        let (mut slices, mut written) = read_own(&own);
        let mut changes = self.book.ledger().changes();
        let mut vteps = self.remotes.vtep_changes();
        let mut policies = self.policies.changes();
        loop {
            changes.mark_unchanged();
            vteps.mark_unchanged();
            policies.mark_unchanged();
            let text = self.describe(&mut slices);
            if written.as_ref() != Some(&text) {
                match write(&own, &text) {
                    Ok(()) => written = Some(text),
                    Err(error) => {
                        let file = own.display();
                        tracing::error!(%file, %error, "the members of this node are not published, trying again");
                        tokio::time::sleep(RETRY).await;
                        continue;
                    }
                }
            }
            tokio::select! {
                // These senders live as long as the self.
                _ = changes.changed() => {}
                _ = vteps.changed() => {}
                _ = policies.changed() => {}
            }
            tokio::time::sleep(SETTLE).await;
        }
    }

    /// The text of the file; empty when there is nothing to say.
    fn describe(&self, slices: &mut Published) -> String {
        let pods = Pods {
            named: self.policies.get().names_networks(),
            labels: true,
        };
        let members = of(&self.book.ledger(), pods);
        let vteps = self.remotes.vteps();
        slices.retain(|network, _| members.contains_key(network));
        let mut text = String::new();
        for (network, here) in members {
            let known = slices.entry(network.clone()).or_default();
            *known = divide(known, &here.members, &BTreeSet::new(), pods, |mac, ips| {
                self.remotes.date_of_claim(here.id, mac, ips)
            });
            if vteps.is_empty() {
                continue;
            }
            for (number, endpoints) in known {
                let spec = spec(&network, here.id, &self.name, &vteps, endpoints);
                let slice = PodNetworkEndpointSlice::numbered(*number, spec);
                // JSON is YAML, and its names were checked when the agent started.
                let slice = slice.ok().and_then(|it| serde_json::to_string(&it).ok());
                if let Some(slice) = slice {
                    text.push_str("---\n");
                    text.push_str(&slice);
                    text.push('\n');
                }
            }
        }
        text
    }

    /// Follows the files of the other nodes, for ever.
    ///
    /// # Errors
    /// When the kernel does not let us watch.
    pub async fn follow(&self, directory: &Path) -> Result<(), notify::Error> {
        let (changed, mut changes) = mpsc::channel(1);
        let _watcher = watched(directory, changed)?;
        tracing::warn!(
            directory = %directory.display(),
            "without a cluster nothing proves what is said here of members on other nodes: it is taken as it is"
        );
        let mut files = Files::new(own_file(directory, &self.name));
        loop {
            // The first time for what changed before it was watched.
            match files.read(directory, &self.remotes) {
                // Until then the tables keep what they say of other nodes.
                Ok(()) => self.remotes.set_complete(),
                Err(error) => {
                    let directory = directory.display();
                    tracing::error!(%directory, %error, "the members of other nodes cannot be read, trying again");
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            }
            if changes.recv().await.is_none() {
                return Ok(());
            }
            tokio::time::sleep(SETTLE).await;
            let _ = changes.try_recv();
        }
    }
}

/// Reads the slices that this node wrote before its restart.
///
/// A member that goes on keeps the time of its claim.
fn read_own(own: &Path) -> (Published, Option<String>) {
    let text = match fs::read_to_string(own) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return (Published::new(), Some(String::new()));
        }
        Err(error) => {
            tracing::warn!(file = %own.display(), %error, "the file of this node's members cannot be read, and is written again");
            return (Published::new(), None);
        }
    };
    let mut by_network: BTreeMap<String, BTreeMap<u32, EndpointSlice>> = BTreeMap::new();
    let parsed = api::parse_endpoint_slices(&own.display().to_string(), &text);
    for (name, slice) in parsed.into_iter().flatten() {
        let number = name.rsplit_once('.').and_then(|(_, it)| it.parse().ok());
        if let Some(number) = number {
            let of_network = by_network.entry(slice.network.clone()).or_default();
            of_network.insert(number, slice);
        }
    }
    let slices = by_network.into_iter().map(|(network, slices)| {
        let slices = slices.iter().map(|(number, slice)| (*number, slice));
        (network, published(slices))
    });
    (slices.collect(), Some(text))
}

/// Puts the file there as a whole, or takes it away.
fn write(own: &Path, text: &str) -> Result<(), io::Error> {
    if text.is_empty() {
        return match fs::remove_file(own) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    }
    let name = own.file_name().unwrap_or_default();
    let mut hidden = OsString::from(".");
    hidden.push(name);
    let hidden = own.with_file_name(hidden);
    fs::write(&hidden, text)?;
    fs::rename(&hidden, own)
}

fn own_file(directory: &Path, node: &str) -> PathBuf {
    directory.join(format!("{node}.yaml"))
}

/// The files of other nodes, as they were last read.
#[derive(Debug)]
struct Files {
    own: PathBuf,
    known: BTreeMap<PathBuf, Known>,
}

/// One file.
#[derive(Debug)]
struct Known {
    /// Of its text: the same text says the same.
    digest: u64,
    /// Names of what it says.
    sources: BTreeSet<String>,
}

impl Files {
    fn new(own: PathBuf) -> Self {
        Self {
            own,
            known: BTreeMap::new(),
        }
    }

    /// Reads what is there now.
    ///
    /// # Errors
    /// The directory cannot be listed, and nothing has changed. A file that cannot be read is told in
    /// the log.
    fn read(&mut self, directory: &Path, remotes: &Remotes) -> Result<(), io::Error> {
        let found = list(directory)?;
        self.known.retain(|path, known| {
            let stays = found.contains(path);
            if !stays {
                forget(remotes, &known.sources);
            }
            stays
        });
        for path in found.into_iter().filter(|path| *path != self.own) {
            let text = match fs::read_to_string(&path) {
                Ok(text) => text,
                // Gone since it was listed: the directory has changed again.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    tracing::warn!(file = %path.display(), %error, "the file of members could not be read: correct it, until then its members are not reached");
                    continue;
                }
            };
            let digest = digest(text.as_bytes());
            let before = self.known.get(&path);
            if before.is_some_and(|known| known.digest == digest) {
                continue;
            }
            let sources = read_file(&path, &text, remotes);
            if let Some(before) = before {
                forget(remotes, &(&before.sources - &sources));
            }
            self.known.insert(path, Known { digest, sources });
        }
        Ok(())
    }
}

/// Takes over what a file says; the names of what it says.
fn read_file(path: &Path, text: &str, remotes: &Remotes) -> BTreeSet<String> {
    let file = path.display().to_string();
    let mut sources = BTreeSet::new();
    for parsed in api::parse_endpoint_slices(&file, text) {
        match parsed {
            Ok((name, slice)) => {
                let source = format!("{file}#{name}");
                remotes.replace(&source, Some(slice));
                sources.insert(source);
            }
            Err(error) => {
                let error = chain(&error);
                tracing::warn!(
                    error,
                    "the file of another node cannot be read, and its members are not reached"
                );
            }
        }
    }
    sources
}

fn forget(remotes: &Remotes, sources: &BTreeSet<String>) {
    for source in sources {
        remotes.replace(source, None);
    }
}

/// The files of a directory, but those that are being written.
fn list(directory: &Path) -> Result<BTreeSet<PathBuf>, io::Error> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
        let path = entry.path();
        let is_yaml = path
            .extension()
            .is_some_and(|kind| kind == "yaml" || kind == "yml");
        if is_yaml && !is_hidden {
            found.insert(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
