//! Failures and deaths at each step of ports of every kind leave nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{Interface, InterfaceKind, Mode, Routing};
use book::bandwidth::{Limit, Limits, Source};
use book::record::{Attachment, Device, HostEnd, State};
use book::samples;
use datapath::PinDir;
use host::host_name;
use netdev::Netns;
use proptest::prelude::*;
use telemetry::fate::{Dead, Fate, Refused};
use tokio::runtime::Runtime;

use super::{activate, drop_stale_pins, limit, make, mend_hook, remove_strays, repair, unmake};
use crate::{PortError, links_of};

mod fakes;

use fakes::{FakeKernel, FakeParts};

/// A kind of port.
#[derive(Debug, Clone, Copy)]
struct Kind {
    kind: InterfaceKind,
    ingress: bool,
    egress: bool,
    /// The node routes for its network.
    by_node: bool,
    /// It is a device of Kubernetes.
    device: bool,
}

/// Each kind of port, with and without rates, device and routes of the node.
fn kinds() -> Vec<Kind> {
    let mut all = Vec::new();
    for kind in [
        InterfaceKind::Veth,
        InterfaceKind::AfXdp,
        InterfaceKind::Memif,
    ] {
        for bits in 0..16_u8 {
            let bit = |number: u8| bits & (1 << number) != 0;
            let (ingress, egress, by_node, device) = (bit(0), bit(1), bit(2), bit(3));
            // A veth is no device, and the node routes to links in pods only.
            let is_possible = match kind {
                InterfaceKind::Veth => !device,
                InterfaceKind::AfXdp => true,
                InterfaceKind::Memif => !by_node,
            };
            if is_possible {
                all.push(Kind {
                    kind,
                    ingress,
                    egress,
                    by_node,
                    device,
                });
            }
        }
    }
    all
}

/// The record of such a port, as the engine has it before the first step.
fn record(kind: Kind, container: &str) -> Attachment {
    let mut network = samples::network("blue", Mode::L3, &[("10.10.0.0/24", "10.10.0.1")]);
    if kind.by_node {
        network.routing = Routing::Node;
    }
    let limit = Limit {
        rate: 8_000_000,
        burst: None,
        source: Source::Network,
    };
    samples::record(&network, |wanted| {
        wanted.key = samples::key(container, "net1");
        wanted.interface = Interface {
            kind: kind.kind,
            queues: 1,
        };
        wanted.limits = Limits {
            ingress: kind.ingress.then_some(limit),
            egress: kind.egress.then_some(limit),
        };
        wanted.device = kind.device.then(|| Device {
            resource: "podnet.dev/blue".to_owned(),
            id: container.to_owned(),
        });
        let is_socket = kind.kind != InterfaceKind::Veth;
        wanted.socket_path = is_socket.then(|| format!("/none/{container}/socket").into());
    })
}

/// A node, and its agent.
struct Scene {
    runtime: Runtime,
    kernel: FakeKernel,
    parts: Arc<FakeParts>,
}

impl Scene {
    fn new() -> Self {
        let kernel = FakeKernel::default();
        let runtime = tokio::runtime::Builder::new_current_thread();
        Self {
            runtime: { runtime }.build().unwrap(),
            parts: Arc::new(FakeParts::new(&kernel)),
            kernel,
        }
    }

