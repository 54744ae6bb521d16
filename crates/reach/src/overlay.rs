//! Networks that span nodes: the tunnel device and its MTU.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use agent_common::vtep::{ADDED_V4, ADDED_V6};
use book::Book;
use datapath::{DatapathError, Dispatcher, Hook};
use host::{ALIAS_PREFIX, Host, HostError};
use netdev::{Connection, Link, VxlanSpec};
use remotes::Remotes;
use rustix::io::Errno;
use tables::Reconciler;
use telemetry::chain;
use tokio::sync::Notify;

mod fence;

pub(crate) use fence::entrances;
pub use fence::{TABLE, remove};

/// The device; one a node.
pub const DEVICE: &str = "podnet-vxlan";
/// UDP port of VXLAN (RFC 7348 section 8).
pub const PORT: u16 = 4789;
/// The device takes what networks and underlay let pass, GSO packets too.
const MTU: u32 = 65_485;
/// Why a network that spans nodes cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// The node has no address for tunnels.
    #[error(
        "network {network} has transport VXLAN and this node no address for tunnels: start the agent with --vtep ADDRESS"
    )]
    NoAddress {
        /// The network.
        network: String,
    },
    /// The address is not the node's.
    #[error("{address} is on no interface of this node: correct --vtep, or the node's InternalIP")]
    NotHere {
        /// The address.
        address: IpAddr,
    },
    /// Packets of the network would not fit.
    #[error(
        "network {network} has mtu {mtu} and a tunnel adds {added} bytes, which {interface} with MTU {underlay} does not carry: set spec.mtu of its PodNetworkParameters to {} or less",
        underlay.saturating_sub(*added)
    )]
    TooBig {
        /// The network.
        network: String,
        /// Its MTU, bytes.
        mtu: u16,
        /// Overhead of a tunnel, bytes.
        added: u32,
        /// Where tunnels leave the node.
        interface: String,
        /// Its MTU, bytes.
        underlay: u32,
    },
    /// Somebody else's device has the name.
    #[error("interface {DEVICE} on this node is not podnet's: rename or remove it")]
    NameTaken,
    /// Nothing would keep forged tunnels from the device.
    #[error(
        "the nf_tables table {TABLE}, which keeps forged tunnels from this node, cannot be written, so there are no tunnels: load the kernel's module nf_tables"
    )]
    NoFence {
        /// Why not.
        source: netdev::Error,
    },
    /// Another device or program has the port.
    #[error(
        "UDP port {port} is in use on this node, by another VXLAN device perhaps: choose another with --vxlan-port, the same on every node"
    )]
    PortTaken {
        /// The port.
        port: u16,
    },
    /// The kernel refused.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl From<netdev::Error> for OverlayError {
    fn from(error: netdev::Error) -> Self {
        HostError::from(error).into()
    }
}

impl From<DatapathError> for OverlayError {
    fn from(error: DatapathError) -> Self {
        HostError::from(error).into()
    }
}

/// The tunnel device of this node.
#[derive(Debug)]
pub struct Overlay {
    host: Arc<Host>,
    book: Arc<Book>,
    tables: Arc<Reconciler>,
    remotes: Arc<Remotes>,
    port: u16,
    /// Its index; 0 before it was needed.
    device: AtomicU32,
    /// The device is another one now.
    replaced: Notify,
    /// One maker at a time.
    making: tokio::sync::Mutex<()>,
    /// The links that tunnels were last found to come in by.
    entrances: Mutex<BTreeSet<String>>,
    /// The kernel looks the way back up where the table needs that.
    has_reverse_path: AtomicBool,
    /// The table was written; nothing but `cleanup` removes it.
    has_written: AtomicBool,
}

impl Overlay {
    /// Hold what is needed, for tunnels by this UDP port.
    ///
    /// The device is made when the first network needs it.
    pub fn new(
        host: Arc<Host>,
        book: Arc<Book>,
        tables: Arc<Reconciler>,
        remotes: Arc<Remotes>,
        port: u16,
    ) -> Self {
        Self {
            host,
            book,
            tables,
            remotes,
            port,
            device: AtomicU32::new(0),
            replaced: Notify::new(),
            making: tokio::sync::Mutex::default(),
            entrances: Mutex::default(),
            has_reverse_path: AtomicBool::new(true),
            has_written: AtomicBool::new(false),
        }
    }

    /// UDP port of tunnels.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// True from the first write of the tunnels' table.
    pub(crate) fn has_written(&self) -> bool {
        self.has_written.load(Ordering::Acquire)
    }

    /// Index of the device; 0 before it was needed.
    pub fn device(&self) -> u32 {
        self.device.load(Ordering::Acquire)
    }

    /// Waits until the device is another one than it was.
    pub(crate) async fn replaced(&self) {
        self.replaced.notified().await;
    }

    /// The addresses of other nodes that tunnels lead to or come from.
    pub(crate) fn other_nodes(&self, own: &[IpAddr]) -> Result<BTreeSet<IpAddr>, DatapathError> {
        let peers = self.remotes.all_peers();
        // Those in the tables too: after a restart not all have been heard yet.
        let mut nodes: BTreeSet<IpAddr> = self.tables.nodes()?;
        nodes.extend(peers.iter().filter_map(|it| it.address_for(own)));
        Ok(nodes)
    }

