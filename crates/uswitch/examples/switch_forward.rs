//! Run a switch with two ports of one network, loaded by two DPDK clients.
//!
//! It is an example to measure with.
//!
//! ```sh
//! cargo run --release --package uswitch --example switch_forward -- /tmp/memif
//! ```
//!
//! The ports are at `/tmp/memif.0` and `/tmp/memif.1`, both interface 0 there. A client of the first
//! must send from 02:00:00:00:00:10 to 02:00:00:00:00:11, one of the second the other way round, and
//! both from 198.18.0.1, as testpmd does with
//!
//! ```text
//! --vdev=net_memif0,role=client,id=0,socket=/tmp/memif.0,socket-abstract=no,mac=02:00:00:00:00:10
//! --vdev=net_memif1,role=client,id=0,socket=/tmp/memif.1,socket-abstract=no,mac=02:00:00:00:00:11
//! -- --eth-peer=0,02:00:00:00:00:11 --eth-peer=1,02:00:00:00:00:10 --tx-first
//! ```
//!
//! With `judged` behind the path both ports are judged, as if a policy allowed their connection and the kernel had
//! just shown it. With `turns` they are for 50 ms, and are not for 50 ms, in turn.
//!
//! It runs until it is ended, and says every second what went through; with `turns` what went through in each two
//! turns, not judged and judged, in packets a second.

use std::env;
use std::error::Error;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::thread;
use std::time::{Duration, Instant};

use agent_common::addr::{Ip16, MacAddr};
use agent_common::guard::{
    self, FLOW_ANSWERED, FlowKey, FlowWords, Guard, Secret, Slot, Stamp, Tuple,
};
use agent_common::map::MAX_SWITCH_FLOWS;
use agent_common::packet::IPPROTO_UDP;
use memif::Address;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::time::{ClockId, clock_gettime};
use uswitch::control::Client;
use uswitch::{Options, PortConfig, Switch};
use zerocopy::IntoBytes as _;

/// Ports with a stamp.
const PORTS: u32 = 256;
/// Stamp of both ports.
const STAMP: u32 = 7;
/// Source and destination of what testpmd and the bench's own client send, by UDP.
const CONNECTIONS: [(u16, u16); 2] = [(9, 9), (4242, 4243)];
/// How long ports are judged, and are not, in turn.
const TURN: Duration = Duration::from_millis(50);
/// Time until what the switch does is of a turn alone.
const SETTLE: Duration = Duration::from_millis(2);

/// The maps that a kernel would show.
struct Shown {
    flows: File,
    stamps: File,
}

impl Shown {
    fn new() -> Result<Self, Box<dyn Error>> {
        let (flows, stamps) = (tempfile::tempfile()?, tempfile::tempfile()?);
        flows.set_len(u64::from(MAX_SWITCH_FLOWS) * size_of::<Slot>() as u64)?;
        flows.write_all_at(SECRET.as_bytes(), 0)?;
        // For what they get: both clients send to the same address.
        let guard = Guard {
            ingress: 1,
            stamp: STAMP,
            ..Guard::default()
        };
        for port in 0..u64::from(PORTS) {
            let stamp = Stamp::of(&guard);
            stamps.write_all_at(stamp.as_bytes(), port * size_of::<Stamp>() as u64)?;
        }
        let shown = Self { flows, stamps };
        shown.show()?;
        Ok(shown)
    }

    /// Shows the connections, as of now.
    fn show(&self) -> Result<(), Box<dyn Error>> {
        let now = clock_gettime(ClockId::Monotonic);
        let seen = guard::tick(u64::try_from(now.tv_sec)? * 1_000_000_000);
        let [low, high] = &SECRET;
        let secret = Secret { low, high };
        for (source_port, destination_port) in CONNECTIONS {
            let tuple = Tuple {
                source: Ip16::from("198.18.0.1".parse::<IpAddr>()?),
                destination: Ip16::from("198.18.0.2".parse::<IpAddr>()?),
                protocol: IPPROTO_UDP,
                source_port,
                destination_port,
                ..Tuple::EMPTY
            };
            let (key, _) = FlowKey::of(1, &tuple);
            let flow = FlowWords {
                seen,
                flags: FLOW_ANSWERED,
                egress: 0,
                ingress: STAMP,
            };
            let sum = secret.sum(&key);
            let tag = secret.tag(sum, &flow);
            let at = u64::from(Secret::place(sum)) * size_of::<Slot>() as u64;
            self.flows
                .write_all_at(Slot { key, flow, tag }.as_bytes(), at)?;
        }
        Ok(())
    }
}

