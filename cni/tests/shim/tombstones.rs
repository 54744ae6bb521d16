//! A `DEL` is never lost while the agent is away (CNI-DEL-05).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use cni_spec::{CniRequest, Request};
use serde_json::json;

use crate::calls::{PODNET, call, conf, through};
use crate::peer::Place;

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn read(path: &Path) -> CniRequest {
    match Request::from_body(&fs::read(path).unwrap()).unwrap() {
        Request::Cni(request) => request,
        other => panic!("{other:?}"),
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn del_leaves_the_whole_request_and_succeeds_silently() {
    for abandoned in [false, true] {
        let place = Place::new();
        if abandoned {
            place.abandon_socket();
        }
        let config =
            conf(&json!({"socket": place.socket(), "prevResult": {"ips": []}})).to_string();
        call("DEL", &place.socket())
            .env("CNI_ARGS", "K8S_POD_NAME=p")
            .stdin(config.clone())
            .run()
            .printed("");
        assert_eq!(names(&place.pending()), ["c1-net1"]);
        let file = place.pending().join("c1-net1");
        let request = read(&file);
        assert_eq!(request.command.as_str(), "DEL");
        assert_eq!(
            (request.container_id.as_str(), request.ifname.as_str()),
            ("c1", "net1")
        );
        assert_eq!(request.netns, "/proc/self/ns/net");
        assert_eq!(request.args, "K8S_POD_NAME=p");
        assert_eq!(request.config.get(), config);
        assert_eq!((mode(&place.pending()), mode(&file)), (0o700, 0o600));
    }
}

#[test]
fn a_connection_that_ends_leaves_one_too() {
    let place = Place::new();
    let agent = place.serve_nothing();
    call("DEL", &place.socket()).run().printed("");
    agent.join().unwrap();
    assert_eq!(names(&place.pending()), ["c1-net1"]);
}

#[test]
fn del_without_netns_leaves_one_too() {
    let place = Place::new();
    call("DEL", &place.socket())
        .env("CNI_NETNS", "")
        .run()
        .printed("");
    assert_eq!(read(&place.pending().join("c1-net1")).netns, "");
}

#[test]
fn the_directory_of_the_socket_may_be_missing() {
    let place = Place::new();
    let socket = place.dir().join("run/podnet/agent.sock");
    call("DEL", &socket).run().printed("");
    assert_eq!(
        names(&place.dir().join("run/podnet/pending-del")),
        ["c1-net1"]
    );
    assert_eq!(mode(&place.dir().join("run/podnet")), 0o700);
}

#[test]
fn a_repeated_del_is_one_tombstone_with_the_newest_content() {
    let place = Place::new();
    call("DEL", &place.socket()).run().printed("");
    call("DEL", &place.socket())
        .env("CNI_NETNS", "")
        .run()
        .printed("");
    assert_eq!(names(&place.pending()), ["c1-net1"]);
    assert_eq!(read(&place.pending().join("c1-net1")).netns, "");
}

#[test]
fn two_attachments_with_one_file_name_are_both_kept() {
    let place = Place::new();
    let del = |container, ifname| {
        call("DEL", &place.socket())
            .env("CNI_CONTAINERID", container)
            .env("CNI_IFNAME", ifname)
            .run()
            .printed("");
    };
    del("a", "b-c");
    del("a-b", "c");
    del("a-b", "c");
    assert_eq!(names(&place.pending()), ["a-b-c", "a-b-c.1"]);
    assert_eq!(read(&place.pending().join("a-b-c")).ifname, "b-c");
    assert_eq!(read(&place.pending().join("a-b-c.1")).ifname, "c");
}

#[test]
fn an_unreadable_tombstone_is_replaced() {
    let place = Place::new();
    call("DEL", &place.socket()).run().printed("");
    fs::write(place.pending().join("c1-net1"), "{\"v\":1,").unwrap();
    call("DEL", &place.socket()).run().printed("");
    assert_eq!(read(&place.pending().join("c1-net1")).ifname, "net1");
}

#[test]
fn a_del_that_cannot_be_kept_is_code_11_in_words_no_runtime_forgives() {
    let place = Place::new();
    fs::write(place.pending(), "in the way").unwrap();
    let error = call("DEL", &place.socket()).run().failed_with(11);
    assert!(error.msg.contains("pending-del"), "{error:?}");
    let text = format!("{} {}", error.msg, error.details).to_lowercase();
    assert!(!text.contains("not found"), "{text}");
    assert!(!text.contains("no such file or directory"), "{text}");
}

#[test]
fn a_directory_others_may_write_to_is_not_trusted() {
    let place = Place::new();
    fs::create_dir(place.pending()).unwrap();
    fs::set_permissions(place.pending(), fs::Permissions::from_mode(0o777)).unwrap();
    call("DEL", &place.socket()).run().failed_with(11);
    assert_eq!(names(&place.pending()), Vec::<String>::new());
    fs::remove_dir(place.pending()).unwrap();
    std::os::unix::fs::symlink(place.dir(), place.pending()).unwrap();
    call("DEL", &place.socket()).run().failed_with(11);
    assert_eq!(names(place.dir()), ["pending-del"]);
}

#[test]
fn umask_0_opens_nothing_cni_env_11() {
    let place = Place::new();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "umask 0; cd /; exec \"$0\"", PODNET]);
    through(shell)
        .env("CNI_COMMAND", "DEL")
        .env("CNI_CONTAINERID", "c1")
        .env("CNI_IFNAME", "net1")
        .stdin(conf(&json!({"socket": place.socket()})).to_string())
        .run()
        .printed("");
    assert_eq!(mode(&place.pending()), 0o700);
    assert_eq!(mode(&place.pending().join("c1-net1")), 0o600);
    proof::of!("CNI-ENV-11");
}
