//! Runs the flow log: reads samples of all ports in turn, writes intervals.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use agent_common::capture::{FLOW_RING_BYTES, FlowRecord};
use agent_common::event::DropEvent;
use datapath::DatapathError;
use datapath::capture::FlowTap;
use rustix::time::ClockId;

use crate::flows::line::{self, About, Header};
use crate::flows::log_file::LogFile;
use crate::flows::table::{FlowTable, Interval};
use crate::flows::turn::{Readable, turn};
use crate::join::{Frame, Join};
use crate::registry::Watch;
use crate::session::{frame, now};

/// Flows of all ports in an interval.
const FLOWS: usize = 8192;
/// Between two looks at the samples.
const TURN: Duration = Duration::from_millis(50);
/// Samples of a port in a turn, as many as its ring has.
const SAMPLES: usize = FLOW_RING_BYTES as usize / size_of::<FlowRecord>();

/// Settings of the flow log.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of the node.
    pub node: String,
    /// Frames of which one is sampled.
    pub one_of: u32,
    /// Length of an interval.
    pub interval: Duration,
}

/// A port of the flow log.
#[derive(Debug)]
pub struct FlowPort {
    /// Number that no port had before.
    pub number: u64,
    /// Its names.
    pub about: About,
    /// Its samples, attached.
    pub tap: FlowTap,
    /// Drops of frames that were sampled.
    pub watch: Watch,
    /// The interface at which its frames are judged first.
    pub ifindex: u32,
}

/// A change of the ports.
#[derive(Debug)]
pub enum Change {
    /// A port is there.
    Open(Box<FlowPort>),
    /// The port with this number is gone.
    Close(u64),
}

/// Numbers of the flow log since the agent has started.
#[derive(Debug, Default)]
pub struct Counted {
    /// Ports that it samples now.
    pub ports: AtomicU64,
    /// Samples that are in flows.
    pub logged: AtomicU64,
    /// Samples for whose flow there was no room.
    pub overflow: AtomicU64,
    /// Samples for which there was no room in their ring.
    pub lost: AtomicU64,
    /// Lines that were written.
    pub lines: AtomicU64,
    /// Lines that could not be written.
    pub failed_lines: AtomicU64,
}

impl Counted {
    fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }
}

struct Sampled {
    port: FlowPort,
    join: Join,
    lost: u64,
    lost_drops: u64,
}

/// Logs until the sender of changes is gone, and then writes what there is. Blocks.
pub fn run(settings: &Settings, changes: &Receiver<Change>, log: &LogFile, counted: &Arc<Counted>) {
    let mut work = Work {
        settings,
        log,
        counted,
        table: FlowTable::new(FLOWS),
        ports: HashMap::new(),
        begun: Instant::now(),
        failing: false,
        gone: Vec::new(),
    };
    let mut next = Instant::now() + TURN;
    loop {
        match changes.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(Change::Open(port)) => work.open(*port),
            Ok(Change::Close(number)) => work.close(number),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                work.look(true);
                work.write();
                return;
            }
        }
        // Also between changes that come without an end.
        if Instant::now() >= next {
            work.look(false);
            if work.begun.elapsed() >= settings.interval {
                work.write();
            }
            next = Instant::now() + TURN;
        }
    }
}

struct Work<'a> {
    settings: &'a Settings,
    log: &'a LogFile,
    counted: &'a Arc<Counted>,
    table: FlowTable,
    ports: HashMap<u64, Sampled>,
    begun: Instant,
    /// The last lines could not be written.
    failing: bool,
    /// Ports that have ended in this interval, with what they had.
    gone: Vec<(About, Interval)>,
}

