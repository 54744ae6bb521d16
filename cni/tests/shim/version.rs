//! `VERSION` (CNI-VER-01, CNI-VER-02).

use std::fs::File;
use std::process::Stdio;

use crate::calls::{bare, wait};

const SUPPORTED: &str = r#"["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]"#;

fn answer(version: &str) -> String {
    format!(r#"{{"cniVersion":"{version}","supportedVersions":{SUPPORTED}}}"#)
}

#[test]
fn the_version_asked_with_is_echoed() {
    for version in ["0.1.0", "0.4.0", "1.1.0", "9.9.9"] {
        bare()
            .env("CNI_COMMAND", "VERSION")
            .stdin(format!(r#"{{"cniVersion":"{version}"}}"#))
            .run()
            .printed(&answer(version));
    }
}

#[test]
fn the_probe_of_libcni_is_answered() {
    let mut call = bare()
        .env("CNI_COMMAND", "VERSION")
        .env("CNI_CONTAINERID", "");
    for name in ["CNI_NETNS", "CNI_IFNAME", "CNI_PATH"] {
        call = call.env(name, "dummy");
    }
    call.stdin(r#"{"cniVersion":"1.1.0"}"#)
        .run()
        .printed(&answer("1.1.0"));
}

#[test]
fn empty_and_foreign_stdin_is_answered_with_the_newest() {
    for stdin in ["", "garbage", "[]", "{}", "\n"] {
        bare()
            .env("CNI_COMMAND", "VERSION")
            .stdin(stdin)
            .run()
            .printed(&answer("1.1.0"));
    }
    let null = File::open("/dev/null").unwrap();
    bare()
        .env("CNI_COMMAND", "VERSION")
        .run_with_stdin(null)
        .printed(&answer("1.1.0"));
}

#[test]
fn stdin_need_not_end() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, br#"{"cniVersion":"1.0.0"}"#).unwrap();
    let done = bare()
        .env("CNI_COMMAND", "VERSION")
        .run_with_stdin(std::os::fd::OwnedFd::from(reader).into());
    done.printed(&answer("1.0.0"));
    drop(writer);
    let (reader, writer) = std::io::pipe().unwrap();
    let done = bare()
        .env("CNI_COMMAND", "VERSION")
        .run_with_stdin(std::os::fd::OwnedFd::from(reader).into());
    done.printed(&answer("1.1.0"));
    drop(writer);
}

#[test]
fn an_answer_nobody_reads_is_a_failure_and_no_signal() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = bare()
        .env("CNI_COMMAND", "VERSION")
        .stdout(Stdio::from(writer))
        .start();
    assert_eq!(wait(child).0.status.code(), Some(1));
}
