//! AF_XDP ports: links with a program that gives packets to sockets of the pod.
//!
//! The program is at the pod's end. A control socket gives the pod the things that take privileges.
//!
//! Packets pass the dispatcher at the host end both ways, so network, isolation, anti-spoofing, rates and
//! counters are those of every port. The program, its map and its link are pinned, and packets go on
//! whatever becomes of the agent; the control socket comes back with it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use book::Book;
use book::record::Attachment;
use datapath::Hook;
use host::Host;
use netdev::{Netlink, Netns, Offloads};
use telemetry::chain;
use tokio::sync::Semaphore;
use xsk::control::Address;

use crate::directories::{Directories, ensure_map};
use crate::error::PortError;
use crate::kernel::Kernel;
use crate::sockets::{self, PlaceError};

mod control;
mod decide;
mod describe;
pub mod error;

use control::{Control, Desk};
pub(super) use describe::{FILE, describe};
pub use error::AfXdpError;
use error::MTU_MAX;

/// The control sockets of this node.
#[derive(Debug)]
pub struct AfXdp {
    book: Arc<Book>,
    host: Arc<Host>,
    /// Directories of devices.
    devices: Directories,
    /// A directory for each is in here.
    directory: PathBuf,
    /// Control sockets that are open, by the name of the host end.
    open: Mutex<BTreeMap<String, Control>>,
    /// Conversations that all of them may have at a time.
    places: Arc<Semaphore>,
}

/// The directory of control sockets that belongs to the agent's own socket.
pub fn directory(socket: &Path) -> PathBuf {
    socket.with_file_name("afxdp")
}

impl AfXdp {
    /// None is open.
    pub fn new(book: Arc<Book>, host: Arc<Host>, devices: Directories, directory: PathBuf) -> Self {
        Self {
            book,
            host,
            devices,
            directory,
            open: Mutex::default(),
            places: Arc::new(Semaphore::new(listen::guests())),
        }
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<String, Control>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where ports without a device have their socket files.
    pub fn sockets(&self) -> &Path {
        &self.directory
    }

    fn has(&self, record: &Attachment) -> bool {
        let is_open = self
            .open()
            .get(&record.host.name)
            .is_some_and(Control::is_open);
        is_open
            && record
                .socket_path
                .as_ref()
                .is_some_and(|path| path.exists())
    }

    /// Closes the control socket of an AF_XDP port.
    ///
    /// One that is not there is closed already.
    pub(super) fn shut(&self, record: &Attachment) {
        if !record.is_afxdp() {
            return;
        }
        self.open().remove(&record.host.name);
        sockets::remove(record);
        // Others may be in it.
        let _ = fs::remove_dir(&self.directory);
    }

    /// Closes those that no record has.
    fn close_strays(&self, known: impl Fn(&str) -> bool) {
        let Ok(entries) = fs::read_dir(&self.directory) else {
            return;
        };
        for name in entries.filter_map(|it| it.ok()?.file_name().into_string().ok()) {
            if known(&name) {
                continue;
            }
            tracing::info!(
                port = name,
                "a control socket that no attachment owns is removed"
            );
            if let Err(error) = fs::remove_dir_all(self.directory.join(&name)) {
                tracing::warn!(port = name, %error, "a control socket that no attachment owns could not be removed");
            }
        }
    }
}

/// Puts the program at the pod's end of a link that is still down.
///
/// The host end gives it finished packets. Anything that was pinned for the port before belonged to a link
/// that is gone.
///
/// The indexes are those of the host end and of the pod's end.
pub(super) fn fit_link<K: Kernel>(
    kernel: &mut K,
    hook: &K::Hook,
    port: &FitPort,
    (host_ifindex, peer_ifindex): (u32, u32),
) -> Result<(), PortError> {
    kernel.finish_packets(host_ifindex)?;
    kernel.forget_xsk(hook, &port.host)?;
    kernel.attach_xsk(hook, port, peer_ifindex)?;
    kernel.share_xsk(hook, port)
}

/// Facts for fitting a link.
#[derive(Debug)]
pub(crate) struct FitPort {
    host: String,
    ifname: String,
    queues: u16,
    netns: Netns,
    /// The directory in which a container of the pod finds the map, if it has a device.
    shared: Option<PathBuf>,
}

impl FitPort {
    /// That of a record; none of one that is no AF_XDP port.
    pub(crate) fn of(record: &Attachment, netns: &Netns, devices: &Directories) -> Option<Self> {
        record.is_afxdp().then(|| Self {
            host: record.host.name.clone(),
            ifname: record.key.ifname.to_string(),
            queues: record.interface.queues,
            netns: netns.clone(),
            shared: devices.of_map_of(record),
        })
    }

