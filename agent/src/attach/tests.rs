//! Failures and deaths at each call of an attachment's life: nothing is left of it.
//!
//! The calls are counted in a run without misfortune, so a new step is covered by being one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::{Mode, Network};
use book::bandwidth::{Limit, Source};
use book::host_ports::{HostPort, HostProtocol};
use book::ledger::Wanted;
use book::record::{Sandbox, State};
use book::samples;
use book::{self, Book};
use cni_spec::AttachmentKey;
use datapath::PinDir;
use netdev::Netns;
use store::Table;
use store::fake::{Disk, Fault, Survivors};
use telemetry::fate::{Dead, Fate};

use super::Attachments;
use crate::error::AgentError;

mod audit;
mod collect;
mod fakes;
mod mend;
mod order;
mod recover;
mod walk;

use fakes::{FakeGiver, FakePorts, FakeReach, FakeTables, Kernel};

type Engine = Attachments<FakePorts, FakeReach, FakeTables, FakeGiver>;

const NETNS: &str = "/proc/self/ns/net";

/// A node: what outlives an agent.
struct Scene {
    kernel: Kernel,
    disk: Disk,
    state: tempfile::TempDir,
    network: Network,
    /// Attachments have a rate each way.
    is_limited: bool,
}

impl Scene {
    fn of(is_limited: bool) -> Self {
        Self {
            is_limited,
            kernel: Kernel::default(),
            disk: Disk::with_store().unwrap(),
            state: tempfile::tempdir().unwrap(),
            network: samples::network("blue", Mode::L2, &[("10.10.0.0/24", "10.10.0.1")]),
        }
    }

    /// An agent that has read the records.
    async fn start(&self) -> Arc<Engine> {
        let store = self.disk.open().unwrap();
        let found = book::read(&store, self.state.path(), 16).await.unwrap();
        let book = Arc::new(Book::new(found, store, Duration::from_secs(1)));
        Arc::new(Attachments::new(
            Arc::clone(&book),
            Arc::new(FakePorts(self.kernel.clone())),
            Arc::new(FakeReach(self.kernel.clone(), Arc::clone(&book))),
            Arc::new(FakeTables(self.kernel.clone(), Arc::clone(&book))),
            FakeGiver(self.kernel.clone(), book),
        ))
    }

    async fn recovered(&self) -> Arc<Engine> {
        let engine = self.start().await;
        engine.recover(&PinDir::new("/none".into())).await.unwrap();
        engine
    }

    /// The next agent after a death: with what survived of the writes under way.
    async fn reborn(&mut self, survivors: Survivors) -> Arc<Engine> {
        self.kernel.expect(None);
        self.disk = self.disk.after_crash(survivors);
        self.recovered().await
    }

    fn wanted(&self, container: &str) -> Wanted {
        let mut wanted = samples::wanted(container);
        wanted.sandbox = Sandbox::of(NETNS, &netns());
        let limit = self.is_limited.then_some(Limit {
            rate: 8_000_000,
            burst: None,
            source: Source::Network,
        });
        (wanted.limits.ingress, wanted.limits.egress) = (limit, limit);
        // Of number 0, at which every look for listeners finds a free one; a number has one holder.
        let port = HostPort {
            protocol: HostProtocol::Tcp,
            host_ip: None,
            host_port: 0,
            container_port: 80,
        };
        wanted
            .host_ports
            .extend((container == "c1").then_some(port));
        wanted
    }

    /// `ADD`; none when the agent died.
    async fn add(&self, engine: &Arc<Engine>) -> Option<Result<(), AgentError>> {
        self.add_of(engine, "c1").await
    }

    async fn add_of(
        &self,
        engine: &Arc<Engine>,
        container: &str,
    ) -> Option<Result<(), AgentError>> {
        let (engine, wanted) = (Arc::clone(engine), self.wanted(container));
        let network = self.network.clone();
        let work = async move { engine.add(wanted, &network, &netns()).await.map(|_| ()) };
        alive(tokio::spawn(work).await)
    }

