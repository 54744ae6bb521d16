use api::ServiceEndpoint;

use super::*;

const CLIENTS: &str = "blue";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn prefixes() -> Vec<Prefix> {
    ["10.96.0.0/16", "fd96::/112"]
        .map(|it| it.parse().unwrap())
        .to_vec()
}

fn service(ips: &[&str]) -> ServiceObject {
    ServiceObject {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        network: CLIENTS.to_owned(),
        ips: ips.iter().map(|it| ip(it)).collect(),
        ports: vec![port("http", ServiceProtocol::Tcp, 80)],
        affinity_s: 0,
        local: false,
        problems: Vec::new(),
    }
}

fn port(name: &str, protocol: ServiceProtocol, port: u16) -> ServicePort {
    ServicePort {
        name: name.to_owned(),
        protocol,
        port,
    }
}

fn endpoint(address: &str, node: &str) -> ServiceEndpoint {
    ServiceEndpoint {
        ip: ip(address),
        ready: true,
        serving: true,
        terminating: false,
        node: Some(node.to_owned()),
        for_zones: Vec::new(),
        for_nodes: Vec::new(),
    }
}

fn ending(address: &str, node: &str) -> ServiceEndpoint {
    ServiceEndpoint {
        ready: false,
        terminating: true,
        ..endpoint(address, node)
    }
}

fn slice(endpoints: Vec<ServiceEndpoint>) -> ServiceSlice {
    ServiceSlice {
        namespace: "shop".to_owned(),
        name: "web-1".to_owned(),
        network: CLIENTS.to_owned(),
        service: "web".to_owned(),
        ports: vec![port("http", ServiceProtocol::Tcp, 8080)],
        endpoints,
        problems: Vec::new(),
    }
}

fn served(services: &[ServiceObject], slices: &[ServiceSlice]) -> Served {
    served_of(CLIENTS, services, slices)
}

fn served_of(of: &str, services: &[ServiceObject], slices: &[ServiceSlice]) -> Served {
    let prefixes = prefixes();
    let clients = Clients {
        network: CLIENTS,
        of,
        prefixes: &prefixes,
        node: "here",
        zone: Some("z1"),
    };
    let services: Vec<_> = services.iter().cloned().map(Arc::new).collect();
    let slices: Vec<_> = slices.iter().cloned().map(Arc::new).collect();
    Compiler::default().compile(&clients, &services, &slices)
}

/// Addresses of the endpoints at the Service's TCP port 80.
fn backends(served: &Served, of: &str) -> Vec<String> {
    let at = At {
        ip: ip(of),
        protocol: ServiceProtocol::Tcp,
        port: 80,
    };
    let backends = served.ports[&at].backends.iter();
    backends.map(|(ip, port)| format!("{ip} {port}")).collect()
}

#[test]
fn a_service_has_the_endpoints_of_all_its_slices_each_once() {
    let first = slice(vec![
        endpoint("10.0.0.2", "here"),
        endpoint("10.0.0.1", "there"),
    ]);
    let second = slice(vec![
        endpoint("10.0.0.3", "there"),
        endpoint("10.0.0.1", "there"),
    ]);
    let found = served(&[service(&["10.96.0.1"])], &[first, second]);
    assert_eq!(
        backends(&found, "10.96.0.1"),
        ["10.0.0.1 8080", "10.0.0.2 8080", "10.0.0.3 8080"]
    );
    assert_eq!(found.problems, [] as [String; 0]);
}

#[test]
fn each_family_has_endpoints_of_its_family() {
    let both = slice(vec![
        endpoint("10.0.0.1", "here"),
        endpoint("fd00::1", "here"),
    ]);
    let found = served(&[service(&["10.96.0.1", "fd96::1"])], &[both]);
    assert_eq!(backends(&found, "10.96.0.1"), ["10.0.0.1 8080"]);
    assert_eq!(backends(&found, "fd96::1"), ["fd00::1 8080"]);
}