    /// Queues of both ends.
    pub(crate) fn queues(&self) -> u32 {
        self.queues.into()
    }

    /// Name of the host end.
    #[cfg(test)]
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// The directory in which a container finds the map.
    #[cfg(test)]
    pub(super) fn shared(&self) -> Option<&Path> {
        self.shared.as_deref()
    }
}

/// Puts the program at the pod's end, and pins it with its map.
pub(super) fn attach(hook: &Hook, port: &FitPort, peer_ifindex: u32) -> Result<(), PortError> {
    let (host, queues) = (&port.host, port.queues());
    let inside = || hook.attach_xsk(host, peer_ifindex, queues);
    match port.netns.run_in(inside)?? {
        None => Ok(()),
        Some(source) => Err(AfXdpError::Program {
            ifname: port.ifname.clone(),
            source,
        }
        .into()),
    }
}

/// Pins the map where the container of its device sees it.
pub(super) fn share(hook: &Hook, port: &FitPort) -> Result<(), PortError> {
    if let Some(directory) = &port.shared {
        ensure_map(directory).map_err(PlaceError::make(directory))?;
        hook.share_xsk(&port.host, directory)?;
    }
    Ok(())
}

/// Refuses a network of which no port can be one of AF_XDP.
pub(crate) fn check_mtu(network: &api::Network) -> Result<(), AfXdpError> {
    if network.mtu > MTU_MAX {
        return Err(AfXdpError::Mtu {
            network: network.name.clone(),
            mtu: network.mtu,
        });
    }
    Ok(())
}

impl AfXdp {
    /// Opens the control socket of an AF_XDP port; one that is open stays.
    pub(crate) async fn open_control(
        &self,
        record: &Attachment,
        netns: &Netns,
    ) -> Result<(), PortError> {
        let host = &record.host.name;
        if !record.is_afxdp() || self.has(record) {
            return Ok(());
        }
        // The directory stays: containers may have it mounted.
        self.open().remove(host);
        let Some(path) = &record.socket_path else {
            return Ok(());
        };
        // For everybody to pass: who connects is asked for his namespace. If this fails the next step
        // says so.
        let _ = fs::create_dir_all(&self.directory);
        let ifname = record.key.ifname.to_string();
        let failed = |ifname: &str| {
            let ifname = ifname.to_owned();
            move |source| AfXdpError::Control { ifname, source }
        };
        let by_file = sockets::publish(path, sockets::SOCKET_MODE, |path| {
            let listening = xsk::control::listen(&Address::Path(path.to_owned()));
            listening.map_err(|source| PortError::from(failed(&ifname)(source)))
        })?;
        let name = ifname.clone();
        let by_name = netns
            .enter(move || xsk::control::listen(&xsk::control::abstract_name(&name)))
            .await?;
        let by_name = by_name
            .map_err(|error| {
                // Somebody in the pod was faster; that is his own loss, and there is the file.
                tracing::warn!(attachment = %record.key, error = chain(&error), "the control socket has no abstract name in the pod: use the one in the file system");
            })
            .ok();
        let desk = Desk::new(
            record,
            netns.clone(),
            self.host.hook.clone(),
            Arc::clone(&self.places),
        );
        let control = Control::open(&desk, by_file, by_name);
        let control = control.map_err(|source| AfXdpError::Control {
            ifname,
            source: xsk::Error::Control {
                operation: "wait on",
                address: path.display().to_string(),
                source,
            },
        })?;
        self.open().insert(host.clone(), control);
        Ok(())
    }

