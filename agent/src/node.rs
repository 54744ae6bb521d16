//! The node: everything that requests share.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cni_spec::{AttachmentKey, ContainerId};
use datapath::{Hook, Room};
use delegate::process::Runner;
use netdev::{Discipline, Netlink};
use store::{Batch, Pending, Store, Table};
use telemetry::chain;
use telemetry::failpoint::{passed, pause};
use tokio::sync::watch;
use world::Current;

use crate::afxdp::AfXdp;
use crate::devices::Devices;
use crate::early::EarlyOptions;
use crate::egress::{Connections, Egress};
use crate::error::AgentError;
use crate::kube::Cluster;
use crate::ledger::Ledger;
use crate::locks::{Guard, Rank, Ranked};
use crate::metrics::Metrics;
use crate::multi::Rules;
use crate::overlay::Overlay;
use crate::pods::Pods;
use crate::pods::record::PodRecord;
use crate::ports::Promotions;
use crate::reconcile::Reconciler;
use crate::record::{Attachment, State};
use crate::recover::aside::SetAside;
use crate::remotes::Remotes;
use crate::routing::NodeRouting;
use crate::switch::Switch;
use crate::uplinks::Uplinks;
use crate::ways::Ways;
use crate::wires::Wires;

/// How long a request waits for start-up to be over.
pub const START_PATIENCE: Duration = Duration::from_secs(10);

/// What requests share.
#[derive(Debug)]
pub struct Node {
    /// Name of the node.
    pub name: String,
    /// What the user wants.
    pub world: Arc<Current>,
    /// Who holds what.
    ledger: Ranked<Ledger>,
    /// What survives.
    pub store: Store,
    /// Records that cannot be used.
    set_aside: Ranked<Vec<SetAside>>,
    /// How long it may fail until the agent says that it cannot go on.
    pub store_patience: Duration,
    /// The node's own network namespace.
    pub netlink: Netlink,
    /// Host ends that wait for a TCX link.
    pub promotions: Arc<Promotions>,
    /// Attaching.
    pub hook: Hook,
    /// The tables.
    pub tables: Reconciler,
    /// How this kernel limits rates; none if it cannot.
    pub shaping: Option<Discipline>,
    /// Pods that say themselves what they are attached to.
    pub pods: Pods,
    /// What the node's own stack does for the network that it routes for.
    pub routing: NodeRouting,
    /// Who is where on other nodes.
    pub remotes: Arc<Remotes>,
    /// The way there.
    pub overlay: Overlay,
    /// Where the programs take it themselves.
    pub ways: Ways,
    /// How the kernel makes room for a tunnel's headers.
    pub room: Room,
    /// The interfaces it comes back by.
    pub uplinks: Uplinks,
    /// Control sockets of AF_XDP ports.
    pub afxdp: AfXdp,
    /// Ways out of networks.
    pub egress: Egress,
    /// What networks have there.
    pub wires: Wires,
    /// Who serves ports that are memif sockets.
    pub switch: Arc<Switch>,
    /// Plugins of others.
    pub delegates: Runner,
    /// Ports as devices of Kubernetes.
    pub devices: Devices,
    /// What the node says about the lists of its pods.
    pub rules: Rules,
    /// Whom to ask for a pod; none when networks come from files.
    pub cluster: Option<Arc<Cluster>>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Where `DEL`s wait that came while no agent was there.
    pub tombstones: PathBuf,
    /// Requests so far, to find their log lines.
    pub requests: AtomicU64,
    /// Start-up is over.
    ready: watch::Sender<bool>,
    /// The last audit found this many live ports damaged.
    pub impaired: AtomicUsize,
    /// One lock a container: requests of one wait for each other, those of others do not.
    locks: Mutex<HashMap<ContainerId, Arc<tokio::sync::Mutex<()>>>>,
}

/// Holds a container's lock.
#[derive(Debug)]
pub struct ContainerGuard {
    _guard: tokio::sync::OwnedMutexGuard<()>,
}

