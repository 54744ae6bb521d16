//! Where frames go.

use agent_common::addr::GATEWAY_MAC;
use agent_common::port::PORT_L3;
use uswitch::Count;

use super::scene::{Scene, until};

const NETWORK: u32 = 7;

fn count(packets: u64, bytes: u64) -> Count {
    Count { packets, bytes }
}

#[test]
fn a_frame_to_another_port_arrives_as_it_was_sent_and_not_at_the_kernel() {
    let scene = Scene::new();
    let (mut one, mut other) = (scene.pod(NETWORK, 1), scene.pod(NETWORK, 2));
    let mut bytes = 0;
    for (number, len) in (0..).zip([64, 65, 127, 128, 129, 600, 1514]) {
        for _ in 0..2 {
            let mut frame = one.frame_to(&other, number);
            frame.resize(len, u8::try_from(number).unwrap());
            one.send(&frame);
            assert_eq!(other.receive(), frame, "{len} bytes");
            bytes += len as u64;
            std::mem::swap(&mut one, &mut other);
        }
    }
    one.assert_kernel_has_nothing();
    other.assert_kernel_has_nothing();
    for pod in [&one, &other] {
        let counters = scene.status(pod).counters;
        assert_eq!(counters.fast_from, count(7, bytes / 2));
        assert_eq!(counters.fast_to, count(7, bytes / 2));
        assert_eq!(counters.device_from, Count::default());
        assert_eq!(counters.drops, uswitch::PortDrops::default());
    }
}

#[test]
fn a_routed_packet_comes_from_the_gateway_with_a_hop_less() {
    let scene = Scene::new();
    let routed = |host| scene.port_with(NETWORK, host, |port| port.flags = PORT_L3);
    let (mut one, mut other) = (routed(1), routed(2));
    one.connect();
    other.connect();
    let frame = one.frame_by_gateway(&other);
    one.send(&frame);
    let received = other.receive();
    assert_eq!(received[..6], other.config.mac.0);
    assert_eq!(received[6..12], GATEWAY_MAC.0);
    assert_eq!(received[22], frame[22] - 1);
    assert_eq!(received[26..], frame[26..]);
    one.assert_kernel_has_nothing();
}

/// The kernel program drops and counts it.
#[test]
fn a_spoofed_frame_goes_to_the_kernel_and_not_to_the_neighbour() {
    let scene = Scene::new();
    let (mut one, mut other) = (scene.pod(NETWORK, 1), scene.pod(NETWORK, 2));
    let honest = one.frame_to(&other, 1);
    for (at, what) in [(11, "MAC address"), (29, "IP address")] {
        let mut spoofed = honest.clone();
        spoofed[at] = 77;
        one.send(&spoofed);
        assert_eq!(one.at_kernel(), spoofed, "{what}");
    }
    one.send(&honest);
    assert_eq!(other.receive(), honest, "nothing came before it");
    assert_eq!(other.receive_all(), Vec::<Vec<u8>>::new());
}

#[test]
fn what_is_for_all_or_for_strangers_goes_to_the_kernel() {
    let scene = Scene::new();
    let (mut one, mut other) = (scene.pod(NETWORK, 1), scene.pod(NETWORK, 2));
    let mut stranger = one.frame_to(&other, 1);
    stranger[5] = 99;
    for frame in [one.broadcast(1), stranger] {
        one.send(&frame);
        assert_eq!(one.at_kernel(), frame);
    }
    assert_eq!(other.receive_all(), Vec::<Vec<u8>>::new());
}

#[test]
fn a_port_of_another_network_is_never_reached() {
    let scene = Scene::new();
    let (mut one, mut foreign) = (scene.pod(NETWORK, 1), scene.pod(NETWORK + 1, 2));
    let frame = one.frame_to(&foreign, 1);
    one.send(&frame);
    assert_eq!(one.at_kernel(), frame);
    // The same addresses on both: its own network's is meant.
    let mut other = scene.pod(NETWORK, 2);
    assert_eq!(other.config.mac, foreign.config.mac);
    one.send(&frame);
    assert_eq!(other.receive(), frame);
    assert_eq!(foreign.receive_all(), Vec::<Vec<u8>>::new());
    foreign.assert_kernel_has_nothing();
}

#[test]
fn what_the_kernel_delivers_comes_to_the_client() {
    let scene = Scene::new();
    let mut pod = scene.pod(NETWORK, 1);
    for number in 0..200_u8 {
        let frame = [number; 90];
        pod.deliver(&frame);
        assert_eq!(pod.receive(), frame);
    }
    assert_eq!(scene.status(&pod).counters.device_to, count(200, 200 * 90));
}

