//! Limits from any state to any wanted ones, with a failure at any step.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::Mode;
use book::bandwidth::Source;
use book::samples;
use netdev::ShapeState;
use telemetry::fate::{Calls, Fate, Fated, Refused, call};

use super::*;

const HOST: u32 = 7;

/// Queues of one port, and what leads there.
#[derive(Debug)]
struct Things {
    host: RootQueue,
    /// The near end's index, its queue, and both ends are up and guarded.
    pair: Option<(u32, RootQueue, bool)>,
    /// Packets from the pod meet the dispatcher at the far end.
    guarded: bool,
    /// The drained near end, and whether the far end has passed the last packets.
    drained: Option<(u32, bool)>,
    /// Indexes whose drops are counted no more.
    forgotten: Vec<u32>,
    /// The record that the tables are written from.
    tables: Attachment,
    disk: Attachment,
    last_index: u32,
    calls: Calls,
}

impl Fated for Things {
    fn calls(&mut self) -> &mut Calls {
        &mut self.calls
    }
}

impl Things {
    fn seen(&self) -> Seen {
        let end = |ifindex, up| End { ifindex, up };
        Seen {
            host: self.host.clone(),
            near: self.pair.is_some(),
            pair: self
                .pair
                .clone()
                .map(|(near, queue, up)| (end(near, up), end(near + 1, up), queue)),
        }
    }

    /// Fails when packets would come to a far end that the tables do not know.
    fn assert_shaper_changes_in_order(&self, next: &Attachment) {
        let is_new = |it: &Shaper| it.used && self.tables.limits.egress.is_none();
        if let Some(shaper) = next.shaper.filter(is_new) {
            let known = self.tables.shaper.map(|it| (it.near, it.far));
            let own = Some((shaper.near, shaper.far));
            assert_eq!(known, own, "it is filled before its far end is known");
        }
        if let (Some(shaper), None) = (self.tables.shaper, next.shaper) {
            let drained = Some((shaper.near, true));
            assert_eq!(self.drained, drained, "packets are on their way still");
        }
    }

    /// Fails when tables lead packets where there is no queue of ours.
    fn assert_led(&self) {
        let tables = &self.tables;
        if tables.limits.ingress.is_some() {
            let is_ours = matches!(self.host, RootQueue::Ours(_));
            assert!(is_ours, "tables lead to no queue: {self:?}");
        }
        if let Some(shaper) = tables.shaper {
            let near = self.pair.as_ref().map(|pair| pair.0);
            assert_eq!(near, Some(shaper.near), "tables lead to no shaper");
        }
    }
}

#[derive(Debug, Clone)]
struct Fake(Arc<Mutex<Things>>);

fn ours(shape: Shape) -> RootQueue {
    RootQueue::Ours(ShapeState {
        shape,
        discipline: Some(Discipline::Fifo),
        backlog_bytes: 0,
        backlog_packets: 0,
        dropped_packets: 0,
        sent_bytes: 0,
        sent_packets: 0,
        overlimits: 0,
    })
}

fn foreign() -> RootQueue {
    RootQueue::Foreign {
        kind: "htb".to_owned(),
    }
}

impl Fake {
    fn things(&self) -> MutexGuard<'_, Things> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call<T>(
        &self,
        name: &'static str,
        effect: impl FnOnce(&mut Things) -> T,
    ) -> Result<T, PortError> {
        let done = call(&self.0, name, |things| {
            let done = effect(things);
            things.assert_led();
            done
        });
        let what = "the test refuses";
        Ok(done.map_err(|Refused| netdev::Error::Malformed { what })?)
    }
}

impl Work for Fake {
    fn discipline(&self, _: &Limits) -> Result<Discipline, PortError> {
        Ok(Discipline::Fifo)
    }

    async fn seen(&self, _: &Attachment) -> Result<Seen, PortError> {
        self.call("look", |things| things.seen())
    }

    async fn save(&self, record: &Attachment) -> Result<(), PortError> {
        self.call("save", |things| things.disk = record.clone())
    }

    fn write(&self, record: &Attachment) -> Result<(), PortError> {
        self.call("write", |things| {
            let (old, new) = (things.tables.limits, record.limits);
            for direction in Direction::ALL {
                let is_recorded = things.disk.limits.of(direction) == new.of(direction);
                let is_kept = old.of(direction) == new.of(direction);
                assert!(is_recorded || is_kept, "an effect before its record");
            }
            things.assert_shaper_changes_in_order(record);
            things.tables = record.clone();
        })
    }