    /// `DEL`; none when the agent died.
    async fn remove(&self, engine: &Arc<Engine>) -> Option<Result<(), AgentError>> {
        self.remove_of(engine, "c1").await
    }

    async fn remove_of(
        &self,
        engine: &Arc<Engine>,
        container: &str,
    ) -> Option<Result<(), AgentError>> {
        let (engine, key) = (Arc::clone(engine), samples::key(container, "net1"));
        alive(tokio::spawn(async move { engine.remove(&key).await }).await)
    }

    /// Fails with what an attachment has left.
    fn assert_nothing_left(&self, engine: &Engine, after: &str) {
        let things = self.kernel.things();
        assert!(things.links.is_empty(), "{after}: {:?}", things.links);
        assert!(things.shapers.is_empty(), "{after}: {:?}", things.shapers);
        assert!(things.open.is_empty(), "{after}: {:?}", things.open);
        let mut tables = things.tables.values();
        assert!(
            tables.all(BTreeSet::is_empty),
            "{after}: {:?}",
            things.tables
        );
        assert!(things.ways_out.is_empty(), "{after}: {:?}", things.ways_out);
        assert!(things.mapped.is_empty(), "{after}: {:?}", things.mapped);
        let ledger = engine.book.ledger();
        assert!(ledger.is_empty(), "{after}: a record in the book");
        if let Some(id) = ledger.id_of("blue") {
            assert_eq!(ledger.usage_of(id), (0, 0), "{after}: leases");
        }
        drop(ledger);
        let rows = self.disk.after_crash(Survivors::None).open().unwrap();
        let rows = rows.rows(Table::Attachments).unwrap();
        assert_eq!(rows, [], "{after}: a record in the store");
    }

    /// Fails unless the attachment is there and its pod's end is up.
    fn assert_whole(&self, engine: &Engine, after: &str) {
        self.assert_kept(engine, after);
        let mut links = self.kernel.things().links.clone().into_values();
        assert!(
            links.all(|(_, is_up)| is_up),
            "{after}: the pod's end is down"
        );
    }

    /// Fails unless the attachment is there with all it needs at the node.
    fn assert_kept(&self, engine: &Engine, after: &str) {
        self.assert_kept_of(engine, "c1", after);
    }

    fn assert_kept_of(&self, engine: &Engine, container: &str, after: &str) {
        let key = samples::key(container, "net1");
        let ledger = engine.book.ledger();
        let entry = ledger.get(&key).expect(after);
        assert_eq!(
            (entry.record.state, entry.live),
            (State::Added, true),
            "{after}"
        );
        let things = self.kernel.things();
        let host = &entry.record.host;
        let link = things.links.get(&host.name);
        assert_eq!(
            link.map(|(ifindex, _)| *ifindex),
            Some(host.ifindex),
            "{after}"
        );
        assert!(things.open.contains(&host.name), "{after}");
        let shaper = things.shapers.get(&host.name).copied();
        assert_eq!(shaper, entry.record.shaper, "{after}");
        assert_eq!(shaper.is_some(), self.is_limited, "{after}");
        let network = entry.record.network.id;
        assert!(
            things.tables[&network].contains(&key.to_string()),
            "{after}"
        );
        assert!(things.ways_out.contains(&network), "{after}");
        let address = entry.record.leases[0].address;
        let is_mapped = things.mapped.contains(&address);
        assert_eq!(is_mapped, container == "c1", "{after}");
    }

    /// Fails unless `DEL` takes all of it away, and succeeds again after that.
    async fn assert_removable(&self, engine: &Arc<Engine>, after: &str) {
        self.kernel.expect(None);
        for _ in 0..2 {
            self.remove(engine).await.unwrap().expect(after);
            self.assert_nothing_left(engine, after);
        }
    }