#[test]
fn ports_meet_by_name_and_protocol() {
    let mut web = service(&["10.96.0.1"]);
    web.ports.push(port("dns", ServiceProtocol::Udp, 53));
    web.ports.push(port("http", ServiceProtocol::Udp, 80));
    let mut named = slice(vec![endpoint("10.0.0.1", "here")]);
    named.ports.push(port("dns", ServiceProtocol::Udp, 5353));
    let mut other = slice(vec![endpoint("10.0.0.2", "here")]);
    other.ports = vec![port("http", ServiceProtocol::Tcp, 9090)];
    let found = served(&[web], &[named, other]);
    assert_eq!(
        backends(&found, "10.96.0.1"),
        ["10.0.0.1 8080", "10.0.0.2 9090"]
    );
    let at = |protocol, port| At {
        ip: ip("10.96.0.1"),
        protocol,
        port,
    };
    let dns = &found.ports[&at(ServiceProtocol::Udp, 53)];
    assert_eq!(dns.backends, [(ip("10.0.0.1"), 5353)]);
    assert!(
        found.ports[&at(ServiceProtocol::Udp, 80)]
            .backends
            .is_empty()
    );
}

#[test]
fn endpoints_that_end_are_used_when_no_other_is_left() {
    let silent = ServiceEndpoint {
        serving: false,
        ..ending("10.0.0.4", "here")
    };
    let starting = ServiceEndpoint {
        terminating: false,
        ..ending("10.0.0.5", "here")
    };
    let all = vec![ending("10.0.0.3", "here"), silent.clone(), starting.clone()];
    let with_ready = slice([vec![endpoint("10.0.0.1", "there")], all.clone()].concat());
    let found = served(&[service(&["10.96.0.1"])], &[with_ready]);
    assert_eq!(backends(&found, "10.96.0.1"), ["10.0.0.1 8080"]);
    let found = served(&[service(&["10.96.0.1"])], &[slice(all)]);
    assert_eq!(backends(&found, "10.96.0.1"), ["10.0.0.3 8080"]);
    let found = served(&[service(&["10.96.0.1"])], &[slice(vec![silent, starting])]);
    assert!(backends(&found, "10.96.0.1").is_empty());
}

#[test]
fn with_policy_local_clients_have_the_endpoints_of_their_node() {
    let local = ServiceObject {
        local: true,
        ..service(&["10.96.0.1"])
    };
    let found = |endpoints| {
        let found = served(std::slice::from_ref(&local), &[slice(endpoints)]);
        let elsewhere = found.ports.values().any(|it| it.elsewhere);
        (backends(&found, "10.96.0.1"), elsewhere)
    };
    let far = endpoint("10.0.0.9", "there");
    let here = vec!["10.0.0.1 8080".to_owned()];
    assert_eq!(
        found(vec![far.clone(), endpoint("10.0.0.1", "here")]),
        (here.clone(), false)
    );
    // One that ends here is better than one that is ready there.
    assert_eq!(
        found(vec![far.clone(), ending("10.0.0.1", "here")]),
        (here, false)
    );
    assert_eq!(found(vec![far]), (Vec::new(), true));
    assert_eq!(found(Vec::new()), (Vec::new(), false));
}

#[test]
fn services_and_slices_of_other_networks_and_namespaces_are_others() {
    let mut other = service(&["10.96.0.2"]);
    other.network = "red".to_owned();
    let mut elsewhere = slice(vec![endpoint("10.0.0.8", "here")]);
    elsewhere.namespace = "bank".to_owned();
    let mut red = slice(vec![endpoint("10.0.0.9", "here")]);
    red.network = "red".to_owned();
    let found = served(&[service(&["10.96.0.1"]), other], &[elsewhere, red]);
    assert!(backends(&found, "10.96.0.1").is_empty());
    assert_eq!(found.addresses, BTreeSet::from([ip("10.96.0.1")]));
}