    async fn shape(&self, index: u32, shape: Shape, _: Discipline) -> Result<(), PortError> {
        self.call("shape", |things| match &mut things.pair {
            Some((near, queue, _)) if *near == index => *queue = ours(shape),
            _ => {
                assert_eq!(index, HOST);
                things.host = ours(shape);
            }
        })
    }

    async fn unshape(&self, ifindex: u32) -> Result<(), PortError> {
        self.call("unshape", |things| {
            assert_eq!(ifindex, HOST);
            let is_ours = matches!(things.host, RootQueue::Ours(_));
            assert!(is_ours, "a queue of somebody else is removed");
            things.host = RootQueue::Default;
        })
    }

    async fn make_pair(&self, pair: Pair) -> Result<Shaper, PortError> {
        self.call("make a pair", |things| {
            // In place of one that the tables may lead to: they are told of this one next.
            things.tables.shaper = None;
            let near = things.last_index + 1;
            things.last_index += 2;
            things.pair = Some((near, ours(pair.shape), true));
            things.guarded = true;
            Shaper {
                near,
                far: near + 1,
                used: true,
            }
        })
    }

    async fn is_attached(&self, _: &HostEnd) -> Result<bool, PortError> {
        self.call("look at the far end", |things| things.guarded)
    }

    async fn attach_again(&self, _: u32) -> Result<(), PortError> {
        self.call("attach again", |things| things.guarded = true)
    }

    async fn restart(&self, _: u32, _: u32) -> Result<(), PortError> {
        self.call("restart", |things| {
            assert!(things.guarded, "the far end is up before it is guarded");
            things.pair.as_mut().expect("a pair").2 = true;
        })
    }

    async fn let_go(&self, near: u32) -> Result<(), PortError> {
        self.call("let go", |things| {
            let shaper = things.tables.shaper.expect("recorded until it is empty");
            assert_eq!((shaper.near, shaper.used), (near, false), "it fills");
            things.drained = Some((near, false));
        })
    }

    async fn wait_for_far_end(&self) {
        let mut things = self.things();
        let (near, _) = things.drained.expect("a queue that has run empty");
        things.drained = Some((near, true));
    }

    async fn delete(&self, _: String) -> Result<(), PortError> {
        self.call("delete a pair", |things| things.pair = None)
    }

    fn forget_queue(&self, ifindex: u32) {
        self.things().forgotten.push(ifindex);
    }
}

fn rate(rate: u64) -> Limit {
    Limit {
        rate,
        burst: None,
        source: Source::Network,
    }
}

/// Each pair of limits of two rates, and none.
fn all_limits() -> Vec<Limits> {
    let rates = [None, Some(rate(8_000_000)), Some(rate(80_000_000))];
    let pairs = rates
        .iter()
        .flat_map(|ingress| rates.iter().map(|egress| (*ingress, *egress)));
    pairs
        .map(|(ingress, egress)| Limits { ingress, egress })
        .collect()
}

/// A port with these limits, and then what somebody has done to it.
fn port(limits: Limits, spoiled: usize) -> (Fake, Attachment) {
    let network = samples::network("blue", Mode::L3, &[("10.10.0.0/24", "10.10.0.1")]);
    let mut record = samples::record(&network, |wanted| wanted.limits = limits);
    record.host.ifindex = HOST;
    record.shaper = limits.egress.map(|_| Shaper {
        near: 21,
        far: 22,
        used: true,
    });
    let shape = |limit: Limit| ours(limit.shape(1500));
    let mut things = Things {
        host: limits.ingress.map_or(RootQueue::Default, shape),
        pair: limits.egress.map(|limit| (21, shape(limit), true)),
        tables: record.clone(),
        disk: record.clone(),
        guarded: true,
        drained: None,
        forgotten: Vec::new(),
        last_index: 30,
        calls: Calls::default(),
    };
    match spoiled {
        // A queue of another program, where ours is not; one in the place of ours is no case of rest.
        1 if limits.ingress.is_none() => things.host = foreign(),
        // A shaper that no record names.
        2 if limits.egress.is_none() => things.pair = Some((41, RootQueue::Default, false)),
        // Its ends are down and its queue is another.
        3 => {
            if let Some((_, queue, up)) = &mut things.pair {
                (*queue, *up) = (foreign(), false);
                things.guarded = false;
            }
        }
        _ => {}
    }
    (Fake(Arc::new(Mutex::new(things))), record)
}

