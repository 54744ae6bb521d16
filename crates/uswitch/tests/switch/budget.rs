//! Limit a tenant's clients in the switch's memory and places of handshakes.

use std::os::fd::{AsFd as _, OwnedFd};

use uswitch::Memory;

use super::hostile::Rogue;
use super::scene::{Pod, Scene, until};

/// A port of a pod, which is not connected.
fn port(scene: &Scene, pod: &str, host: u8) -> Pod {
    scene.port_with(7, host, |config| {
        config.key = format!("{pod}/net{host}");
        config.queues = 1;
    })
}

/// Connects with 1024 buffers of this size in each direction; returns the refusal.
fn refused(pod: &mut Pod, buffer_size: u32) -> Option<String> {
    pod.begin_with(&pod.address.clone(), |config| {
        config.log2_ring_size = 10;
        config.buffer_size = buffer_size;
    });
    let mut why = None;
    until("an answer", || {
        why = pod.poll();
        (why.is_some() || pod.rings.is_some()).then_some(())
    });
    why
}

/// ATT-03a: clients lend no more than the limits of port, pod and switch.
///
/// Each refusal names the limit.
#[test]
fn clients_lend_no_more_than_port_pod_and_switch_may_have() {
    let scene = Scene::with(|options| {
        options.memory = Memory {
            ring_slots: 1024,
            pod: 10 << 20,
            switch: 15 << 20,
        };
    });
    let mut greedy: Vec<Pod> = (1..=9).map(|host| port(&scene, "greedy", host)).collect();
    let why = refused(&mut greedy[0], 8192).expect("more than a port can use");
    assert!(why.contains("memory of this port would be"), "{why}");
    assert_eq!(refused(&mut greedy[0], 2048), None);
    assert_eq!(refused(&mut greedy[1], 2048), None);
    for third in &mut greedy[2..] {
        let why = refused(third, 2048).expect("more than a pod may have");
        assert!(why.contains("memory of this pod would be"), "{why}");
        assert!(why.contains("10485760 are allowed"), "{why}");
        let said = scene.status(third).last_closed.expect("the agent sees it");
        assert!(said.contains("memory of this pod"), "{said}");
    }
    let (mut modest, mut late) = (port(&scene, "modest", 11), port(&scene, "late", 12));
    assert_eq!(refused(&mut modest, 2048), None);
    let why = refused(&mut late, 2048).expect("more than the switch may have");
    assert!(why.contains("memory of this switch"), "{why}");
    // Those that are there are not disturbed, and what one leaves another one gets.
    let frame = modest.frame_to(&greedy[0], 1);
    modest.send(&frame);
    assert_eq!(greedy[0].receive(), frame);
    greedy[1].client.as_mut().unwrap().disconnect("done");
    until("its memory to be free", || {
        refused(&mut late, 2048).is_none().then_some(())
    });
    proof::of!("ATT-03a");
}

/// A switch that takes over counts what its clients have.
#[test]
fn memory_counts_after_the_switch_was_replaced() {
    let mut scene = Scene::with(|options| options.memory.pod = 5 << 20);
    let (mut first, mut second) = (port(&scene, "pod", 1), port(&scene, "pod", 2));
    assert_eq!(refused(&mut first, 2048), None);
    scene.replace();
    let why = refused(&mut second, 2048).expect("more than a pod may have");
    assert!(why.contains("memory of this pod would be"), "{why}");
    first.client.as_mut().unwrap().disconnect("done");
    until("its memory to be free", || {
        refused(&mut second, 2048).is_none().then_some(())
    });
}

/// ATT-03a: memory of ended connections is not charged, though clients keep it.
#[test]
fn what_a_client_leaves_is_given_back_whatever_it_keeps_open() {
    let scene = Scene::new();
    let pod = scene.port(7, 1);
    let mut kept: Vec<OwnedFd> = Vec::new();
    for nth in 0..20 {
        let rogue = Rogue::when_free(&pod);
        // The switch is the first to touch these pages.
        rogue.post_all();
        // What is counted is counted by a worker that knows of it.
        assert!(scene.status(&pod).connected);
        for number in 0..4 {
            pod.deliver(&[number; 200]);
        }
        until("frames in its memory", || {
            (rogue.received() >= 4).then_some(())
        });
        assert!(rogue.pages() > 0);
        if nth % 2 == 0 {
            // Found out by the worker, instead of gone.
            rogue.lie();
            assert!(rogue.reason().contains("ring index"));
        }
        kept.push(rogue.into_memory());
    }
    let blocks = |memory: &OwnedFd| rustix::fs::fstat(memory.as_fd()).unwrap().st_blocks;
    until("all pages to be given back", || {
        kept.iter().all(|memory| blocks(memory) == 0).then_some(())
    });
    proof::of!("ATT-03a");
}

/// ATT-03c: handshakes stalled in any state do not delay the next client.
///
/// It is connected at its first attempt.
#[test]
fn half_open_handshakes_keep_nobody_out() {
    let scene = Scene::new();
    for steps in 0..=5 {
        let mut pod = scene.port(7, 20 + u8::try_from(steps).unwrap());
        let stalled = Rogue::new(&pod);
        stalled.go(steps);
        pod.begin(&pod.address.clone());
        until("an answer", || {
            let refused = pod.poll();
            assert_eq!(refused, None, "after {steps} steps");
            pod.rings.is_some().then_some(())
        });
        drop(stalled);
        let other = scene.pod(7, 40 + u8::try_from(steps).unwrap());
        let frame = pod.frame_to(&other, 1);
        pod.send(&frame);
    }
    // More of them than there are places.
    let mut pod = scene.port(7, 60);
    let idle: Vec<OwnedFd> = (0..20)
        .map(|_| until("a place", || pod.address.connect().ok()))
        .collect();
    pod.begin(&pod.address.clone());
    until("an answer", || {
        assert_eq!(pod.poll(), None, "with {} idle ones", idle.len());
        pod.rings.is_some().then_some(())
    });
    proof::of!("ATT-03c");
}

/// ATT-13: a port whose clients come and go has to wait, and the others' do not.
#[test]
fn a_port_that_churns_waits_and_the_others_do_not() {
    let scene = Scene::new();
    let pod = scene.port(7, 1);
    let mut connections = 0;
    let mut others = 0_u8;
    // More than a port may have at once: so some of these have waited.
    while connections < 48 {
        drop(Rogue::when_free(&pod));
        connections += 1;
        if connections % 8 == 0 {
            others += 1;
            let mut other = scene.port(8, 100 + others);
            assert_eq!(refused(&mut other, 2048), None, "at its first attempt");
        }
    }
    proof::of!("ATT-13");
}