    /// Fails unless everything is there or nothing; then removes it.
    ///
    /// The pod's end may be down: the record says that the attachment is made before that is up. No runtime
    /// was told of such a one, and one that had no answer comes with `DEL`.
    async fn assert_kept_or_nothing(&self, engine: &Arc<Engine>, after: &str) {
        let is_there = engine.book.ledger().get(&key()).is_some();
        match is_there {
            true => self.assert_kept(engine, after),
            false => self.assert_nothing_left(engine, after),
        }
        self.assert_removable(engine, after).await;
    }
}

fn netns() -> Netns {
    Netns::current().unwrap()
}

fn key() -> AttachmentKey {
    samples::key("c1", "net1")
}

/// The answer, unless the agent died by the test's doing.
fn alive<T>(joined: Result<T, tokio::task::JoinError>) -> Option<T> {
    match joined {
        Ok(answer) => Some(answer),
        Err(died) => {
            let payload = died.into_panic();
            assert!(payload.is::<Dead>(), "the engine panicked");
            None
        }
    }
}

/// The audit as it is due: records first.
async fn audit(engine: &Engine) {
    assert!(engine.book.mend().await);
    let errors = engine.audit(true).await.unwrap();
    assert!(errors.is_empty(), "{errors:?}");
    super::doors::Reach::mend_ways_out(&*engine.reach).await;
}

