//! Nothing to do.

use super::scene::{Pod, Scene, until};

fn work(scene: &Scene) -> (u64, u64) {
    let work = scene.client().work().unwrap();
    assert_eq!(work.len(), 1);
    (work[0].rounds, work[0].sleeps)
}

/// Counted in turns of the loop: each look at all ports is followed by a sleep.
#[test]
fn ports_without_traffic_let_the_worker_sleep() {
    let scene = Scene::new();
    let mut pods: Vec<Pod> = (1..=20).map(|host| scene.pod(7, host)).collect();
    let asleep = |sleeps: u64| {
        until("more sleeps", || (work(&scene).1 >= sleeps).then_some(()));
        work(&scene)
    };
    let before = asleep(5);
    let after = asleep(before.1 + 30);
    let (rounds, sleeps) = (after.0 - before.0, after.1 - before.1);
    assert!(rounds <= sleeps + 1, "{rounds} rounds, {sleeps} sleeps");
    // Who sleeps is woken, by clients and by devices.
    let (first, rest) = pods.split_at_mut(1);
    for _ in 0..3 {
        let frame = first[0].frame_to(&rest[0], 1);
        first[0].send(&frame);
        assert_eq!(rest[0].receive(), frame);
        asleep(work(&scene).1 + 2);
        rest[1].deliver(&frame);
        assert_eq!(rest[1].receive(), frame);
        asleep(work(&scene).1 + 2);
    }
}

#[test]
fn a_switch_that_is_told_to_poll_never_sleeps() {
    let scene = Scene::with(|options| options.busy_poll = true);
    let (mut one, mut other) = (scene.pod(7, 1), scene.pod(7, 2));
    let before = work(&scene);
    until("many rounds", || {
        (work(&scene).0 > before.0 + 10_000).then_some(())
    });
    assert_eq!(work(&scene).1, 0);
    let frame = one.frame_to(&other, 1);
    one.send(&frame);
    assert_eq!(other.receive(), frame);
}
