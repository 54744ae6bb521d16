//! A switch that is replaced under its clients.

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::by_hand::ByHand;
use super::scene::{Pod, Scene, config, number, until};

/// Frames in flight at most: half as many again as a ring has room for.
const ON_THE_WAY: u32 = 100;

/// Two clients that exchange numbered frames, and one that does so with the kernel.
struct Traffic {
    one: Pod,
    other: Pod,
    third: Pod,
    sent: [u32; 4],
    received: [u32; 4],
}

impl Traffic {
    fn new(scene: &Scene) -> Self {
        Self {
            one: scene.pod(7, 1),
            other: scene.pod(7, 2),
            third: scene.pod(8, 3),
            sent: [0; 4],
            received: [0; 4],
        }
    }

    /// Sends the frames that may be sent, and checks those that have come.
    ///
    /// None may be lost, doubled or overtaken.
    fn turn(&mut self) {
        let Self {
            one,
            other,
            third,
            sent,
            received,
        } = self;
        let fits = |sent: u32, received: u32| sent - received < ON_THE_WAY;
        if fits(sent[0], received[0]) {
            one.send(&one.frame_to(other, sent[0]));
            sent[0] += 1;
        }
        if fits(sent[1], received[1]) {
            other.send(&other.frame_to(one, sent[1]));
            sent[1] += 1;
        }
        if fits(sent[2], received[2]) {
            third.deliver(&other.frame_to(third, sent[2]));
            sent[2] += 1;
        }
        if fits(sent[3], received[3]) {
            // There is nobody of this address on its network.
            third.send(&third.frame_to(other, sent[3]));
            sent[3] += 1;
        }
        for (nth, pod) in [(0, &mut *other), (1, one), (2, &mut *third)] {
            for frame in pod.receive_all() {
                assert_eq!(number(&frame), received[nth], "way {nth}");
                received[nth] += 1;
            }
        }
        if sent[3] > received[3] {
            let frame = third.at_kernel();
            assert_eq!(number(&frame), received[3], "to the kernel");
            received[3] += 1;
        }
    }

    fn for_frames(&mut self, frames: u32) {
        let end = self.received.map(|received| received + frames);
        until("frames", || {
            self.turn();
            let all = self.received.iter().zip(end);
            all.clone()
                .all(|(received, end)| *received >= end)
                .then_some(())
        });
    }

    /// All that was sent arrives.
    fn finish(&mut self) {
        until("the last frames", || {
            for (nth, pod) in [
                (0, &mut self.other),
                (1, &mut self.one),
                (2, &mut self.third),
            ] {
                for frame in pod.receive_all() {
                    assert_eq!(number(&frame), self.received[nth]);
                    self.received[nth] += 1;
                }
            }
            (self.received[..3] == self.sent[..3]).then_some(())
        });
        while self.received[3] < self.sent[3] {
            assert_eq!(number(&self.third.at_kernel()), self.received[3]);
            self.received[3] += 1;
        }
        for pod in [&mut self.one, &mut self.other, &mut self.third] {
            pod.assert_kernel_has_nothing();
            assert_eq!(pod.poll(), None, "nothing was said");
        }
    }
}

#[test]
fn no_frame_is_lost_or_doubled_when_the_switch_is_replaced_under_traffic() {
    let mut scene = Scene::new();
    let mut traffic = Traffic::new(&scene);
    let stop = AtomicBool::new(false);
    thread::scope(|threads| {
        let traffic = &mut traffic;
        let running = threads.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                traffic.turn();
            }
            traffic.for_frames(300);
            traffic.finish();
        });
        for round in 0..20 {
            // With one worker and with two.
            scene.options.workers = 1 + round % 2;
            scene.replace();
        }
        stop.store(true, Ordering::Release);
        running.join().unwrap();
    });
    // What was counted goes along.
    let counters = scene.status(&traffic.one).counters;
    assert_eq!(counters.fast_from.packets, u64::from(traffic.sent[0]));
    assert_eq!(counters.fast_to.packets, u64::from(traffic.received[1]));
    let counters = scene.status(&traffic.third).counters;
    assert_eq!(counters.device_from.packets, u64::from(traffic.sent[3]));
    assert_eq!(counters.device_to.packets, u64::from(traffic.received[2]));
    // And the sockets too.
    let mut newcomer = scene.pod(7, 9);
    let frame = newcomer.frame_to(&traffic.one, 77);
    newcomer.send(&frame);
    assert_eq!(traffic.one.receive(), frame);
    let port = traffic.one;
    let mut again = Pod::new(port.config.clone());
    again.address = port.address.clone();
    drop(port);
    until("the client to be gone", || {
        (!scene.status(&again).connected).then_some(())
    });
    again.connect();
}

