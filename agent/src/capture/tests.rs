use api::Mode;

use super::*;
use book::record::PodIdentity;
use book::samples;

fn record(network: &str, container: &str, pod: Option<&str>) -> Attachment {
    let network = samples::network(network, Mode::L2, &[("10.1.0.0/24", "")]);
    samples::record(&network, |wanted| {
        wanted.key = samples::key(container, "net1");
        wanted.pod = pod.map(|name| PodIdentity {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: None,
        });
    })
}

fn request(change: impl FnOnce(&mut CaptureRequest)) -> CaptureRequest {
    let mut request = CaptureRequest {
        snaplen: 256,
        seconds: 60,
        buffer: 1 << 20,
        ..CaptureRequest::default()
    };
    change(&mut request);
    request
}

fn of_pod(pod: &str) -> CaptureRequest {
    request(|it| it.pod = Some(pod.to_owned()))
}

#[test]
fn an_attachment_is_named_by_its_pod_or_container_and_by_network_where_there_are_several() {
    let all = [
        record("blue", "aaaaaaaa11", Some("web")),
        record("red", "aaaaaaaa11", Some("web")),
        record("blue", "bbbbbbbb22", None),
    ];
    let find = |request: &CaptureRequest| {
        let found = find(all.iter(), request).map_err(|error| error.to_string())?;
        Ok::<_, String>(format!("{} {}", found.key, found.network.name))
    };
    let red = CaptureRequest {
        network: Some("red".to_owned()),
        ..of_pod("shop/web")
    };
    assert_eq!(find(&red).unwrap(), "aaaaaaaa11/net1 red");
    let container = request(|it| it.container = Some("bbbbbb".to_owned()));
    assert_eq!(find(&container).unwrap(), "bbbbbbbb22/net1 blue");

    let short = request(|it| it.container = Some("bbbbb".to_owned()));
    let refused = find(&short).unwrap_err();
    assert!(
        refused.contains("--container bbbbb: no attachment"),
        "{refused}"
    );

    let several = find(&of_pod("shop/web")).unwrap_err();
    assert!(several.contains("--pod shop/web is several"), "{several}");
    assert!(several.contains("--network red --ifname net1"), "{several}");
    let unknown = find(&of_pod("shop/db")).unwrap_err();
    assert!(unknown.contains("shop/web:net1"), "{unknown}");
    for (wrong, remedy) in [
        (of_pod("web"), "--pod web: write NAMESPACE/NAME"),
        (of_pod("/web"), "write NAMESPACE/NAME"),
        (request(|_| ()), "by --pod or by --container"),
        (
            CaptureRequest {
                container: Some("aaaaaaaa11".to_owned()),
                ..of_pod("shop/web")
            },
            "by --pod or by --container",
        ),
    ] {
        let said = find(&wrong).unwrap_err();
        assert!(said.contains(remedy), "{said}");
    }
}

#[test]
fn limits_outside_of_their_range_are_refused_by_the_name_of_the_option() {
    let good = limits(&request(|_| ())).unwrap();
    assert_eq!((good.snaplen, good.packets), (256, None));
    assert_eq!(
        limits(&request(|it| it.packets = 5)).unwrap().packets,
        Some(5)
    );
    let refused =
        |change: fn(&mut CaptureRequest)| limits(&request(change)).unwrap_err().to_string();
    for (said, option) in [
        (refused(|it| it.snaplen = 13), "--snaplen 13: "),
        (refused(|it| it.snaplen = 65_001), "--snaplen 65001: "),
        (refused(|it| it.seconds = 0), "--seconds 0: "),
        (refused(|it| it.seconds = 86_401), "--seconds 86401: "),
        (refused(|it| it.buffer = 1024), "--buffer 1: "),
        (refused(|it| it.buffer = u32::MAX), "--buffer 4194303: "),
    ] {
        assert!(said.starts_with(option), "{said}");
    }
}
