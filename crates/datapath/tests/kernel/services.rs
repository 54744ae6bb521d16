//! Test that packets of Services are translated, byte by byte.

use std::net::IpAddr;

use agent_common::addr::{GATEWAY_MAC, MacAddr};
use agent_common::cases::build::{self, Ipv4, Ipv6};
use agent_common::cases::{BLUE_A, BLUE_B, GREEN_A, GREEN_B, Pod, SERVICE, World};
use agent_common::drop::DropReason;
use agent_common::endpoint::ENDPOINT_SERVED;
use agent_common::packet::{IPPROTO_TCP, IPPROTO_UDP};
use agent_common::port::PORT_L3;
use agent_common::service::{
    BACK, Backend, BackendKey, MemberKey, Service, ServiceKey, TO_BACKEND,
};
use datapath::{Datapath, ServiceMaps};

use super::scratch::{LOOPBACK, REDIRECT, SHOT, Scratch, fill, run, scene};

#[path = "services/errors.rs"]
mod errors;

const CLIENT: u16 = 40_000;
const VIP: u16 = 80;
const BACKEND: u16 = 8080;

/// A packet without its Ethernet header: addresses of one family, and ports.
#[derive(Clone, Copy, Debug)]
struct Packet {
    from: (IpAddr, u16),
    to: (IpAddr, u16),
    protocol: u8,
    hops: u8,
}

impl Packet {
    fn frame(&self, to: MacAddr, from: MacAddr) -> Vec<u8> {
        let ports = (self.from.1, self.to.1);
        match (self.from.0, self.to.0) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let ip = Ipv4 {
                    ttl: self.hops,
                    ..Ipv4::new(source, destination)
                };
                if self.protocol == IPPROTO_UDP {
                    return ip.udp(to, from, ports);
                }
                let pseudo = [source.octets(), destination.octets()].concat();
                let segment = self.segment(&[&pseudo[..], &[0, IPPROTO_TCP, 0, 25]].concat());
                ip.frame(to, from, IPPROTO_TCP, &segment)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let ip = Ipv6 {
                    hops: self.hops,
                    ..Ipv6::new(source, destination)
                };
                if self.protocol == IPPROTO_UDP {
                    return ip.udp(to, from, ports);
                }
                let pseudo = [source.octets(), destination.octets()].concat();
                let rest = [0, 0, 0, 25, 0, 0, 0, IPPROTO_TCP];
                let segment = self.segment(&[&pseudo[..], &rest].concat());
                ip.frame(to, from, IPPROTO_TCP, &segment)
            }
            other => unreachable!("one family, not {other:?}"),
        }
    }

    /// A segment of five bytes, an odd number, with its checksum.
    fn segment(&self, pseudo: &[u8]) -> Vec<u8> {
        let ports = [self.from.1.to_be_bytes(), self.to.1.to_be_bytes()].concat();
        let rest = [0, 0, 0, 7, 0, 0, 0, 9, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0];
        let mut segment = [&ports[..], &rest, b"five!"].concat();
        let sum = build::checksum(&[pseudo, &segment].concat());
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        segment
    }

    const fn answer(self) -> Self {
        Self {
            from: self.to,
            to: self.from,
            ..self
        }
    }
}

fn ip_of(pod: &Pod, is_v4: bool) -> IpAddr {
    if is_v4 {
        pod.ip4.into()
    } else {
        pod.ip6.into()
    }
}

/// Puts a pod at the loopback interface, on a network with Services.
fn put(datapath: &mut Datapath, pod: &Pod) {
    let mut world = World::with_pod_at(pod, LOOPBACK);
    for endpoint in world.fdb.values_mut().chain(world.endpoints.values_mut()) {
        if endpoint.mac != GATEWAY_MAC {
            endpoint.flags |= ENDPOINT_SERVED;
        }
    }
    fill(datapath, &world);
}

