//! A request that is answered.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::calls::{PODNET, call, conf, through, wait};
use crate::peer::{Place, send};

const RESULT: &str = r#"{ "cniVersion":"1.1.0", "ips":[ {"address":"10.0.0.2/24"} ] }"#;

#[test]
fn the_result_of_add_is_printed_as_it_came_and_acknowledged() {
    let place = Place::new();
    let agent = place.serve_ok(RESULT);
    call("ADD", &place.socket()).run().printed(RESULT);
    assert_eq!(agent.join().unwrap().after, [0x06]);
}

#[test]
fn the_request_holds_what_the_runtime_gave() {
    let place = Place::new();
    let agent = place.serve_ok(RESULT);
    let config = format!(
        "\n {{\"cniVersion\":\"0.3.1\",\"name\":\"blue\", \"socket\":{:?},\n\"big\":12345678901234567890123}} \n",
        place.socket()
    );
    call("ADD", &place.socket())
        .env("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAME=p")
        .env(
            "TRACEPARENT",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        )
        .env("TRACESTATE", "a=b")
        .env("BAGGAGE", "c=d")
        .stdin(config.clone())
        .run()
        .printed(RESULT);
    let request = agent.join().unwrap().request;
    assert_eq!(request.command.as_str(), "ADD");
    assert_eq!(
        (request.container_id.as_str(), request.ifname.as_str()),
        ("c1", "net1")
    );
    assert_eq!(request.args, "IgnoreUnknown=1;K8S_POD_NAME=p");
    assert_eq!(request.path, "/opt/cni/bin");
    assert!(request.trace.traceparent.starts_with("00-4bf9"));
    assert_eq!(
        (
            request.trace.tracestate.as_str(),
            request.trace.baggage.as_str()
        ),
        ("a=b", "c=d")
    );
    assert_eq!(request.config.get(), config.trim());
}

#[test]
fn the_other_commands_print_nothing_whatever_the_agent_says() {
    for command in ["DEL", "CHECK", "GC", "STATUS"] {
        for value in ["null", "{}", "\"done\""] {
            let place = Place::new();
            let agent = place.serve_ok(value);
            let done = call(command, &place.socket()).run();
            done.printed("");
            assert_eq!(done.stderr(), "");
            assert_eq!(agent.join().unwrap().after, b"", "{command} needs no ack");
        }
    }
}

#[test]
fn an_error_of_the_agent_is_printed_with_all_its_fields_and_not_acknowledged() {
    for command in ["ADD", "DEL", "CHECK", "GC", "STATUS"] {
        let place = Place::new();
        let agent = place.serve_error(json!({
            "cniVersion": "0.4.0", "code": 100, "msg": "pool exhausted", "details": "10.0.0.0/30",
        }));
        let error = call(command, &place.socket()).run().failed_with(100);
        assert_eq!(error.cni_version.as_str(), "0.4.0");
        assert_eq!(
            (error.msg.as_str(), error.details.as_str()),
            ("pool exhausted", "10.0.0.0/30")
        );
        assert_eq!(agent.join().unwrap().after, b"");
        assert!(!place.pending().exists());
    }
}

#[test]
fn an_error_of_del_is_worded_so_that_no_runtime_forgives_it_cni_err_06() {
    let error =
        json!({"code": 110, "msg": "link not found", "details": "no such file or directory"});
    let place = Place::new();
    let agent = place.serve_error(error.clone());
    let del = call("DEL", &place.socket()).run().failed_with(110);
    assert_eq!(
        (del.msg.as_str(), del.details.as_str()),
        ("link missing", "missing path")
    );
    agent.join().unwrap();
    let place = Place::new();
    let agent = place.serve_error(error);
    let check = call("CHECK", &place.socket()).run().failed_with(110);
    assert_eq!(check.msg, "link not found");
    agent.join().unwrap();
    proof::of!("CNI-ERR-06");
}

