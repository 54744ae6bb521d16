//! Any frame with any header before it.

use std::env;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use agent_common::addr::MacAddr;
use agent_common::packet::{ETH_P_ARP, ETH_P_IP, ETH_P_IPV6, Frame as _, ipv6_payload};
use testbed::frame::{Arp, Ipv4, Ipv6, Marker, ethernet, icmp6, marker, udp4, udp6};
use testbed::{Node, Port, VirtioHeader};

use super::scene::{IP, IPV6, NETWORKS, Scene, UPLINK_NAME, setup};
use super::watch::Watch;

/// Frames of an ordinary run; a variable sets the number of a long one.
///
/// Each of five kinds of targets gets a fifth of them: a pod's kernel, AF_XDP, memif, a VLAN, a segment
/// without tags.
const FRAMES: u64 = 20_000;
const FRAMES_BY: &str = "PODNET_RANDOM_FRAMES";
const SEED_BY: &str = "PODNET_SEED";
/// Between two looks at what arrived.
const ROUND: u64 = 64;
/// Rounds between two honest frames.
const HONEST: u64 = 128;

/// SplitMix64.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }

    fn short(&mut self, end: u16) -> u16 {
        u16::try_from(self.below(end.into())).unwrap_or_default()
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        let index = usize::try_from(self.below(of.len() as u64)).unwrap_or_default();
        of[index]
    }
}

/// Where frames go.
struct Target {
    name: &'static str,
    /// Its index in [`Scene::targets`]; none for a broadcast.
    place: Option<usize>,
    mac: MacAddr,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
    frames: u64,
}

/// A frame that `own` could send, with some bytes changed more often than not.
fn frame(random: &mut Random, own: &Port, target: &Target, word: &Marker) -> Vec<u8> {
    let (to, v4, v6) = (target.mac, target.v4, target.v6);
    let room = usize::try_from(random.below(200)).unwrap_or_default();
    let noise = (0..room).map(|_| random.byte());
    let payload: Vec<u8> = word.iter().copied().chain(noise).collect();
    let mut tcp = vec![0; 20];
    tcp[12] = 5 << 4;
    tcp.extend(&payload);
    let mut frame = match random.below(7) {
        0 => ethernet(to, own.mac, IP, &udp4(own.v4(), v4, (9, 9), &payload)),
        1 => {
            let ip = Ipv4::new(own.v4(), v4, random.one(&[6, 6, 1, 4, 47, 132, 41]));
            ethernet(to, own.mac, IP, &ip.packet(&tcp))
        }
        2 => ethernet(to, own.mac, IPV6, &udp6(own.v6(), v6, (9, 9), &payload)),
        3 => {
            let next = random.one(&[6, 6, 4, 41, 47, 132, 0, 60]);
            let ip = Ipv6::new(own.v6(), v6, next);
            ethernet(to, own.mac, IPV6, &ip.packet(&tcp))
        }
        4 => {
            let kind = random.one(&[128, 129, 133, 143]);
            let from = own.mac.link_local();
            let message = icmp6(from, v6, (kind, 0), &payload);
            ethernet(to, own.mac, IPV6, &Ipv6::new(from, v6, 58).packet(&message))
        }
        5 => Arp::request((own.mac, own.v4()), v4).frame(to, own.mac, &payload),
        _ => ethernet(to, own.mac, random.one(&[0x88b5, 0x8847]), &tcp),
    };
    for _ in 0..random.below(4) {
        let place = usize::try_from(random.below(frame.len() as u64)).unwrap_or_default();
        frame[place] = random.byte();
    }
    frame
}

/// A header that the kernel mostly takes, for a frame of this length.
fn header(random: &mut Random, length: usize) -> VirtioHeader {
    let length = u16::try_from(length).unwrap_or(u16::MAX);
    let start = random.one(&[34, 54, 14, 20, 22, 26]);
    VirtioHeader {
        flags: random.one(&[1, 1, 1, 1, 0, 3]),
        gso_type: random.one(&[0, 0, 0, 0, 1, 4, 3, 5, 0x81]),
        hdr_len: random.short(length.saturating_add(2)),
        gso_size: random.short(200),
        csum_start: match random.below(3) {
            0 => random.short(length),
            _ => start,
        },
        csum_offset: match random.below(3) {
            0 => random.short(20),
            _ => random.one(&[16, 6, 8, 2, 0]),
        },
    }
}

