//! The agent is not there, or goes away before it has answered.

use std::os::unix::net::UnixStream;

use crate::calls::{Done, call, wait};
use crate::peer::{Place, send, send_raw};

/// Runs a command on an agent that does `answer` after it has the request.
fn with_agent(command: &str, answer: impl FnOnce(&mut UnixStream) + Send + 'static) -> Done {
    let place = Place::new();
    let agent = place.serve(answer);
    let done = call(command, &place.socket()).run();
    assert_eq!(agent.join().unwrap().after, b"", "no ack without a result");
    done
}

#[test]
fn an_absent_agent_is_code_11_and_the_message_says_what_to_look_at() {
    let mut started = Vec::new();
    for abandoned in [false, true] {
        for command in ["ADD", "CHECK", "GC"] {
            let place = Place::new();
            if abandoned {
                place.abandon_socket();
            }
            started.push((call(command, &place.socket()).start(), place));
        }
    }
    for (child, place) in started {
        let error = wait(child).failed_with(11);
        let socket = place.socket().display().to_string();
        assert!(error.msg.contains(&socket), "{error:?}");
        let advice = ["podnet-agent is not running", "try again later"];
        assert!(
            advice.iter().all(|text| error.msg.contains(text)),
            "{error:?}"
        );
        assert!(!place.pending().exists());
    }
}

#[test]
fn an_absent_agent_is_code_50_for_status_cni_st_01() {
    let place = Place::new();
    call("STATUS", &place.socket()).run().failed_with(50);
    place.abandon_socket();
    let error = call("STATUS", &place.socket()).run().failed_with(50);
    assert!(
        error.msg.contains("podnet-agent is not running"),
        "{error:?}"
    );
    proof::of!("CNI-ST-01");
}

#[test]
fn add_finds_an_agent_that_starts_meanwhile() {
    let place = Place::new();
    let child = call("ADD", &place.socket()).start();
    let agent = place.serve_ok("{}");
    wait(child).printed("{}");
    assert_eq!(agent.join().unwrap().after, [0x06]);
}

#[test]
fn a_socket_that_may_not_be_one_is_code_11() {
    let place = Place::new();
    std::fs::write(place.socket(), "a plain file").unwrap();
    call("GC", &place.socket()).run().failed_with(11);
}

#[test]
fn a_connection_that_ends_leaves_add_with_an_unknown_outcome() {
    let place = Place::new();
    let agent = place.serve_nothing();
    let error = call("ADD", &place.socket()).run().failed_with(11);
    assert!(
        error.msg.contains("unknown") && error.msg.contains("DEL"),
        "{error:?}"
    );
    agent.join().unwrap();
}

#[test]
fn a_connection_that_ends_is_code_11_for_check_and_gc_and_50_for_status() {
    for (command, code) in [("CHECK", 11), ("GC", 11), ("STATUS", 50)] {
        let place = Place::new();
        let agent = place.serve_nothing();
        call(command, &place.socket()).run().failed_with(code);
        agent.join().unwrap();
    }
}

#[test]
fn a_cut_oversized_or_foreign_reply_is_no_reply() {
    let replies: [&'static [u8]; 6] = [
        &[9, 0],
        &[9, 0, 0, 0, b'{'],
        &[0xff, 0xff, 0xff, 0x7f, b'{'],
        &[2, 0, 0, 0, b'{', b'}'],
        &[8, 0, 0, 0, b'n', b'o', b't', b' ', b'j', b's', b'o', b'n'],
        b"\x14\0\0\0{\"v\":2,\"okay\":\"sure\"}",
    ];
    for bytes in replies {
        let end = |stream: &UnixStream| stream.shutdown(std::net::Shutdown::Write).unwrap();
        let done = with_agent("ADD", move |stream| {
            send_raw(stream, bytes);
            end(stream);
        });
        let error = done.failed_with(11);
        assert!(error.details.starts_with("reply: "), "{error:?}");
        let done = with_agent("STATUS", move |stream| {
            send_raw(stream, bytes);
            end(stream);
        });
        done.failed_with(50);
    }
}

#[test]
fn an_add_without_a_result_is_an_unknown_outcome() {
    for body in [&br#"{"v":1,"ok":null}"#[..], br#"{"v":1,"ok":[]}"#] {
        with_agent("ADD", move |stream| send(stream, body)).failed_with(11);
    }
}

#[test]
fn status_does_not_wait_for_an_agent_that_hangs() {
    // The peer reads until we close, and never answers.
    let error = with_agent("STATUS", |_| ()).failed_with(50);
    assert!(error.details.contains("timed out"), "{error:?}");
}