impl Work<'_> {
    fn open(&mut self, port: FlowPort) {
        self.table.open(port.number);
        let sampled = Sampled {
            join: Join::new(port.ifindex),
            lost: 0,
            lost_drops: 0,
            port,
        };
        self.ports.insert(sampled.port.number, sampled);
        self.count_ports();
    }

    fn close(&mut self, number: u64) {
        if let Some(mut sampled) = self.ports.remove(&number) {
            take(&mut self.table, self.counted, &mut sampled, true);
            if let Some(interval) = self.table.close(number) {
                self.gone.push((sampled.port.about, interval));
            }
        }
        // Ports that come and go in one interval have no more flows than those that stay.
        let rows: usize = self.gone.iter().map(|(_, it)| it.rows.len() + 1).sum();
        if rows > FLOWS {
            self.write();
        }
        self.count_ports();
    }

    fn count_ports(&self) {
        let ports = u64::try_from(self.ports.len()).unwrap_or(u64::MAX);
        self.counted.ports.store(ports, Ordering::Relaxed);
    }

    fn look(&mut self, last: bool) {
        for sampled in self.ports.values_mut() {
            take(&mut self.table, self.counted, sampled, last);
        }
    }

    fn write(&mut self) {
        let epoch_ns = now(ClockId::Realtime).saturating_sub(now(ClockId::Monotonic));
        let header = Header {
            node: &self.settings.node,
            end_ns: now(ClockId::Realtime),
            interval_ms: u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            one_of: self.settings.one_of,
            epoch_ns,
        };
        self.begun = Instant::now();
        let mut all = self.table.take();
        let (mut text, mut lines) = (Vec::new(), 0);
        let known = all.iter().filter_map(|(number, interval)| {
            let sampled = self.ports.get(number)?;
            Some((&sampled.port.about, interval))
        });
        let gone = self.gone.iter().map(|(about, interval)| (about, interval));
        for (about, interval) in known.chain(gone) {
            // Nothing of a line cannot be written into memory.
            lines += line::of_port(&mut text, &header, about, interval).unwrap_or(0);
        }
        let gone = std::mem::take(&mut self.gone);
        all.extend(gone.into_iter().map(|(_, interval)| (0, interval)));
        if all.is_empty() {
            return;
        }
        if line::end(&mut text, &header, self.ports.len(), &all).is_ok() {
            lines += 1;
        }
        let lines = u64::try_from(lines).unwrap_or(u64::MAX);
        match self.log.append(&text) {
            Ok(()) => {
                Counted::add(&self.counted.lines, lines);
                if self.failing {
                    tracing::info!("lines of the flow log are written again");
                }
                self.failing = false;
            }
            Err(error) => {
                Counted::add(&self.counted.failed_lines, lines);
                if !self.failing {
                    tracing::error!(%error, "lines of the flow log are lost: see that --flow-log can be written and its disk has room");
                }
                self.failing = true;
            }
        }
    }
}

/// Takes what is there of a port into the table.
fn take(table: &mut FlowTable, counted: &Counted, sampled: &mut Sampled, last: bool) {
    let Sampled {
        port,
        join,
        lost,
        lost_drops,
    } = sampled;
    let judged = turn(port, join, lost_drops, now(ClockId::Monotonic), last);
    let lost_now = number(port.tap.lost(), *lost);
    let more = lost_now
        .saturating_sub(*lost)
        .saturating_add(join.take_refused());
    if more > 0 {
        table.lose(port.number, more);
        Counted::add(&counted.lost, more);
    }
    *lost = lost_now;
    for judged in judged {
        let counter = if table.count(port.number, &judged) {
            &counted.logged
        } else {
            &counted.overflow
        };
        Counted::add(counter, 1);
    }
}

impl Readable for FlowPort {
    fn heard_until(&self) -> u64 {
        self.watch.heard_until()
    }

    fn lost_drops(&self) -> Result<u64, DatapathError> {
        self.watch.lost()
    }

    fn samples(&mut self, mut take: impl FnMut(Frame)) {
        self.tap.read(SAMPLES, |record| take(shown(record)));
    }

    fn drops(&self, take: impl FnMut(DropEvent)) {
        self.watch.drops().for_each(take);
    }
}

/// A number that the kernel tells, or what it was before.
fn number(told: Result<u64, DatapathError>, before: u64) -> u64 {
    told.unwrap_or_else(|error| {
        tracing::debug!(%error, "a number of the flow log was not read");
        before
    })
}

fn shown(record: &FlowRecord) -> Frame {
    let FlowRecord {
        tap,
        cpu,
        segments,
        head,
    } = record;
    let length = usize::try_from(tap.captured).unwrap_or(0);
    let bytes = head.get(..length).unwrap_or(head);
    Frame {
        segments: (*segments).max(1),
        ..frame(*cpu, tap, bytes, u32::MAX)
    }
}
