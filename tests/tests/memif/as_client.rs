//! testpmd as the client: it owns the memory, we serve it.

use std::time::Instant;

use memif::{Address, Closed, Door, Secret, ServerConfig};

use super::testpmd::{Place, assert_woken, exchange, name, patient, refuse, serve, server_config};

/// Frames for one ring.
const FRAMES: u32 = 20_000;
/// From the shortest frame to what fits an ordinary buffer.
const LENS: [usize; 7] = [60, 61, 64, 127, 512, 1500, 1514];

/// A client is served over a path, and over an abstract socket in its namespace.
#[test]
fn frames_come_back_as_they_were_sent() {
    let Some(place) = Place::find(testbed::test_name!()) else {
        return;
    };
    let path = place.dir.path().join("memif.sock");
    let by_path = format!("socket={},socket-abstract=no", path.display());
    for (address, socket) in [
        (Address::Path(path), by_path.as_str()),
        (Place::abstract_address("podnet/test"), "socket=podnet/test"),
    ] {
        let listener = place.listen(&address, server_config());
        let mut testpmd = place.start(&format!("role=client,id=0,{socket}"), &[]);
        let (_connection, mut port) = serve(&listener, &mut testpmd);
        assert!(port.app.to_string().starts_with("DPDK"), "{}", port.app);
        assert_eq!((port.rx.len(), port.tx.len()), (1, 1));
        exchange(
            &mut port.tx[0],
            &mut port.rx[0],
            &LENS,
            FRAMES,
            &mut testpmd,
        );
        assert_eq!(port.tx[0].counters().doorbells, 0, "a DPDK client polls");
        assert_eq!(port.rx[0].counters().packets, u64::from(FRAMES));
    }
}

/// Every size of ring a client may ask for, and buffers of other sizes than usual.
#[test]
fn rings_and_buffers_of_any_size_work() {
    let Some(place) = Place::find(testbed::test_name!()) else {
        return;
    };
    let address = Place::abstract_address("podnet/test");
    let listener = place.listen(&address, server_config());
    for (options, slots) in [
        ("rsize=14", 1 << 14),
        ("rsize=5,bsize=1600", 32),
        ("rsize=2", 4),
        ("rsize=12,bsize=4096", 4096),
    ] {
        let device = format!("role=client,id=0,socket=podnet/test,{options}");
        // A burst of testpmd is no longer than the smallest of these rings.
        let mut testpmd = place.start(&device, &["--burst=2"]);
        let (_connection, mut port) = serve(&listener, &mut testpmd);
        assert_eq!(port.rx[0].size(), slots, "{options}");
        exchange(&mut port.tx[0], &mut port.rx[0], &LENS, 1000, &mut testpmd);
    }
}

/// A frame longer than a buffer of the ring arrives as a chain, put together.
///
/// testpmd makes chains, we do not. It sends a single burst, because a DPDK that fills the ring with
/// chains writes one slot too far.
#[test]
fn chains_are_put_together() {
    let Some(place) = Place::find(testbed::test_name!()) else {
        return;
    };
    let address = Place::abstract_address("podnet/test");
    let listener = place.listen(&address, server_config());
    let device = "role=client,id=0,socket=podnet/test,bsize=256";
    let options = ["--txpkts=1500", "--tx-first"];
    let mut testpmd = place.start(device, &options);
    let (_connection, mut port) = serve(&listener, &mut testpmd);
    let (mut frames, mut slots) = (0, 0);
    testbed::wait::until_true("a burst of testpmd's own frames", || {
        testpmd.assert_running();
        let taken = port.rx[0].burst(64, |packet| {
            let mut bytes = vec![0; packet.len() as usize];
            assert_eq!(packet.read(0, &mut bytes), 1500);
            // IPv4 and UDP from 198.18.0.1 to 198.18.0.2, which are for benchmarks.
            assert_eq!(bytes[12..15], [0x08, 0x00, 0x45], "{bytes:02x?}");
            assert_eq!(bytes[16..18], 1486_u16.to_be_bytes());
            assert_eq!(bytes[26..34], [198, 18, 0, 1, 198, 18, 0, 2]);
            assert_eq!(bytes[38..40], 1466_u16.to_be_bytes());
            frames += 1;
        });
        slots += taken.expect("an honest peer");
        frames == 32
    });
    assert_eq!(slots, 32 * 6, "six slots for each frame");
    assert_eq!(port.rx[0].counters().bad_chain, 0);
}

/// Several rings for each direction: what goes in by one comes out by the same.
#[test]
fn several_queues_are_several_rings() {
    let Some(place) = Place::find(testbed::test_name!()) else {
        return;
    };
    let address = Place::abstract_address("podnet/test");
    let listener = place.listen(&address, server_config());
    let device = "role=client,id=0,socket=podnet/test";
    let mut testpmd = place.start(device, &["--rxq=3", "--txq=3"]);
    let (_connection, mut port) = serve(&listener, &mut testpmd);
    assert_eq!((port.rx.len(), port.tx.len()), (3, 3));
    for (tx, rx) in port.tx.iter_mut().zip(&mut port.rx) {
        exchange(tx, rx, &LENS, FRAMES / 4, &mut testpmd);
    }
}

