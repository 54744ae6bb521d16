//! Count what a glance asks the kernel, and try each thing that may be amiss.

use api::{Interface, InterfaceKind, Mode};
use book::bandwidth::{Limit, Limits, Source};
use book::record::{Shaper, State};
use book::samples;
use host::host_name;
use netdev::ShapeState;

use super::*;
use crate::survey::Seen as Link;

/// A kernel with the ports of these records, and a count of questions.
#[derive(Debug, Default)]
struct FakeSight {
    queues: BTreeMap<u32, RootQueue>,
    /// Indexes of links with the dispatcher.
    guarded: BTreeSet<u32>,
    /// Indexes of links without the dispatcher of the way out.
    open: BTreeSet<u32>,
    /// Host ends whose AF_XDP port lacks a part.
    broken: BTreeSet<String>,
    held: BTreeMap<String, PortConfig>,
    /// Ports of which the switch would have to be told.
    untold: BTreeSet<String>,
    /// Ports whose objects ask for other limits.
    changed: BTreeSet<String>,
    /// The kernel does not tell of this link.
    silent: Option<u32>,
    /// The switch does not answer.
    is_switch_stuck: bool,
    promoted: Vec<u32>,
    dumps: usize,
    looks: usize,
}

impl Sight for FakeSight {
    fn root_queues(&mut self) -> Result<BTreeMap<u32, RootQueue>, PortError> {
        self.dumps += 1;
        Ok(self.queues.clone())
    }

    fn switched(&mut self) -> Result<BTreeMap<String, PortConfig>, PortError> {
        self.dumps += 1;
        match self.is_switch_stuck {
            true => Err(PortError::SwitchUnwatched),
            false => Ok(self.held.clone()),
        }
    }

    fn is_attached(&mut self, _: &str, ifindex: u32) -> Result<bool, PortError> {
        self.looks += 1;
        match self.silent == Some(ifindex) {
            true => Err(PortError::MendingDied),
            false => Ok(self.guarded.contains(&ifindex)),
        }
    }

    fn is_on_the_way_out(&mut self, ifindex: u32) -> Result<bool, PortError> {
        Ok(!self.open.contains(&ifindex))
    }

    fn await_promotion(&mut self, host: &HostEnd) {
        self.promoted.push(host.ifindex);
    }

    fn has_sockets(&mut self, record: &Attachment) -> Result<bool, PortError> {
        self.looks += 1;
        Ok(!self.broken.contains(&record.host.name))
    }

    fn has_its_limits(&mut self, record: &Attachment) -> bool {
        !self.changed.contains(&record.host.name)
    }

    fn is_told(&mut self, record: &Attachment, _: &BTreeMap<String, PortConfig>) -> bool {
        !self.untold.contains(&record.host.name)
    }
}

const HOST: u32 = 1000;
const NEAR: u32 = 3000;
const FAR: u32 = 5000;

/// The record of a port that is whole, by a number from 0 to 999.
fn record(number: u32, kind: InterfaceKind, limits: Limits) -> Attachment {
    let network = samples::network("blue", Mode::L2, &[("10.10.0.0/16", "10.10.0.1")]);
    let mut record = samples::record(&network, |wanted| {
        wanted.key = samples::key(&format!("c{number}"), "net1");
        wanted.interface = Interface { kind, queues: 1 };
        wanted.limits = limits;
    });
    record.state = State::Added;
    record.host.name = host_name(&record.key);
    record.host.ifindex = HOST + number;
    record.shaper = limits.egress.map(|_| Shaper {
        near: NEAR + number,
        far: FAR + number,
        used: true,
    });
    record
}

fn limited() -> Limits {
    let limit = Limit {
        rate: 8_000_000,
        burst: None,
        source: Source::Network,
    };
    Limits {
        ingress: Some(limit),
        egress: Some(limit),
    }
}

fn ours(limit: Limit) -> RootQueue {
    RootQueue::Ours(ShapeState {
        shape: limit.shape(1500),
        discipline: Some(Discipline::Fifo),
        backlog_bytes: 0,
        backlog_packets: 0,
        dropped_packets: 0,
        sent_bytes: 0,
        sent_packets: 0,
        overlimits: 0,
    })
}

/// Links and queues as these records have them.
fn whole(records: &[Attachment]) -> (FakeSight, BTreeMap<String, Link>) {
    let (mut sight, mut links) = (FakeSight::default(), BTreeMap::new());
    let link = |ifindex, peer| Link {
        ifindex,
        carrier: true,
        up: true,
        peer,
    };
    for record in records {
        let host = &record.host;
        links.insert(host.name.clone(), link(host.ifindex, None));
        sight.guarded.insert(host.ifindex);
        if let Some(limit) = record.limits.ingress {
            sight.queues.insert(host.ifindex, ours(limit));
        }
        if let (Some(limit), Some(shaper)) = (record.limits.egress, record.shaper) {
            let (near, far) = (near_name(&host.name), far_name(&host.name));
            links.insert(near, link(shaper.near, Some(shaper.far)));
            links.insert(far, link(shaper.far, Some(shaper.near)));
            sight.guarded.insert(shaper.far);
            sight.queues.insert(shaper.near, ours(limit));
        }
    }
    (sight, links)
}

fn look(
    sight: &mut FakeSight,
    links: BTreeMap<String, Link>,
    records: &[Attachment],
) -> BTreeSet<usize> {
    let survey = Survey::of(links);
    suspects(sight, &survey, records, Some(Discipline::Fifo)).unwrap()
}