    /// Removes the pins of an AF_XDP port.
    pub(super) fn unpin(&self, record: &Attachment) -> Result<(), PortError> {
        if record.is_afxdp() {
            if let Some(shared) = self.devices.of_map_of(record) {
                self.host.hook.unshare_xsk(&shared)?;
            }
            self.host.hook.forget_xsk(&record.host.name)?;
        }
        Ok(())
    }

    /// Lists the missing parts of an AF_XDP port at the node.
    pub(crate) fn faults(&self, record: &Attachment) -> Result<Vec<String>, PortError> {
        let mut faults = Vec::new();
        if !record.is_afxdp() {
            return Ok(faults);
        }
        let host = &record.host.name;
        if !self.has(record) {
            faults.push(format!(
                "the control socket of {} is closed",
                record.key.ifname
            ));
        }
        if self.host.hook.xsk_id(host)?.is_none() {
            faults.push(format!(
                "the XDP program of {} is not pinned",
                record.key.ifname
            ));
        }
        let shared = self.devices.of_map_of(record);
        if shared.is_some_and(|it| !Hook::has_shared_xsk(&it)) {
            faults.push(format!(
                "the map of {} is not pinned for its container",
                record.key.ifname
            ));
        }
        if !Offloads::open()?.finishes_packets(record.host.ifindex)? {
            faults.push(format!("host interface {host} does not finish checksums"));
        }
        Ok(faults)
    }

    /// Makes the missing parts of an AF_XDP port again.
    pub(crate) async fn mend(&self, record: &Attachment) -> Result<(), PortError> {
        if self.faults(record)?.is_empty() {
            return Ok(());
        }
        let Some(netns) = record.sandbox.open()? else {
            // It lost its pod, and goes when its link has.
            return Ok(());
        };
        Box::pin(self.open_control(record, &netns)).await?;
        let host_ifindex = record.host.ifindex;
        let Some(port) = FitPort::of(record, &netns, &self.devices) else {
            return Ok(());
        };
        let ours = self.host.hook.xsk_id(&port.host)?;
        let ifname = port.ifname.clone();
        let pod = Netlink::in_netns(&netns)?;
        let seen = pod.with(move |connection| -> Result<_, netdev::Error> {
            let Some(link) = connection.by_name(&ifname)? else {
                return Ok(None);
            };
            Ok(Some((link.ifindex, connection.xdp_programs(link.ifindex)?)))
        });
        let Some((peer_ifindex, programs)) = seen.await? else {
            return Ok(());
        };
        let hook = self.host.hook.clone();
        let mend = move || {
            Offloads::open()?.finish_packets(host_ifindex)?;
            if ours.is_some() && programs.native == ours {
                return share(&hook, &port);
            }
            hook.forget_xsk(&port.host)?;
            attach(&hook, &port, peer_ifindex)?;
            share(&hook, &port)
        };
        let done = tokio::task::spawn_blocking(mend).await;
        done.unwrap_or(Err(PortError::MendingDied))?;
        tracing::info!(attachment = %record.key, "the AF_XDP port is mended");
        Ok(())
    }

    /// Removes the leftovers of AF_XDP ports that no record has.
    pub(crate) fn remove_strays(&self) -> Result<(), PortError> {
        let mut known: Vec<String> = Vec::new();
        let mut shared: Vec<PathBuf> = Vec::new();
        for entry in self.book.ledger().entries() {
            if entry.record.is_afxdp() {
                known.push(entry.record.host.name.clone());
                shared.extend(self.devices.of_map_of(&entry.record));
            }
        }
        let is_known = |name: &str| known.iter().any(|it| it == name);
        self.close_strays(is_known);
        for name in self
            .host
            .hook
            .xsk_ports()?
            .iter()
            .filter(|it| !is_known(it))
        {
            tracing::info!(port = name, "pins that no attachment owns are removed");
            self.host.hook.forget_xsk(name)?;
        }
        let strays = self.devices.maps().into_iter();
        for directory in strays.filter(|it| !shared.contains(it) && Hook::has_shared_xsk(it)) {
            tracing::info!(directory = %directory.display(), "a map that no attachment owns is removed");
            self.host.hook.unshare_xsk(&directory)?;
        }
        Ok(())
    }
}