    fn expect(&self, fate: Option<(usize, Fate)>) -> Vec<&'static str> {
        self.kernel.things().calls.expect(fate)
    }

    /// Runs the work of the agent; none when it died.
    fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let joined = self.runtime.block_on(async { tokio::spawn(work).await });
        match joined {
            Ok(done) => Some(done),
            Err(died) => {
                let payload = died.into_panic();
                if !payload.is::<Dead>() {
                    std::panic::resume_unwind(payload);
                }
                None
            }
        }
    }

    /// Makes a port as the engine does.
    ///
    /// Record and tables have it while its pod's end is down.
    fn add(&self, record: &Attachment) -> Option<Result<(), PortError>> {
        let (parts, record) = (Arc::clone(&self.parts), record.clone());
        let name = record.host.name.clone();
        self.kernel.things().asked.insert(name, record.clone());
        self.run(async move {
            let netns = Netns::current()?;
            let (kernel, booked) = (parts.kernel.clone(), record.clone());
            let live = move |ends: Result<_, PortError>| -> Result<Attachment, PortError> {
                let name = booked.host.name.clone();
                let recorded = kernel.call("record", |things| {
                    things.book.insert(name.clone(), booked.clone());
                });
                recorded.map_err(|Refused| PortError::LinksUnwatched)?;
                let ends: crate::Ends = ends?;
                let added = Attachment {
                    state: State::Added,
                    host: HostEnd {
                        name: name.clone(),
                        ifindex: ends.host_end,
                    },
                    shaper: ends.shaper,
                    ..booked
                };
                let live = kernel.call("write the tables", |things| {
                    things.live.insert(ends.host_end);
                    things.book.insert(name, added.clone());
                });
                live.map_err(|Refused| PortError::LinksUnwatched)?;
                Ok(added)
            };
            let added = make(&*parts, &record, &netns, live).await?;
            activate(&*parts, &added, &netns).await
        })
    }

    /// Removes a port as the engine does.
    ///
    /// It goes out of the tables first, and out of the book last.
    fn remove(&self, record: &Attachment) -> Option<Result<(), PortError>> {
        let parts = Arc::clone(&self.parts);
        let known = self.known(record);
        self.run(async move {
            let name = known.host.name.clone();
            let dead = parts.kernel.call("clear the tables", |things| {
                things.live.remove(&known.host.ifindex);
            });
            dead.map_err(|Refused| PortError::LinksUnwatched)?;
            unmake(&*parts, &known).await?;
            let erased = parts.kernel.call("erase the record", |things| {
                things.book.remove(&name);
            });
            erased.map_err(|Refused| PortError::LinksUnwatched)
        })
    }

    /// The record in the book, else the one of the request: an undo has that.
    fn known(&self, record: &Attachment) -> Attachment {
        let things = self.kernel.things();
        let known = things.book.get(&record.host.name);
        known.unwrap_or(record).clone()
    }

    /// The next agent after a death: what is whole stays, the rest goes.
    fn restart(&mut self) {
        self.expect(None);
        self.parts = Arc::new(FakeParts::new(&self.kernel));
        let records: Vec<Attachment> = self.kernel.things().book.values().cloned().collect();
        let mut known = BTreeSet::new();
        for record in &records {
            known.extend(links_of(record));
            let is_added = record.state == State::Added;
            if is_added {
                let (parts, record) = (Arc::clone(&self.parts), record.clone());
                self.run(async move {
                    limit(&*parts, &record, record.limits).await.unwrap();
                    repair(&*parts, &record).await.unwrap();
                });
            } else {
                self.remove(record).unwrap().unwrap();
            }
        }
        let parts = Arc::clone(&self.parts);
        self.run(async move {
            let survey = super::Parts::look(&*parts).await.unwrap();
            remove_strays(&*parts, &survey, &known).await.unwrap();
            let pins = PinDir::new("/none".into());
            drop_stale_pins(&*parts, &pins, |_| false).await.unwrap();
        });
    }

    /// Lists the remains of ports, in words.
    ///
    /// A socket in the directory of a device stays until another pod gets the device.
    fn left(&self) -> String {
        let things = self.kernel.things();
        let mut left = String::new();
        let mut say = |is_left: bool, what: String| {
            if is_left {
                left.push_str(&what);
            }
        };
        say(!things.links.is_empty(), format!("{:?}", things.links));
        say(!things.pins.is_empty(), format!("pins {:?}", things.pins));
        say(!things.xsk.is_empty(), format!("pins {:?}", things.xsk));
        say(!things.shared.is_empty(), format!("{:?}", things.shared));
        let is_left = things.controls.values().any(|in_device| !in_device);
        say(is_left, format!("sockets {:?}", things.controls));
        say(!things.told.is_empty(), format!("told {:?}", things.told));
        say(!things.switch.is_empty(), format!("{:?}", things.switch));
        say(!things.live.is_empty(), format!("live {:?}", things.live));
        say(!things.book.is_empty(), format!("{:?}", things.book.keys()));
        say(!things.waiting.is_empty(), format!("{:?}", things.waiting));
        left
    }

    /// Fails with what is left of ports that were removed by an agent that lived.
    fn assert_nothing_left(&self, after: &str) {
        assert_eq!(self.left(), "", "{after}");
        let controls = self.kernel.things().controls.clone();
        assert!(controls.is_empty(), "{after}: {controls:?}");
    }

    /// Fails unless the port is there with all that its kind has.
    fn assert_whole(&self, record: &Attachment, after: &str) {
        let things = self.kernel.things();
        let name = &record.host.name;
        let ifindex = things.index_of(name).expect(after);
        assert_eq!(things.book[name].host.ifindex, ifindex, "{after}");
        assert!(things.live.contains(&ifindex), "{after}");
        assert!(things.waiting.contains(&ifindex), "{after}");
        let link = &things.links[&ifindex];
        assert!(link.up && link.guarded, "{after}: {link:?}");
        assert_eq!(link.reached, record.network.by_node, "{after}: {link:?}");
        assert_eq!(link.judged, record.network.by_node, "{after}: {link:?}");
        if record.is_switched() {
            assert!(things.switch.contains(&record.key.to_string()), "{after}");
        } else {
            assert_eq!(link.pod_end, Some(true), "{after}");
        }
        let is_socket = record.socket_path.is_some();
        assert_eq!(things.told.contains(name), is_socket, "{after}");
        assert_eq!(things.controls.contains_key(name), record.is_afxdp());
        assert_eq!(things.xsk.contains(name), record.is_afxdp(), "{after}");
        let is_shared = record.is_afxdp() && record.device.is_some();
        assert_eq!(!things.shared.is_empty(), is_shared, "{after}");
    }

    /// Gives the host ends that wait for it a TCX link, which has a pin.
    fn promote(&self) {
        let mut things = self.kernel.things();
        let waiting = std::mem::take(&mut things.waiting);
        things.pins.extend(waiting);
    }
}