#[test]
fn of_the_cluster_s_services_a_namespace_takes_no_room_from_smaller_ones() {
    let large = |number: usize| {
        let mut service = service(&[&format!("10.96.1.{number}")]);
        (service.namespace, service.name) = ("aaa".to_owned(), format!("large-{number}"));
        let mut slice = slice(
            (0..=255)
                .map(|it| endpoint(&format!("10.0.0.{it}"), "here"))
                .collect(),
        );
        let names = (0..64).map(|it| port(&it.to_string(), ServiceProtocol::Tcp, 1 + it));
        service.ports = names.collect();
        slice.ports.clone_from(&service.ports);
        (slice.namespace, slice.service) = (service.namespace.clone(), service.name.clone());
        (service, slice)
    };
    let (mut services, mut slices): (Vec<_>, Vec<_>) = (0..9).map(large).unzip();
    services.push(service(&["10.96.0.1", "10.200.0.1"]));
    slices.push(slice(vec![endpoint("10.0.0.1", "here")]));
    for of in services.iter_mut().map(|it| &mut it.network) {
        OF_CLUSTER.clone_into(of);
    }
    for of in slices.iter_mut().map(|it| &mut it.network) {
        OF_CLUSTER.clone_into(of);
    }
    let found = served_of(OF_CLUSTER, &services, &slices);
    assert_eq!(backends(&found, "10.96.0.1"), ["10.0.0.1 8080"]);
    // Of the one that is outside of the prefixes the cluster's proxy tells.
    assert_eq!(found.problems.len(), 2, "{:?}", found.problems);
    assert!(found.problems.iter().all(|it| it.contains("aaa/large-")));
}

#[test]
fn what_pods_would_not_reach_is_told() {
    let twice = ServiceObject {
        name: "zeb".to_owned(),
        ..service(&["10.96.0.1"])
    };
    let own = slice(vec![
        endpoint("10.96.0.7", "here"),
        endpoint("10.0.0.1", "here"),
    ]);
    let found = served(&[twice, service(&["10.96.0.1", "10.97.0.1"])], &[own]);
    assert_eq!(backends(&found, "10.96.0.1"), ["10.0.0.1 8080"]);
    let expected = [
        "EndpointSlice shop/web-1: 1 endpoints, the first 10.96.0.7, have addresses of Services",
        "Service shop/web: 10.97.0.1 is in none of spec.serviceCIDRs of network blue",
        "Service shop/zeb: another Service of the network has 10.96.0.1",
    ];
    assert_eq!(found.problems.len(), expected.len(), "{:?}", found.problems);
    for (problem, expected) in found.problems.iter().zip(expected) {
        assert!(problem.starts_with(expected), "{problem}");
    }
}

#[test]
fn no_service_has_more_than_its_share() {
    let many = |ports: u16, endpoints: u8| {
        let mut service = service(&["10.96.0.1"]);
        let names = (0..ports).map(|it| port(&it.to_string(), ServiceProtocol::Tcp, 1 + it));
        service.ports = names.collect();
        let mut slices = Vec::new();
        for part in 0..endpoints {
            let of = (0..=255).map(|it| endpoint(&format!("10.0.{part}.{it}"), "here"));
            let mut slice = slice(of.collect());
            slice.ports.clone_from(&service.ports);
            slices.push(slice);
        }
        (service, slices)
    };
    let (first, slices) = many(64, 1);
    let found = served(std::slice::from_ref(&first), &slices);
    assert_eq!((found.ports.len(), found.problems.len()), (64, 0));
    let (first, slices) = many(65, 1);
    let found = served(&[first], &slices);
    assert_eq!((found.ports.len(), found.addresses.len()), (0, 0));
    assert!(
        found.problems[0].contains("16640 endpoints"),
        "{:?}",
        found.problems
    );
    // Eight of the largest have all that the network has.
    let (mut all, mut of_all) = (Vec::new(), Vec::new());
    for number in 0..9 {
        let (mut service, mut slices) = many(64, 1);
        service.name = format!("s{number}");
        service.ips = vec![ip(&format!("10.96.1.{number}"))];
        for slice in &mut slices {
            slice.service.clone_from(&service.name);
        }
        all.push(service);
        of_all.extend(slices);
    }
    let found = served(&all, &of_all);
    assert_eq!((found.addresses.len(), found.problems.len()), (8, 1));
    assert!(
        found.problems[0].starts_with("Service shop/s8: "),
        "{:?}",
        found.problems
    );
}