/// A secret that is none.
const SECRET: [[u64; 8]; 2] = [[0x9e37_79b9_7f4a_7c15; 8], [0xbf58_476d_1ce4_e5b9; 8]];

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("give a path for the sockets")?;
    let options = Options::new(format!("{path}.control").into());
    let switch = Switch::open(&options)?;
    let running = thread::spawn(move || switch.run());
    let mut client = Client::connect(&options.socket)?;
    let word = env::args().nth(2);
    let (is_judged, by_turns) = match word.as_deref() {
        None => (false, false),
        Some("judged") => (true, false),
        Some("turns") => (true, true),
        Some(other) => {
            return Err(format!("{other} is no word for it: say judged, turns, or nothing").into());
        }
    };
    let shown = is_judged.then(Shown::new).transpose()?;
    if let Some(Shown { flows, stamps }) = &shown {
        client.judge(flows.as_fd(), stamps.as_fd(), PORTS)?;
    }
    // What goes to a device is a mistake of the load's, and is not read.
    let mut devices: Vec<OwnedFd> = Vec::new();
    for nth in 0..2_u8 {
        let config = port(nth, is_judged)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (device, kernel) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let listener = Address::Path(format!("{path}.{nth}").into()).listen()?;
        client.add(&config, (device.as_fd(), false), &[listener.as_fd()])?;
        devices.push(kernel);
    }
    let (mut before, mut judged_first) = (0, true);
    while !running.is_finished() {
        if let (Some(shown), true) = (&shown, by_turns) {
            judged_first = !judged_first;
            let [free, judged] = turns(&mut client, shown, judged_first)?;
            println!("{free:.0} {judged:.0}");
            continue;
        }
        thread::sleep(Duration::from_secs(1));
        if let Some(shown) = &shown {
            shown.show()?;
        }
        let ports = client.list()?;
        let now: u64 = ports.iter().map(|port| port.counters.fast_to.packets).sum();
        let dropped: u64 = ports
            .iter()
            .map(|port| port.counters.drops.no_buffer + port.counters.drops.device_full)
            .sum();
        let device: u64 = ports
            .iter()
            .map(|port| port.counters.device_from.packets)
            .sum();
        let rate = now.saturating_sub(before) / 1000;
        println!("{rate} kpps, {dropped} dropped, {device} to devices");
        before = now;
    }
    Ok(())
}

fn port(nth: u8, judged: bool) -> Result<PortConfig, Box<dyn Error>> {
    Ok(PortConfig {
        key: format!("port{nth}"),
        name: format!("port{nth}"),
        network: 1,
        port_id: nth.into(),
        flags: 0,
        mac: MacAddr([2, 0, 0, 0, 0, 0x10 + nth]),
        ips: vec!["198.18.0.1".parse()?],
        mtu: 1500,
        fast: !judged,
        judged,
        trains: true,
        queues: 1,
        secret: None,
    })
}

/// Returns packets a second of a turn without and of one with judged ports.
fn turns(
    client: &mut Client,
    shown: &Shown,
    judged_first: bool,
) -> Result<[f64; 2], Box<dyn Error>> {
    let mut rates = [0.0; 2];
    for judged in [judged_first, !judged_first] {
        if judged {
            // While the switch does not look at it: a packet that finds it half written is the kernel's.
            set_judged(client, false)?;
            shown.show()?;
        }
        set_judged(client, judged)?;
        thread::sleep(SETTLE);
        let (before, begun) = (forwarded(client)?, Instant::now());
        thread::sleep(TURN);
        let packets = forwarded(client)?.saturating_sub(before);
        rates[usize::from(judged)] = packets as f64 / begun.elapsed().as_secs_f64();
    }
    Ok(rates)
}

fn set_judged(client: &mut Client, judged: bool) -> Result<(), Box<dyn Error>> {
    for nth in 0..2 {
        client.update(&port(nth, judged)?)?;
    }
    Ok(())
}

fn forwarded(client: &mut Client) -> Result<u64, Box<dyn Error>> {
    let ports = client.list()?;
    Ok(ports.iter().map(|port| port.counters.fast_to.packets).sum())
}
