//! The kubelet is kept told of all resources.
//!
//! One pass brings everything to what it should be: a socket for each resource there is, none for others,
//! and each registered with the kubelet that runs now. A pass follows each change of the resources and of
//! the kubelet's directory, for the kubelet removes all sockets there when it starts, and makes its own
//! anew.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use ::kubelet::device_plugin::{Device, KUBELET_SOCKET};
use ::kubelet::{register, serve};
use cni_spec::digest::digest;
use notify::RecommendedWatcher;
use ports::directories::Directories;
use telemetry::chain;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use world::resource::{self, Offer};
use world::watched;

use super::plugin::{Plugin, devices};

/// Time to the next attempt at what did not work.
const RETRY: Duration = Duration::from_secs(1);
/// Longest time between two looks at the directory.
///
/// The directory may be missing, or be replaced.
const LOOK: Duration = Duration::from_secs(30);
/// Longest path of a socket, bytes (unix(7), without the byte at the end).
const PATH_MAX: usize = 107;

/// The resources there should be; none while that is not known.
pub type Wanted = Option<BTreeMap<String, Offer>>;

/// Identity of the file at a path; a file that was made again has another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

fn identity(path: &Path) -> Option<Identity> {
    let found = fs::symlink_metadata(path).ok()?;
    Some(Identity {
        device: found.dev(),
        inode: found.ino(),
        changed: (found.ctime(), found.ctime_nsec()),
    })
}

/// A resource that the kubelet can ask about. Its socket goes with it.
#[derive(Debug)]
struct Served {
    socket: PathBuf,
    made: Option<Identity>,
    has_maps: bool,
    devices: watch::Sender<Vec<Device>>,
    /// The kubelet that was told.
    told: Option<Identity>,
    /// Message of the last failure; a repeated one is not logged again.
    complaint: Option<String>,
    _stop: watch::Sender<bool>,
}

impl Served {
    fn start(place: &PluginPlace, resource: &str, offer: Offer) -> io::Result<Self> {
        let socket = place.socket(resource);
        match fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&socket)?;
        let made = identity(&socket);
        let list = devices(place.number, offer.is_healthy);
        let (devices, current) = watch::channel(list);
        let plugin = Plugin {
            resource: resource.to_owned(),
            devices: current,
            directories: place.directories.clone(),
            has_maps: offer.has_maps,
        };
        let (stop, stopping) = watch::channel(false);
        let name = resource.to_owned();
        tokio::spawn(async move {
            if let Err(error) = serve(listener, Arc::new(plugin), stopping).await {
                tracing::error!(
                    resource = name,
                    error = chain(&error),
                    "the devices of the resource are not served to the kubelet any more"
                );
            }
        });
        Ok(Self {
            socket,
            made,
            has_maps: offer.has_maps,
            devices,
            told: None,
            complaint: None,
            _stop: stop,
        })
    }

    fn is_there(&self) -> bool {
        self.made.is_some() && identity(&self.socket) == self.made
    }

    fn set_health(&self, number: u16, is_healthy: bool) {
        let list = devices(number, is_healthy);
        self.devices.send_if_modified(|now| {
            let differs = *now != list;
            *now = list;
            differs
        });
    }

    /// True when the kubelet knows.
    async fn tell(&mut self, resource: &str, kubelet: &Path) -> bool {
        let Some(runs) = identity(kubelet) else {
            // Its socket will tell when it starts.
            return true;
        };
        if self.told == Some(runs) {
            return true;
        }
        let endpoint = self
            .socket
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        match register(kubelet, resource, &endpoint).await {
            Ok(()) => {
                tracing::info!(resource, "the kubelet knows of the devices");
                self.told = Some(runs);
                self.complaint = None;
                true
            }
            Err(error) => {
                let why = chain(&error);
                if self.complaint.as_ref() != Some(&why) {
                    tracing::warn!(
                        resource,
                        error = why,
                        "the kubelet takes no devices, trying again"
                    );
                }
                self.complaint = Some(why);
                false
            }
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The kubelet removes sockets too, and another one at its place is not ours to remove.
        if self.is_there()
            && let Err(error) = fs::remove_file(&self.socket)
        {
            tracing::warn!(socket = %self.socket.display(), %error, "the device plugin's socket could not be removed, the next start replaces it");
        }
    }
}

