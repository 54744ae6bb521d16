//! A member goes from one node to another, under traffic.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use agent_common::addr::MacAddr;
use anyhow::{Context, Result};
use netdev::Address;
use testbed::host::{UPLINK, connection};
use testbed::{Fabric, Node};

use super::crowd::{self, Crowd, Member};
use super::{Bench, Size, setup};
use crate::case::BEGIN;
use crate::interrupt;
use crate::peers::podnet_plugin;
use crate::report::{Better, Case};
use crate::sandbox::{Sandbox, Side};

/// UDP port of VXLAN.
const VXLAN: u16 = 4789;
/// The addresses between which it goes; both are the other end of the node's link.
const PLACES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 99, 0, 3), Ipv4Addr::new(10, 99, 0, 4)];
const MOVER: Member = Member {
    mac: MacAddr([2, 7, 7, 7, 7, 7]),
    ip: Ipv4Addr::new(10, 10, 255, 77),
};
/// Further members that stay, because a node without any is forgotten.
const STAYS: [Member; 2] = [
    Member {
        mac: MacAddr([2, 7, 7, 7, 7, 1]),
        ip: Ipv4Addr::new(10, 10, 255, 71),
    },
    Member {
        mac: MacAddr([2, 7, 7, 7, 7, 2]),
        ip: Ipv4Addr::new(10, 10, 255, 72),
    },
];
/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two packets of the pod.
const PACE: Duration = Duration::from_micros(100);

pub(super) fn run(bench: &Bench<'_>, sizes: &[Size], case: &mut Case) -> Result<()> {
    bench.progress.stage("moves");
    let rounds = bench.rounds(20);
    bench.progress.expect(rounds * sizes.len());
    for size in sizes {
        let files = tempfile::tempdir()?;
        Crowd::of(*size).write(files.path())?;
        say(files.path(), 0, Some(0))?;
        say(files.path(), 1, None)?;
        let [host, far] = Fabric::pair();
        let mut there = connection(far.netns());
        let uplink = there.by_name(UPLINK)?.context("the far end")?.ifindex;
        for place in PLACES {
            there.add_address(uplink, Address::new(place.into(), 24))?;
        }
        let node = Node::start_on(setup(*size, 1, &files)?, host);
        let name = format!("remote-moves-{}", size.members);
        let pod = Sandbox::create(bench.dir, &name)?;
        let network = crowd::network(0);
        let plugin = podnet_plugin(&network, &node, &network);
        let (_, result) = plugin.call("ADD", Some(&pod))?;
        let side = Side::of_result(&pod, &result)?;
        crowd::wait_known(&node, *size)?;
        let sockets = PLACES.map(|place| far.netns().run_in(|| UdpSocket::bind((place, VXLAN))));
        let [one, two] = sockets;
        let sockets = [one??, two??];
        for socket in &sockets {
            socket.set_read_timeout(Some(PATIENCE))?;
        }
        let (moved, times) = (AtomicBool::new(false), &mut Vec::new());
        thread::scope(|scope| {
            let sending = scope.spawn(|| send(&side, &moved));
            let done = follow(bench, files.path(), &sockets, rounds, times);
            moved.store(true, Ordering::Relaxed);
            let sent = sending.join();
            done.and(sent.unwrap_or_else(|_| Err(anyhow::anyhow!("the sender died"))))
        })?;
        for (round, time) in times.iter().enumerate() {
            case.measure("A move", "to the first packet there", "ms", Better::Less)
                .put(&size.named(), round, super::millis(*time));
        }
        drop(pod);
    }
    Ok(())
}

/// Sends to the mover until it is told to stop.
fn send(from: &Side, stop: &AtomicBool) -> Result<()> {
    let socket = from.netns.run_in(|| UdpSocket::bind((from.ip, 0)))??;
    while !stop.load(Ordering::Relaxed) {
        // Refused as long as the address does not resolve.
        let _ = socket.send_to(&[0; 18], (MOVER.ip, 9));
        thread::sleep(PACE);
    }
    Ok(())
}

/// Moves it to and fro.
fn follow(
    bench: &Bench<'_>,
    files: &Path,
    sockets: &[UdpSocket; 2],
    rounds: usize,
    times: &mut Vec<Duration>,
) -> Result<()> {
    let mut frame = [0; 256];
    sockets[0]
        .recv(&mut frame)
        .context("where it is at first")?;
    for round in 1..=rounds {
        interrupt::check()?;
        let (to, from) = (round % 2, (round + 1) % 2);
        empty(&sockets[to])?;
        let begun = Instant::now();
        say(files, to, Some(round))?;
        sockets[to].recv(&mut frame).context("where it has gone")?;
        times.push(begun.elapsed());
        // The node that it has left says so.
        say(files, from, None)?;
        super::super::pause();
        bench.progress.step();
    }
    Ok(())
}

/// Reads off the packets of an earlier round, which do not count in this one.
fn empty(socket: &UdpSocket) -> Result<()> {
    socket.set_nonblocking(true)?;
    while socket.recv(&mut [0; 256]).is_ok() {}
    socket.set_nonblocking(false)?;
    Ok(())
}

/// The node at a place has the mover since this round, or not at all.
fn say(files: &Path, place: usize, since: Option<usize>) -> Result<()> {
    let time = since.map(|round| {
        let (minutes, seconds) = (round / 60, round % 60);
        format!("2026-01-03T00:{minutes:02}:{seconds:02}.000000Z")
    });
    let mover = time.iter().map(|time| (MOVER, time.as_str()));
    let members = std::iter::once((STAYS[place], BEGIN)).chain(mover);
    let node = format!("place-{place}");
    crowd::put(
        files,
        &node,
        &crowd::slice(0, &node, PLACES[place], members)?,
    )
}
