//! `CNI_NETNS` (CNI-ENV-08, CNI-ADD-07, CNI-DEL-01).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, fstat, mknodat};

use crate::calls::call;
use crate::peer::Place;

const OWN: &str = "/proc/self/ns/net";

/// Lists paths that are no namespace.
///
/// They are absent, a plain file (what a reboot leaves), a directory, a FIFO.
fn no_namespaces(place: &Place) -> Vec<String> {
    let path = |name: &str| place.dir().join(name);
    fs::write(path("file"), "").unwrap();
    mknodat(
        CWD,
        path("fifo"),
        FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .unwrap();
    ["absent", "file", "fifo", "."]
        .into_iter()
        .map(|name| path(name).display().to_string())
        .collect()
}

#[test]
fn the_descriptor_that_arrives_is_the_namespace() {
    let own = fs::metadata(OWN).unwrap();
    for command in ["ADD", "DEL", "CHECK"] {
        let place = Place::new();
        let agent = place.serve_ok("{}");
        call(command, &place.socket()).run();
        let seen = agent.join().unwrap();
        let [fd] = seen.fds.as_slice() else {
            panic!("{command}: {:?}", seen.fds);
        };
        let stat = fstat(fd).unwrap();
        assert_eq!(
            (stat.st_dev, stat.st_ino),
            (own.dev(), own.ino()),
            "{command}"
        );
        assert_eq!(seen.request.netns, OWN);
    }
    proof::of!("CNI-ADD-07");
}

#[test]
fn the_plugins_own_namespace_is_code_8_for_add_and_del() {
    for command in ["ADD", "DEL"] {
        for path in [OWN, "/proc/thread-self/ns/net"] {
            let place = Place::new();
            let done = call(command, &place.socket())
                .env("CNI_NETNS", path)
                .without("CNI_NETNS_OVERRIDE")
                .run();
            assert!(done.failed_with(8).msg.contains("CNI_NETNS"));
            assert!(!place.pending().exists());
        }
    }
    proof::of!("CNI-ENV-08");
}

#[test]
fn only_1_and_true_lift_the_guard() {
    for (value, lifted) in [("1", true), ("True", true), ("0", false), ("", false)] {
        let done = call("ADD", Path::new("/dev/null/agent.sock")).env("CNI_NETNS_OVERRIDE", value);
        let code = done.run().error().code.0;
        assert_eq!(code, if lifted { 11 } else { 8 }, "{value:?}");
    }
    proof::of!("CNI-ENV-07");
}

#[test]
fn what_is_no_namespace_is_code_4_for_add_and_check() {
    let place = Place::new();
    for path in no_namespaces(&place) {
        for command in ["ADD", "CHECK"] {
            let done = call(command, &place.socket()).env("CNI_NETNS", &path).run();
            let error = done.failed_with(4);
            assert!(
                error.msg.contains("CNI_NETNS") && error.msg.contains(&path),
                "{error:?}"
            );
        }
    }
}

#[test]
fn del_goes_on_without_a_namespace() {
    let place = Place::new();
    let mut paths = no_namespaces(&place);
    paths.push(String::new());
    for path in paths {
        let place = Place::new();
        let agent = place.serve_ok("null");
        call("DEL", &place.socket())
            .env("CNI_NETNS", &path)
            .run()
            .printed("");
        let seen = agent.join().unwrap();
        assert_eq!(seen.request.netns, path);
        assert!(seen.fds.is_empty());
    }
    proof::of!("CNI-DEL-01");
}

#[test]
fn gc_and_status_carry_no_descriptor() {
    for command in ["GC", "STATUS"] {
        let place = Place::new();
        let agent = place.serve_ok("null");
        call(command, &place.socket()).run().printed("");
        let seen = agent.join().unwrap();
        assert!(seen.fds.is_empty());
        let request = seen.request;
        assert_eq!(
            (request.container_id, request.netns, request.ifname),
            Default::default()
        );
    }
}