#[test]
fn problems_are_told_as_far_as_they_can_be_read() {
    let all: Vec<ServiceSlice> = (0..PROBLEMS + 20)
        .map(|number| {
            let mut slice = slice(vec![endpoint("10.96.0.9", "here"); 1000]);
            slice.name = format!("web-{number}");
            slice
        })
        .collect();
    let found = served(&[service(&["10.96.0.1"])], &all);
    assert_eq!(found.problems.len(), PROBLEMS);
}

/// KEP-4444, KEP-3015: clients are of node `here` and zone `z1`.
#[test]
fn hints_choose_endpoints_for_the_node_or_the_zone_if_each_that_is_ready_has_some() {
    let hinted = |address: &str, zone: &str, node: &str| {
        let some = |it: &str| Vec::from_iter((!it.is_empty()).then(|| it.to_owned()));
        ServiceEndpoint {
            for_zones: some(zone),
            for_nodes: some(node),
            ..endpoint(address, "there")
        }
    };
    let all = ["10.0.0.1 8080", "10.0.0.2 8080"];
    let cases = [
        ([("z1", ""), ("z2", "")], &all[..1]),
        ([("z1", ""), ("", "")], &all[..]),
        ([("z2", ""), ("z3", "")], &all[..]),
        ([("z1", "there"), ("z1", "here")], &all[1..]),
        ([("z1", "there"), ("z2", "there")], &all[..1]),
        ([("z1", "here"), ("z2", "")], &all[..1]),
    ];
    for (hints, expected) in cases {
        let [first, second] = hints;
        let endpoints = vec![
            hinted("10.0.0.1", first.0, first.1),
            hinted("10.0.0.2", second.0, second.1),
        ];
        let found = served(&[service(&["10.96.0.1"])], &[slice(endpoints.clone())]);
        assert_eq!(backends(&found, "10.96.0.1"), expected, "{hints:?}");
        // One that is not ready has no say.
        let mut and_unready = endpoints;
        and_unready.push(ServiceEndpoint {
            ready: false,
            serving: false,
            ..hinted("10.0.0.3", "", "")
        });
        let found = served(&[service(&["10.96.0.1"])], &[slice(and_unready)]);
        assert_eq!(backends(&found, "10.96.0.1"), expected, "{hints:?}");
    }
    let local = ServiceObject {
        local: true,
        ..service(&["10.96.0.1"])
    };
    let here = ServiceEndpoint {
        node: Some("here".to_owned()),
        ..hinted("10.0.0.2", "z2", "")
    };
    let found = served(&[local], &[slice(vec![hinted("10.0.0.1", "z1", ""), here])]);
    assert_eq!(backends(&found, "10.96.0.1"), ["10.0.0.2 8080"]);
}

/// Objects of which each step changes one, by a number that stands for a choice.
#[derive(Clone, Default)]
struct Objects {
    services: BTreeMap<u8, ServiceObject>,
    slices: BTreeMap<u8, ServiceSlice>,
}

impl Objects {
    fn change(&mut self, of: &str, (kind, which, value): (u8, u8, u8)) {
        let which = which % 6;
        // Names in two namespaces, and addresses that two Services may both have.
        let namespace = ["shop", "bank"][usize::from(which % 2)];
        let address = format!("10.96.0.{}", 1 + (which + value % 2) % 6);
        match kind % 5 {
            0 => {
                self.services.remove(&which);
            }
            1 => {
                self.slices.remove(&which);
            }
            2 => {
                let ips = [&*address, "fd96::1", "192.0.2.1"];
                let new = ServiceObject {
                    namespace: namespace.to_owned(),
                    name: format!("web-{which}"),
                    network: of.to_owned(),
                    local: value % 4 == 0,
                    affinity_s: u32::from(value % 3),
                    ..service(&ips[..usize::from(value % 4)])
                };
                self.services.insert(which, new);
            }
            _ => {
                let own = format!("10.0.0.{value}");
                let wrong = "10.96.0.9".to_owned();
                let node = ["here", "there"][usize::from(value % 2)];
                let new = ServiceSlice {
                    namespace: namespace.to_owned(),
                    name: format!("slice-{which}"),
                    network: of.to_owned(),
                    service: format!("web-{}", (which + value % 3) % 6),
                    ..slice(vec![
                        endpoint(&own, node),
                        ending(if value % 5 == 0 { &wrong } else { &own }, node),
                    ])
                };
                self.slices.insert(which, new);
            }
        }
    }
}

