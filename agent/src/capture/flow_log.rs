//! The flow log: gives its thread the ports of this node, as they come and go.
//!
//! Every port has taps of its own. Ways without a tap are off for a port as they are under capture. Nothing is
//! loaded and no port is touched without `--flow-log`.

use std::collections::{HashMap, HashSet};
use std::io;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use book::record::Attachment;
use capture::flows::{self, About, Change, Counted, FlowPort, LogFile, Place, Settings};
use capture::{Busy, Watch};
use clap::Args;
use cni_spec::AttachmentKey;
use datapath::capture::{FlowTap, Sampler, TapPlace};
use datapath::{Datapath, DatapathError};
use netdev::packet_socket;
use telemetry::chain;
use tokio::sync::oneshot;

use super::slow;
use crate::error::AgentError;
use crate::node::Node;

/// Between two looks at the ports.
const TURN: Duration = Duration::from_millis(250);
/// Looks after which a port that could not be sampled is tried again.
const RETRY: u32 = 40;
/// Changes that wait for the thread, at most.
///
/// It takes none while a write blocks, and each new port that waits has four descriptors.
const CHANGES: usize = 32;
/// Time that the last lines have.
const LAST: Duration = Duration::from_secs(2);

/// Options about the flow log.
#[derive(Debug, Clone, Args)]
pub struct FlowLogOptions {
    /// File of the flow log, or - for stdout; there is none when not given
    ///
    /// It has a JSON object on a line for each flow of each port and interval, of sampled packets.
    #[arg(long = "flow-log", value_name = "FILE", env = "PODNET_FLOW_LOG")]
    pub file: Option<PathBuf>,
    /// Packets of which the flow log samples one
    #[arg(
        long = "flow-sample",
        value_name = "NUMBER",
        env = "PODNET_FLOW_SAMPLE",
        default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000)
    )]
    pub one_of: u32,
    /// Seconds of an interval of the flow log
    #[arg(
        long = "flow-interval",
        value_name = "SECONDS",
        env = "PODNET_FLOW_INTERVAL",
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    pub interval: u64,
    /// MiB of the flow log's file at which it is renamed to FILE.1 and begun again
    #[arg(
        long = "flow-log-size",
        value_name = "MIB",
        env = "PODNET_FLOW_LOG_SIZE",
        default_value_t = 64,
        value_parser = clap::value_parser!(u64).range(1..=1 << 20)
    )]
    pub size: u64,
}

/// The flow log cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum FlowLogError {
    /// Its file.
    #[error("cannot write --flow-log {}: give a file in a directory that exists, or -", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Its thread.
    #[error("cannot start the thread of the flow log; raise the limit of processes (ulimit -u)")]
    Thread {
        /// Why not.
        source: io::Error,
    },
    /// The programs do not share what they must.
    #[error(transparent)]
    Datapath(#[from] DatapathError),
}

/// A flow log that runs.
#[derive(Debug)]
pub struct FlowLog {
    sampler: Arc<Sampler>,
    one_of: u32,
    counted: Arc<Counted>,
    changes: SyncSender<Change>,
    /// The thread has ended; an error without a value when it died.
    ended: oneshot::Receiver<()>,
}

/// Ports that the thread has, and those that it could not get.
#[derive(Debug, Default)]
struct Known {
    sampled: HashMap<Identity, u64>,
    failed: HashSet<Identity>,
    next: u64,
    /// The thread takes no changes.
    is_stuck: bool,
}

/// A port is another one when its interface is.
type Identity = (AttachmentKey, u32);

fn identity(record: &Attachment) -> Identity {
    (record.key.clone(), record.host.ifindex)
}

impl FlowLog {
    /// Begins it, if the options ask for one.
    ///
    /// # Errors
    /// When its file or its thread cannot be made, or the datapath has no part for it.
    pub fn begin(
        options: &FlowLogOptions,
        node: &str,
        datapath: &mut Datapath,
    ) -> Result<Option<Self>, FlowLogError> {
        let Some(path) = options.file.clone() else {
            return Ok(None);
        };
        let place = if path.as_os_str() == "-" {
            Place::Stdout
        } else {
            Place::File(path.clone())
        };
        let log = LogFile::new(place, options.size << 20);
        log.check()
            .map_err(|source| FlowLogError::File { path, source })?;
        let sampler = Arc::new(datapath.sampler()?);
        let settings = Settings {
            node: node.to_owned(),
            one_of: options.one_of,
            interval: Duration::from_secs(options.interval),
        };
        let counted = Arc::new(Counted::default());
        let (changes, changed) = sync_channel(CHANGES);
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("podnet-flows".to_owned());
        let numbers = Arc::clone(&counted);
        thread
            .spawn(move || {
                flows::run(&settings, &changed, &log, &numbers);
                // The agent may have ceased to wait.
                let _ = end.send(());
            })
            .map_err(|source| FlowLogError::Thread { source })?;
        Ok(Some(Self {
            sampler,
            one_of: options.one_of,
            counted,
            changes,
            ended,
        }))
    }

    /// Its numbers.
    pub fn counted(&self) -> Arc<Counted> {
        Arc::clone(&self.counted)
    }

    /// Follows the ports of this node; never returns while there is nothing to follow.
    pub async fn follow(flow_log: Option<&Self>, node: &Node) {
        let Some(flow_log) = flow_log else {
            return std::future::pending().await;
        };
        let mut known = Known::default();
        let mut turns = 0_u32;
        loop {
            let may_retry = turns.is_multiple_of(RETRY);
            flow_log.look(node, &mut known, may_retry).await;
            turns = turns.wrapping_add(1);
            tokio::time::sleep(TURN).await;
        }
    }

