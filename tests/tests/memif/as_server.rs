//! testpmd as the server: we own the memory, and connect to it.

use std::time::Instant;

use memif::{Address, ClientConfig, Event, Secret};

use super::testpmd::{Place, assert_woken, connect, exchange, name};

const FRAMES: u32 = 20_000;
const LENS: [usize; 7] = [60, 61, 64, 127, 512, 1500, 1514];

fn config() -> ClientConfig {
    ClientConfig {
        name: name("podnet/0"),
        patience: testbed::wait::PATIENCE,
        ..ClientConfig::new(name("podnet"))
    }
}

/// Frames come back as they were sent, over a path and over an abstract socket.
///
/// The latter is in the namespace. The client waits for its server.
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
        let mut client = place.client(address, config());
        assert!(client.poll(Instant::now()).is_err(), "nobody listens yet");
        let mut testpmd = place.start(&format!("role=server,id=0,{socket}"), &[]);
        let mut port = connect(&mut client, &mut testpmd);
        assert!(port.app.to_string().starts_with("DPDK"), "{}", port.app);
        exchange(
            &mut port.tx[0],
            &mut port.rx[0],
            &LENS,
            FRAMES,
            &mut testpmd,
        );
    }
}

/// Rings and buffers of any size are the client's to choose.
#[test]
fn rings_and_buffers_of_any_size_work() {
    let Some(place) = Place::find(testbed::test_name!()) else {
        return;
    };
    let address = Place::abstract_address("podnet/test");
    for (log2_ring_size, buffer_size) in [(14, 2048), (5, 1600), (2, 2048), (12, 4096)] {
        let mut testpmd = place.start("role=server,id=0,socket=podnet/test", &["--burst=2"]);
        let mut client = place.client(
            address.clone(),
            ClientConfig {
                log2_ring_size,
                buffer_size,
                ..config()
            },
        );
        let mut port = connect(&mut client, &mut testpmd);
        assert_eq!(port.rx[0].size(), 1 << log2_ring_size);
        exchange(&mut port.tx[0], &mut port.rx[0], &LENS, 1000, &mut testpmd);
    }
}

/// Several rings and a secret.
#[test]
fn several_rings_and_a_secret_work() {
    let Some(place) = Place::find(testbed::test_name!()) else {
        return;
    };
    let address = Place::abstract_address("podnet/test");
    let device = "role=server,id=9,socket=podnet/test,secret=hunter2";
    let mut testpmd = place.start(device, &["--rxq=2", "--txq=2"]);
    let mut client = place.client(
        address,
        ClientConfig {
            id: 9,
            secret: Secret::new("hunter2").expect("a short one"),
            c2s_rings: 2,
            s2c_rings: 2,
            ..config()
        },
    );
    let mut port = connect(&mut client, &mut testpmd);
    assert_eq!((port.rx.len(), port.tx.len()), (2, 2));
    for (tx, rx) in port.tx.iter_mut().zip(&mut port.rx) {
        exchange(tx, rx, &LENS, FRAMES / 4, &mut testpmd);
    }
}

/// The server is killed, and is back: so is the client, with new memory.
#[test]
fn the_client_comes_back_when_its_server_does() {
    let Some(place) = Place::find(testbed::test_name!()) else {
        return;
    };
    let address = Place::abstract_address("podnet/test");
    let mut client = place.client(address, config());
    for _ in 0..2 {
        let mut testpmd = place.start("role=server,id=0,socket=podnet/test", &[]);
        let mut port = connect(&mut client, &mut testpmd);
        exchange(&mut port.tx[0], &mut port.rx[0], &LENS, 500, &mut testpmd);
        drop(testpmd);
        testbed::wait::until_true("the client to see it", || {
            matches!(client.poll(Instant::now()), Ok(Event::Closed(_)))
        });
    }
}

/// A DPDK server rings our bell when we sleep.
#[test]
fn who_sleeps_is_woken() {
    let Some(place) = Place::find(testbed::test_name!()) else {
        return;
    };
    let address = Place::abstract_address("podnet/test");
    let mut testpmd = place.start("role=server,id=0,socket=podnet/test", &[]);
    let mut client = place.client(address, config());
    let mut port = connect(&mut client, &mut testpmd);
    assert_woken(&mut port, &mut testpmd);
}