/// Writes a Service at port 80 with these backends at port 8080.
fn serve(maps: &mut ServiceMaps, network: u32, set: u32, ip: IpAddr, backends: &[IpAddr]) {
    for protocol in [IPPROTO_TCP, IPPROTO_UDP] {
        let set = set * 2 + u32::from(protocol == IPPROTO_UDP);
        for (index, backend) in (0..).zip(backends) {
            let key = BackendKey { set, index };
            let value = Backend::new((*backend).into(), BACKEND);
            maps.backends.insert(key, value).expect("an entry");
            let member = MemberKey {
                network,
                service: ip.into(),
                backend: (*backend).into(),
                service_port: VIP,
                backend_port: BACKEND,
                protocol,
                reserved: [0; 3],
            };
            maps.members.insert(member, 1).expect("an entry");
        }
        let key = ServiceKey {
            network,
            ip: ip.into(),
            port: VIP,
            protocol,
            reserved: 0,
        };
        let service = Service {
            set,
            count: u32::try_from(backends.len()).expect("a few"),
            affinity_s: 0,
            flags: 0,
        };
        maps.services.insert(key, service).expect("an entry");
    }
}

fn open(scratch: &Scratch) -> (Datapath, ServiceMaps) {
    let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
    let maps = datapath.services().expect("maps");
    datapath.serve_services().expect("programs that load");
    let _ = datapath.activate().expect("a slot");
    (datapath, maps)
}

fn goes(datapath: &Datapath, frame: &[u8]) -> Vec<u8> {
    let result = run(datapath, frame);
    assert_eq!(result.verdict, REDIRECT);
    result.frame
}

#[test]
fn a_packet_to_a_service_leaves_for_its_backend_and_the_answer_comes_from_the_service() {
    scene(|scratch| {
        let (mut datapath, mut maps) = open(scratch);
        let mut set = 0;
        for (client, backend) in [(&GREEN_A, &GREEN_B), (&BLUE_A, &BLUE_B)] {
            for service in SERVICE {
                set += 1;
                let ip = ip_of(backend, service.is_ipv4());
                serve(&mut maps, client.network, set, service, &[ip]);
                for protocol in [IPPROTO_TCP, IPPROTO_UDP] {
                    exchange(&mut datapath, (client, backend), service, protocol);
                }
            }
        }
        let mut kinds = Vec::new();
        let translations = maps.translations;
        translations
            .each(|_, _, target| kinds.push(target.kind))
            .expect("entries");
        kinds.sort_unstable();
        assert_eq!(kinds, [vec![TO_BACKEND; 8], vec![BACK; 8]].concat());
    });
}

fn exchange(
    datapath: &mut Datapath,
    (client, backend): (&Pod, &Pod),
    service: IpAddr,
    protocol: u8,
) {
    let is_v4 = service.is_ipv4();
    let is_routed = client.flags & PORT_L3 != 0;
    let hops = if is_routed { 63 } else { 64 };
    let asks = Packet {
        from: (ip_of(client, is_v4), CLIENT),
        to: (service, VIP),
        protocol,
        hops: 64,
    };
    let translated = Packet {
        to: (ip_of(backend, is_v4), BACKEND),
        hops,
        ..asks
    };
    put(datapath, client);
    let macs = (
        backend.mac,
        if is_routed { GATEWAY_MAC } else { client.mac },
    );
    for _ in 0..3 {
        let left = goes(datapath, &asks.frame(GATEWAY_MAC, client.mac));
        assert_eq!(left, translated.frame(macs.0, macs.1));
    }
    put(datapath, backend);
    let answers = Packet {
        hops: 64,
        ..translated.answer()
    };
    let to = if is_routed { GATEWAY_MAC } else { client.mac };
    let from_service = Packet {
        hops,
        ..asks.answer()
    };
    for _ in 0..3 {
        let left = goes(datapath, &answers.frame(to, backend.mac));
        assert_eq!(left, from_service.frame(client.mac, GATEWAY_MAC));
    }
    // Another client's port has nothing of that.
    let other = Packet {
        to: (answers.to.0, CLIENT + 1),
        ..answers
    };
    let plain = Packet { hops, ..other };
    let from = if is_routed { GATEWAY_MAC } else { backend.mac };
    let left = goes(datapath, &other.frame(to, backend.mac));
    assert_eq!(left, plain.frame(client.mac, from));
}

