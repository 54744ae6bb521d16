//! Recovery that dies at each call, after a death at each call of what it recovers.

use super::*;

/// A step that an agent dies of.
#[derive(Debug, Clone, Copy)]
enum Work {
    Add,
    Remove,
}

/// A node on which one attachment is whole and the agent died at work on another.
async fn died(work: Work, is_limited: bool, fate: (usize, Fate)) -> Option<Scene> {
    let mut scene = Scene::of(is_limited);
    let engine = scene.recovered().await;
    scene.add_of(&engine, "c2").await.unwrap().unwrap();
    let done = match work {
        Work::Add => {
            scene.kernel.expect(Some(fate));
            scene.add(&engine).await
        }
        Work::Remove => {
            scene.add(&engine).await.unwrap().unwrap();
            scene.kernel.expect(Some(fate));
            scene.remove(&engine).await
        }
    };
    let is_dead = done.is_none();
    drop(engine);
    scene.kernel.expect(None);
    scene.disk = scene.disk.after_crash(Survivors::None);
    is_dead.then_some(scene)
}

/// Starts an agent; none when it died.
async fn start(scene: &Scene) -> Option<Arc<Engine>> {
    let engine = scene.start().await;
    let work = async move {
        engine.recover(&PinDir::new("/none".into())).await.unwrap();
        engine
    };
    alive(tokio::spawn(work).await)
}

/// Fails unless there is what the book says, and nothing else.
fn assert_as_booked(scene: &Scene, engine: &Engine, after: &str) {
    let ledger = engine.book.ledger();
    let booked: Vec<_> = ledger.entries().map(|it| it.record.clone()).collect();
    drop(ledger);
    for record in &booked {
        scene.assert_kept_of(engine, record.key.container.as_str(), after);
    }
    let things = scene.kernel.things();
    let names: BTreeSet<String> = booked.iter().map(|it| it.host.name.clone()).collect();
    let links: BTreeSet<String> = things.links.keys().cloned().collect();
    assert_eq!(links, names, "{after}");
    assert_eq!(things.open, names, "{after}");
    let shapers = things.shapers.len();
    let wanted = if scene.is_limited { names.len() } else { 0 };
    assert_eq!(shapers, wanted, "{after}: {:?}", things.shapers);
    let entries: usize = things.tables.values().map(BTreeSet::len).sum();
    assert_eq!(entries, names.len(), "{after}: {:?}", things.tables);
    let ways_out: BTreeSet<u32> = booked.iter().map(|it| it.network.id).collect();
    assert_eq!(things.ways_out, ways_out, "{after}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_dies_at_any_call_is_made_up_for_by_the_next() {
    let mut starts = 0;
    for (work, is_limited) in [(Work::Add, false), (Work::Add, true), (Work::Remove, true)] {
        let (added, removed) = clean_run(is_limited).await;
        let calls = match work {
            Work::Add => added,
            Work::Remove => removed,
        };
        for (at, name) in calls.into_iter().enumerate() {
            for again in 0.. {
                // Alternating, so that both ways of each death meet.
                let fate = Fate::DEATHS[again % 2];
                let after = format!("{work:?}, {fate:?} at {name}, then at call {again}");
                let scene = died(work, is_limited, (at, fate)).await.expect(&after);
                scene
                    .kernel
                    .expect(Some((again / 2, Fate::DEATHS[again % 2])));
                let started = start(&scene).await;
                let is_over = started.is_some();
                drop(started);
                scene.kernel.expect(None);
                let scene = Scene {
                    disk: scene.disk.after_crash(Survivors::None),
                    ..scene
                };
                let engine = start(&scene).await.expect(&after);
                starts += 1;
                scene.assert_kept_of(&engine, "c2", &after);
                assert_as_booked(&scene, &engine, &after);
                if is_over {
                    break;
                }
            }
        }
    }
    assert!(starts > 100, "{starts}");
}

/// A link of ours that no record names, and a record whose link is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_removes_strays_and_keeps_the_record_of_a_pod_that_lost_its_link() {
    let mut scene = Scene::of(false);
    let engine = scene.recovered().await;
    scene.add(&engine).await.unwrap().unwrap();
    scene.add_of(&engine, "c2").await.unwrap().unwrap();
    assert!(engine.book.mend().await);
    let lost = engine.book.record(&key()).unwrap().host.name;
    drop(engine);
    {
        let mut things = scene.kernel.things();
        things.links.remove(&lost);
        things.links.insert("pn0000stray".to_owned(), (99, true));
        things.open.insert("pn0000stray".to_owned());
    }
    let engine = scene.reborn(Survivors::All).await;
    scene.assert_kept_of(&engine, "c2", "the other one stays");
    let things = scene.kernel.things();
    assert_eq!(things.links.len(), 1, "{:?}", things.links);
    let entries: usize = things.tables.values().map(BTreeSet::len).sum();
    assert_eq!(entries, 1, "a port without a link is in no table");
    drop(things);
    let ledger = engine.book.ledger();
    let entry = ledger.get(&key()).expect("`DEL` is still to come");
    assert_eq!((entry.record.state, entry.live), (State::Added, false));
}
