use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::error::ErrorCode;
use crate::frame::{FirstFrame, decode_frame, encode_frame};
use crate::version::CniVersion;

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn body(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap()
}

#[test]
fn a_cni_request_has_the_agreed_spelling() {
    let env = |name: &str| {
        Some(match name {
            "CNI_COMMAND" => "ADD".to_owned(),
            "CNI_CONTAINERID" => "c1".to_owned(),
            "CNI_NETNS" => "/run/netns/x".to_owned(),
            "CNI_IFNAME" => "net1".to_owned(),
            "CNI_ARGS" => "A=1".to_owned(),
            "CNI_PATH" => "/opt/cni/bin".to_owned(),
            "TRACEPARENT" => "00-1-2-01".to_owned(),
            _ => return None,
        })
    };
    let invocation = Invocation::from_env(env).unwrap();
    let request = CniRequest::new(&invocation, raw(r#"{"name":"blue"}"#));
    let body = Request::Cni(request.clone()).to_body().unwrap();
    assert_eq!(
        serde_json::from_slice::<Value>(&body).unwrap(),
        json!({"v": 1, "cni": {
            "command": "ADD", "containerID": "c1", "netns": "/run/netns/x", "ifname": "net1",
            "args": "A=1", "path": "/opt/cni/bin", "traceparent": "00-1-2-01",
            "config": {"name": "blue"},
        }})
    );
    assert_eq!(request.invocation().unwrap(), invocation);
    assert_eq!(Request::from_body(&body).unwrap(), Request::Cni(request));
}

#[test]
fn the_configuration_passes_byte_for_byte_cni_conf_07() {
    let config = "{ \"big\" : 123456789012345678901234567890,\n \"f\":1.10, \"é\":\"\\u00e9\" }";
    let text = format!(r#"{{"v":1,"cni":{{"command":"GC","config":{config}}}}}"#);
    let Request::Cni(request) = Request::from_body(text.as_bytes()).unwrap() else {
        panic!("not a CNI request");
    };
    assert_eq!(request.config.get(), config);
    let again = Request::Cni(request).to_body().unwrap();
    assert!(String::from_utf8(again).unwrap().contains(config));
    proof::of!("CNI-CONF-07");
}

#[test]
fn get_and_explain_have_the_agreed_spelling() {
    for (name, what) in [
        ("networks", GetWhat::Networks),
        ("attachments", GetWhat::Attachments),
        ("endpoints", GetWhat::Endpoints),
        ("drops", GetWhat::Drops),
        ("uplinks", GetWhat::Uplinks),
        ("policies", GetWhat::Policies),
        ("vpcs", GetWhat::Vpcs),
        ("services", GetWhat::Services),
        ("flows", GetWhat::Flows),
    ] {
        let json = json!({"v": 1, "get": {"what": name}});
        let request = Request::Get(GetRequest::new(what));
        assert_eq!(Request::from_body(&body(&json)).unwrap(), request);
        let written: Value = serde_json::from_slice(&request.to_body().unwrap()).unwrap();
        assert_eq!(written, json);
    }
    let json = json!({"v": 1, "explain": {"container": "c1", "ifname": null}});
    let request = Request::Explain(ExplainRequest {
        container: ContainerId::new("c1").unwrap(),
        ifname: None,
    });
    assert_eq!(Request::from_body(&body(&json)).unwrap(), request);
    let json = json!({"v": 1, "explain": {"container": "c1", "ifname": "a/b"}});
    assert!(Request::from_body(&body(&json)).is_err());
}

#[test]
fn a_packet_to_follow_has_the_agreed_spelling() {
    let json = json!({"v": 1, "follow": {"from": "a/net1", "to": "10.10.0.3", "proto": "tcp:443",
        "size": 1500, "source": "10.10.0.9", "arriveFrom": "node-2"}});
    let text = |text: &str| Some(text.to_owned());
    let request = Request::Follow(FollowRequest {
        from: "a/net1".to_owned(),
        to: "10.10.0.3".to_owned(),
        proto: text("tcp:443"),
        size: Some(1500),
        source: text("10.10.0.9"),
        arrive_from: text("node-2"),
    });
    assert_eq!(Request::from_body(&body(&json)).unwrap(), request);
    let written: Value = serde_json::from_slice(&request.to_body().unwrap()).unwrap();
    assert_eq!(written, json);
    let least = json!({"v": 1, "follow": {"from": "a", "to": "b"}});
    let Request::Follow(request) = Request::from_body(&body(&least)).unwrap() else {
        panic!("not a packet to follow");
    };
    let written: Value =
        serde_json::from_slice(&Request::Follow(request).to_body().unwrap()).unwrap();
    assert_eq!(written, least);
    assert!(Request::from_body(&body(&json!({"v": 1, "follow": {"from": "a"}}))).is_err());
}

#[test]
fn the_agent_checks_parameters_again() {
    let json = json!({"v": 1, "cni": {"command": "ADD", "containerID": "../x", "netns": "/n",
        "ifname": "net1", "config": {}}});
    let Request::Cni(request) = Request::from_body(&body(&json)).unwrap() else {
        panic!("not a CNI request");
    };
    assert_eq!(
        request.invocation().unwrap_err().code(),
        ErrorCode::INVALID_ENV
    );
}

#[test]
fn other_versions_and_kinds_are_refused() {
    let version = |json| match Request::from_body(&body(&json)) {
        Err(SpecError::FrameVersion { found }) => Some(found),
        _ => None,
    };
    assert_eq!(version(json!({"v": 2, "cni": "something else"})), Some(2));
    assert_eq!(version(json!({"get": {"what": "drops"}})), Some(0));
    assert_eq!(version(json!([])), Some(0));
    for json in [
        json!({"v": 1}),
        json!({"v": 1, "get": {"what": "drops"}, "explain": {"container": "c"}}),
    ] {
        let error = Request::from_body(&body(&json)).unwrap_err();
        assert!(matches!(error, SpecError::FrameKind { .. }), "{json}");
    }
    for text in [
        "",
        "{",
        "{\"v\":\"1\"}",
        "{\"v\":1,\"get\":{\"what\":\"secrets\"}}",
    ] {
        let error = Request::from_body(text.as_bytes()).unwrap_err();
        assert!(matches!(error, SpecError::FrameJson { .. }), "{text}");
    }
}

#[test]
fn null_is_an_answer_and_no_key_is_none() {
    let reply = Reply::from_body(br#"{"v":1,"ok":null}"#).unwrap();
    assert!(matches!(reply, Reply::Ok(value) if value.get() == "null"));
    assert!(matches!(
        Reply::from_body(br#"{"v":1}"#),
        Err(SpecError::FrameKind { .. })
    ));
    assert!(matches!(
        Reply::from_body(br#"{"v":1,"ok":1,"error":{"code":1,"msg":"m"}}"#),
        Err(SpecError::FrameKind { .. })
    ));
    assert_eq!(
        Reply::ok(&()).unwrap().to_body().unwrap(),
        br#"{"v":1,"ok":null}"#
    );
}

#[test]
fn an_error_reply_keeps_all_four_fields() {
    let error = CniError::new(
        CniVersion::V0_4_0,
        ErrorCode(100),
        "pool exhausted",
        "10.0.0.0/24",
    );
    let body = Reply::Error(error.clone()).to_body().unwrap();
    assert!(matches!(Reply::from_body(&body).unwrap(), Reply::Error(read) if read == error));
}

proptest! {
    #[test]
    fn requests_round_trip_through_a_frame(
        container in "[a-zA-Z0-9][a-zA-Z0-9_.-]{0,70}",
        netns in "\\PC{0,40}",
        ifname in "[a-z][a-z0-9]{0,14}",
        args in "\\PC{0,40}",
        traceparent in "[0-9a-f-]{0,55}",
        number in any::<i64>(),
    ) {
        let request = Request::Cni(CniRequest {
            command: Command::Del,
            container_id: container,
            netns,
            ifname,
            args,
            path: String::new(),
            trace: TraceContext { traceparent, ..TraceContext::default() },
            config: raw(&format!("{{\"n\": {number}}}")),
        });
        let frame = encode_frame(&request.to_body().unwrap()).unwrap();
        let FirstFrame { body, rest } = decode_frame(&frame).unwrap().unwrap();
        prop_assert!(rest.is_empty());
        prop_assert_eq!(Request::from_body(body).unwrap(), request);
    }

    #[test]
    fn no_body_makes_the_readers_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Request::from_body(&body);
        let _ = Reply::from_body(&body);
    }
}

/// ATT-13: the caller learns that there is an answer, and why it does not get it.
#[test]
fn a_reply_larger_than_a_frame_is_an_error_that_fits() {
    let fits = Reply::ok(&"x".repeat(MAX_FRAME / 2)).unwrap();
    let sent = fits.to_fitting_body(CniVersion::LATEST).unwrap();
    assert_eq!((sent.body, sent.replaced), (fits.to_body().unwrap(), false));

    let long = "x".repeat(MAX_FRAME);
    let error = CniError {
        cni_version: CniVersion::V0_4_0,
        code: ErrorCode(130),
        msg: long.clone(),
        details: long.clone(),
    };
    for (reply, code, words) in [
        (Reply::ok(&long).unwrap(), 5, "the answer is too large"),
        (Reply::Error(error), 130, "the error is too large"),
    ] {
        let sent = reply.to_fitting_body(CniVersion::V0_4_0).unwrap();
        assert!(sent.replaced);
        encode_frame(&sent.body).unwrap();
        let Reply::Error(told) = Reply::from_body(&sent.body).unwrap() else {
            panic!("an answer that does not fit");
        };
        assert_eq!((told.code.0, told.cni_version), (code, CniVersion::V0_4_0));
        assert!(told.msg.starts_with(words), "{}", told.msg);
        assert!(told.details.contains("larger than the limit of 4194304"));
    }
    proof::of!("ATT-13");
}