/// The calls that making and removing such a port take.
fn clean_run(kind: Kind) -> (Vec<&'static str>, Vec<&'static str>) {
    let scene = Scene::new();
    let record = record(kind, "c1");
    scene.add(&record).unwrap().unwrap();
    let after = format!("{kind:?}");
    scene.assert_whole(&record, &after);
    // The first packet to the pod may follow the answer at once.
    let queued = record.host_end_queues() || record.is_switched();
    let links = scene.kernel.things().links.clone();
    let started = links.values().any(|link| link.started);
    assert_eq!(started, queued, "{after}: {links:?}");
    let made = scene.expect(None);
    scene.promote();
    scene.remove(&record).unwrap().unwrap();
    let removed = scene.expect(None);
    scene.assert_nothing_left(&after);
    (made, removed)
}

#[test]
fn a_port_of_any_kind_that_fails_at_any_step_leaves_nothing_once_it_is_undone() {
    for kind in kinds() {
        let (calls, _) = clean_run(kind);
        assert!(calls.len() >= 8, "{kind:?}: {calls:?}");
        for (at, name) in calls.iter().enumerate() {
            for fate in Fate::FAILURES {
                let after = format!("{kind:?}: {fate:?} at {name}");
                let scene = Scene::new();
                let record = record(kind, "c1");
                scene.expect(Some((at, fate)));
                scene.add(&record).unwrap().expect_err(&after);
                scene.expect(None);
                scene.remove(&record).unwrap().expect(&after);
                scene.assert_nothing_left(&after);
                scene.add(&record).unwrap().expect(&after);
                scene.assert_whole(&record, &after);
            }
        }
    }
}

#[test]
fn an_agent_that_dies_at_any_step_of_a_port_leaves_all_of_it_or_nothing() {
    for kind in kinds() {
        let (calls, _) = clean_run(kind);
        for (at, name) in calls.iter().enumerate() {
            for fate in Fate::DEATHS {
                let after = format!("{kind:?}: {fate:?} at {name}");
                let mut scene = Scene::new();
                let record = record(kind, "c1");
                scene.expect(Some((at, fate)));
                assert!(scene.add(&record).is_none(), "{after}");
                scene.restart();
                // Its runtime had no answer, so `DEL` comes.
                if scene.kernel.things().book.is_empty() {
                    assert_eq!(scene.left(), "", "{after}");
                }
                scene.remove(&record).unwrap().expect(&after);
                scene.assert_nothing_left(&after);
            }
        }
    }
}

