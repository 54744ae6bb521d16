//! Rings that clients of a port have.

use memif::Sent;

use super::hostile::Rogue;
use super::scene::{Scene, until};

/// gomemif takes the highest index that a server says for the number of its rings.
#[test]
fn a_port_with_one_queue_has_a_ring_for_who_takes_the_highest_index_for_the_number() {
    let scene = Scene::new();
    let pod = scene.port_with(7, 1, |config| config.queues = 1);
    let hello = Rogue::new(&pod).hello();
    assert_eq!((hello.max_c2s_ring, hello.max_s2c_ring), (1, 1));
    // And it connects with one in each direction.
    let rogue = Rogue::when_free(&pod);
    until("its rings", || scene.status(&pod).connected.then_some(()));
    drop(rogue);
}

/// A client that reads the protocol as it is written is not refused for it.
#[test]
fn who_asks_for_two_rings_of_a_port_with_one_queue_has_both_served() {
    let scene = Scene::new();
    let mut pod = scene.port_with(7, 1, |config| config.queues = 1);
    pod.begin_with(&pod.address.clone(), |config| {
        (config.c2s_rings, config.s2c_rings) = (8, 8);
    });
    until("the handshake", || {
        pod.poll();
        pod.rings.is_some().then_some(())
    });
    assert_eq!((pod.rings().tx.len(), pod.rings().rx.len()), (2, 2));
    for ring in [0, 1] {
        let frame = pod.broadcast(ring);
        let tx = &mut pod.rings().tx[usize::from(ring)];
        assert_eq!(tx.push(&frame), Ok(Sent::Yes));
        tx.flush();
        assert_eq!(pod.at_kernel(), frame);
    }
}
