//! Logs samples of dropped packets, and gives captures their drops.

use std::io;
use std::sync::Arc;

use agent_common::drop::DropReason;
use datapath::{Events, Sample};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::node::Node;

/// Between two times at which a capture is told that it has heard of all drops.
const CAPTURE_TURN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// Logs samples of dropped packets, and gives captures their drops.
///
/// It does so on a thread of its own.
///
/// The thread lives as long as the process. The ring is no socket, and an async runtime cannot wait for
/// it without unsafe code.
pub(super) fn log(node: Arc<Node>, mut events: Events) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("podnet-samples".to_owned());
    thread.spawn(move || {
        loop {
            let captures = &*node.captures;
            // A capture wants to know that nothing was dropped, too.
            let turn = captures.is_running().then_some(&CAPTURE_TURN);
            let mut waiting = [
                PollFd::new(&events, PollFlags::IN),
                PollFd::new(captures, PollFlags::IN),
            ];
            match poll(&mut waiting, turn) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::warn!(%error, "samples of dropped packets are not logged any more, and captures show no drops: start the agent again");
                    return;
                }
            }
            captures.woken();
            let until = monotonic();
            while let Some(sample) = events.next_sample() {
                match sample.captured_on() {
                    Some(_) => captures.hear(&sample),
                    None => log_sample(&node, &sample),
                }
            }
            captures.heard(until);
        }
    })?;
    Ok(())
}

/// Nanoseconds of `CLOCK_MONOTONIC`, as programs count them.
fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

fn log_sample(node: &Node, sample: &Sample) {
    let reason = DropReason::from_number(sample.reason).map_or("unknown", DropReason::label);
    let network = node
        .book
        .ledger()
        .name_of(sample.network)
        .unwrap_or_default()
        .to_owned();
    let length = usize::try_from(sample.head_length).unwrap_or(0);
    let head: String = sample
        .head
        .iter()
        .take(length)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    tracing::debug!(
        reason,
        network,
        ifindex = sample.ifindex,
        length = sample.length,
        head,
        "a packet is dropped"
    );
}