#[test]
fn a_datagram_without_a_checksum_stays_without() {
    scene(|scratch| {
        let (mut datapath, mut maps) = open(scratch);
        let service = SERVICE[0];
        serve(
            &mut maps,
            GREEN_A.network,
            1,
            service,
            &[GREEN_B.ip4.into()],
        );
        put(&mut datapath, &GREEN_A);
        let asks = Packet {
            from: (GREEN_A.ip4.into(), CLIENT),
            to: (service, VIP),
            protocol: IPPROTO_UDP,
            hops: 64,
        };
        let mut frame = asks.frame(GATEWAY_MAC, GREEN_A.mac);
        frame[40..42].fill(0);
        let left = goes(&datapath, &frame);
        assert_eq!(left[40..42], [0, 0]);
        assert_eq!(left[30..34], GREEN_B.ip4.octets());
    });
}

#[test]
fn a_pod_that_is_its_own_backend_gets_its_packet_back() {
    scene(|scratch| {
        let (mut datapath, mut maps) = open(scratch);
        let pod = &GREEN_A;
        put(&mut datapath, pod);
        for (set, service) in (1..).zip(SERVICE) {
            let own = ip_of(pod, service.is_ipv4());
            serve(&mut maps, pod.network, set, service, &[own]);
            for protocol in [IPPROTO_TCP, IPPROTO_UDP] {
                let asks = Packet {
                    from: (own, CLIENT),
                    to: (service, VIP),
                    protocol,
                    hops: 64,
                };
                let there = Packet {
                    from: (service, CLIENT),
                    to: (own, BACKEND),
                    ..asks
                };
                let left = goes(&datapath, &asks.frame(GATEWAY_MAC, pod.mac));
                assert_eq!(left, there.frame(pod.mac, GATEWAY_MAC));
                let left = goes(&datapath, &there.answer().frame(GATEWAY_MAC, pod.mac));
                assert_eq!(left, asks.answer().frame(pod.mac, GATEWAY_MAC));
            }
        }
    });
}

#[test]
fn a_service_that_is_not_there_is_refused_and_one_with_no_local_endpoint_is_silent() {
    scene(|scratch| {
        let (mut datapath, mut maps) = open(scratch);
        let pod = &GREEN_A;
        put(&mut datapath, pod);
        for (set, service) in (1..).zip(SERVICE) {
            let asks = Packet {
                from: (ip_of(pod, service.is_ipv4()), CLIENT),
                to: (service, VIP),
                protocol: IPPROTO_TCP,
                hops: 64,
            };
            let frame = asks.frame(GATEWAY_MAC, pod.mac);
            let error = |left: &[u8]| match service {
                IpAddr::V4(_) => [left[23], left[34], left[35]],
                IpAddr::V6(_) => [left[20], left[54], left[55]],
            };
            // RFC 792 and RFC 4443: the port is unreachable.
            let refused = match service {
                IpAddr::V4(_) => [1, 3, 3],
                IpAddr::V6(_) => [58, 1, 4],
            };
            assert_eq!(error(&goes(&datapath, &frame)), refused);
            serve(&mut maps, pod.network, set, service, &[]);
            assert_eq!(error(&goes(&datapath, &frame)), refused);
        }
        let total = |datapath: &mut Datapath, reason| {
            let drops = datapath.counters().total_drops(reason);
            drops.expect("drops").packets
        };
        assert_eq!(total(&mut datapath, DropReason::NoService), 2);
        assert_eq!(total(&mut datapath, DropReason::NoBackend), 2);
        let key = ServiceKey {
            network: pod.network,
            ip: SERVICE[0].into(),
            port: VIP,
            protocol: IPPROTO_TCP,
            reserved: 0,
        };
        let elsewhere = Service {
            flags: agent_common::service::SERVICE_ELSEWHERE,
            ..Service::default()
        };
        maps.services.insert(key, elsewhere).expect("an entry");
        let asks = Packet {
            from: (pod.ip4.into(), CLIENT),
            to: (SERVICE[0], VIP),
            protocol: IPPROTO_TCP,
            hops: 64,
        };
        let result = run(&datapath, &asks.frame(GATEWAY_MAC, pod.mac));
        assert_eq!(result.verdict, SHOT);
        assert_eq!(total(&mut datapath, DropReason::NoLocalBackend), 1);
    });
}
