//! Serves `capture`: finds the attachment, makes the taps, and passes the file on.
//!
//! Ways without a tap are off for the port meanwhile: the switch's way from one memif port to another, and
//! XDP that gives frames to a socket. Nothing of a capture outlives the agent but that, and the next one
//! writes the tables and tells the switch.

use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_common::capture::MAX_SNAPLEN;
use capture::session::SessionError;
use capture::{Busy, Limits, Named, Sink, Source};
use cni_spec::CaptureRequest;
use datapath::capture::{Tap, TapPlace};
use netdev::packet_socket;
use serde_json::{Value, json};
use telemetry::chain;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::subject::find;
use crate::error::{AgentError, ExplainError};
use crate::node::Node;
use book::record::Attachment;

pub mod flow_log;
mod subject;

/// The Ethernet header, without which a packet says nothing.
const SHORTEST: u32 = 14;
/// Seconds that a capture may last.
const LONGEST: u64 = 24 * 3600;
/// Bytes of a CPU's buffer.
const BUFFERS: std::ops::RangeInclusive<u32> = 64 << 10..=64 << 20;
/// Pieces of the file that wait for the client.
const PIECES: usize = 16;
/// Time after which a client that takes nothing is gone.
const STUCK: Duration = Duration::from_secs(30);

/// A capture that is running; [`Self::pass`] or [`Self::finish`] ends it.
#[derive(Debug)]
pub struct Running {
    /// Facts about the port, for the client.
    pub about: Value,
    record: Attachment,
    pieces: mpsc::Receiver<Vec<u8>>,
    stop: Arc<AtomicBool>,
    work: JoinHandle<Result<u64, SessionError>>,
}

struct Pieces(mpsc::Sender<Vec<u8>>);

impl Sink for Pieces {
    fn take(&mut self, piece: Vec<u8>) -> bool {
        self.0.blocking_send(piece).is_ok()
    }
}

/// Begins a capture.
///
/// # Errors
/// When the request names no attachment, or a limit that cannot be, or the kernel refuses.
pub async fn begin(node: &Node, request: &CaptureRequest) -> Result<Running, AgentError> {
    let limits = limits(request)?;
    if !node.is_ready() {
        return Err(AgentError::Starting);
    }
    let record = {
        let ledger = node.book.ledger();
        let live = ledger.entries().filter(|entry| entry.live);
        find(live.map(|entry| &entry.record), request)?.clone()
    };
    let far = record.shaper.map(|shaper| shaper.far);
    let interfaces = std::iter::once(record.host.ifindex).chain(far).collect();
    let watch = node.captures.watch(record.port_id, interfaces);
    let watch = watch.map_err(|error| match error {
        Busy::Datapath(error) => AgentError::from(error),
        Busy::Port => refused(
            request,
            "a capture of this port is running: end it, or wait for its end",
        ),
        Busy::Node => refused(
            request,
            "as many captures as a node may have are running on this one: end one of them",
        ),
    })?;
    let buffer = usize::try_from(request.buffer).unwrap_or(usize::MAX);
    let Some(tap) = open(&record, limits.snaplen, buffer).await? else {
        return Err(refused(request, "the pod of this attachment is gone"));
    };
    slow(node, &record, true).await;
    let source = Source {
        tap,
        watch,
        ifindex: record.host.ifindex,
    };
    let (to, pieces) = mpsc::channel(PIECES);
    let stop = Arc::new(AtomicBool::new(false));
    let work = {
        let (named, stop) = (named(&record), Arc::clone(&stop));
        move || capture::run(source, &named, limits, &stop, &mut Pieces(to))
    };
    tracing::info!(attachment = %record.key, "capture begins");
    Ok(Running {
        about: about(&record),
        record,
        pieces,
        stop,
        work: tokio::task::spawn_blocking(work),
    })
}

/// Makes the taps of a port; none when its pod is gone.
async fn open(record: &Attachment, snaplen: u32, buffer: usize) -> Result<Option<Tap>, AgentError> {
    let name = record.host.name.clone();
    let host = move || -> Result<_, AgentError> {
        Ok((Tap::load(snaplen, buffer)?, packet_socket(&name)?))
    };
    let (mut tap, host_end) = match tokio::task::spawn_blocking(host).await {
        Ok(made) => made?,
        Err(died) => resume_unwind(died.into_panic()),
    };
    if !record.interface.is_veth() {
        tap.attach(TapPlace::Both, host_end)?;
        return Ok(Some(tap));
    }
    tap.attach(TapPlace::HostEnd, host_end)?;
    let Some(netns) = record.sandbox.open()? else {
        return Ok(None);
    };
    let name = record.key.ifname.to_string();
    let pod_end = netns.enter(move || packet_socket(&name)).await??;
    tap.attach(TapPlace::PodEnd, pod_end)?;
    Ok(Some(tap))
}

