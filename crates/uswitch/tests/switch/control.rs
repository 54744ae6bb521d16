//! Send requests of the agent to a switch.

use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;

use agent_common::port::PORT_TRUNK;
use rustix::io::Errno;
use uswitch::control::{Client, RefusalCode};
use uswitch::{Error, Options, Switch};

use super::by_hand::ByHand;
use super::scene::{Pod, Scene, config, until};

fn code<T: std::fmt::Debug>(refused: Result<T, Error>) -> RefusalCode {
    match refused {
        Err(Error::Refused(refusal)) => refusal.code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn ports_are_added_changed_listed_and_removed_and_each_again() {
    let scene = Scene::new();
    let mut switch = scene.client();
    let pod = Pod::new(config(7, 1));
    assert!(!switch.update(&pod.config).unwrap(), "it is not there");
    for _ in 0..2 {
        pod.add(&mut switch);
        assert!(switch.update(&pod.config).unwrap());
        let ports = switch.list().unwrap();
        assert_eq!(ports.len(), 1);
        assert_eq!(ports[0].config, pod.config);
        assert!(!ports[0].connected);
    }
    let mut moved = pod.config.clone();
    moved.ips.clear();
    moved.mtu = 9000;
    assert!(switch.update(&moved).unwrap());
    assert_eq!(switch.list().unwrap()[0].config, moved);
    moved.network = 8;
    assert_eq!(code(switch.update(&moved)), RefusalCode::Fixed);
    assert!(switch.remove(&pod.config.key).unwrap());
    assert!(!switch.remove(&pod.config.key).unwrap());
    assert_eq!(switch.list().unwrap(), []);
    assert!(!switch.update(&pod.config).unwrap());
}

#[test]
fn a_port_that_cannot_be_is_refused_and_the_switch_goes_on() {
    let scene = Scene::new();
    let mut switch = scene.client();
    let pod = Pod::new(config(7, 1));
    let mut trunk = pod.config.clone();
    trunk.flags = PORT_TRUNK;
    let listeners = [pod.listener.as_fd()];
    let refused = switch.add(&trunk, (pod.theirs.as_fd(), false), &listeners);
    assert_eq!(code(refused), RefusalCode::Invalid);
    for listeners in [
        vec![],
        vec![pod.listener.as_fd(); 3],
        vec![pod.kernel.as_fd()],
    ] {
        let refused = switch.add(&pod.config, (pod.theirs.as_fd(), false), &listeners);
        assert_eq!(code(refused), RefusalCode::BadDescriptors);
    }
    let file = tempfile::tempfile().unwrap();
    let refused = switch.add(&pod.config, (file.as_fd(), false), &[file.as_fd()]);
    assert_eq!(code(refused), RefusalCode::BadDescriptors);
    assert_eq!(switch.list().unwrap(), []);
    pod.add(&mut switch);
    assert_eq!(switch.list().unwrap().len(), 1);
}

#[test]
fn more_ports_than_a_message_has_room_for_are_listed() {
    let scene = Scene::new();
    let mut switch = scene.client();
    let mut keys = Vec::new();
    for nth in 0..300_u32 {
        let mut port = config(7, 1);
        port.key = format!("{nth:0>200}");
        port.ips = (0..30)
            .map(|_| "fd00:1111:2222:3333::1".parse().unwrap())
            .collect();
        keys.push(port.key.clone());
        Pod::new(port).add(&mut switch);
    }
    let listed = switch.list().unwrap();
    let listed: Vec<String> = listed.into_iter().map(|port| port.config.key).collect();
    assert_eq!(listed, keys);
}

#[test]
fn a_secret_is_asked_of_clients_and_told_to_nobody() {
    let scene = Scene::new();
    let mut pod = scene.port_with(7, 1, |port| port.secret = Some("hunter2".to_owned()));
    assert_eq!(scene.status(&pod).config.secret, None);
    let secret = pod.config.secret.take();
    pod.begin(&pod.address.clone());
    let why = until("the refusal", || pod.poll());
    assert!(why.contains("secret required"), "{why}");
    pod.config.secret = secret;
    pod.connect();
    let peer = scene.status(&pod).peer;
    assert_eq!(peer.as_deref(), Some("app of app"));
}

/// A path and a name in the pod's namespace: the first client has the port.
#[test]
fn a_port_with_two_sockets_has_one_client() {
    let scene = Scene::new();
    let mut pod = Pod::new(config(7, 1));
    let second = super::scene::address();
    let socket = second.listen().unwrap();
    let listeners = [pod.listener.as_fd(), socket.as_fd()];
    let mut switch = scene.client();
    switch
        .add(&pod.config, (pod.theirs.as_fd(), false), &listeners)
        .unwrap();
    let first = pod.address.clone();
    for (here, there) in [(&first, &second), (&second, &first)] {
        pod.address = here.clone();
        pod.connect();
        let mut rival = Pod::new(config(7, 9));
        rival.begin(there);
        let why = until("the refusal", || rival.poll());
        assert!(why.contains("Already connected"), "{why}");
        pod.send(&pod.broadcast(1));
        assert_eq!(pod.at_kernel(), pod.broadcast(1));
        pod.client.as_mut().unwrap().disconnect("done");
        pod.rings = None;
        until("the client to be gone", || {
            (!scene.status(&pod).connected).then_some(())
        });
        let closed = scene.status(&pod).last_closed.unwrap();
        assert_eq!(closed, "disconnected by the peer: done");
    }
}

#[test]
fn a_client_is_told_that_its_port_is_removed_and_that_the_switch_stops() {
    let scene = Scene::new();
    let mut pod = scene.pod(7, 1);
    let mut other = scene.pod(7, 2);
    assert!(scene.client().remove(&pod.config.key).unwrap());
    let why = until("the word", || pod.poll());
    assert!(why.contains("the port is removed"), "{why}");
    // The other one has no neighbour any more.
    let frame = other.frame_to(&pod, 1);
    other.send(&frame);
    assert_eq!(other.at_kernel(), frame);
    drop(scene);
    let why = until("the word", || other.poll());
    assert!(why.contains("the port is removed"), "{why}");
}

#[test]
fn nobody_there_is_told_from_other_errors_and_an_old_socket_is_no_hindrance() {
    let scene = Scene::new();
    let socket = scene.socket();
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let missing = socket.with_file_name("missing.sock");
    assert!(Client::connect(&missing).unwrap_err().is_nobody_there());
    let stale = memif::Address::Path(missing.clone());
    drop(stale.listen().unwrap());
    assert!(Client::connect(&missing).unwrap_err().is_nobody_there());
    // Somebody else's socket is not taken.
    let other = socket.with_file_name("other.sock");
    let _other = std::os::unix::net::UnixListener::bind(&other).unwrap();
    let refused = Client::connect(&other).unwrap_err();
    assert!(!refused.is_nobody_there(), "{refused}");
    assert!(Switch::open(&Options::new(other)).is_err());
    // An old file is replaced.
    let switch = Switch::open(&Options::new(missing.clone())).unwrap();
    let running = std::thread::spawn(move || switch.run());
    Client::connect(&missing).unwrap().stop().unwrap();
    running.join().unwrap().unwrap();
}

/// A request for a missing object is refused, and other connections are served.
///
/// Root may be mistaken too.
#[test]
fn messages_that_are_none_are_refused_and_the_switch_goes_on() {
    let scene = Scene::new();
    let mut pods = [scene.pod(7, 1), scene.pod(7, 2)];
    let stranger = ByHand::new(&scene);
    stranger.say(r#"{"request":"list"}"#);
    assert!(stranger.hear().unwrap().contains("say hello first"));
    stranger.say(r#"{"request":"hello","version":0}"#);
    assert!(stranger.hear().unwrap().contains(r#""code":"version""#));
    stranger.say(r#"{"request":"hello","version":4000000000,"more":[1]}"#);
    assert!(stranger.hear().unwrap().contains(r#""version":3"#));
    let asker = ByHand::greeted(&scene);
    for text in [
        "{}",
        "[1,2",
        r#"{"request":"x"}"#,
        r#"{"request":"add_port"}"#,
        "\0",
    ] {
        asker.say(text);
        let heard = asker.hear().unwrap();
        assert!(heard.contains(r#""code":"malformed""#), "{text}: {heard}");
    }
    // Maps that are none: the switch judges by nothing.
    let judge = br#"{"request":"judge","ports":4096}"#;
    for descriptors in [0, 1, 2, 3] {
        let descriptors = vec![pods[0].kernel.as_fd(); descriptors];
        asker.try_say(judge, &descriptors).unwrap();
        let heard = asker.hear().unwrap();
        assert!(heard.contains(r#""code":"bad_descriptors""#), "{heard}");
    }
    asker.say(r#"{"request":"have_all"}"#);
    assert!(asker.hear().unwrap().contains("may not come now"));
    // More descriptors than any message has, and more bytes: the connection ends.
    let many = vec![pods[0].kernel.as_fd(); 100];
    asker.try_say(br#"{"request":"list"}"#, &many).unwrap();
    assert_eq!(asker.hear(), None);
    let asker = ByHand::greeted(&scene);
    asker.try_say(&[b' '; 70_000], &[]).unwrap();
    assert_eq!(asker.hear(), None);
    // Who asks and never listens is not waited for.
    let deaf = ByHand::greeted(&scene);
    until("the switch to have enough", || {
        match deaf.try_say(br#"{"request":"list"}"#, &[]) {
            Ok(()) | Err(Errno::AGAIN) => None,
            Err(_) => Some(()),
        }
    });
    let [one, other] = &mut pods;
    let frame = one.frame_to(other, 1);
    one.send(&frame);
    assert_eq!(other.receive(), frame);
    assert_eq!(scene.client().list().unwrap().len(), 2);
}