/// Finds a false statement in a frame with `own`'s MAC address, if there is one.
pub(super) fn lie(own: &Port, frame: &[u8]) -> Option<&'static str> {
    let ether_type = u16::from_be_bytes(*frame.get(12..14)?.first_chunk()?);
    match ether_type {
        ETH_P_ARP => {
            let honest = frame.get(22..28) == Some(&own.mac.0)
                && (frame.get(28..32) == Some(&own.v4().octets())
                    || frame.get(28..32) == Some(&[0; 4]));
            (!honest).then_some("the sender of ARP")
        }
        ETH_P_IP => (frame.get(26..30) != Some(&own.v4().octets())).then_some("the source of IPv4"),
        ETH_P_IPV6 => {
            let source = frame.get(22..38)?;
            let own_ones = [own.v6().octets(), own.mac.link_local().octets(), [0; 16]];
            if !own_ones.iter().any(|it| it == source) {
                return Some("the source of IPv6");
            }
            let payload = ipv6_payload(frame, *frame.get(20)?)?;
            if payload.protocol != 58 || payload.later_fragment {
                return None;
            }
            match frame.load::<1>(payload.offset)? {
                [134 | 137] => Some("a router's message"),
                [136] => {
                    let target = frame.load::<16>(payload.offset + 8)?;
                    let own = [own.v6().octets(), own.mac.link_local().octets()];
                    (!own.contains(&target)).then_some("the target of an advertisement")
                }
                _ => None,
            }
        }
        _ => None,
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    let given = env::var(name).ok().and_then(|text| text.parse().ok());
    given.unwrap_or(otherwise)
}

/// Sends a target its share; returns the frames taken, arrived and refused.
fn send_to(
    target: &Target,
    watch: &mut Watch<'_, '_>,
    random: &mut Random,
    word: &Marker,
) -> [u64; 3] {
    let scene = watch.scene;
    let before = scene.refused_so_far();
    watch.begin(target.mac);
    let (mut sent, mut round) = (0, 0);
    while sent < target.frames {
        watch.what = format!("{}, round {round}, seed {}", target.name, random.0);
        for _ in 0..ROUND {
            let frame = frame(random, &scene.mallory, target, word);
            let header = header(random, frame.len());
            sent += u64::from(scene.send(header, &frame).is_ok());
        }
        watch.judge();
        round += 1;
        if round % HONEST == 0 || sent >= target.frames {
            honest(target, watch);
        }
    }
    let arrived = match target.place {
        Some(place) => watch.arrived[place],
        None => watch.arrived.into_iter().min().unwrap_or_default(),
    };
    [sent, arrived, scene.refused_so_far() - before]
}

/// An honest frame arrives where it should: so the others would be seen.
fn honest(target: &Target, watch: &mut Watch<'_, '_>) {
    let own = &watch.scene.mallory;
    let places = watch.scene.targets().into_iter().enumerate();
    for (place, (name, to)) in places {
        if target.place.is_some_and(|it| it != place) {
            continue;
        }
        let word = marker();
        let frame = ethernet(to, own.mac, IP, &udp4(own.v4(), target.v4, (9, 9), &word));
        let sent = watch.scene.send(VirtioHeader::default(), &frame);
        sent.expect("an honest frame");
        watch.wait(place, &word, &format!("an honest frame at {name}"));
    }
}

fn run(node: &Node, network: &'static str, random: &mut Random, frames: u64) {
    let scene = Scene::set(node, network);
    let [bob, xdp, memif] = scene.others();
    let ports = [bob, xdp, memif, bob];
    let targets = scene.targets().into_iter().zip(ports).enumerate();
    let mut targets: Vec<_> = targets
        .map(|(place, ((name, mac), port))| Target {
            name,
            place: Some(place),
            mac,
            v4: port.v4(),
            v6: port.v6(),
            // The other network has the other kind of uplink, and half of the frames for the rest.
            frames: if name == UPLINK_NAME {
                frames
            } else {
                frames / 2
            },
        })
        .collect();
    targets.push(Target {
        name: "everybody",
        place: None,
        mac: MacAddr::BROADCAST,
        v4: bob.v4(),
        v6: bob.v6(),
        frames: frames / 8,
    });
    let word = marker();
    let mut watch = Watch::on(&scene, node, word);
    for target in &targets {
        let begun = Instant::now();
        let [sent, arrived, refused] = send_to(target, &mut watch, random, &word);
        println!(
            "{network}, {}: the kernel took {sent} frames, {arrived} arrived, {refused} were refused, {:.1} s",
            target.name,
            begun.elapsed().as_secs_f64()
        );
        assert!(arrived > 0, "{network}, {}: nothing arrived", target.name);
        assert!(
            refused > 0,
            "{network}, {}: nothing was refused",
            target.name
        );
    }
    drop(watch);
    scene.close();
}

/// ATT-02a: random frames with random headers arrive with the pod's own addresses.
#[test]
fn random_frames_with_random_headers_say_nothing_in_anothers_name() {
    let node = testbed::node!(setup());
    let seed = number(SEED_BY, u64::from(std::process::id()));
    let frames = number(FRAMES_BY, FRAMES);
    println!("{SEED_BY}={seed} {FRAMES_BY}={frames}");
    let mut random = Random(seed);
    for network in NETWORKS {
        run(&node, network, &mut random, frames.div_ceil(5));
    }
    node.assert_empty();
    proof::of!("ATT-02a");
}
