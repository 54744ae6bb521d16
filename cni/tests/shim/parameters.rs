//! Test refusals without an agent (CNI SPEC "Parameters", "Error").

use std::fs::File;
use std::path::Path;

use serde_json::json;

use crate::calls::{bare, call, conf};

/// No socket, at once and for good: a file is no directory.
const NOWHERE: &str = "/dev/null/agent.sock";
const ALL: [&str; 5] = ["ADD", "DEL", "CHECK", "GC", "STATUS"];

#[test]
fn all_missing_variables_are_named_together_with_code_4() {
    for (command, names) in [
        ("ADD", "[CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME]"),
        ("CHECK", "[CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME]"),
        ("DEL", "[CNI_CONTAINERID,CNI_IFNAME]"),
    ] {
        let error = bare().env("CNI_COMMAND", command).run().failed_with(4);
        assert_eq!(error.msg, format!("required env variables {names} missing"));
    }
}

#[test]
fn bad_container_id_is_code_4() {
    for bad in ["-x", "a/b", "a b", "../../etc"] {
        for command in ["ADD", "DEL", "CHECK"] {
            let done = call(command, Path::new(NOWHERE))
                .env("CNI_CONTAINERID", bad)
                .run();
            assert!(done.failed_with(4).msg.contains("CNI_CONTAINERID"), "{bad}");
        }
    }
}

#[test]
fn bad_ifname_is_code_4_and_says_the_rule() {
    for (bad, rule) in [
        ("0123456789abcdef", "15 bytes"),
        (".", "reserved"),
        ("..", "reserved"),
        ("a/b", "`/`"),
        ("a:b", "`:`"),
        ("a b", "white space"),
    ] {
        let error = call("ADD", Path::new(NOWHERE))
            .env("CNI_IFNAME", bad)
            .run()
            .failed_with(4);
        assert!(
            error.msg.contains("CNI_IFNAME") && error.msg.contains(rule),
            "{error:?}"
        );
    }
}

#[test]
fn unknown_command_is_code_4() {
    let error = call("UPDATE", Path::new(NOWHERE)).run().failed_with(4);
    assert_eq!(error.msg, "unknown CNI_COMMAND: UPDATE");
}

#[test]
fn without_a_command_the_about_text_goes_to_stderr_and_the_exit_code_is_0() {
    for call in [bare(), bare().env("CNI_COMMAND", "")] {
        let done = call.run();
        done.printed("");
        assert!(done.stderr().contains("podnet") && done.stderr().contains("0.1.0"));
        assert!(done.stderr().contains("1.1.0"));
    }
}

#[test]
fn stdin_that_is_not_json_is_code_6() {
    for command in ALL {
        for stdin in [&b""[..], b"garbage", b"{\"name\":", b"{} {}", b"\xff\xfe"] {
            call(command, Path::new(NOWHERE))
                .stdin(stdin)
                .run()
                .failed_with(6);
        }
    }
}

#[test]
fn stdin_that_cannot_be_read_is_code_5() {
    let directory = File::open("/").unwrap();
    call("ADD", Path::new(NOWHERE))
        .run_with_stdin(directory)
        .failed_with(5);
}

#[test]
fn a_configuration_of_more_than_4_mib_is_refused() {
    let filler = "x".repeat(5 << 20);
    let huge = conf(&json!({"filler": filler})).to_string();
    let error = call("ADD", Path::new(NOWHERE))
        .stdin(huge)
        .run()
        .failed_with(7);
    assert!(error.msg.contains("too large"), "{error:?}");
}

#[test]
fn a_request_that_fits_stdin_but_not_a_frame_is_refused() {
    let room = (4 << 20) - conf(&json!({"filler": ""})).to_string().len();
    let huge = conf(&json!({"filler": "x".repeat(room)})).to_string();
    assert_eq!(huge.len(), 4 << 20);
    let error = call("ADD", Path::new(NOWHERE))
        .stdin(huge)
        .run()
        .failed_with(7);
    assert!(error.msg.contains("too large for the agent"), "{error:?}");
}

#[test]
fn a_missing_or_bad_name_is_code_7() {
    for command in ALL {
        for name in [json!(null), json!(""), json!("-x"), json!("a b"), json!(5)] {
            let stdin = conf(&json!({"name": name})).to_string();
            let error = call(command, Path::new(NOWHERE))
                .stdin(stdin)
                .run()
                .failed_with(7);
            assert!(error.msg.contains("`name`"), "{error:?}");
        }
    }
}

#[test]
fn an_unsupported_version_is_code_1_with_both_sides_in_details() {
    for command in ALL {
        let stdin = conf(&json!({"cniVersion": "9.9.9"})).to_string();
        let error = call(command, Path::new(NOWHERE))
            .stdin(stdin)
            .run()
            .failed_with(1);
        assert_eq!(error.msg, "incompatible CNI versions");
        assert!(error.details.contains("9.9.9") && error.details.contains("0.4.0 1.0.0"));
    }
}

#[test]
fn a_command_the_version_does_not_have_is_code_1() {
    for (command, version) in [
        ("CHECK", json!("0.3.1")),
        ("CHECK", json!(null)),
        ("GC", json!("1.0.0")),
        ("STATUS", json!("1.0.0")),
    ] {
        let stdin = conf(&json!({"cniVersion": version})).to_string();
        call(command, Path::new(NOWHERE))
            .stdin(stdin)
            .run()
            .failed_with(1);
    }
}

#[test]
fn errors_carry_the_version_of_the_configuration() {
    let stdin = conf(&json!({"cniVersion": "0.4.0", "name": "-"})).to_string();
    let error = call("ADD", Path::new(NOWHERE))
        .stdin(stdin)
        .run()
        .failed_with(7);
    assert_eq!(error.cni_version.as_str(), "0.4.0");
}

#[test]
fn a_socket_that_is_no_absolute_path_is_code_7() {
    let stdin = conf(&json!({"socket": "agent.sock"})).to_string();
    let error = call("ADD", Path::new(NOWHERE))
        .stdin(stdin)
        .run()
        .failed_with(7);
    assert!(error.msg.contains("`socket`"));
}