proptest::proptest! {
    /// Nothing but the time shows that something was compiled before.
    #[test]
    fn a_compiler_makes_of_changed_objects_what_a_new_one_makes(
        steps in proptest::collection::vec((0..5_u8, 0..6_u8, proptest::num::u8::ANY, 0..10_u8), 1..40),
        is_of_cluster in proptest::bool::ANY,
    ) {
        let of = if is_of_cluster { OF_CLUSTER } else { CLIENTS };
        let prefixes = prefixes();
        let mut compiler = Compiler::default();
        let mut objects = Objects::default();
        // Objects that do not change are shared, as those of the cluster are.
        let (mut services, mut slices) = (BTreeMap::new(), BTreeMap::new());
        for (kind, which, value, moves) in steps {
            objects.change(of, (kind, which, value));
            // A list that is read again has equal objects at other places.
            let again = moves == 1;
            services.retain(|at, it: &mut Arc<ServiceObject>| !again && objects.services.get(at) == Some(&**it));
            slices.retain(|at, it: &mut Arc<ServiceSlice>| !again && objects.slices.get(at) == Some(&**it));
            for (at, it) in &objects.services {
                services.entry(*at).or_insert_with(|| Arc::new(it.clone()));
            }
            for (at, it) in &objects.slices {
                slices.entry(*at).or_insert_with(|| Arc::new(it.clone()));
            }
            let clients = Clients {
                network: CLIENTS,
                of,
                prefixes: &prefixes,
                node: if moves == 0 { "there" } else { "here" },
                zone: None,
            };
            let services: Vec<_> = services.values().cloned().collect();
            let slices: Vec<_> = slices.values().cloned().collect();
            let kept = compiler.compile(&clients, &services, &slices);
            // What is not in force is not kept.
            let room: usize = compiler.ports().map(|it| it.backends.len()).sum();
            let served: usize = kept.ports.values().map(|it| it.backends.len()).sum();
            proptest::prop_assert!(room <= served, "{} and {}", room, served);
            proptest::prop_assert_eq!(kept, Compiler::default().compile(&clients, &services, &slices));
        }
    }
}

#[test]
fn ports_of_services_that_stay_as_they_are_are_shared_with_those_before() {
    let prefixes = prefixes();
    let clients = Clients {
        network: CLIENTS,
        of: CLIENTS,
        prefixes: &prefixes,
        node: "here",
        zone: None,
    };
    let other = ServiceObject {
        name: "other".to_owned(),
        ..service(&["10.96.0.2"])
    };
    let services = [Arc::new(service(&["10.96.0.1"])), Arc::new(other)];
    let slices = |address| [Arc::new(slice(vec![endpoint(address, "here")]))];
    let mut compiler = Compiler::default();
    let first = compiler.compile(&clients, &services, &slices("10.0.0.1"));
    let next = compiler.compile(&clients, &services, &slices("10.0.0.2"));
    let shared = |ip: &str| {
        let at = At {
            ip: self::ip(ip),
            protocol: ServiceProtocol::Tcp,
            port: 80,
        };
        Arc::ptr_eq(&first.ports[&at], &next.ports[&at])
    };
    assert!(!shared("10.96.0.1"), "it has another endpoint");
    assert!(shared("10.96.0.2"));
}
