//! A client without its server.

use std::time::{Duration, Instant};

use memif::{Client, ClientConfig, Closed, Event, Listener};

use super::scene::{address, assert_frames, closed, config, connect, name, wait};

#[test]
fn a_client_tries_until_there_is_a_server() {
    let address = address();
    let start = Instant::now();
    let retry = Duration::from_secs(3);
    let mut client = Client::new(address.clone(), ClientConfig::new(name("client")), start)
        .unwrap()
        .with_retry(retry);
    assert_eq!(client.deadline(), Some(start));
    let error = client.poll(start).unwrap_err();
    assert!(error.to_string().contains("connect"), "{error}");
    assert_eq!(client.deadline(), Some(start + retry));
    assert!(client.fd().is_none());
    // Not before it is time.
    let early = start + retry - Duration::from_nanos(1);
    assert!(matches!(client.poll(early), Ok(Event::Nothing)));
    let listener = Listener::bind(&address, config()).unwrap();
    assert!(matches!(client.poll(start + retry), Ok(Event::Nothing)));
    assert!(client.fd().is_some());
    drop(listener);
}

#[test]
fn a_client_comes_back_when_its_server_does() {
    let address = address();
    let config_of_client = ClientConfig::new(name("client"));
    let mut client = Client::new(address.clone(), config_of_client, Instant::now())
        .unwrap()
        .with_retry(Duration::ZERO);
    for round in 0..3 {
        let listener = Listener::bind(&address, config()).unwrap();
        let (mut ours, mut connection, mut theirs) = connect(&mut client, &listener);
        assert_frames(&mut theirs, &mut ours);
        assert_frames(&mut ours, &mut theirs);
        if round == 1 {
            connection.disconnect("upgrade");
        }
        drop((listener, connection));
        wait(&[client.fd().unwrap()]);
        let why = closed(client.poll(Instant::now()).unwrap());
        assert_eq!(matches!(why, Closed::Peer(_)), round == 1, "{why}");
        // What it had before stays mapped, and nobody listens to it.
        assert_eq!(theirs.tx[0].push(&[1; 60]), Ok(memif::Sent::Yes));
        theirs.tx[0].flush();
    }
}

#[test]
fn a_client_that_was_ended_stays_away() {
    let address = address();
    let listener = Listener::bind(&address, config()).unwrap();
    let now = Instant::now();
    let mut client = Client::new(address, ClientConfig::new(name("client")), now).unwrap();
    connect(&mut client, &listener);
    client.disconnect("done");
    assert_eq!(client.deadline(), None);
    let later = now + Duration::from_secs(86_400);
    assert!(matches!(client.poll(later), Ok(Event::Nothing)));
    assert!(client.fd().is_none());
}

#[test]
fn a_server_that_says_nothing_is_left() {
    let address = address();
    // Listens and accepts nobody.
    let _socket = address.listen().unwrap();
    let now = Instant::now();
    let mut client = Client::new(address, ClientConfig::new(name("client")), now).unwrap();
    assert!(matches!(client.poll(now), Ok(Event::Nothing)));
    let deadline = client.deadline().unwrap();
    let why = closed(client.poll(deadline).unwrap());
    assert!(why.to_string().contains("timed out"), "{why}");
    assert!(client.fd().is_none());
}