#[test]
fn a_glance_at_a_thousand_ports_is_one_dump_and_one_look_at_each_link_with_a_program() {
    for (limits, programs) in [(Limits::default(), 1), (limited(), 2)] {
        for count in [10_u32, 1000] {
            let records: Vec<_> = (0..count)
                .map(|number| record(number, InterfaceKind::Veth, limits))
                .collect();
            let (mut sight, links) = whole(&records);
            assert_eq!(look(&mut sight, links, &records), BTreeSet::new());
            assert_eq!(sight.dumps, 1);
            assert_eq!(sight.looks, records.len() * programs);
            assert_eq!(sight.promoted.len(), records.len());
        }
    }
}

#[test]
fn whatever_is_amiss_with_a_port_makes_it_a_suspect_and_no_other() {
    type Spoil = fn(&mut FakeSight, &mut BTreeMap<String, Link>, &Attachment);
    let all: [(&str, Spoil); 14] = [
        ("gone", |_, links, it| {
            links.remove(&it.host.name);
        }),
        ("replaced", |_, links, it| {
            links.get_mut(&it.host.name).unwrap().ifindex += 500;
        }),
        ("down", |_, links, it| {
            links.get_mut(&it.host.name).unwrap().up = false;
        }),
        ("unguarded", |sight, _, it| {
            sight.guarded.remove(&it.host.ifindex);
        }),
        ("not told", |sight, _, it| {
            sight.silent = Some(it.host.ifindex);
        }),
        ("other limits", |sight, _, it| {
            sight.changed.insert(it.host.name.clone());
        }),
        ("foreign queue", |sight, _, it| {
            let kind = "htb".to_owned();
            let queue = RootQueue::Foreign { kind };
            sight.queues.insert(it.host.ifindex, queue);
        }),
        ("another rate", |sight, _, it| {
            let limit = Limit {
                rate: 80_000_000,
                ..limited().ingress.unwrap()
            };
            sight.queues.insert(it.host.ifindex, ours(limit));
        }),
        ("shaper gone", |_, links, it| {
            links.remove(&near_name(&it.host.name));
        }),
        ("stray shaper", |_, links, it| {
            let near = Link {
                ifindex: 9,
                carrier: true,
                up: true,
                peer: None,
            };
            links.insert(near_name(&it.host.name), near);
        }),
        ("shaper down", |_, links, it| {
            if let Some(far) = links.get_mut(&far_name(&it.host.name)) {
                far.up = false;
            }
        }),
        ("shaper unguarded", |sight, _, it| {
            sight.guarded.remove(&it.shaper.map_or(0, |it| it.far));
        }),
        ("shaper without its queue", |sight, _, it| {
            sight.queues.remove(&it.shaper.map_or(0, |it| it.near));
        }),
        ("queue gone", |sight, _, it| {
            sight.queues.remove(&it.host.ifindex);
        }),
    ];
    for limits in [Limits::default(), limited()] {
        let records: Vec<_> = (0..3)
            .map(|number| record(number, InterfaceKind::Veth, limits))
            .collect();
        for (what, spoil) in all {
            let needs_limits = ["shaper", "queue gone"];
            let of_limits = needs_limits.iter().any(|it| what.starts_with(it));
            if of_limits && limits.is_unlimited() {
                continue;
            }
            let (mut sight, mut links) = whole(&records);
            spoil(&mut sight, &mut links, &records[1]);
            let found = look(&mut sight, links, &records);
            assert_eq!(found, BTreeSet::from([1]), "{what}, {limits:?}");
        }
    }
}

#[test]
fn sockets_and_ports_of_the_switch_are_looked_at_too() {
    let kinds = [
        InterfaceKind::Veth,
        InterfaceKind::AfXdp,
        InterfaceKind::Memif,
    ];
    let records: Vec<_> = (0..)
        .zip(kinds)
        .map(|(number, kind)| record(number, kind, Limits::default()))
        .collect();
    let (mut sight, links) = whole(&records);
    assert_eq!(look(&mut sight, links.clone(), &records), BTreeSet::new());
    assert_eq!(sight.dumps, 2, "queues, and the switch");
    for record in &records {
        sight.broken.insert(record.host.name.clone());
        sight.untold.insert(record.host.name.clone());
    }
    let found = look(&mut sight, links.clone(), &records);
    assert_eq!(found, BTreeSet::from([1, 2]));
    // Without an answer of the switch nothing is known of its ports, and all of others.
    (sight.broken, sight.untold) = Default::default();
    sight.is_switch_stuck = true;
    assert_eq!(look(&mut sight, links, &records), BTreeSet::from([2]));
}

#[test]
fn the_way_out_of_a_port_that_the_node_routes_for_is_looked_at_too() {
    let records: Vec<_> = [false, true]
        .into_iter()
        .zip(0..)
        .map(|(by_node, number)| {
            let mut record = record(number, InterfaceKind::Veth, Limits::default());
            record.network.by_node = by_node;
            record
        })
        .collect();
    let (mut sight, links) = whole(&records);
    assert_eq!(look(&mut sight, links.clone(), &records), BTreeSet::new());
    sight.open.extend(records.iter().map(|it| it.host.ifindex));
    assert_eq!(look(&mut sight, links, &records), BTreeSet::from([1]));
}

/// A rate that this kernel cannot keep is told again at each audit.
#[test]
fn a_port_with_a_rate_on_a_kernel_without_rates_is_a_suspect() {
    let records = [
        record(0, InterfaceKind::Veth, limited()),
        record(1, InterfaceKind::Veth, Limits::default()),
    ];
    let (mut sight, links) = whole(&records);
    let found = suspects(&mut sight, &Survey::of(links), &records, None).unwrap();
    assert_eq!(found, BTreeSet::from([0]));
}
