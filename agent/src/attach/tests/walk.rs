//! Random lives of several attachments, with any misfortune, disk included.

use proptest::prelude::*;
use tokio::runtime::Builder;

use super::*;

const CONTAINERS: [&str; 3] = ["c1", "c2", "c3"];

/// A step of a life.
#[derive(Debug, Clone)]
enum Step {
    Add(usize, Misfortune),
    Remove(usize, Misfortune),
    Collect(usize),
    Audit,
    Restart(bool),
}

#[derive(Debug, Clone, Copy)]
enum Misfortune {
    None,
    Call(usize, Fate),
    Disk(u64),
}

fn misfortune() -> impl Strategy<Value = Misfortune> {
    let all: Vec<Fate> = Fate::FAILURES.into_iter().chain(Fate::DEATHS).collect();
    prop_oneof![
        3 => Just(Misfortune::None),
        5 => (0..12_usize, proptest::sample::select(all)).prop_map(|(at, fate)| Misfortune::Call(at, fate)),
        2 => (0..12_u64).prop_map(Misfortune::Disk),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let one = 0..CONTAINERS.len();
    prop_oneof![
        6 => (one.clone(), misfortune()).prop_map(|(it, bad)| Step::Add(it, bad)),
        4 => (one.clone(), misfortune()).prop_map(|(it, bad)| Step::Remove(it, bad)),
        1 => one.prop_map(Step::Collect),
        1 => Just(Step::Audit),
        1 => any::<bool>().prop_map(Step::Restart),
    ]
}

/// A node, its agent, and what runtimes were told.
struct Walk {
    scene: Scene,
    engine: Arc<Engine>,
    /// Containers whose `ADD` succeeded and whose `DEL` did not begin.
    told: BTreeSet<&'static str>,
}

impl Walk {
    fn befall(&self, bad: Misfortune) {
        match bad {
            Misfortune::None => {}
            Misfortune::Call(at, fate) => drop(self.scene.kernel.expect(Some((at, fate)))),
            Misfortune::Disk(at) => {
                let begun = self.scene.disk.steps();
                self.scene.disk.set_fault(Fault::FailFrom(begun + at));
            }
        }
    }

    async fn end(&mut self, is_dead: bool) {
        self.scene.kernel.expect(None);
        self.scene.disk.set_fault(Fault::None);
        if is_dead {
            self.restart(Survivors::All).await;
        }
    }

    async fn restart(&mut self, survivors: Survivors) {
        self.engine = self.scene.reborn(survivors).await;
    }

    async fn step(&mut self, step: &Step) {
        match *step {
            Step::Add(it, bad) => {
                let container = CONTAINERS[it];
                self.befall(bad);
                let added = self.scene.add_of(&self.engine, container).await;
                let is_dead = added.is_none();
                if let Some(Ok(())) = added {
                    self.told.insert(container);
                }
                self.end(is_dead).await;
            }
            Step::Remove(it, bad) => {
                let container = CONTAINERS[it];
                self.told.remove(container);
                self.befall(bad);
                let removed = self.scene.remove_of(&self.engine, container).await;
                self.end(removed.is_none()).await;
            }
            Step::Collect(it) => {
                let kept = CONTAINERS[it];
                self.told.retain(|told| *told == kept);
                let keep =
                    |record: &book::record::Attachment| record.key.container.as_str() == kept;
                // What the disk has refused so far is tried again first.
                assert!(self.engine.book.mend().await);
                let before = std::time::Instant::now();
                let collected = self.engine.collect("conf", before, keep).await;
                collected.unwrap();
            }
            Step::Audit => audit(&self.engine).await,
            Step::Restart(all) => {
                // An orderly end has written what there is.
                assert!(self.engine.book.mend().await);
                let survivors = if all { Survivors::All } else { Survivors::None };
                self.restart(survivors).await;
            }
        }
    }

    /// Fails unless all that runtimes were told is there.
    fn assert_told(&self, after: &str) {
        for container in &self.told {
            self.scene.assert_kept_of(&self.engine, container, after);
        }
    }

    /// Fails unless nothing is there but what the book has.
    fn assert_booked_only(&self, after: &str) {
        let ledger = self.engine.book.ledger();
        let booked: BTreeSet<String> = ledger
            .entries()
            .map(|entry| entry.record.host.name.clone())
            .collect();
        let things = self.scene.kernel.things();
        let links: BTreeSet<String> = things.links.keys().cloned().collect();
        assert!(links.is_subset(&booked), "{after}: {links:?}");
        assert!(things.open.is_subset(&booked), "{after}");
        let shapers: BTreeSet<String> = things.shapers.keys().cloned().collect();
        assert!(shapers.is_subset(&booked), "{after}: {shapers:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn attachments_come_and_go_with_any_misfortune_and_leave_nothing(
        is_limited in any::<bool>(),
        steps in proptest::collection::vec(step(), 1..20),
    ) {
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let scene = Scene::of(is_limited);
            let engine = scene.recovered().await;
            let mut walk = Walk { scene, engine, told: BTreeSet::new() };
            for step in &steps {
                walk.step(step).await;
                walk.assert_told(&format!("{step:?}"));
                walk.assert_booked_only(&format!("{step:?}"));
            }
            assert!(walk.engine.book.mend().await);
            for container in CONTAINERS {
                walk.scene.remove_of(&walk.engine, container).await.unwrap().unwrap();
            }
            super::super::doors::Reach::mend_ways_out(&*walk.engine.reach).await;
            walk.scene.assert_nothing_left(&walk.engine, "all are removed");
        });
    }
}