    async fn look(&self, node: &Node, known: &mut Known, may_retry: bool) {
        let (live, new) = {
            let ledger = node.book.ledger();
            let live = ledger.entries().filter(|entry| entry.live);
            let live: Vec<_> = live.map(|entry| identity(&entry.record)).collect();
            let is_new = |record: &Attachment| {
                let identity = identity(record);
                !known.sampled.contains_key(&identity)
                    && (may_retry || !known.failed.contains(&identity))
            };
            let all = ledger.entries().filter(|entry| entry.live);
            let new = all.filter(|entry| is_new(&entry.record));
            let new: Vec<Attachment> = new.map(|entry| entry.record.clone()).collect();
            (live.into_iter().collect::<HashSet<_>>(), new)
        };
        known.failed.retain(|identity| live.contains(identity));
        let gone = known.sampled.iter().filter(|(it, _)| !live.contains(it));
        let gone: Vec<_> = gone.map(|(it, number)| (it.clone(), *number)).collect();
        for (identity, number) in gone {
            // What found no room is said again in the next turn.
            if self.changes.try_send(Change::Close(number)).is_ok() {
                known.sampled.remove(&identity);
            }
        }
        if known.is_stuck && !may_retry {
            return;
        }
        known.is_stuck = false;
        for record in new {
            let identity = identity(&record);
            match self.open(node, &record, known.next).await {
                Ok(Some(port)) => {
                    // Before it is said to be sampled: none of its frames passes the tap by then.
                    slow(node, &record, true).await;
                    let open = Change::Open(Box::new(port));
                    if self.changes.try_send(open).is_err() {
                        known.is_stuck = true;
                        tracing::warn!(attachment = %record.key, "the flow log takes no more ports, because its lines are not written: see that the reader of stdout reads, or that the disk of --flow-log answers");
                        return;
                    }
                    known.failed.remove(&identity);
                    known.sampled.insert(identity, known.next);
                    known.next += 1;
                }
                // Its removal is on the way.
                Ok(None) => {}
                Err(error) => {
                    if known.failed.insert(identity) {
                        let error = chain(&error);
                        tracing::warn!(attachment = %record.key, error, "this port is not in the flow log, it will be tried again");
                    }
                }
            }
        }
    }

    /// Makes the taps of a port; none when its pod is gone.
    async fn open(
        &self,
        node: &Node,
        record: &Attachment,
        number: u64,
    ) -> Result<Option<FlowPort>, AgentError> {
        let watch = watch(node, record)?;
        let Some(watch) = watch else {
            return Ok(None);
        };
        let Some(tap) = self.taps(record).await? else {
            return Ok(None);
        };
        Ok(Some(FlowPort {
            number,
            about: about(record),
            tap,
            watch,
            ifindex: record.host.ifindex,
        }))
    }

    async fn taps(&self, record: &Attachment) -> Result<Option<FlowTap>, AgentError> {
        let (sampler, one_of) = (Arc::clone(&self.sampler), self.one_of);
        let (name, is_veth) = (record.host.name.clone(), record.interface.is_veth());
        let host = move || -> Result<FlowTap, AgentError> {
            if is_veth {
                let mut tap = sampler.tap(one_of, &[TapPlace::HostEnd, TapPlace::PodEnd])?;
                tap.attach(TapPlace::HostEnd, packet_socket(&name)?)?;
                Ok(tap)
            } else {
                let mut tap = sampler.tap(one_of, &[TapPlace::Both])?;
                tap.attach(TapPlace::Both, packet_socket(&name)?)?;
                Ok(tap)
            }
        };
        let mut tap = match tokio::task::spawn_blocking(host).await {
            Ok(made) => made?,
            Err(died) => resume_unwind(died.into_panic()),
        };
        if is_veth {
            let Some(netns) = record.sandbox.open()? else {
                return Ok(None);
            };
            let name = record.key.ifname.to_string();
            let pod_end = netns.enter(move || packet_socket(&name)).await??;
            tap.attach(TapPlace::PodEnd, pod_end)?;
        }
        tap.complete();
        Ok(Some(tap))
    }

    /// Ends it: the samples that are there are written.
    pub async fn end(self) {
        drop(self.changes);
        // Not joined: a thread that writes to a pipe without a reader ends with the process only, and the runtime
        // would wait for a task that joins it.
        match tokio::time::timeout(LAST, self.ended).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => {
                tracing::error!("the flow log died, its last lines are lost");
            }
            Err(_) => {
                tracing::warn!("the flow log takes its last lines too slowly, they are lost");
            }
        }
    }
}

/// Has drops of a port's sampled frames published.
///
/// None while the port's id is another port's.
fn watch(node: &Node, record: &Attachment) -> Result<Option<Watch>, AgentError> {
    match node.captures.sample(record.port_id, record.host.ifindex) {
        Ok(watch) => Ok(Some(watch)),
        Err(Busy::Datapath(error)) => Err(error.into()),
        // The thread has not ended the port that had this id before.
        Err(Busy::Port | Busy::Node) => Ok(None),
    }
}

fn about(record: &Attachment) -> About {
    About {
        network: record.network.name.to_string(),
        namespace: record.pod.as_ref().map(|pod| pod.namespace.to_string()),
        pod: record.pod.as_ref().map(|pod| pod.name.to_string()),
        container: record.key.container.to_string(),
        interface: record.key.ifname.to_string(),
    }
}
