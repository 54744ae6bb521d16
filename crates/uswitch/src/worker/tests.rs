//! Drive a worker round by round, with real rings, counted frames and no clock.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Instant;

use agent_common::addr::MacAddr;
use agent_common::cases::build::Ipv4;
use memif::{
    Address, Client, ClientConfig, Door, Event, Listener, Sent, ServerConfig, ServerConnection,
    Text,
};
use rustix::io::ioctl_fionbio;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

mod trains;

use super::clock::Weights;
use super::*;
use crate::device::Device;
use crate::port::{PortConfig, PortCounters};

/// Weights by which a frame to the device costs as much as 16 to another port.
///
/// That is the ratio on the machine of the review, for frames that the kernel program drops.
const WEIGHTS: Weights = Weights {
    frame: 80,
    to_device: 16 * 80,
};

/// A port of the worker, and its client.
struct Pod {
    slot: Slot,
    config: PortConfig,
    app: memif::Port,
    /// The kernel's end of the device.
    kernel: OwnedFd,
    _ends: (Client, ServerConnection, Listener),
}

fn worker() -> Worker {
    let (_, commands) = channel();
    let (sender, _) = channel();
    let bell = || Arc::new(new_bell().unwrap());
    let reports = Reports {
        sender,
        bell: bell(),
    };
    let mut worker = Worker::new(0, Manner::default(), commands, bell(), reports).unwrap();
    worker.clock.weights = Some(WEIGHTS);
    worker
}

/// Rings of a server and of its client.
fn rings() -> (
    memif::Port,
    memif::Port,
    (Client, ServerConnection, Listener),
) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let nth = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("uswitch-worker-{}-{nth}", std::process::id());
    let address = Address::Abstract(name.into_bytes());
    let door = Door::new(0, Text::new("net1").unwrap());
    let listener = ServerConfig::new(Text::new("switch").unwrap(), door);
    let listener = Listener::bind(&address, listener).unwrap();
    let now = Instant::now();
    let mut client =
        Client::new(address, ClientConfig::new(Text::new("app").unwrap()), now).unwrap();
    let _ = client.poll(now).unwrap();
    let mut connection = listener.accept(now).unwrap().unwrap();
    let (mut ours, mut theirs) = (None, None);
    while ours.is_none() || theirs.is_none() {
        if let Event::Connected(port) = connection.ready(now).unwrap() {
            ours = Some(port);
        }
        if let Event::Connected(port) = client.poll(now).unwrap() {
            theirs = Some(port);
        }
    }
    (
        ours.unwrap(),
        theirs.unwrap(),
        (client, connection, listener),
    )
}

impl Pod {
    fn new(worker: &mut Worker, key: &str, network: u32, host: u8) -> Self {
        Self::with(worker, key, network, host, |file| {
            Device::new(file, false).unwrap()
        })
    }

    /// One with a device of a kind.
    fn with(
        worker: &mut Worker,
        key: &str,
        network: u32,
        host: u8,
        make: impl FnOnce(OwnedFd) -> Device,
    ) -> Self {
        let slot = Slot::from(host);
        let config = PortConfig {
            key: key.to_owned(),
            network,
            port_id: u16::from(host),
            mac: MacAddr([2, 0, 0, 0, 0, host]),
            ips: vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, host))],
            ..PortConfig::sample()
        };
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (device, kernel) = pair.unwrap();
        ioctl_fionbio(&kernel, true).unwrap();
        worker.obey(Command::Add {
            slot,
            config: Box::new(config.clone()),
            device: Arc::new(make(device)),
            counters: PortCounters::default(),
        });
        let (ours, app, ends) = rings();
        worker.obey(Command::Connect {
            slot,
            serial: u64::from(host),
            port: Box::new(ours),
        });
        Self {
            slot,
            config,
            app,
            kernel,
            _ends: ends,
        }
    }

    /// Fills its ring with a frame.
    fn flood(&mut self, frame: &[u8]) {
        let tx = &mut self.app.tx[0];
        while tx.push(frame).unwrap() == Sent::Yes {}
        tx.flush();
    }

    /// Takes what came.
    fn drain(&mut self) {
        while self.app.rx[0].burst(1024, |_| {}).unwrap() > 0 {}
    }

    fn frame_to(&self, other: &Self) -> Vec<u8> {
        self.frame(other, self.config.mac)
    }

    /// One that the kernel program has to drop.
    fn spoofed(&self, other: &Self) -> Vec<u8> {
        self.frame(other, MacAddr([2, 6, 6, 6, 6, 6]))
    }

    fn frame(&self, other: &Self, source: MacAddr) -> Vec<u8> {
        let ip = |config: &PortConfig| match config.ips[0] {
            IpAddr::V4(ip) => ip,
            IpAddr::V6(ip) => panic!("{ip}"),
        };
        Ipv4::new(ip(&self.config), ip(&other.config)).udp(other.config.mac, source, (1, 2))
    }

    fn counters(&self, worker: &Worker) -> PortCounters {
        let mut all = worker.count().ports.into_iter();
        all.find(|(slot, _)| *slot == self.slot).unwrap().1
    }

    /// Returns the frames of its client to other clients, and to the device.
    ///
    /// Those that the device had no room for count too.
    fn sent(&self, worker: &Worker) -> (i64, i64) {
        let counters = self.counters(worker);
        let device = counters.device_from.packets + counters.drops.device_full;
        (
            i64::try_from(counters.fast_from.packets).unwrap(),
            i64::try_from(device).unwrap(),
        )
    }

    /// The worker's time that its frames took.
    fn time(&self, worker: &Worker) -> i64 {
        let (fast, device) = self.sent(worker);
        fast * WEIGHTS.frame + device * WEIGHTS.to_device
    }
}