/// A secret, right and wrong; and a number of an interface that is not there.
#[test]
fn who_does_not_know_the_secret_is_told_so() {
    let Some(place) = Place::find(testbed::test_name!()) else {
        return;
    };
    let address = Place::abstract_address("podnet/test");
    let secret = Secret::new("hunter2").expect("a short one");
    let door = Door::new(5, name("podnet/5")).with_secret(secret);
    let config = patient(ServerConfig::new(name("podnet"), door));
    let listener = place.listen(&address, config);
    for (options, text) in [
        ("id=5,secret=hunter3", "incorrect secret"),
        ("id=5", "secret required"),
        ("id=0,secret=hunter2", "unmatched interface id"),
    ] {
        let device = format!("role=client,socket=podnet/test,{options}");
        let mut testpmd = place.start(&device, &[]);
        let why = refuse(&listener, &mut testpmd);
        assert!(matches!(why, Closed::Violation(_)), "{why}");
        assert!(why.to_string().ends_with(text), "{why}");
        testbed::wait::until_true("testpmd to say what it was told", || {
            testpmd.log().contains(text)
        });
    }
    let device = "role=client,socket=podnet/test,id=5,secret=hunter2";
    let mut testpmd = place.start(device, &[]);
    let (_connection, mut port) = serve(&listener, &mut testpmd);
    exchange(&mut port.tx[0], &mut port.rx[0], &LENS, 1000, &mut testpmd);
}

/// Zero-copy gives us the application's memory, which it has not sealed.
#[test]
fn a_client_with_memory_that_is_not_sealed_is_told_so() {
    let Some(place) = Place::find(testbed::test_name!()) else {
        return;
    };
    let address = Place::abstract_address("podnet/test");
    let mut config = server_config();
    config.limits.bytes = 1 << 30;
    config.limits.regions = 256;
    let listener = place.listen(&address, config);
    let device = "role=client,id=0,socket=podnet/test,zero-copy=yes";
    let mut testpmd = place.start_with(device, &["--single-file-segments"], &[]);
    let why = refuse(&listener, &mut testpmd);
    let text = why.to_string();
    assert!(
        text.contains("not sealed") || text.contains("not a memfd"),
        "{text}"
    );
}

/// A client goes, and another one comes.
#[test]
fn the_interface_is_free_when_its_client_has_gone() {
    let Some(place) = Place::find(testbed::test_name!()) else {
        return;
    };
    let address = Place::abstract_address("podnet/test");
    let listener = place.listen(&address, server_config());
    for asked in [true, false] {
        let mut testpmd = place.start("role=client,id=0,socket=podnet/test", &[]);
        let (mut connection, mut port) = serve(&listener, &mut testpmd);
        exchange(&mut port.tx[0], &mut port.rx[0], &LENS, 500, &mut testpmd);
        if asked {
            testpmd.stop();
        } else {
            drop(testpmd);
        }
        let why = testbed::wait::until("the end of the connection", || {
            let event = connection.ready(Instant::now());
            match event.expect("no trouble") {
                memif::Event::Closed(why) => Some(why),
                _ => None,
            }
        });
        assert!(matches!(why, Closed::Peer(_) | Closed::Hangup), "{why}");
        drop(connection);
        assert!(!listener.doors()[0].is_taken());
    }
}

/// A DPDK client rings our bell when we sleep.
#[test]
fn who_sleeps_is_woken() {
    let Some(place) = Place::find(testbed::test_name!()) else {
        return;
    };
    let address = Place::abstract_address("podnet/test");
    let listener = place.listen(&address, server_config());
    let mut testpmd = place.start("role=client,id=0,socket=podnet/test", &[]);
    let (_connection, mut port) = serve(&listener, &mut testpmd);
    assert_woken(&mut port, &mut testpmd);
}

/// DPDK never connects again: a server that is replaced hands its connection over.
#[test]
fn a_client_does_not_notice_that_its_server_is_replaced() {
    let Some(place) = Place::find(testbed::test_name!()) else {
        return;
    };
    let address = Place::abstract_address("podnet/test");
    let mut listener = place.listen(&address, server_config());
    let device = "role=client,id=0,socket=podnet/test";
    let mut testpmd = place.start(device, &["--rxq=2", "--txq=2"]);
    let (mut connection, mut port) = serve(&listener, &mut testpmd);
    for round in 0..5 {
        for (tx, rx) in port.tx.iter_mut().zip(&mut port.rx) {
            exchange(tx, rx, &LENS, 777, &mut testpmd);
        }
        let handover = connection.hand_over(port).expect("descriptors enough");
        let address = Place::abstract_address(&format!("podnet/successor-{round}"));
        let successor = place.listen(&address, server_config());
        let resumed = successor.resume(handover, Instant::now());
        (connection, port) = resumed.expect("no trouble").expect("as it was");
        listener = successor;
    }
    assert!(listener.doors()[0].is_taken());
    assert!(!testpmd.log().contains("isconnect"), "{}", testpmd.log());
}