#[test]
fn a_port_whose_removal_fails_or_dies_at_any_step_goes_at_the_next() {
    for kind in kinds() {
        let (_, calls) = clean_run(kind);
        assert!(calls.len() >= 4, "{kind:?}: {calls:?}");
        for (at, name) in calls.iter().enumerate() {
            for fate in Fate::FAILURES.into_iter().chain(Fate::DEATHS) {
                let after = format!("{kind:?}: {fate:?} at {name}");
                let mut scene = Scene::new();
                let record = record(kind, "c1");
                scene.add(&record).unwrap().expect(&after);
                scene.promote();
                let known = scene.known(&record);
                scene.expect(Some((at, fate)));
                if scene.remove(&record).is_none() {
                    scene.expect(None);
                    // Written as going before the first step, so the next agent goes on.
                    let going = Attachment {
                        state: State::Deleting,
                        ..known.clone()
                    };
                    let mut things = scene.kernel.things();
                    if let Some(booked) = things.book.get_mut(&record.host.name) {
                        *booked = going;
                    }
                    drop(things);
                    scene.restart();
                } else {
                    scene.expect(None);
                    scene.remove(&record).unwrap().expect(&after);
                }
                if scene.kernel.things().controls.values().all(|it| *it) {
                    assert_eq!(scene.left(), "", "{after}");
                }
                scene.remove(&known).unwrap().expect(&after);
                scene.assert_nothing_left(&after);
            }
        }
    }
}

/// The program of an uplink is pinned as those of ports are.
#[test]
fn a_pin_goes_with_its_link_unless_another_room_keeps_it() {
    let scene = Scene::new();
    scene.kernel.things().pins.extend([7, 8]);
    let parts = Arc::clone(&scene.parts);
    scene.run(async move {
        let pins = PinDir::new("/none".into());
        let kept = |ifindex| ifindex == 7;
        drop_stale_pins(&*parts, &pins, kept).await.unwrap();
    });
    assert_eq!(scene.kernel.things().pins, BTreeSet::from([7]));
}

#[test]
fn a_port_that_goes_before_its_tcx_link_came_waits_for_it_no_more() {
    for kind in kinds() {
        let scene = Scene::new();
        let record = record(kind, "c1");
        scene.add(&record).unwrap().unwrap();
        scene.remove(&record).unwrap().unwrap();
        scene.assert_nothing_left(&format!("{kind:?}"));
    }
}

/// A kind of port with a rate each way, and with all that its kind may have.
fn full(kind: InterfaceKind) -> Kind {
    Kind {
        kind,
        ingress: true,
        egress: true,
        by_node: false,
        device: kind != InterfaceKind::Veth,
    }
}

#[test]
fn a_port_goes_from_its_users_to_its_files_and_is_counted_before_its_queues_go() {
    let links = ["delete a link by name"; 2];
    let ends: [(_, &[&str], &[&str]); 3] = [
        (InterfaceKind::Veth, &[], &[]),
        (
            InterfaceKind::AfXdp,
            &[],
            &["shut a control socket", "remove pins"],
        ),
        (InterfaceKind::Memif, &["unplug"], &[]),
    ];
    for (kind, users, files) in ends {
        let (_, removed) = clean_run(full(kind));
        let expected = [
            &["clear the tables"],
            users,
            &["count drops"],
            &links,
            &["forget a pin"],
            files,
            &["erase the record"],
        ];
        assert_eq!(removed, expected.concat(), "{kind:?}");
    }
}