/// The calls of an `ADD`, and those of the `DEL` behind it.
async fn clean_run(is_limited: bool) -> (Vec<&'static str>, Vec<&'static str>) {
    let scene = Scene::of(is_limited);
    let engine = scene.recovered().await;
    scene.kernel.expect(None);
    scene.add(&engine).await.unwrap().unwrap();
    let added = scene.kernel.expect(None);
    scene.assert_whole(&engine, "an ADD");
    scene.remove(&engine).await.unwrap().unwrap();
    let removed = scene.kernel.expect(None);
    scene.assert_removable(&engine, "a DEL").await;
    (added, removed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_add_that_fails_at_any_call_leaves_nothing() {
    for is_limited in [false, true] {
        let (calls, _) = clean_run(is_limited).await;
        assert!(calls.len() >= 8, "{calls:?}");
        for (at, name) in calls.iter().enumerate() {
            for fate in Fate::FAILURES {
                let after = format!("{fate:?} at {name}");
                let scene = Scene::of(is_limited);
                let engine = scene.recovered().await;
                scene.kernel.expect(Some((at, fate)));
                scene.add(&engine).await.unwrap().expect_err(&after);
                scene.kernel.expect(None);
                if fate == Fate::FailsFrom {
                    // Undoing it failed too, and the audit goes on with that.
                    audit(&engine).await;
                }
                scene.assert_nothing_left(&engine, &after);
                scene.assert_removable(&engine, &after).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_dies_at_any_call_of_an_add_leaves_all_or_nothing() {
    for is_limited in [false, true] {
        let (calls, _) = clean_run(is_limited).await;
        for (at, name) in calls.iter().enumerate() {
            for fate in Fate::DEATHS {
                for survivors in [Survivors::None, Survivors::All] {
                    let after = format!("{fate:?} at {name}, {survivors:?} of the writes survive");
                    let mut scene = Scene::of(is_limited);
                    let engine = scene.recovered().await;
                    scene.kernel.expect(Some((at, fate)));
                    assert!(scene.add(&engine).await.is_none(), "{after}");
                    drop(engine);
                    let engine = scene.reborn(survivors).await;
                    scene.assert_kept_or_nothing(&engine, &after).await;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_del_that_fails_at_any_call_is_finished_by_the_next_or_by_the_audit() {
    for is_limited in [false, true] {
        let (_, calls) = clean_run(is_limited).await;
        assert!(calls.len() >= 3, "{calls:?}");
        for (at, name) in calls.iter().enumerate() {
            for fate in Fate::FAILURES {
                for by_audit in [false, true] {
                    let after = format!("{fate:?} at {name}, audit: {by_audit}");
                    let scene = Scene::of(is_limited);
                    let engine = scene.recovered().await;
                    scene.add(&engine).await.unwrap().unwrap();
                    scene.kernel.expect(Some((at, fate)));
                    let _ = scene.remove(&engine).await.unwrap();
                    scene.kernel.expect(None);
                    if by_audit {
                        audit(&engine).await;
                    } else {
                        scene.remove(&engine).await.unwrap().expect(&after);
                        super::doors::Reach::mend_ways_out(&*engine.reach).await;
                    }
                    scene.assert_nothing_left(&engine, &after);
                    scene.assert_removable(&engine, &after).await;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_dies_at_any_call_of_a_del_leaves_nothing_to_the_next() {
    for is_limited in [false, true] {
        let (_, calls) = clean_run(is_limited).await;
        for (at, name) in calls.iter().enumerate() {
            for fate in Fate::DEATHS {
                for survivors in [Survivors::None, Survivors::All] {
                    let after = format!("{fate:?} at {name}, {survivors:?} of the writes survive");
                    let mut scene = Scene::of(is_limited);
                    let engine = scene.recovered().await;
                    scene.add(&engine).await.unwrap().unwrap();
                    scene.kernel.expect(Some((at, fate)));
                    assert!(scene.remove(&engine).await.is_none(), "{after}");
                    drop(engine);
                    let engine = scene.reborn(survivors).await;
                    scene.assert_nothing_left(&engine, &after);
                    scene.assert_removable(&engine, &after).await;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_add_or_a_del_whose_record_cannot_be_written_leaves_all_or_nothing() {
    for (removes, is_limited) in [(false, false), (false, true), (true, false), (true, true)] {
        for at in 0.. {
            let after = format!("the disk fails at step {at}, DEL: {removes}, {is_limited}");
            let scene = Scene::of(is_limited);
            let engine = scene.recovered().await;
            if removes {
                scene.add(&engine).await.unwrap().unwrap();
            }
            let begun = scene.disk.steps();
            scene.disk.set_fault(Fault::FailFrom(begun + at));
            let done = if removes {
                scene.remove(&engine).await
            } else {
                scene.add(&engine).await
            };
            let reached = scene.disk.steps() > begun + at;
            scene.disk.set_fault(Fault::None);
            audit(&engine).await;
            match (done.unwrap(), removes) {
                // Told as made: it stays.
                (Ok(()), false) => scene.assert_whole(&engine, &after),
                (Err(_), false) | (Ok(()), true) => scene.assert_nothing_left(&engine, &after),
                // Not recorded as going: the runtime comes back.
                (Err(_), true) => {}
            }
            scene.assert_removable(&engine, &after).await;
            if !reached {
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_whose_record_did_not_get_to_the_disk_go_at_the_next_start() {
    for is_limited in [false, true] {
        let (calls, _) = clean_run(is_limited).await;
        let mut deaths = 0;
        for (at, name) in calls.iter().enumerate() {
            let after = format!("a death after {name}, and nothing was written");
            let mut scene = Scene::of(is_limited);
            let engine = scene.recovered().await;
            scene.disk.set_fault(Fault::CrashAt(scene.disk.steps()));
            scene.kernel.expect(Some((at, Fate::DiesAfter)));
            // Where it waits for the record it fails instead.
            if scene.add(&engine).await.is_none() {
                deaths += 1;
                drop(engine);
                let engine = scene.reborn(Survivors::None).await;
                scene.assert_nothing_left(&engine, &after);
                scene.assert_removable(&engine, &after).await;
            }
        }
        let made = calls.iter().position(|name| *name == "ports.make");
        assert!(made.is_some_and(|made| deaths > made), "{deaths}");
    }
}
