//! Tests of what is written when something changes.

use super::super::Setbacks;
use super::*;

#[test]
fn a_change_of_ports_takes_no_endpoint_away_for_a_moment() {
    let annotation = json!({"podnet.dev/selector": "app=web"});
    let spec =
        |port: u16| json!({"clusterIP": "None", "ipFamilies": ["IPv4"], "ports": [{"port": port}]});
    let members = [members("n1", &[("shop/p", &["10.50.0.1"])])];
    let mut known = known(service(&spec(1), &annotation), &[], &members);
    let pod = pod(&json!({"app": "web"}), &json!({})).expect("a pod");
    known.pods = Some([(key("p"), pod)].into());
    assert_eq!(carry_out(&mut known), 1);
    known
        .services
        .insert(key("web"), service(&spec(2), &annotation));
    assert_eq!(carry_out(&mut known), 1, "the slice gets the other port");
    let own = &known.own[&key("web-podnet-ipv4-0")];
    assert_eq!(own.content.ports[0].number, Some(2));
}

/// Kubernetes packs endpoints of two slices into one.
#[test]
fn an_endpoint_that_moves_to_another_slice_is_in_one_all_the_time() {
    let named = |name: &str, endpoints: &[Value]| {
        let mut slice = of_cluster("IPv4", endpoints);
        slice.metadata.name = Some(name.to_owned());
        slice
    };
    let members = [members(
        "n1",
        &[("shop/a", &["10.50.0.1"]), ("shop/b", &["10.50.0.2"])],
    )];
    let spec = json!({"selector": {"app": "web"}});
    let of = |slices: &[EndpointSlice]| known(service(&spec, &json!({})), slices, &members);
    let mut before = of(&[
        named("a", &[endpoint("a", "n1")]),
        named("b", &[endpoint("b", "n1")]),
    ]);
    assert_eq!(carry_out(&mut before), 2);
    let mut after = of(&[named("b", &[endpoint("a", "n1"), endpoint("b", "n1")])]);
    after.own = before.own;
    assert_eq!(carry_out(&mut after), 2);
    assert_eq!(after.own.len(), 1);
}

/// While pods are not read, a leader that is new takes none of them away.
#[test]
fn slices_of_pods_stay_while_pods_are_not_known() {
    let annotation = json!({"podnet.dev/selector": "app=web"});
    let spec = json!({"clusterIP": "None", "ipFamilies": ["IPv4"]});
    let members = [members("n1", &[("shop/p", &["10.50.0.1"])])];
    let mut known = known(service(&spec, &annotation), &[], &members);
    let pod = pod(&json!({"app": "web"}), &json!({})).expect("a pod");
    known.pods = Some([(key("p"), pod)].into());
    assert_eq!(carry_out(&mut known), 1);
    known.pods = None;
    assert_eq!(steps(&known), []);
    known.pods = Some(BTreeMap::new());
    assert!(matches!(steps(&known)[..], [Step::Delete(..)]));
}

/// For such an address the API server refuses the whole slice.
#[test]
fn members_that_agents_refuse_are_none() {
    let slice = |ip: &str| -> api::PodNetworkEndpointSlice {
        read(json!({
            "apiVersion": "podnet.dev/v1alpha1", "kind": "PodNetworkEndpointSlice",
            "metadata": {"name": "blue.n1.0"},
            "spec": {
                "network": "blue", "networkID": 7, "node": "n1", "vteps": ["192.0.2.1"],
                "endpoints": [{
                    "mac": "02:00:00:00:00:01", "ips": [ip], "pod": "shop/a",
                    "since": "2026-01-02T03:04:05Z",
                }],
            },
        }))
    };
    let good = MemberFacts::read(&slice("10.50.0.1")).expect("members");
    assert_eq!(
        good.pods,
        [("shop/a".to_owned(), vec![IpAddr::from([10, 50, 0, 1])])]
    );
    for ip in [
        "127.0.0.1",
        "169.254.1.1",
        "fe80::1",
        "224.0.0.1",
        "0.0.0.0",
    ] {
        assert_eq!(MemberFacts::read(&slice(ip)), None, "{ip}");
    }
}

/// Changes of others to a slice of the controller go again.
#[test]
fn a_slice_that_somebody_has_changed_is_written_again() {
    let source = of_cluster("IPv4", &[endpoint("a", "n1")]);
    let members = [members("n1", &[("shop/a", &["10.50.0.1"])])];
    let spec = json!({"selector": {"app": "web"}});
    let mut known = known(service(&spec, &json!({})), &[source], &members);
    carry_out(&mut known);
    let name = key("web-abcde-podnet");
    let own = known.own[&name].content.write((&name.0, &name.1), None);
    let changes: [fn(&mut EndpointSlice); 5] = [
        |slice| {
            let stray = json!({"addresses": ["10.50.0.66"]});
            slice
                .endpoints
                .as_mut()
                .expect("endpoints")
                .push(read(stray));
        },
        |slice| {
            let endpoints = slice.endpoints.as_mut().expect("endpoints");
            endpoints[0].addresses.push("10.50.0.66".to_owned());
        },
        |slice| {
            let labels = slice.metadata.labels.as_mut().expect("labels");
            labels.insert("kubernetes.io/service-name".to_owned(), "other".to_owned());
        },
        |slice| {
            let labels = slice.metadata.labels.as_mut().expect("labels");
            labels.remove("service.kubernetes.io/service-proxy-name");
        },
        |slice| slice.ports.as_mut().expect("ports")[0].port = Some(1),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let mut slice = own.clone();
        change(&mut slice);
        let Some(Followed::Own(slice)) = Followed::read(&slice) else {
            panic!("no slice of podnet's");
        };
        known.own.insert(name.clone(), slice);
        assert_eq!(carry_out(&mut known), 1, "change {at}");
    }
}

/// A refused write is not tried in each pass, and what it replaces stays as long.
#[test]
fn a_slice_stays_while_the_write_of_its_endpoints_to_another_one_waits() {
    let named = |name: &str, pod: &str| {
        let mut slice = of_cluster("IPv4", &[endpoint(pod, "n1")]);
        slice.metadata.name = Some(name.to_owned());
        slice
    };
    let members = [members("n1", &[("shop/a", &["10.50.0.1"])])];
    let spec = json!({"selector": {"app": "web"}});
    let of = |slice: EndpointSlice| known(service(&spec, &json!({})), &[slice], &members);
    let mut before = of(named("old", "a"));
    carry_out(&mut before);
    let mut after = of(named("new", "a"));
    after.own = before.own;
    let due = steps(&after);
    let [Step::Create(key, _), Step::Delete(..)] = &due[..] else {
        panic!("{due:?}");
    };
    let mut setbacks = Setbacks::default();
    assert!(setbacks.waiting(&due).is_empty());
    setbacks.note(key.clone(), false);
    assert_eq!(setbacks.waiting(&due), BTreeSet::from([due[1].service()]));
    setbacks.note(key.clone(), true);
    assert!(setbacks.waiting(&due).is_empty());
}
