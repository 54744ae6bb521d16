//! Honest clients: what they get, over every kind of address.

use std::os::fd::AsFd as _;
use std::time::Instant;

use memif::{
    Address, Client, ClientConfig, Closed, Door, Doorbells, Event, Listener, Port, Secret, Sent,
    ServerConfig,
};
use rustix::event::epoll;

use super::scene::{
    accept, address, assert_alive, assert_frames, closed, config, connect, is_readable, name, pair,
    wait,
};

#[test]
fn frames_go_both_ways_on_every_ring() {
    for (c2s_rings, s2c_rings, log2_ring_size, buffer_size) in [
        (1, 1, 10, 2048),
        (1, 1, 1, 128),
        (3, 2, 5, 4096),
        (8, 8, 8, 1600),
        (1, 1, 14, 2048),
        (2, 1, 6, 65535),
    ] {
        let client = ClientConfig {
            c2s_rings,
            s2c_rings,
            log2_ring_size,
            buffer_size,
            ..ClientConfig::new(name("client"))
        };
        let (_listener, _connection, mut ours, _client, mut theirs) = pair(client);
        assert_eq!(
            (ours.rx.len(), ours.tx.len()),
            (c2s_rings.into(), s2c_rings.into())
        );
        assert_eq!(ours.rx[0].size(), 1 << log2_ring_size);
        assert_frames(&mut theirs, &mut ours);
        assert_frames(&mut ours, &mut theirs);
    }
}

#[test]
fn both_sides_learn_each_others_names() {
    let config = ClientConfig {
        name: name("app/3"),
        ..ClientConfig::new(name("app"))
    };
    let (listener, connection, ours, _client, theirs) = pair(config);
    assert_eq!((ours.app, ours.peer), (name("app"), name("app/3")));
    assert_eq!(
        (theirs.app, theirs.peer),
        (name("server"), name("server/0"))
    );
    assert!(listener.doors()[0].is_taken());
    assert_eq!(connection.door().unwrap().id(), 0);
    drop(connection);
    assert!(!listener.doors()[0].is_taken());
}

#[test]
fn a_socket_can_have_a_path_of_any_length() {
    let dir = tempfile::tempdir().unwrap();
    let mut path = dir.path().to_owned();
    for _ in 0..6 {
        path.push("a-directory-with-a-long-name-as-kubelet-has-them");
    }
    std::fs::create_dir_all(&path).unwrap();
    let address = Address::Path(path.join("memif.sock"));
    assert!(address.to_string().len() > 250);
    let listener = Listener::bind(&address, config()).unwrap();
    assert_alive(&address, &listener);
    // Somebody listens: the address is not taken away from him.
    let error = Listener::bind(&address, config()).unwrap_err();
    assert!(error.to_string().contains("bind"), "{error}");
    assert_alive(&address, &listener);
    // Nobody does any more: the file is in nobody's way.
    drop(listener);
    let listener = Listener::bind(&address, config()).unwrap();
    assert_alive(&address, &listener);
    let file = path.join("memif.sock");
    memif::remove(&file).unwrap();
    assert!(!file.exists());
}