    /// Makes sure that this node can carry a network to others.
    ///
    /// # Errors
    /// When it has no address for that, packets would not fit, or the kernel refuses.
    pub async fn carry(&self, network: &str, mtu: u16) -> Result<(), OverlayError> {
        let own = self.remotes.vteps();
        let Some(address) = own.first().copied() else {
            let network = network.to_owned();
            return Err(OverlayError::NoAddress { network });
        };
        self.tunnel().await?;
        let underlay = self.host.netlink.with(move |connection: &mut Connection| {
            let holder = connection.holder_of(address)?;
            let link = holder.map(|ifindex| connection.by_index(ifindex));
            link.transpose().map(Option::flatten)
        });
        let underlay = underlay.await?.ok_or(OverlayError::NotHere { address })?;
        let added = added(address);
        if u32::from(mtu) + added > underlay.mtu {
            return Err(OverlayError::TooBig {
                network: network.to_owned(),
                mtu,
                added,
                interface: underlay.name,
                underlay: underlay.mtu,
            });
        }
        Ok(())
    }

    /// The tunnel device, with the program at its place; made where it is missing.
    ///
    /// # Errors
    /// When the port is taken, or the kernel refuses.
    pub async fn tunnel(&self) -> Result<(), OverlayError> {
        let _alone = self.making.lock().await;
        let (hook, port) = (self.host.hook.clone(), self.port);
        if self.device() == 0 {
            // One of another port would be outside of the fence.
            let other = move |connection: &mut Connection| remove_other(connection, port);
            self.host.netlink.with(other).await?;
            self.fence().await?;
        }
        let device = self
            .host
            .netlink
            .with(move |connection: &mut Connection| ready(connection, &hook, port))
            .await?;
        self.tables.surroundings().set_tunnels(device);
        if self.device.swap(device, Ordering::AcqRel) != device {
            self.replaced.notify_one();
        }
        Ok(())
    }

    /// Whether attachments on this network need the tunnel device, and have lost it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn audit(&self) -> Result<(), OverlayError> {
        if !self.book.ledger().has_tunnelled() {
            return Ok(());
        }
        let before = self.device();
        self.fence().await?;
        self.tunnel().await?;
        if before != self.device() {
            tracing::warn!(
                interface = DEVICE,
                "the tunnel device was missing and is made"
            );
            self.reconcile_tunnelled()?;
        }
        Ok(())
    }

    /// [`Self::audit`]; what it comes to is logged.
    pub async fn mend(&self) {
        if let Err(error) = self.audit().await {
            tracing::error!(error = %chain(&error), "tunnels to other nodes cannot be made; the audit tries again");
        }
    }

    fn reconcile_tunnelled(&self) -> Result<(), OverlayError> {
        let networks: BTreeSet<u32> = {
            let ledger = self.book.ledger();
            let facts = ledger.networks().filter(|it| it.spans_nodes());
            facts.map(|it| it.id).collect()
        };
        for network in networks {
            self.tables.reconcile(network)?;
        }
        Ok(())
    }
}

/// Overhead of a tunnel to or from this address on an L3 packet, bytes.
pub fn added(address: IpAddr) -> u32 {
    // As many as stand before the inner frame: that brings an Ethernet header, and the outer one is
    // beside the MTU.
    let bytes = if address.is_ipv4() {
        ADDED_V4
    } else {
        ADDED_V6
    };
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Alias of the device: it names the port, which the kernel leaves out of a link.
fn alias(port: u16) -> String {
    format!("{ALIAS_PREFIX}tunnels, UDP port {port}")
}

/// Removes a device of another port; the index of the one that is as it should be.
fn remove_other(connection: &mut Connection, port: u16) -> Result<Option<u32>, OverlayError> {
    let is = |link: &Link, alias: &str| {
        link.alias
            .as_deref()
            .is_some_and(|it| it.starts_with(alias))
    };
    match connection.by_name(DEVICE)? {
        Some(link) if is(&link, &alias(port)) => Ok(Some(link.ifindex)),
        Some(link) if is(&link, ALIAS_PREFIX) => {
            connection.delete(link.ifindex)?;
            Ok(None)
        }
        Some(_) => Err(OverlayError::NameTaken),
        None => Ok(None),
    }
}

/// Its index, once it is up and nothing passes it but through the program.
fn ready(connection: &mut Connection, hook: &Hook, port: u16) -> Result<u32, OverlayError> {
    let ifindex = match remove_other(connection, port)? {
        Some(ifindex) => ifindex,
        None => {
            let spec = VxlanSpec {
                name: DEVICE.to_owned(),
                port,
                mtu: MTU,
                alias: alias(port),
            };
            match connection.create_vxlan(&spec) {
                // The name was free a moment ago: another device takes the packets of all networks.
                Err(error) if error.is_exists() => {
                    return Err(OverlayError::PortTaken { port });
                }
                created => created?,
            }
        }
    };
    let attached = hook.dispatcher_id(Dispatcher::Overlay)?;
    let filters = connection.ingress_filters(ifindex)?;
    if filters.iter().all(|it| it.program != Some(attached)) {
        let program = hook.program(Dispatcher::Overlay)?;
        let name = Dispatcher::Overlay.name();
        connection.set_ingress_program(ifindex, program.as_fd(), name)?;
    }
    match connection.set_up(ifindex) {
        Ok(()) => Ok(ifindex),
        Err(error) if matches!(error.errno(), Some(Errno::ADDRINUSE | Errno::EXIST)) => {
            connection.delete(ifindex)?;
            Err(OverlayError::PortTaken { port })
        }
        Err(error) => Err(error.into()),
    }
}