/// The parts of a node.
#[derive(Debug)]
pub struct Parts {
    /// See [`Node::name`].
    pub name: String,
    /// See [`Node::world`].
    pub world: Arc<Current>,
    /// Filled from the store.
    pub ledger: Ledger,
    /// See [`Node::store`].
    pub store: Store,
    /// See [`Node::set_aside`].
    pub set_aside: Vec<SetAside>,
    /// See [`Node::store_patience`].
    pub store_patience: Duration,
    /// See [`Node::netlink`].
    pub netlink: Netlink,
    /// See [`Node::promotions`].
    pub promotions: Arc<Promotions>,
    /// See [`Node::hook`].
    pub hook: Hook,
    /// See [`Node::tables`].
    pub tables: Reconciler,
    /// See [`Node::shaping`].
    pub shaping: Option<Discipline>,
    /// Filled from the store.
    pub pods: Pods,
    /// See [`Node::delegates`].
    pub delegates: Runner,
    /// See [`Node::devices`].
    pub devices: Devices,
    /// See [`Node::rules`].
    pub rules: Rules,
    /// See [`Node::remotes`].
    pub remotes: Arc<Remotes>,
    /// Where control sockets of AF_XDP ports are.
    pub controls: PathBuf,
    /// Where the namespaces of gateways are kept.
    pub gateways: PathBuf,
    /// See [`Node::switch`].
    pub switch: Switch,
    /// Where pods and Services of the cluster are, as the operator says.
    pub inside: Vec<api::Prefix>,
    /// How many connections through ways out may be tracked.
    pub connections: Connections,
    /// UDP port of tunnels.
    pub vxlan_port: u16,
    /// What XDP is used for.
    pub early: EarlyOptions,
    /// See [`Node::room`].
    pub room: Room,
    /// See [`Node::cluster`].
    pub cluster: Option<Arc<Cluster>>,
    /// See [`Node::metrics`].
    pub metrics: Arc<Metrics>,
    /// See [`Node::tombstones`].
    pub tombstones: PathBuf,
}

impl Node {
    /// Puts the parts together.
    pub fn new(mut parts: Parts) -> Arc<Self> {
        if parts.cluster.is_some() {
            // Nothing is given before it is known what is this node's to give.
            parts.ledger.set_shares(HashMap::new());
        }
        Arc::new(Self {
            name: parts.name,
            world: parts.world,
            ledger: Ranked::new(Rank::Book, parts.ledger),
            store: parts.store,
            set_aside: Ranked::new(Rank::Feature, parts.set_aside),
            store_patience: parts.store_patience,
            netlink: parts.netlink,
            promotions: parts.promotions,
            hook: parts.hook,
            tables: parts.tables,
            shaping: parts.shaping,
            pods: parts.pods,
            routing: NodeRouting::new(parts.cluster.is_some()),
            remotes: parts.remotes,
            overlay: Overlay::new(parts.vxlan_port),
            uplinks: Uplinks::new(parts.early),
            ways: Ways::default(),
            room: parts.room,
            afxdp: AfXdp::new(parts.controls),
            egress: Egress::new(parts.gateways, parts.inside, parts.connections),
            wires: Wires::default(),
            switch: Arc::new(parts.switch),
            delegates: parts.delegates,
            devices: parts.devices,
            rules: parts.rules,
            cluster: parts.cluster,
            metrics: parts.metrics,
            tombstones: parts.tombstones,
            requests: AtomicU64::new(0),
            ready: watch::Sender::new(false),
            impaired: AtomicUsize::new(0),
            locks: Mutex::default(),
        })
    }

