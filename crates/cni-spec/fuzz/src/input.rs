//! Fuzz the input of the plugin by a runtime, and frames on the agent's socket.
//!
//! Input: a byte of the command, a byte of what the rest is, then texts with a zero byte between them:
//! the variables of CNI in their order, and what is on standard input; or the body of a frame.

use cni_spec::{
    CniRequest, CniResult, CniVersion, Command, ConfHead, ERROR_TEXT_MAX, Invocation, MAX_FRAME,
    NetConf, Reply, Request, SpecError, VersionInfo, decode_frame, encode_frame,
};
use serde_json::value::RawValue;

const COMMANDS: [Command; 6] = [
    Command::Add,
    Command::Del,
    Command::Check,
    Command::Gc,
    Command::Status,
    Command::Version,
];
const VARIABLES: [&str; 5] = [
    "CNI_CONTAINERID",
    "CNI_NETNS",
    "CNI_IFNAME",
    "CNI_ARGS",
    "CNI_PATH",
];

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let [command, kind, rest @ ..] = input else {
        return;
    };
    let command = COMMANDS[usize::from(*command) % COMMANDS.len()];
    if kind & 1 == 0 {
        plugin(command, rest);
    } else {
        frames(rest);
    }
}

/// One call of the plugin.
fn plugin(command: Command, rest: &[u8]) {
    let texts: Vec<String> = rest
        .splitn(VARIABLES.len() + 1, |byte| *byte == 0)
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .collect();
    let stdin = texts.get(VARIABLES.len()).cloned().unwrap_or_default();
    let invocation = Invocation::from_env(|name| {
        if name == "CNI_COMMAND" {
            return Some(command.as_str().to_owned());
        }
        let index = VARIABLES.iter().position(|known| *known == name)?;
        texts.get(index).cloned()
    });
    let _ = VersionInfo::answer(&stdin);
    if let Err(error) = ConfHead::parse(&stdin, command) {
        told(&error, ConfHead::version_of(&stdin));
    }
    let conf = NetConf::parse(&stdin, command);
    match &conf {
        Err(error) => told(error, CniVersion::LATEST),
        Ok(conf) => {
            if let Ok(Some(result)) = conf.prev_result() {
                for version in CniVersion::ALL {
                    let _ = result.to_version(version);
                }
            }
        }
    }
    let invocation = match invocation {
        Ok(invocation) => invocation,
        Err(error) => return told(&error, CniVersion::LATEST),
    };
    if let Ok(conf) = &conf {
        let _ = conf.requested_ips(&invocation.args);
        let _ = conf.requested_mac(&invocation.args);
    }
    let _ = invocation.args.pod();
    let Ok(config) = RawValue::from_string(stdin) else {
        return;
    };
    // What the plugin sends the agent reads as the same.
    let request = Request::Cni(CniRequest::new(&invocation, config));
    let body = request.to_body().expect("a request can be written");
    assert_eq!(Request::from_body(&body).expect("it reads back"), request);
    let Request::Cni(request) = request else {
        return;
    };
    assert_eq!(request.invocation().expect("it was checked"), invocation);
}

/// Decodes bytes as a frame, a request, a reply and a result of a peer.
fn frames(rest: &[u8]) {
    let _ = decode_frame(rest);
    if let Err(error) = Request::from_body(rest) {
        told(&error, CniVersion::LATEST);
    }
    if let Ok(reply) = Reply::from_body(rest) {
        let sent = reply.to_fitting_body(CniVersion::LATEST);
        let sent = sent.expect("a reply can be written");
        assert!(sent.body.len() <= MAX_FRAME);
        encode_frame(&sent.body).expect("it fits");
    }
    if let Ok(value) = serde_json::from_slice::<serde_json::Value>(rest)
        && let Ok(result) = CniResult::parse(&value, CniVersion::LATEST)
    {
        for version in CniVersion::ALL {
            let _ = result.to_version(version);
        }
    }
}

/// An error is words that fit.
fn told(error: &SpecError, version: CniVersion) {
    let error = error.to_cni(version);
    assert!(error.msg.len() <= ERROR_TEXT_MAX + 3 && error.details.len() <= ERROR_TEXT_MAX + 3);
    let sent = Reply::Error(error).to_fitting_body(version);
    assert!(!sent.expect("an error can be written").replaced);
}