/// Rates are queues of the kernel's, before and behind the device.
#[test]
fn a_port_that_is_not_fast_is_reached_by_its_device_only() {
    let scene = Scene::new();
    let mut fast = scene.pod(NETWORK, 1);
    let mut limited = scene.port_with(NETWORK, 2, |port| port.fast = false);
    limited.connect();
    let there = fast.frame_to(&limited, 1);
    let back = limited.frame_to(&fast, 2);
    fast.send(&there);
    assert_eq!(fast.at_kernel(), there);
    limited.send(&back);
    assert_eq!(limited.at_kernel(), back);
    // And when its rates are gone it is like any other; and the other way round.
    limited.config.fast = true;
    assert!(scene.client().update(&limited.config).unwrap());
    fast.send(&there);
    assert_eq!(limited.receive(), there);
    limited.send(&back);
    assert_eq!(fast.receive(), back);
    limited.config.fast = false;
    assert!(scene.client().update(&limited.config).unwrap());
    until("the change", || {
        fast.send(&there);
        let at_kernel = scene.status(&fast).counters.device_from.packets > 1;
        limited.receive_all();
        at_kernel.then_some(())
    });
    assert_eq!(fast.at_kernel(), there);
}

#[test]
fn frames_for_nobody_and_for_who_does_not_look_are_dropped_and_counted() {
    let scene = Scene::new();
    let (mut one, mut other) = (scene.pod(NETWORK, 1), scene.port(NETWORK, 2));
    let frame = one.frame_to(&other, 1);
    one.send(&frame);
    other.deliver(&[1; 60]);
    until("both to be dropped", || {
        (scene.status(&other).counters.drops.not_connected == 2).then_some(())
    });
    other.connect();
    // It never takes a frame: 256 fit.
    for _ in 0..300 {
        one.send(&frame);
    }
    until("the ring to be full", || {
        let counters = scene.status(&other).counters;
        (counters.fast_to.packets + counters.drops.no_buffer == 300).then_some(())
    });
    let counters = scene.status(&other).counters;
    assert_eq!(
        (counters.fast_to.packets, counters.drops.no_buffer),
        (256, 44)
    );
    assert_eq!(scene.status(&one).counters.fast_from.packets, 301);
    // Longer than its buffers.
    let mut long = frame.clone();
    long.resize(2049, 0);
    assert_eq!(other.receive_all().len(), 256);
    other.deliver(&long);
    until("it to be dropped", || {
        (scene.status(&other).counters.drops.too_long == 1).then_some(())
    });
}

/// The device takes the frames that it can; no thread waits for it.
#[test]
fn a_device_that_is_full_or_gone_stops_nobody() {
    let scene = Scene::new();
    let (mut one, mut other) = (scene.pod(NETWORK, 1), scene.pod(NETWORK, 2));
    until("the device to be full", || {
        for number in 0..100 {
            one.send(&one.broadcast(number));
        }
        (scene.status(&one).counters.drops.device_full > 0).then_some(())
    });
    let frame = one.frame_to(&other, 1);
    one.send(&frame);
    assert_eq!(other.receive(), frame);
    // Its other end is closed: the device is deleted under the switch.
    let (kernel, _) = super::scene::device();
    drop(std::mem::replace(&mut one.kernel, kernel));
    one.send(&one.broadcast(1));
    until("it to be dropped", || {
        (scene.status(&one).counters.drops.device_down == 1).then_some(())
    });
    one.send(&frame);
    assert_eq!(other.receive(), frame);
    // The agent makes another one, and adds the port again: the client stays.
    let (theirs, kernel) = super::scene::device();
    (one.theirs, one.kernel) = (theirs, kernel);
    one.listener = super::scene::address().listen().unwrap();
    one.add(&mut scene.client());
    let broadcast = one.broadcast(3);
    one.send(&broadcast);
    assert_eq!(one.at_kernel(), broadcast);
    one.deliver(&[5; 60]);
    assert_eq!(one.receive(), [5; 60]);
}

/// Frames of one port in all directions, with more workers than networks.
#[test]
fn networks_have_workers_of_their_own() {
    let scene = Scene::with(|options| options.workers = 3);
    let mut pods: Vec<_> = (0..12)
        .map(|nth| scene.pod(NETWORK + nth % 4, 1 + u8::try_from(nth / 4).unwrap()))
        .collect();
    for round in 0..50 {
        for from in 0..12 {
            for to in (0..12).filter(|to| *to != from) {
                let frame = pods[from].frame_to(&pods[to], round);
                let same = pods[from].config.network == pods[to].config.network;
                if same {
                    pods[from].send(&frame);
                    assert_eq!(pods[to].receive(), frame);
                }
            }
        }
    }
    for pod in &mut pods {
        assert_eq!(pod.receive_all(), Vec::<Vec<u8>>::new());
        assert_eq!(scene.status(pod).counters.fast_from.packets, 100);
    }
    assert_eq!(scene.client().workers(), 3);
}