#[test]
fn attack_file_or_link_in_the_place_of_the_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("memif.sock");
    std::fs::write(&path, "mine").unwrap();
    let address = Address::Path(path.clone());
    assert!(Listener::bind(&address, config()).is_err());
    assert!(memif::remove(&path).is_err());
    let link = dir.path().join("link.sock");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(Listener::bind(&Address::Path(link.clone()), config()).is_err());
    assert!(memif::remove(&link).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn addresses_that_no_socket_can_have_are_named() {
    for address in [
        Address::Abstract(vec![]),
        Address::Abstract(vec![b'x'; 108]),
        Address::Abstract(b"a\0b".to_vec()),
        Address::Path("/".into()),
        Address::Path(format!("/tmp/{}", "x".repeat(200)).into()),
    ] {
        let error = Listener::bind(&address, config()).unwrap_err().to_string();
        assert!(error.contains("use 1 to"), "{error}");
    }
    let longest = Address::Abstract(vec![b'x'; 107]);
    assert!(Listener::bind(&longest, config()).is_ok());
}

#[test]
fn a_secret_lets_in_who_knows_it() {
    let address = address();
    let secret = Secret::new("hunter2").unwrap();
    let door = Door::new(0, name("door")).with_secret(secret);
    let listener = Listener::bind(&address, ServerConfig::new(name("server"), door)).unwrap();
    for (known, refused) in [
        ("", Some("secret required")),
        ("wrong", Some("incorrect secret")),
        ("hunter2", None),
    ] {
        let config = ClientConfig {
            secret: Secret::new(known).unwrap(),
            ..ClientConfig::new(name("client"))
        };
        let now = Instant::now();
        let mut client = Client::new(address.clone(), config, now).unwrap();
        match refused {
            None => {
                connect(&mut client, &listener);
            }
            Some(text) => {
                assert!(matches!(client.poll(now), Ok(Event::Nothing)));
                let mut connection = accept(&listener);
                assert!(matches!(client.poll(now), Ok(Event::Nothing)));
                wait(&[connection.fd()]);
                let why = closed(connection.ready(now).unwrap());
                assert!(why.to_string().ends_with(text), "{why}");
                wait(&[client.fd().unwrap()]);
                let Closed::Peer(told) = closed(client.poll(now).unwrap()) else {
                    panic!("the client is told why");
                };
                assert_eq!(told.reason.to_string(), text);
            }
        }
    }
}

/// Wakes a sleeper by an edge; the eventfd is never read.
#[test]
fn who_sleeps_is_woken_for_each_burst() {
    for doorbells in [Doorbells::Thread, Doorbells::Direct] {
        let address = address();
        let listener = Listener::bind(&address, config())
            .unwrap()
            .with_doorbells(doorbells);
        let client = ClientConfig::new(name("client"));
        let mut client = Client::new(address, client, Instant::now())
            .unwrap()
            .with_doorbells(doorbells);
        let (mut ours, _connection, mut theirs) = connect(&mut client, &listener);
        sleep_and_wake(&mut theirs, &mut ours);
        sleep_and_wake(&mut ours, &mut theirs);
    }
}

fn sleep_and_wake(from: &mut Port, to: &mut Port) {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let event = to.rx[0].event().unwrap();
    let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&epoll, event, epoll::EventData::new_u64(0), edges).unwrap();
    assert!(!is_readable(event), "nobody rings for who polls");
    for _ in 0..5 {
        assert_eq!(to.rx[0].arm(), Ok(true));
        for _ in 0..3 {
            assert_eq!(from.tx[0].push(&[7; 60]), Ok(Sent::Yes));
        }
        from.tx[0].flush();
        wait(&[epoll.as_fd()]);
        let mut events = Vec::with_capacity(4);
        let woken = epoll::wait(
            &epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&rustix::event::Timespec {
                tv_sec: 30,
                tv_nsec: 0,
            }),
        );
        assert_eq!(woken, Ok(1));
        to.rx[0].disarm();
        let mut visited = 0;
        to.rx[0].burst(64, |_| visited += 1).unwrap();
        assert_eq!(visited, 3);
    }
}

#[test]
fn a_goodbye_says_why() {
    let (_listener, mut connection, _ours, mut client, _theirs) =
        pair(ClientConfig::new(name("client")));
    connection.disconnect("the pod is gone");
    wait(&[client.fd().unwrap()]);
    let why = closed(client.poll(Instant::now()).unwrap());
    assert_eq!(why.to_string(), "disconnected by the peer: the pod is gone");

    let (_listener, mut connection, _ours, mut client, _theirs) =
        pair(ClientConfig::new(name("client")));
    client.disconnect("bye");
    wait(&[connection.fd()]);
    let why = closed(connection.ready(Instant::now()).unwrap());
    assert_eq!(why.to_string(), "disconnected by the peer: bye");

    let (_listener, mut connection, _ours, client, _theirs) =
        pair(ClientConfig::new(name("client")));
    drop(client);
    wait(&[connection.fd()]);
    assert_eq!(
        closed(connection.ready(Instant::now()).unwrap()),
        Closed::Hangup
    );
}

/// Memory goes when the last ring goes, not when the connection does.
///
/// So a thread that moves packets meanwhile does not crash.
#[test]
fn a_port_outlives_its_connection() {
    let (listener, connection, mut ours, client, theirs) = pair(ClientConfig::new(name("client")));
    drop((listener, connection, client, theirs));
    for _ in 0..3 {
        let _ = ours.tx[0].push(&[1; 60]).unwrap();
        ours.tx[0].flush();
        assert_eq!(ours.rx[0].burst(64, |_| panic!("nobody sends")), Ok(0));
    }
}
