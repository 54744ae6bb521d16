//! The node: everything that requests share.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use book::Book;
use capture::Captures;
use capture::flows::Counted;
use delegate::process::Runner;
use guards::Guards;
use host::Host;
use metrics::Metrics;
use ports::{self, Ports, Promotions};
use reach::{Ground, Reach, ReachOptions};
use remotes::Remotes;
use serving::Serving;
use tables::Reconciler;
use tokio::sync::{Notify, watch};
use world::Current;
use world::lists::Rules;
use world::policies::PolicyCurrent;
use world::services::ServiceCurrent;

use crate::attach::authority::Giver;
use crate::attach::judged::Judged;
use crate::attach::{Attachments, ReservedPorts};
use crate::devices::Devices;
use crate::error::AgentError;
use crate::kube::Cluster;
use crate::lease::RestartLease;

/// Time for which a request waits for start-up when there is no lease.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// State that requests share.
#[derive(Debug)]
pub struct Node {
    /// Name of the node.
    pub name: String,
    /// Networks and attachments as the user wants them.
    pub world: Arc<Current>,
    /// Policies, and what they select by.
    pub policies: Arc<PolicyCurrent>,
    /// Policies in force at ports.
    pub guards: Arc<Guards>,
    /// Services of networks.
    pub services: Arc<ServiceCurrent>,
    /// Services in force.
    pub serving: Arc<Serving>,
    /// Attachments, addresses, numbers and pods.
    pub book: Arc<Book>,
    /// Handles of the kernel.
    pub host: Arc<Host>,
    /// Ports of attachments on this node.
    pub ports: Arc<Ports>,
    /// The life of attachments.
    pub attachments: Attachments<Ports, Reach, Judged, Giver>,
    /// The tables.
    pub tables: Arc<Reconciler>,
    /// The door of what carries networks beyond this node.
    pub reach: Arc<Reach>,
    /// Members on other nodes.
    pub remotes: Arc<Remotes>,
    /// Plugins of others.
    pub delegates: Runner,
    /// Ports as devices of Kubernetes.
    pub devices: Devices,
    /// Rules about the lists of pods.
    pub rules: Rules,
    /// Client of the cluster's API server; none when networks come from files.
    pub cluster: Option<Arc<Cluster>>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Ports under capture.
    pub captures: Arc<Captures>,
    /// Numbers of the flow log; none without one.
    pub flows: Option<Arc<Counted>>,
    /// Each port has metrics of its own.
    pub port_metrics: bool,
    /// Where `DEL`s wait that came while no agent was there.
    pub tombstones: PathBuf,
    /// The lease that a restart of this agent goes by.
    pub lease: RestartLease,
    /// Networks on which the node has no port that it should have, with the reason.
    pub(crate) without_access: Mutex<BTreeMap<String, String>>,
    /// Asks for an audit as soon as the one that runs is over.
    pub audit_wanted: Notify,
    /// Requests so far, to find their log lines.
    pub requests: AtomicU64,
    /// Start-up is over.
    ready: watch::Sender<bool>,
}

/// The parts of a node.
#[derive(Debug)]
pub struct Parts {
    /// See [`Node::name`].
    pub name: String,
    /// See [`Node::world`].
    pub world: Arc<Current>,
    /// See [`Node::policies`].
    pub policies: Arc<PolicyCurrent>,
    /// See [`Node::services`].
    pub services: Arc<ServiceCurrent>,
    /// See [`Node::book`].
    pub book: Arc<Book>,
    /// See [`Node::host`].
    pub host: Host,
    /// Host ends that wait for a TCX link.
    pub promotions: Arc<Promotions>,
    /// See [`Node::tables`].
    pub tables: Reconciler,
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
    /// Ports of the node that lead to no pod.
    pub reserved_ports: ReservedPorts,
    /// Settings of [`Node::reach`].
    pub reach: ReachOptions,
    /// The line to the switch of memif ports.
    pub line: ports::switch::Line,
    /// See [`Node::cluster`].
    pub cluster: Option<Arc<Cluster>>,
    /// See [`Node::metrics`].
    pub metrics: Arc<Metrics>,
    /// See [`Node::captures`].
    pub captures: Arc<Captures>,
    /// See [`Node::flows`].
    pub flows: Option<Arc<Counted>>,
    /// See [`Node::port_metrics`].
    pub port_metrics: bool,
    /// See [`Node::tombstones`].
    pub tombstones: PathBuf,
    /// See [`Node::lease`].
    pub lease: RestartLease,
    /// True once start-up is over.
    pub ready: watch::Sender<bool>,
}