#[test]
fn a_port_that_lost_its_program_or_its_socket_gets_it_again() {
    for kind in kinds() {
        let after = format!("{kind:?}");
        let scene = Scene::new();
        let record = record(kind, "c1");
        scene.add(&record).unwrap().unwrap();
        let known = scene.known(&record);
        {
            let mut things = scene.kernel.things();
            let ifindex = known.host.ifindex;
            things.links.get_mut(&ifindex).unwrap().guarded = false;
            things.links.get_mut(&ifindex).unwrap().judged = false;
            things.robbed.insert(ifindex);
            things.waiting.clear();
            things.controls.clear();
        }
        let parts = Arc::clone(&scene.parts);
        let mended = scene.run(async move {
            let missing = mend_hook(&*parts, &known).await?;
            repair(&*parts, &known).await?;
            Ok::<_, PortError>((missing, mend_hook(&*parts, &known).await?))
        });
        assert_eq!(mended.unwrap().unwrap(), (true, false), "{after}");
        scene.assert_whole(&record, &after);
    }
}

/// The switch bypasses the tables: it hears of a limit before and after.
#[test]
fn a_switch_knows_limits_before_the_queues_change_and_as_they_are_after_that() {
    for kind in [InterfaceKind::Veth, InterfaceKind::Memif] {
        let scene = Scene::new();
        let record = record(full(kind), "c1");
        scene.add(&record).unwrap().unwrap();
        let known = scene.known(&record);
        scene.expect(None);
        let parts = Arc::clone(&scene.parts);
        let limited = scene.run(async move { limit(&*parts, &known, Limits::default()).await });
        limited.unwrap().unwrap();
        let calls = scene.expect(None);
        let told = scene.kernel.things().switched_limits;
        if kind == InterfaceKind::Veth {
            assert_eq!(calls, ["shape"]);
            assert_eq!(told, None);
        } else {
            assert_eq!(calls, ["tell the switch", "shape", "tell the switch"]);
            assert_eq!(told, Some(Limits::default()));
        }
    }
}

/// A step of a random life of several ports.
#[derive(Debug, Clone)]
enum Step {
    Add(usize, Option<(usize, Fate)>),
    Remove(usize, Option<(usize, Fate)>),
    Promote,
    Restart,
}

fn fate() -> impl Strategy<Value = Option<(usize, Fate)>> {
    let all = Fate::FAILURES.into_iter().chain(Fate::DEATHS);
    let all: Vec<Fate> = all.collect();
    proptest::option::weighted(0.7, (0..24_usize, proptest::sample::select(all)))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_usize, fate()).prop_map(|(port, fate)| Step::Add(port, fate)),
        3 => (0..3_usize, fate()).prop_map(|(port, fate)| Step::Remove(port, fate)),
        1 => Just(Step::Promote),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(192) })]

    #[test]
    fn ports_of_all_kinds_come_and_go_with_any_misfortune_and_leave_nothing(
        chosen in proptest::collection::vec(proptest::sample::select(kinds()), 3),
        steps in proptest::collection::vec(step(), 1..24),
    ) {
        let mut scene = Scene::new();
        let names = ["c1", "c2", "c3"];
        let records: Vec<Attachment> = chosen
            .iter()
            .zip(names)
            .map(|(kind, name)| record(*kind, name))
            .collect();
        for step in steps {
            match step {
                Step::Add(port, fate) => {
                    let record = &records[port];
                    let is_there = scene.kernel.things().book.contains_key(&record.host.name);
                    if is_there {
                        continue;
                    }
                    scene.expect(fate);
                    let added = scene.add(record);
                    scene.expect(None);
                    match added {
                        None => scene.restart(),
                        Some(Ok(())) => {}
                        Some(Err(_)) => scene.remove(record).unwrap().unwrap(),
                    }
                }
                Step::Remove(port, fate) => {
                    let record = &records[port];
                    let name = host_name(&record.key);
                    if let Some(booked) = scene.kernel.things().book.get_mut(&name) {
                        booked.state = State::Deleting;
                    }
                    scene.expect(fate);
                    let removed = scene.remove(record);
                    scene.expect(None);
                    match removed {
                        None => scene.restart(),
                        Some(Ok(())) => {}
                        Some(Err(_)) => scene.remove(record).unwrap().unwrap(),
                    }
                }
                Step::Promote => scene.promote(),
                Step::Restart => scene.restart(),
            }
            scene.kernel.things().assert_guarded();
        }
        for record in &records {
            scene.remove(record).unwrap().unwrap();
        }
        scene.assert_nothing_left("all are removed");
    }
}