/// Where device plugins are, and what ours have.
#[derive(Debug, Clone)]
pub struct PluginPlace {
    /// The kubelet's directory of device plugins.
    pub plugins: PathBuf,
    /// The directories of devices.
    pub directories: Directories,
    /// Devices of each resource.
    pub number: u16,
}

impl PluginPlace {
    /// The socket of a resource. Its name may be longer than the path of a socket.
    fn socket(&self, resource: &str) -> PathBuf {
        let name = resource::short(resource);
        let path = self.plugins.join(format!("podnet-{name}.sock"));
        if path.as_os_str().len() <= PATH_MAX {
            return path;
        }
        self.plugins
            .join(format!("podnet-{:016x}.sock", digest(name.as_bytes())))
    }
}

/// Tells of changes in the kubelet's directory.
#[derive(Debug)]
struct Watch {
    changed: mpsc::Sender<()>,
    watcher: Option<(Identity, RecommendedWatcher)>,
}

impl Watch {
    /// Watches the directory that is at the path now; false when there is none.
    fn renew(&mut self, directory: &Path) -> Result<bool, notify::Error> {
        let Some(found) = identity(directory) else {
            self.watcher = None;
            return Ok(false);
        };
        // What changes in a directory changes the time of it, too.
        let is_same = |known: &Identity| (known.device, known.inode) == (found.device, found.inode);
        if self
            .watcher
            .as_ref()
            .is_some_and(|(known, _)| is_same(known))
        {
            return Ok(true);
        }
        let watcher = watched(directory, self.changed.clone())?;
        self.watcher = Some((found, watcher));
        Ok(true)
    }
}

/// Registers the wanted devices with the kubelet until it is dropped.
///
/// The sockets go with it.
///
/// # Errors
/// When the kernel does not let us watch.
pub async fn follow(
    place: PluginPlace,
    mut wanted: watch::Receiver<Wanted>,
) -> Result<(), notify::Error> {
    let (changed, mut changes) = mpsc::channel(1);
    let mut watch = Watch {
        changed,
        watcher: None,
    };
    let mut served = BTreeMap::new();
    loop {
        // First: what changes from now on leads to another pass.
        let is_there = watch.renew(&place.plugins)?;
        let now = wanted.borrow_and_update().clone();
        let is_done = match now {
            Some(now) if is_there => pass(&place, &now, &mut served).await,
            Some(_) | None => true,
        };
        let again = if is_done { LOOK } else { RETRY };
        tokio::select! {
            // Nobody will want anything else any more.
            end = wanted.changed() => if end.is_err() { return Ok(()) },
            _ = changes.recv() => {}
            () = tokio::time::sleep(again) => {}
        }
    }
}

/// True when all is as it should be.
async fn pass(
    place: &PluginPlace,
    wanted: &BTreeMap<String, Offer>,
    served: &mut BTreeMap<String, Served>,
) -> bool {
    served.retain(|resource, _| {
        let stays = wanted.contains_key(resource);
        if !stays {
            tracing::info!(resource, "the resource has no devices any more");
        }
        stays
    });
    let mut is_done = true;
    for (resource, offer) in wanted {
        let is_other = |one: &Served| !one.is_there() || one.has_maps != offer.has_maps;
        if served.get(resource).is_some_and(is_other) {
            // Gone before another is made at its place.
            served.remove(resource);
        }
        let one = match served.get_mut(resource) {
            Some(one) => one,
            None => match Served::start(place, resource, *offer) {
                Ok(one) => served.entry(resource.clone()).or_insert(one),
                Err(error) => {
                    tracing::warn!(
                        resource,
                        error = chain(&error),
                        "the socket of the device plugin cannot be made, trying again"
                    );
                    is_done = false;
                    continue;
                }
            },
        };
        one.set_health(place.number, offer.is_healthy);
        is_done &= one
            .tell(resource, &place.plugins.join(KUBELET_SOCKET))
            .await;
    }
    is_done
}

#[cfg(test)]
mod tests;