impl Node {
    /// Puts the parts together.
    pub fn new(parts: Parts) -> Arc<Self> {
        if parts.cluster.is_some() {
            // Nothing is given before it is known what is this node's to give.
            parts.book.ledger().set_shares(HashMap::new());
        }
        let (host, tables) = (Arc::new(parts.host), Arc::new(parts.tables));
        let ground = Ground {
            name: parts.name.clone(),
            host: Arc::clone(&host),
            book: Arc::clone(&parts.book),
            tables: Arc::clone(&tables),
            world: Arc::clone(&parts.world),
            policies: Arc::clone(&parts.policies),
            remotes: Arc::clone(&parts.remotes),
            metrics: Arc::clone(&parts.metrics),
            clustered: parts.cluster.is_some(),
        };
        let places = ports::Places {
            devices: parts.devices.directories().clone(),
            controls: parts.controls,
            line: parts.line,
        };
        let ports = Arc::new(Ports::new(
            &parts.book,
            &host,
            &tables,
            (&parts.world, &parts.metrics),
            parts.promotions,
            places,
        ));
        let reach = Reach::new(ground, parts.reach);
        let guards = Arc::new(Guards::new(guards::Inputs {
            book: Arc::clone(&parts.book),
            tables: Arc::clone(&tables),
            remotes: Arc::clone(&parts.remotes),
            policies: Arc::clone(&parts.policies),
            world: Arc::clone(&parts.world),
            clustered: parts.cluster.is_some(),
        }));
        let serving = Arc::new(Serving::new(serving::Inputs {
            node: parts.name.clone(),
            book: Arc::clone(&parts.book),
            tables: Arc::clone(&tables),
            services: Arc::clone(&parts.services),
            world: Arc::clone(&parts.world),
        }));
        let judged = Judged {
            serving: Arc::clone(&serving),
            tables: Arc::clone(&tables),
            guards: Arc::clone(&guards),
            book: Arc::clone(&parts.book),
        };
        let giver = Giver {
            guards: Arc::clone(&guards),
            book: Arc::clone(&parts.book),
            cluster: parts.cluster.clone(),
            reach: Arc::clone(&reach),
            world: Arc::clone(&parts.world),
            lists: parts.rules.lists.clone(),
        };
        let attachments = Attachments::new(
            Arc::clone(&parts.book),
            Arc::clone(&ports),
            Arc::clone(&reach),
            Arc::new(judged),
            giver,
        )
        .reserving(parts.reserved_ports)
        .measured(&parts.metrics);
        Arc::new(Self {
            name: parts.name,
            world: parts.world,
            policies: parts.policies,
            services: parts.services,
            serving,
            guards,
            book: parts.book,
            host,
            ports,
            attachments,
            tables,
            reach,
            remotes: parts.remotes,
            delegates: parts.delegates,
            devices: parts.devices,
            rules: parts.rules,
            cluster: parts.cluster,
            metrics: parts.metrics,
            captures: parts.captures,
            flows: parts.flows,
            port_metrics: parts.port_metrics,
            tombstones: parts.tombstones,
            lease: parts.lease,
            without_access: Mutex::default(),
            audit_wanted: Notify::new(),
            requests: AtomicU64::new(0),
            ready: parts.ready,
        })
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

    /// True when an `ADD` would be served now, whatever its network.
    ///
    /// Then the lease is made longer.
    pub fn is_well(&self) -> bool {
        self.is_ready()
            && self.book.require_store().is_ok()
            && self.attachments.impaired() == 0
            && self.world.get().check_read().is_ok()
    }

    /// Waits until start-up is over, however long that takes.
    pub async fn until_recovered(&self) {
        let mut ready = self.ready.subscribe();
        // The sender lives as long as the node.
        let _ = ready.wait_for(|ready| *ready).await;
    }

    /// How long a request waits for what a start still has to read or to mend.
    ///
    /// A restart takes a moment, and a runtime that is told to try again waits much longer. While the
    /// lease of the agent before holds, the restart is no failure.
    pub fn start_patience(&self) -> Duration {
        self.lease.inherited().max(START_PATIENCE)
    }

    /// Waits until requests can be served, for at most [`Self::start_patience`].
    ///
    /// # Errors
    /// [`AgentError::Starting`] after that.
    pub async fn until_ready(&self) -> Result<(), AgentError> {
        let mut ready = self.ready.subscribe();
        let patience = self.start_patience();
        let waited = tokio::time::timeout(patience, ready.wait_for(|ready| *ready)).await;
        match waited {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(AgentError::Starting),
        }
    }
}