/// Fails unless queues, tables and disk are as the limits say.
///
/// Another look does nothing then.
async fn assert_settled(fake: &Fake, limits: Limits, was_foreign: bool, after: &str) {
    let record = fake.things().tables.clone();
    assert_eq!(record.limits, limits, "{after}");
    {
        let things = fake.things();
        // A start finds the rest by names, and records it.
        assert_eq!(things.disk.limits, limits, "{after}");
        match limits.ingress {
            Some(limit) => assert!(is(&things.host, &limit.shape(1500), Discipline::Fifo)),
            None if was_foreign => assert_eq!(things.host, foreign(), "{after}"),
            None => assert_eq!(things.host, RootQueue::Default, "{after}"),
        }
        match (limits.egress, &things.pair) {
            (None, None) => assert_eq!(record.shaper, None, "{after}"),
            (Some(limit), Some((near, queue, true))) => {
                assert!(things.guarded, "{after}");
                assert!(is(queue, &limit.shape(1500), Discipline::Fifo), "{after}");
                assert_eq!(
                    record.shaper.map(|it| (it.near, it.used)),
                    Some((*near, true))
                );
            }
            other => panic!("{after}: {other:?}"),
        }
    }
    fake.things().calls.expect(None);
    limit(fake, &record, limits).await.unwrap();
    let calls = fake.things().calls.expect(None);
    assert!(only_looks(&calls), "{after}: settled, and {calls:?}");
    // A glance finds nothing to do either.
    let seen = fake.things().seen();
    assert!(
        seen.is_settled(&record, Some(Discipline::Fifo)),
        "{after}: {seen:?}"
    );
}

fn only_looks(calls: &[&str]) -> bool {
    calls.iter().all(|name| name.starts_with("look"))
}

/// A glance passes over no port that a whole look would change.
#[tokio::test]
async fn queues_that_are_passed_over_at_a_glance_are_not_touched_by_a_whole_look() {
    let (mut settled, mut touched) = (0, 0);
    for limits in all_limits() {
        for spoiled in 0..7 {
            let (fake, mut record) = port(limits, spoiled);
            match spoiled {
                4 => record.queued = true,
                5 => record.shaper = None,
                6 => record.shaper.iter_mut().for_each(|it| it.used = false),
                _ => {}
            }
            {
                let mut things = fake.things();
                // The program of the far end is looked for in any case.
                things.guarded = true;
                (things.tables, things.disk) = (record.clone(), record.clone());
            }
            let seen = fake.things().seen();
            let passed = seen.is_settled(&record, Some(Discipline::Fifo));
            assert!(limits.is_unlimited() || !seen.is_settled(&record, None));
            limit(&fake, &record, limits).await.unwrap();
            let calls = fake.things().calls.expect(None);
            let after = format!("{limits:?}, spoiled: {spoiled}: {calls:?}");
            assert_eq!(passed, only_looks(&calls), "{after}");
            settled += usize::from(passed);
            touched += usize::from(!passed);
        }
    }
    assert!(settled > 9 && touched > 9, "{settled} and {touched}");
}

#[tokio::test]
async fn limits_are_as_wanted_whatever_there_was_and_whichever_step_failed_first() {
    let mut steps = 0;
    for before in all_limits() {
        for wanted in all_limits() {
            for spoiled in 0..4 {
                let was_foreign = spoiled == 1 && before.ingress.is_none();
                let (fake, record) = port(before, spoiled);
                let limited = limit(&fake, &record, wanted).await.unwrap();
                let calls = fake.things().calls.expect(None);
                let after = format!("{before:?} to {wanted:?}, {spoiled}");
                // Told as limited: on the disk, the ends of a shaper too.
                assert_eq!(fake.things().disk, limited, "{after}");
                let was_limited = [
                    before
                        .ingress
                        .and(Some(HOST))
                        .filter(|_| wanted.ingress.is_none()),
                    before
                        .egress
                        .and(Some(21))
                        .filter(|_| wanted.egress.is_none()),
                ];
                let gone: Vec<u32> = was_limited.into_iter().flatten().collect();
                assert_eq!(fake.things().forgotten, gone, "{after}: drops counted");
                assert_settled(&fake, wanted, was_foreign, &after).await;
                steps += calls.len();
                for (at, name) in calls.iter().enumerate() {
                    for fate in Fate::FAILURES {
                        let after = format!("{after}: {fate:?} at {name}, call {at}");
                        let (fake, record) = port(before, spoiled);
                        fake.things().calls.expect(Some((at, fate)));
                        limit(&fake, &record, wanted).await.expect_err(&after);
                        fake.things().calls.expect(None);
                        // The audit comes back, with the record that there is by now.
                        let record = fake.things().tables.clone();
                        limit(&fake, &record, wanted).await.expect(&after);
                        assert_settled(&fake, wanted, was_foreign, &after).await;
                    }
                }
            }
        }
    }
    assert!(steps > 1000, "{steps}");
}