#[test]
fn a_result_that_nobody_reads_is_not_acknowledged() {
    let place = Place::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let agent = place.serve_ok(RESULT);
    let child = call("ADD", &place.socket())
        .stdout(Stdio::from(writer))
        .start();
    let done = wait(child);
    assert_eq!(done.0.status.code(), Some(1), "{done:?}");
    assert_eq!(agent.join().unwrap().after, b"");
}

#[test]
fn a_result_cut_short_by_the_reader_is_not_acknowledged() {
    // Larger than a pipe holds: the write stops in the middle until the reader closes.
    let result = format!(r#"{{"filler":"{}"}}"#, "x".repeat(1 << 20));
    let place = Place::new();
    let agent = place.serve_ok(&result);
    let mut child = call("ADD", &place.socket()).start();
    let mut some = [0_u8; 100];
    let mut stdout = child.stdout.take().unwrap();
    std::io::Read::read_exact(&mut stdout, &mut some).unwrap();
    drop(stdout);
    assert_eq!(wait(child).0.status.code(), Some(1));
    assert_eq!(agent.join().unwrap().after, b"");
}

/// Runs ADD through a shell that redirects stdout.
///
/// Returns what the agent saw after its reply.
fn add_through_shell(redirection: &str) -> (Option<i32>, Vec<u8>) {
    let place = Place::new();
    let agent = place.serve_ok(RESULT);
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &format!("exec \"$0\" {redirection}"), PODNET]);
    let done = through(shell)
        .env("CNI_COMMAND", "ADD")
        .env("CNI_CONTAINERID", "c1")
        .env("CNI_NETNS", "/proc/self/ns/net")
        .env("CNI_NETNS_OVERRIDE", "1")
        .env("CNI_IFNAME", "net1")
        .stdin(conf(&json!({"socket": place.socket()})).to_string())
        .run();
    (done.0.status.code(), agent.join().unwrap().after)
}

#[test]
fn a_closed_stdout_is_not_acknowledged() {
    assert_eq!(add_through_shell(">&-"), (Some(1), vec![]));
    assert_eq!(add_through_shell(">&- 2>&-"), (Some(1), vec![]));
}

#[test]
fn a_result_thrown_away_on_purpose_is_acknowledged() {
    assert_eq!(add_through_shell(">/dev/null"), (Some(0), vec![0x06]));
    assert_eq!(add_through_shell(">/dev/null 2>&-"), (Some(0), vec![0x06]));
}

#[test]
fn a_reply_that_trickles_in_is_put_together() {
    let place = Place::new();
    let body = format!(r#"{{"v":1,"ok":{RESULT}}}"#);
    let frame = cni_spec::encode_frame(body.as_bytes()).unwrap();
    let agent = place.serve(move |stream| {
        for byte in frame {
            stream.write_all(&[byte]).unwrap();
        }
    });
    call("ADD", &place.socket()).run().printed(RESULT);
    agent.join().unwrap();
}

#[test]
fn a_large_request_arrives_whole_and_with_its_descriptor() {
    let place = Place::new();
    let agent = place.serve_ok(RESULT);
    let filler = "x".repeat(3 << 20);
    let config = conf(&json!({"socket": place.socket(), "filler": filler})).to_string();
    call("ADD", &place.socket())
        .stdin(config.clone())
        .run()
        .printed(RESULT);
    let seen = agent.join().unwrap();
    assert_eq!(seen.request.config.get(), config);
    assert_eq!(seen.fds.len(), 1);
}

#[test]
fn a_refusal_before_the_whole_request_is_read_is_reported() {
    let place = Place::new();
    let listener = std::os::unix::net::UnixListener::bind(place.socket()).unwrap();
    let filler = "x".repeat(3 << 20);
    let config = conf(&json!({"socket": place.socket(), "filler": filler})).to_string();
    let agent = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        send(
            &mut stream,
            br#"{"v":1,"error":{"code":7,"msg":"too much","details":""}}"#,
        );
    });
    let error = call("ADD", &place.socket())
        .stdin(config)
        .run()
        .failed_with(7);
    assert_eq!(error.msg, "too much");
    agent.join().unwrap();
}