#[test]
fn a_switch_whose_successor_fails_at_any_step_goes_on_without_a_loss() {
    let mut scene = Scene::new();
    let mut traffic = Traffic::new(&scene);
    // One of the four messages in each round, or one more, is heard before it fails.
    for heard in 0..=4 {
        traffic.for_frames(50);
        let pretender = ByHand::greeted(&scene);
        pretender.say(r#"{"request":"hand_over"}"#);
        for nth in 0..heard {
            let text = pretender.hear().unwrap();
            let kind = if nth == 0 { "handing_over" } else { "handed" };
            assert!(text.contains(&format!(r#""reply":"{kind}""#)), "{text}");
        }
        if heard == 4 {
            // All was heard, and something else is said than that.
            pretender.say(r#"{"request":"list"}"#);
            assert_eq!(pretender.hear(), None, "it is not the switch");
        }
        drop(pretender);
        traffic.for_frames(50);
    }
    traffic.finish();
    let counters = scene.status(&traffic.one).counters;
    assert_eq!(counters.fast_from.packets, u64::from(traffic.sent[0]));
    // And it can still be replaced.
    scene.replace();
    traffic.for_frames(50);
    traffic.finish();
}

#[test]
fn a_client_in_its_handshake_is_served_by_one_or_the_other() {
    let mut scene = Scene::new();
    for host in 1..20 {
        let mut pod = scene.port(7, host);
        pod.begin(&pod.address.clone());
        thread::scope(|threads| {
            let replaced = threads.spawn(|| scene.replace());
            until("the handshake", || {
                assert_eq!(pod.poll(), None);
                pod.rings.is_some().then_some(())
            });
            replaced.join().unwrap();
        });
        pod.send(&pod.broadcast(host));
        assert_eq!(pod.at_kernel(), pod.broadcast(host));
    }
}

/// The agent starts another one when the switch is gone, and adds all ports again.
#[test]
fn clients_that_connect_again_find_the_next_switch() {
    let scene = Scene::new();
    let mut pod = scene.pod(7, 1);
    scene.client().stop().unwrap();
    until("the word", || pod.poll());
    let client = pod.client.take().unwrap();
    pod.client = Some(client.with_retry(std::time::Duration::from_millis(1)));
    // Its device is a socket here, of which the switch closes its end; a TAP device stays.
    let next = Scene::new();
    pod.add(&mut next.client());
    until("the handshake", || {
        pod.poll();
        pod.rings.is_some().then_some(())
    });
    pod.send(&pod.broadcast(1));
    assert_eq!(pod.at_kernel(), pod.broadcast(1));
    scene.gone();
}

/// A header is in front of the frames of a device for the next switch as well.
///
/// One that would take it for a frame does not get the port.
#[test]
fn devices_with_headers_go_to_a_switch_that_knows_them_and_to_no_older_one() {
    let mut scene = Scene::new();
    let mut pod = Pod::new(config(7, 1));
    let device = (pod.theirs.as_fd(), true);
    let mut switch = scene.client();
    assert!(switch.takes_headers());
    switch
        .add(&pod.config, device, &[pod.listener.as_fd()])
        .unwrap();
    pod.connect();
    let older = ByHand::new(&scene);
    older.say(r#"{"request":"hello","version":1}"#);
    assert!(older.hear().unwrap().contains(r#""version":1"#));
    older.say(r#"{"request":"hand_over"}"#);
    let heard = older.hear().unwrap();
    assert!(heard.contains(r#""code":"version""#), "{heard}");
    assert!(heard.contains("stop this one"), "{heard}");
    assert_eq!(older.hear(), None, "and that is all");
    for number in 0..3 {
        let frame = pod.broadcast(number);
        pod.send(&frame);
        assert_eq!(pod.at_kernel(), [&[0; 10][..], &frame].concat());
        pod.deliver(&[&[0; 10][..], &frame].concat());
        assert_eq!(pod.receive(), frame);
        scene.replace();
    }
}
