//! TAP devices and their files.

use netdev::{Connection, Error, TapSpec};
use rustix::io::{Errno, read, write};

use crate::Scene;

fn spec() -> TapSpec {
    TapSpec {
        name: "tap0".to_owned(),
        mtu: 1400,
        alias: "podnet:free".to_owned(),
    }
}

/// On a thread in the node's namespace, as the calls want it.
fn on_node<T: Send>(scene: &Scene, work: impl FnOnce(&mut Connection) -> T + Send) -> T {
    let there = || work(&mut Connection::open().expect("a socket"));
    scene.node.run_in(there).expect("the namespace")
}

#[test]
fn a_tap_device_stays_without_its_file_and_is_complete_and_down() {
    let Some(scene) = Scene::set() else { return };
    on_node(&scene, |node| {
        let ifindex = node.create_tap(&spec()).expect("a device");
        let link = node.by_index(ifindex).expect("an answer").expect("a link");
        assert_eq!(
            (link.name.as_str(), link.mtu, link.up, link.carrier),
            ("tap0", 1400, false, false)
        );
        assert_eq!(
            (link.kind.as_deref(), link.alias.as_deref()),
            (Some("tun"), Some("podnet:free"))
        );
        node.set_up(ifindex).expect("up");
        assert!(node.addresses(ifindex).expect("a list").is_empty());
    });
}

#[test]
fn a_taken_name_is_said_to_be_taken_and_its_device_stays() {
    let Some(scene) = Scene::set() else { return };
    on_node(&scene, |node| {
        let ifindex = node.create_tap(&spec()).expect("a device");
        let error = node.create_tap(&spec()).expect_err("a taken name");
        assert!(error.is_exists() && !error.is_gone(), "{error:?}");
        assert!(node.by_index(ifindex).expect("an answer").is_some());
    });
}

#[test]
fn a_file_is_of_the_device_that_was_meant_or_of_none() {
    let Some(scene) = Scene::set() else { return };
    on_node(&scene, |node| {
        let ifindex = node.create_tap(&spec()).expect("a device");
        let file = node.open_tap("tap0", ifindex, false).expect("its file");
        let carrier = |node: &mut Connection| {
            let link = node.by_index(ifindex).expect("an answer");
            link.expect("a link").carrier
        };
        assert!(carrier(node), "its file is open");
        let second = node.open_tap("tap0", ifindex, false);
        assert!(
            matches!(
                second,
                Err(Error::CreateTap {
                    source: Errno::BUSY,
                    ..
                })
            ),
            "{second:?}"
        );
        drop(file);
        assert!(!carrier(node), "its file is closed");
        let other = node
            .open_tap("tap0", ifindex + 1, false)
            .expect_err("another index");
        assert!(other.is_gone(), "{other:?}");
        node.delete(ifindex).expect("deleted");
        let gone = node
            .open_tap("tap0", ifindex, false)
            .expect_err("a device that is gone");
        assert!(gone.is_gone(), "{gone:?}");
        assert!(
            node.by_name("tap0").expect("an answer").is_none(),
            "none was made"
        );
    });
}

/// Frames as they are: nothing before them, and nothing of offloads.
#[test]
fn what_is_written_to_the_file_arrives_and_what_the_device_sends_is_read() {
    let Some(scene) = Scene::set() else { return };
    on_node(&scene, |node| {
        let ifindex = node.create_tap(&spec()).expect("a device");
        let file = node.open_tap("tap0", ifindex, false).expect("its file");
        assert_eq!(
            read(&file, &mut [0; 64]),
            Err(Errno::AGAIN),
            "it does not wait"
        );
        node.set_up(ifindex).expect("up");
        node.add_address(
            ifindex,
            netdev::Address::new("10.0.0.1".parse().expect("an address"), 24),
        )
        .expect("an address");
        let mac = node
            .by_index(ifindex)
            .expect("an answer")
            .expect("a link")
            .mac;
        // Who has 10.0.0.1? (RFC 826)
        let mut request = vec![0xff; 6];
        request.extend([2, 0, 0, 0, 0, 9, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        request.extend([2, 0, 0, 0, 0, 9, 10, 0, 0, 9, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1]);
        assert_eq!(write(&file, &request), Ok(request.len()));
        let reply = loop {
            let mut frame = [0; 128];
            match read(&file, &mut frame) {
                Ok(length) if frame[12..14] == [8, 6] && frame[21] == 2 => {
                    break frame[..length].to_vec();
                }
                Ok(_) => {}
                Err(Errno::AGAIN) => {
                    let mut waiting = [rustix::event::PollFd::new(
                        &file,
                        rustix::event::PollFlags::IN,
                    )];
                    rustix::event::poll(&mut waiting, None).expect("a wait");
                }
                Err(errno) => panic!("{errno}"),
            }
        };
        assert_eq!(reply[..6], [2, 0, 0, 0, 0, 9]);
        assert_eq!(Some(&reply[22..28]), mac.as_ref().map(|mac| &mac[..]));
        assert_eq!(reply.len(), 42);
    });
}
