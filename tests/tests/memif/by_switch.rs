//! Test testpmd as the client of a switch's port, with a TAP device and our client.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd as _;
use std::os::fd::OwnedFd;
use std::thread;

use agent_common::addr::MacAddr;
use memif::{Address, ClientConfig, Sent};
use netdev::{Connection, TapSpec};
use testbed::{Tap, wait};
use uswitch::control::Client;
use uswitch::{Ended, Options, PortConfig, PortStatus, Switch};

use super::testpmd::{Place, connect, exchange, frame, name};

const LENS: [usize; 7] = [60, 61, 64, 127, 512, 1500, 1514];
/// Frames between two replacements of the switch.
const FRAMES: u32 = 10_000;
/// The port that is testpmd's, and ours: what [`frame`] sends from and to.
const THEIRS: u8 = 0x0a;
const OURS: u8 = 0x0b;

/// A port, and its device in the namespace of the test.
fn add(switch: &mut Client, place: &Place, host: u8) {
    let config = PortConfig {
        key: format!("port{host}"),
        name: "net1".to_owned(),
        network: 7,
        port_id: host.into(),
        flags: 0,
        mac: MacAddr([2, 0, 0, 0, 0, host]),
        ips: vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, host))],
        mtu: 1500,
        fast: true,
        judged: false,
        trains: true,
        queues: 1,
        secret: None,
    };
    let name = format!("tap{host}");
    let device: OwnedFd = place
        .netns
        .run_in(|| {
            let mut here = Connection::open().expect("a netlink socket");
            let spec = TapSpec {
                name: name.clone(),
                mtu: 1500,
                alias: "test".to_owned(),
            };
            let ifindex = here.create_tap(&spec).expect("a TAP device");
            here.set_up(ifindex).expect("it goes up");
            here.open_tap(&name, ifindex, true).expect("its file")
        })
        .expect("entered");
    let address = address(host);
    let listener = place.netns.run_in(|| address.listen()).expect("entered");
    let listener = listener.expect("a free address");
    let added = switch.add(&config, (device.as_fd(), true), &[listener.as_fd()]);
    added.expect("a switch that answers");
}

fn address(host: u8) -> Address {
    Place::abstract_address(&format!("podnet/net{host}"))
}

fn status(options: &Options, host: u8) -> PortStatus {
    let mut switch = Client::connect(&options.socket).expect("a switch runs");
    let ports = switch.list().expect("it answers");
    let mut ports = ports.into_iter();
    let found = ports.find(|port| port.config.port_id == u16::from(host));
    found.expect("the port was added")
}

type Running = thread::JoinHandle<Result<Ended, uswitch::Error>>;

fn start(options: &Options) -> Running {
    let switch = Switch::open(options).expect("a switch");
    thread::spawn(move || switch.run())
}

