//! The agent is being restarted: it has left a lease (CNI-ST-05).

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use cni_spec::{LEASE_MAX, Lease, Question};
use serde_json::json;

use crate::calls::{call, conf, wait};
use crate::peer::{Place, boottime};

/// The question of a `call` to the agent of this socket.
fn asked(socket: &Path) -> Question {
    Question::of(&conf(&json!({"socket": socket})).to_string())
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap()
}

/// A place whose agent was well a moment ago.
fn leased() -> Place {
    let place = Place::new();
    place.lease(LEASE_MAX, &[asked(&place.socket())]);
    place
}

/// CNI-ST-05: a restart of the agent is not the node's failure.
#[test]
fn status_is_answered_by_the_lease_while_no_agent_listens() {
    let place = leased();
    call("STATUS", &place.socket()).run().printed("");
    place.abandon_socket();
    call("STATUS", &place.socket()).run().printed("");
    let place = leased();
    let agent = place.serve_nothing();
    call("STATUS", &place.socket()).run().printed("");
    agent.join().unwrap();
    proof::of!("CNI-ST-05");
}

/// CNI-ST-05: what the agent has not answered with success, its lease does not.
#[test]
fn status_of_another_configuration_fails_in_spite_of_the_lease() {
    let place = leased();
    let other = conf(&json!({"socket": place.socket(), "podNetwork": "red"}));
    let done = call("STATUS", &place.socket())
        .stdin(other.to_string())
        .run();
    done.failed_with(50);
    proof::of!("CNI-ST-05");
}

/// CNI-ST-05: an agent that is there and does not answer is no restart.
#[test]
fn status_of_an_agent_that_hangs_fails_in_spite_of_the_lease() {
    let place = leased();
    let agent = place.serve(|_| ());
    call("STATUS", &place.socket()).run().failed_with(50);
    agent.join().unwrap();
    proof::of!("CNI-ST-05");
}

/// CNI-ST-05: no reboot, other clock or torn file makes a lease longer.
#[test]
fn a_lease_that_cannot_be_true_is_no_lease() {
    let place = Place::new();
    let ready = [asked(&place.socket())];
    let (now, second) = (boottime(), Duration::from_secs(1));
    let text = |boot: &str, until| Lease::ending(boot, until, &ready).to_string();
    let good = text(&boot(), now + LEASE_MAX);
    let bad = [
        text(&boot(), now),
        text(&boot(), now.saturating_sub(second)),
        text(&boot(), now + 1000 * second),
        text("6c1e2d35-7f0a-4a5e-9c0e-0c9d4a5b6e7f", now + LEASE_MAX),
        good[..good.len() / 2].to_owned(),
        good.replacen("until-ms ", "until-ms 1", 1),
        String::new(),
        "x".repeat(1 << 20),
    ];
    for text in bad {
        place.write_lease(&text);
        call("STATUS", &place.socket()).run().failed_with(50);
    }
    place.write_lease(&good);
    call("STATUS", &place.socket()).run().printed("");
    proof::of!("CNI-ST-05");
}

#[test]
fn a_lease_that_others_may_have_written_is_no_lease() {
    let place = leased();
    let file = place.lease_file();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o622)).unwrap();
    call("STATUS", &place.socket()).run().failed_with(50);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    call("STATUS", &place.socket()).run().printed("");
    let elsewhere = place.dir().join("elsewhere");
    fs::rename(&file, &elsewhere).unwrap();
    symlink(&elsewhere, &file).unwrap();
    call("STATUS", &place.socket()).run().failed_with(50);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    call("STATUS", &place.socket()).run().failed_with(50);
}

/// CNI-ERR-05, PAIN-UPG-1: the next agent gets what the last one could not answer.
#[test]
fn a_request_that_a_restart_has_lost_is_sent_to_the_next_agent() {
    for (command, value, printed) in [
        ("ADD", "{}", "{}"),
        ("CHECK", "null", ""),
        ("DEL", "null", ""),
    ] {
        let place = leased();
        let agent = place.lose_then_serve(1, value);
        call(command, &place.socket()).run().printed(printed);
        let requests = agent.join().unwrap();
        let heard: Vec<_> = requests.iter().map(|it| it.command.as_str()).collect();
        assert_eq!(heard, [command, command]);
        assert!(!place.pending().exists(), "{command}");
    }
    proof::of!("CNI-ERR-05", "PAIN-UPG-1");
}

/// PAIN-UPG-1: the agent was there, is gone, and another one comes.
#[test]
fn requests_wait_for_the_next_agent_while_the_lease_holds() {
    for (command, value) in [("ADD", "{}"), ("CHECK", "null"), ("DEL", "null")] {
        let place = leased();
        let socket = place.socket();
        let away = place.serve(move |stream| {
            fs::remove_file(socket).unwrap();
            stream.shutdown(std::net::Shutdown::Both).unwrap();
        });
        let child = call(command, &place.socket()).start();
        away.join().unwrap();
        let agent = place.serve_ok(value);
        wait(child).printed(if command == "ADD" { value } else { "" });
        assert_eq!(agent.join().unwrap().request.command.as_str(), command);
        assert!(!place.pending().exists(), "{command}");
    }
    proof::of!("PAIN-UPG-1");
}

/// An agent that closes each connection is not being restarted.
#[test]
fn a_request_is_lost_three_times_at_most() {
    let place = leased();
    let agent = place.lose_then_serve(3, "{}");
    let error = call("ADD", &place.socket()).run().failed_with(11);
    assert!(error.msg.contains("unknown"), "{error:?}");
    // The answer to a fourth request, which is another call.
    call("ADD", &place.socket()).run().printed("{}");
    assert_eq!(agent.join().unwrap().len(), 4);
}

/// CNI-DEL-05: a `DEL` that has waited in vain is kept for the agent.
#[test]
fn a_del_that_outlasts_the_lease_is_kept() {
    let place = Place::new();
    place.lease(Duration::from_millis(300), &[]);
    call("DEL", &place.socket()).run().printed("");
    assert!(place.pending().join("c1-net1").exists());
    proof::of!("CNI-DEL-05");
}

/// CNI-ERR-05: no lease, no restart, and no request that is sent again.
#[test]
fn requests_fail_when_the_lease_has_ended() {
    for (command, code) in [("ADD", 11), ("CHECK", 11), ("GC", 11)] {
        let place = Place::new();
        place.lease(Duration::ZERO, &[asked(&place.socket())]);
        let agent = place.serve_nothing();
        call(command, &place.socket()).run().failed_with(code);
        agent.join().unwrap();
    }
    proof::of!("CNI-ERR-05");
}