/// Has all packets of a port that is a socket go by its interface, or not any more.
///
/// A failure is logged: the audit, and the next agent, make it as the records say.
async fn slow(node: &Node, record: &Attachment, slow: bool) {
    if record.interface.is_veth() {
        return;
    }
    let (network, port) = (record.network.id, record.port_id);
    if let Err(error) = node.tables.set_unsteered(network, port, slow) {
        let error = chain(&error);
        tracing::error!(attachment = %record.key, error, "the tables do not follow a capture of this port, the audit will repeat it");
    }
    if record.is_switched()
        && let Err(error) = node.ports.set_slow(record, slow).await
    {
        let error = chain(&error);
        tracing::error!(attachment = %record.key, error, "the switch does not follow a capture of this port, it will be told when it answers");
    }
}

impl Running {
    /// Sends the file to the client, until the capture or the client ends.
    ///
    /// A client that closes its sending side gets the packets until then, and the end of the file.
    ///
    /// # Errors
    /// When the client is gone or takes nothing; everything is as before all the same.
    pub async fn pass(mut self, node: &Node, stream: &mut UnixStream) -> io::Result<()> {
        let (mut from, mut to) = stream.split();
        let mut ready = node.readiness();
        let mut nothing = [0; 1];
        let mut asked = false;
        let passed = loop {
            let piece = tokio::select! {
                piece = self.pieces.recv() => piece,
                // The client sends nothing: either this is the end, or an error.
                _ = from.read(&mut nothing), if !asked => {
                    asked = true;
                    self.stop.store(true, Ordering::Release);
                    continue;
                }
                // The agent is stopping.
                _ = ready.wait_for(|ready| !*ready), if !asked => {
                    asked = true;
                    self.stop.store(true, Ordering::Release);
                    continue;
                }
            };
            let Some(piece) = piece else {
                break Ok(());
            };
            match timeout(STUCK, to.write_all(&piece)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => break Err(error),
                Err(_) => break Err(io::ErrorKind::TimedOut.into()),
            }
        };
        self.finish(node).await;
        passed
    }

    /// Ends it, and has everything be as before.
    pub async fn finish(self, node: &Node) {
        self.stop.store(true, Ordering::Release);
        // The thread sees that no more is taken.
        drop(self.pieces);
        let attachment = &self.record.key;
        match self.work.await {
            Ok(Ok(packets)) => tracing::info!(%attachment, packets, "capture ended"),
            Ok(Err(error)) => {
                let error = chain(&error);
                tracing::error!(%attachment, error, "capture failed, its file ends early: begin it again");
            }
            Err(died) => {
                tracing::error!(%attachment, error = %died, "capture died, its file ends early: begin it again");
            }
        }
        // The flow log wants all packets of the port by its interface, too.
        if !node.captures.is_sampled(self.record.port_id) {
            slow(node, &self.record, false).await;
        }
    }
}

/// Reads the limits of a request.
fn limits(request: &CaptureRequest) -> Result<Limits, ExplainError> {
    let invalid = |argument, value: u64, fix| ExplainError::Invalid {
        argument,
        value: value.to_string(),
        fix,
    };
    if !(SHORTEST..=MAX_SNAPLEN).contains(&request.snaplen) {
        let snaplen = u64::from(request.snaplen);
        return Err(invalid(
            "--snaplen",
            snaplen,
            "write a number of bytes from 14 to 65000",
        ));
    }
    if !(1..=LONGEST).contains(&request.seconds) {
        return Err(invalid(
            "--seconds",
            request.seconds,
            "write a number from 1 to 86400",
        ));
    }
    if !BUFFERS.contains(&request.buffer) {
        let kib = u64::from(request.buffer >> 10);
        return Err(invalid(
            "--buffer",
            kib,
            "write a number of KiB from 64 to 65536",
        ));
    }
    Ok(Limits {
        snaplen: request.snaplen,
        packets: (request.packets > 0).then_some(request.packets),
        time: Duration::from_secs(request.seconds),
    })
}

fn refused(request: &CaptureRequest, fix: &'static str) -> AgentError {
    let (argument, value) = subject::written(request);
    ExplainError::Invalid {
        argument,
        value,
        fix,
    }
    .into()
}

fn named(record: &Attachment) -> Named {
    let pod = record.pod.as_ref();
    let holder = pod.map_or_else(
        || record.key.container.to_string(),
        |pod| format!("{}/{}", pod.namespace, pod.name),
    );
    Named {
        interface: record.key.ifname.to_string(),
        description: format!(
            "{holder}, network {}, {} port; inbound is to the pod",
            record.network.name, record.interface.kind
        ),
        application: concat!("podnet-agent ", env!("CARGO_PKG_VERSION")).to_owned(),
    }
}

fn about(record: &Attachment) -> Value {
    json!({
        "container": record.key.container,
        "ifname": record.key.ifname,
        "pod": record.pod,
        "network": record.network.name,
        "type": record.interface.kind,
        "hostInterface": record.host.name,
    })
}

#[cfg(test)]
mod tests;