/// testpmd is reached through the switch and does not see its replacement.
///
/// DPDK's clients never connect again, and do not notice that they need not. Frames come back byte by
/// byte, by the switch alone and by the kernel.
#[test]
fn testpmd_is_reached_through_the_switch_and_does_not_see_that_it_is_replaced() {
    let Some(place) = Place::find(testbed::test_name!()) else {
        return;
    };
    let options = Options::new(place.dir.path().join("switch.sock"));
    let mut running = start(&options);
    let mut switch = Client::connect(&options.socket).expect("a switch runs");
    add(&mut switch, &place, THEIRS);
    add(&mut switch, &place, OURS);
    let mut client = place.client(address(OURS), ClientConfig::new(name("test")));
    let socket = "role=client,id=0,socket=podnet/net10";
    let mut testpmd = place.start(socket, &[]);
    let mut port = connect(&mut client, &mut testpmd);
    let (tx, rx) = (&mut port.tx[0], &mut port.rx[0]);
    // It is not there until it is connected, and has no buffers until it has looked for frames once.
    let mut probes = 0;
    wait::until_true("testpmd to look for frames", || {
        testpmd.assert_running();
        assert_eq!(tx.push(&frame(0, 60)), Ok(Sent::Yes));
        tx.flush();
        probes += 1;
        wait::until("the frame to be somewhere", || {
            let counters = status(&options, THEIRS).counters;
            let (there, drops) = (counters.fast_to.packets, counters.drops);
            let all = there + drops.not_connected + drops.no_buffer;
            (all == probes).then_some(there == 1)
        })
    });
    let mut back = 0;
    wait::until_true("it to come back", || {
        rx.burst(64, |_| back += 1).expect("an honest switch");
        back == 1
    });
    let stack = Tap::on(&place.netns, &format!("tap{THEIRS}"));
    for round in 0..4 {
        exchange(tx, rx, &LENS, FRAMES, &mut testpmd);
        // From somebody whom only the kernel knows, and back to him.
        let mut from_kernel = frame(round, 400);
        from_kernel[11] = 0x0c;
        stack.send(&from_kernel);
        let mut to_kernel = from_kernel.clone();
        to_kernel[..12].rotate_left(6);
        stack.wait("the frame to come back to the kernel", |frame| {
            frame == to_kernel
        });
        let old = std::mem::replace(&mut running, start(&options));
        let ended = old.join().expect("no panic").expect("no trouble");
        assert_eq!(ended, Ended::Replaced);
    }
    testpmd.assert_running();
    let counters = status(&options, THEIRS).counters;
    assert_eq!(counters.fast_from.packets, u64::from(FRAMES) * 4 + 1);
    assert_eq!(counters.fast_to.packets, u64::from(FRAMES) * 4 + 1);
    assert_eq!(counters.device_from.packets, 4);
    assert!(counters.device_to.packets >= 4);
    assert_eq!(
        counters.drops.no_buffer + counters.drops.not_connected,
        probes - 1
    );
    testpmd.stop();
    let mut switch = Client::connect(&options.socket).expect("a switch runs");
    switch.stop().expect("it ends");
    let ended = running.join().expect("no panic").expect("no trouble");
    assert_eq!(ended, Ended::Stopped);
}

/// Two testpmds have a network of their own, and every packet is accounted for.
///
/// One sends as fast as it can, the other receives. No packet is elsewhere than where it was counted.
#[test]
fn two_testpmds_have_a_network_of_their_own_and_every_packet_is_accounted_for() {
    const ENOUGH: u64 = 200_000;
    let Some(place) = Place::find(testbed::test_name!()) else {
        return;
    };
    let options = Options::new(place.dir.path().join("switch.sock"));
    let running = start(&options);
    let mut switch = Client::connect(&options.socket).expect("a switch runs");
    add(&mut switch, &place, THEIRS);
    add(&mut switch, &place, OURS);
    let mut receiver = place.start(
        "role=client,id=0,socket=podnet/net11,mac=02:00:00:00:00:0b",
        &["--forward-mode=rxonly"],
    );
    wait::until_true("the receiver to be connected", || {
        receiver.assert_running();
        status(&options, OURS).connected
    });
    let mut sender = place.start(
        "role=client,id=0,socket=podnet/net10,mac=02:00:00:00:00:0a",
        &[
            "--forward-mode=txonly",
            "--eth-peer=0,02:00:00:00:00:0b",
            "--tx-ip=10.0.0.10,10.0.0.11",
        ],
    );
    wait::until_true("packets to arrive", || {
        receiver.assert_running();
        sender.assert_running();
        status(&options, OURS).counters.fast_to.packets >= ENOUGH
    });
    let [_, sent] = sender.stop();
    wait::until_true("the sender to be gone", || {
        !status(&options, THEIRS).connected
    });
    let [from, to] = [THEIRS, OURS].map(|host| status(&options, host).counters);
    // The receiver goes on taking until it is told to stop.
    let [received, _] = receiver.stop();
    // What it had not shown the switch yet, or the switch not taken, went with its memory.
    let ring = 1 << 10;
    let carried = from.fast_from.packets;
    assert!(
        carried <= sent && sent - carried <= ring,
        "{carried} of {sent}"
    );
    let lost = to.drops.no_buffer + to.drops.not_connected;
    assert_eq!(carried, to.fast_to.packets + lost);
    assert_eq!(received, to.fast_to.packets);
    assert_eq!(to.fast_to.bytes, to.fast_to.packets * 64);
    assert_eq!(from.device_from.packets, 0, "all went straight across");
    assert_eq!(from.drops, uswitch::PortDrops::default());
    let mut switch = Client::connect(&options.socket).expect("a switch runs");
    switch.stop().expect("it ends");
    let ended = running.join().expect("no panic").expect("no trouble");
    assert_eq!(ended, Ended::Stopped);
}