    /// The book; the lock is never held across an await.
    pub fn ledger(&self) -> Guard<'_, Ledger> {
        self.ledger.lock()
    }

    /// Records that cannot be used; the lock is never held across an await.
    pub fn set_aside(&self) -> Guard<'_, Vec<SetAside>> {
        self.set_aside.lock()
    }

    /// Waits until no other request works on this container.
    pub async fn lock(&self, container: &ContainerId) -> ContainerGuard {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            // Nobody holds or waits for a lock that only this map refers to.
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(locks.entry(container.clone()).or_default())
        };
        ContainerGuard {
            _guard: lock.lock_owned().await,
        }
    }

    /// True when requests can be served.
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Says whether requests can be served.
    pub fn set_ready(&self, ready: bool) {
        self.ready.send_replace(ready);
    }

    /// Tells whether requests can be served, now and with each change.
    pub fn readiness(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Waits until start-up is over, however long that takes.
    pub async fn until_recovered(&self) {
        let mut ready = self.ready.subscribe();
        // The sender lives as long as the node.
        let _ = ready.wait_for(|ready| *ready).await;
    }

    /// Waits until requests can be served: a restart takes a moment, and a runtime that is told to
    /// try again waits much longer.
    ///
    /// # Errors
    /// [`AgentError::NotReady`] after [`START_PATIENCE`].
    pub async fn until_ready(&self) -> Result<(), AgentError> {
        let mut ready = self.ready.subscribe();
        let waited = tokio::time::timeout(START_PATIENCE, ready.wait_for(|ready| *ready)).await;
        match waited {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(AgentError::NotReady { what: "starting" }),
        }
    }

    /// Brings the tables of a network up to the ledger.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn reconcile(&self, network: u32) -> Result<(), AgentError> {
        // What takes long of it is done before, so that others do not wait for it.
        self.remotes.resolved(network);
        // First: what is read from here on is what is written, and nothing older comes after it.
        let mut tables = self.tables.write();
        let others = self.beyond(network);
        pause("tables.read");
        let ledger = self.ledger();
        tables.network(network, ledger.live_on(network), &others)?;
        passed("tables.written");
        Ok(())
    }

    /// Makes the tables of all networks say what is known, and nothing else, whatever was in them.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn reconcile_everything(&self) -> Result<(), AgentError> {
        let mut tables = self.tables.write();
        let mut networks = tables.read_anew()?;
        networks.extend(self.ledger().live_networks());
        for network in networks {
            let others = self.beyond(network);
            let ledger = self.ledger();
            tables.network(network, ledger.live_on(network), &others)?;
        }
        Ok(())
    }

    /// Brings the tables of networks up to what is known, away from the threads that serve requests:
    /// a network may have thousands of members. The networks for which that failed.
    pub async fn reconcile_all(self: &Arc<Self>, networks: BTreeSet<u32>) -> BTreeSet<u32> {
        let (node, all) = (Arc::clone(self), networks.clone());
        let work = move || {
            all.into_iter()
                .filter(|network| match node.reconcile(*network) {
                    Ok(()) => false,
                    Err(error) => {
                        let error = chain(&error);
                        tracing::error!(network, error, "tables not up to date, trying again");
                        true
                    }
                })
                .collect()
        };
        tokio::task::spawn_blocking(work).await.unwrap_or(networks)
    }

    /// Writes a record, and the number of its network, so that they survive.
    ///
    /// # Errors
    /// When they do not.
    pub async fn save(&self, record: &Attachment) -> Result<(), AgentError> {
        Ok(self.submit(record)?.await?)
    }

    /// Hands a record to the store; it survives when the promise says so.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn submit(&self, record: &Attachment) -> Result<Pending, AgentError> {
        let value = encode(record)?;
        let key = record.key.to_string();
        let mut batch = Batch::new().put(Table::Attachments, key.as_bytes(), &value);
        if record.state == State::Adding {
            // The number stays the network's own, also when this attachment is gone.
            let (name, id) = (record.network.name.as_bytes(), record.network.id);
            batch = batch.put(Table::Networks, name, &id.to_le_bytes());
        }
        Ok(self.store.submit(batch))
    }

    /// Writes a pod's record so that it survives.
    ///
    /// # Errors
    /// When it does not.
    pub async fn save_pod(&self, record: &PodRecord) -> Result<(), AgentError> {
        let key = record.key.to_string();
        let value = serde_json::to_vec(record).map_err(|source| AgentError::Record {
            key: key.clone(),
            source,
        })?;
        let batch = Batch::new().put(Table::Pods, key.as_bytes(), &value);
        Ok(self.store.submit(batch).await?)
    }

    /// Removes a pod's record.
    ///
    /// # Errors
    /// When it may still be there.
    pub async fn erase_pod(&self, key: &AttachmentKey) -> Result<(), AgentError> {
        let batch = Batch::new().delete(Table::Pods, key.to_string().as_bytes());
        Ok(self.store.submit(batch).await?)
    }

    /// Removes a record.
    ///
    /// # Errors
    /// When it may still be there.
    pub async fn erase(&self, key: &AttachmentKey) -> Result<(), AgentError> {
        let batch = Batch::new().delete(Table::Attachments, key.to_string().as_bytes());
        Ok(self.store.submit(batch).await?)
    }
}

fn encode(record: &Attachment) -> Result<Vec<u8>, AgentError> {
    serde_json::to_vec(record).map_err(|source| AgentError::Record {
        key: record.key.to_string(),
        source,
    })
}