/// ATT-03b: a flood of dropped frames leaves a good pair 0.8 of its equal share.
///
/// One pod floods by one port and by five; the pair is of another network.
#[test]
fn a_flood_of_dropped_frames_leaves_a_good_pair_its_share() {
    for ports in [1, 5] {
        let mut worker = worker();
        let mut good = Pod::new(&mut worker, "good/net1", 7, 1);
        let mut sink = Pod::new(&mut worker, "sink/net1", 7, 2);
        let mut hostile: Vec<Pod> = (0..ports)
            .map(|nth| Pod::new(&mut worker, &format!("hostile/net{nth}"), 8, 10 + nth))
            .collect();
        let frame = good.frame_to(&sink);
        let spoofed = hostile[0].spoofed(&good);
        // Rings hold more than what is taken in a round.
        for _ in 0..2_000 {
            good.flood(&frame);
            for port in &mut hostile {
                port.flood(&spoofed);
            }
            assert!(worker.round());
            sink.drain();
        }
        let used: i64 = hostile.iter().map(|port| port.time(&worker)).sum();
        let time = good.time(&worker);
        let equal = (used + time) / 2;
        assert!(
            time * 10 >= equal * 8,
            "{ports} ports: the good pair had {time} ns, an equal share is {equal} ns"
        );
        assert!(used * 10 >= equal * 8, "the flood has its share, too");
        assert_eq!(good.sent(&worker).1, 0);
        assert!(hostile.iter().all(|port| port.sent(&worker).0 == 0));
        let drops = good.counters(&worker).drops;
        assert_eq!(drops, crate::port::PortDrops::default());
    }
    proof::of!("ATT-03b");
}

/// ATT-03b: a flood from the kernel to one pod leaves a good pair its share.
#[test]
fn a_flood_from_the_kernel_leaves_a_good_pair_its_share() {
    let mut worker = worker();
    let mut good = Pod::new(&mut worker, "good/net1", 7, 1);
    let mut sink = Pod::new(&mut worker, "sink/net1", 7, 2);
    let mut hostile: Vec<Pod> = (0..5)
        .map(|nth| Pod::new(&mut worker, &format!("hostile/net{nth}"), 8, 10 + nth))
        .collect();
    let frame = good.frame_to(&sink);
    for _ in 0..1_000 {
        good.flood(&frame);
        for port in &mut hostile {
            while rustix::io::write(&port.kernel, &frame).is_ok() {}
            port.drain();
            // What epoll would say.
            worker.inputs[index(port.slot)]
                .as_mut()
                .unwrap()
                .device_ready = true;
        }
        assert!(worker.round());
        sink.drain();
    }
    let from_kernel = |port: &Pod| {
        let counters = port.counters(&worker);
        let frames = counters.device_to.packets + counters.drops.no_buffer;
        i64::try_from(frames).unwrap() * WEIGHTS.to_device
    };
    let used: i64 = hostile.iter().map(from_kernel).sum();
    let time = good.time(&worker);
    let equal = (used + time) / 2;
    assert!(
        time * 10 >= equal * 8,
        "the good pair had {time} ns, an equal share is {equal} ns"
    );
    proof::of!("ATT-03b");
}

/// A worker with one debtor serves it in the next round but one, and then sleeps.
#[test]
fn a_port_that_is_alone_is_served_all_the_time() {
    let mut worker = worker();
    let mut alone = Pod::new(&mut worker, "alone/net1", 7, 1);
    let other = Pod::new(&mut worker, "other/net1", 7, 2);
    alone.flood(&alone.spoofed(&other));
    let mut rounds = 0;
    while worker.round() {
        rounds += 1;
    }
    assert_eq!(alone.sent(&worker), (0, 1024));
    // Turns of sixteen, and at most one empty round for each.
    assert!(rounds <= 2 * 1024 / 16, "{rounds}");
}
